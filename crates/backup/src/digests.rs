//! The digests of the files of a backup: they show whether it is complete, and as it was written.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead as _, BufReader},
    path::Path,
};

use sha2::{Digest as _, Sha256};

use crate::{Error, MANIFEST, disk};

/// Bytes that are read at once.
const BUFFER: usize = 64 * 1024;

/// Digests of files by their path below a directory.
pub(crate) type Digests = BTreeMap<String, String>;

/// Computes the digests of all files below a directory, without its manifest. A link counts with its target's path.
pub(crate) fn digests(folder: &Path) -> Result<Digests, Error> {
    let mut found = Digests::new();
    collect(folder, folder, &mut found)?;
    found.remove(MANIFEST);
    Ok(found)
}

fn collect(root: &Path, folder: &Path, found: &mut Digests) -> Result<(), Error> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in entries.map_err(disk("read", folder))? {
        let path = entry.path();
        let kind = entry.file_type().map_err(disk("read", &path))?;
        if kind.is_dir() {
            collect(root, &path, found)?;
            continue;
        }
        let mut digest = Sha256::new();
        if kind.is_symlink() {
            digest.update(fs::read_link(&path).map_err(disk("read", &path))?.as_os_str().as_encoded_bytes());
        } else {
            let mut file = BufReader::with_capacity(BUFFER, File::open(&path).map_err(disk("read", &path))?);
            loop {
                let part = file.fill_buf().map_err(disk("read", &path))?;
                if part.is_empty() {
                    break;
                }
                digest.update(part);
                let count = part.len();
                file.consume(count);
            }
        }
        let below = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        found.insert(below, digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
    }
    Ok(())
}

/// Checks that the files of a directory are those of its manifest.
pub(crate) fn verify(folder: &Path, expected: &Digests) -> Result<(), Error> {
    let found = digests(folder)?;
    let wrong = expected.iter().find(|(name, digest)| found.get(*name) != Some(digest)).map(|(name, _)| name);
    let added = found.keys().find(|name| !expected.contains_key(*name));
    let why = match (wrong, added) {
        (Some(name), _) if !found.contains_key(name) => format!("{name} is missing"),
        (Some(name), _) => format!("{name} was changed"),
        (None, Some(name)) => format!("{name} was added"),
        (None, None) => return Ok(()),
    };
    Err(Error::Invalid(format!("{} is not as it was written: {why}", folder.display())))
}
