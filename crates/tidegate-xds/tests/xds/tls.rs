//! Certificates: whom a client trusts, what it shows, and files that change between two connections.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tidegate_xds::{ClientSettings, ClientTls};

use crate::support::server::{XdsServer, domain};
use crate::support::subscriber::{Following, settings, until};

/// Somebody who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Each by its own name, or one would pass for another whose key is wrong.
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// A certificate for this name and its key, good for servers and clients.
    fn sign(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_string()]).expect("parameters");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.0).expect("a certificate").pem(), key.serialize_pem())
    }
}

/// A server that asks clients for certificates of this authority, as Envoy Gateway does: TLS 1.3 and nothing else.
fn demanding(authority: &Authority, name: &str) -> ServerConfig {
    let (chain, key) = authority.sign(name);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.0.pem().as_bytes()).expect("a root");
    roots.add(root).expect("a root");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(
            CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>().expect("a chain"),
            PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key"),
        )
        .expect("a certificate");
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Files of a client that trusts one authority and shows a certificate of another, or none.
fn files(folder: &Path, trusts: &Authority, shows: Option<&Authority>) -> ClientTls {
    let write = |name: &str, text: &str| -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).expect("written");
        path
    };
    let certificate = shows.map(|authority| {
        let (chain, key) = authority.sign("client.test");
        (write("tls.crt", &chain), write("tls.key", &key))
    });
    ClientTls { ca: Some(write("ca.crt", &trusts.0.pem())), certificate, server_name: None }
}

fn with(address: SocketAddr, tls: ClientTls) -> ClientSettings {
    ClientSettings { tls: Some(tls), ..settings(address) }
}

#[tokio::test]
async fn rules_come_over_tls_from_a_server_that_has_the_right_name() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let folder = tempfile::tempdir().expect("a folder");
    let server = XdsServer::at(([127, 0, 0, 1], 0).into(), Some(demanding(&ours, "gateway.test"))).await;
    server.set("v1", &[domain("a", Vec::new())]);
    let named = |name: &str, trusts, shows| {
        let files = files(folder.path(), trusts, shows);
        ClientTls { server_name: Some(name.into()).filter(|name: &String| !name.is_empty()), ..files }
    };
    for (name, trusts, shows, why) in [
        ("other.test", &ours, Some(&ours), "not valid for name"),
        ("", &ours, Some(&ours), "not valid for"), // By its address.
        ("gateway.test", &other, Some(&ours), "UnknownIssuer"),
        ("gateway.test", &ours, None, "CertificateRequired"),
        ("gateway.test", &ours, Some(&other), "UnknownCA"),
        ("not a name", &ours, None, "no certificate can be made out to `not a name`"),
    ] {
        let tls = named(name, trusts, shows);
        let client = Following::start(with(server.address, tls));
        let (told, _) = until(why, || client.ends().first().cloned()).await;
        assert!(told.contains(why), "`{told}`, not `{why}`");
        assert_eq!(client.versions(), [""; 0]);
    }
    let gone = ClientTls { ca: Some(folder.path().join("gone")), ..ClientTls::default() };
    let client = Following::start(with(server.address, gone));
    let (told, _) = until("it cannot be read", || client.ends().first().cloned()).await;
    assert!(told.contains("gone: no certificate can be read from it"), "{told}");
    let client = Following::start(with(server.address, named("gateway.test", &ours, Some(&ours))));
    until("rules come", || (client.versions() == ["v1"]).then_some(())).await;
    // Whoever speaks plain text is not answered.
    let plain = Following::start(settings(server.address));
    until("it is sent away", || plain.ends().first().cloned()).await;
}

#[tokio::test]
async fn certificates_are_read_at_every_connect() {
    let (ours, later) = (Authority::new("ours"), Authority::new("later"));
    let folder = tempfile::tempdir().expect("a folder");
    let server = XdsServer::at(([127, 0, 0, 1], 0).into(), Some(demanding(&ours, "gateway.test"))).await;
    let address = server.address;
    server.set("v1", &[domain("a", Vec::new())]);
    let tls =
        ClientTls { server_name: Some("gateway.test".into()), ..files(folder.path(), &ours, Some(&ours)) };
    let client = Following::start(with(address, tls));
    until("rules come", || (client.versions() == ["v1"]).then_some(())).await;

    // Everybody has new certificates: first the server, then the client.
    server.stop().await;
    let server = XdsServer::at(address, Some(demanding(&later, "gateway.test"))).await;
    server.set("v2", &[domain("b", Vec::new())]);
    until("it is noticed", || {
        client.ends().iter().any(|(why, _)| why.contains("UnknownIssuer")).then_some(())
    })
    .await;
    files(folder.path(), &later, Some(&later));
    until("rules come", || (client.versions() == ["v1", "v2"]).then_some(())).await;
}
