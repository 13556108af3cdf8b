//! A word to a PostgreSQL, in its simplest protocol: for what a test changes behind everybody's back.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::postgres::{Postgres, USER};

const WAIT_MAX: Duration = Duration::from_secs(30);
/// An answer is a few of these.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

impl Postgres {
    /// Carries out some statements in one of its databases. What they tell is not read.
    pub fn say(&self, database: &str, sql: &str) -> Result<(), String> {
        let of = |error: std::io::Error| format!("PostgreSQL at {}: {error}", self.address());
        let mut stream = TcpStream::connect_timeout(&self.address(), WAIT_MAX).map_err(of)?;
        stream.set_read_timeout(Some(WAIT_MAX)).map_err(of)?;
        let words = format!("user\0{USER}\0database\0{database}\0\0");
        let protocol: u32 = 3 << 16;
        stream
            .write_all(&message(None, &[&protocol.to_be_bytes()[..], words.as_bytes()].concat()))
            .map_err(of)?;
        ready(&mut stream)?;
        stream.write_all(&message(Some(b'Q'), format!("{sql}\0").as_bytes())).map_err(of)?;
        ready(&mut stream)
    }
}

/// A letter, if it has one, the length and the rest.
fn message(letter: Option<u8>, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX).to_be_bytes();
    letter.into_iter().chain(length).chain(body.iter().copied()).collect()
}

/// Reads until it is ready for the next; what went wrong before is an error.
fn ready(stream: &mut TcpStream) -> Result<(), String> {
    let mut trouble = Ok(());
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head).map_err(|error| error.to_string())?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let length =
            length.checked_sub(4).filter(|length| *length <= MESSAGE_BYTES_MAX).ok_or("a strange message")?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).map_err(|error| error.to_string())?;
        match head[0] {
            b'E' => trouble = Err(String::from_utf8_lossy(&body).replace('\0', " ")),
            b'Z' => return trouble,
            _ => {}
        }
        // Whom it does not let in it tells so, and nothing else.
        if head[0] == b'E' && body.windows(5).any(|word| word == b"FATAL") {
            return trouble;
        }
    }
}
