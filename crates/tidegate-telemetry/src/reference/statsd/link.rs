//! Sockets. Whatever the server does, a call ends within seconds.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use super::StatsdProtocol;

/// How long a connection may take to be made, and a write to be taken.
const WAIT: Duration = Duration::from_secs(1);
/// Addresses of a host that are tried.
const ADDRESSES_MAX: usize = 4;
/// What a server may say at a time; statsd has nothing to say, and it is not listened to.
const READS_MAX: usize = 16;

/// The way to a server.
#[derive(Debug)]
pub(super) struct Link {
    protocol: StatsdProtocol,
    host: String,
    port: u16,
    socket: Option<Socket>,
    /// Which of the host's addresses is tried first: one that refused is not.
    first: usize,
}

#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Link {
    pub(super) fn new(protocol: StatsdProtocol, host: &str, port: u16) -> Self {
        Self { protocol, host: host.into(), port, socket: None, first: 0 }
    }

    /// Sees to a socket for one flush: a connection that still stands, or a new one. Packets get a new socket each time, since nobody would
    /// say that a host has moved.
    pub(super) fn open(&mut self) -> io::Result<()> {
        if let Some(Socket::Tcp(stream)) = &mut self.socket
            && stands(stream)
        {
            return Ok(());
        }
        self.socket = None;
        let addresses: Vec<SocketAddr> =
            (&*self.host, self.port).to_socket_addrs()?.take(ADDRESSES_MAX).collect();
        let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for at in 0..addresses.len() {
            let address = addresses[(self.first + at) % addresses.len()];
            match Socket::to(self.protocol, address) {
                Ok(socket) => {
                    self.first = (self.first + at) % addresses.len();
                    self.socket = Some(socket);
                    return Ok(());
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Sends a packet, and says how much of it was taken. After an error the next flush opens a new socket.
    pub(super) fn send(&mut self, packet: &[u8]) -> (usize, io::Result<()>) {
        let mut sent = self.try_send(packet);
        // A host may have two addresses and a server that listens on one, and a connection may have ended since it was last used.
        for _ in 1..ADDRESSES_MAX {
            if sent.1.is_ok() || sent.0 > 0 {
                break;
            }
            self.socket = None;
            self.first += 1;
            if let Err(error) = self.open() {
                return (0, Err(error));
            }
            sent = self.try_send(packet);
        }
        if sent.1.is_err() {
            self.socket = None;
        }
        sent
    }

    fn try_send(&mut self, packet: &[u8]) -> (usize, io::Result<()>) {
        match &mut self.socket {
            Some(Socket::Udp(socket)) => match send_packet(socket, packet) {
                Ok(()) => (packet.len(), Ok(())),
                Err(error) => (0, Err(error)),
            },
            Some(Socket::Tcp(stream)) => {
                if !stands(stream) {
                    return (0, Err(ErrorKind::ConnectionReset.into()));
                }
                match write(stream, packet) {
                    // A blocking socket takes less only when its time is over.
                    Ok(taken) if taken < packet.len() => (taken, Err(ErrorKind::TimedOut.into())),
                    Ok(taken) => (taken, Ok(())),
                    Err(error) => (0, Err(error)),
                }
            }
            None => (0, Err(ErrorKind::NotConnected.into())),
        }
    }
}

impl Socket {
    fn to(protocol: StatsdProtocol, address: SocketAddr) -> io::Result<Self> {
        match protocol {
            StatsdProtocol::Udp => {
                let any: IpAddr = match address {
                    SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                let socket = UdpSocket::bind((any, 0))?;
                socket.connect(address)?;
                socket.set_write_timeout(Some(WAIT))?;
                Ok(Self::Udp(socket))
            }
            StatsdProtocol::Tcp => {
                let stream = TcpStream::connect_timeout(&address, WAIT)?;
                // Where nobody listens on a port that the kernel also gives to those who connect, one may be connected to itself.
                if stream.local_addr()? == address {
                    return Err(ErrorKind::ConnectionRefused.into());
                }
                stream.set_write_timeout(Some(WAIT))?;
                Ok(Self::Tcp(stream))
            }
        }
    }
}

/// On this machine a port at which nobody listens is known at once, and the packet is not lost.
fn send_packet(socket: &UdpSocket, packet: &[u8]) -> io::Result<()> {
    socket.send(packet)?;
    match socket.take_error()? {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn write(stream: &mut TcpStream, packet: &[u8]) -> io::Result<usize> {
    loop {
        match stream.write(packet) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Is the other end still there? Otherwise the kernel would take a packet that nobody will read.
fn stands(stream: &mut TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return false;
    }
    let mut said = [0; 512];
    let mut stands = false;
    for _ in 0..READS_MAX {
        match stream.read(&mut said) {
            Ok(0) => break,
            Ok(_) => stands = true,
            Err(error) => {
                stands = error.kind() == ErrorKind::WouldBlock;
                break;
            }
        }
    }
    stands && stream.set_nonblocking(false).is_ok()
}
