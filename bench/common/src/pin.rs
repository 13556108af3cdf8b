//! Who runs where: the servers that are measured on one core, the generator on another.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The two cores, of those that this process may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cores {
    server: usize,
    generator: usize,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Where the measured servers are.
    Server,
    /// Where the load comes from.
    Generator,
}

impl Cores {
    /// The first and the last that we may use; none if there is only one.
    pub fn find() -> Option<Self> {
        let allowed = sched_getaffinity(None).ok()?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let server = cores.next()?;
        Some(Self { server, generator: cores.next_back()? })
    }

    /// What `work` does, and whom it starts, is on this core; afterwards this thread goes on on the generator's.
    pub fn on<T>(cores: Option<Self>, place: Place, work: impl FnOnce() -> T) -> T {
        if let Some(cores) = cores {
            stay(if place == Place::Server { cores.server } else { cores.generator });
        }
        let done = work(); // A process runs where the thread ran that started it.
        if let Some(cores) = cores {
            stay(cores.generator);
        }
        done
    }
}

fn stay(core: usize) {
    let mut only = CpuSet::new();
    only.set(core);
    if let Err(error) = sched_setaffinity(None, &only) {
        eprintln!("nobody is kept on core {core}: {error}");
    }
}
