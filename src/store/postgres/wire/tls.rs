//! TLS: trusted certificates, and the channel binding of a login.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::super::url::{Host, Tls, Url};
use super::fault::{WireFault, unfit};
use super::files;
use crate::error::describe;

/// Creates the client side of TLS for the TLS mode of the URL.
pub(super) fn client(url: &Url) -> Result<ClientConnection, WireFault> {
    let name = match &url.host {
        Host::Address(address) => ServerName::IpAddress((*address).into()),
        Host::Name(text) | Host::Socket(text) => ServerName::try_from(text.clone())
            .map_err(|_| WireFault::Unfit(format!("`{text}` is no name that a certificate can have")))?,
    };
    let wrong = |error: Error| WireFault::Unfit(format!("TLS: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(wrong)?;
    let mut config = match url.tls {
        Tls::VerifyFull => builder.with_root_certificates(roots(url)?).with_no_client_auth(),
        Tls::VerifyCa | Tls::Require | Tls::Disable => {
            let roots = (url.tls == Tls::VerifyCa).then(|| roots(url)).transpose()?;
            let verifier = Arc::new(Verifier { roots, provider });
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
    };
    // A command makes few connections, so it does not need TLS session resumption.
    config.resumption = Resumption::disabled();
    ClientConnection::new(Arc::new(config), name).map_err(wrong)
}

/// Returns the root certificates of the URL's file, where an invalid one is an error, or else those
/// that the system trusts, without invalid ones.
fn roots(url: &Url) -> Result<RootCertStore, WireFault> {
    let Some(path) = url.roots.as_ref().map(PathBuf::from).or_else(files::system_roots) else {
        return unfit(
            "no certificates of authorities were found on this machine: install ca-certificates, or name a file with \
             sslrootcert=",
        );
    };
    let shown = path.display();
    let contents = match files::read(&path) {
        Ok((contents, _)) => contents,
        Err(error) => return unfit(format!("can't read the certificates in {shown}: {}", describe(&error))),
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&contents) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        if let Some(why) = added.err().filter(|_| url.roots.is_some()) {
            return unfit(format!("a certificate in {shown} can't be read: {why}"));
        }
    }
    if roots.is_empty() { unfit(format!("{shown} has no certificate in it")) } else { Ok(roots) }
}

/// Verifier that ignores the name in a certificate. It always checks that the server has the
/// private key.
#[derive(Debug)]
struct Verifier {
    /// Trusted certificate authorities; `None` to accept every certificate.
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(certificate)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the channel binding `tls-server-end-point` of RFC 5929: the hash of the certificate by
/// the algorithm of its signature. `None` for a signature without hash algorithm, such as Ed25519.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    let (_, whole, _) = element(certificate)?;
    let (_, _, after_content) = element(whole)?;
    let (_, algorithm, _) = element(after_content)?;
    let (0x06, oid, _) = element(algorithm)? else { return None };
    Some(match (oid.strip_prefix(RSA), oid.strip_prefix(ECDSA)) {
        // RFC 5929 requires SHA-256 in place of MD5 and SHA-1.
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => Sha256::digest(certificate).to_vec(),
        (Some([12]), _) | (_, Some([3, 3])) => Sha384::digest(certificate).to_vec(),
        (Some([13]), _) | (_, Some([3, 4])) => Sha512::digest(certificate).to_vec(),
        _ => return None,
    })
}

/// Splits off the first DER element. Returns the tag, the content and the remaining bytes.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = if *first < 0x80 {
        (usize::from(*first), rest)
    } else {
        let digits = usize::from(first & 0x7f);
        if !(1..=4).contains(&digits) {
            return None;
        }
        let (digits, rest) = rest.split_at_checked(digits)?;
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    let (inside, after) = rest.split_at_checked(length)?;
    Some((*tag, inside, after))
}
