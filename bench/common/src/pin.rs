//! Who runs where: the servers that are measured on one core, the generator on another.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

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
    /// The first and the last that we may use; none if there is only one, or nobody may be kept on one.
    pub fn find() -> Option<Self> {
        let allowed = sched_getaffinity(None).ok()?;
        sched_setaffinity(None, &allowed).ok()?; // Where it is now: some machines let nobody say so.
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let server = cores.next()?;
        Some(Self { server, generator: cores.next_back()? })
    }

    /// What `work` does, and whom it starts, is on this core; afterwards this thread goes on on the generator's.
    pub fn on<T>(cores: Option<Self>, place: Place, work: impl FnOnce() -> T) -> T {
        if let Some(cores) = cores {
            stay(None, cores.at(place));
        }
        let done = work(); // A process runs where the thread ran that started it.
        if let Some(cores) = cores {
            stay(None, cores.generator);
        }
        done
    }

    /// Moves the first thread of another process to this core.
    pub fn bring(cores: Option<Self>, place: Place, process: u32) {
        if let Some(cores) = cores {
            stay(Pid::from_raw(process as i32), cores.at(place));
        }
    }

    fn at(self, place: Place) -> usize {
        match place {
            Place::Server => self.server,
            Place::Generator => self.generator,
        }
    }
}

/// This thread, or another process.
fn stay(who: Option<Pid>, core: usize) {
    let mut only = CpuSet::new();
    only.set(core);
    if let Err(error) = sched_setaffinity(who, &only) {
        eprintln!("nobody is kept on core {core}: {error}");
    }
}
