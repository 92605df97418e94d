//! Fingerprints of plugin files, which detect changes since the installation.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// Maximum number of files of a plugin, including its dependencies.
const MAX_FILES: usize = 50_000;

/// Maximum total size of the files in bytes.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;

/// Computes the fingerprint of a directory: file names and contents, independent of the order in which they are listed.
pub fn fingerprint(root: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let mut digest = Sha256::new();
    let mut remaining = MAX_BYTES;
    for file in files {
        let name = file.strip_prefix(root).unwrap_or(&file).as_os_str().as_encoded_bytes().to_owned();
        let mut file_digest = Sha256::new();
        if file.symlink_metadata()?.is_symlink() {
            file_digest.update(fs::read_link(&file)?.as_os_str().as_encoded_bytes());
        } else {
            let read = io::copy(&mut fs::File::open(&file)?.take(remaining + 1), &mut DigestWriter(&mut file_digest))?;
            remaining =
                remaining.checked_sub(read).ok_or_else(|| io::Error::other("the plugin is larger than 1 GiB"))?;
        }
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(&name);
        digest.update(file_digest.finalize());
    }
    Ok(hex::encode(digest.finalize()))
}

/// Computes the digest of a sequence of byte strings.
pub(crate) fn digest<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for piece in pieces {
        hasher.update((piece.len() as u64).to_le_bytes());
        hasher.update(piece);
    }
    hex::encode(hasher.finalize())
}

struct DigestWriter<'a>(&'a mut Sha256);

impl io::Write for DigestWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
        if files.len() > MAX_FILES {
            return Err(io::Error::other(format!("the plugin has more than {MAX_FILES} files")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_any_file_changes_the_fingerprint() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("lib")).unwrap();
        fs::write(root.join("a.js"), "1").unwrap();
        fs::write(root.join("lib/b.js"), "2").unwrap();
        let first = fingerprint(root).unwrap();
        assert_eq!(fingerprint(root).unwrap(), first);
        fs::write(root.join("lib/b.js"), "3").unwrap();
        let second = fingerprint(root).unwrap();
        fs::rename(root.join("lib/b.js"), root.join("lib/c.js")).unwrap();
        let third = fingerprint(root).unwrap();
        assert!(first != second && second != third && first.len() == 64);
    }
}
