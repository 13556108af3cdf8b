//! What a node asks the store, word for word: it is sent through here once, one request at a time, and what passes is kept.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// More than any plan records.
const RECORDED_BYTES_MAX: usize = 64 << 20;

/// What passed on one connection.
type Passed = Arc<Mutex<Vec<u8>>>;

/// A listener that sends on to a store all that it gets. It ends with the process.
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    /// By connection.
    passed: Arc<Mutex<Vec<Passed>>>,
}

impl Relay {
    /// Listens on a free port for those who mean this store.
    pub fn start(store: SocketAddr) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("no relay: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        let passed = Arc::new(Mutex::new(Vec::new()));
        let all = passed.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let kept = Passed::default();
                locked(&all).push(kept.clone());
                if let Err(error) = join(client, store, kept) {
                    eprintln!("the relay has no connection to the store: {error}");
                }
            }
        });
        Ok(Self { address, passed })
    }

    /// The calls of scripts that passed since the last time, each as it was encoded.
    pub fn script_calls(&self) -> Result<Vec<Vec<u8>>, String> {
        let mut all = Vec::new();
        for passed in locked(&self.passed).iter() {
            let bytes = std::mem::take(&mut *locked(passed));
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (name, length) = command(rest).ok_or("the node sends something that is no command")?;
                if name.eq_ignore_ascii_case(b"EVALSHA") && !is_heartbeat(&rest[..length]) {
                    all.push(rest[..length].to_vec());
                }
                rest = &rest[length..];
            }
        }
        Ok(all)
    }
}

/// The node says every few seconds that it is there: that is no decision. No counter has a colon in its name.
fn is_heartbeat(call: &[u8]) -> bool {
    const NODES: &[u8] = b":nodes\r\n";
    call.windows(NODES.len()).any(|part| part == NODES)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies both ways until one side ends.
fn join(client: TcpStream, store: SocketAddr, kept: Passed) -> std::io::Result<()> {
    let store = TcpStream::connect(store)?;
    client.set_nodelay(true)?;
    store.set_nodelay(true)?;
    let (from_store, to_client) = (store.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || copy(client, store, Some(&kept)));
    std::thread::spawn(move || copy(from_store, to_client, None));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream, kept: Option<&Passed>) {
    let mut room = vec![0; 64 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut room) {
        if let Some(kept) = kept {
            let mut kept = locked(kept);
            if kept.len() + bytes > RECORDED_BYTES_MAX {
                break;
            }
            kept.extend(&room[..bytes]);
        }
        if to.write_all(&room[..bytes]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)); // They may be closed already.
}

/// The first word of the first command, and how many bytes that is in all.
fn command(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (count, mut at) = header(bytes, b'*')?;
    let mut name: &[u8] = &[];
    for word in 0..count {
        let (length, head) = header(bytes.get(at..)?, b'$')?;
        let text = bytes.get(at + head..at + head + length)?;
        at += head + length + 2;
        if word == 0 {
            name = text;
        }
    }
    (at <= bytes.len()).then_some((name, at))
}

/// `*3` or `$12`: the number, and how long the line is.
pub(crate) fn header(bytes: &[u8], kind: u8) -> Option<(usize, usize)> {
    let line = bytes.strip_prefix(&[kind])?;
    let end = line.windows(2).position(|two| two == b"\r\n")?;
    let number = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
    Some((number, end + 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_apart() {
        let two = b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n*1\r\n*1\r\n$4\r\nPING\r\n";
        assert_eq!(command(two), Some((&b"ECHO"[..], 24)));
        assert_eq!(command(&two[24..]), Some((&b"PING"[..], 14)));
        assert_eq!(command(&two[..20]), None, "not all of it is there");
        assert_eq!(command(b"PING\r\n"), None);
    }

    #[test]
    fn what_passes_is_kept_and_sent_on() {
        let store = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let relay = Relay::start(store.local_addr().expect("an address")).expect("a relay");
        let mut client = TcpStream::connect(relay.address).expect("a connection");
        let asked = b"*1\r\n$4\r\nPING\r\n*2\r\n$7\r\nEVALSHA\r\n$1\r\na\r\n*2\r\n$7\r\nEVALSHA\r\n$8\r\ntg:nodes\r\n";
        client.write_all(asked).expect("sent");
        let (mut server, _) = store.accept().expect("the relay");
        let mut came = vec![0; asked.len()];
        server.read_exact(&mut came).expect("all of it");
        assert_eq!(came, asked);
        assert_eq!(relay.script_calls(), Ok(vec![asked[14..38].to_vec()]), "heartbeats are left out");
        assert_eq!(relay.script_calls(), Ok(vec![]), "those were told");
    }
}
