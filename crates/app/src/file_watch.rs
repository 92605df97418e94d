//! File change notifications.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// Watches files and directories, existing or not.
#[derive(Debug)]
pub(crate) struct FileWatch {
    watcher: RecommendedWatcher,
    /// Watched paths, and whether recursively.
    watched: BTreeSet<(PathBuf, bool)>,
    events: WatchEvents,
}

/// Result of changing the set of watched paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchUpdate {
    /// True if a path is watched that was not before: it may have changed until then.
    pub is_new: bool,
    /// Warnings about paths that cannot be watched.
    pub warnings: Vec<String>,
}

impl FileWatch {
    /// Creates a watch without any path.
    pub(crate) fn new() -> notify::Result<Self> {
        // Unbounded: the operating system bounds its own queue, drops events beyond that and reports the overflow.
        let (sender, events) = mpsc::unbounded_channel();
        let handler = move |event: notify::Result<Event>| {
            let paths = match event {
                Ok(event) if event.need_rescan() => Vec::new(),
                Ok(event) if event.kind.is_access() || event.paths.is_empty() => return,
                Ok(event) => event.paths,
                Err(_missed) => Vec::new(),
            };
            sender.send(paths).ok();
        };
        // Symlinks are not followed: one to `/` would have the whole disk watched.
        let watcher = RecommendedWatcher::new(handler, notify::Config::default().with_follow_symlinks(false))?;
        Ok(Self { watcher, watched: BTreeSet::new(), events: WatchEvents::new(events) })
    }

    /// Watches these files and everything below these directories, and nothing else.
    pub(crate) fn set<'a>(
        &mut self,
        files: impl IntoIterator<Item = &'a Path>,
        folders: impl IntoIterator<Item = &'a Path>,
    ) -> WatchUpdate {
        // Events have real paths. A file that is a symlink changes with the link and with its target.
        let named = |file: &Path| Some(resolve(file.parent()?)?.join(file.file_name()?));
        self.events.files =
            files.into_iter().flat_map(|file| [named(file), file.canonicalize().ok()]).flatten().collect();
        self.events.folders = folders.into_iter().filter_map(resolve).collect();
        // A file is watched through its directory, because editors replace files.
        let files =
            self.events.files.iter().filter_map(|file| Some((nearest_existing(file.parent()?)?.to_owned(), false)));
        let folders = self.events.folders.iter();
        let folders = folders.filter_map(|folder| Some((nearest_existing(folder)?.to_owned(), folder.is_dir())));
        let wanted: BTreeSet<_> = files.chain(folders).collect();
        for (path, _) in self.watched.difference(&wanted) {
            // It may have been deleted, and its watch with it.
            self.watcher.unwatch(path).ok();
        }
        let mut warnings = Vec::new();
        for (path, is_deep) in &wanted {
            let mode = if *is_deep { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
            if let Err(error) = self.watcher.watch(path, mode) {
                warnings.push(format!("cannot watch {}: {error}", path.display()));
            }
        }
        let is_new = !wanted.is_subset(&self.watched);
        self.watched = wanted;
        WatchUpdate { is_new, warnings }
    }

    /// Waits for a change, and then until none followed for `quiet`, but at most `max_wait` after the first. Returns
    /// the changed paths; empty if they are unknown. Cancel safe: a later call returns the changes that were seen.
    pub(crate) async fn changed(&mut self, quiet: Duration, max_wait: Duration) -> BTreeSet<PathBuf> {
        self.events.changed(quiet, max_wait).await
    }
}

/// Collects events and filters them.
#[derive(Debug)]
struct WatchEvents {
    /// Changed paths; empty if unknown, so that anything may have changed.
    events: mpsc::UnboundedReceiver<Vec<PathBuf>>,
    files: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
    /// Changes that were received and not returned yet.
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    changed: BTreeSet<PathBuf>,
    first: Instant,
    last: Instant,
}

impl WatchEvents {
    fn new(events: mpsc::UnboundedReceiver<Vec<PathBuf>>) -> Self {
        Self { events, files: BTreeSet::new(), folders: BTreeSet::new(), pending: None }
    }

    async fn changed(&mut self, quiet: Duration, max_wait: Duration) -> BTreeSet<PathBuf> {
        loop {
            let due = self.pending.as_ref().map(|pending| (pending.last + quiet).min(pending.first + max_wait));
            let received = match due {
                None => self.events.recv().await,
                // The deadline is checked first: under load there is always another event to receive.
                Some(due) if due <= Instant::now() => return self.take(),
                Some(due) => match timeout_at(due, self.events.recv()).await {
                    Ok(received) => received,
                    Err(_quiet) => return self.take(),
                },
            };
            match received {
                Some(paths) => self.record(paths),
                None => return std::future::pending().await,
            }
        }
    }

    fn take(&mut self) -> BTreeSet<PathBuf> {
        self.pending.take().map(|pending| pending.changed).unwrap_or_default()
    }

    fn record(&mut self, paths: Vec<PathBuf>) {
        let is_anywhere = paths.is_empty();
        let paths: Vec<_> = paths.into_iter().filter(|path| self.is_relevant(path)).collect();
        if paths.is_empty() && !is_anywhere {
            return;
        }
        let now = Instant::now();
        let pending = self.pending.get_or_insert_with(|| Pending { changed: BTreeSet::new(), first: now, last: now });
        pending.changed.extend(paths);
        pending.last = now;
    }

    /// Returns true if the path is watched or an ancestor of a watched path, since a missing directory is watched
    /// through its nearest ancestor.
    fn is_relevant(&self, path: &Path) -> bool {
        let is_ancestor = |watched: &PathBuf| watched.starts_with(path);
        self.files.iter().any(is_ancestor)
            || self.folders.iter().any(|folder| is_ancestor(folder) || path.starts_with(folder))
    }
}

/// Returns the path itself or its nearest existing ancestor directory.
fn nearest_existing(path: &Path) -> Option<&Path> {
    path.ancestors().find(|path| path.is_dir())
}

/// Resolves the symlinks in the existing part of a path.
fn resolve(path: &Path) -> Option<PathBuf> {
    let existing = nearest_existing(path)?;
    let rest = path.strip_prefix(existing).ok()?;
    let existing = existing.canonicalize().ok()?;
    // Joining an empty rest would add a trailing slash.
    Some(if rest.as_os_str().is_empty() { existing } else { existing.join(rest) })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    const QUIET: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_file_that_is_replaced_and_a_folder_that_appears_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (file, folder) = (root.join("config.json"), root.join("skills"));
        let mut watch = FileWatch::new().unwrap();
        let update = |is_new| WatchUpdate { is_new, warnings: Vec::new() };
        assert_eq!(watch.set([file.as_path()], [folder.as_path()]), update(true));
        assert_eq!(watch.set([file.as_path()], [folder.as_path()]), update(false));
        fs::write(root.join("new"), "{}").unwrap();
        fs::rename(root.join("new"), &file).unwrap();
        assert_eq!(watch.changed(QUIET, LONG).await, BTreeSet::from([file.clone()]));
        fs::create_dir(&folder).unwrap();
        assert!(watch.changed(QUIET, LONG).await.contains(&folder));
        // Now that the directory exists, changes in it count.
        assert_eq!(watch.set([file.as_path()], [folder.as_path()]), update(true));
        fs::create_dir(folder.join("a")).unwrap();
        let skill = folder.join("a/SKILL.md");
        fs::write(&skill, "").unwrap();
        assert!(watch.changed(QUIET, LONG).await.iter().any(|path| path.starts_with(&folder)));
    }

    #[tokio::test]
    async fn a_symlink_target_is_watched_and_symlinks_in_a_folder_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["real/skills", "far/away"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("real/config.json"), "").unwrap();
        symlink("real/config.json", root.join("config.json")).unwrap();
        symlink("real/skills", root.join("skills")).unwrap();
        symlink(root.join("far"), root.join("real/skills/far")).unwrap();
        let mut watch = FileWatch::new().unwrap();
        watch.set([root.join("config.json").as_path()], [root.join("skills").as_path()]);
        fs::write(root.join("real/config.json"), "{}").unwrap();
        assert_eq!(watch.changed(QUIET, LONG).await, BTreeSet::from([root.join("real/config.json")]));
        fs::write(root.join("far/away/SKILL.md"), "").unwrap();
        fs::write(root.join("real/skills/note.md"), "").unwrap();
        assert_eq!(watch.changed(QUIET, LONG).await, BTreeSet::from([root.join("real/skills/note.md")]));
    }

    /// Returns a filter for a config in `/home/me` and for skills in a directory that does not exist.
    fn test_events() -> (mpsc::UnboundedSender<Vec<PathBuf>>, WatchEvents) {
        let (sender, events) = mpsc::unbounded_channel();
        let mut watch_events = WatchEvents::new(events);
        watch_events.files.insert("/home/me/config.json".into());
        watch_events.folders.insert("/home/me/.agents/skills".into());
        (sender, watch_events)
    }

    fn paths<const N: usize>(paths: [&str; N]) -> Vec<PathBuf> {
        paths.into_iter().map(PathBuf::from).collect()
    }

    #[tokio::test]
    async fn a_cancelled_wait_loses_no_change() {
        let (sender, mut watch_events) = test_events();
        sender.send(paths(["/home/me/config.json"])).unwrap();
        let stopped = tokio::time::timeout(Duration::ZERO, watch_events.changed(LONG, LONG)).await;
        assert!(stopped.is_err());
        let changed: Vec<_> = watch_events.changed(Duration::ZERO, LONG).await.into_iter().collect();
        assert_eq!(changed, paths(["/home/me/config.json"]));
    }

    #[tokio::test]
    async fn continuous_changes_are_reported_after_the_maximum_wait() {
        let (sender, mut watch_events) = test_events();
        sender.send(paths(["/home/me/config.json"])).unwrap();
        sender.send(paths(["/home/me/.agents/skills/a/SKILL.md"])).unwrap();
        let changed: Vec<_> = watch_events.changed(LONG, Duration::ZERO).await.into_iter().collect();
        assert_eq!(changed, paths(["/home/me/config.json"]));
    }

    #[test]
    fn only_watched_paths_and_their_ancestors_are_relevant() {
        let (_, watch_events) = test_events();
        for path in ["/home/me/config.json", "/home/me", "/home/me/.agents", "/home/me/.agents/skills/a/SKILL.md"] {
            assert!(watch_events.is_relevant(Path::new(path)), "{path}");
        }
        for path in ["/home/me/config.json.lock", "/home/me/.cache", "/home/me/.agents/skillset", "/home/you"] {
            assert!(!watch_events.is_relevant(Path::new(path)), "{path}");
        }
    }

    #[tokio::test]
    async fn irrelevant_paths_are_ignored_and_an_unknown_path_counts_as_a_change() {
        let (sender, mut watch_events) = test_events();
        sender.send(paths(["/home/me/.bash_history"])).unwrap();
        sender.send(Vec::new()).unwrap();
        sender.send(paths(["/home/me/.agents", "/home/me/.agents.new"])).unwrap();
        let changed: Vec<_> = watch_events.changed(QUIET, LONG).await.into_iter().collect();
        assert_eq!(changed, paths(["/home/me/.agents"]));
        sender.send(Vec::new()).unwrap();
        assert_eq!(watch_events.changed(Duration::ZERO, LONG).await, BTreeSet::new());
    }
}
