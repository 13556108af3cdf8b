//! TLS for the entrances: certificates from files, read again when they change, and clients that have to show theirs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::net::Protocol;

/// The files of an entrance, in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate, and those that lead from it to a root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Roots for the certificates of clients. Where there are some, a client without a certificate is not let in.
    pub client_roots: Option<PathBuf>,
    /// The DNS name that these have to be made out to, if any will not do.
    pub client_name: Option<String>,
}

impl TlsFiles {
    /// All of them, to be watched.
    pub fn paths(&self) -> Vec<PathBuf> {
        [Some(&self.certificate), Some(&self.key), self.client_roots.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or there is nothing of the kind in it.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is the matter with it.
        why: String,
    },
    /// The files do not belong together, or are of a kind that is not known.
    #[error("{} and {}: {why}", certificate.display(), key.display())]
    Together {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// What is the matter with them.
        why: String,
    },
}

/// TLS as it is now. Copies share it.
#[derive(Clone, Debug)]
pub struct Tls {
    files: TlsFiles,
    protocol: Protocol,
    current: Arc<ArcSwap<ServerConfig>>,
}

impl Tls {
    /// Reads the files for the first time.
    pub fn load(files: TlsFiles, protocol: Protocol) -> Result<Self, TlsError> {
        let current = Arc::new(ArcSwap::from_pointee(read(&files, protocol)?));
        Ok(Self { files, protocol, current })
    }

    /// The files, to be watched.
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Reads them again. Connections that come from now on get the new certificate; if it cannot be used, the old one stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current.store(Arc::new(read(&self.files, self.protocol)?));
        Ok(())
    }

    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> std::io::Result<TlsStream<S>> {
        let stream = TlsAcceptor::from(self.current.load_full()).accept(stream).await?;
        if let Some(name) = &self.files.client_name {
            check_name(stream.get_ref().1.peer_certificates(), name).map_err(std::io::Error::other)?;
        }
        Ok(stream)
    }
}

/// Is the certificate that a client has shown made out to this name?
fn check_name(shown: Option<&[CertificateDer<'_>]>, name: &str) -> Result<(), rustls::Error> {
    let unknown = || rustls::Error::General(format!("{name} is no name that a certificate can have"));
    let wanted = ServerName::try_from(name).map_err(|_| unknown())?;
    let shown = shown.and_then(|chain| chain.first()).ok_or(rustls::Error::NoCertificatesPresented)?;
    verify_server_name(&ParsedCertificate::try_from(shown)?, &wanted)
}

fn read(files: &TlsFiles, protocol: Protocol) -> Result<ServerConfig, TlsError> {
    let certificates = certificates(&files.certificate)?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| told(&files.key, &error, "private key"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let together = |error: &dyn std::fmt::Display| TlsError::Together {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        why: error.to_string(),
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| together(&error))?;
    let builder = match &files.client_roots {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let wrong = |why: String| TlsError::File { path: path.clone(), why };
            let mut roots = RootCertStore::empty();
            for root in self::certificates(path)? {
                roots.add(root).map_err(|error| wrong(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|error| wrong(error.to_string()))?)
        }
    };
    let mut config = builder.with_single_cert(certificates, key).map_err(|error| together(&error))?;
    config.alpn_protocols = match protocol {
        Protocol::Rls => vec![b"h2".to_vec()],
        Protocol::Http | Protocol::Debug => vec![b"http/1.1".to_vec()],
    };
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err(told(path, &PemError::NoItemsFound, "certificate"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(told(path, &error, "certificate")),
    }
}

fn told(path: &Path, error: &PemError, wanted: &str) -> TlsError {
    let why = match error {
        PemError::NoItemsFound => format!("there is no {wanted} in it (PEM is expected)"),
        PemError::Io(error) => format!("it cannot be read: {error}"),
        other => format!("no {wanted} can be read from it: {other}"),
    };
    TlsError::File { path: path.to_path_buf(), why }
}
