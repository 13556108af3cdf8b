//! Plays a script, such as a failing test prints, on the memory store and on the model, and shows what each says.
//!
//! `cargo run -p tidegate-suite --example replay -- crates/tidegate-suite/scripts/roles.script`

use std::process::ExitCode;

use tidegate_core::Micros;
use tidegate_counters::{Memory, MemorySize};
use tidegate_suite::{Script, check, replay};

fn main() -> ExitCode {
    match play() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn play() -> Result<(), String> {
    let path = std::env::args()
        .nth(1)
        .ok_or("name a script: cargo run -p tidegate-suite --example replay -- FILE")?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let script: Script = text.parse().map_err(|error| format!("{path}: {error}"))?;
    print!("{}", replay(&script));
    let size = MemorySize { slots: 1 << 20, arena: 1 << 20 };
    let memory = Memory::new(size, Micros::from_secs(1_800_000_000)).map_err(|error| error.to_string())?;
    check(&memory, &script, "replay").map_err(|error| error.to_string())
}
