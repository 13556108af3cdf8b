//! A connection to the server: sockets, certificates that are read anew, HTTP/2 on top.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tower_service::Service;

use crate::settings::{ClientSettings, ClientTls, Place};

/// A machine that is gone is noticed by the kernel, whatever the server allows: after these times.
const PROBE_AFTER: Duration = Duration::from_secs(20);
const PROBE_EVERY: Duration = Duration::from_secs(10);
const UNANSWERED_MAX: Duration = Duration::from_secs(40);

/// A connection, open until it is dropped.
pub(crate) struct Connection {
    sender: SendRequest<Body>,
    driver: JoinHandle<hyper::Result<()>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Connects, or says why not.
    pub(crate) async fn open(settings: &ClientSettings) -> Result<Self, String> {
        let opened = timeout(settings.connect_timeout, Self::try_open(settings)).await;
        opened.unwrap_or_else(|_| Err(format!("no connection within {:?}", settings.connect_timeout)))
    }

    async fn try_open(settings: &ClientSettings) -> Result<Self, String> {
        let stream = connect_tcp(&settings.server, settings.connect_timeout)
            .await
            .map_err(|error| format!("cannot connect: {error}"))?;
        let Some(tls) = &settings.tls else { return Self::over(stream, settings).await };
        // From files, which block, and which may have changed.
        let files = tls.clone();
        let config = tokio::task::spawn_blocking(move || tls_config(&files)).await;
        let config = config.map_err(|error| error.to_string())??;
        let name = tls.server_name.as_ref().unwrap_or(&settings.server.host);
        let name = ServerName::try_from(name.clone())
            .map_err(|_| format!("no certificate can be made out to `{name}`"))?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let stream = stream.map_err(|error| format!("no encrypted connection: {error}"))?;
        Self::over(stream, settings).await
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        settings: &ClientSettings,
    ) -> Result<Self, String> {
        let (every, within) = settings.keepalive;
        let shaken = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(every)
            .keep_alive_timeout(within)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = shaken.map_err(|error| format!("no HTTP/2: {}", with_sources(&error)))?;
        Ok(Self { sender, driver: tokio::spawn(connection) })
    }
}

/// What tonic calls through.
impl Service<http::Request<Body>> for Connection {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}

/// Tries every address of a host, each with its share of the time that is left.
async fn connect_tcp(place: &Place, within: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + within;
    let addresses: Vec<_> = tokio::net::lookup_host((&*place.host, place.port)).await?.collect();
    let mut trouble = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (tried, address) in addresses.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(1);
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                let socket = SockRef::from(&stream);
                let keepalive = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY);
                socket.set_tcp_keepalive(&keepalive)?;
                #[cfg(target_os = "linux")]
                socket.set_tcp_user_timeout(Some(UNANSWERED_MAX))?;
                return Ok(stream);
            }
            Ok(Err(refused)) => trouble = refused,
            Err(_) => trouble = io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        }
    }
    Err(trouble)
}

/// Whom we trust and who we are, read anew.
fn tls_config(tls: &ClientTls) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err("this machine trusts nobody; set xds.tls.ca, or install ca-certificates".into());
            }
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = match &tls.certificate {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| format!("{}: no private key can be read from it: {error}", key.display()))?;
            builder
                .with_client_auth_cert(certificates(chain)?, private)
                .map_err(|error| format!("{} and {}: {error}", chain.display(), key.display()))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read =
        read.map_err(|error| format!("{}: no certificate can be read from it: {error}", path.display()))?;
    if read.is_empty() {
        return Err(format!("{}: there is no certificate in it (PEM is expected)", path.display()));
    }
    Ok(read)
}

/// An error and what it came from: the library tells only the outermost.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_told = inner.to_string();
        if !told.contains(&inner_told) {
            told = format!("{told}: {inner_told}");
        }
        source = inner.source();
    }
    told
}
