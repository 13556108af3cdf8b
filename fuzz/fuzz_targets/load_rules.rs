//! Any bytes as rule files.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_fuzz::check(bytes));
