//! Who a server says it is: certificates that are made for one test.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// The files of a server that speaks TLS, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The authority that signed both certificates.
    pub ca: PathBuf,
    /// The server's certificate, for `localhost` and `127.0.0.1`.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// A certificate for clients.
    pub client_certificate: PathBuf,
    /// Its key.
    pub client_key: PathBuf,
}

impl TlsFiles {
    /// Makes them, in this folder.
    pub(crate) fn write(folder: &Path) -> Result<Self, String> {
        let of = |error: rcgen::Error| format!("no certificate: {error}");
        let mut params = CertificateParams::new(Vec::new()).map_err(of)?;
        // Without names of their own, OpenSSL takes a certificate for one that signed itself.
        params.distinguished_name.push(DnType::CommonName, "testbed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(of)?).map_err(of)?;
        let put = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<_, String>(path)
        };
        let sign = |names: &[&str], usage| {
            let alternatives: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            let mut params = CertificateParams::new(alternatives).map_err(of)?;
            params.distinguished_name.push(DnType::CommonName, names[0]);
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate().map_err(of)?;
            let chain = params.signed_by(&key, &authority).map_err(of)?.pem();
            Ok::<_, String>((chain, key.serialize_pem()))
        };
        let (chain, key) = sign(&["localhost", "127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth)?;
        let (client_chain, client_key) = sign(&["client.test"], ExtendedKeyUsagePurpose::ClientAuth)?;
        Ok(Self {
            ca: put("ca.pem", authority.pem())?,
            certificate: put("server.pem", chain)?,
            key: put("server.key", key)?,
            client_certificate: put("client.pem", client_chain)?,
            client_key: put("client.key", client_key)?,
        })
    }
}
