//! Copy of the last valid config, so that a broken edit does not stop a gateway that ran before.
//!
//! The copy has all files merged and no variables substituted. Like the config it may contain secrets, and it is as
//! private.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde_json::Value;

use crate::{
    cross::Sections,
    file::{self, Files},
    read::{LoadedConfig, ReadEnvironment, read, sections},
    tree::TreeNode,
};

/// Source of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigSource {
    /// The file, which is valid.
    File,
    /// The last valid copy, because the file is invalid.
    LastGood(SavedCopy),
}

/// The last valid copy of the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedCopy {
    /// Path of the copy.
    pub path: PathBuf,
    /// Time at which it was saved, if the file system provides it.
    pub saved_at: Option<SystemTime>,
}

/// A config that may be used.
#[derive(Debug, Clone)]
pub struct UsableConfig<T> {
    /// The config. With [`ConfigSource::LastGood`], the text, hash, files, problems and warnings are still those of the file.
    pub loaded: LoadedConfig<T>,
    /// Source of the config.
    pub used: ConfigSource,
}

fn copy_path(state_dir: &Path) -> PathBuf {
    state_dir.join("config.last-good.json")
}

/// Saves [`LoadedConfig::source`] of a valid config, readable by its owner only. Writes only changes, and atomically.
pub fn save(state_dir: &Path, source: &Value) -> io::Result<()> {
    let path = copy_path(state_dir);
    let text = format!("{source:#}\n");
    if fs::read(&path).is_ok_and(|before| before == text.as_bytes()) {
        return Ok(());
    }
    fs::create_dir_all(state_dir)?;
    homard_stdx::file::replace(&path, text.as_bytes())
}

/// Returns the saved copy, if there is a readable one.
pub fn load_saved(state_dir: &Path) -> Option<Value> {
    let bytes = file::read(&copy_path(state_dir)).ok()??;
    serde_json::from_slice(&bytes).ok().filter(Value::is_object)
}

/// Reads the config file, or the last valid copy if the file is invalid.
///
/// # Errors
///
/// Neither is valid. The partial content of the file is for commands that show or repair it; it must not be run,
/// because a missing value may be a restriction.
pub fn read_or_last_good<T: Sections>(
    path: &Path,
    state_dir: &Path,
    env: &ReadEnvironment<'_>,
) -> Result<UsableConfig<T>, Box<LoadedConfig<T>>> {
    let loaded: LoadedConfig<T> = read(path, env);
    if loaded.is_usable() {
        return Ok(UsableConfig { loaded, used: ConfigSource::File });
    }
    let good = load_saved(state_dir)
        .map(|source| sections::<T>(TreeNode::without_locations(source), env, &Files::new(path)))
        .filter(LoadedConfig::is_usable);
    let Some(LoadedConfig { mut config, source, tree, variables, faults, .. }) = good else {
        return Err(Box::new(loaded));
    };
    config.note_files(&loaded.files);
    let path = copy_path(state_dir);
    let saved_at = fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
    let loaded = LoadedConfig { config, source, tree, variables, faults, ..loaded };
    Ok(UsableConfig { loaded, used: ConfigSource::LastGood(SavedCopy { path, saved_at }) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Config {
        port: Option<u16>,
        token: Option<String>,
    }

    impl Sections for Config {}

    fn choose(folder: &Path, text: &str) -> Result<UsableConfig<Config>, Box<LoadedConfig<Config>>> {
        let path = folder.join("config.json");
        fs::write(&path, text).unwrap();
        let variable = |name: &str| (name == "KEY").then(|| "sk-1".to_owned());
        read_or_last_good(
            &path,
            &folder.join("state"),
            &ReadEnvironment { variable: &variable, secret: &|_| Err("is not there".to_owned()), include_roots: &[] },
        )
    }

    #[test]
    fn a_valid_file_is_used_and_reading_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let chosen = choose(folder.path(), "{port: 1}").unwrap();
        assert_eq!((chosen.used, chosen.loaded.config.port), (ConfigSource::File, Some(1)));
        assert!(!folder.path().join("state").exists());
    }

    #[test]
    fn an_invalid_file_leaves_the_last_good_config_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let good = choose(folder.path(), "{port: 1, token: '${KEY}'}").unwrap().loaded;
        let state = folder.path().join("state");
        save(&state, &good.source).unwrap();
        let UsableConfig { loaded, used } = choose(folder.path(), "{port: 2, token: ").unwrap();
        let saved_at = Some(fs::metadata(copy_path(&state)).unwrap().modified().unwrap());
        assert_eq!(used, ConfigSource::LastGood(SavedCopy { path: copy_path(&state), saved_at }));
        assert_eq!(loaded.config, Config { port: Some(1), token: Some("sk-1".to_owned()) });
        assert_eq!(loaded.source, json!({"port": 1, "token": "${KEY}"}));
        assert_eq!(loaded.text.as_deref(), Some("{port: 2, token: "));
        assert!(!loaded.is_valid());
    }

    #[test]
    fn without_a_valid_copy_no_config_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let problems = || {
            let loaded = choose(folder.path(), "{port: 'x', token: 't'}").unwrap_err();
            loaded.problems.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let wanted = ["line 1, column 8: port must be a whole number from 0 to 65535"];
        assert_eq!(problems(), wanted);
        // A copy that is no longer valid, or incomplete, is no better than the file.
        save(&state, &json!({"port": "y"})).unwrap();
        assert_eq!(problems(), wanted);
        fs::write(copy_path(&state), "{\"port\":").unwrap();
        assert_eq!(problems(), wanted);
    }

    #[test]
    fn the_copy_is_private_and_written_only_when_it_changed() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        assert_eq!(load_saved(&state), None);
        save(&state, &json!({"a": "${KEY}"})).unwrap();
        let file = fs::metadata(copy_path(&state)).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        save(&state, &json!({"a": "${KEY}"})).unwrap();
        assert_eq!(fs::metadata(copy_path(&state)).unwrap().ino(), file.ino());
        assert_eq!(fs::read_to_string(copy_path(&state)).unwrap(), "{\n  \"a\": \"${KEY}\"\n}\n");
        save(&state, &json!({"b": 1})).unwrap();
        assert_eq!(load_saved(&state), Some(json!({"b": 1})));
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1);
    }
}
