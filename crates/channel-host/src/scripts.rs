//! Source of the Node side, embedded in the binary.

use std::{
    io,
    path::{Path, PathBuf},
};

use homard_plugins::{shared_scripts, write_scripts};

macro_rules! files {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../node/", $name)))),*] };
}

/// The files by name. A test checks that none is missing.
const FILES: &[(&str, &str)] = files![
    "accounts.mjs",
    "blobs.mjs",
    "flight.mjs",
    "host.mjs",
    "inbound.mjs",
    "ingress.mjs",
    "login.mjs",
    "outbound.mjs",
    "package.mjs",
    "policies.mjs",
    "routes.mjs",
];

/// Writes the scripts below a folder, unless they are there, and returns their directory.
pub(crate) fn write(folder: &Path) -> io::Result<PathBuf> {
    let all: Vec<_> = shared_scripts().chain(FILES.iter().copied()).collect();
    write_scripts(folder, &all)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    #[test]
    fn every_script_is_embedded_and_every_import_is_there() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("node");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files: BTreeSet<_> = files.filter(|name| name.ends_with(".mjs")).collect();
        assert_eq!(files, FILES.iter().map(|(name, _)| (*name).to_owned()).collect());
        let home = tempfile::tempdir().unwrap();
        let written = write(home.path()).unwrap();
        for (_, text) in FILES {
            for (_, rest) in text.match_indices("from \"./").map(|(at, found)| text.split_at(at + found.len())) {
                let name = rest.split('"').next().unwrap();
                assert!(written.join(name).is_file(), "{name}");
            }
        }
    }
}
