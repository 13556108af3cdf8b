//! One connection of HTTP/1.1 that is kept: a request that was encoded before, its answer, and the next.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use crate::client::{Connection, Ended};
use crate::speech::Speech;

/// No answer is longer than this.
const INPUT_BYTES: usize = 16 << 10;

/// A connection.
pub struct Http {
    socket: TcpStream,
    speech: Speech,
    input: Vec<u8>,
    /// How much of `input` is filled.
    filled: usize,
    output: Vec<u8>,
    /// Of the request in flight.
    mark: Option<u64>,
}

impl Connection for Http {
    fn connect(address: SocketAddr, speech: Speech) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, speech, input: vec![0; INPUT_BYTES], filled: 0, output: Vec::new(), mark: None })
    }

    fn in_flight(&self) -> usize {
        usize::from(self.mark.is_some())
    }

    fn begin(&mut self, message: &[u8], mark: u64) -> bool {
        if self.mark.is_some() {
            return false;
        }
        self.mark = Some(mark);
        self.output.extend(message);
        true
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.socket.write(&self.output) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => drop(self.output.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        !self.output.is_empty()
    }

    fn read(&mut self, mut ended: impl FnMut(Ended)) -> io::Result<()> {
        loop {
            match self.socket.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.filled += bytes;
                    self.take_answer(&mut ended)?;
                    return Ok(()); // If that was not all, we are told again.
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Http {
    fn take_answer(&mut self, ended: &mut impl FnMut(Ended)) -> io::Result<()> {
        let Some(answer) = answer(&self.input[..self.filled])? else {
            return if self.filled < self.input.len() { Ok(()) } else { Err(wrong("a long answer")) };
        };
        if answer.bytes != self.filled {
            return Err(wrong("more than was asked for"));
        }
        let body = &self.input[answer.body_at..answer.bytes];
        let outcome = self.speech.answered(answer.status, body);
        let mark = self.mark.take().ok_or_else(|| wrong("an answer to nothing"))?;
        self.filled = 0;
        ended(Ended { outcome, mark });
        Ok(())
    }
}

impl AsFd for Http {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// An answer that is there whole.
#[derive(PartialEq, Debug)]
struct Answer {
    status: u16,
    body_at: usize,
    bytes: usize,
}

/// The first answer; none if not all of it is there.
fn answer(bytes: &[u8]) -> io::Result<Option<Answer>> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(head) = bytes.windows(END.len()).position(|part| part == END) else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head]).map_err(|_| wrong("a head that is no text"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") { value.trim().parse::<usize>().ok() } else { None }
    });
    let (Some(status), Some(length)) = (status, length) else {
        return Err(wrong("an answer without a status or a length"));
    };
    let (body_at, bytes_all) = (head + END.len(), head + END.len() + length);
    Ok((bytes.len() >= bytes_all).then_some(Answer { status, body_at, bytes: bytes_all }))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::client::Outcome;

    #[test]
    fn an_answer_is_taken_when_all_of_it_is_there() {
        let text = b"HTTP/1.1 429 Too Many Requests\r\nServer: x\r\ncontent-Length: 3\r\n\r\nno\n";
        for cut in 0..text.len() {
            assert_eq!(answer(&text[..cut]).expect("so far"), None, "{cut}");
        }
        let whole = answer(text).expect("an answer").expect("whole");
        assert_eq!((whole.status, &text[whole.body_at..]), (429, &b"no\n"[..]));
        assert!(answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(answer(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").is_err());
    }

    #[test]
    fn one_request_is_in_flight_until_its_answer_came() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut http = Http::connect(address, Speech::HttpStatus).expect("a connection");
        let (mut server, _) = listener.accept().expect("the other end");
        assert!(http.begin(b"GET / HTTP/1.1\r\n\r\n", 7) && !http.begin(b"GET", 8));
        http.flush().expect("sent");
        assert!(!http.is_full());
        server.read_exact(&mut [0; 18]).expect("the request");
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        // The bytes are put where a read puts them: the socket is not waited for.
        http.input[..text.len()].copy_from_slice(text);
        http.filled = text.len();
        let mut all = Vec::new();
        http.take_answer(&mut |ended| all.push(ended)).expect("an answer");
        assert_eq!(all, [Ended { outcome: Outcome::Admitted, mark: 7 }]);
        assert_eq!(http.in_flight(), 0);
        http.filled = text.len();
        assert!(http.take_answer(&mut |_| ()).is_err(), "nobody asked");
    }
}
