//! This program again, as a process that is killed. A test starts it by [`start`], and it does what it is told by a variable.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Signal, getpid, kill_process};
use tidegate_control::{
    AuditSink, ControlStore, Error, NewToken, Outcome, RuleState, Scope, SinkProgress, SinkTo, State, Tier,
};

use crate::support::{alice, limit, options, quota};

const TASK: &str = "TIDEGATE_CONTROL_TASK";
const PLACE: &str = "TIDEGATE_CONTROL_PLACE";

/// What stands before all that it says, since the test harness talks too.
const MARK: &str = "> ";

/// A process that was started, and what it says.
pub(crate) struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

/// Starts one that has this to do with the store in this place.
pub(crate) fn start(task: &str, place: &str) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "child::child", "--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .env(PLACE, place);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("this program starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    Process { child, lines }
}

impl Process {
    /// The next that it says; none if it has ended.
    pub(crate) fn line(&mut self) -> Option<String> {
        self.lines.by_ref().map_while(Result::ok).find_map(|line| {
            // The harness does not always end its own line first.
            line.split_once(MARK).map(|(_, said)| said.to_string())
        })
    }

    /// Kills it (SIGKILL), and returns what it still had to say.
    pub(crate) fn kill(mut self) -> Vec<String> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        std::iter::from_fn(|| self.line()).collect()
    }

    /// Waits for its end, and returns what it said. None: it was killed.
    pub(crate) fn end(mut self) -> Option<Vec<String>> {
        let said = std::iter::from_fn(|| self.line()).collect();
        let status = self.child.wait().expect("it was started");
        status.code().map(|_| said)
    }
}

/// No test: what this program does when a test starts it again.
#[test]
fn child() {
    let (Ok(task), Ok(place)) = (std::env::var(TASK), std::env::var(PLACE)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (verb, number) = task.split_once(' ').unwrap_or((&task, "0"));
    match verb {
        "open" => runtime.block_on(async {
            let store = ControlStore::open(&options(&place)).await.unwrap();
            println!("{MARK}{}", store.migrations_run());
        }),
        "migrate" => runtime.block_on(async {
            ControlStore::open(&options(&place).on_migration_step(die_at_the_step)).await.unwrap();
            println!("{MARK}done");
        }),
        "storm" => runtime.block_on(storm(&place, number.parse().unwrap())),
        "sink" => {
            let (seed, file) = number.split_once(' ').unwrap();
            runtime.block_on(storm_into_sink(&place, seed.parse().unwrap(), file));
        }
        other => panic!("{other}"),
    }
}

/// Kills itself at the step that the task names.
fn die_at_the_step(step: usize) {
    let task = std::env::var(TASK).unwrap_or_default();
    if task.rsplit(' ').next() == Some(step.to_string().as_str()) {
        let _ = kill_process(getpid(), Signal::KILL);
        std::thread::park(); // Nothing more is done.
    }
}

/// The same, and writes the audit trail to a file meanwhile.
async fn storm_into_sink(place: &str, seed: u32, file: &str) {
    let store = ControlStore::open(&options(place)).await.unwrap();
    let sink = AuditSink::new(SinkTo::File(file.into()), Some(format!("{file}.position").into()));
    let told = |progress: &SinkProgress| println!("{MARK}{}", progress.written);
    tokio::join!(storm(place, seed), sink.run(&store, told));
}

/// Edits as fast as it can until it is killed, four at a time, and says what was acknowledged: the revision where the answer has it, a
/// number that was written, what kind of thing it was written to, and which. What it could not do, it tries again.
async fn storm(place: &str, seed: u32) {
    let store = ControlStore::open(&options(place)).await.unwrap();
    println!("{MARK}ready");
    let writers = (0..4_u32).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut token = None;
            for edit in 0.. {
                let number = seed.wrapping_mul(1_000_003).wrapping_add(edit * 4 + writer);
                let done = match edit % 8 {
                    0 => edit_tier(&store, writer, number).await,
                    1 => edit_rule(&store, writer, number).await,
                    2 => edit_state(&store, writer, number).await,
                    3 => edit_token(&store, writer, number, &mut token).await,
                    _ => edit_quotas(&store, writer, number).await,
                };
                match done {
                    Ok(done) => done.into_iter().for_each(|done| println!("{MARK}{done}")),
                    Err(Error::NotFound { .. }) => {} // It was taken away before.
                    Err(Error::Unavailable { .. }) => {
                        tokio::time::sleep(std::time::Duration::from_millis(1)).await
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

type Done = tidegate_control::Result<Vec<String>>;

/// One by one, some at once, and some taken away.
async fn edit_quotas(store: &ControlStore, writer: u32, number: u32) -> Done {
    let record = |key: u32| {
        let overrides = (0..=number % 3).map(|n| limit(&format!("endpoint:{n}"), number)).collect();
        (quota(&format!("key-{writer}-{key}"), &format!("tier-{}", number % 7), overrides), None)
    };
    let told = |revision, key: &str| format!("{revision} {number} quota {key}");
    Ok(match number % 5 {
        0 => {
            let written = store.put_quotas(&alice(), (0..3).map(record).collect()).await?;
            written.iter().map(|one| told(one.now.version, &one.now.value.api_key)).collect()
        }
        1 => {
            let key = format!("key-{writer}-{}", number % 3);
            vec![told(store.delete_quota(&alice(), &key, None).await?, &key)]
        }
        key => {
            let now = store.put_quota(&alice(), record(key).0, None).await?.now;
            vec![told(now.version, &now.value.api_key)]
        }
    })
}

async fn edit_tier(store: &ControlStore, writer: u32, number: u32) -> Done {
    let name = format!("tier-{writer}");
    let revision = match number % 5 {
        0 => store.delete_tier(&alice(), &name, None).await?,
        _ => {
            let tier = Tier { name: name.clone(), overrides: vec![limit("default", number)] };
            store.put_tier(&alice(), tier, None).await?.now.version
        }
    };
    Ok(vec![format!("{revision} {number} tier {name}")])
}

/// Written, taken away, and put back to what it was at first, which has a number of its own.
async fn edit_rule(store: &ControlStore, writer: u32, number: u32) -> Done {
    let id = format!("rule-{writer}");
    let (revision, number) = match number % 5 {
        0 => (store.delete_rule(&alice(), &id, None).await?, number),
        1 => {
            let written = store.roll_back_rule(&alice(), &id, 1, None).await?;
            if written.outcome == Outcome::Unchanged {
                return Ok(Vec::new()); // It was that already, of an older revision.
            }
            let now = written.now;
            let first: serde_json::Value = serde_json::from_str(&now.document).unwrap();
            (now.revision, first["limit"].as_u64().and_then(|limit| limit.try_into().ok()).unwrap())
        }
        _ => {
            let document = format!(r#"{{"limit":{number}}}"#);
            (store.put_rule(&alice(), &id, document, None).await?.now.revision, number)
        }
    };
    Ok(vec![format!("{revision} {number} rule {id}")])
}

async fn edit_state(store: &ControlStore, writer: u32, number: u32) -> Done {
    /// A year in which the number is the end of its microseconds.
    const FAR_US: i64 = 10_000_000_000_000_000;
    let rule = format!("rule-{writer}");
    let revision = match number % 5 {
        0 => store.delete_rule_state(&alice(), &rule, None).await?,
        _ => {
            let state = [State::Shadow, State::Disabled][number as usize % 2];
            let expires_at = Some(FAR_US + i64::from(number));
            let state = RuleState { rule: rule.clone(), state, expires_at };
            store.put_rule_state(&alice(), state, None).await?.now.version
        }
    };
    Ok(vec![format!("{revision} {number} rule_state {rule}")])
}

/// Made, and the one before revoked. The store does not answer with a revision.
async fn edit_token(
    store: &ControlStore,
    writer: u32,
    number: u32,
    last: &mut Option<(String, u32)>,
) -> Done {
    if let Some((id, number)) = last.take_if(|_| number.is_multiple_of(3)) {
        store.revoke_token(&alice(), &id).await?;
        return Ok(vec![format!("revoke {number} token {id}")]);
    }
    let token = NewToken {
        prefix: format!("{:08x}", number.wrapping_mul(4).wrapping_add(writer)),
        hash: [7; 32],
        scope: Scope::Read,
        tenant: None,
        name: format!("token-{number}"),
        expires_at: None,
    };
    let id = store.create_token(&alice(), token).await?.id;
    *last = Some((id.clone(), number));
    Ok(vec![format!("create {number} token {id}")])
}
