//! A backup in one file: a tar archive, compressed with zstd or gzip.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Seek as _, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use tempfile::{NamedTempFile, TempDir};

use crate::{Error, disk};

/// First bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// First bytes of a gzip member.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Compression level of zstd: its default.
const LEVEL: i32 = 3;

/// How an archive is compressed, by the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArchiveFormat {
    Zstd,
    Gzip,
}

impl ArchiveFormat {
    fn of(file: &Path) -> Result<Self, Error> {
        let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if name.ends_with(".tar.zst") {
            Ok(Self::Zstd)
        } else if name.ends_with(".tar.gz") || name.ends_with(".tgz") {
            Ok(Self::Gzip)
        } else {
            Err(Error::Usage(format!("{} must end with .tar.zst, .tar.gz or .tgz", file.display())))
        }
    }
}

/// A directory beside an archive, in which the backup is made before it is packed. It is removed when this is dropped.
#[derive(Debug)]
pub struct Staging {
    archive: PathBuf,
    format: ArchiveFormat,
    folder: TempDir,
}

impl Staging {
    /// Checks that the archive can be written, and creates the directory.
    pub fn create(archive: &Path) -> Result<Self, Error> {
        let format = ArchiveFormat::of(archive)?;
        if archive.symlink_metadata().is_ok() {
            return Err(Error::Exists(format!("{} already exists; choose a new file", archive.display())));
        }
        let parent = archive.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(disk("create", parent))?;
        // Only the user can read it.
        let folder = tempfile::Builder::new().prefix(".homard-backup-").tempdir_in(parent);
        Ok(Self { archive: archive.to_owned(), format, folder: folder.map_err(disk("create a directory in", parent))? })
    }

    /// Returns the place of the backup, which does not exist yet.
    pub fn target(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Packs the backup, and returns the path of the archive, which has its name once it is complete and on disk.
    pub fn pack(self) -> Result<PathBuf, Error> {
        let failed = || disk("write", &self.archive);
        let mut file = NamedTempFile::new_in(self.folder.path()).map_err(failed())?;
        let packed = match self.format {
            ArchiveFormat::Zstd => {
                let mut encoder = zstd::Encoder::new(BufWriter::new(&mut file), LEVEL).map_err(failed())?;
                encoder.include_checksum(true).map_err(failed())?;
                write_tar(&self.target(), &mut encoder).and_then(|()| encoder.finish()?.flush())
            }
            ArchiveFormat::Gzip => {
                let mut encoder = GzEncoder::new(BufWriter::new(&mut file), Compression::default());
                write_tar(&self.target(), &mut encoder).and_then(|()| encoder.finish()?.flush())
            }
        };
        packed.and_then(|()| file.as_file().sync_all()).map_err(failed())?;
        // Fails if another program has created a file with this name meanwhile.
        file.persist_noclobber(&self.archive).map_err(|error| error.error).map_err(failed())?;
        let parent = self.archive.parent().unwrap_or(Path::new("/"));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed())?;
        Ok(self.archive)
    }
}

fn write_tar(folder: &Path, to: &mut impl Write) -> io::Result<()> {
    let mut tar = tar::Builder::new(to);
    tar.follow_symlinks(false);
    tar.append_dir_all("", folder)?;
    tar.finish()
}

/// Unpacks an archive into a new directory beside `near`, which is removed when it is dropped. Paths that lead out of it
/// are refused.
pub(crate) fn unpack(archive: &Path, near: &Path) -> Result<TempDir, Error> {
    let parent = near.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(disk("create", parent))?;
    let folder = tempfile::Builder::new().prefix(".homard-restore-").tempdir_in(parent);
    let folder = folder.map_err(disk("create a directory in", parent))?;
    let mut file = File::open(archive).map_err(disk("read", archive))?;
    let mut magic = Vec::new();
    (&mut file).take(4).read_to_end(&mut magic).map_err(disk("read", archive))?;
    file.rewind().map_err(disk("read", archive))?;
    let reader = BufReader::new(file);
    let damaged = |error: io::Error| Error::Invalid(format!("{} is not a complete backup: {error}", archive.display()));
    if magic == ZSTD_MAGIC {
        read_tar(zstd::Decoder::with_buffer(reader).map_err(damaged)?, folder.path()).map_err(damaged)?;
    } else if magic.starts_with(&GZIP_MAGIC) {
        read_tar(GzDecoder::new(reader), folder.path()).map_err(damaged)?;
    } else {
        let text = format!("{} is neither a directory nor an archive of a backup", archive.display());
        return Err(Error::Usage(text));
    }
    Ok(folder)
}

fn read_tar(mut from: impl Read, folder: &Path) -> io::Result<()> {
    let mut tar = tar::Archive::new(&mut from);
    tar.set_preserve_permissions(true);
    tar.set_overwrite(false);
    tar.unpack(folder)?;
    // What follows the archive contains the checksum of the compression.
    io::copy(&mut from, &mut io::sink()).map(drop)
}
