//! Reads files outside state directories that a connection needs: certificates, passwords.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Maximum size in bytes, larger than any certificate bundle or password file.
const MOST: u64 = 16 << 20;

/// Reads a regular file without waiting on a pipe. Returns the content and the mode bits. Fails
/// above [`MOST`] bytes.
pub(super) fn read(path: &Path) -> io::Result<(Vec<u8>, u32)> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file: File = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut bytes = Vec::new();
    if file.take(MOST + 1).read_to_end(&mut bytes)? as u64 > MOST {
        return Err(io::Error::other("it is longer than 16 MiB"));
    }
    Ok((bytes, metadata.mode()))
}

/// Returns the system's file of trusted certificates: `SSL_CERT_FILE`, as for OpenSSL, or the first
/// existing path of the common distributions.
pub(super) fn system_roots() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("SSL_CERT_FILE").filter(|named| !named.is_empty()) {
        return Some(named.into());
    }
    let known = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    known.into_iter().map(PathBuf::from).find(|path| path.exists())
}
