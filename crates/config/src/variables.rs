//! Substitutes `${NAME}` in texts from the environment and from the `env` section, which adds to it; and
//! `${file:PATH}`, `${credential:NAME}` and `${cmd:COMMAND}`, which name a secret elsewhere.
//!
//! The environment of the process is never changed; the added variables are returned to the caller. Values of variables
//! may be secrets: no message contains one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    file::Files,
    path::{Path, Step},
    problem::{self, ConfigProblem},
    read::ReadEnvironment,
    tree::{Kind, TreeMember, TreeNode, path},
};

/// Name of the section of environment variables.
pub(crate) const SECTION: &str = "env";
/// Key of the section's object of variables.
const VARS: &str = "vars";
/// Key of the section that is not a variable: whether the login shell is asked for more.
pub(crate) const SHELL: &str = "shellEnv";

/// A secret that is not in the config, but named by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretReference<'a> {
    /// Content of a file.
    File(&'a str),
    /// A credential of the service manager, by name.
    Credential(&'a str),
    /// Output of a command.
    Command(&'a str),
}

impl<'a> SecretReference<'a> {
    /// Parses the text between `${` and `}`; `None` if it is not such a reference.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (kind, name) = text.split_once(':').filter(|(_, name)| !name.trim().is_empty())?;
        match kind {
            "file" => Some(Self::File(name)),
            "credential" => Some(Self::Credential(name)),
            "cmd" => Some(Self::Command(name)),
            _ => None,
        }
    }
}

/// Returns true if a text is a single reference, to a variable or to a secret elsewhere.
pub(crate) fn is_reference(text: &str) -> bool {
    let name = text.strip_prefix("${").and_then(|text| text.strip_suffix('}'));
    name.is_some_and(|name| is_name(name) || (SecretReference::parse(name).is_some() && !name.contains('}')))
}

/// Returns the value of a name between `${` and `}`, or the problem to report.
type Lookup<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// Result of the substitution.
#[derive(Default)]
pub(crate) struct Substitution {
    /// Variables that the `env` section adds.
    pub(crate) variables: BTreeMap<String, String>,
    /// Texts with a reference that has no value, and invalid values of the `env` section; they are left as written.
    pub(crate) unfilled: BTreeSet<Vec<Step>>,
    /// Problems in the `env` section.
    pub(crate) problems: Vec<ConfigProblem>,
    /// Texts with a reference that has no value, with the problem to report.
    pub(crate) unset: Vec<(Path, ConfigProblem)>,
}

/// Substitutes every text of the tree.
pub(crate) fn substitute_all(root: &mut TreeNode, env: &ReadEnvironment<'_>, files: &Files) -> Substitution {
    let mut substitution = Substitution::default();
    substitution.collect_section(root, env, files);
    let variables = std::mem::take(&mut substitution.variables);
    let lookup = |name: &str| value(name, &variables, env);
    substitution.texts(root, &mut Vec::new(), &lookup, files);
    substitution.variables = variables;
    substitution
}

/// Returns the value of a reference, or why it has none.
fn value(name: &str, section: &BTreeMap<String, String>, env: &ReadEnvironment<'_>) -> Result<String, String> {
    match SecretReference::parse(name) {
        Some(reference) => (env.secret)(reference),
        None => variable(name, section, env.variable)
            .ok_or_else(|| format!("needs the environment variable {name}, which is not set")),
    }
}

/// Returns a non-empty variable. The section contains only names that are blank in the environment, so the environment
/// takes precedence.
fn variable(name: &str, section: &BTreeMap<String, String>, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    section.get(name).cloned().or_else(|| env(name)).filter(|value| !value.is_empty())
}

impl Substitution {
    /// Collects the variables of the section: first the texts without references, so that the others can refer to them.
    fn collect_section(&mut self, root: &TreeNode, env: &ReadEnvironment<'_>, files: &Files) {
        let mut texts: Vec<(&str, &str)> = Vec::new();
        let section = vec![Step::Key(SECTION.to_owned())];
        let mut vars = section.clone();
        vars.push(Step::Key(VARS.to_owned()));
        for (section_path, steps) in [(vars.as_slice(), vars.clone()), (section.as_slice(), section.clone())] {
            let Some(node) = root.find(section_path) else { continue };
            let Kind::Object(members) = &node.kind else {
                self.note(steps, node, "must be an object".to_owned(), files);
                continue;
            };
            let is_variable =
                |member: &&TreeMember| section_path.len() > 1 || ![VARS, SHELL].contains(&member.name.as_str());
            for member in members.iter().filter(is_variable) {
                let mut steps = steps.clone();
                steps.push(Step::Key(member.name.clone()));
                match &member.node.kind {
                    Kind::Scalar(Value::String(_)) if !can_be_set(&member.name) => {
                        self.note(
                            steps,
                            &member.node,
                            "is not a valid name for an environment variable".to_owned(),
                            files,
                        );
                    }
                    Kind::Scalar(Value::String(text)) => texts.push((&member.name, text)),
                    Kind::Scalar(_) | Kind::Object(_) | Kind::Array(_) => {
                        self.note(steps, &member.node, "must be a string".to_owned(), files);
                    }
                }
            }
        }
        texts.retain(|(name, _)| (env.variable)(name).is_none_or(|value| value.trim().is_empty()));
        let (plain, referring): (Vec<_>, Vec<_>) =
            texts.into_iter().partition(|(_, text)| substitute(text, &|_| Err(String::new())).is_ok());
        for (name, text) in plain.into_iter().chain(referring) {
            // An unset one is reported with all the other texts.
            let value = substitute(text, &|name| value(name, &self.variables, env));
            if let Ok(value) = value
                && !value.trim().is_empty()
            {
                self.variables.entry(name.to_owned()).or_insert(value);
            }
        }
    }

    fn texts(&mut self, node: &mut TreeNode, steps: &mut Vec<Step>, lookup: &Lookup<'_>, files: &Files) {
        match &mut node.kind {
            Kind::Object(members) => {
                for member in members {
                    steps.push(Step::Key(member.name.clone()));
                    self.texts(&mut member.node, steps, lookup, files);
                    steps.pop();
                }
            }
            Kind::Array(nodes) => {
                for (index, node) in nodes.iter_mut().enumerate() {
                    steps.push(Step::Index(index));
                    self.texts(node, steps, lookup, files);
                    steps.pop();
                }
            }
            Kind::Scalar(Value::String(text)) => match substitute(text, lookup) {
                Ok(substituted) => *text = substituted,
                Err(message) => {
                    if self.unset.len() < problem::MAX_PROBLEMS {
                        self.unset.push((path(steps), problem(steps, node, message, files)));
                    }
                    self.unfilled.insert(steps.clone());
                }
            },
            Kind::Scalar(_) => {}
        }
    }

    fn note(&mut self, steps: Vec<Step>, node: &TreeNode, message: String, files: &Files) {
        if self.problems.len() < problem::MAX_PROBLEMS {
            self.problems.push(problem(&steps, node, message, files));
        }
        self.unfilled.insert(steps);
    }
}

fn problem(steps: &[Step], node: &TreeNode, message: String, files: &Files) -> ConfigProblem {
    let location = node.at.map(|at| files.location(at));
    ConfigProblem { path: path(steps).to_string(), location, message, help: None }
}

/// True if an environment can contain a variable of this name.
fn can_be_set(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Substitutes references, or returns the problem of the first that has no value. `$${NAME}` becomes `${NAME}`; a name
/// that is neither in capitals nor a reference to a secret is left unchanged.
fn substitute(text: &str, lookup: &Lookup<'_>) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, tail) = (&rest[..at], &rest[at + 2..]);
        let is_reference = |name: &&str| is_name(name) || SecretReference::parse(name).is_some();
        let Some(name) = tail.split_once('}').map(|(name, _)| name).filter(is_reference) else {
            result.push_str(&rest[..at + 2]);
            rest = tail;
            continue;
        };
        match before.strip_suffix('$') {
            Some(before) => result.push_str(&format!("{before}${{{name}}}")),
            None => {
                result.push_str(before);
                result.push_str(&lookup(name)?);
            }
        }
        rest = &tail[name.len() + 1..];
    }
    result.push_str(rest);
    Ok(result)
}

fn is_name(text: &str) -> bool {
    let head = |c: char| c.is_ascii_uppercase() || c == '_';
    text.starts_with(head) && text.chars().all(|c| head(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn substituted(tree: Value) -> (Value, BTreeMap<String, String>, Vec<String>) {
        let env = |name: &str| match name {
            "KEY_1" => Some("sk-1".to_owned()),
            "EMPTY" => Some(String::new()),
            "BLANK" => Some(" ".to_owned()),
            _ => None,
        };
        let secret = |reference: SecretReference<'_>| match reference {
            SecretReference::File("/key") => Ok("from a file".to_owned()),
            SecretReference::Credential(name) => Ok(format!("credential {name}")),
            SecretReference::File(_) | SecretReference::Command(_) => Err("names what is not there".to_owned()),
        };
        let env = ReadEnvironment { variable: &env, secret: &secret, include_roots: &[] };
        let mut node = TreeNode::without_locations(tree);
        let substituted = substitute_all(&mut node, &env, &Files::new(Path::new("config.json")));
        let unset = substituted.unset.iter().map(|(_, problem)| problem);
        (
            node.value(),
            substituted.variables,
            substituted.problems.iter().chain(unset).map(ToString::to_string).collect(),
        )
    }

    fn variables(tree: Value) -> Vec<(String, String)> {
        substituted(tree).1.into_iter().collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn variables_are_substituted() {
        let (tree, _, problems) = substituted(json!({
            "a": "Bearer ${KEY_1}!",
            "b": ["${KEY_1}${KEY_1}", 7],
            "c": "$${KEY_1} ${lower} ${} ${1A} $KEY_1 ${KEY_1",
            "d": "$$${KEY_1}",
            "e": "${BLANK}",
        }));
        assert_eq!(
            tree,
            json!({
                "a": "Bearer sk-1!",
                "b": ["sk-1sk-1", 7],
                "c": "${KEY_1} ${lower} ${} ${1A} $KEY_1 ${KEY_1",
                "d": "$${KEY_1}",
                "e": " ",
            })
        );
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn secrets_elsewhere_are_substituted() {
        let (tree, variables, problems) = substituted(json!({
            "a": "${file:/key}", "b": "x ${credential:key-1}", "c": "$${file:/key}", "d": "${file:}${ftp:x}",
            "e": "${cmd:pass show key}", "env": {"F": "${file:/key}"}, "f": "${F}",
        }));
        assert_eq!((&tree["a"], &tree["b"]), (&json!("from a file"), &json!("x credential key-1")));
        assert_eq!((&tree["c"], &tree["d"]), (&json!("${file:/key}"), &json!("${file:}${ftp:x}")));
        assert_eq!((&tree["e"], &tree["f"]), (&json!("${cmd:pass show key}"), &json!("from a file")));
        assert_eq!(variables["F"], "from a file");
        assert_eq!(problems, ["e names what is not there"]);
    }

    #[test]
    fn an_unset_variable_is_reported_and_others_are_substituted() {
        let (tree, _, problems) = substituted(json!({"a": ["${OTHER} s3cret"], "b": "${EMPTY}", "c": "${KEY_1}"}));
        assert_eq!(tree, json!({"a": ["${OTHER} s3cret"], "b": "${EMPTY}", "c": "sk-1"}));
        assert_eq!(
            problems,
            [
                "a[0] needs the environment variable OTHER, which is not set",
                "b needs the environment variable EMPTY, which is not set",
            ]
        );
    }

    #[test]
    fn the_section_sets_unset_or_blank_variables_and_vars_take_precedence() {
        let env = json!({
            "vars": {"A": "1", "KEY_1": "other", "EMPTY": "2"},
            "A": "3", "BLANK": "4", "NOTHING": " ", "shellEnv": {"enabled": true},
        });
        assert_eq!(variables(json!({"env": env})), pairs(&[("A", "1"), ("BLANK", "4"), ("EMPTY", "2")]));
        let (tree, _, problems) = substituted(json!({"env": {"vars": {"A": "1"}}, "x": "${A}"}));
        assert_eq!((tree["x"].as_str(), problems), (Some("1"), vec![]));
    }

    #[test]
    fn variables_of_the_section_may_refer_to_each_other() {
        let vars = json!({"URL": "http://${HOST}/${KEY_1}", "HOST": "h", "RAW": "$${HOST}"});
        assert_eq!(
            variables(json!({"env": {"vars": vars}})),
            pairs(&[("HOST", "h"), ("RAW", "${HOST}"), ("URL", "http://h/sk-1")])
        );
        let (_, variables, problems) = substituted(json!({"env": {"LOOP": "${LOOP}"}}));
        assert_eq!(variables, BTreeMap::new());
        assert_eq!(problems, ["env.LOOP needs the environment variable LOOP, which is not set"]);
    }

    #[test]
    fn problems_in_the_section_are_reported() {
        let (_, variables, problems) = substituted(json!({"env": {"vars": {"A": 1, "B=C": "x", "D": "y"}, "E": null}}));
        assert_eq!(variables, BTreeMap::from([("D".to_owned(), "y".to_owned())]));
        assert_eq!(
            problems,
            [
                "env.vars.A must be a string",
                "env.vars[\"B=C\"] is not a valid name for an environment variable",
                "env.E must be a string",
            ]
        );
        assert_eq!(substituted(json!({"env": []})).2, ["env must be an object"]);
    }
}
