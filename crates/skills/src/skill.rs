//! What a skill file says about its skill.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::front_matter::{FrontMatter, json, lookup};

/// The most characters that a name may have: it stands in every list and in messages to a model.
const NAME_CHARS: usize = 128;

/// Where `metadata` keeps what is meant for us, newest name first.
const MANIFESTS: [&str; 3] = ["openclaw", "moltbot", "clawdbot"];

/// A skill as its file describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Skill {
    /// What it is called, on one line.
    pub name: String,
    /// What it is for, in the author's words.
    pub description: String,
    /// Where to read more.
    pub homepage: Option<String>,
    /// Its name in `skills.entries`.
    pub key: String,
    /// The variable that takes the entry's `apiKey`.
    pub primary_env: Option<String>,
    /// A sign for lists.
    pub emoji: Option<String>,
    /// The systems it works on, by their Node names; none means all.
    pub os: Vec<String>,
    /// Whether it works without what it requires.
    pub always: bool,
    /// What it needs from the machine and the config.
    pub requires: Requires,
    /// Ways to install what it needs, as written.
    pub install: Vec<Value>,
    /// Whether it is a slash command.
    pub is_user_invocable: bool,
    /// Whether a model is not told of it.
    pub is_hidden_from_model: bool,
    /// What its slash command calls instead of a model.
    pub dispatch: Option<Dispatch>,
    /// Its folder.
    pub dir: PathBuf,
    /// Its file.
    pub file: PathBuf,
    /// In which kind of root it was found.
    pub source: Source,
}

/// What a skill needs from the machine and the config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requires {
    /// Programs, each of them.
    pub bins: Vec<String>,
    /// Programs, at least one of them.
    pub any_bins: Vec<String>,
    /// Variables that are set.
    pub env: Vec<String>,
    /// Dotted paths of the config that hold something.
    pub config: Vec<String>,
}

/// A slash command that goes straight to a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// The tool's name.
    pub tool: String,
}

/// The kinds of roots in which skills lie, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// `skills.load.extraDirs`.
    Extra,
    /// A plugin's folder.
    Plugin,
    /// What is shipped with the program.
    Bundled,
    /// The state directory's.
    Managed,
    /// The user's, shared between agents.
    Personal,
    /// The workspace's, shared between agents.
    Project,
    /// The workspace's own.
    Workspace,
}

impl Source {
    /// What clients call it.
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

/// Where a skill's text comes from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) dir: PathBuf,
    pub(crate) file: PathBuf,
    pub(crate) source: Source,
    /// What it is called if it does not say so itself.
    pub(crate) name: String,
}

/// Why a text is not a skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("has no front matter: begin it with `---`, `name:` and `description:` lines, and `---` again")]
    NoFrontMatter,
    #[error("has no description, so nobody can tell when to use it: add a `description:` line to its front matter")]
    NoDescription,
    #[error("has no description, and its front matter is not YAML: {0}")]
    Broken(String),
    #[error("has a name of {0} characters; at most {NAME_CHARS} are allowed")]
    LongName(usize),
}

/// Reads a skill from its text; what could not be understood, but does no harm, is told beside it.
pub(crate) fn read(text: &str, origin: Origin) -> Result<(Skill, Vec<String>), Error> {
    let matter = FrontMatter::read(text).ok_or(Error::NoFrontMatter)?;
    let text_of = |key: &str| matter.get(key).as_ref().and_then(as_text);
    let flag = |key: &str, default| matter.get(key).as_ref().and_then(as_bool).unwrap_or(default);
    let mut notes = Vec::new();

    let Some(description) = text_of("description") else {
        return Err(matter.flaw().map_or(Error::NoDescription, |flaw| Error::Broken(flaw.to_owned())));
    };
    let name = text_of("name").map(|name| on_one_line(&name)).filter(|name| !name.is_empty()).unwrap_or(origin.name);
    let length = name.chars().count();
    if length > NAME_CHARS {
        return Err(Error::LongName(length));
    }
    let meta = manifest(matter.get("metadata"), &mut notes);
    let own = |key: &str| lookup(&meta, key).and_then(as_text);
    let list = |key: &str| lookup(&meta, key).map(as_list).unwrap_or_default();
    let tool = text_of("command-tool");
    let is_dispatched = text_of("command-dispatch").is_some_and(|kind| kind.eq_ignore_ascii_case("tool"));
    if is_dispatched && tool.is_none() {
        notes.push("has `command-dispatch: tool` without `command-tool`, so its command goes to the model".to_owned());
    }
    let skill = Skill {
        description,
        homepage: own("homepage").or_else(|| ["homepage", "website", "url"].into_iter().find_map(text_of)),
        key: own("skillKey").unwrap_or_else(|| name.clone()),
        primary_env: own("primaryEnv"),
        emoji: own("emoji").or_else(|| text_of("emoji")),
        os: list("os"),
        always: lookup(&meta, "always").and_then(as_bool).unwrap_or(false),
        requires: requires(lookup(&meta, "requires")),
        install: lookup(&meta, "install").and_then(Value::as_array).cloned().unwrap_or_default(),
        is_user_invocable: flag("user-invocable", true),
        is_hidden_from_model: flag("disable-model-invocation", false),
        dispatch: tool.filter(|_| is_dispatched).map(|tool| Dispatch { tool }),
        name,
        dir: origin.dir,
        file: origin.file,
        source: origin.source,
    };
    Ok((skill, notes))
}

/// The part of `metadata` that is meant for us.
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
            notes.push(
                "has `metadata` that cannot be read as keys and values, so what it requires is not checked".to_owned(),
            );
            Map::new()
        }
    }
}

/// What something needs, as its manifest says.
pub fn requires(value: Option<&Value>) -> Requires {
    let list = |key: &str| value.and_then(Value::as_object).and_then(|all| lookup(all, key)).map(as_list);
    Requires {
        bins: list("bins").unwrap_or_default(),
        any_bins: list("anyBins").unwrap_or_default(),
        env: list("env").unwrap_or_default(),
        config: list("config").unwrap_or_default(),
    }
}

/// The words of a text with one space between them, and nothing that a terminal would obey.
pub fn on_one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().filter(|c| !c.is_control()).collect()
}

/// The text of a scalar, or of a list's parts; nothing if that is empty.
pub fn as_text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(_) => as_list(value).join(", "),
        Value::Null | Value::Object(_) => String::new(),
    };
    (!text.is_empty()).then_some(text)
}

/// A list, or words with commas between them.
pub fn as_list(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().filter(|item| !item.is_array()).filter_map(as_text).collect(),
        Value::String(text) => {
            text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

/// Yes or no, in one of the words that people use for it.
pub fn as_bool(value: &Value) -> Option<bool> {
    match as_text(value)?.to_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}
