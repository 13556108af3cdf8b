//! Rule files as somebody might write them who has read the tables, and not always closely.

#![no_main]

use tidegate_fuzz::Written;

libfuzzer_sys::fuzz_target!(|rules: Written| tidegate_fuzz::check(rules.0.as_bytes()));
