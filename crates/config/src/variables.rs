//! Substitutes `${NAME}` in texts from the environment and from the `env` section, which adds to it.
//!
//! The environment of the process is never changed; the added variables are returned to the caller. Values of variables
//! may be secrets: no message contains one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    file::Files,
    path::{Path, Step},
    problem::{self, ConfigProblem},
    tree::{Kind, TreeMember, TreeNode, path},
};

/// Name of the section of environment variables.
pub(crate) const SECTION: &str = "env";
/// Key of the section's object of variables.
const VARS: &str = "vars";
/// Key of the section that is not a variable: whether the login shell is asked for more.
pub(crate) const SHELL: &str = "shellEnv";

/// Result of the substitution.
#[derive(Default)]
pub(crate) struct Substitution {
    /// Variables that the `env` section adds.
    pub(crate) variables: BTreeMap<String, String>,
    /// Texts with an unset variable, and invalid values of the `env` section; they are left as written.
    pub(crate) unfilled: BTreeSet<Vec<Step>>,
    /// Problems in the `env` section.
    pub(crate) problems: Vec<ConfigProblem>,
    /// Texts that refer to an unset variable, with the problem to report.
    pub(crate) unset: Vec<(Path, ConfigProblem)>,
}

/// Substitutes every text of the tree.
pub(crate) fn substitute_all(root: &mut TreeNode, env: &dyn Fn(&str) -> Option<String>, files: &Files) -> Substitution {
    let mut substitution = Substitution::default();
    substitution.collect_section(root, env, files);
    let variables = std::mem::take(&mut substitution.variables);
    let lookup = |name: &str| variable(name, &variables, env);
    substitution.texts(root, &mut Vec::new(), &lookup, files);
    substitution.variables = variables;
    substitution
}

/// Returns a non-empty variable. The section contains only names that are blank in the environment, so the environment
/// takes precedence.
fn variable(name: &str, section: &BTreeMap<String, String>, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    section.get(name).cloned().or_else(|| env(name)).filter(|value| !value.is_empty())
}

impl Substitution {
    /// Collects the variables of the section: first the texts without references, so that the others can refer to them.
    fn collect_section(&mut self, root: &TreeNode, env: &dyn Fn(&str) -> Option<String>, files: &Files) {
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
        texts.retain(|(name, _)| env(name).is_none_or(|value| value.trim().is_empty()));
        let (plain, referring): (Vec<_>, Vec<_>) =
            texts.into_iter().partition(|(_, text)| substitute(text, &|_| None).is_ok());
        for (name, text) in plain.into_iter().chain(referring) {
            // An unset one is reported with all the other texts.
            let value = substitute(text, &|name| variable(name, &self.variables, env));
            if let Ok(value) = value
                && !value.trim().is_empty()
            {
                self.variables.entry(name.to_owned()).or_insert(value);
            }
        }
    }

    fn texts(
        &mut self,
        node: &mut TreeNode,
        steps: &mut Vec<Step>,
        lookup: &dyn Fn(&str) -> Option<String>,
        files: &Files,
    ) {
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
                Err(name) => {
                    let message = format!("needs the environment variable {name}, which is not set");
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

/// Substitutes `${NAME}`, or returns the name that is not set. `$${NAME}` becomes `${NAME}`; a name that is not in
/// capitals is left unchanged.
fn substitute<'a>(text: &'a str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, &'a str> {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, tail) = (&rest[..at], &rest[at + 2..]);
        let Some(name) = tail.split_once('}').map(|(name, _)| name).filter(|name| is_name(name)) else {
            result.push_str(&rest[..at + 2]);
            rest = tail;
            continue;
        };
        match before.strip_suffix('$') {
            Some(before) => result.push_str(&format!("{before}${{{name}}}")),
            None => {
                result.push_str(before);
                result.push_str(&lookup(name).ok_or(name)?);
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
