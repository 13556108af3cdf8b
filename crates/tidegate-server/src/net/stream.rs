//! A stream of bytes over TCP or a socket of the file system, which whoever serves it does not tell apart.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connection before any thread serves it.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Socket {
    /// The stream, on the thread that serves it from now on.
    pub(super) fn open(self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(socket) => Stream::Tcp(TcpStream::from_std(socket)?),
            Self::Unix(socket) => Stream::Unix(UnixStream::from_std(socket)?),
        })
    }
}

/// One that is served. An enum and not a parameter: the servers behind it would be built twice.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Hands a call on to whichever it is.
macro_rules! either {
    ($stream:expr, $method:ident $(, $argument:expr)*) => {
        match $stream.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Self::Unix(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, poll_read, context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, poll_write, context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_flush, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_shutdown, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, poll_write_vectored, context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }
}
