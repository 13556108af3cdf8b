//! Any bytes as what a client says on a connection of HTTP/2.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_fuzz::converse(bytes));
