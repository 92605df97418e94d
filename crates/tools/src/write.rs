//! `write`: a file's whole content, replaced at one stroke.

use std::{
    ffi::OsStr,
    fs::File,
    io::Write as _,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fchmod, openat, renameat, statat, unlinkat},
    io::Errno,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Error, beneath::Beneath, either, on_disk};

/// How many temporary files that a crash left behind are stepped over.
const TRIES: u32 = 100;

/// Creates a file or replaces its content.
#[derive(Debug, Clone, Copy)]
pub struct Write;

#[derive(Deserialize)]
struct Arguments {
    path: Option<String>,
    file_path: Option<String>,
    content: String,
}

#[async_trait]
impl Tool for Write {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write".to_owned(),
            description: "Write a file of the workspace: creates it, with its parent directories, or replaces its \
                          whole content."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["content"],
                "properties": {
                    "path": {"type": "string", "description": "The file, relative to the workspace"},
                    "content": {"type": "string", "description": "All that the file will hold"},
                    "file_path": {"type": "string", "description": "Another name for path"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Idempotent
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        on_disk("write", arguments, move |arguments| write(&cx.workdir, arguments)).await
    }
}

fn write(workdir: &Path, arguments: Arguments) -> Result<String, Error> {
    let path = either(arguments.path, arguments.file_path)?;
    let beneath = Beneath::open(workdir)?;
    let (directory, name) = beneath.parent(&path)?;
    let mode = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(replaceable(&path, stat.st_mode)?),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(beneath.explain(&path, errno)),
    };
    let content = arguments.content.as_bytes();
    replace(&directory, name, mode, content).map_err(|source| Error::Io { path: path.clone(), source })?;
    Ok(format!("Wrote {} bytes to {path}", content.len()))
}

/// The mode of what is there, if it is a file that may be replaced.
fn replaceable(path: &str, raw: u32) -> Result<Mode, Error> {
    let path = path.to_owned();
    let mode = Mode::from_raw_mode(raw);
    match FileType::from_raw_mode(raw) {
        // The rename would not ask.
        FileType::RegularFile if !mode.intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH) => {
            Err(Error::ReadOnly { path })
        }
        FileType::RegularFile => Ok(mode & (Mode::RWXU | Mode::RWXG | Mode::RWXO)),
        FileType::Directory => Err(Error::Directory { path }),
        FileType::Symlink => Err(Error::Link { path }),
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            Err(Error::Special { path })
        }
    }
}

/// Writes beside the file and renames over it: a reader sees the old content or the new, also after a crash.
fn replace(directory: &OwnedFd, name: &OsStr, mode: Option<Mode>, content: &[u8]) -> std::io::Result<()> {
    let (file, temporary) = create_beside(directory, mode)?;
    let fill = |mut file: File| {
        file.write_all(content)?;
        if let Some(mode) = mode {
            fchmod(&file, mode)?;
        }
        file.sync_data()?;
        renameat(directory, &temporary, directory, name)?;
        Ok(())
    };
    fill(file).inspect_err(|_| {
        // The first error is the one to tell.
        unlinkat(directory, &temporary, AtFlags::empty()).ok();
    })
}

fn create_beside(directory: impl AsFd, mode: Option<Mode>) -> Result<(File, String), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Nobody else may read what replaces a private file, not even for a moment. A new file is as the umask has it.
    let mode = Mode::from_raw_mode(if mode.is_some() { 0o600 } else { 0o666 });
    let mut last = Errno::EXIST;
    for number in 0..TRIES {
        let name = format!(".homard-{}-{number}.tmp", std::process::id());
        match openat(directory.as_fd(), &name, flags, mode) {
            Ok(file) => return Ok((File::from(file), name)),
            Err(errno) => last = errno,
        }
        if last != Errno::EXIST {
            break;
        }
    }
    Err(last)
}
