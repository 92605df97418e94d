//! The workspace of a trace on a real disk, and the files around it.

use std::{
    collections::hash_map::RandomState,
    fs::{self, File},
    hash::{BuildHasher, Hasher},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::symlink,
    path::PathBuf,
};

use anyhow::Context;
use tempfile::TempDir;

/// Content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContents {
    /// Text.
    Text(String),
    /// An image of one pixel, whose color is derived from the file name.
    Picture,
    /// A symlink to this path, relative to its location.
    Link(PathBuf),
    /// A sparse text file of 50 MB, which needs little disk space and no memory in a reader that only looks at its
    /// ends.
    Huge,
}

/// Length of a huge file, and of the text at each of its ends.
const HUGE_BYTES: u64 = 50 * 1024 * 1024;
const HUGE_END_BYTES: usize = 100 * 1024;

/// Replacement in snapshots for the folder's path, which differs every time. Both have the same number of letters and
/// digits, so that counts of characters or tokens are the same.
const PLACEHOLDER: &str = "/tmp/world-000000";

/// A temporary folder that contains the workspace, so that files outside of the workspace can be controlled, too.
/// Removed on drop.
#[derive(Debug)]
pub(crate) struct TraceFolder(TempDir);

impl TraceFolder {
    /// Creates a folder with a workspace that contains these files; a path that begins with `../` is beside it.
    pub(crate) fn new(files: &[(String, FileContents)]) -> anyhow::Result<Self> {
        let folder = Self(create_unique()?);
        let workspace = folder.workspace();
        fs::create_dir(&workspace)?;
        for (name, contents) in files {
            let path = workspace.join(name);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            let written = match contents {
                FileContents::Text(text) => fs::write(&path, text),
                FileContents::Picture => fs::write(&path, one_pixel_png(name)),
                FileContents::Link(target) => symlink(target, &path),
                FileContents::Huge => File::create(&path).and_then(write_huge),
            };
            written.with_context(|| format!("cannot write {name}"))?;
        }
        Ok(folder)
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.0.path().join("desk")
    }

    /// Replaces the folder's path in a text by a constant.
    pub(crate) fn replace_path(&self, text: &str) -> String {
        text.replace(&self.0.path().display().to_string(), PLACEHOLDER)
    }
}

/// Creates a temporary folder with a unique name. Its path is as long as [`PLACEHOLDER`].
fn create_unique() -> io::Result<TempDir> {
    loop {
        let number = RandomState::new().build_hasher().finish() % 1_000_000;
        match tempfile::Builder::new().prefix(&format!("world-{number:06}")).rand_bytes(0).tempdir_in("/tmp") {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result,
        }
    }
}

fn write_huge(mut file: File) -> std::io::Result<()> {
    file.write_all("begin ".repeat(HUGE_END_BYTES / 6).as_bytes())?;
    file.seek(SeekFrom::Start(HUGE_BYTES - HUGE_END_BYTES as u64))?;
    file.write_all("end\n".repeat(HUGE_END_BYTES / 4).as_bytes())
}

/// Returns a PNG of one pixel, whose grey level is derived from the name, so that images differ.
fn one_pixel_png(name: &str) -> Vec<u8> {
    let grey = name.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    let header = [0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0];
    // Uncompressed: one block with the two bytes of the one row, then the Adler-32 checksum.
    let [adler_a, adler_b] = [1, 2].map(|start| (start + u16::from(grey)).to_be_bytes());
    let data = [&[0x78, 0x01, 0x01, 2, 0, 0xfd, 0xff, 0, grey][..], &adler_b, &adler_a].concat();
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunk(*b"IHDR", &header), chunk(*b"IDAT", &data), chunk(*b"IEND", &[])].concat()
}

/// Returns a PNG chunk: length, type, data and CRC.
fn chunk(kind: [u8; 4], data: &[u8]) -> Vec<u8> {
    let body = [&kind, data].concat();
    let check = !body.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    });
    [&(data.len() as u32).to_be_bytes()[..], &body, &check.to_be_bytes()].concat()
}
