//! Every store of counters passes the suite. A new one is a line at `stores!`.

use tidegate_core::Micros;
use tidegate_counters::{Memory, MemorySize};
use tidegate_suite::{check_random, check_scripts, check_threads};

macro_rules! stores {
    ($($name:ident: $store:expr;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn agrees_with_the_model_on_every_script() {
                check_scripts(&$store, stringify!($name)).unwrap_or_else(|error| panic!("{error}"));
            }

            #[test]
            fn agrees_with_the_model_on_random_scripts() {
                check_random(&$store, stringify!($name), 3_000).unwrap_or_else(|error| panic!("{error}"));
            }

            #[test]
            fn judges_each_request_in_one_piece() {
                check_threads(&$store, stringify!($name)).unwrap_or_else(|error| panic!("{error}"));
            }
        })*
    };
}

stores! {
    memory: memory();
}

fn memory() -> Memory {
    let size = MemorySize { slots: 64 << 20, arena: 64 << 20 };
    Memory::new(size, Micros::from_secs(1_800_000_000)).unwrap_or_else(|error| panic!("{error}"))
}
