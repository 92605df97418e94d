//! Inbound events that the hub has not accepted yet, on disk: one file per account.
//!
//! A platform discards events once we ask for later ones, and messages wait here for the debounce time. So an event and
//! the platform's cursor behind it are written together, and an event is removed from the file once its run is on disk.
//! After a crash in between, the events are submitted again, and the hub recognizes those that it has. This requires
//! that merged messages are merged in the same way again: the merge is written before the hub receives the message.

use std::{
    collections::{HashSet, VecDeque},
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use homard_channels::Incoming;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// Maximum number of waiting events. Beyond that the platform has to send them again.
const MAX_WAITING: usize = 1000;
/// Maximum size of the file.
const MAX_BYTES: usize = 64 << 20;
/// Number of finished events that are remembered. The hub deduplicates those of a day; this avoids asking it.
const MAX_SEEN: usize = 1000;

/// The spool of one account.
#[derive(Debug)]
pub(super) struct Spool {
    path: PathBuf,
    content: Mutex<SpoolContent>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct SpoolContent {
    /// The platform's cursor to resume from.
    cursor: Option<String>,
    /// Ids of finished events, oldest first.
    seen: VecDeque<String>,
    /// Waiting events, oldest first.
    waiting: Vec<SpooledEvent>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SpooledEvent {
    incoming: Incoming,
    /// Id of the first event of the message that it was merged into; `None` if it is a message of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    with: Option<String>,
}

impl Spool {
    /// Reads the spool and returns a warning if it is damaged. A file that cannot be parsed is moved aside: the
    /// platform sends again what was not acknowledged.
    pub(crate) fn open(path: PathBuf) -> (Self, Option<String>) {
        let (content, warning) = match fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(content) => (content, None),
                Err(error) => {
                    let corrupt_path = path.with_extension("json.corrupt");
                    let renamed = fs::rename(&path, &corrupt_path);
                    let outcome = renamed.map_or_else(
                        |error| format!("the file cannot be moved aside: {error}"),
                        |()| format!("the file was moved to {}", corrupt_path.display()),
                    );
                    let text = format!(
                        "{} is not valid ({error}), so the messages queued in it are ignored; {outcome}",
                        path.display()
                    );
                    (SpoolContent::default(), Some(text))
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => (SpoolContent::default(), None),
            Err(error) => (SpoolContent::default(), Some(format!("{} cannot be read: {error}", path.display()))),
        };
        (Self { path, content: Mutex::new(content) }, warning)
    }

    /// Returns the cursor to resume from.
    pub(crate) fn cursor(&self) -> Option<String> {
        self.lock().cursor.clone()
    }

    /// Returns the waiting events in groups; each group is one message.
    pub(crate) fn waiting(&self) -> Vec<Vec<Incoming>> {
        let mut groups: Vec<(Option<String>, Vec<Incoming>)> = Vec::new();
        for SpooledEvent { incoming, with } in &self.lock().waiting {
            match groups.iter_mut().find(|(first, _)| with.is_some() && first == with) {
                Some((_, group)) => group.push(incoming.clone()),
                None => groups.push((with.clone(), vec![incoming.clone()])),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// Stores events and returns those that are new. An error says why they are not on disk.
    pub(crate) fn store(&self, incoming: Vec<Incoming>, cursor: Option<String>) -> Result<Vec<Incoming>, String> {
        self.change(|content| {
            let mut known: HashSet<String> = content.seen.iter().cloned().collect();
            known.extend(content.waiting.iter().map(|waiting| waiting.incoming.event.clone()));
            let new: Vec<_> = incoming.into_iter().filter(|incoming| known.insert(incoming.event.clone())).collect();
            if content.waiting.len() + new.len() > MAX_WAITING {
                return Err(format!("{MAX_WAITING} messages are already queued"));
            }
            content.waiting.extend(new.iter().cloned().map(|incoming| SpooledEvent { incoming, with: None }));
            content.cursor = cursor.or(content.cursor.take());
            Ok(new)
        })
    }

    /// Stores that events form one message, so that they are merged in the same way after a restart. Their group is
    /// identified by the first event.
    pub(crate) fn merge(&self, events: &[String]) -> Result<(), String> {
        self.change(|content| {
            let is_merged = |spooled: &&mut SpooledEvent| events.contains(&spooled.incoming.event);
            content.waiting.iter_mut().filter(is_merged).for_each(|spooled| spooled.with = events.first().cloned());
            Ok(())
        })
    }

    /// Removes finished events.
    pub(crate) fn remove(&self, events: &[String]) -> Result<(), String> {
        self.change(|content| {
            content.waiting.retain(|waiting| !events.contains(&waiting.incoming.event));
            content.seen.extend(events.iter().cloned());
            let old = content.seen.len().saturating_sub(MAX_SEEN);
            content.seen.drain(..old);
            Ok(())
        })
    }

    /// Applies a change, on disk first.
    fn change<T>(&self, change: impl FnOnce(&mut SpoolContent) -> Result<T, String>) -> Result<T, String> {
        let mut content = self.lock();
        let mut next = content.clone();
        let result = change(&mut next)?;
        if next != *content {
            let disk = |error: io::Error| format!("{} cannot be written: {error}", self.path.display());
            let bytes = serde_json::to_vec(&next).map_err(|error| disk(error.into()))?;
            if bytes.len() > MAX_BYTES {
                return Err(format!("the queued messages exceed {MAX_BYTES} bytes"));
            }
            write(&self.path, &bytes).map_err(disk)?;
            *content = next;
        }
        Ok(result)
    }

    fn lock(&self) -> MutexGuard<'_, SpoolContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces a file atomically, readable by the owner only.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = NamedTempFile::new_in(folder)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incoming(event: &str) -> Incoming {
        Incoming { event: event.to_owned(), text: event.to_owned(), ..Incoming::default() }
    }

    fn events(groups: Vec<Vec<Incoming>>) -> Vec<Vec<String>> {
        groups.into_iter().map(|group| group.into_iter().map(|incoming| incoming.event).collect()).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn spooled_events_survive_a_restart_until_they_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("channels/telegram-default.json");
        let open = || Spool::open(path.clone()).0;
        let spool = open();
        assert_eq!(
            spool
                .store(vec![incoming("1"), incoming("2"), incoming("1"), incoming("3")], Some("c3".to_owned()))
                .unwrap()
                .len(),
            3
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(events(open().waiting()), [names(&["1"]), names(&["2"]), names(&["3"])]);
        spool.merge(&names(&["1", "3"])).unwrap();
        assert_eq!(events(open().waiting()), [names(&["1", "3"]), names(&["2"])]);
        spool.remove(&names(&["1", "3"])).unwrap();
        let reopened = open();
        assert_eq!((events(reopened.waiting()), reopened.cursor()), (vec![names(&["2"])], Some("c3".to_owned())));
        let new = reopened.store(vec![incoming("1"), incoming("2"), incoming("4")], None).unwrap();
        assert_eq!(new, [incoming("4")], "what is known is not new");
        assert_eq!(reopened.cursor(), Some("c3".to_owned()));
    }

    #[test]
    fn a_full_spool_rejects_events() {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::open(home.path().join("x.json")).0;
        spool.store((0..MAX_WAITING).map(|n| incoming(&n.to_string())).collect(), None).unwrap();
        let result = spool.store(vec![incoming("more")], Some("c".to_owned()));
        assert_eq!(result, Err("1000 messages are already queued".to_owned()));
        assert_eq!((spool.cursor(), spool.waiting().len()), (None, MAX_WAITING));
        let all: Vec<_> = (0..MAX_WAITING).map(|n| n.to_string()).collect();
        spool.remove(&all).unwrap();
        spool.remove(&names(&["one more"])).unwrap();
        assert_eq!(spool.lock().seen.len(), MAX_SEEN);
    }

    #[test]
    fn an_invalid_spool_file_is_moved_aside() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.json");
        fs::write(&path, "{\"waiting\": 5}").unwrap();
        let (spool, warning) = Spool::open(path.clone());
        assert!(warning.unwrap().contains("x.json.corrupt"));
        assert_eq!((spool.waiting(), path.exists()), (vec![], false));
        assert!(path.with_extension("json.corrupt").exists());
    }
}
