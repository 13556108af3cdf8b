//! A subject in a process of its own, so that its memory can be told. It is spoken to in lines of JSON: a question, an answer.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tidegate_bench_common::results::Latency;
use tidegate_clock::Stopwatch;

use crate::keys::{Distribution, Lists};
use crate::results::{MemoryRow, Timing, Workload};
use crate::subject::{Name, Shape, Subject};

/// A subject that lives in another process. It ends when it is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub(crate) subject: Name,
    pub(crate) memory: MemoryRow,
}

/// What a child is asked.
#[derive(Serialize, Deserialize)]
enum Question {
    /// To time so many takes together; where in the list of keys to start.
    Together { workload: Workload, takes: usize, start: usize },
    /// To time so many takes one by one.
    Singly { takes: usize },
}

/// What it says.
#[derive(Serialize, Deserialize)]
struct Answer {
    timing: Timing,
    /// Its memory by now.
    bytes: u64,
}

impl Child {
    /// Starts it and waits until all its keys are live.
    pub(crate) fn start(subject: Name, keys: u32, draws: usize) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
        let mut command = Command::new(program);
        command.args(["child", subject.word(), &keys.to_string(), &draws.to_string()]);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a process for {} could not be started: {error}", subject.word()))?;
        let answers = process.stdout.take().ok_or("a child without an output")?;
        let questions = process.stdin.take();
        let mut answers = BufReader::new(answers);
        let memory = read(&mut answers, subject)?;
        Ok(Self { process, questions, answers, subject, memory })
    }

    /// Times a workload.
    pub(crate) fn time(&mut self, workload: Workload, takes: usize, start: usize) -> Result<Timing, String> {
        let answer: Answer = self.ask(&Question::Together { workload, takes, start })?;
        self.memory.bytes_after = self.memory.bytes_after.min(answer.bytes);
        Ok(answer.timing)
    }

    /// How long so many takes take, each by itself.
    pub(crate) fn latency(&mut self, takes: usize) -> Result<Latency, String> {
        self.ask(&Question::Singly { takes })
    }

    fn ask<T: for<'a> Deserialize<'a>>(&mut self, question: &Question) -> Result<T, String> {
        let questions = self.questions.as_mut().ok_or("a child without an input")?;
        write(questions, question)?;
        read(&mut self.answers, self.subject)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.questions.take()); // The end of its input is its end.
        if let Err(error) = self.process.wait() {
            eprintln!("{} did not end: {error}", self.subject.word());
        }
    }
}

/// The child's side: fills a table, tells of its memory, and times what it is asked to until there is no more to read.
pub(crate) fn serve(name: Name, keys: u32, draws: usize) -> Result<(), String> {
    let lists = Lists::draw(keys, draws);
    let (subject, memory) = filled(name, keys)?;
    let mut out = std::io::stdout().lock();
    write(&mut out, &memory)?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("the parent cannot be heard: {error}"))?;
        match serde_json::from_str(&line).map_err(|error| format!("not a question: {error}"))? {
            Question::Together { workload, takes, start } => {
                // A tenth as many before: this process has slept while others were timed.
                timed(&*subject, &lists, workload, takes / 10, start + takes);
                let timing = timed(&*subject, &lists, workload, takes, start);
                write(&mut out, &Answer { timing, bytes: resident_bytes()? })?;
            }
            Question::Singly { takes } => write(&mut out, &singly(&*subject, &lists, takes))?,
        }
    }
    Ok(())
}

/// One workload that goes on for a while, for a profiler to look at.
#[derive(PartialEq, Debug)]
pub(crate) struct One {
    pub(crate) subject: Option<Name>,
    pub(crate) keys: u32,
    pub(crate) distribution: Distribution,
    pub(crate) threads: usize,
    pub(crate) takes: usize,
    pub(crate) batch: usize,
    pub(crate) seconds: u64,
}

pub(crate) fn one(one: &One) -> Result<(), String> {
    const TAKES: usize = 1_000_000;
    let name = one.subject.unwrap_or(Name::Slot);
    let workload =
        Workload { distribution: one.distribution, threads: one.threads, takes: one.takes, batch: one.batch };
    let lists = Lists::draw(one.keys, 4 * TAKES);
    let (subject, memory) = filled(name, one.keys)?;
    println!(
        "{}: {:.1} bytes per key, {} of {} keys evicted live, filled in {:.1} s",
        name.word(),
        memory.bytes_per_key(),
        memory.evicted_live,
        one.keys,
        memory.fill_ms as f64 / 1e3
    );
    let (mut all, whole) = (Timing { takes: 0, refused: 0, wall_ns: 0, cpu_ns: 0 }, Stopwatch::start());
    let mut start = 0;
    while whole.elapsed() < Duration::from_secs(one.seconds) {
        let timing = timed(&*subject, &lists, workload, TAKES, start);
        start += TAKES;
        all.takes += timing.takes;
        all.refused += timing.refused;
        all.wall_ns += timing.wall_ns;
        all.cpu_ns += timing.cpu_ns;
    }
    println!(
        "{:.2} M takes per second, {:.2} M per second of the processor ({:.1} ns), {:.1} % refused",
        all.takes as f64 * 1e3 / all.wall_ns as f64,
        all.takes as f64 * 1e3 / all.cpu_ns as f64,
        all.cpu_ns as f64 / all.takes as f64,
        all.refused as f64 * 100.0 / all.takes as f64
    );
    Ok(())
}

/// A subject with all its keys live, and the memory of this process before and after.
fn filled(name: Name, keys: u32) -> Result<(Box<dyn Subject>, MemoryRow), String> {
    let bytes_before = resident_bytes()?;
    let watch = Stopwatch::start();
    let subject = name.build(keys);
    subject.fill(keys);
    let memory = MemoryRow {
        subject: name,
        keys,
        bytes_before,
        bytes_after: resident_bytes()?,
        bytes_max: subject.bytes_max(),
        evicted_live: subject.evicted_live(),
        fill_ms: watch.elapsed().as_millis() as u64,
    };
    if !subject.refuses_at_its_limit() {
        return Err(format!("{} does not refuse at its limit: nothing to time", name.word()));
    }
    Ok((subject, memory))
}

/// Runs a workload, each thread its share of the keys from `start` on.
fn timed(subject: &dyn Subject, lists: &Lists, workload: Workload, takes: usize, start: usize) -> Timing {
    let Workload { distribution, threads, takes: takes_per_request, batch } = workload;
    let shape = Shape { takes: takes_per_request, batch, alone: threads == 1 };
    // Whole requests.
    let share = (takes / threads).next_multiple_of(takes_per_request);
    let part = |thread: usize| lists.part(distribution, start + thread * share, share);
    if threads == 1 {
        let (watch, cpu_before_ns) = (Stopwatch::start(), thread_cpu_ns());
        let refused = subject.run(part(0), shape);
        let cpu_ns = thread_cpu_ns() - cpu_before_ns;
        return Timing { takes: share as u64, refused, wall_ns: watch.elapsed().as_nanos() as u64, cpu_ns };
    }
    let (gate, watch) = (Barrier::new(threads), Stopwatch::start());
    let worker = |thread: usize| {
        let part = part(thread);
        gate.wait();
        let (start, cpu_before_ns) = (watch.elapsed(), thread_cpu_ns());
        let refused = subject.run(part, shape);
        Share { refused, cpu_ns: thread_cpu_ns() - cpu_before_ns, start, end: watch.elapsed() }
    };
    let shares: Vec<Share> = std::thread::scope(|scope| {
        let worker = &worker;
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || worker(thread))).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    let start = shares.iter().map(|share| share.start).min().unwrap_or_default();
    let end = shares.iter().map(|share| share.end).max().unwrap_or_default();
    Timing {
        takes: (share * threads) as u64,
        refused: shares.iter().map(|share| share.refused).sum(),
        wall_ns: (end - start).as_nanos() as u64,
        cpu_ns: shares.iter().map(|share| share.cpu_ns).sum(),
    }
}

/// Takes of keys that no cache can guess, one by one, each with a look at the clock before and after.
fn singly(subject: &dyn Subject, lists: &Lists, takes: usize) -> Latency {
    let shape = Shape { takes: 1, batch: 1, alone: true };
    let took_ns = |at: usize| {
        let (draw, watch) = (lists.part(Distribution::Uniform, at, 1), Stopwatch::start());
        subject.run(draw, shape);
        watch.elapsed().as_nanos() as u64
    };
    Latency::of(&mut (0..takes).map(took_ns).collect::<Vec<_>>(), &mut [])
}

/// What one of several threads did, and from when to when.
struct Share {
    refused: u64,
    cpu_ns: u64,
    start: Duration,
    end: Duration,
}

/// What this thread has used of its processor. Not a time of day, and so nothing that `tidegate-clock` knows.
fn thread_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// The memory of this process that is really there.
fn resident_bytes() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| format!("no /proc/self/status, which tells of memory on Linux: {error}"))?;
    resident_kib(&text).map(|kib| kib * 1024).ok_or_else(|| "no VmRSS in /proc/self/status".into())
}

fn resident_kib(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse().ok()
}

fn write(out: &mut impl Write, value: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(value).map_err(|error| error.to_string())?;
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| format!("nobody listens: {error}"))
}

fn read<T: for<'a> Deserialize<'a>>(answers: &mut impl BufRead, subject: Name) -> Result<T, String> {
    let mut line = String::new();
    answers.read_line(&mut line).map_err(|error| error.to_string())?;
    serde_json::from_str(&line).map_err(|_| format!("{} ended early (see above)", subject.word()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_what_linux_writes() {
        assert_eq!(resident_kib("VmHWM:\t    9 kB\nVmRSS:\t  2048 kB\nThreads:\t1\n"), Some(2048));
        assert_eq!(resident_kib("Name:\tcore\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")] // Elsewhere nobody tells of memory.
    fn every_subject_fills_refuses_and_is_timed() {
        let (keys, takes) = (100, 60);
        let lists = Lists::draw(keys, 1_000);
        for name in Name::ALL {
            let (subject, _) = filled(name, keys).unwrap_or_else(|error| panic!("{error}"));
            for (threads, takes_per_request) in [(1, 1), (1, 3), (2, 1), (2, 3)] {
                let workload = Workload {
                    distribution: Distribution::Uniform,
                    threads,
                    takes: takes_per_request,
                    batch: 4,
                };
                let timing = timed(&*subject, &lists, workload, takes, 0);
                assert_eq!((timing.takes, timing.refused), (60, 0), "{name:?} {workload:?}");
            }
            let latency = singly(&*subject, &lists, takes);
            assert!(latency.p50_ns > 0 && latency.p50_ns <= latency.most_ns, "{name:?} {latency:?}");
        }
    }
}
