//! Path of a value in the config: `agents.list[0].id`, `["a.b"]`, `models.providers["x/y"].api`.

use std::{fmt, str::FromStr};

use serde_json::Value;

/// Maximum number of steps of a path.
const MAX_DEPTH: usize = 64;

/// Path of a value: the steps from the root, which has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Vec<Step>);

/// One step of a [`Path`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Member of an object; also an item of a list if it is a number, because `list.0` is a common notation for
    /// `list[0]`.
    Key(String),
    /// Item of a list, counted from 0.
    Index(usize),
}

/// Why a text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is empty.
    #[error("the config path is empty; name a key such as gateway.port")]
    Empty,
    /// A name is missing.
    #[error("config path {path:?} has no name at column {column}; write an empty name as [\"\"]")]
    NoName {
        /// The whole text.
        path: String,
        /// Column, counted from 1.
        column: usize,
    },
    /// A bracket contains neither a number nor a quoted name, or is not closed.
    #[error(
        "config path {path:?} has a wrong bracket at column {column}; write [0] for an item or [\"name\"] for a key"
    )]
    Bracket {
        /// The whole text.
        path: String,
        /// Column, counted from 1.
        column: usize,
    },
    /// There are too many steps.
    #[error("the config path has more than {MAX_DEPTH} steps")]
    TooDeep,
}

impl Path {
    /// Returns the path of the whole config.
    pub fn root() -> Self {
        Self::default()
    }

    /// Returns the steps from the root.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Returns the path of a member of this object.
    #[must_use]
    pub fn key(&self, name: &str) -> Self {
        self.with(Step::Key(name.to_owned()))
    }

    /// Returns the path of an item of this list.
    #[must_use]
    pub fn index(&self, at: usize) -> Self {
        self.with(Step::Index(at))
    }

    /// True if this is `other` or inside it.
    pub fn starts_with(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    fn with(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// Returns the path of the first `count` steps.
    #[must_use]
    pub fn first(&self, count: usize) -> Self {
        Self(self.0.iter().take(count).cloned().collect())
    }
}

impl Step {
    /// Returns the list index that this step means.
    pub(crate) fn list_index(&self) -> Option<usize> {
        match self {
            Self::Index(at) => Some(*at),
            Self::Key(name) if name.bytes().all(|byte| byte.is_ascii_digit()) => name.parse().ok(),
            Self::Key(_) => None,
        }
    }
}

/// Returns the value at a path.
pub fn get<'a>(value: &'a Value, path: &Path) -> Option<&'a Value> {
    path.0.iter().try_fold(value, |value, step| match (value, step) {
        (Value::Object(object), Step::Key(name)) => object.get(name),
        (Value::Array(list), step) => list.get(step.list_index()?),
        (Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => None,
    })
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(name) if is_plain(name) => write!(f, "{}{name}", if at == 0 { "" } else { "." })?,
                Step::Key(name) => write!(f, "[{}]", Value::from(name.as_str()))?,
            }
        }
        Ok(())
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|char| char.is_alphanumeric() || "_-$".contains(char))
}

impl FromStr for Path {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Error::Empty);
        }
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let column = || text[..text.len() - rest.len()].chars().count() + 1;
            let (step, length) = if rest.starts_with('[') {
                bracket(rest).ok_or_else(|| Error::Bracket { path: text.to_owned(), column: column() })?
            } else {
                // The first name has no dot before it; a later one has.
                let dot = usize::from(!steps.is_empty());
                name(&rest[dot..], dot).ok_or_else(|| Error::NoName { path: text.to_owned(), column: column() })?
            };
            steps.push(step);
            if steps.len() > MAX_DEPTH {
                return Err(Error::TooDeep);
            }
            rest = &rest[length..];
            if !rest.is_empty() && !rest.starts_with(['.', '[']) {
                let column = text[..text.len() - rest.len()].chars().count() + 1;
                return Err(Error::Bracket { path: text.to_owned(), column });
            }
        }
        Ok(Self(steps))
    }
}

/// Parses a name up to the next dot or bracket; returns it with its length including the dot before it. `\.` is a dot
/// in a name.
fn name(text: &str, dot: usize) -> Option<(Step, usize)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' | ']' => {
                end = at;
                break;
            }
            _ => name.push(char),
        }
    }
    (end > 0).then_some((Step::Key(name), dot + end))
}

/// Parses the bracket at the start; returns its content and its length.
fn bracket(text: &str) -> Option<(Step, usize)> {
    let inside = text.strip_prefix('[')?;
    let (step, length) = match inside.as_bytes().first()? {
        b'"' => {
            let mut names = serde_json::Deserializer::from_str(inside).into_iter::<String>();
            let name = names.next()?.ok()?;
            (Step::Key(name), names.byte_offset())
        }
        b'\'' => {
            let (name, _) = inside[1..].split_once('\'')?;
            (Step::Key(name.to_owned()), name.len() + 2)
        }
        b'0'..=b'9' => {
            let (digits, _) = inside.split_once(']')?;
            (Step::Index(digits.parse().ok()?), digits.len())
        }
        _ => return None,
    };
    inside[length..].starts_with(']').then_some((step, length + 2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Path {
        text.parse().unwrap()
    }

    fn parse_error(text: &str) -> String {
        text.parse::<Path>().unwrap_err().to_string()
    }

    #[test]
    fn dots_brackets_and_quotes_are_parsed_as_steps() {
        let root = Path::root();
        assert_eq!(parse("agents.list[0].id"), root.key("agents").key("list").index(0).key("id"));
        assert_eq!(parse("[\"a.b\"]"), root.key("a.b"));
        assert_eq!(parse(" models.providers['x/y'].api "), root.key("models").key("providers").key("x/y").key("api"));
        assert_eq!(parse("a.b\\.c[\"\"][\"q\\\"\"]"), root.key("a").key("b.c").key("").key("q\""));
        assert_eq!(parse("models.anthropic/claude-é"), root.key("models").key("anthropic/claude-é"));
    }

    #[test]
    fn an_invalid_path_is_rejected_with_the_column() {
        assert_eq!(parse_error("  "), "the config path is empty; name a key such as gateway.port");
        let name = |path: &str, column: usize| {
            format!("config path {path:?} has no name at column {column}; write an empty name as [\"\"]")
        };
        let bracket = |path: &str, column: usize| {
            let help = "write [0] for an item or [\"name\"] for a key";
            format!("config path {path:?} has a wrong bracket at column {column}; {help}")
        };
        for (path, column) in [(".a", 1), ("a..b", 2), ("a.", 2), ("é.", 2), ("a.[0]", 2), ("a\\", 1)] {
            assert_eq!(parse_error(path), name(path, column));
        }
        for path in ["a[", "a[]", "a[x]", "a[-1]", "a[1", "a[\"b]", "a['b]", "a[\"b\"", "a[99999999999999999999]"] {
            assert_eq!(parse_error(path), bracket(path, 2));
        }
        assert_eq!(parse_error("a[0]b"), bracket("a[0]b", 5));
        assert_eq!(parse_error("a]b"), bracket("a]b", 2));
        assert_eq!(parse(&vec!["a"; 64].join(".")).steps().len(), 64);
        assert_eq!(parse_error(&vec!["a"; 65].join(".")), "the config path has more than 64 steps");
    }

    #[test]
    fn a_value_is_found_by_its_path() {
        let config = json!({"agents": {"list": [{"id": "a"}, {"id": "b"}]}, "guilds": {"12": {"on": true}}});
        let at = |path: &str| get(&config, &parse(path)).cloned();
        assert_eq!(at("agents.list[1].id"), Some(json!("b")));
        assert_eq!(at("agents.list.0.id"), Some(json!("a")));
        assert_eq!(at("guilds.12.on"), Some(json!(true)));
        assert_eq!(get(&config, &Path::root()), Some(&config));
        for absent in ["agents.list[2]", "agents.list.id", "agents[0]", "guilds[12]", "agents.list[0].id.x", "nope"] {
            assert_eq!(at(absent), None, "{absent}");
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<String>().prop_map(Step::Key),
            "[a-z.\\[\\]'\"\\\\ ]{0,4}".prop_map(Step::Key),
            any::<usize>().prop_map(Step::Index)
        ]
    }

    proptest! {
        #[test]
        fn a_path_round_trips(steps in prop::collection::vec(step(), 1..8)) {
            let path = Path(steps);
            prop_assert_eq!(path.to_string().parse::<Path>(), Ok(path));
        }

        #[test]
        fn any_text_is_a_path_or_an_error(text in any::<String>()) {
            if let Ok(path) = text.parse::<Path>() {
                prop_assert_eq!(path.to_string().parse::<Path>(), Ok(path));
            }
        }
    }
}
