//! What it was measured on and with.

use tidegate_bench_common::machine::{cores, cpu, kernel, rustc, version};

use crate::results::Machine;

pub(crate) fn here(pinned: bool) -> Machine {
    Machine {
        cores: cores(),
        pinned,
        cpu: cpu(),
        kernel: kernel(),
        rustc: rustc(),
        tonic: version("tonic"),
        hyper: version("hyper"),
        h2: version("h2"),
        tokio: version("tokio"),
        mimalloc: version("mimalloc"),
    }
}
