//! Asking a server something: RESP2, one question after the other, each with a deadline. It shares no line with the product's client.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// For each read and each write. A server that was stopped on purpose is found out after this long.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Arrays in arrays.
const DEPTH_MAX: usize = 32;

/// What a server says is at most this long (its own bound for one value).
const BYTES_MAX: usize = 512 << 20;

/// A server's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Such as `OK`.
    Status(String),
    /// Such as `ERR unknown command`.
    Error(String),
    /// A number.
    Integer(i64),
    /// Any bytes.
    Bytes(Vec<u8>),
    /// Nothing there.
    Nil,
    /// Several answers.
    Array(Vec<Reply>),
}

impl Reply {
    /// A status or bytes as text.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Status(text) => Some(text.clone()),
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// A number, also one that came as text.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            other => other.text()?.parse().ok(),
        }
    }

    /// What it consists of; nothing if it is no array.
    pub fn items(&self) -> &[Reply] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    /// The text of an error.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(text) => Some(text),
            _ => None,
        }
    }
}

/// A connection to a server.
pub struct Client {
    wire: BufReader<Box<dyn Wire>>,
}

trait Wire: Read + Write + Send {}
impl Wire for TcpStream {}
impl Wire for UnixStream {}

impl Client {
    /// Connects over TCP.
    pub fn connect(address: SocketAddr) -> Result<Self, String> {
        let of = |error: std::io::Error| format!("no connection to {address}: {error}");
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(of)?;
        stream.set_nodelay(true).map_err(of)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(of)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(of)?;
        Ok(Self { wire: BufReader::new(Box::new(stream)) })
    }

    /// Connects by a Unix socket.
    pub fn connect_unix(path: &Path) -> Result<Self, String> {
        let of = |error: std::io::Error| format!("no connection to {}: {error}", path.display());
        let stream = UnixStream::connect(path).map_err(of)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(of)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(of)?;
        Ok(Self { wire: BufReader::new(Box::new(stream)) })
    }

    /// Sends a command and waits for its reply.
    pub fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Reply, String> {
        self.send(words)?;
        self.reply()
    }

    /// Sends commands in one write, and waits for all replies.
    pub fn pipeline<W: AsRef<[u8]>>(&mut self, commands: &[Vec<W>]) -> Result<Vec<Reply>, String> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| encode(words, &mut bytes));
        self.wire.get_mut().write_all(&bytes).map_err(|error| format!("not sent: {error}"))?;
        commands.iter().map(|_| self.reply()).collect()
    }

    /// Sends a command and does not wait.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<(), String> {
        let mut bytes = Vec::new();
        encode(words, &mut bytes);
        self.wire.get_mut().write_all(&bytes).map_err(|error| format!("not sent: {error}"))
    }

    /// Waits for the next reply.
    pub fn reply(&mut self) -> Result<Reply, String> {
        self.value(DEPTH_MAX)
    }

    fn value(&mut self, depth_max: usize) -> Result<Reply, String> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or("an empty line instead of a reply")?;
        let number = || rest.parse::<i64>().map_err(|_| format!("`{line}` instead of a number"));
        Ok(match kind {
            "+" => Reply::Status(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Integer(number()?),
            "$" | "*" if number()? < 0 => Reply::Nil,
            "$" => {
                let count = usize::try_from(number()?).unwrap_or(usize::MAX);
                if count > BYTES_MAX {
                    return Err(format!("{count} bytes in one reply are too many"));
                }
                let mut bytes = vec![0; count + 2];
                self.wire.read_exact(&mut bytes).map_err(lost)?;
                bytes.truncate(count);
                Reply::Bytes(bytes)
            }
            "*" => {
                let inner = depth_max.checked_sub(1).ok_or("a reply that is too deep")?;
                Reply::Array((0..number()?).map(|_| self.value(inner)).collect::<Result<_, _>>()?)
            }
            _ => return Err(format!("`{line}` is no reply")),
        })
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let count = self.wire.by_ref().take(BYTES_MAX as u64).read_until(b'\n', &mut line).map_err(lost)?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None if count == 0 => Err("the server closed the connection".into()),
            None => Err("the connection ended within a reply".into()),
        }
    }
}

fn encode<W: AsRef<[u8]>>(words: &[W], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
}

fn lost(error: std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no reply within {} s", TIMEOUT.as_secs()),
        _ => format!("the reply was lost: {error}"),
    }
}
