//! Validates a config tree against the typed sections: every invalid value is reported and omitted, the others are
//! kept.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::{
    path::Step,
    problem::{self, ConfigProblem, SourceLocation},
    tree::{dotted, without},
};

/// Maximum number of attempts with one more value omitted; after that whole sections are omitted, so that validation
/// terminates soon.
const MAX_ROUNDS: usize = 200;

/// Validated sections.
pub(crate) struct CheckedSections<T> {
    pub(crate) config: T,
    pub(crate) problems: Vec<ConfigProblem>,
    /// Paths of the omitted values.
    pub(crate) omitted: BTreeSet<Vec<Step>>,
}

/// Deserializes the sections from the tree without the values in `omitted`, and without invalid ones.
pub(crate) fn check<T: DeserializeOwned + Default>(
    tree: &Value,
    mut omitted: BTreeSet<Vec<Step>>,
    location: &dyn Fn(&[Step]) -> Option<SourceLocation>,
) -> CheckedSections<T> {
    let mut problems = Vec::new();
    let mut remaining = without(tree, &omitted);
    for round in 0.. {
        let error = match serde_path_to_error::deserialize::<_, T>(&remaining) {
            Ok(config) => return CheckedSections { config, problems, omitted },
            Err(error) => error,
        };
        let mut invalid = steps(error.path(), &remaining);
        let path = original_path(&invalid, tree, &omitted);
        let error_text = error.inner().to_string();
        if problems.len() >= problem::MAX_PROBLEMS || round >= MAX_ROUNDS {
            invalid.truncate(1);
        } else if !is_consequence(&error_text, &path, &omitted) {
            let message = without_value(plain_message(&error_text), at(tree, &path));
            let message = if path.is_empty() { format!("the whole file {message}") } else { message };
            problems.push(ConfigProblem { path: dotted(&path), location: location(&path), message, help: None });
        }
        if !remove(&mut remaining, &invalid) {
            break;
        }
        omitted.insert(path);
    }
    CheckedSections { config: T::default(), problems, omitted }
}

/// Returns the path of the invalid value, or of the deepest existing value around it.
fn steps(path: &serde_path_to_error::Path, tree: &Value) -> Vec<Step> {
    let mut found = Vec::new();
    let mut node = tree;
    for segment in path.iter() {
        let step = match segment {
            Segment::Seq { index } => Step::Index(*index),
            Segment::Map { key } | Segment::Enum { variant: key } => Step::Key(key.clone()),
            Segment::Unknown => break,
        };
        let Some(next) = at(node, std::slice::from_ref(&step)) else { break };
        found.push(step);
        node = next;
    }
    found
}

/// Converts a path to one in the original tree: indices differ in lists from which items were omitted.
pub(crate) fn original_path(steps: &[Step], tree: &Value, omitted: &BTreeSet<Vec<Step>>) -> Vec<Step> {
    let mut path: Vec<Step> = Vec::new();
    for step in steps {
        let length = at(tree, &path).and_then(Value::as_array).map_or(0, Vec::len);
        let step = match step {
            Step::Index(index) => {
                let is_kept = |at: &usize| {
                    path.push(Step::Index(*at));
                    let is_kept = !omitted.contains(&path);
                    path.pop();
                    is_kept
                };
                Step::Index((0..length).filter(is_kept).nth(*index).unwrap_or(*index))
            }
            Step::Key(name) => Step::Key(name.clone()),
        };
        path.push(step);
    }
    path
}

/// Removes the value at a path. The root cannot be removed.
fn remove(tree: &mut Value, path: &[Step]) -> bool {
    let Some((last, path)) = path.split_last() else { return false };
    let parent = path.iter().try_fold(tree, |value, step| match step {
        Step::Key(name) => value.get_mut(name),
        Step::Index(index) => value.get_mut(index),
    });
    match (parent, last) {
        (Some(Value::Object(members)), Step::Key(name)) => members.shift_remove(name).is_some(),
        (Some(Value::Array(values)), Step::Index(index)) if *index < values.len() => {
            values.remove(*index);
            true
        }
        (Some(_) | None, Step::Key(_) | Step::Index(_)) => false,
    }
}

fn at<'a>(tree: &'a Value, path: &[Step]) -> Option<&'a Value> {
    path.iter().try_fold(tree, |value, step| match step {
        Step::Key(name) => value.get(name),
        Step::Index(index) => value.get(index),
    })
}

/// True if a field is only missing because it was omitted.
fn is_consequence(why: &str, path: &[Step], omitted: &BTreeSet<Vec<Step>>) -> bool {
    let field = why.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    field.is_some_and(|field| omitted.contains(&[path, &[Step::Key(field.to_owned())]].concat()))
}

/// Rephrases an error without the value, which may be a secret, and without Rust type names.
fn plain_message(why: &str) -> String {
    if why.starts_with("data did not match any variant") {
        return "has none of the accepted forms".to_owned();
    }
    if let Some(field) = why.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        return format!("must have {field:?}");
    }
    let Some((_, expected)) = why.rsplit_once(", expected ") else { return why.replace('`', "\"") };
    let description = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "u128" | "usize" => "a whole number, zero or more",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" | "a borrowed string" | "string" => "a string",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        "string or map" => "a string or an object",
        nonzero if nonzero.starts_with("a nonzero ") => "a whole number, one or more",
        object
            if ["struct ", "internally tagged enum ", "adjacently tagged enum "]
                .iter()
                .any(|name| object.starts_with(name)) =>
        {
            "an object"
        }
        other => return format!("must be {}", other.replace('`', "\"")),
    };
    format!("must be {description}")
}

/// Returns the message of a problem ("must be …"), or "is not valid" if the message quotes the value, which may be a
/// secret.
fn without_value(message: String, value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) if text.len() > 2 && message.contains(text.as_str()) => "is not valid".to_owned(),
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, de::Error};
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Config {
        gateway: TestGateway,
        agents: Vec<TestAgent>,
        named: BTreeMap<String, u8>,
        loose: Option<Loose>,
        strict: Option<Strict>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct TestGateway {
        port: Option<u16>,
        bind: Option<TestBind>,
        ratio: f64,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum TestBind {
        Loopback,
        Lan,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct TestAgent {
        id: String,
        #[serde(default)]
        on: bool,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Loose {
        Text(String),
        Number(u8),
    }

    #[derive(Debug, PartialEq)]
    struct Strict;

    impl<'de> Deserialize<'de> for Strict {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            Err(D::Error::custom(format!("cannot use {text}")))
        }
    }

    fn checked(tree: &Value) -> (Config, Vec<String>) {
        let CheckedSections { config, problems, .. } = check(tree, BTreeSet::new(), &|_| None);
        (config, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn all_problems_are_reported_and_valid_values_kept() {
        let (config, problems) = checked(&json!({
            "gateway": {"port": "s3cret", "bind": "s3cret", "ratio": 0.5},
            "agents": [{"id": 1, "on": true}, {"id": "a"}, {}, {"id": "b", "on": "s3cret"}, 7],
            "named": {"x": 300, "y/z": 1},
        }));
        let agent = |id: &str| TestAgent { id: id.to_owned(), on: false };
        assert_eq!(
            config,
            Config {
                gateway: TestGateway { port: None, bind: None, ratio: 0.5 },
                agents: vec![agent("a"), agent("b")],
                named: BTreeMap::from([("y/z".to_owned(), 1)]),
                ..Config::default()
            }
        );
        assert_eq!(
            problems,
            [
                "gateway.port must be a whole number from 0 to 65535",
                "gateway.bind must be \"loopback\" or \"lan\"",
                "agents[0].id must be a string",
                "agents[2] must have \"id\"",
                "agents[3].on must be true or false",
                "agents[4] must be an object",
                "named.x must be a whole number from 0 to 255",
            ]
        );
    }

    #[test]
    fn a_value_is_never_shown() {
        let (_, problems) = checked(&json!({"strict": "s3cret", "loose": {"s3cret": 1}}));
        assert_eq!(problems, ["strict is not valid", "loose has none of the accepted forms"]);
    }

    #[test]
    fn values_omitted_before_are_not_reported_again() {
        let key = |name: &str| Step::Key(name.to_owned());
        let omitted = BTreeSet::from([vec![key("agents"), Step::Index(0), key("id")]]);
        let tree = json!({"agents": [{"id": "${NOT_SET}"}, {"id": "a"}]});
        let CheckedSections { config, problems, .. } = check::<Config>(&tree, omitted, &|_| None);
        assert_eq!(config.agents, [TestAgent { id: "a".to_owned(), on: false }]);
        assert_eq!(problems, []);
    }

    #[test]
    fn a_tree_that_is_not_an_object_is_a_problem() {
        assert_eq!(checked(&json!("s3cret")), (Config::default(), vec!["the whole file must be an object".to_owned()]));
    }

    #[test]
    fn checking_many_omitted_values_terminates() {
        let key = |name: &str| Step::Key(name.to_owned());
        let tree = json!({"agents": vec![json!({"id": "${NOT_SET}"}); 1000], "gateway": {"port": 1}});
        let omitted = (0..1000).map(|index| vec![key("agents"), Step::Index(index), key("id")]).collect();
        let CheckedSections { config, problems, .. } = check::<Config>(&tree, omitted, &|_| None);
        assert_eq!((config.gateway.port, config.agents, problems), (Some(1), vec![], vec![]));
    }

    #[test]
    fn checking_many_invalid_values_terminates() {
        let (config, problems) = checked(&json!({"agents": vec![7; 1000], "gateway": {"port": 1}}));
        assert_eq!(problems.len(), 50);
        assert_eq!(config.gateway.port, Some(1));
        assert_eq!(config.agents, []);
    }
}
