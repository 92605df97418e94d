//! Key of the chain: rows carry an HMAC, so that a program that only knows the format cannot forge a chain.

use std::{
    fmt,
    fs::{self, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::chain::Digest;

const BYTES: usize = 32;

/// Secret that rows are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; BYTES]);

impl Key {
    /// Reads the key; `None` if the file does not exist. A file that other users can read is made private.
    pub fn load(path: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(with_path(path, &error)),
        };
        if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(|error| with_path(path, &error))?;
            tracing::warn!("{} was readable by other users; its mode is 0600 now", path.display());
        }
        match text.trim_end().parse::<Digest>() {
            Ok(digest) => Ok(Some(Self(digest.bytes()))),
            Err(()) => {
                let text = format!(
                    "{} does not contain a key; restore it from a backup, or move it away; a break of the audit log is then recorded, which you acknowledge with: homard audit acknowledge --reason TEXT",
                    path.display()
                );
                Err(io::Error::new(ErrorKind::InvalidData, text))
            }
        }
    }

    /// Reads the key, or creates one. The caller holds the lock of the log.
    pub(crate) fn load_or_create(path: &Path) -> io::Result<Self> {
        if let Some(key) = Self::load(path)? {
            return Ok(key);
        }
        let mut key = Self([0; BYTES]);
        getrandom::fill(&mut key.0).map_err(|error| io::Error::other(error.to_string()))?;
        let text = format!("{}\n", Digest::from(key.0));
        homard_stdx::file::replace(path, text.as_bytes()).map_err(|error| with_path(path, &error))?;
        Ok(key)
    }

    /// Signs bytes.
    pub(crate) fn sign(&self, bytes: &[u8]) -> Digest {
        Digest::from(<[u8; BYTES]>::from(self.mac(bytes).finalize().into_bytes()))
    }

    /// True if `signature` is the signature of `bytes`. Compares in constant time.
    pub(crate) fn has_signed(&self, bytes: &[u8], signature: Digest) -> bool {
        self.mac(bytes).verify_slice(&signature.bytes()).is_ok()
    }

    fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        // A shorter key is padded with zeros to the length of a block.
        let mut block = [0; 64];
        block[..BYTES].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(bytes);
        mac
    }

    #[cfg(test)]
    pub(crate) fn fixed(byte: u8) -> Self {
        Self([byte; BYTES])
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_created_once_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.key");
        assert_eq!(Key::load(&path).unwrap(), None);
        let key = Key::load_or_create(&path).unwrap();
        assert_eq!(Key::load_or_create(&path).unwrap(), key);
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!((Key::load(&path).unwrap(), mode()), (Some(key.clone()), 0o600));
        assert_eq!(format!("{key:?}"), "Key(…)");
        fs::write(&path, "no key").unwrap();
        let error = Key::load_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("audit.key does not contain a key; restore it from a backup"), "{error}");
    }
}
