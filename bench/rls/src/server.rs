//! A subject in a process of its own.

use serde::{Deserialize, Serialize};
use tidegate_bench_common::generator::Used;
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::process::{Entrance, Process, child_command, node_command};

use crate::rules;

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Subject {
    /// The node: the program that users run.
    Tidegate,
    /// tonic with a fixed answer, on a runtime of one thread.
    Bare,
    /// The same on tonic's usual runtime, with one worker.
    BareMulti,
}

impl Subject {
    pub(crate) const ALL: [Self; 3] = [Self::Tidegate, Self::Bare, Self::BareMulti];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Bare => "bare",
            Self::BareMulti => "bare_multi",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Tidegate => "Tidegate",
            Self::Bare => "bare tonic, `current_thread`",
            Self::BareMulti => "bare tonic, multi-thread with one worker",
        }
    }
}

/// A subject that serves. It ends when it is dropped.
pub(crate) struct Server {
    pub(crate) subject: Subject,
    pub(crate) process: Process,
}

impl Server {
    /// Starts it, and waits until it listens.
    pub(crate) fn start(subject: Subject, cores: Option<Cores>) -> Result<Self, String> {
        let name = subject.word();
        let process = match subject {
            Subject::Tidegate => Process::start_node(Entrance::Rls, name, cores, |folder| {
                let rules = folder.join("rules");
                rules::write(&rules)?;
                node_command(folder, &rules)
            })?,
            Subject::Bare | Subject::BareMulti => {
                Process::start(name, cores, |_| child_command(&["child", name]))?
            }
        };
        Ok(Self { subject, process })
    }

    /// What it has used of its processor so far.
    pub(crate) fn used(&self) -> Result<Used, String> {
        Ok(Used { server_cpu_ns: self.process.cpu_ns()?, ..Used::default() })
    }
}
