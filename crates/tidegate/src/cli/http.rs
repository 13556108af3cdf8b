//! One exchange with a server, over HTTP/1.1, encrypted or not: what all verbs that ask one share.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    host: String,
    port: u16,
    is_encrypted: bool,
    /// As it stands in requests.
    authority: String,
    /// What stands before every path, for servers behind another.
    prefix: String,
}

impl Place {
    /// From a URL, or from an address alone.
    pub(crate) fn read(said: &str) -> io::Result<Self> {
        let wrong = |why: &str| {
            io::Error::other(format!(
                "`{said}` is no address of a server: {why}, such as http://127.0.0.1:8082"
            ))
        };
        let url = if said.contains("://") { said.to_owned() } else { format!("http://{said}") };
        let uri: Uri = url.parse().map_err(|_| wrong("write a URL"))?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it begins with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("write a host and a port"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("it has no user; there are tokens instead"));
        }
        if uri.query().is_some() {
            return Err(wrong("it has no parameters"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { host, port, is_encrypted, authority: authority.to_string(), prefix })
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// What is sent.
pub(crate) struct Sent {
    pub(crate) method: Method,
    /// With what stands behind the question mark.
    pub(crate) path: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
}

/// What comes back.
pub(crate) struct Given {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Takes a body piece by piece.
pub(crate) type Taker<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// The largest answer that is held.
const ANSWER_BYTES_MAX: usize = 128 << 20;

/// Sends, and waits so long for all of the answer.
pub(crate) fn exchange(place: &Place, ca: Option<&Path>, sent: Sent, wait: Duration) -> io::Result<Given> {
    runtime()?.block_on(async {
        let all = async { at(place, ca, sent, wait, None).await };
        tokio::time::timeout(wait, all).await.unwrap_or_else(|_| Err(late()))
    })
}

/// Sends, and hands on the body of a good answer as it comes. What is waited for, so long, is each piece.
pub(crate) fn receive(
    place: &Place,
    ca: Option<&Path>,
    sent: Sent,
    wait: Duration,
    to: Taker<'_>,
) -> io::Result<Given> {
    runtime()?.block_on(at(place, ca, sent, wait, Some(to)))
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn late() -> io::Error {
    io::Error::other("no answer in time")
}

async fn soon<T>(wait: Duration, what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(wait, what).await.unwrap_or_else(|_| Err(late()))
}

async fn at(
    place: &Place,
    ca: Option<&Path>,
    sent: Sent,
    wait: Duration,
    to: Option<Taker<'_>>,
) -> io::Result<Given> {
    let stream = soon(wait, place.connect()).await?;
    if !place.is_encrypted {
        return over(stream, place, sent, wait, to).await;
    }
    let config = trust(ca.map(Path::to_path_buf))?;
    let name = ServerName::try_from(place.host.clone())
        .map_err(|_| io::Error::other(format!("no certificate can be made out to `{}`", place.host)))?;
    let shaken = soon(wait, TlsConnector::from(Arc::new(config)).connect(name, stream)).await;
    let stream = shaken.map_err(|error| io::Error::other(format!("no encrypted connection: {error}")))?;
    over(stream, place, sent, wait, to).await
}

async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    place: &Place,
    sent: Sent,
    wait: Duration,
    to: Option<Taker<'_>>,
) -> io::Result<Given> {
    let shaken =
        async { hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other) };
    let (mut sender, connection) = soon(wait, shaken).await?;
    let mut request = Request::builder()
        .method(sent.method)
        .uri(format!("{}{}", place.prefix, sent.path))
        .header(HOST, &place.authority);
    for (name, value) in sent.headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(sent.body)).map_err(io::Error::other)?;
    // It takes the sender along: the connection ends when nobody can send on it any more.
    let answer = async move {
        let response =
            soon(wait, async { sender.send_request(request).await.map_err(io::Error::other) }).await?;
        let (head, mut body) = response.into_parts();
        let mut to = to.filter(|_| head.status.is_success());
        let mut held = Vec::new();
        while let Some(frame) = soon(wait, async { Ok(body.frame().await) }).await? {
            let frame = frame.map_err(|error| io::Error::other(format!("it broke off: {error}")))?;
            let Ok(bytes) = frame.into_data() else { continue };
            match &mut to {
                Some(to) => to(&bytes)?,
                None if held.len() + bytes.len() > ANSWER_BYTES_MAX => {
                    return Err(io::Error::other(format!("it has more than {ANSWER_BYTES_MAX} bytes")));
                }
                None => held.extend_from_slice(&bytes),
            }
        }
        Ok(Given { status: head.status.as_u16(), headers: head.headers, body: held.into() })
    };
    let connection = async {
        let _ = connection.await; // What broke is told by the answer that does not come.
        std::future::pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = connection => never,
    }
}

/// Whom we trust: those that a file names, else those that the machine does.
fn trust(ca: Option<PathBuf>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let told = |why: String| io::Error::other(format!("{}: {why}", path.display()));
            let read = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let read = read.map_err(|error| told(format!("no certificate can be read from it: {error}")))?;
            for certificate in read {
                roots.add(certificate).map_err(|error| told(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(told("there is no certificate in it (PEM is expected)".into()));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(io::Error::other("this machine trusts nobody; name who signed by --ca"));
            }
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_a_url_or_an_address() {
        let read = |said: &str| {
            Place::read(said).map(|place| (place.host, place.port, place.is_encrypted, place.prefix)).ok()
        };
        let place = |host: &str, port, is_encrypted, prefix: &str| {
            Some((host.to_owned(), port, is_encrypted, prefix.to_owned()))
        };
        for (said, expected) in [
            ("127.0.0.1:8080", place("127.0.0.1", 8080, false, "")),
            ("http://node:8082/", place("node", 8082, false, "")),
            ("https://node", place("node", 443, true, "")),
            ("http://[::1]:8082", place("::1", 8082, false, "")),
            ("https://ops.example/tidegate/", place("ops.example", 443, true, "/tidegate")),
            ("ftp://node", None),
            ("http://me:secret@node", None),
            ("http://node?x=1", None),
            ("", None),
            ("a b", None),
        ] {
            assert_eq!(read(said), expected, "{said}");
        }
    }
}
