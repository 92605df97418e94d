//! Known keys: those of the sections, and those of all versions of OpenClaw.
//!
//! A list has one key per line, indented below its parent; `*` is a free name, `[]` an item of a list. A key without
//! keys below it may contain anything, so the schema of an object has to name its keys.

use crate::{
    file::Files,
    path::{Path, Step},
    problem::{self, ConfigProblem},
    tree::{Kind, TreeMember, TreeNode, dotted},
    variables::{SECTION, SHELL},
};

/// OpenClaw's keys.
const LIST: &str = include_str!("../data/openclaw-keys.txt");

/// A known key: a slice of the list, because a tree of thousands of keys is not worth building for the few in a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KnownKey<'a> {
    /// Lines below it.
    list: &'a str,
    /// Indentation of its own keys among them.
    depth: usize,
}

impl<'a> KnownKey<'a> {
    /// Returns the root of a list, without its leading comment.
    fn all(mut list: &'a str) -> Self {
        while let Some((_, rest)) = list.split_once('\n').filter(|(line, _)| line.starts_with('#')) {
            list = rest;
        }
        Self { list, depth: 0 }
    }

    /// Returns the keys directly below it, each with its name.
    fn keys(self) -> impl Iterator<Item = (&'a str, Self)> {
        let depth = self.depth;
        let is_child = move |line: &&str| line.len() - line.trim_start_matches(' ').len() > depth;
        let mut rest = self.list;
        std::iter::from_fn(move || {
            let (line, after) = rest.split_once('\n')?;
            let length = after.split_inclusive('\n').take_while(is_child).map(str::len).sum();
            let (list, next) = after.split_at(length);
            rest = next;
            Some((&line[depth..], Self { list, depth: depth + 1 }))
        })
    }

    fn get(self, name: &str) -> Option<Self> {
        self.keys().find(|(key, _)| *key == name).map(|(_, known)| known)
    }

    fn is_leaf(self) -> bool {
        self.list.is_empty()
    }

    /// True if it names its keys, or allows free names.
    fn has_names(self) -> bool {
        self.keys().any(|(name, _)| name != "[]")
    }

    fn key(self, name: &str) -> Option<Self> {
        if self.is_leaf() {
            return Some(self);
        }
        self.get(name).or_else(|| self.get("*"))
    }

    fn item(self) -> Option<Self> {
        if self.is_leaf() { Some(self) } else { self.get("[]") }
    }

    fn names(self) -> impl Iterator<Item = &'a str> {
        self.keys().map(|(name, _)| name).filter(|name| !["*", "[]"].contains(name))
    }
}

/// Unknown keys, and keys that only OpenClaw knows.
#[derive(Default)]
pub(crate) struct UnknownKeys {
    pub(crate) problems: Vec<ConfigProblem>,
    pub(crate) warnings: Vec<ConfigProblem>,
}

/// Finds keys that are not in the list of the sections.
pub(crate) fn find_unknown(root: &TreeNode, own_keys: &str, files: &Files) -> UnknownKeys {
    let mut scan = KeyScan { files, steps: Vec::new(), unknown: UnknownKeys::default() };
    scan.check_known(root, KnownKey::all(own_keys));
    scan.unknown
}

/// True if the list contains the key at a path, so that the sections read its value.
pub(crate) fn is_known(path: &Path, list: &str) -> bool {
    let known = path.steps().iter().try_fold(KnownKey::all(list), |known, step| match step {
        Step::Key(name) => known.key(name),
        Step::Index(_) => known.item(),
    });
    known.is_some()
}

struct KeyScan<'a> {
    files: &'a Files,
    steps: Vec<Step>,
    unknown: UnknownKeys,
}

impl KeyScan<'_> {
    /// Checks the value of a key that the sections know. A key in it that only OpenClaw knows is a warning, any other
    /// unknown key a problem.
    fn check_known(&mut self, node: &TreeNode, own_keys: KnownKey<'_>) {
        match &node.kind {
            Kind::Object(members) if own_keys.has_names() || self.steps.is_empty() => {
                for member in members {
                    self.steps.push(Step::Key(member.name.clone()));
                    match own_keys.get(&member.name).or_else(|| own_keys.get("*").filter(|_| !self.is_shell())) {
                        Some(own_keys) => self.check_known(&member.node, own_keys),
                        // A hint for editors, of no meaning here.
                        None if self.steps.len() == 1 && member.name == "$schema" => {}
                        None => match self.openclaws(0) {
                            Some(key) => self.warn(member).check_foreign(&member.node, key),
                            None => self.refuse(member, Some(own_keys), self.openclaws(1)),
                        },
                    }
                    self.steps.pop();
                }
            }
            Kind::Array(nodes) => {
                let Some(own_keys) = own_keys.get("[]") else { return };
                self.items(nodes, |scan, node| scan.check_known(node, own_keys));
            }
            Kind::Object(_) | Kind::Scalar(_) => {}
        }
    }

    /// Looks up the current path in OpenClaw's list, without its last `above` steps.
    fn openclaws(&self, above: usize) -> Option<KnownKey<'static>> {
        let mut steps = self.steps.iter().take(self.steps.len() - above);
        steps.try_fold(KnownKey::all(LIST), |known, step| match step {
            Step::Key(name) => known.key(name),
            Step::Index(_) => known.item(),
        })
    }

    /// True for the only key among the free names of `env` that is not a variable.
    fn is_shell(&self) -> bool {
        matches!(self.steps.as_slice(), [Step::Key(section), Step::Key(key)] if section == SECTION && key == SHELL)
    }

    /// Checks the value of a key that only OpenClaw knows: keys in it that OpenClaw does not know either are problems.
    fn check_foreign(&mut self, node: &TreeNode, openclaw_keys: KnownKey<'_>) {
        match &node.kind {
            Kind::Object(members) => {
                for member in members {
                    self.steps.push(Step::Key(member.name.clone()));
                    match openclaw_keys.key(&member.name) {
                        Some(key) => self.check_foreign(&member.node, key),
                        None => self.refuse(member, None, Some(openclaw_keys)),
                    }
                    self.steps.pop();
                }
            }
            Kind::Array(nodes) => {
                let Some(key) = openclaw_keys.item() else { return };
                self.items(nodes, |scan, node| scan.check_foreign(node, key));
            }
            Kind::Scalar(_) => {}
        }
    }

    fn items(&mut self, nodes: &[TreeNode], mut each: impl FnMut(&mut Self, &TreeNode)) {
        for (index, node) in nodes.iter().enumerate() {
            self.steps.push(Step::Index(index));
            each(self, node);
            self.steps.pop();
        }
    }

    fn warn(&mut self, member: &TreeMember) -> &mut Self {
        if self.unknown.warnings.len() < problem::MAX_PROBLEMS {
            let warning = self.problem(member, "is an OpenClaw key that has no effect in Homard yet", None);
            self.unknown.warnings.push(warning);
        }
        self
    }

    fn refuse(&mut self, member: &TreeMember, own_keys: Option<KnownKey<'_>>, openclaw_keys: Option<KnownKey<'_>>) {
        if self.unknown.problems.len() < problem::MAX_PROBLEMS {
            let names = own_keys.into_iter().chain(openclaw_keys).flat_map(KnownKey::names);
            let help = nearest(&member.name, names).map(|name| format!("did you mean {name:?}?"));
            let problem = self.problem(member, "is not a known key", help);
            self.unknown.problems.push(problem);
        }
    }

    fn problem(&self, member: &TreeMember, message: &str, help: Option<String>) -> ConfigProblem {
        let location = member.at.map(|at| self.files.location(at));
        ConfigProblem { path: dotted(&self.steps), location, message: message.to_owned(), help }
    }
}

/// Returns the name that was probably meant: at most a third of it differs; the first of the nearest.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let given = name.to_lowercase();
    let length = given.chars().count();
    if length > 64 {
        return None;
    }
    let max_distance = (length / 3).max(1).min(length.saturating_sub(1));
    let distances = names.map(|name| (strsim::osa_distance(&given, &name.to_lowercase()), name));
    distances
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    fn unknown_keys(tree: Value) -> (Vec<String>, Vec<String>) {
        let own_keys = "agents\n list\n  []\n   id\ngateway\n bind\n port\nnames\n *\n  x\n";
        let unknown = find_unknown(&TreeNode::without_locations(tree), own_keys, &Files::new(Path::new("config.json")));
        let messages = |problems: &[ConfigProblem]| problems.iter().map(ToString::to_string).collect();
        (messages(&unknown.problems), messages(&unknown.warnings))
    }

    #[test]
    fn keys_of_the_sections_are_known() {
        let tree = json!({"$schema": "x", "gateway": {"port": {"any": 1}}, "names": {"free": {"x": 1}}});
        assert_eq!(unknown_keys(tree), (vec![], vec![]));
    }

    #[test]
    fn a_typo_is_a_problem_with_a_suggestion() {
        let tree = json!({
            "gatewy": {}, "gateway": {"prot": 1, "controlUI": 1, "zzz": 1},
            "agents": {"list": [{}, {"di": 1}]}, "names": {"free": {"y": 1}},
        });
        assert_eq!(
            unknown_keys(tree).0,
            [
                "gatewy is not a known key; did you mean \"gateway\"?",
                "gateway.prot is not a known key; did you mean \"port\"?",
                "gateway.controlUI is not a known key; did you mean \"controlUi\"?",
                "gateway.zzz is not a known key",
                "agents.list[1].di is not a known key; did you mean \"id\"?",
                "names.free.y is not a known key",
            ]
        );
    }

    #[test]
    fn openclaws_keys_are_warned_about_once_and_typos_in_them_reported() {
        let tree = json!({
            "browser": {"enabled": true, "profiles": {"mine": {"cdpPort": 1, "cdpPrt": 2}}},
            "agents": {"list": [{"id": "a", "groupChat": {"mentionPatterns": []}}]},
            "channels": {"mine": {"x": 1}, "telegram": {"botTokn": "s3cret"}},
            "plugins": {"entries": {"mine": {"config": {"x": 1}}}},
        });
        let (problems, warnings) = unknown_keys(tree);
        assert_eq!(
            problems,
            [
                "browser.profiles.mine.cdpPrt is not a known key; did you mean \"cdpPort\"?",
                "channels.telegram.botTokn is not a known key; did you mean \"botToken\"?",
            ]
        );
        let keys = ["browser", "agents.list[0].groupChat", "channels", "plugins"];
        assert_eq!(warnings, keys.map(|key| format!("{key} is an OpenClaw key that has no effect in Homard yet")));
    }

    #[test]
    fn the_key_list_is_parsed_as_a_tree() {
        let list = KnownKey::all("# a comment\n# and more\na\n *\n  x\n []\nb\n");
        let names = |known: KnownKey<'static>| known.keys().map(|(name, _)| name).collect::<Vec<_>>();
        let [a, b] = ["a", "b"].map(|name| list.key(name).unwrap());
        assert_eq!((names(list), names(a), names(b)), (vec!["a", "b"], vec!["*", "[]"], vec![]));
        assert_eq!((list.key("c"), list.key("x"), list.item()), (None, None, None));
        let free = a.key("whatever").unwrap();
        assert_eq!((names(free), a.names().count()), (vec!["x"], 0));
        assert!([b, a.item().unwrap(), free.key("x").unwrap()].into_iter().all(KnownKey::is_leaf));
    }

    /// Every line is a key that can be found at its position, so none is indented too far or ends the list.
    #[test]
    fn every_line_of_the_key_list_is_reachable() {
        fn walk(known: KnownKey<'_>) -> usize {
            known.keys().map(|(_, key)| 1 + walk(key)).sum()
        }
        let lines = LIST.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(walk(KnownKey::all(LIST)), lines);
        assert!(LIST.ends_with('\n'));
    }

    #[test]
    fn similar_names_are_suggested() {
        let names = ["port", "bind", "password"];
        let near = |name| nearest(name, names.into_iter());
        assert_eq!(
            [near("prot"), near("PORT"), near("pasword"), near("bidn"), near("xyz"), near("")],
            [Some("port"), Some("port"), Some("password"), Some("bind"), None, None]
        );
    }
}
