//! Who runs where: the subjects on one core, the generator on another.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The two cores, of those that this process may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Cores {
    server: usize,
    generator: usize,
}

impl Cores {
    /// The first and the last that we may use; none if there is only one.
    pub(crate) fn find() -> Option<Self> {
        let allowed = sched_getaffinity(None).ok()?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let server = cores.next()?;
        Some(Self { server, generator: cores.next_back()? })
    }

    /// What is started by `start` stays on the core of the subjects; this thread goes on on the generator's.
    pub(crate) fn started<T>(cores: Option<Self>, start: impl FnOnce() -> T) -> T {
        if let Some(cores) = cores {
            stay(cores.server);
        }
        let started = start(); // A process runs where the thread ran that started it.
        if let Some(cores) = cores {
            stay(cores.generator);
        }
        started
    }
}

fn stay(core: usize) {
    let mut only = CpuSet::new();
    only.set(core);
    if let Err(error) = sched_setaffinity(None, &only) {
        eprintln!("nobody is kept on core {core}: {error}");
    }
}
