//! What it was measured on and with.

use serde::{Deserialize, Serialize};
use tidegate_bench_common::machine;
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::store::Store;

/// As the raw numbers of every page keep it.
#[derive(Serialize, Deserialize, Default)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    /// Had the servers and the generator a core each?
    pub(crate) pinned: bool,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) rustc: String,
    /// Where something was built by it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) go: String,
    /// Where somebody counted in one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) redis: String,
    pub(crate) commit: String,
}

impl Machine {
    /// This one. To be asked before a thread is kept on one core, which is then all that it sees.
    pub(crate) fn here() -> Self {
        Self {
            cores: machine::cores(),
            pinned: Cores::find().is_some(),
            cpu: machine::cpu(),
            kernel: machine::kernel(),
            rustc: machine::rustc(),
            commit: machine::commit(),
            ..Self::default()
        }
    }

    /// The same with the store of the run.
    pub(crate) fn with(self, store: &Store) -> Result<Self, String> {
        Ok(Self { redis: store.version()?, ..self })
    }

    /// The same with Go, by which some were built.
    pub(crate) fn with_go(self) -> Self {
        Self { go: machine::said("go", &["env", "GOVERSION"]).trim().to_string(), ..self }
    }
}
