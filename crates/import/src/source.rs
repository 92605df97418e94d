//! OpenClaw's state directory: found and parsed leniently.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use homard_proto::{AgentId, SessionKey, session::Record};
use homard_settings::paths;
use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde_json::{Map, Value};

use crate::Error;

/// Names of OpenClaw's state directory over time.
const STATE_DIRS: [&str; 3] = [".openclaw", ".clawdbot", ".moltbot"];

/// Names of its config over time.
const CONFIGS: [&str; 3] = ["openclaw.json", "clawdbot.json", "moltbot.json"];

/// Items of a state directory that are not imported, and why.
const NOT_IMPORTED: [(&str, &str); 13] = [
    ("workspace", "workspaces are not copied, except for skills; agents.defaults.workspace points to them"),
    ("hooks", "hooks are not imported; install them with: homard hooks install"),
    ("extensions", "plugins are not imported; install them with: homard plugins install"),
    ("identity", "Homard has its own identity"),
    ("nodes", "nodes are not supported yet"),
    ("subagents", "unfinished sub-agent runs are not continued"),
    ("sandbox", "container records are not imported; Homard has its own sandbox"),
    ("sandboxes", "container workspaces are not imported; Homard has its own sandbox"),
    ("memory", "the search index is rebuilt"),
    ("media", "media files stay where they are"),
    ("canvas", "the canvas is not supported yet"),
    ("settings", "speech and wake words are not supported yet"),
    (
        "state/openclaw.sqlite",
        "of the databases of OpenClaw 2026.9, sessions, transcripts, auth profiles, cron jobs, exec approvals, approved \
         senders, pairing requests and paired devices are imported; all else is not",
    ),
];

/// A state directory of OpenClaw's.
#[derive(Debug)]
pub struct OpenclawState {
    pub root: PathBuf,
    /// Its config, if there is one.
    pub config: Option<PathBuf>,
    /// Its agents and their directories.
    pub agents: Vec<(AgentId, PathBuf)>,
}

impl OpenclawState {
    /// Returns the given directory, or the one in the home directory.
    pub fn find(named: Option<&Path>) -> Result<Self, Error> {
        let root = match named {
            Some(named) => paths::expand(named, paths::home().as_deref()),
            None => at_home()?,
        };
        let root = std::path::absolute(&root).map_err(|error| Error::Path { path: root.clone(), error })?;
        let displayed = root.display();
        match fs::metadata(&root) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                let text =
                    format!("{displayed} is not a directory; pass OpenClaw's state directory, such as ~/.openclaw");
                return Err(Error::Source(text));
            }
            Err(reason) if reason.kind() == io::ErrorKind::NotFound => {
                let text = format!("{displayed} does not exist; pass OpenClaw's state directory, such as ~/.openclaw");
                return Err(Error::Source(text));
            }
            Err(error) => return Err(Error::Read { path: root.clone(), error }),
        }
        let config = CONFIGS.iter().map(|name| root.join(name)).find(|path| path.is_file());
        let folder = root.join("agents");
        if config.is_none() && !folder.is_dir() {
            let text = format!(
                "{displayed} is not a state directory of OpenClaw: it contains neither openclaw.json nor agents/"
            );
            return Err(Error::Source(text));
        }
        Ok(Self { config, agents: agents(&folder)?, root })
    }

    /// Returns the existing items that are not imported, and why.
    pub fn not_imported(&self) -> Vec<(&'static str, &'static str)> {
        NOT_IMPORTED.into_iter().filter(|(name, _)| self.root.join(name).exists()).collect()
    }
}

fn at_home() -> Result<PathBuf, Error> {
    let no_home = || Error::Source("HOME is not set; pass the path of OpenClaw's state directory".to_owned());
    let home = paths::home().ok_or_else(no_home)?;
    let found = STATE_DIRS.iter().map(|name| home.join(name)).find(|path| path.exists());
    found.ok_or_else(|| {
        Error::Source(format!(
            "{} does not exist; pass OpenClaw's state directory: homard import openclaw DIR",
            home.join(STATE_DIRS[0]).display()
        ))
    })
}

fn agents(folder: &Path) -> Result<Vec<(AgentId, PathBuf)>, Error> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut agents: Vec<_> = listed(folder)?
        .into_iter()
        .filter(|(_, path)| path.is_dir())
        .map(|(name, path)| (AgentId::normalize(&name), path))
        .collect();
    agents.sort();
    Ok(agents)
}

/// Lists a directory: names and paths, sorted. Names that are not UTF-8 are skipped.
pub(crate) fn listed(folder: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let failed = |error| Error::List { path: folder.to_owned(), error };
    let listing = fs::read_dir(folder).map_err(failed)?;
    let mut found = Vec::new();
    for item in listing {
        let item = item.map_err(failed)?;
        found.extend(item.file_name().into_string().ok().map(|name| (name, item.path())));
    }
    found.sort();
    Ok(found)
}

/// Parses a JSON5 document that must be an object; the error says where it is invalid.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Ok(object) = serde_json::from_str(text) {
        return Ok(object);
    }
    let options = ParseOptions { allow_missing_commas: false, ..ParseOptions::default() };
    let read: Result<Option<Value>, _> = parse_to_serde_value(text, &options);
    match read {
        Ok(Some(Value::Object(object))) => Ok(object),
        Ok(None) => Ok(Map::new()),
        Ok(Some(_)) => Err("not an object".to_owned()),
        Err(error) => {
            let (line, column) = (error.line_display(), error.column_display());
            Err(format!("line {line}, column {column}: {}", error.kind().to_string().to_lowercase()))
        }
    }
}

/// Parses a session's record from one value of `sessions.json`, renaming fields of early versions.
pub(crate) fn record(agent: &AgentId, key: &str, value: Value) -> Result<(SessionKey, Record), String> {
    let key = SessionKey::parse(key, agent).map_err(|reason| reason.to_string())?;
    let Value::Object(mut fields) = value else { return Err("not an object".to_owned()) };
    for (old_name, new_name) in [("provider", "channel"), ("lastProvider", "lastChannel"), ("room", "groupChannel")] {
        if let Some(value) = fields.remove(old_name) {
            fields.entry(new_name).or_insert(value);
        }
    }
    let record = serde_json::from_value(Value::Object(fields)).map_err(|reason| reason.to_string())?;
    Ok((key, record))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json5_is_parsed_and_errors_are_located() {
        assert_eq!(object("// mine\n{a: 1,}").map(Value::Object), Ok(json!({"a": 1})));
        assert_eq!(object("{\"a\": 1\n\"b\": 2}"), Err("line 1, column 8: expected comma".to_owned()));
        assert_eq!(object("[1]"), Err("not an object".to_owned()));
        assert_eq!(object(""), Ok(Map::new()));
    }

    #[test]
    fn old_field_names_are_mapped_to_new_ones() {
        let value = json!({"sessionId": "s1", "updatedAt": 5, "provider": "slack", "room": "r", "lastProvider": "old", "lastChannel": "x"});
        let (key, record) = super::record(&AgentId::main(), "telegram:dm:7", value).unwrap();
        assert_eq!(key.as_str(), "agent:main:telegram:direct:7");
        assert_eq!(Value::Object(record.extra), json!({"lastChannel": "x", "channel": "slack", "groupChannel": "r"}));
    }

    #[test]
    fn a_record_without_a_session_is_refused() {
        let result = super::record(&AgentId::main(), "main", json!({"updatedAt": 5}));
        assert_eq!(result.map_err(|error| error.contains("sessionId")).err(), Some(true));
        assert!(super::record(&AgentId::main(), "main", json!({"sessionId": "../x"})).is_err());
    }
}
