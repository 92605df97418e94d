//! Copies of protected files, for a sandbox that cannot keep a command from changing them.
//!
//! In tier A a mount protects each of these files. In tier B there are no mounts, and Landlock cannot except a file
//! from a directory that a command may write to. So the files are copied before the command starts, and changes are
//! reverted: while it runs, and when it has ended.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    TrustedContent,
    quarantine::{EntryHandle, FILE_MODE, QuarantineBatch},
    record::ToolWrites,
};

/// Limits per protected file or directory; one with more entries or bytes is not copied.
const MOST_ENTRIES: usize = 2_000;
const MOST_BYTES: usize = 8 << 20;

/// Mode of a directory that a file tool created.
const DIRECTORY_MODE: u32 = 0o755;

/// Permission bits that are compared: those that decide whether git runs a hook.
const EXECUTABLE: u32 = 0o111;

/// A file, symlink or directory as it was before the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Original {
    File {
        mode: u32,
        #[serde(with = "base64_text")]
        content: Vec<u8>,
    },
    Link(PathBuf),
    Directory {
        mode: u32,
    },
}

/// The protected files of a workspace as they were before a command, by path in the workspace. A directory is followed
/// by its content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Originals(BTreeMap<PathBuf, Original>);

/// Where files are restored, and what has been.
pub(crate) struct Restoration<'a, 'q> {
    /// The workspace.
    pub(crate) workspace: &'a Path,
    /// Content that file tools wrote since then, which is kept.
    pub(crate) tool_writes: &'a ToolWrites,
    /// Where the changed files go.
    pub(crate) batch: &'a mut QuarantineBatch<'q>,
    /// Names that had changed.
    pub(crate) changed: &'a mut Vec<PathBuf>,
}

impl Originals {
    /// Copies files and directories. Those in `known` are not read again, because a running command may have changed
    /// them. Blocks.
    pub(crate) fn read<'a>(workspace: &Path, names: impl Iterator<Item = &'a Path>, known: &Self) -> Self {
        let mut originals = Self::default();
        for name in names {
            if originals.covers(name) {
                continue;
            }
            if known.0.contains_key(name) {
                originals.0.extend(known.below(name).map(|(name, original)| (name.clone(), original.clone())));
                continue;
            }
            let mut tree = Tree { workspace, found: BTreeMap::new(), bytes: 0 };
            match tree.add(name) {
                Ok(()) => originals.0.extend(tree.found),
                Err(error) => {
                    let name = name.display();
                    tracing::warn!(%name, %error, "failed to back up a protected file; a command can change it");
                }
            }
        }
        originals
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns true if a path was copied, by itself or with a directory above it.
    pub(crate) fn covers(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.0.contains_key(above))
    }

    /// Returns the files and directories that were copied, without the content of directories.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &Path> {
        let is_root = |name: &&PathBuf| name.parent().is_none_or(|parent| !self.0.contains_key(parent));
        self.0.keys().filter(is_root).map(PathBuf::as_path)
    }

    /// Restores a file or directory, and adds the names that had changed. Content that file tools wrote since then is
    /// kept. Nothing is restored below a directory that no longer exists. Blocks.
    pub(crate) fn put_back(&self, name: &Path, restoration: &mut Restoration<'_, '_>) -> io::Result<()> {
        let Restoration { workspace, tool_writes, batch, changed } = restoration;
        let Some(handle) = EntryHandle::find(workspace, name)? else { return Ok(()) };
        let found = handle.metadata()?;
        let Some(original) = self.expected(name, tool_writes) else {
            if found.is_some() {
                changed.push(name.to_owned());
            }
            return batch.quarantine_entry(workspace, name);
        };
        if !original.is_at(&handle, found.as_ref())? {
            changed.push(name.to_owned());
            batch.quarantine_entry(workspace, name)?;
            original.write(&handle)?;
        }
        if !matches!(*original, Original::Directory { .. }) {
            return Ok(());
        }
        let existing = handle.names()?.into_iter().map(|below| name.join(below));
        let expected = self.below(name).map(|(path, _)| path).chain(tool_writes.keys());
        let expected = expected.filter(|path| path.parent() == Some(name)).cloned();
        for name in existing.chain(expected).collect::<BTreeSet<_>>() {
            self.put_back(&name, restoration)?;
        }
        Ok(())
    }

    /// Returns what may be loaded from a copied path while a command runs that could change the file.
    pub(crate) fn rule(&self, workspace: &Path, path: &Path) -> TrustedContent {
        let Some((above, original)) = path.ancestors().find_map(|above| self.0.get_key_value(above)) else {
            return TrustedContent::File;
        };
        match original {
            Original::File { content, .. } => TrustedContent::Text(String::from_utf8_lossy(content).into_owned()),
            Original::Directory { .. } if above == path => TrustedContent::File,
            // The load rule of the target applies as long as the symlink is unchanged.
            Original::Link(target) if fs::read_link(workspace.join(above)).is_ok_and(|now| now == *target) => {
                TrustedContent::File
            }
            Original::Directory { .. } | Original::Link(_) => TrustedContent::Nothing,
        }
    }

    /// Returns true if a file equals an original, or a directory contains nothing but such files. `None` if `name` was
    /// not copied.
    pub(crate) fn is_copy(&self, name: &Path, other: &Path) -> Option<io::Result<bool>> {
        self.0.contains_key(name).then(|| self.is_same(name, other))
    }

    fn is_same(&self, name: &Path, other: &Path) -> io::Result<bool> {
        let found = other.symlink_metadata()?;
        match self.0.get(name) {
            Some(Original::File { content, .. }) => {
                Ok(found.is_file() && found.len() == content.len() as u64 && fs::read(other)? == *content)
            }
            Some(Original::Directory { .. }) if found.is_dir() => {
                for entry in fs::read_dir(other)? {
                    let below = entry?.file_name();
                    if !self.is_same(&name.join(&below), &other.join(&below))? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Some(Original::Directory { .. } | Original::Link(_)) | None => Ok(false),
        }
    }

    fn below(&self, name: &Path) -> impl Iterator<Item = (&PathBuf, &Original)> {
        self.0.range(name.to_owned()..).take_while(move |(path, _)| path.starts_with(name))
    }

    /// Returns the expected content of a path; `None` if nothing may exist there.
    fn expected(&self, name: &Path, tool_writes: &ToolWrites) -> Option<Cow<'_, Original>> {
        let original = self.0.get(name);
        match tool_writes.get(name) {
            Some(Some(text)) => {
                let mode = match original {
                    Some(Original::File { mode, .. }) => *mode,
                    Some(Original::Link(_) | Original::Directory { .. }) | None => FILE_MODE,
                };
                Some(Cow::Owned(Original::File { mode, content: text.clone().into_bytes() }))
            }
            Some(None) => None,
            None if original.is_none()
                && tool_writes.iter().any(|(path, text)| text.is_some() && path.starts_with(name)) =>
            {
                Some(Cow::Owned(Original::Directory { mode: DIRECTORY_MODE }))
            }
            None => original.map(Cow::Borrowed),
        }
    }
}

impl Original {
    fn is_at(&self, handle: &EntryHandle, found: Option<&fs::Metadata>) -> io::Result<bool> {
        let Some(found) = found else { return Ok(false) };
        match self {
            Self::File { mode, content } => {
                let is_alike = found.is_file()
                    && found.len() == content.len() as u64
                    && found.permissions().mode() & EXECUTABLE == mode & EXECUTABLE;
                Ok(is_alike && handle.read(content.len())?.as_ref() == Some(content))
            }
            Self::Link(target) => Ok(found.is_symlink() && fs::read_link(handle.path())? == *target),
            Self::Directory { .. } => Ok(found.is_dir()),
        }
    }

    /// Creates it. The path must be free.
    fn write(&self, handle: &EntryHandle) -> io::Result<()> {
        match self {
            Self::File { mode, content } => handle.write(content, *mode),
            Self::Link(target) => handle.link(target),
            Self::Directory { mode } => handle.create_dir(*mode),
        }
    }
}

/// Copy in progress of a file or directory.
struct Tree<'a> {
    workspace: &'a Path,
    found: BTreeMap<PathBuf, Original>,
    bytes: usize,
}

impl Tree<'_> {
    fn add(&mut self, name: &Path) -> io::Result<()> {
        let Some(handle) = EntryHandle::find(self.workspace, name)? else { return Ok(()) };
        let Some(found) = handle.metadata()? else { return Ok(()) };
        // Records are stored as JSON, which needs UTF-8.
        if name.to_str().is_none() {
            return Err(io::Error::other(format!("{} is not UTF-8", name.display())));
        }
        if self.found.len() == MOST_ENTRIES {
            return Err(io::Error::other(format!("the directory has more than {MOST_ENTRIES} entries")));
        }
        let mode = found.permissions().mode() & 0o7777;
        let original = if found.is_dir() {
            Original::Directory { mode }
        } else if found.is_symlink() {
            Original::Link(fs::read_link(handle.path())?)
        } else if found.is_file() {
            let content = handle.read(MOST_BYTES - self.bytes)?;
            let content =
                content.ok_or_else(|| io::Error::other(format!("the content is larger than {MOST_BYTES} bytes")))?;
            self.bytes += content.len();
            Original::File { mode, content }
        } else {
            // A pipe, socket or device.
            return Ok(());
        };
        let is_directory = found.is_dir();
        self.found.insert(name.to_owned(), original);
        if is_directory {
            handle.names()?.into_iter().try_for_each(|below| self.add(&name.join(below)))?;
        }
        Ok(())
    }
}

/// Serializes bytes as Base64.
mod base64_text {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
