//! One connection to a server. The only file that knows how the `redis` crate connects.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, ServerError, Value};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::Script;
use super::reply::words;
use super::servers::Connected;
use crate::redis::settings::{Address, Password, RedisSettings, StoreTls};
use crate::redis::stats::Trouble;

/// How many calls may wait for the connection to take them. Whoever comes then waits until it has, or its time is over.
const QUEUE_MAX: usize = 1_024;
/// How many bytes are collected before a write: what 500 calls of one turn need. The crate's 8 KiB would be 60.
const WRITE_BYTES: usize = 64 * 1_024;
/// A server that is gone without a word is noticed: on an idle connection within 4 s, on a busy one within 3 s, if not before by replies
/// that do not come.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(1);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(1);
const UNANSWERED_MAX: Duration = Duration::from_secs(3);
/// A password is a line, certificates are a few KiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What a server is connected to for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Counting.
    Counters,
    /// Asking where the counters are. Sentinels have no databases, and often no users.
    Sentinel,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) struct OpenFailed {
    pub(super) trouble: Trouble,
    pub(super) why: String,
}

/// The reply did not come, and will not.
pub(super) struct Lost(pub(super) String);

/// One connection to a server. Commands are sent in the order in which they come, those of one turn of the loop in one write.
pub(super) struct Connection {
    inner: MultiplexedConnection,
    driver: JoinHandle<()>,
    end: Rc<End>,
    traffic: Arc<Traffic>,
    /// Script bodies that were sent, by the script's address.
    bodies: RefCell<Vec<(*const Script, u64)>>,
    pub(super) silence: RefCell<Silence>,
}

/// Has it ended? Until then it is counted as open.
struct End {
    closed: Cell<bool>,
    connected: Cell<Option<Connected>>,
}

impl End {
    fn came(&self) {
        self.closed.set(true);
        self.connected.take();
    }
}

/// Calls in a row whose time was over before any byte came.
#[derive(Default)]
pub(super) struct Silence {
    pub(super) calls: u32,
    pub(super) last: Option<Instant>,
    pub(super) reads: u64,
}

impl Connection {
    /// Connects, presents itself, and makes sure that the server takes commands. Takes as long as it takes: the caller has a deadline.
    pub(super) async fn open(
        address: &Address,
        settings: &RedisSettings,
        purpose: Purpose,
        connected: Option<Connected>,
    ) -> Result<Rc<Self>, OpenFailed> {
        let password = password(settings).await?;
        let traffic = Arc::<Traffic>::default();
        let stream = Stream::of(address, settings, traffic.clone()).await?;
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None) // Every wait has a deadline of ours.
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(QUEUE_MAX)
            .set_write_backpressure_boundary(WRITE_BYTES);
        // The crate presents nobody: what servers answer to that would come without its words.
        let nobody = RedisConnectionInfo::default().set_skip_set_lib_name();
        let (inner, driver) = MultiplexedConnection::new_with_config(&nobody, stream, config)
            .await
            .map_err(|error| OpenFailed { trouble: Trouble::Connect, why: format!("{address}: {error}") })?;
        let end = Rc::new(End { closed: Cell::new(false), connected: Cell::new(connected) });
        let driver = tokio::task::spawn_local({
            let end = end.clone();
            async move {
                driver.await;
                end.came();
            }
        });
        let connection =
            Self { inner, driver, end, traffic, bodies: RefCell::default(), silence: RefCell::default() };
        connection.present(address, settings, password.as_deref(), purpose).await?;
        Ok(Rc::new(connection))
    }

    /// Says who we are, in one write.
    async fn present(
        &self,
        address: &Address,
        settings: &RedisSettings,
        password: Option<&str>,
        purpose: Purpose,
    ) -> Result<(), OpenFailed> {
        let mut commands = Pipeline::new();
        let mut steps = Vec::new();
        if let Some(password) = password {
            let mut auth = redis::cmd("AUTH");
            if let Some(user) = &settings.user {
                auth.arg(user);
            }
            auth.arg(password);
            commands.add_command(auth);
            steps.push("AUTH");
        }
        commands.cmd("CLIENT").arg("SETNAME").arg("tidegate");
        steps.push("CLIENT");
        if settings.database != 0 && purpose == Purpose::Counters {
            commands.cmd("SELECT").arg(settings.database);
            steps.push("SELECT");
        }
        let replies = self.inner.clone().send_packed_commands(&commands, 0, steps.len()).await;
        let replies = replies.map_err(|error| OpenFailed {
            trouble: Trouble::Connect,
            why: format!("{address} broke the connection off: {error}"),
        })?;
        for (step, reply) in steps.into_iter().zip(replies) {
            if let Value::ServerError(error) = reply
                && let Some(failed) = presented_badly(address, settings, purpose, step, &error)
            {
                return Err(failed);
            }
        }
        Ok(())
    }

    /// Sends a command and waits for the reply, which may be an error.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Lost> {
        self.inner.clone().send_packed_command(command).await.map_err(|error| Lost(error.to_string()))
    }

    /// Sends a command that the server is asked to take although the slot is not its own yet.
    pub(super) async fn send_asking(&self, command: &Cmd) -> Result<Value, Lost> {
        let mut commands = Pipeline::with_capacity(2);
        commands.cmd("ASKING").add_command(command.clone());
        let replies = self.inner.clone().send_packed_commands(&commands, 0, 2).await;
        let reply = replies.map_err(|error| Lost(error.to_string()))?.pop();
        reply.ok_or_else(|| Lost("the reply was empty".into()))
    }

    /// Is it known that it does not work any more?
    pub(super) fn is_closed(&self) -> bool {
        self.end.closed.get()
    }

    /// Gives it up: whoever waits for a reply is told so.
    pub(super) fn close(&self) {
        self.end.came();
        self.driver.abort();
    }

    /// How often something came from the server.
    pub(super) fn reads(&self) -> u64 {
        self.traffic.reads.load(Relaxed)
    }

    /// How often something was given to the machine to send.
    pub(super) fn writes(&self) -> u64 {
        self.traffic.writes.load(Relaxed)
    }

    /// How often the body of a script was sent.
    pub(super) fn bodies(&self, script: &'static Script) -> u64 {
        let bodies = self.bodies.borrow();
        bodies.iter().find(|(known, _)| std::ptr::eq(*known, script)).map_or(0, |(_, sent)| *sent)
    }

    pub(super) fn body_goes_out(&self, script: &'static Script) {
        let mut bodies = self.bodies.borrow_mut();
        match bodies.iter_mut().find(|(known, _)| std::ptr::eq(*known, script)) {
            Some((_, sent)) => *sent += 1,
            None => bodies.push((script, 1)),
        }
    }
}

impl Drop for Connection {
    // Also one that was only left: it is counted as open until then.
    fn drop(&mut self) {
        self.close();
    }
}

/// What a server does not like about us, if it matters.
fn presented_badly(
    address: &Address,
    settings: &RedisSettings,
    purpose: Purpose,
    step: &str,
    error: &ServerError,
) -> Option<OpenFailed> {
    let words = words(error);
    let user = match &settings.user {
        Some(user) => format!("user `{user}`"),
        None => "the default user".to_owned(),
    };
    let auth = |why: String| Some(OpenFailed { trouble: Trouble::Auth, why });
    match (step, error.code()) {
        // A sentinel that needs no password refuses one. If it needs another one, it refuses what is asked next.
        ("AUTH", _) if purpose == Purpose::Sentinel => None,
        ("AUTH", _) => {
            let place = match &settings.password {
                Some(Password::File(path)) => format!("the password in {}", path.display()),
                _ => "the password".to_owned(),
            };
            auth(format!(
                "{address} refuses {place} of {user}: {words}; correct it, or the user on the server (ACL SETUSER)"
            ))
        }
        (_, "NOAUTH") => {
            auth(format!("{address} wants a password: {words}; set user and password of the store"))
        }
        ("SELECT", "NOPERM") => {
            auth(format!("{address} does not let {user} use database {}: {words}", settings.database))
        }
        ("SELECT", _) => Some(OpenFailed {
            trouble: Trouble::Connect,
            why: format!("{address} has no database {}: {words}; set another one", settings.database),
        }),
        // A name is for people who look at CLIENT LIST.
        _ => None,
    }
}

/// The password, read anew if it is in a file.
pub(super) async fn password(settings: &RedisSettings) -> Result<Option<String>, OpenFailed> {
    let path = match &settings.password {
        None => return Ok(None),
        Some(Password::Text(text)) => return Ok(Some(text.clone())),
        Some(Password::File(path)) => path.clone(),
    };
    let failed = |why| OpenFailed { trouble: Trouble::Auth, why };
    let bytes =
        read(path.clone()).await.map_err(|why| failed(format!("the password of the store: {why}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| failed(format!("the password of the store: {} is no UTF-8", path.display())))?;
    match text.lines().next().map(str::trim) {
        None | Some("") => {
            Err(failed(format!("the password of the store: the first line of {} is empty", path.display())))
        }
        Some(line) => Ok(Some(line.to_owned())),
    }
}

/// A small file, read aside: the disk may be slow.
async fn read(path: std::path::PathBuf) -> Result<Vec<u8>, String> {
    let shown = path.display().to_string();
    let bytes = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(std::fs::File::open(path)?, FILE_BYTES_MAX), &mut bytes)?;
        Ok::<_, io::Error>(bytes)
    });
    match bytes.await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(format!("cannot read {shown}: {error}")),
        Err(_) => Err(format!("cannot read {shown}")),
    }
}

/// What is sent over, and how often it was.
pub(super) struct Stream {
    inner: Inner,
    traffic: Arc<Traffic>,
}

impl Stream {
    /// Connects, and says nothing yet.
    pub(super) async fn connect(address: &Address, settings: &RedisSettings) -> Result<Self, OpenFailed> {
        Self::of(address, settings, Arc::default()).await
    }

    async fn of(
        address: &Address,
        settings: &RedisSettings,
        traffic: Arc<Traffic>,
    ) -> Result<Self, OpenFailed> {
        Ok(Self { inner: Inner::connect(address, settings).await?, traffic })
    }
}

#[derive(Default)]
struct Traffic {
    reads: AtomicU64,
    writes: AtomicU64,
}

enum Inner {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Inner {
    async fn connect(address: &Address, settings: &RedisSettings) -> Result<Self, OpenFailed> {
        let failed = |why: String| OpenFailed { trouble: Trouble::Connect, why };
        let (host, port) = match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                return stream
                    .map(Self::Unix)
                    .map_err(|error| failed(format!("cannot connect to {address}: {error}")));
            }
            Address::Tcp(host, port) => (host.as_str(), *port),
        };
        let stream = connect_tcp(host, port, settings.connect_timeout)
            .await
            .map_err(|error| failed(format!("cannot connect to {address}: {error}")))?;
        let Some(tls) = &settings.tls else { return Ok(Self::Tcp(stream)) };
        let config = tls_config(tls).await.map_err(failed)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            failed(format!("{address}: no certificate can be made out to this host; use its name"))
        })?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let stream = stream.map_err(|error| {
            failed(format!("{address}: no encrypted connection: {error}; see the CA and the certificates"))
        })?;
        Ok(Self::Tls(Box::new(stream)))
    }
}

/// Tries every address of a host, each with its share of the time that is left.
async fn connect_tcp(host: &str, port: u16, within: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + within;
    let addresses: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (tried, address) in addresses.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(1);
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                let socket = SockRef::from(&stream);
                let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
                socket.set_tcp_keepalive(&keepalive)?;
                #[cfg(target_os = "linux")]
                socket.set_tcp_user_timeout(Some(UNANSWERED_MAX))?;
                return Ok(stream);
            }
            Ok(Err(refused)) => error = refused,
            Err(_) => error = io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        }
    }
    Err(error)
}

/// Takes a certificate of any name, if one of the roots vouches for it.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        // The name is looked at last: whoever fails there has passed everything else.
        match self.0.verify_server_cert(certificate, between, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Whom we trust and who we are, read anew.
async fn tls_config(tls: &StoreTls) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    match &tls.ca {
        Some(path) => {
            for certificate in CertificateDer::pem_slice_iter(&read(path.clone()).await?) {
                let certificate = certificate
                    .map_err(|error| format!("the CA of the store, {}: {error}", path.display()))?;
                roots
                    .add(certificate)
                    .map_err(|error| format!("the CA of the store, {}: {error}", path.display()))?;
            }
            if roots.is_empty() {
                return Err(format!("the CA of the store, {}, has no certificate in it", path.display()));
            }
        }
        None => {
            let found = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs).await;
            let found = found.map_err(|_| "cannot read whom this machine trusts".to_owned())?;
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(
                    "this machine trusts nobody; set the CA of the store, or install ca-certificates".into(),
                );
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match tls.any_name {
        false => builder.with_root_certificates(roots),
        true => {
            let vouched = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
            let vouched = vouched.build().map_err(|error| error.to_string())?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName(vouched)))
        }
    };
    let Some((certificate, key)) = &tls.certificate else { return Ok(builder.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&read(certificate.clone()).await?).collect();
    let chain = chain
        .map_err(|error| format!("our certificate for the store, {}: {error}", certificate.display()))?;
    let private = PrivateKeyDer::from_pem_slice(&read(key.clone()).await?)
        .map_err(|error| format!("our key for the store, {}: {error}", key.display()))?;
    builder
        .with_client_auth_cert(chain, private)
        .map_err(|error| format!("our certificate for the store, {}: {error}", certificate.display()))
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = match &mut self.inner {
            Inner::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Inner::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            Inner::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if buffer.filled().len() > before {
            self.traffic.reads.fetch_add(1, Relaxed);
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.traffic.writes.fetch_add(1, Relaxed);
        match &mut self.inner {
            Inner::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Inner::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Inner::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Inner::Tls(stream) => Pin::new(stream).poll_flush(context),
            Inner::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Inner::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Inner::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
