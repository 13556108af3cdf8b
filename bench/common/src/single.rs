//! One connection of HTTP/1.1 or RESP that is kept, with one call in flight: a request that was encoded before, its answer, and the next.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use crate::client::{Connection, Ended, Outcome};
use crate::speech::Speech;
use crate::{http, resp};

/// No answer is longer than this.
const INPUT_BYTES: usize = 16 << 10;

/// A connection.
pub struct Single {
    socket: TcpStream,
    speech: Speech,
    input: Vec<u8>,
    /// How much of `input` is filled.
    filled: usize,
    output: Vec<u8>,
    /// Of the request in flight.
    mark: Option<u64>,
}

impl Connection for Single {
    fn connect(address: SocketAddr, speech: Speech) -> io::Result<Self> {
        if speech.path().is_some() {
            return Err(wrong("a call of gRPC"));
        }
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

impl Single {
    fn take_answer(&mut self, ended: &mut impl FnMut(Ended)) -> io::Result<()> {
        let Some((bytes, outcome)) = first(self.speech, &self.input[..self.filled])? else {
            return if self.filled < self.input.len() { Ok(()) } else { Err(wrong("a long answer")) };
        };
        if bytes != self.filled {
            return Err(wrong("more than was asked for"));
        }
        let mark = self.mark.take().ok_or_else(|| wrong("an answer to nothing"))?;
        self.filled = 0;
        ended(Ended { outcome, mark });
        Ok(())
    }
}

impl AsFd for Single {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// How long the first answer is, and what it says; none if not all of it is there.
fn first(speech: Speech, bytes: &[u8]) -> io::Result<Option<(usize, Outcome)>> {
    Ok(match speech {
        Speech::Resp => resp::answer(bytes)?.map(|answer| (answer.bytes, speech.returned(answer.numbers))),
        _ => http::answer(bytes)?.map(|answer| {
            (answer.bytes, speech.answered(answer.status, &bytes[answer.body_at..answer.bytes]))
        }),
    })
}

pub(crate) fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn connected(speech: Speech) -> (Single, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let single =
            Single::connect(listener.local_addr().expect("an address"), speech).expect("a connection");
        (single, listener.accept().expect("the other end").0)
    }

    /// Feeds the connection, and returns what ended. The socket is not waited for: the bytes are put where a read puts them.
    fn fed(single: &mut Single, bytes: &[u8]) -> io::Result<Vec<Ended>> {
        single.input[single.filled..single.filled + bytes.len()].copy_from_slice(bytes);
        single.filled += bytes.len();
        let mut all = Vec::new();
        single.take_answer(&mut |ended| all.push(ended)).map(|()| all)
    }

    #[test]
    fn one_request_is_in_flight_until_its_answer_came() {
        let http = |status| format!("HTTP/1.1 {status} Some\r\nContent-Length: 0\r\n\r\n");
        let resp = |first| format!("*5\r\n:{first}\r\n:1000\r\n:999\r\n:1\r\n:0\r\n");
        for (speech, request, answers) in [
            (Speech::HttpStatus, "GET / HTTP/1.1\r\n\r\n", [http(200), http(429)]),
            (Speech::Resp, "*2\r\n$8\r\nTHROTTLE\r\n$1\r\na\r\n", [resp(1), resp(0)]),
        ] {
            let (mut single, mut server) = connected(speech);
            for (mark, outcome) in [(7, Outcome::Admitted), (8, Outcome::Refused)] {
                assert!(single.begin(request.as_bytes(), mark) && !single.begin(b"more", 9), "{speech:?}");
                single.flush().expect("sent");
                assert!(!single.is_full());
                let mut asked = vec![0; request.len()];
                server.read_exact(&mut asked).expect("the request");
                assert_eq!(asked, request.as_bytes());
                // In two pieces.
                let (some, rest) = answers[usize::from(mark == 8)].as_bytes().split_at(10);
                assert_eq!((fed(&mut single, some).expect("so far"), single.in_flight()), (vec![], 1));
                let all = fed(&mut single, rest).expect("an answer");
                assert_eq!((all, single.in_flight()), (vec![Ended { outcome, mark }], 0), "{speech:?}");
            }
            assert!(fed(&mut single, answers[0].as_bytes()).is_err(), "nobody asked");
        }
    }

    #[test]
    fn an_answer_that_is_none_or_too_much_or_too_long_is_an_error() {
        for (speech, bytes) in [
            (Speech::HttpBody, b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
            (Speech::Resp, b"+OK\r\n".to_vec()),
            (Speech::Resp, b"-ERR no\r\n-ERR no\r\n".to_vec()),
            (Speech::HttpBody, vec![b'x'; INPUT_BYTES]),
            (Speech::Resp, vec![b'-'; INPUT_BYTES]),
        ] {
            let (mut single, _server) = connected(speech);
            assert!(single.begin(b"request", 0));
            assert!(fed(&mut single, &bytes).is_err(), "{speech:?} {}", bytes.len());
        }
    }

    #[test]
    fn calls_of_grpc_need_another_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        assert!(Single::connect(address, Speech::Rls).is_err());
    }
}
