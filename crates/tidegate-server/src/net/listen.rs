//! Sockets that are bound: an address, or a file. What a node left behind is replaced, what is in use is not; the own file goes at the
//! end.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use tidegate_config::ListenAt;

use super::stream::Socket;

/// A socket that is bound: its address is taken, nobody is served yet.
#[derive(Debug)]
pub struct Listener {
    bound: Bound,
    /// Removed when nobody listens any more.
    file: Option<SocketFile>,
}

#[derive(Debug)]
enum Bound {
    Tcp(std::net::TcpListener),
    Unix(UnixListener),
}

/// Takes an address.
pub fn listen(at: &ListenAt) -> io::Result<Listener> {
    match at {
        ListenAt::Tcp(address) => {
            let socket = std::net::TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            Ok(Listener { bound: Bound::Tcp(socket), file: None })
        }
        ListenAt::Unix(path) => {
            clear(path)?;
            let socket = UnixListener::bind(path)?;
            let file = SocketFile::of(path)?;
            socket.set_nonblocking(true)?;
            Ok(Listener { bound: Bound::Unix(socket), file: Some(file) })
        }
    }
}

impl Listener {
    /// Waits for connections from now on, as long as the file is held.
    pub(super) fn open(self) -> io::Result<(Waiting, Option<SocketFile>)> {
        Ok((Waiting::on(self.bound)?, self.file))
    }

    /// The address, with the port that the system chose if it was asked to.
    pub fn address(&self) -> io::Result<ListenAt> {
        match (&self.bound, &self.file) {
            (Bound::Tcp(socket), _) => socket.local_addr().map(ListenAt::Tcp),
            (Bound::Unix(_), Some(file)) => Ok(ListenAt::Unix(file.path.clone())),
            (Bound::Unix(_), None) => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// Makes room for a socket: removes one that nobody listens at, and nothing else.
fn clear(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    // By datagrams, which no listener for streams takes: it is not disturbed, and nobody waits for one that hangs.
    match UnixDatagram::unbound()?.connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "replaced a socket that was left behind");
            fs::remove_file(path)
        }
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
    }
}

/// The file of a socket. It is removed when this is dropped, unless somebody has put another into its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Which one it is, whatever it is called.
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the socket could not be removed");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// A listener that waits for connections, inside a runtime.
pub(super) enum Waiting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Waiting {
    fn on(bound: Bound) -> io::Result<Self> {
        Ok(match bound {
            Bound::Tcp(socket) => Self::Tcp(tokio::net::TcpListener::from_std(socket)?),
            Bound::Unix(socket) => Self::Unix(tokio::net::UnixListener::from_std(socket)?),
        })
    }

    /// The next connection, and whose it is where that is known.
    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, peer)| Accepted::Tcp(stream, peer)),
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Accepted::Unix(stream)),
        }
    }
}

/// A connection that was accepted.
pub(super) enum Accepted {
    Tcp(tokio::net::TcpStream, SocketAddr),
    Unix(tokio::net::UnixStream),
}

impl Accepted {
    /// Whose it is; who comes by a socket has no address.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(_, peer) => Some(*peer),
            Self::Unix(_) => None,
        }
    }

    /// What is handed to the thread that serves it.
    pub(super) fn hand_over(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(stream, _) => {
                stream.set_nodelay(true)?;
                Socket::Tcp(stream.into_std()?)
            }
            Self::Unix(stream) => Socket::Unix(stream.into_std()?),
        })
    }
}
