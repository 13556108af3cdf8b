//! Clients that never stop: an open loop over all keys at a stated rate, on several connections, as Envoy calls. They go on a thread of
//! their own, so that nothing that a row does holds them up.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::audit::{Answer, By, Control, Event, Record};
use crate::support::messages::{Request, Response, Struct};
use crate::support::{Failed, Grpc};

/// What is asked.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) cost: u64,
}

/// How it is asked.
pub(crate) struct Style {
    /// Calls in each second.
    pub(crate) rate: u64,
    pub(crate) connections_each: usize,
    /// Tell the node that 20 ms are all the time there is, as Envoy does.
    pub(crate) tells_time: bool,
}

/// How long a client is ready to note an answer. It has lost its interest after 20 ms, but a record that ended there would not tell how
/// late an answer was.
const PATIENCE: Duration = Duration::from_secs(1);

/// Of the calls in each second, one for so many goes to the control too.
const CONTROL_EVERY: u64 = 5;

/// The loop looks at the time so often.
const TICK: Duration = Duration::from_millis(1);

/// If it looks later than this, the machine has held it up.
const PAUSE: Duration = Duration::from_millis(5);

/// Calls that are due are made up for, those of longer pauses are not: a thousand at once would be a fault of their own.
const MADE_UP_MAX: Duration = Duration::from_millis(50);

/// Before a client connects again.
const RECONNECT: Duration = Duration::from_millis(20);

/// After this, whatever is still on its way is given up: nobody answers later than that.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// A load that goes on until it is finished.
pub(crate) struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Record>>,
}

#[derive(Default)]
struct Shared {
    is_done: AtomicBool,
    sent: AtomicU64,
    /// Calls that are sent at once, beside the others.
    burst: AtomicU64,
}

impl Load {
    /// Starts it. The control is a node whose store is well.
    pub(crate) fn start(
        nodes: &[SocketAddr],
        control: SocketAddr,
        asked: Vec<Asked>,
        style: Style,
        watch: Stopwatch,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let (told, nodes) = (shared.clone(), nodes.to_vec());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            LocalSet::new().block_on(&runtime, run(told, nodes, control, asked, style, watch))
        });
        Self { shared, thread: Some(thread) }
    }

    /// How many calls were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Sends so many calls at once, beside the others.
    pub(crate) fn burst(&self, count: u64) {
        self.shared.burst.fetch_add(count, Ordering::Relaxed);
    }

    /// Ends it, and gives what was answered.
    pub(crate) fn finish(mut self) -> Record {
        self.shared.is_done.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it runs");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.is_done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A test that fails has its own panic to tell.
        }
    }
}

/// A connection that comes back when it is lost.
struct Channel {
    address: SocketAddr,
    node: usize,
    current: RefCell<Option<Rc<Grpc>>>,
    is_connecting: Cell<bool>,
}

impl Channel {
    fn new(address: SocketAddr, node: usize) -> Rc<Self> {
        let channel = Self { address, node, current: RefCell::default(), is_connecting: Cell::new(false) };
        let channel = Rc::new(channel);
        channel.connect();
        channel
    }

    fn get(&self) -> Option<Rc<Grpc>> {
        self.current.borrow().clone()
    }

    fn lose(self: &Rc<Self>, lost: &Rc<Grpc>) {
        let is_current = self.current.borrow().as_ref().is_some_and(|current| Rc::ptr_eq(current, lost));
        if is_current {
            self.current.replace(None);
            self.connect();
        }
    }

    fn connect(self: &Rc<Self>) {
        if self.is_connecting.replace(true) {
            return;
        }
        let channel = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                let connected = tokio::time::timeout(PATIENCE, connection(channel.address)).await;
                if let Ok(Some(grpc)) = connected {
                    channel.current.replace(Some(Rc::new(grpc)));
                    channel.is_connecting.set(false);
                    return;
                }
                tokio::time::sleep(RECONNECT).await;
            }
        });
    }
}

async fn connection(address: SocketAddr) -> Option<Grpc> {
    let stream = TcpStream::connect(address).await.ok()?;
    stream.set_nodelay(true).ok()?;
    Grpc::over(stream).await.ok()
}

async fn run(
    shared: Arc<Shared>,
    nodes: Vec<SocketAddr>,
    control: SocketAddr,
    asked: Vec<Asked>,
    style: Style,
    watch: Stopwatch,
) -> Record {
    let record = Rc::new(RefCell::new(Record::default()));
    let on_its_way = Rc::new(Cell::new(0_usize));
    let channels: Rc<[_]> = (0..style.connections_each)
        .flat_map(|_| nodes.iter().enumerate().map(|(node, address)| Channel::new(*address, node)))
        .collect();
    let control = Channel::new(control, usize::MAX);
    while channels.iter().chain([&control]).any(|channel| channel.get().is_none()) {
        tokio::time::sleep(TICK).await;
    }
    let asked = Rc::new(asked);
    let metadata: &[(&str, &str)] = if style.tells_time { &[("grpc-timeout", "20m")] } else { &[] };
    let (mut began, mut number, mut controls) = (watch.elapsed(), 0, 0);
    let mut looked = began;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut extra = 0;
    while !shared.is_done.load(Ordering::Relaxed) {
        ticks.tick().await;
        let (from, held_up) = (looked, watch.elapsed() - looked);
        looked += held_up;
        if held_up > PAUSE {
            record.borrow_mut().pauses.push((from.as_micros() as u64, looked.as_micros() as u64));
        }
        began += held_up.saturating_sub(MADE_UP_MAX);
        extra += shared.burst.swap(0, Ordering::Relaxed);
        let due = (looked - began).as_micros() as u64 * style.rate / 1_000_000 + extra;
        while number < due {
            let key = number as usize % asked.len();
            // Every key goes over every connection in turn.
            let turn = number as usize + number as usize / asked.len();
            // As a balancer does, a client goes where there is a connection.
            let open = (0..channels.len()).map(|step| &channels[(turn + step) % channels.len()]);
            let channel = open.clone().find(|channel| channel.get().is_some());
            let channel = channel.unwrap_or(&channels[turn % channels.len()]).clone();
            number += 1;
            let (asked, all) = (asked.clone(), channels.clone());
            let (record, on_its_way) = (record.clone(), on_its_way.clone());
            on_its_way.set(on_its_way.get() + 1);
            tokio::task::spawn_local(async move {
                let sent_us = now_us(&watch);
                let mut answer = call(&channel, &asked[key].request, metadata).await;
                let mut node = channel.node;
                // As Envoy does where it is told to, a call whose node was lost is sent to another one, once.
                let other = all.iter().find(|other| other.node != node && other.get().is_some());
                let other = other.filter(|_| answer == Answer::Broken);
                if let Some(other) = other {
                    answer = call(other, &asked[key].request, metadata).await;
                    node = other.node;
                }
                let (received_us, cost, is_retried) = (now_us(&watch), asked[key].cost, other.is_some());
                let event = Event { key, node, cost, sent_us, received_us, answer, is_retried };
                record.borrow_mut().events.push(event);
                on_its_way.set(on_its_way.get() - 1);
            });
        }
        shared.sent.store(number, Ordering::Relaxed);
        while controls < number / CONTROL_EVERY {
            controls += 1;
            let (asked, record, control) = (asked.clone(), record.clone(), control.clone());
            tokio::task::spawn_local(async move {
                let sent_us = now_us(&watch);
                let answer = call(&control, &asked[controls as usize % asked.len()].request, &[]).await;
                let received_us = now_us(&watch);
                let is_exact = matches!(answer, Answer::Decided { by: By::Exact, .. });
                record.borrow_mut().control.push(Control { sent_us, received_us, is_exact });
            });
        }
    }
    let last = Stopwatch::start();
    while on_its_way.get() > 0 && last.elapsed() < LAST_ANSWERS {
        tokio::time::sleep(TICK).await;
    }
    assert_eq!(on_its_way.get(), 0, "every call ends: clients are patient for {PATIENCE:?}");
    let mut record = record.take();
    record.events.sort_by_key(|event| event.sent_us);
    record.control.sort_unstable();
    record
}

fn now_us(watch: &Stopwatch) -> u64 {
    watch.elapsed().as_micros() as u64
}

async fn call(channel: &Rc<Channel>, request: &Request, metadata: &[(&str, &str)]) -> Answer {
    let Some(grpc) = channel.get() else { return Answer::Broken };
    match tokio::time::timeout(PATIENCE, grpc.try_ask(request, metadata)).await {
        Err(_) => Answer::Missing,
        Ok(Ok(response)) => told(&response),
        Ok(Err(Failed::Status(code, _))) => Answer::Failed(code),
        Ok(Err(Failed::Broken(_))) => {
            channel.lose(&grpc);
            Answer::Broken
        }
    }
}

/// What an answer says, and how it was made.
fn told(response: &Response) -> Answer {
    let fields = response.dynamic_metadata.as_ref().and_then(|all| all.fields.get("tidegate"));
    let fields = fields.and_then(|value| value.fields.as_ref());
    let by = match text(fields, "mode").as_deref() {
        Some("exact") => By::Exact,
        _ => By::Policy(text(fields, "policy").unwrap_or_else(|| "untold".into())),
    };
    let remaining = response.statuses.first().map_or(0, |status| status.limit_remaining);
    Answer::Decided { admitted: response.overall_code == 1, by, remaining }
}

fn text(fields: Option<&Struct>, name: &str) -> Option<String> {
    fields?.fields.get(name)?.text.clone()
}
