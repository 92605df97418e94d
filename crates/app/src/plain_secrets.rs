//! Finds secrets that lie in plain text: in the config, in `.env` files, in credentials, in backups, and wherever a known
//! secret was written by accident, such as in logs and transcripts. Returns places and counts, and never a secret.

use std::{
    borrow::Cow,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use homard_config::{LoadedConfig, redact};
use homard_secrets::{Secrets, is_secret_name};
use homard_settings::{Config, paths::Paths};
use serde::Serialize;
use serde_json::Value;

use crate::secrets;

/// Larger files are not searched.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Permission bits of group and others.
const GROUP_AND_OTHERS: u32 = 0o077;

/// A place where secrets lie in plain text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlainSecret {
    /// What the file is.
    pub place: Place,
    /// The file.
    pub path: PathBuf,
    /// Keys or names of the secrets, where the file has such.
    pub keys: Vec<String>,
    /// Number of keys, else of lines that contain a secret.
    pub count: usize,
    /// True if other users can read the file.
    pub is_shared: bool,
}

/// Kind of a file with secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// The config file, or a file that it includes.
    Config,
    /// A file with environment variables.
    EnvironmentFile,
    /// A file whose purpose is to hold credentials.
    Credentials,
    /// A copy of a config or of a state directory.
    Backup,
    /// A log.
    Log,
    /// A transcript, or the journal.
    Transcript,
    /// Any other file.
    Other,
}

impl Place {
    /// Returns true if secrets belong there.
    pub fn is_expected(self) -> bool {
        self == Self::Credentials
    }

    /// Returns what can be done.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Config => {
                "move it to a file of its own and refer to it with ${file:PATH}, or ${credential:NAME} under systemd"
            }
            Self::EnvironmentFile => {
                "make it readable by its owner only, or use ${file:PATH} or a credential of the service manager"
            }
            Self::Credentials => "expected; keep it readable by its owner only",
            Self::Backup => "remove it when it is no longer needed, or keep it where only you can read it",
            Self::Log => "remove the file, and rotate the secret if others could read it",
            Self::Transcript => "delete the session, and rotate the secret if others could read it",
            Self::Other => "remove the secret from the file, or the file",
        }
    }
}

/// Result of a search.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// The places, by kind and path.
    pub found: Vec<PlainSecret>,
    /// Number of searched files.
    pub searched: usize,
    /// Files that could not be searched, each with the reason.
    pub unsearched: Vec<(PathBuf, String)>,
}

/// Searches the config, the state directory, and copies of it beside it.
pub fn search(loaded: &LoadedConfig<Config>, paths: &Paths) -> io::Result<SearchResult> {
    let mut search =
        SecretSearch { values: secrets::known_values(loaded, paths), paths, result: SearchResult::default() };
    search.add_keys(Place::Config, &paths.config, redact::secret_paths(&loaded.source));
    let mut files = Vec::new();
    for root in roots(&paths.state)? {
        list(&root, &mut files, &mut search.result.unsearched);
    }
    let beside = paths.config.parent().map(|folder| folder.join(".env")).filter(|path| path.is_file());
    files.extend(beside.filter(|path| !path.starts_with(&paths.state)));
    files.sort();
    // First those that hold credentials: what they contain is searched for in the others.
    let (holders, others): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|path| search.place(path) == Place::Credentials);
    for path in holders {
        search.holder(&path);
    }
    let known = Secrets::new(std::mem::take(&mut search.values));
    for path in others {
        search.file(&path, &known);
    }
    search.result.found.sort_by(|a, b| (a.place, &a.path).cmp(&(b.place, &b.path)));
    Ok(search.result)
}

/// Returns the state directory and the copies that `homard restore` left beside it.
fn roots(state: &Path) -> io::Result<Vec<PathBuf>> {
    let mut roots = Vec::from_iter(state.is_dir().then(|| state.to_owned()));
    let (Some(parent), Some(name)) = (state.parent(), state.file_name()) else { return Ok(roots) };
    let prefix = format!("{}.before-restore-", name.to_string_lossy());
    if parent.is_dir() {
        for entry in fs::read_dir(parent)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                roots.push(entry.path());
            }
        }
    }
    Ok(roots)
}

/// Collects the files below a folder. Links are not followed.
fn list(folder: &Path, files: &mut Vec<PathBuf>, unsearched: &mut Vec<(PathBuf, String)>) {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    match entries {
        Err(error) => unsearched.push((folder.to_owned(), error.to_string())),
        Ok(entries) => {
            for entry in entries {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => list(&entry.path(), files, unsearched),
                    Ok(kind) if kind.is_file() => files.push(entry.path()),
                    Ok(_) => {}
                    Err(error) => unsearched.push((entry.path(), error.to_string())),
                }
            }
        }
    }
}

/// A search in progress.
struct SecretSearch<'a> {
    /// Values of the secrets that are known so far.
    values: Vec<String>,
    paths: &'a Paths,
    result: SearchResult,
}

impl SecretSearch<'_> {
    /// Classifies a file by its name and folder.
    fn place(&self, path: &Path) -> Place {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Ok(relative) = path.strip_prefix(&self.paths.state) else {
            return if is_environment_file(&name) { Place::EnvironmentFile } else { Place::Backup };
        };
        let top = relative.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        let is_copy = [".bak", ".last-good", ".backup", ".old", ".orig"].iter().any(|part| name.contains(part));
        match top.as_str() {
            _ if path == self.paths.config => Place::Config,
            _ if is_environment_file(&name) => Place::EnvironmentFile,
            _ if is_copy => Place::Backup,
            "gateway-token" | "audit.key" | "credentials" | "devices" | "identity" => Place::Credentials,
            _ if name.starts_with("auth-profiles.json") || name == "auth.json" => Place::Credentials,
            "logs" => Place::Log,
            "journal" => Place::Transcript,
            "agents" if name.contains(".jsonl") => Place::Transcript,
            _ => Place::Other,
        }
    }

    /// Reads a file that holds credentials, whose values are searched for in the others.
    fn holder(&mut self, path: &Path) {
        let Some(text) = self.read(path) else { return };
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        self.values.extend(redact::known_secrets(&value));
        let keys = redact::secret_paths(&value);
        if keys.is_empty() {
            self.add(Place::Credentials, path, Vec::new(), 1);
        } else {
            self.add_keys(Place::Credentials, path, keys);
        }
    }

    /// Searches a file for known secrets; in a file with environment variables, for names of secrets.
    fn file(&mut self, path: &Path, known: &Secrets) {
        let place = self.place(path);
        // Its keys were reported.
        if place == Place::Config {
            return;
        }
        let Some(text) = self.read(path) else { return };
        if place == Place::EnvironmentFile {
            return self.add_keys(place, path, secret_variables(&text));
        }
        let count = text.lines().filter(|line| matches!(known.mask(line), Cow::Owned(_))).count();
        if count > 0 {
            self.add(place, path, Vec::new(), count);
        }
    }

    fn read(&mut self, path: &Path) -> Option<String> {
        let read = || -> io::Result<Vec<u8>> {
            match fs::metadata(path)?.len() {
                ..=MAX_BYTES => fs::read(path),
                bytes => Err(io::Error::other(format!("too large to be searched ({bytes} bytes)"))),
            }
        };
        match read() {
            Ok(bytes) => {
                self.result.searched += 1;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            }
            Err(error) => {
                self.result.unsearched.push((path.to_owned(), error.to_string()));
                None
            }
        }
    }

    fn add_keys(&mut self, place: Place, path: &Path, keys: Vec<String>) {
        if !keys.is_empty() {
            let count = keys.len();
            self.add(place, path, keys, count);
        }
    }

    fn add(&mut self, place: Place, path: &Path, keys: Vec<String>, count: usize) {
        let is_shared = fs::metadata(path).is_ok_and(|found| found.permissions().mode() & GROUP_AND_OTHERS != 0);
        self.result.found.push(PlainSecret { place, path: path.to_owned(), keys, count, is_shared });
    }
}

fn is_environment_file(name: &str) -> bool {
    name == ".env" || name.starts_with(".env.") || name.ends_with(".env")
}

/// Returns the names of the secrets that an environment file sets.
fn secret_variables(text: &str) -> Vec<String> {
    let assignments = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let assignments = assignments.filter_map(|line| line.trim_start_matches("export ").split_once('='));
    let is_set =
        |(name, value): &(&str, &str)| is_secret_name(name) && !value.trim().trim_matches(['"', '\'']).is_empty();
    assignments.filter(is_set).map(|(name, _)| name.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-very-secret-0123456789";

    #[test]
    fn secrets_are_found_wherever_they_lie_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let write = |name: &str, text: String| {
            let path = state.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        };
        write("homard.json", format!("{{gateway: {{auth: {{token: '{KEY}', password: '${{file:/p}}'}}}}}}"));
        write("homard.json.bak", format!("{{gateway: {{auth: {{token: '{KEY}'}}}}}}"));
        write(".env", format!("# KEY=x\nexport API_KEY='{KEY}'\nEMPTY_TOKEN=\nLEVEL=info\n"));
        write("gateway-token", "t0ken-of-the-gateway\n".to_owned());
        write(
            "agents/main/agent/auth-profiles.json",
            r#"{"profiles":{"a:b":{"key":"profile-key-123456"}}}"#.to_owned(),
        );
        write("agents/main/sessions/s.jsonl", "a line\nthe key is profile-key-123456\n".to_owned());
        write("logs/homard.log", format!("fine\nused {KEY}\nused {KEY}\n"));
        write("workspace/notes.md", "nothing\n".to_owned());
        fs::set_permissions(state.join("logs/homard.log"), fs::Permissions::from_mode(0o644)).unwrap();
        let paths = Paths { state: state.clone(), config: state.join("homard.json") };
        let result = search(&Config::read_file(&paths.config), &paths).unwrap();
        let found: Vec<_> = result
            .found
            .iter()
            .map(|found| {
                let path = found.path.strip_prefix(&state).unwrap().to_str().unwrap();
                (found.place, path, found.keys.join(" "), found.count, found.is_shared)
            })
            .collect();
        let keys = |text: &str| text.to_owned();
        assert_eq!(
            found,
            [
                (Place::Config, "homard.json", keys("gateway.auth.token"), 1, false),
                (Place::EnvironmentFile, ".env", keys("API_KEY"), 1, false),
                (Place::Credentials, "agents/main/agent/auth-profiles.json", keys("profiles[\"a:b\"].key"), 1, false),
                (Place::Credentials, "gateway-token", keys(""), 1, false),
                (Place::Backup, "homard.json.bak", keys(""), 1, false),
                (Place::Log, "logs/homard.log", keys(""), 2, true),
                (Place::Transcript, "agents/main/sessions/s.jsonl", keys(""), 1, false),
            ]
        );
        let shown = serde_json::to_string(&result.found).unwrap();
        assert!(!shown.contains(KEY) && !shown.contains("profile-key"), "{shown}");
        assert_eq!(result.unsearched, []);
    }

    #[test]
    fn a_copy_beside_the_state_directory_is_searched() {
        let folder = tempfile::tempdir().unwrap();
        let (state, old) = (folder.path().join("state"), folder.path().join("state.before-restore-5"));
        fs::create_dir_all(&state).unwrap();
        fs::create_dir_all(&old).unwrap();
        fs::write(state.join("homard.json"), format!("{{gateway: {{auth: {{token: '{KEY}'}}}}}}")).unwrap();
        fs::write(old.join("homard.json"), KEY).unwrap();
        let paths = Paths { state: state.clone(), config: state.join("homard.json") };
        let result = search(&Config::read_file(&paths.config), &paths).unwrap();
        assert!(
            result.found.iter().any(|found| found.place == Place::Backup && found.path.starts_with(&old)),
            "{result:?}"
        );
    }
}
