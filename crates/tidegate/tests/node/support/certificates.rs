//! Certificates that are made for one test.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::soon;

/// Somebody who signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
pub(crate) struct Certificate {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Its own certificate.
    pub(crate) fn root(&self) -> String {
        self.0.pem()
    }

    /// A certificate for this name, good for servers and clients.
    pub(crate) fn sign(&self, name: &str) -> Certificate {
        let mut params = CertificateParams::new(vec![name.to_string()]).expect("parameters");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let chain = params.signed_by(&key, &self.0).expect("a certificate").pem();
        Certificate { chain, key: key.serialize_pem() }
    }
}

/// Who a client trusts, and what it shows.
pub(crate) struct TlsClient<'a> {
    pub(crate) trusts: &'a Authority,
    pub(crate) shows: Option<&'a Certificate>,
    pub(crate) protocol: &'static [u8],
}

impl TlsClient<'_> {
    /// Connects, and checks that the server has this name.
    pub(crate) async fn connect(
        &self,
        address: std::net::SocketAddr,
        name: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.trusts.root().as_bytes()).expect("a certificate");
        roots.add(root).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("versions").with_root_certificates(roots);
        let mut config = match self.shows {
            None => builder.with_no_client_auth(),
            Some(shown) => {
                let chain = CertificateDer::pem_slice_iter(shown.chain.as_bytes()).collect::<Result<_, _>>();
                let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(chain.expect("a chain"), key).expect("a certificate")
            }
        };
        config.alpn_protocols = vec![self.protocol.to_vec()];
        let stream = soon("a connection", TcpStream::connect(address)).await?;
        let name = ServerName::try_from(name.to_string()).expect("a name");
        soon("a handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await
    }
}
