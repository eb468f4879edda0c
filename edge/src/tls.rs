//! Certificates of the port.

use std::{error::Error, fmt, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

/// Certificates or keys that TLS cannot use.
#[derive(Debug)]
pub struct TlsUnusable(String);

impl fmt::Display for TlsUnusable {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for TlsUnusable {}

fn unusable(what: &str, error: impl fmt::Display) -> TlsUnusable {
    TlsUnusable(format!("{what}: {error}"))
}

/// Returns the settings of TLS for new connections.
///
/// All arguments are PEM. With an `authority`, every client needs a certificate of that authority.
///
/// # Errors
///
/// An argument is malformed, or the key belongs to another certificate.
pub fn server_config(chain: &[u8], key: &[u8], authority: Option<&[u8]>) -> Result<Arc<ServerConfig>, TlsUnusable> {
    let chain = certificates(chain).map_err(|error| unusable("the certificate", error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable("the key", error))?;
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("TLS", error))?;
    let builder = match authority {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(authority).map_err(|error| unusable("the authority", error))? {
                roots.add(root).map_err(|error| unusable("the authority", error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| unusable("the authority", error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config =
        builder.with_single_cert(chain, key).map_err(|error| unusable("the certificate and key", error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_certificates_are_refused_by_name() {
        let error = server_config(b"", b"no key", None).unwrap_err();
        assert!(error.to_string().starts_with("the key"));
    }
}
