//! The node's own script calls, sent by a client that does nothing else: so many in flight on one connection, one request in each.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::generator::thread_cpu_ns;
use crate::plan::Span;
use crate::results::Counts;
use tidegate_clock::Stopwatch;

use crate::relay::header;
use crate::store::Store;

/// How many calls are in flight.
pub const DEPTH: usize = 128;
/// How long an answer may take; a busy machine is slow.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Sends the calls, one after the other and again from the first, for a time. `first` is the number of the first one.
pub fn run(store: &Store, calls: &[Vec<u8>], first: usize, span: Span) -> Result<Counts, String> {
    let mut client =
        Client::connect(store, calls, first).map_err(|error| format!("no connection: {error}"))?;
    let watch = Stopwatch::start();
    client.send(DEPTH)?;
    while watch.elapsed() < span.warm {
        let answered = client.answers()?;
        client.send(answered)?;
    }
    let (store_cpu_ns, store_calls) = (store.cpu_ns()?, store.calls()?);
    let (wall, generator_cpu_ns) = (Stopwatch::start(), thread_cpu_ns());
    client.counts = Counts::default();
    while wall.elapsed() < span.measured || client.counts.calls == 0 {
        let answered = client.answers()?;
        client.send(answered)?;
    }
    let counts = Counts {
        wall_ns: wall.elapsed().as_nanos() as u64,
        generator_cpu_ns: thread_cpu_ns() - generator_cpu_ns,
        store_cpu_ns: store.cpu_ns()?.saturating_sub(store_cpu_ns),
        store_calls: store.calls()?.saturating_sub(store_calls),
        ..client.counts
    };
    while client.in_flight > 0 {
        client.answers()?;
    }
    Ok(counts)
}

struct Client<'a> {
    socket: TcpStream,
    calls: &'a [Vec<u8>],
    next: usize,
    in_flight: usize,
    input: Vec<u8>,
    output: Vec<u8>,
    counts: Counts,
}

impl<'a> Client<'a> {
    fn connect(store: &Store, calls: &'a [Vec<u8>], first: usize) -> std::io::Result<Self> {
        let socket = TcpStream::connect_timeout(&store.server().address(), ANSWER_MAX)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        socket.set_write_timeout(Some(ANSWER_MAX))?;
        let (input, output, counts) = (Vec::new(), Vec::new(), Counts::default());
        Ok(Self { socket, calls, next: first, in_flight: 0, input, output, counts })
    }

    /// Sends so many calls in one write.
    fn send(&mut self, count: usize) -> Result<(), String> {
        self.output.clear();
        for _ in 0..count {
            self.output.extend(&self.calls[self.next % self.calls.len()]);
            self.next += 1;
        }
        self.in_flight += count;
        self.socket.write_all(&self.output).map_err(|error| format!("not sent: {error}"))
    }

    /// Waits for answers; tells how many came.
    fn answers(&mut self) -> Result<usize, String> {
        let mut room = [0; 64 << 10];
        let bytes = self.socket.read(&mut room).map_err(|error| format!("no answer: {error}"))?;
        if bytes == 0 {
            return Err("the store closed the connection".into());
        }
        self.input.extend(&room[..bytes]);
        let (mut at, mut answered) = (0, 0);
        while let Some((length, letter)) = answer(&self.input[at..])? {
            match letter {
                b'a' => {}
                b'r' => self.counts.refused += 1,
                other => return Err(format!("the script answers `{}`", char::from(other))),
            }
            (at, answered) = (at + length, answered + 1);
        }
        self.input.drain(..at);
        self.in_flight -= answered;
        self.counts.calls += answered as u64;
        Ok(answered)
    }
}

/// How long the first answer is, and the letter of its one request; none if not all of it is there. It is a time, letters, and states.
fn answer(bytes: &[u8]) -> Result<Option<(usize, u8)>, String> {
    let Some((count, mut at)) = header(bytes, b'*') else {
        return match bytes.first() {
            None | Some(b'*') => Ok(None),
            _ => Err(format!("the store says {}", String::from_utf8_lossy(bytes))),
        };
    };
    let mut letter = b'?';
    for item in 0..count {
        let Some(rest) = bytes.get(at..) else { return Ok(None) };
        let (payload, head) = match (header(rest, b':'), header(rest, b'$')) {
            (Some((_, head)), _) => (0, head),
            (_, Some((length, head))) => (length + 2, head),
            _ if rest.len() < 32 => return Ok(None), // A line that has not come to its end.
            _ => return Err("the store answers something else than the script does".into()),
        };
        if item == 1 {
            letter = rest.get(head).copied().unwrap_or(letter);
        }
        at += head + payload;
    }
    Ok((at <= bytes.len()).then_some((at, letter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let one = b"*3\r\n:1700000000000000\r\n$1\r\na\r\n$3\r\nxyz\r\n";
        let two = [&one[..], b"*2\r\n:1\r\n$1\r\nr\r\n"].concat();
        assert_eq!(answer(&two), Ok(Some((one.len(), b'a'))));
        assert_eq!(answer(&two[one.len()..]), Ok(Some((15, b'r'))));
        for cut in 0..one.len() {
            assert_eq!(answer(&one[..cut]), Ok(None), "{cut}");
        }
        assert!(answer(b"-NOSCRIPT No matching script\r\n").is_err());
    }
}
