//! Copies a plugin into the state directory: its files, and symlinks that stay within it. Nothing of it is run.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Component, Path, PathBuf},
};

use crate::{DiscoveredPlugin, FILE_NAMES, PluginRoots, discover, fingerprint};

/// Maximum number of files and bytes: as much as a fingerprint covers.
const MAX_FILES: usize = 50_000;
const MAX_BYTES: u64 = 1024 * 1024 * 1024;

/// A name that no directory has, so that only the directory itself is searched.
const NO_DIRECTORY: &str = "\n";

/// An installed plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledPlugin {
    /// Its id.
    pub id: String,
    /// Its version, if the manifest has one.
    pub version: Option<String>,
    /// Its directory.
    pub path: PathBuf,
    /// Fingerprint of its files.
    pub hash: String,
}

/// Why nothing was installed.
#[derive(Debug, thiserror::Error)]
pub enum PluginCopyError {
    /// The source is not a plugin that can be installed.
    #[error("{} {what}", .path.display())]
    Invalid {
        /// The path concerned.
        path: PathBuf,
        /// The rest of the sentence.
        what: String,
    },
    /// A plugin of that name exists.
    #[error("{} already exists; replace it with --force", .0.display())]
    Exists(PathBuf),
    /// A file operation failed.
    #[error("{} cannot be copied", .path.display())]
    Disk {
        /// The path concerned.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

fn invalid(path: &Path, problem: impl Into<String>) -> PluginCopyError {
    PluginCopyError::Invalid { path: path.to_owned(), what: problem.into() }
}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> PluginCopyError {
    let path = path.to_owned();
    move |source| PluginCopyError::Disk { path, source }
}

/// Reads a directory as a plugin. Blocking.
pub fn inspect(source: &Path) -> Result<DiscoveredPlugin, PluginCopyError> {
    let folder = match fs::canonicalize(source) {
        Ok(folder) if folder.is_dir() => folder,
        Ok(_) => return Err(invalid(source, "is not a directory; unpack an archive first, and pass its directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(invalid(
                source,
                "does not exist; pass a directory with a manifest. Packages are not downloaded: fetch one with `npm pack`, \
                 inspect it, unpack it, and pass its directory",
            ));
        }
        Err(error) => return Err(disk(source)(error)),
    };
    if !FILE_NAMES.iter().any(|name| folder.join(name).symlink_metadata().is_ok()) {
        return Err(invalid(source, format!("has neither a {} nor an {}", FILE_NAMES[0], FILE_NAMES[1])));
    }
    let found = discover(&PluginRoots {
        paths: vec![folder.clone()],
        state: folder.join(NO_DIRECTORY),
        ..PluginRoots::default()
    });
    let discovered = found.candidates.into_iter().find(|candidate| candidate.root == folder);
    match (discovered, found.problems.into_iter().next()) {
        (Some(candidate), _) => Ok(candidate),
        (None, Some(why)) => Err(invalid(source, format!("cannot be installed: {why}"))),
        (None, None) => Err(invalid(source, "contains no plugin")),
    }
}

/// Copies a plugin into the directory of plugins, atomically. Blocking.
pub fn install(source: &Path, extensions: &Path, may_replace: bool) -> Result<InstalledPlugin, PluginCopyError> {
    let DiscoveredPlugin { manifest, root, .. } = inspect(source)?;
    let name =
        folder_name(&manifest.id).ok_or_else(|| invalid(source, "has an id that is not a valid directory name"))?;
    fs::create_dir_all(extensions).map_err(disk(extensions))?;
    let extensions = fs::canonicalize(extensions).map_err(disk(extensions))?;
    if extensions.starts_with(&root) || root.starts_with(&extensions) {
        return Err(invalid(source, "cannot be copied: one of the two directories contains the other"));
    }
    let target = extensions.join(name);
    let is_taken = target.symlink_metadata().is_ok();
    if is_taken && !may_replace {
        return Err(PluginCopyError::Exists(target));
    }
    let scratch = tempfile::Builder::new().prefix(".install-").tempdir_in(&extensions).map_err(disk(&extensions))?;
    let (new, old) = (scratch.path().join("new"), scratch.path().join("old"));
    copy(&root, &new)?;
    // Computed from the copy: the source may have changed in the meantime.
    let hash = fingerprint(&new).map_err(disk(&new))?;
    if is_taken {
        fs::rename(&target, &old).map_err(disk(&target))?;
    }
    if let Err(error) = fs::rename(&new, &target) {
        if is_taken && let Err(error) = fs::rename(&old, &target) {
            // The old version must not be deleted with the temporary directory that holds it.
            let kept = scratch.keep();
            tracing::error!(%error, kept = %kept.display(), "failed to restore the previous version of a plugin");
        }
        return Err(disk(&target)(error));
    }
    Ok(InstalledPlugin { id: manifest.id, version: manifest.version, path: target, hash })
}

/// Returns the directory name of a plugin: its id, without characters that would make it nested or hidden.
fn folder_name(id: &str) -> Option<String> {
    let name = id.replace('/', "__");
    let name = name.trim_start_matches('.');
    (!name.is_empty()).then(|| name.to_owned())
}

/// Copies a directory. A symlink is copied as such if it leads to something within.
fn copy(from: &Path, to: &Path) -> Result<(), PluginCopyError> {
    fs::create_dir(to).map_err(disk(to))?;
    let (mut waiting, mut links) = (vec![PathBuf::new()], Vec::new());
    let (mut files, mut bytes) = (0, 0);
    while let Some(folder) = waiting.pop() {
        let directory = from.join(&folder);
        for entry in fs::read_dir(&directory).map_err(disk(&directory))? {
            let entry = entry.map_err(disk(&directory))?;
            let (meta, path) = (entry.metadata().map_err(disk(&directory))?, folder.join(entry.file_name()));
            let (source, target) = (from.join(&path), to.join(&path));
            files += 1;
            if meta.is_symlink() {
                let link_target = fs::read_link(&source).map_err(disk(&source))?;
                if !stays_within(&folder, &link_target) {
                    return Err(escaping_link(&source));
                }
                symlink(link_target, &target).map_err(disk(&source))?;
                links.push(path);
            } else if meta.is_dir() {
                if entry.file_name() != ".git" {
                    fs::create_dir(&target).map_err(disk(&source))?;
                    waiting.push(path);
                }
            } else if meta.is_file() {
                bytes += fs::copy(&source, &target).map_err(disk(&source))?;
                let mode = if meta.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
                fs::set_permissions(&target, fs::Permissions::from_mode(mode)).map_err(disk(&source))?;
            } else {
                return Err(invalid(
                    &source,
                    "is neither a file, a directory nor a symlink, so it cannot be installed",
                ));
            }
            if files > MAX_FILES || bytes > MAX_BYTES {
                return Err(invalid(from, format!("has more than {MAX_FILES} files or {MAX_BYTES} bytes")));
            }
        }
    }
    let copied_root = fs::canonicalize(to).map_err(disk(to))?;
    // A symlink through other symlinks may lead elsewhere than its text says; the copy shows where.
    let is_within = |link: &Path| fs::canonicalize(to.join(link)).is_ok_and(|end| end.starts_with(&copied_root));
    match links.iter().find(|link| !is_within(link)) {
        Some(link) => Err(escaping_link(&from.join(link))),
        None => Ok(()),
    }
}

fn escaping_link(link: &Path) -> PluginCopyError {
    invalid(link, "is a symlink that is broken or leads out of the plugin; replace it with the file, or remove it")
}

/// Returns true if a symlink in this directory of a plugin stays within the plugin, by its text.
fn stays_within(folder: &Path, link_target: &Path) -> bool {
    let mut depth = folder.components().count();
    for part in link_target.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r#"{"id": "@me/tides", "configSchema": {}, "run": ["python3", "plugin.py"]}"#;

    /// Creates a plugin in `source`, beside a file that does not belong to it.
    fn fixture() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(temp.path()).unwrap();
        let source = top.join("source");
        fs::create_dir_all(source.join("lib/bin")).unwrap();
        fs::create_dir(source.join(".git")).unwrap();
        for (file, text) in [("homard.plugin.json", MANIFEST), ("plugin.py", "1"), ("lib/run", "2"), (".git/x", "3")] {
            fs::write(source.join(file), text).unwrap();
        }
        fs::write(top.join("secret"), "s").unwrap();
        fs::set_permissions(source.join("lib/run"), fs::Permissions::from_mode(0o700)).unwrap();
        (temp, source, top.join("state/extensions"))
    }

    fn names(folder: &Path) -> Vec<String> {
        let all = fs::read_dir(folder).into_iter().flatten();
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_plugin_is_copied_whole_and_never_over_another() {
        let (_temp, source, extensions) = fixture();
        symlink("../run", source.join("lib/bin/run")).unwrap();
        let installed = install(&source, &extensions, false).unwrap();
        let target = extensions.join("@me__tides");
        let hash = fingerprint(&target).unwrap();
        assert_eq!(
            installed,
            InstalledPlugin { id: "@me/tides".to_owned(), version: None, path: target.clone(), hash }
        );
        assert_eq!(fs::read_to_string(target.join("lib/bin/run")).unwrap(), "2");
        assert_eq!(fs::metadata(target.join("lib/run")).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(!target.join(".git").exists());
        fs::write(source.join("plugin.py"), "new").unwrap();
        let error = install(&source, &extensions, false).unwrap_err().to_string();
        assert!(error.ends_with("@me__tides already exists; replace it with --force"), "{error}");
        assert_ne!(install(&source, &extensions, true).unwrap().hash, installed.hash);
        assert_eq!(fs::read_to_string(target.join("plugin.py")).unwrap(), "new");
        assert_eq!(names(&extensions), ["@me__tides"]);
    }

    #[test]
    fn an_escaping_symlink_is_rejected_and_nothing_is_left_behind() {
        for (link, link_target) in [
            ("more", "/etc/passwd"),
            ("more", "../secret"),
            ("lib/more", "../../secret"),
            ("lib/more", "../../source/plugin.py"),
            ("more", "nowhere"),
            ("more", "more"),
        ] {
            let (_temp, source, extensions) = fixture();
            symlink(link_target, source.join(link)).unwrap();
            let error = install(&source, &extensions, false).unwrap_err().to_string();
            let expected = format!("source/{link} is a symlink that is broken or leads out of the plugin");
            assert!(error.contains(&expected), "{link_target}: {error}");
            assert_eq!(names(&extensions), Vec::<String>::new());
        }
        // By its text this one stays within; through symlinks to the top it leads above it.
        let (_temp, source, extensions) = fixture();
        symlink(".", source.join("top")).unwrap();
        symlink("top/top/../../secret", source.join("more")).unwrap();
        assert!(
            install(&source, &extensions, false)
                .unwrap_err()
                .to_string()
                .contains("source/more is a symlink that is broken or leads")
        );
        assert_eq!(names(&extensions), Vec::<String>::new());
    }

    #[test]
    fn a_path_that_is_not_a_plugin_is_rejected() {
        let (_temp, source, extensions) = fixture();
        let error = |path: &Path| install(path, &extensions, false).unwrap_err().to_string();
        assert!(error(&source.join("lib")).ends_with("has neither a homard.plugin.json nor an openclaw.plugin.json"));
        assert!(error(&source.join("plugin.py")).contains("is not a directory; unpack an archive first"));
        assert!(
            error(&source.join("none")).contains("does not exist; pass a directory with a manifest. Packages are not")
        );
        fs::write(source.join("homard.plugin.json"), "{").unwrap();
        assert!(error(&source).contains("source cannot be installed: ") && error(&source).contains("is not JSON"));
        assert!(!extensions.exists());
    }

    #[test]
    fn a_folder_is_not_copied_into_itself() {
        let (_temp, source, _) = fixture();
        let error = install(&source, &source.join("extensions"), false).unwrap_err().to_string();
        assert!(error.ends_with("one of the two directories contains the other"), "{error}");
    }

    #[test]
    fn no_plugin_id_gives_a_hidden_or_nested_folder() {
        let named = ["tides", "@me/tides", ".tides", "a/b/c"].map(folder_name);
        assert_eq!(named, ["tides", "@me__tides", "tides", "a__b__c"].map(|name| Some(name.to_owned())));
    }
}
