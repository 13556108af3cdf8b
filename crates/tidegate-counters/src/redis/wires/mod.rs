//! stand-in
use super::settings::{Address, RedisSettings, Topology};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::OnceLock;
use tokio::sync::OnceCell;

pub(super) struct Servers {
    pub settings: RedisSettings,
}
impl Servers {
    pub(super) fn settings(&self) -> &RedisSettings {
        &self.settings
    }
    pub(super) fn stats(&self) -> super::RedisStats {
        super::RedisStats::default()
    }
    pub(super) fn new(settings: RedisSettings) -> Arc<Self> {
        Arc::new(Self { settings })
    }
}
pub(super) struct Wires {
    servers: Arc<Servers>,
    connection: OnceCell<redis::aio::MultiplexedConnection>,
}
pub(super) struct Script {
    text: &'static str,
    sha: OnceLock<String>,
}
impl Script {
    pub(super) const fn new(text: &'static str) -> Self {
        Self { text, sha: OnceLock::new() }
    }
}
pub(super) struct Call {
    pub script: &'static Script,
    pub op: &'static str,
    pub keys: Vec<Vec<u8>>,
    pub argument: Vec<u8>,
}
#[derive(Debug)]
pub(super) enum CallFailed {
    NotDone(String),
    Unknown(String),
}
impl Wires {
    pub(super) fn new(servers: Arc<Servers>) -> Rc<Wires> {
        Rc::new(Self { servers, connection: OnceCell::new() })
    }
    async fn conn(&self) -> redis::aio::MultiplexedConnection {
        self.connection
            .get_or_init(|| async {
                let Topology::Standalone(Address::Tcp(h, p)) = &self.servers.settings.topology else {
                    panic!()
                };
                redis::Client::open(format!("redis://{h}:{p}"))
                    .unwrap()
                    .get_multiplexed_async_connection()
                    .await
                    .unwrap()
            })
            .await
            .clone()
    }
    pub(super) async fn call(
        &self,
        _slot: u16,
        call: &Call,
        _until: tokio::time::Instant,
    ) -> Result<redis::Value, CallFailed> {
        let mut c = self.conn().await;
        let sha = match call.script.sha.get() {
            Some(s) => s.clone(),
            None => {
                let s: String = redis::cmd("SCRIPT")
                    .arg("LOAD")
                    .arg(call.script.text)
                    .query_async(&mut c)
                    .await
                    .map_err(|e| CallFailed::NotDone(e.to_string()))?;
                let _ = call.script.sha.set(s.clone());
                s
            }
        };
        let _ = call.op;
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(sha).arg(call.keys.len());
        for k in &call.keys {
            cmd.arg(k);
        }
        cmd.arg(&call.argument);
        cmd.query_async(&mut c).await.map_err(|e| CallFailed::Unknown(format!("{e:?}")))
    }
    pub(super) async fn command(
        &self,
        _slot: u16,
        command: &redis::Cmd,
        _op: &'static str,
        _until: tokio::time::Instant,
    ) -> Result<redis::Value, CallFailed> {
        let mut c = self.conn().await;
        command.query_async(&mut c).await.map_err(|e| CallFailed::NotDone(format!("{e:?}")))
    }
}
