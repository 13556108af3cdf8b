//! The threads that decide: one for each core, each with a runtime of its own, so that no call moves between threads. A connection is
//! given to the thread that serves the fewest.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::{LocalSet, spawn_local};

use super::accept::Arrival;
use super::connection::{Serve, serve};

/// How many connections may wait for a thread. It only has to take them up, so a full queue means that the thread hangs.
const ARRIVALS_MAX: usize = 1_024;
/// How many threads a core may have beside it for what takes long.
const BLOCKING_MAX: usize = 2;
/// How often whoever waits for the last connection looks.
const IDLE_LOOK: Duration = Duration::from_millis(5);

/// How far a node is from its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Phase {
    /// It serves.
    #[default]
    Serving,
    /// Connections are asked to end: what is in flight is answered, nothing new is taken.
    Ending,
}

/// The threads.
#[derive(Debug)]
pub struct Cores {
    doors: Vec<Door>,
    phase: watch::Sender<Phase>,
}

/// The way to one thread.
#[derive(Clone, Debug)]
struct Door {
    arrivals: mpsc::Sender<(Arrival, Load)>,
    load: Arc<AtomicUsize>,
}

/// One connection more on a thread, until it is dropped.
#[derive(Debug)]
struct Load(Arc<AtomicUsize>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Cores {
    /// Starts so many threads. Each makes what it serves with by `make`, which is given its number.
    pub fn start<S, M>(count: usize, make: M) -> io::Result<Self>
    where
        S: Serve + 'static,
        M: Fn(usize) -> S + Clone + Send + 'static,
    {
        let (phase, phases) = watch::channel(Phase::Serving);
        let mut doors = Vec::new();
        for number in 0..count.max(1) {
            let (arrivals, waiting) = mpsc::channel(ARRIVALS_MAX);
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(BLOCKING_MAX)
                .build()?;
            let (make, phases) = (make.clone(), phases.clone());
            let thread = std::thread::Builder::new().name(format!("core-{number}"));
            // It ends when nothing more can arrive; nobody has to wait for that.
            thread.spawn(move || run(&runtime, || make(number), waiting, phases))?;
            doors.push(Door { arrivals, load: Arc::default() });
        }
        Ok(Self { doors, phase })
    }

    /// Gives a connection to the thread that has the fewest; gives it back if no thread takes it.
    pub(super) fn give(&self, arrival: Arrival) -> Result<(), Arrival> {
        let Some(door) = self.doors.iter().min_by_key(|door| door.load.load(Ordering::Relaxed)) else {
            return Err(arrival);
        };
        door.load.fetch_add(1, Ordering::Relaxed);
        let given = door.arrivals.try_send((arrival, Load(door.load.clone())));
        given.map_err(|error| error.into_inner().0)
    }

    /// Asks every connection to end.
    pub fn end(&self) {
        self.phase.send_replace(Phase::Ending);
    }

    /// Where the phase is seen.
    pub fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Waits until no connection is left.
    pub async fn idle(&self) {
        while self.loads().iter().any(|load| *load > 0) {
            tokio::time::sleep(IDLE_LOOK).await;
        }
    }

    /// How many connections each thread serves.
    pub fn loads(&self) -> Vec<usize> {
        self.doors.iter().map(|door| door.load.load(Ordering::Relaxed)).collect()
    }
}

fn run<S: Serve + 'static>(
    runtime: &runtime::Runtime,
    make: impl FnOnce() -> S,
    mut waiting: mpsc::Receiver<(Arrival, Load)>,
    phases: watch::Receiver<Phase>,
) {
    let tasks = LocalSet::new();
    tasks.block_on(runtime, async {
        let (serves, phases) = (Rc::new(make()), here(phases)); // What is made may have tasks of its own.
        while let Some((arrival, load)) = waiting.recv().await {
            let (serves, phases) = (serves.clone(), phases.clone());
            spawn_local(async move {
                serve(serves, arrival, phases).await;
                drop(load);
            });
        }
    });
    runtime.block_on(tasks); // Until the last connection has ended.
}

/// The phase as a channel of this thread: connections look at it each time they do something, and looking takes a lock.
fn here(mut everywhere: watch::Receiver<Phase>) -> watch::Receiver<Phase> {
    let (here, phases) = watch::channel(*everywhere.borrow_and_update());
    spawn_local(async move {
        loop {
            tokio::select! {
                Ok(()) = everywhere.changed() => drop(here.send_replace(*everywhere.borrow_and_update())),
                () = here.closed() => return, // The last connection has ended.
            }
        }
    });
    phases
}
