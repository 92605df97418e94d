//! Installs a hook or a pack of hooks into the state directory. Files are copied; nothing is executed.

use std::{
    collections::VecDeque,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use homard_workspace::skills::SkillProblem;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{
    discover::{DiscoveredHooks, within},
    hook_md::{FILE, HookSource, text_of},
};

/// Maximum number of files, and total bytes.
const MAX_FILES: usize = 5000;
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Maximum length of an id in characters.
const MAX_ID_CHARS: usize = 80;

/// A hook or pack that can be installed or was installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledHook {
    /// Name of its directory.
    pub id: String,
    /// Its path.
    pub path: PathBuf,
    /// Names of its hooks.
    pub hooks: Vec<String>,
    /// Version in its `package.json`, if any.
    pub version: Option<String>,
    /// Fingerprint of its content.
    pub hash: String,
    /// Problems found.
    pub problems: Vec<SkillProblem>,
}

/// Why the installation failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The source cannot be installed.
    #[error("{} {what}", .path.display())]
    Invalid {
        /// The path concerned.
        path: PathBuf,
        /// The rest of the sentence.
        what: String,
    },
    /// The name is taken.
    #[error("{} already exists; use --force to replace it", .0.display())]
    Exists(PathBuf),
    /// A file operation failed.
    #[error("{} cannot be copied", .path.display())]
    Io {
        /// The path concerned.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Whether an existing installation may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacePolicy {
    /// The existing installation is kept, and the new one fails.
    Never,
    /// The existing installation is replaced.
    Allowed,
}

/// Examines what can be installed from a directory. Blocks.
pub fn inspect(source: &Path) -> Result<InstalledHook, InstallError> {
    let invalid = |reason: &str| InstallError::Invalid { path: source.to_owned(), what: reason.to_owned() };
    let dir = match fs::canonicalize(source) {
        Ok(dir) if dir.is_dir() => dir,
        Ok(_) => {
            return Err(invalid(
                "is not a folder; unpack an archive first, then specify the folder that contains HOOK.md",
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(invalid(
                "does not exist; specify a folder with a HOOK.md. Packages are not downloaded: fetch one with `npm \
                 pack`, inspect and unpack it, and specify its folder",
            ));
        }
        Err(error) => return Err(InstallError::Io { path: source.to_owned(), source: error }),
    };
    let is_hook = dir.join(FILE).is_file();
    let package =
        text_of(&dir.join("package.json"), &dir).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
    if !is_hook && package.is_none() {
        return Err(invalid("has neither a HOOK.md nor a package.json that names hooks"));
    }
    let DiscoveredHooks { hooks, problems } = within(&dir, HookSource::Managed);
    let Some(first) = hooks.first() else {
        let problem = problems.first().map_or_else(|| "no hooks were found".to_owned(), ToString::to_string);
        return Err(invalid(&format!("contains no usable hook: {problem}")));
    };
    let text_field = |key: &str| package.as_ref().and_then(|package| package.get(key)?.as_str().map(ToOwned::to_owned));
    let name = if is_hook { first.name.clone() } else { text_field("name").unwrap_or_default() };
    let id = id(&name).ok_or_else(|| invalid("has a name that cannot be used as a folder name"))?;
    Ok(InstalledHook {
        id,
        hooks: hooks.into_iter().map(|hook| hook.name).collect(),
        version: text_field("version"),
        hash: hash(&dir, &list_files(&dir)?)?,
        problems,
        path: dir,
    })
}

/// Copies a hook or a pack into the directory of managed hooks, atomically. Blocks.
pub fn install(source: &Path, managed: &Path, replace: ReplacePolicy) -> Result<InstalledHook, InstallError> {
    let found = inspect(source)?;
    let disk = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| InstallError::Io { path, source }
    };
    fs::create_dir_all(managed).map_err(disk(managed))?;
    let managed = fs::canonicalize(managed).map_err(disk(managed))?;
    let target = managed.join(&found.id);
    if managed.starts_with(&found.path) || found.path.starts_with(&managed) {
        let reason = "cannot be copied there: one of the two folders contains the other".to_owned();
        return Err(InstallError::Invalid { path: found.path, what: reason });
    }
    let is_taken = target.symlink_metadata().is_ok();
    if is_taken && replace == ReplacePolicy::Never {
        return Err(InstallError::Exists(target));
    }
    let staging = tempfile::Builder::new().prefix(".install-").tempdir_in(&managed).map_err(disk(&managed))?;
    let (new, old) = (staging.path().join("new"), staging.path().join("old"));
    copy(&found.path, &new)?;
    // Computed from the copy, since the source may have changed meanwhile.
    let hash = hash(&new, &list_files(&new)?)?;
    if is_taken {
        fs::rename(&target, &old).map_err(disk(&target))?;
    }
    if let Err(error) = fs::rename(&new, &target) {
        if is_taken && let Err(error) = fs::rename(&old, &target) {
            // Prevents the old version from being deleted with the temporary directory.
            let staging_path = staging.keep();
            tracing::error!(%error, kept = %staging_path.display(), "failed to restore the previous version of a hook");
        }
        return Err(disk(&target)(error));
    }
    fs::File::open(&managed).and_then(|folder| folder.sync_all()).map_err(disk(&managed))?;
    Ok(InstalledHook { path: target, hash, ..found })
}

/// Computes the fingerprint of a directory. Blocks.
pub fn fingerprint(dir: &Path) -> Result<String, InstallError> {
    hash(dir, &list_files(dir)?)
}

/// Converts a package name to a directory name: without scope and path components.
fn id(name: &str) -> Option<String> {
    let name = name.rsplit('/').next().unwrap_or_default().trim();
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let id: String = name.chars().map(|c| if is_plain(c) { c } else { '-' }).take(MAX_ID_CHARS).collect();
    let id = id.trim_start_matches(['.', '-']);
    (!id.is_empty()).then(|| id.to_owned())
}

/// Lists the files of a directory, relative and sorted. Links and special files are rejected.
fn list_files(dir: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let invalid = |path: &Path, reason: String| InstallError::Invalid { path: path.to_owned(), what: reason };
    let (mut files, mut bytes) = (Vec::new(), 0);
    let mut waiting = VecDeque::from([PathBuf::new()]);
    while let Some(folder) = waiting.pop_front() {
        let current = dir.join(&folder);
        let disk = |source| InstallError::Io { path: current.clone(), source };
        for entry in fs::read_dir(&current).map_err(disk)? {
            let entry = entry.map_err(disk)?;
            let (meta, path) = (entry.metadata().map_err(disk)?, folder.join(entry.file_name()));
            if meta.is_dir() {
                if entry.file_name() != ".git" {
                    waiting.push_back(path);
                }
            } else if meta.is_file() {
                bytes += meta.len();
                files.push(path);
            } else {
                return Err(invalid(
                    &entry.path(),
                    "is a link or special file; only regular files and folders can be installed".to_owned(),
                ));
            }
            if files.len() + waiting.len() > MAX_FILES || bytes > MAX_BYTES {
                return Err(invalid(dir, format!("has more than {MAX_FILES} files or {MAX_BYTES} bytes")));
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
}

fn hash(dir: &Path, files: &[PathBuf]) -> Result<String, InstallError> {
    let mut hash = Sha256::new();
    for file in files {
        let path = dir.join(file);
        let bytes = fs::read(&path).map_err(|source| InstallError::Io { path: path.clone(), source })?;
        hash.update(file.as_os_str().as_encoded_bytes());
        // Lengths are included, so that different contents cannot collide.
        hash.update([0, u8::from(is_program(&path))]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(&bytes);
    }
    Ok(format!("sha256:{}", hex::encode(hash.finalize())))
}

fn copy(from: &Path, to: &Path) -> Result<(), InstallError> {
    fs::create_dir(to).map_err(|source| InstallError::Io { path: to.to_owned(), source })?;
    for file in list_files(from)? {
        let (source, target) = (from.join(&file), to.join(&file));
        let copied = (|| {
            if let Some(folder) = target.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::copy(&source, &target)?;
            let mode = if is_program(&source) { 0o755 } else { 0o644 };
            fs::set_permissions(&target, fs::Permissions::from_mode(mode))?;
            fs::File::open(&target)?.sync_all()
        })();
        copied.map_err(|error| InstallError::Io { path: source, source: error })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct InstallFixture {
        _temp: tempfile::TempDir,
        source: PathBuf,
        managed: PathBuf,
    }

    impl InstallFixture {
        fn new(files: &[(&str, &str)]) -> Self {
            let temp = tempfile::tempdir().unwrap();
            let root = fs::canonicalize(temp.path()).unwrap();
            let fixture = Self { _temp: temp, source: root.join("source"), managed: root.join("state/hooks") };
            files.iter().for_each(|(file, text)| fixture.write(file, text));
            fixture
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.source.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn install(&self, replace: ReplacePolicy) -> Result<InstalledHook, String> {
            let result = install(&self.source, &self.managed, replace);
            let prefix = format!("{}/", self.source.parent().unwrap().display());
            result.map_err(|error| error.to_string().replace(&prefix, ""))
        }

        fn installed(&self) -> Vec<String> {
            let all = fs::read_dir(&self.managed).into_iter().flatten();
            all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    const HOOK: &str = "---\nname: Tide Hook\nmetadata: {openclaw: {events: [command]}}\n---\n";

    #[test]
    fn a_hook_is_copied_completely_and_never_over_another() {
        let fixture =
            InstallFixture::new(&[("HOOK.md", HOOK), ("handler.sh", "x"), ("lib/a.txt", "a"), (".git/config", "g")]);
        fs::set_permissions(fixture.source.join("handler.sh"), fs::Permissions::from_mode(0o700)).unwrap();
        let done = fixture.install(ReplacePolicy::Never).unwrap();
        let target = fixture.managed.join("Tide-Hook");
        assert_eq!((done.id.as_str(), &done.path, done.hooks.join(" ").as_str()), ("Tide-Hook", &target, "Tide Hook"));
        assert_eq!(done.hash, fingerprint(&target).unwrap());
        assert_eq!(fs::read_to_string(target.join("lib/a.txt")).unwrap(), "a");
        assert!(is_program(&target.join("handler.sh")) && !target.join(".git").exists());
        let refused = "state/hooks/Tide-Hook already exists; use --force to replace it";
        assert_eq!(fixture.install(ReplacePolicy::Never), Err(refused.to_owned()));
        fixture.write("lib/a.txt", "b");
        let again = fixture.install(ReplacePolicy::Allowed).unwrap();
        assert_ne!(again.hash, done.hash);
        assert_eq!(fs::read_to_string(target.join("lib/a.txt")).unwrap(), "b");
        assert_eq!(fixture.installed(), ["Tide-Hook"]);
    }

    #[test]
    fn a_package_of_hooks_has_the_name_of_its_package() {
        let package = r#"{"name": "@me/sea.hooks", "version": "1.2.0", "openclaw": {"hooks": ["./a"]}}"#;
        let fixture = InstallFixture::new(&[("package.json", package), ("a/HOOK.md", HOOK), ("a/index.js", "")]);
        let done = fixture.install(ReplacePolicy::Never).unwrap();
        assert_eq!((done.id.as_str(), done.version.as_deref()), ("sea.hooks", Some("1.2.0")));
    }

    #[test]
    fn invalid_sources_and_links_are_rejected_without_leftovers() {
        let install_error = |files: &[(&str, &str)]| {
            let fixture = InstallFixture::new(files);
            fs::create_dir_all(&fixture.source).unwrap();
            let install_error = fixture.install(ReplacePolicy::Never).unwrap_err();
            assert_eq!(fixture.installed(), Vec::<String>::new());
            install_error
        };
        assert_eq!(install_error(&[("a.txt", "")]), "source has neither a HOOK.md nor a package.json that names hooks");
        assert!(install_error(&[("HOOK.md", HOOK)]).contains("contains no usable hook: source/HOOK.md has no handler"));
        assert!(
            install_error(&[("package.json", "{}"), ("a/b", "")])
                .ends_with("contains no usable hook: no hooks were found")
        );
        let fixture = InstallFixture::new(&[("HOOK.md", HOOK), ("index.js", "")]);
        symlink("/etc/passwd", fixture.source.join("more")).unwrap();
        let expected = "source/more is a link or special file; only regular files and folders can be installed";
        assert_eq!(fixture.install(ReplacePolicy::Never), Err(expected.to_owned()));
        let error = install(Path::new("no/such"), &fixture.managed, ReplacePolicy::Never).unwrap_err().to_string();
        assert!(error.starts_with("no/such does not exist; specify a folder with a HOOK.md."), "{error}");
    }

    #[test]
    fn no_name_escapes_the_directory() {
        let ids = ["../../etc", "..", "a/b", "@x/y z", ".hidden", "", "-rf"].map(id);
        let expected = [Some("etc"), None, Some("b"), Some("y-z"), Some("hidden"), None, Some("rf")];
        assert_eq!(ids, expected.map(|id| id.map(ToOwned::to_owned)));
    }

    #[test]
    fn a_directory_is_not_copied_into_itself() {
        let fixture = InstallFixture::new(&[("HOOK.md", HOOK), ("index.js", "")]);
        let error =
            install(&fixture.source, &fixture.source.join("hooks"), ReplacePolicy::Never).unwrap_err().to_string();
        assert!(error.ends_with("one of the two folders contains the other"), "{error}");
    }
}
