//! Parses a skill file.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::skills::front_matter::{FrontMatter, json, lookup};

/// Maximum number of characters of a name: it is part of every list and of messages to a model.
const NAME_CHARS: usize = 128;

/// Members of `metadata` with our manifest, newest name first.
const MANIFESTS: [&str; 3] = ["openclaw", "moltbot", "clawdbot"];

/// A skill as described by its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Skill {
    /// Name, on one line.
    pub name: String,
    /// Description by the author.
    pub description: String,
    /// URL for more information.
    pub homepage: Option<String>,
    /// Key in `skills.entries`.
    pub key: String,
    /// Environment variable that takes the entry's `apiKey`.
    pub primary_env: Option<String>,
    /// Emoji for lists.
    pub emoji: Option<String>,
    /// Supported operating systems, by Node's names; empty for all.
    pub os: Vec<String>,
    /// True if it works without its requirements.
    pub always: bool,
    /// Requirements on the machine and the config.
    pub requires: SkillRequirements,
    /// Ways to install its requirements, as written.
    pub install: Vec<Value>,
    /// True if it is a slash command.
    pub is_user_invocable: bool,
    /// True if it is not listed for models.
    pub is_hidden_from_model: bool,
    /// Tool that its slash command calls instead of a model.
    pub dispatch: Option<ToolDispatch>,
    /// Folder of the skill.
    pub dir: PathBuf,
    /// File of the skill.
    pub file: PathBuf,
    /// Kind of root in which it was found.
    pub source: SkillSource,
}

/// Requirements of a skill on the machine and the config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillRequirements {
    /// Programs, all of which are required.
    pub bins: Vec<String>,
    /// Programs, at least one of which is required.
    pub any_bins: Vec<String>,
    /// Environment variables that must be set.
    pub env: Vec<String>,
    /// Dotted config paths whose values must be set and not false, zero or blank.
    pub config: Vec<String>,
}

/// A slash command that calls a tool directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDispatch {
    /// Tool name.
    pub tool: String,
}

/// Kinds of skill roots, in increasing precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkillSource {
    /// `skills.load.extraDirs`.
    Extra,
    /// A plugin's folder.
    Plugin,
    /// Skills shipped with the program.
    Bundled,
    /// Skills in the state directory.
    Managed,
    /// The user's skills, shared between agents.
    Personal,
    /// The workspace's skills, shared between agents.
    Project,
    /// The workspace's own skills.
    Workspace,
}

impl SkillSource {
    /// Returns its name for clients.
    pub fn name(self) -> &'static str {
        match self {
            Self::Extra | Self::Plugin => "openclaw-extra",
            Self::Bundled => "openclaw-bundled",
            Self::Managed => "openclaw-managed",
            Self::Personal => "agents-skills-personal",
            Self::Project => "agents-skills-project",
            Self::Workspace => "openclaw-workspace",
        }
    }
}

/// Origin of a skill's text.
#[derive(Debug)]
pub(crate) struct SkillOrigin {
    pub(crate) dir: PathBuf,
    pub(crate) file: PathBuf,
    pub(crate) source: SkillSource,
    /// Name to use if the file has none.
    pub(crate) name: String,
}

/// Why a text is not a skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("has no front matter: begin it with `---`, `name:` and `description:` lines, and `---` again")]
    NoFrontMatter,
    #[error("has no description, so the model does not know when to use it: add a `description:` to its front matter")]
    NoDescription,
    #[error("has no description, and its front matter is not YAML: {0}")]
    Broken(String),
    #[error("has a name of {0} characters; at most {NAME_CHARS} are allowed")]
    LongName(usize),
}

/// Parses a skill file. Problems that do not prevent its use are returned as notes.
pub(crate) fn read(text: &str, origin: SkillOrigin) -> Result<(Skill, Vec<String>), Error> {
    let matter = FrontMatter::read(text).ok_or(Error::NoFrontMatter)?;
    let text_of = |key: &str| matter.get(key).as_ref().and_then(as_text);
    let flag = |key: &str, default| matter.get(key).as_ref().and_then(as_bool).unwrap_or(default);
    let mut notes = Vec::new();

    let Some(description) = text_of("description") else {
        return Err(matter.yaml_error().map_or(Error::NoDescription, |error| Error::Broken(error.to_owned())));
    };
    let name = text_of("name").map(|name| on_one_line(&name)).filter(|name| !name.is_empty()).unwrap_or(origin.name);
    let length = name.chars().count();
    if length > NAME_CHARS {
        return Err(Error::LongName(length));
    }
    let meta = manifest(matter.get("metadata"), &mut notes);
    let manifest_text = |key: &str| lookup(&meta, key).and_then(as_text);
    let list = |key: &str| lookup(&meta, key).map(as_list).unwrap_or_default();
    let tool = text_of("command-tool");
    let is_dispatched = text_of("command-dispatch").is_some_and(|kind| kind.eq_ignore_ascii_case("tool"));
    if is_dispatched && tool.is_none() {
        notes.push("has `command-dispatch: tool` without `command-tool`, so its command goes to the model".to_owned());
    }
    let skill = Skill {
        description,
        homepage: manifest_text("homepage").or_else(|| ["homepage", "website", "url"].into_iter().find_map(text_of)),
        key: manifest_text("skillKey").unwrap_or_else(|| name.clone()),
        primary_env: manifest_text("primaryEnv"),
        emoji: manifest_text("emoji").or_else(|| text_of("emoji")),
        os: list("os"),
        always: lookup(&meta, "always").and_then(as_bool).unwrap_or(false),
        requires: requires(lookup(&meta, "requires")),
        install: lookup(&meta, "install").and_then(Value::as_array).cloned().unwrap_or_default(),
        is_user_invocable: flag("user-invocable", true),
        is_hidden_from_model: flag("disable-model-invocation", false),
        dispatch: tool.filter(|_| is_dispatched).map(|tool| ToolDispatch { tool }),
        name,
        dir: origin.dir,
        file: origin.file,
        source: origin.source,
    };
    Ok((skill, notes))
}

/// Returns our part of `metadata`.
pub fn manifest(metadata: Option<Value>, notes: &mut Vec<String>) -> Map<String, Value> {
    let metadata = match metadata {
        Some(Value::String(text)) => json(&text).unwrap_or(Value::String(text)),
        Some(value) => value,
        None => Value::Null,
    };
    match metadata {
        Value::Object(mut all) => match MANIFESTS.iter().find_map(|name| all.remove(*name)) {
            Some(Value::Object(ours)) => ours,
            Some(_) | None => Map::new(),
        },
        Value::Null => Map::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            notes.push("has `metadata` that is not a mapping, so its requirements are not checked".to_owned());
            Map::new()
        }
    }
}

/// Parses the requirements of a manifest.
pub fn requires(value: Option<&Value>) -> SkillRequirements {
    let list = |key: &str| value.and_then(Value::as_object).and_then(|all| lookup(all, key)).map(as_list);
    SkillRequirements {
        bins: list("bins").unwrap_or_default(),
        any_bins: list("anyBins").unwrap_or_default(),
        env: list("env").unwrap_or_default(),
        config: list("config").unwrap_or_default(),
    }
}

/// Collapses whitespace and removes control characters.
pub fn on_one_line(text: &str) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    joined.chars().filter(|c| !c.is_control()).collect()
}

/// Returns the text of a scalar or of a list's items; `None` if it is empty.
pub fn as_text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(_) => as_list(value).join(", "),
        Value::Null | Value::Object(_) => String::new(),
    };
    (!text.is_empty()).then_some(text)
}

/// Returns a list, or the items of a comma-separated text.
pub fn as_list(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().filter(|item| !item.is_array()).filter_map(as_text).collect(),
        Value::String(text) => {
            text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

/// Parses a boolean, including common words for it.
pub fn as_bool(value: &Value) -> Option<bool> {
    match as_text(value)?.to_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}
