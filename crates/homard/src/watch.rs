//! Tells when files change.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::{sync::mpsc, time::timeout};

/// Watches files and folders, there or not.
#[derive(Debug)]
pub(crate) struct Watch {
    watcher: RecommendedWatcher,
    told: mpsc::UnboundedReceiver<Vec<PathBuf>>,
    /// What is watched now, and how deep.
    watched: BTreeSet<(PathBuf, bool)>,
}

impl Watch {
    /// Watches nothing yet.
    pub(crate) fn new() -> notify::Result<Self> {
        // Unbounded: the system drops what nobody reads before it is too much, and says so.
        let (tell, told) = mpsc::unbounded_channel();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // What cannot be told means that something was missed: everything may have changed.
            let paths = event.map(|event| if event.kind.is_access() { Vec::new() } else { event.paths });
            if paths.as_ref().map_or(true, |paths| !paths.is_empty()) {
                tell.send(paths.unwrap_or_default()).ok();
            }
        })?;
        Ok(Self { watcher, told, watched: BTreeSet::new() })
    }

    /// Watches these files and everything beneath these folders, and nothing else any more. Says what cannot be watched.
    pub(crate) fn set<'a>(
        &mut self,
        files: impl IntoIterator<Item = &'a Path>,
        folders: impl IntoIterator<Item = &'a Path>,
    ) -> Vec<String> {
        // A file is watched through its folder, because editors put new files in the place of old ones.
        let files = files.into_iter().filter_map(|file| Some((nearest(file.parent()?)?, false)));
        let folders = folders.into_iter().filter_map(|folder| Some((nearest(folder)?, folder.is_dir())));
        let wanted: BTreeSet<_> = files.chain(folders).collect();
        for (path, _) in self.watched.difference(&wanted) {
            // It may be gone already, and then so is the watch.
            self.watcher.unwatch(path).ok();
        }
        let mut troubles = Vec::new();
        for (path, is_deep) in &wanted {
            let mode = if *is_deep { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
            if let Err(error) = self.watcher.watch(path, mode) {
                troubles.push(format!("changes in {} are not seen: {error}", path.display()));
            }
        }
        self.watched = wanted;
        troubles
    }

    /// Waits for a change, and then until it was quiet for so long. Returns where something changed; nothing if that is
    /// not known.
    pub(crate) async fn changed(&mut self, quiet: Duration) -> BTreeSet<PathBuf> {
        let Some(first) = self.told.recv().await else { return std::future::pending().await };
        let mut changed: BTreeSet<_> = first.into_iter().collect();
        while let Ok(Some(more)) = timeout(quiet, self.told.recv()).await {
            changed.extend(more);
        }
        changed
    }
}

/// The path itself, or the nearest folder above it that is there.
fn nearest(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|path| path.is_dir()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const QUIET: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_file_that_is_replaced_and_a_folder_that_appears_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (file, folder) = (root.join("config.json"), root.join("skills"));
        let mut watch = Watch::new().unwrap();
        assert_eq!(watch.set([file.as_path()], [folder.as_path()]), Vec::<String>::new());
        fs::write(root.join("new"), "{}").unwrap();
        fs::rename(root.join("new"), &file).unwrap();
        assert!(watch.changed(QUIET).await.contains(&file));
        fs::create_dir(&folder).unwrap();
        assert!(watch.changed(QUIET).await.contains(&folder));
        // Now that it is there, what is in it counts, too.
        watch.set([file.as_path()], [folder.as_path()]);
        fs::create_dir(folder.join("a")).unwrap();
        let skill = folder.join("a/SKILL.md");
        fs::write(&skill, "").unwrap();
        assert!(watch.changed(QUIET).await.iter().any(|path| path.starts_with(&folder)));
    }
}
