//! Power cuts: what could be on a disk if the power had gone at some moment of a recording.
//!
//! A real process is recorded with `strace`. Then the power goes as often as wanted: at a moment drawn by chance, what
//! was synced by then is on the disk, and of the rest a part, drawn sector by sector. Nothing here touches a disk; who
//! asks puts the files somewhere, opens them, and looks.
//!
//! The disk is as bad as one may be. A sector holds what any of its writes since the last sync left there, whatever
//! became of its neighbours. A file's length is one that it had since then. A name that was made, changed or removed
//! needs a sync of its folder; of the changes that were not synced, a folder keeps the first few, whatever other folders
//! keep. One thing cannot happen: that bytes which were cut off come back once the cut is on the disk.

mod disk;
mod strace;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::chance::Dice;
use disk::{Disk, FileOp, Names, Node, Tree};
use strace::{Call, Moment, Word};

pub use strace::CALLS;

/// What happened in a state directory and on the sockets, in order.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    events: Vec<Event>,
    /// The directory as the process sees it.
    live: Tree,
}

#[derive(Debug, Clone)]
enum Event {
    File(usize, FileOp),
    /// Names of a folder change, all at once.
    Names(usize, Names),
    /// A sync ended: what happened before event `begun` is on the disk.
    Synced {
        node: Node,
        begun: usize,
    },
    /// A frame left for a client.
    Told(Value),
}

/// What a power cut left.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// The seed that makes the same cut again.
    pub seed: u64,
    /// The files, by their path below the directory.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// The folders, those above first.
    pub folders: Vec<PathBuf>,
    /// The frames that had left for clients.
    pub told: Vec<Value>,
}

impl Recording {
    /// The recording of a directory that has these folders already, those above first.
    pub fn with_folders(folders: &[&str]) -> Result<Self> {
        let mut recording = Self::default();
        for path in folders.iter().map(Path::new) {
            let node = recording.live.new_folder();
            recording.rename(path, None, Some(node))?;
            let above = path.parent().and_then(|above| recording.live.find(above)).context("no folder above")?;
            let begun = recording.events.len();
            recording.push(Event::Synced { node: above, begun });
        }
        Ok(recording)
    }

    /// Adds the life of a process in the directory `root`, as `strace -f -s <enough> -e trace=<CALLS>` tells it. The
    /// files and folders `passed_by` in it are of no interest.
    pub fn add(&mut self, trace: &str, root: &Path, passed_by: &[&str]) -> Result<()> {
        let mut life = Life { recording: self, root, passed_by, open: HashMap::new(), syncs: HashMap::new() };
        for call in strace::calls(trace) {
            let (call, moment) = call?;
            life.take(&call, moment).with_context(|| format!("in {}({})", call.name, call.start()))?;
        }
        Ok(())
    }

    /// The same without any sync: what a program that forgot them would leave.
    pub fn without_syncs(&self) -> Self {
        let is_kept = |event: &Event| !matches!(event, Event::Synced { .. });
        Self { events: self.events.iter().filter(|event| is_kept(event)).cloned().collect(), live: self.live.clone() }
    }

    /// The files as the process saw them last; a recording that lacks something shows here.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut disk = Disk::default();
        for (at, event) in self.events.iter().enumerate() {
            disk.take(at, event);
        }
        disk.everything()
    }

    /// How many frames left for clients.
    pub fn told(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Told(_))).count()
    }

    /// Cuts the power once for every seed. Half of the cuts come right after a client was told something. They come in
    /// the order of their moments, which is not that of the seeds.
    pub fn cuts(&self, seeds: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Cut> {
        let is_told = |(_, event): &(usize, &Event)| matches!(event, Event::Told(_));
        let told: Vec<usize> = self.events.iter().enumerate().filter(is_told).map(|(at, _)| at + 1).collect();
        let mut moments: Vec<_> = seeds
            .into_iter()
            .map(|seed| {
                let mut dice = Dice::new(seed);
                let after_words = dice.percent(50) && !told.is_empty();
                let any = dice.below(self.events.len() as u64 + 1) as usize;
                (if after_words { *dice.pick(&told) } else { any }, seed, dice)
            })
            .collect();
        moments.sort_unstable_by_key(|(at, seed, _)| (*at, *seed));
        let (mut disk, mut done, mut words) = (Disk::default(), 0, Vec::new());
        moments.into_iter().map(move |(at, seed, mut dice)| {
            for (number, event) in self.events.iter().enumerate().take(at).skip(done) {
                disk.take(number, event);
                if let Event::Told(frame) = event {
                    words.push(frame.clone());
                }
            }
            done = at;
            let (files, folders) = disk.cut(&mut dice);
            Cut { seed, files, folders, told: words.clone() }
        })
    }
}

/// One process, while its calls are read.
struct Life<'a> {
    recording: &'a mut Recording,
    root: &'a Path,
    passed_by: &'a [&'a str],
    /// What its descriptors stand for, and where the next write goes.
    open: HashMap<i64, (Node, Place)>,
    /// Where syncs that are under way began, by thread.
    syncs: HashMap<u32, usize>,
}

#[derive(Clone, Copy)]
enum Place {
    At(u64),
    End,
}

/// Whether a call that opens something does it to read only.
fn only_looks(call: &Call<'_>) -> Result<bool> {
    let is_reading = |word: &Word| match word {
        Word::Plain(flags) => flags.contains("flags=O_RDONLY") && !flags.contains("O_CREAT"),
        Word::Text(_) => false,
    };
    Ok(call.words()?.iter().any(is_reading))
}

impl Life<'_> {
    fn take(&mut self, call: &Call<'_>, moment: Moment) -> Result<()> {
        if moment == Moment::Begin {
            match call.name {
                "fsync" | "fdatasync" => {
                    self.syncs.insert(call.thread, self.recording.events.len());
                }
                "sendto" => self.tell(call)?,
                // From here on another thread may get the same number.
                "close" => self.close(call)?,
                _ => {}
            }
            return Ok(());
        }
        let begun = self.syncs.remove(&call.thread).unwrap_or(self.recording.events.len());
        if call.result < 0 {
            return Ok(());
        }
        match call.name {
            "openat" => self.open(call)?,
            "close" | "sendto" if moment == Moment::End => {}
            "close" => self.close(call)?,
            "sendto" => self.tell(call)?,
            "lseek" => {
                if let Some((_, place)) = self.open.get_mut(&call.number(0)?) {
                    *place = Place::At(call.result.unsigned_abs());
                }
            }
            "write" | "pwrite64" => self.write(call)?,
            "ftruncate" => {
                if let Some((Node::File(file), _)) = self.open.get(&call.number(0)?) {
                    let cut = FileOp::Cut(call.number(1)?.unsigned_abs());
                    self.recording.push(Event::File(*file, cut));
                }
            }
            "fsync" | "fdatasync" => {
                if let Some((node, _)) = self.open.get(&call.number(0)?) {
                    let node = *node;
                    self.recording.push(Event::Synced { node, begun });
                }
            }
            // Only looking changes nothing; its number stands for nothing that is followed here.
            "openat2" if only_looks(call)? => drop(self.open.remove(&call.result)),
            "mkdir" | "linkat" | "link" | "rename" | "renameat" | "unlink" => self.name(call)?,
            other => {
                let is_ours = call.words()?.iter().any(|word| match word {
                    Word::Text(path) => self.inside(path).is_some(),
                    Word::Plain(number) => number.parse().is_ok_and(|number| self.open.contains_key(&number)),
                });
                if is_ours {
                    bail!("nobody has taught a power cut what {other} does");
                }
            }
        }
        Ok(())
    }

    /// The path below the directory; `None` for one that is of no interest.
    fn inside(&self, path: &[u8]) -> Option<PathBuf> {
        let path = Path::new(std::str::from_utf8(path).ok()?).strip_prefix(self.root).ok()?;
        (!self.passed_by.iter().any(|one| path.starts_with(one))).then(|| path.to_owned())
    }

    fn open(&mut self, call: &Call<'_>) -> Result<()> {
        let words = call.words()?;
        let (Some(Word::Text(path)), Some(Word::Plain(flags))) = (words.get(1), words.get(2)) else { return Ok(()) };
        let has = |flag: &str| flags.split('|').any(|one| one == flag);
        // What had this number before was closed by somebody who is not recorded, such as an exec.
        self.open.remove(&call.result);
        let Some(path) = self.inside(path) else { return Ok(()) };
        let node = match self.recording.live.find(&path) {
            Some(node) => node,
            None if has("O_CREAT") => {
                let node = self.recording.live.new_file();
                self.recording.rename(&path, None, Some(node))?;
                node
            }
            // It was there before the recording, or it is being made in another thread.
            None => bail!("{} was opened, and nobody made it", path.display()),
        };
        if let (Node::File(file), true) = (node, has("O_TRUNC")) {
            self.recording.push(Event::File(file, FileOp::Cut(0)));
        }
        self.open.insert(call.result, (node, if has("O_APPEND") { Place::End } else { Place::At(0) }));
        Ok(())
    }

    fn close(&mut self, call: &Call<'_>) -> Result<()> {
        self.open.remove(&call.number(0)?);
        Ok(())
    }

    fn write(&mut self, call: &Call<'_>) -> Result<()> {
        let Some((Node::File(file), place)) = self.open.get_mut(&call.number(0)?) else { return Ok(()) };
        let words = call.words()?;
        let Some(Word::Text(bytes)) = words.get(1) else { bail!("no bytes") };
        let length = call.result.unsigned_abs();
        let at = match (call.name, *place) {
            ("pwrite64", _) => call.number(3)?.unsigned_abs(),
            (_, Place::At(at)) => {
                *place = Place::At(at + length);
                at
            }
            (_, Place::End) => self.recording.live.length(*file),
        };
        let (file, bytes) = (*file, bytes[..length as usize].to_vec());
        self.recording.push(Event::File(file, FileOp::Write(at, bytes)));
        Ok(())
    }

    /// A call that gives, changes or takes a name.
    fn name(&mut self, call: &Call<'_>) -> Result<()> {
        let words = call.words()?;
        let mut paths = words.iter().filter_map(|word| if let Word::Text(path) = word { Some(path) } else { None });
        let first = paths.next().and_then(|path| self.inside(path));
        let second = paths.next().and_then(|path| self.inside(path));
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

    /// The frames in what is sent to a client.
    fn tell(&mut self, call: &Call<'_>) -> Result<()> {
        let words = call.words()?;
        let Some(Word::Text(bytes)) = words.get(1) else { return Ok(()) };
        let begin = b"{\"type\":\"";
        let mut rest = &bytes[..];
        while let Some(at) = rest.windows(begin.len()).position(|window| window == begin) {
            let mut frames = serde_json::Deserializer::from_slice(&rest[at..]).into_iter::<Value>();
            let Some(Ok(frame)) = frames.next() else { break };
            rest = &rest[at + frames.byte_offset()..];
            self.recording.push(Event::Told(frame));
        }
        Ok(())
    }
}

impl Recording {
    fn push(&mut self, event: Event) {
        self.live.take(&event);
        self.events.push(event);
    }

    /// Gives a node the name `to`, and takes the name `from` away, both in one folder.
    fn rename(&mut self, to: &Path, from: Option<&Path>, node: Option<Node>) -> Result<()> {
        let above = to.parent().context("the directory itself has no name")?;
        let Some(Node::Folder(folder)) = self.live.find(above) else { bail!("nobody made {}", above.display()) };
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut changes = vec![(name(to), node)];
        if let Some(from) = from {
            if from.parent() != Some(above) {
                bail!("nobody has taught a power cut what happens between two folders");
            }
            changes.insert(0, (name(from), None));
        }
        self.push(Event::Names(folder, changes));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
