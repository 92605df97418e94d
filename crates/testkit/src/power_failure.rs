//! Power failures: which states a disk could have if the power had failed at some moment of a recording.
//!
//! A real process is recorded with `strace`. Then the power is cut as often as wanted: at a random moment, everything
//! synced by then is on the disk, and of the rest a random part, sector by sector. Nothing here touches a disk; the
//! caller writes the files, opens them, and checks.
//!
//! The disk is as bad as is permissible. A sector contains what any of its writes since the last sync left there,
//! independently of its neighbours. A file has one of the lengths that it had since then. A name that was created,
//! changed or removed needs a sync of its directory; of the unsynced changes a directory keeps the first few,
//! independently of other directories. One thing cannot happen: that truncated bytes come back once the truncation is
//! on the disk.

mod disk;
mod strace;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use disk::{DirectoryTree, DiskNode, FileOp, NameChanges, SimulatedDisk};
use homard_stdx::SeededRng;
use strace::{CallArgument, CallPhase, SystemCall};

pub use strace::CALLS;

/// Events in a state directory and on the sockets, in order.
#[derive(Debug, Clone, Default)]
pub struct DiskRecording {
    events: Vec<DiskEvent>,
    /// The directory as the process sees it.
    live: DirectoryTree,
}

#[derive(Debug, Clone)]
enum DiskEvent {
    File(usize, FileOp),
    /// Names in a directory change atomically.
    Names(usize, NameChanges),
    /// A sync completed: everything before event `start` is on the disk.
    Synced {
        node: DiskNode,
        start: usize,
    },
    /// A frame was sent to a client.
    FrameSent(Value),
}

/// State after a power failure.
#[derive(Debug, Clone, PartialEq)]
pub struct PowerFailure {
    /// Seed that reproduces it.
    pub seed: u64,
    /// Files, by their path below the directory.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// Directories, parents first.
    pub folders: Vec<PathBuf>,
    /// Frames that had been sent to clients.
    pub sent_frames: Vec<Value>,
}

impl DiskRecording {
    /// Creates a recording of a directory that already has these subdirectories, parents first.
    pub fn with_folders(folders: &[&str]) -> Result<Self> {
        let mut recording = Self::default();
        for path in folders.iter().map(Path::new) {
            let node = recording.live.new_folder();
            recording.rename(path, None, Some(node))?;
            let parent = path.parent().and_then(|parent| recording.live.find(parent)).context("no folder above")?;
            let start = recording.events.len();
            recording.push(DiskEvent::Synced { node: parent, start });
        }
        Ok(recording)
    }

    /// Adds the lifetime of a process in the directory `root`, as reported by `strace -f -s <enough> -e trace=<CALLS>`.
    /// The files and directories `ignored` are left out.
    pub fn add(&mut self, trace: &str, root: &Path, ignored: &[&str]) -> Result<()> {
        let mut process =
            RecordedProcess { recording: self, root, ignored, open: HashMap::new(), syncs: HashMap::new() };
        for call in strace::calls(trace) {
            let (call, phase) = call?;
            process.handle_call(&call, phase).with_context(|| format!("in {}({})", call.name, call.start()))?;
        }
        Ok(())
    }

    /// Returns the same recording without syncs: what a program that forgot them would leave.
    pub fn without_syncs(&self) -> Self {
        let is_no_sync = |event: &DiskEvent| !matches!(event, DiskEvent::Synced { .. });
        Self {
            events: self.events.iter().filter(|event| is_no_sync(event)).cloned().collect(),
            live: self.live.clone(),
        }
    }

    /// Returns the files as the process saw them last, which shows whether the recording is complete.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut disk = SimulatedDisk::default();
        for (at, event) in self.events.iter().enumerate() {
            disk.apply_event(at, event);
        }
        disk.everything()
    }

    /// Returns the number of frames sent to clients.
    pub fn sent_frames(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, DiskEvent::FrameSent(_))).count()
    }

    /// Cuts the power once for every seed. Half of the cuts come right after a frame was sent. They are returned in the
    /// order of their moments, which is not that of the seeds.
    pub fn cuts(&self, seeds: impl IntoIterator<Item = u64>) -> impl Iterator<Item = PowerFailure> {
        let is_frame = |(_, event): &(usize, &DiskEvent)| matches!(event, DiskEvent::FrameSent(_));
        let frame_positions: Vec<usize> =
            self.events.iter().enumerate().filter(is_frame).map(|(at, _)| at + 1).collect();
        let mut cut_points: Vec<_> = seeds
            .into_iter()
            .map(|seed| {
                let mut rng = SeededRng::new(seed);
                let is_after_frame = rng.percent(50) && !frame_positions.is_empty();
                let any = rng.below(self.events.len() as u64 + 1) as usize;
                (if is_after_frame { *rng.pick(&frame_positions) } else { any }, seed, rng)
            })
            .collect();
        cut_points.sort_unstable_by_key(|(at, seed, _)| (*at, *seed));
        let (mut disk, mut applied, mut frames) = (SimulatedDisk::default(), 0, Vec::new());
        cut_points.into_iter().map(move |(at, seed, mut rng)| {
            for (number, event) in self.events.iter().enumerate().take(at).skip(applied) {
                disk.apply_event(number, event);
                if let DiskEvent::FrameSent(frame) = event {
                    frames.push(frame.clone());
                }
            }
            applied = at;
            let (files, folders) = disk.cut(&mut rng);
            PowerFailure { seed, files, folders, sent_frames: frames.clone() }
        })
    }
}

/// A process whose calls are being read.
struct RecordedProcess<'a> {
    recording: &'a mut DiskRecording,
    root: &'a Path,
    ignored: &'a [&'a str],
    /// Its descriptors and their file positions.
    open: HashMap<i64, (DiskNode, FilePosition)>,
    /// Start of unfinished syncs, by thread.
    syncs: HashMap<u32, usize>,
}

#[derive(Clone, Copy)]
enum FilePosition {
    At(u64),
    End,
}

/// True if a call opens something read-only.
fn is_read_only(call: &SystemCall<'_>) -> Result<bool> {
    let is_reading = |argument: &CallArgument| match argument {
        CallArgument::Plain(flags) => flags.contains("flags=O_RDONLY") && !flags.contains("O_CREAT"),
        CallArgument::Text(_) => false,
    };
    Ok(call.arguments()?.iter().any(is_reading))
}

impl RecordedProcess<'_> {
    fn handle_call(&mut self, call: &SystemCall<'_>, phase: CallPhase) -> Result<()> {
        if phase == CallPhase::Begin {
            match call.name {
                "fsync" | "fdatasync" => {
                    self.syncs.insert(call.thread, self.recording.events.len());
                }
                "sendto" => self.record_frames(call)?,
                // From here on another thread may get the same descriptor.
                "close" => self.close(call)?,
                _ => {}
            }
            return Ok(());
        }
        let start = self.syncs.remove(&call.thread).unwrap_or(self.recording.events.len());
        if call.result < 0 {
            return Ok(());
        }
        match call.name {
            "openat" => self.open(call)?,
            "close" | "sendto" if phase == CallPhase::End => {}
            "close" => self.close(call)?,
            "sendto" => self.record_frames(call)?,
            "lseek" => {
                if let Some((_, position)) = self.open.get_mut(&call.number(0)?) {
                    *position = FilePosition::At(call.result.unsigned_abs());
                }
            }
            "write" | "pwrite64" => self.write(call)?,
            "ftruncate" => {
                if let Some((DiskNode::File(file), _)) = self.open.get(&call.number(0)?) {
                    let truncation = FileOp::Truncate(call.number(1)?.unsigned_abs());
                    self.recording.push(DiskEvent::File(*file, truncation));
                }
            }
            "fsync" | "fdatasync" => {
                if let Some((node, _)) = self.open.get(&call.number(0)?) {
                    let node = *node;
                    self.recording.push(DiskEvent::Synced { node, start });
                }
            }
            // Reading changes nothing; the descriptor refers to nothing that is tracked.
            "openat2" if is_read_only(call)? => drop(self.open.remove(&call.result)),
            "mkdir" | "linkat" | "link" | "rename" | "renameat" | "unlink" => self.name(call)?,
            other => {
                let is_ours = call.arguments()?.iter().any(|argument| match argument {
                    CallArgument::Text(path) => self.relative_path(path).is_some(),
                    CallArgument::Plain(number) => number.parse().is_ok_and(|number| self.open.contains_key(&number)),
                });
                if is_ours {
                    bail!("nobody has taught a power cut what {other} does");
                }
            }
        }
        Ok(())
    }

    /// Returns the path below the directory; `None` if it is ignored.
    fn relative_path(&self, path: &[u8]) -> Option<PathBuf> {
        let path = Path::new(std::str::from_utf8(path).ok()?).strip_prefix(self.root).ok()?;
        (!self.ignored.iter().any(|prefix| path.starts_with(prefix))).then(|| path.to_owned())
    }

    fn open(&mut self, call: &SystemCall<'_>) -> Result<()> {
        let arguments = call.arguments()?;
        let (Some(CallArgument::Text(path)), Some(CallArgument::Plain(flags))) = (arguments.get(1), arguments.get(2))
        else {
            return Ok(());
        };
        let has = |flag: &str| flags.split('|').any(|name| name == flag);
        // The previous file of this descriptor was closed by an unrecorded call, such as an exec.
        self.open.remove(&call.result);
        let Some(path) = self.relative_path(path) else { return Ok(()) };
        let node = match self.recording.live.find(&path) {
            Some(node) => node,
            None if has("O_CREAT") => {
                let node = self.recording.live.new_file();
                self.recording.rename(&path, None, Some(node))?;
                node
            }
            // It existed before the recording, or is being created by another thread.
            None => bail!("{} was opened, and nobody made it", path.display()),
        };
        if let (DiskNode::File(file), true) = (node, has("O_TRUNC")) {
            self.recording.push(DiskEvent::File(file, FileOp::Truncate(0)));
        }
        self.open.insert(call.result, (node, if has("O_APPEND") { FilePosition::End } else { FilePosition::At(0) }));
        Ok(())
    }

    fn close(&mut self, call: &SystemCall<'_>) -> Result<()> {
        self.open.remove(&call.number(0)?);
        Ok(())
    }

    fn write(&mut self, call: &SystemCall<'_>) -> Result<()> {
        let Some((DiskNode::File(file), position)) = self.open.get_mut(&call.number(0)?) else { return Ok(()) };
        let arguments = call.arguments()?;
        let Some(CallArgument::Text(bytes)) = arguments.get(1) else { bail!("no bytes") };
        let length = call.result.unsigned_abs();
        let at = match (call.name, *position) {
            ("pwrite64", _) => call.number(3)?.unsigned_abs(),
            (_, FilePosition::At(at)) => {
                *position = FilePosition::At(at + length);
                at
            }
            (_, FilePosition::End) => self.recording.live.length(*file),
        };
        let (file, bytes) = (*file, bytes[..length as usize].to_vec());
        self.recording.push(DiskEvent::File(file, FileOp::Write(at, bytes)));
        Ok(())
    }

    /// Handles a call that adds, changes or removes a name.
    fn name(&mut self, call: &SystemCall<'_>) -> Result<()> {
        let arguments = call.arguments()?;
        let mut paths = arguments
            .iter()
            .filter_map(|argument| if let CallArgument::Text(path) = argument { Some(path) } else { None });
        let first = paths.next().and_then(|path| self.relative_path(path));
        let second = paths.next().and_then(|path| self.relative_path(path));
        let recording = &mut *self.recording;
        match (call.name, first, second) {
            ("mkdir", Some(path), _) if path.as_os_str().is_empty() => Ok(()),
            ("mkdir", Some(path), _) => {
                let node = recording.live.new_folder();
                recording.rename(&path, None, Some(node))
            }
            ("unlink", Some(path), _) => recording.rename(&path, None, None),
            ("link" | "linkat", Some(from), Some(to)) => {
                let node = recording.live.find(&from).context("nobody made what is linked")?;
                recording.rename(&to, None, Some(node))
            }
            ("rename" | "renameat", Some(from), Some(to)) => {
                let node = recording.live.find(&from).context("nobody made what is renamed")?;
                recording.rename(&to, Some(&from), Some(node))
            }
            (_, None, None) => Ok(()),
            _ => bail!("nobody has taught a power cut what this does"),
        }
    }

    /// Extracts the frames from data sent to a client.
    fn record_frames(&mut self, call: &SystemCall<'_>) -> Result<()> {
        let arguments = call.arguments()?;
        let Some(CallArgument::Text(bytes)) = arguments.get(1) else { return Ok(()) };
        let begin = b"{\"type\":\"";
        let mut rest = &bytes[..];
        while let Some(at) = rest.windows(begin.len()).position(|window| window == begin) {
            let mut frames = serde_json::Deserializer::from_slice(&rest[at..]).into_iter::<Value>();
            let Some(Ok(frame)) = frames.next() else { break };
            rest = &rest[at + frames.byte_offset()..];
            self.recording.push(DiskEvent::FrameSent(frame));
        }
        Ok(())
    }
}

impl DiskRecording {
    fn push(&mut self, event: DiskEvent) {
        self.live.apply_event(&event);
        self.events.push(event);
    }

    /// Gives a node the name `to` and removes the name `from`, both in one directory.
    fn rename(&mut self, to: &Path, from: Option<&Path>, node: Option<DiskNode>) -> Result<()> {
        let parent = to.parent().context("the directory itself has no name")?;
        let Some(DiskNode::Folder(folder)) = self.live.find(parent) else { bail!("nobody made {}", parent.display()) };
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut changes = vec![(name(to), node)];
        if let Some(from) = from {
            if from.parent() != Some(parent) {
                bail!("nobody has taught a power cut what happens between two folders");
            }
            changes.insert(0, (name(from), None));
        }
        self.push(DiskEvent::Names(folder, changes));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
