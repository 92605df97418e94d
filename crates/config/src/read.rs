//! Reads the config: files, includes, variables, sections, unknown keys, in this order.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use jsonc_parser::{CollectOptions, parse_to_ast};
use serde_json::{Map, Value};

use crate::{
    check::{CheckedSections, check},
    cross::{PartFault, Sections, with_locations},
    file::{self, Files},
    include::{self, IncludeResolver},
    known, path,
    problem::{self, ConfigFault, ConfigProblem},
    tree::{Kind, OPTIONS, TreeNode, without},
    variables::{self, SecretReference},
    write::hash,
};

/// Environment in which the config is read.
#[derive(Clone, Copy)]
pub struct ReadEnvironment<'a> {
    /// Environment variables.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Secrets that the config names; the error completes a sentence that begins with the key.
    pub secret: &'a (dyn Fn(SecretReference<'_>) -> Result<String, String> + Sync),
    /// Folders in addition to the config's own from which it may include files.
    pub include_roots: &'a [PathBuf],
}

impl fmt::Debug for ReadEnvironment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadEnvironment").field("include_roots", &self.include_roots).finish_non_exhaustive()
    }
}

/// A config that was read. Its values may be secrets, so debug output omits them.
#[derive(Clone)]
pub struct LoadedConfig<T> {
    /// Sections, without invalid values.
    pub config: T,
    /// All files merged, variables not substituted.
    pub source: Value,
    /// All files merged, variables substituted; texts with an unset variable are omitted.
    pub tree: Value,
    /// Text of the config file, if it exists and is text.
    pub text: Option<String>,
    /// SHA-256 of the config file's bytes in hex; of an empty file if it cannot be read.
    pub hash: String,
    /// Files to watch: the config and all that it includes, including missing ones.
    pub files: Vec<PathBuf>,
    /// Variables that the `env` section adds to the environment.
    pub variables: BTreeMap<String, String>,
    /// Why the config cannot be used.
    pub problems: Vec<ConfigProblem>,
    /// Why parts of the config, or all of it, cannot run. Such parts are not in `config`.
    pub faults: Vec<ConfigFault>,
    /// Warnings; the config may still be valid.
    pub warnings: Vec<ConfigProblem>,
}

impl<T> LoadedConfig<T> {
    /// True if there are no problems, not even some that make only a part unusable.
    pub fn is_valid(&self) -> bool {
        self.is_usable() && self.faults.is_empty()
    }

    /// True if the config can be used, possibly without some of its parts.
    pub fn is_usable(&self) -> bool {
        self.problems.is_empty()
    }

    /// Returns the first included file that is in one of these directories.
    pub fn included_below(&self, directories: &[PathBuf]) -> Option<&Path> {
        let is_below = |file: &&PathBuf| include::directory_of(file, directories).is_some();
        self.files.iter().skip(1).find(is_below).map(PathBuf::as_path)
    }

    /// Returns all problems, including those that make only a part unusable, in the order of the files.
    pub fn all_problems(&self) -> Vec<ConfigProblem> {
        let faults = self.faults.iter().map(|fault| &fault.problem);
        let mut all: Vec<_> = self.problems.iter().chain(faults).cloned().collect();
        ConfigProblem::sort(&mut all);
        all
    }
}

impl<T> fmt::Debug for LoadedConfig<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedConfig")
            .field("hash", &self.hash)
            .field("files", &self.files)
            .field("variables", &self.variables.keys())
            .field("problems", &self.problems)
            .field("faults", &self.faults)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

/// Reads the config file; a missing one is an empty config. Writes nothing.
pub fn read<T: Sections>(path: &Path, env: &ReadEnvironment<'_>) -> LoadedConfig<T> {
    match file::read(path) {
        Ok(Some(bytes)) => read_bytes(path, bytes, env),
        Ok(None) => empty_config(path, env),
        Err(why) => {
            LoadedConfig { problems: vec![whole_file_problem(format!("the file {why}"))], ..empty_config(path, env) }
        }
    }
}

/// Reads a text as if it were the config file, to validate it before it is written.
pub fn read_text<T: Sections>(path: &Path, text: &str, env: &ReadEnvironment<'_>) -> LoadedConfig<T> {
    read_bytes(path, text.as_bytes().to_vec(), env)
}

/// Returns the config of a missing file.
fn empty_config<T: Sections>(path: &Path, env: &ReadEnvironment<'_>) -> LoadedConfig<T> {
    let empty = TreeNode::without_locations(Value::Object(Map::new()));
    LoadedConfig { hash: hash(&[]), files: vec![path.to_owned()], ..sections(empty, env, &Files::new(path)) }
}

fn read_bytes<T: Sections>(path: &Path, bytes: Vec<u8>, env: &ReadEnvironment<'_>) -> LoadedConfig<T> {
    let hash = hash(&bytes);
    let raw = String::from_utf8(bytes.clone()).ok();
    let mut files = Files::new(path);
    let (mut watched, mut included) = (vec![path.to_owned()], Vec::new());
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    let text = file::text(bytes).unwrap_or_else(|why| {
        problems.push(whole_file_problem(format!("the file {why}")));
        "{}".to_owned()
    });
    if has_no_value(&text) {
        // More likely a truncated file than a wish to have no settings.
        let help = Some("write {} for an empty config".to_owned());
        problems.push(ConfigProblem { help, ..whole_file_problem("the file is empty".to_owned()) });
    }
    let mut node = IncludeResolver {
        roots: env.include_roots,
        files: &mut files,
        watched: &mut watched,
        included: &mut included,
        problems: &mut problems,
        warnings: &mut warnings,
        requested: 0,
        chain: vec![path.to_owned()],
        path: Vec::new(),
    }
    .read(text);
    if !matches!(node.kind, Kind::Object(_)) {
        let location = node.at.map(|at| files.location(at));
        problems.push(ConfigProblem { location, ..whole_file_problem("the whole file must be an object".to_owned()) });
        node = TreeNode::without_locations(Value::Object(Map::new()));
    }
    let read = sections::<T>(node, env, &files);
    problems.extend(read.problems);
    if !included.is_empty() {
        let directories = read.config.agent_directories();
        problems.extend(included.iter().filter_map(|file| file.refuse_in(&directories)).take(problem::MAX_PROBLEMS));
    }
    warnings.extend(read.warnings);
    ConfigProblem::sort(&mut problems);
    ConfigProblem::sort(&mut warnings);
    let mut config = read.config;
    config.note_files(&watched);
    LoadedConfig { config, text: raw, hash, files: watched, problems, warnings, ..read }
}

/// Reads the sections of a merged tree, whatever its source.
pub(crate) fn sections<T: Sections>(mut node: TreeNode, env: &ReadEnvironment<'_>, files: &Files) -> LoadedConfig<T> {
    let source = node.value();
    let substitution = variables::substitute_all(&mut node, env, files);
    let tree = node.value();
    let location = |steps: &[_]| node.find(steps)?.at.map(|at| files.location(at));
    let CheckedSections { mut config, problems: invalid, omitted } =
        check::<T>(&tree, substitution.unfilled.clone(), &location);
    let (mut faults, unused) = faults::<T>(substitution.unset);
    for fault in &faults {
        if let Some(part) = &fault.part {
            config.disable_part(part, &fault.problem);
        }
    }
    let findings = config.cross_check();
    let [cross_problems, warnings] =
        [findings.problems, findings.warnings].map(|findings| with_locations(findings, &tree, &omitted, &location));
    faults.extend(findings.faults.into_iter().flat_map(|PartFault { part, path, what }| {
        let problems = with_locations(vec![(path, what)], &tree, &omitted, &location);
        problems.into_iter().map(move |problem| ConfigFault { part: Some(part.clone()), problem })
    }));
    let unknown = known::find_unknown(&node, &T::keys(), files);
    LoadedConfig {
        config,
        source,
        tree: without(&tree, &substitution.unfilled),
        text: None,
        hash: String::new(),
        files: Vec::new(),
        variables: substitution.variables,
        problems: [substitution.problems, invalid, cross_problems, unknown.problems].concat(),
        faults,
        warnings: [unknown.warnings, warnings, unused].concat(),
    }
}

/// Classifies unset variables: a fault if a section needs one, a warning if only keys without an effect do.
fn faults<T: Sections>(unset: Vec<(path::Path, ConfigProblem)>) -> (Vec<ConfigFault>, Vec<ConfigProblem>) {
    let keys = T::keys();
    let (effective, ineffective): (Vec<_>, Vec<_>) =
        unset.into_iter().partition(|(path, _)| known::is_known(path, &keys));
    let fault = |(path, problem): (path::Path, ConfigProblem)| ConfigFault { part: T::part_of(&path), problem };
    (effective.into_iter().map(fault).collect(), ineffective.into_iter().map(|(_, problem)| problem).collect())
}

/// True if a text contains only whitespace and comments.
fn has_no_value(text: &str) -> bool {
    parse_to_ast(text, &CollectOptions::default(), &OPTIONS).is_ok_and(|parsed| parsed.value.is_none())
}

fn whole_file_problem(message: String) -> ConfigProblem {
    ConfigProblem { path: String::new(), location: None, message, help: None }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::{Findings, path};

    #[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Config {
        token: Option<String>,
        list: Vec<u8>,
        channels: BTreeMap<String, Channel>,
        workspace: Option<PathBuf>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Channel {
        key: Option<String>,
        #[serde(skip)]
        why: Option<String>,
    }

    impl Sections for Config {
        fn part_of(path: &path::Path) -> Option<path::Path> {
            let channels = path::Path::root().key("channels");
            (path.starts_with(&channels) && path.steps().len() > 1).then(|| path.first(2))
        }

        fn disable_part(&mut self, part: &path::Path, why: &ConfigProblem) {
            for (name, channel) in &mut self.channels {
                if *part == path::Path::root().key("channels").key(name) {
                    channel.why = Some(why.to_string());
                }
            }
        }

        fn agent_directories(&self) -> Vec<PathBuf> {
            self.workspace.clone().into_iter().collect()
        }

        /// The list must be ascending; a token of one letter is a warning.
        fn cross_check(&self) -> Findings {
            let list = path::Path::root().key("list");
            let descending = (1..self.list.len()).filter(|at| self.list[*at] <= self.list[at - 1]);
            let problems = descending.map(|at| (list.index(at), "must rise".to_owned())).collect();
            let short = self.token.iter().filter(|token| token.len() == 1);
            let token = path::Path::root().key("token");
            Findings {
                problems,
                faults: Vec::new(),
                warnings: short.map(|_| (token.clone(), "is short".to_owned())).collect(),
            }
        }
    }

    const EMPTY_HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn read_with(path: &Path) -> LoadedConfig<Config> {
        let variable = |name: &str| (name == "KEY").then(|| "sk-1".to_owned());
        read(
            path,
            &ReadEnvironment { variable: &variable, secret: &|_| Err("is not there".to_owned()), include_roots: &[] },
        )
    }

    fn messages(problems: &[ConfigProblem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_config_is_read_with_includes_variables_and_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let text = "\u{feff}{env: {NEW: 'n3w'}, token: '${KEY}${NEW}', list: ['${UNSET}', 1], $include: 'more.json'}";
        fs::write(&path, text).unwrap();
        let loaded = read_with(&path);
        let config = Config { token: Some("sk-1n3w".to_owned()), list: vec![1], ..Config::default() };
        assert_eq!(loaded.config, config);
        let source = json!({"env": {"NEW": "n3w"}, "token": "${KEY}${NEW}", "list": ["${UNSET}", 1]});
        assert_eq!(loaded.source, source);
        assert_eq!(loaded.tree, json!({"env": {"NEW": "n3w"}, "token": "sk-1n3w", "list": [1]}));
        assert_eq!(loaded.text.as_deref(), Some(text));
        assert_eq!(loaded.hash, hash(text.as_bytes()));
        assert_eq!(loaded.files, [path, folder.path().join("more.json")]);
        assert_eq!(loaded.variables, BTreeMap::from([("NEW".to_owned(), "n3w".to_owned())]));
        assert_eq!(
            messages(&loaded.all_problems()),
            [
                "line 1, column 51: list[0] needs the environment variable UNSET, which is not set",
                "line 1, column 77: $include of config.json names more.json, which does not exist",
            ]
        );
        let debug = format!("{loaded:?}");
        assert!(!debug.contains("n3w") && !debug.contains("sk-1"), "{debug}");
    }

    #[test]
    fn an_unset_variable_disables_the_part_that_needs_it() {
        let env =
            ReadEnvironment { variable: &|_| None, secret: &|_| Err("is not there".to_owned()), include_roots: &[] };
        let read = |text: &str| read_text::<Config>(Path::new("config.json"), text, &env);
        let loaded = read("{channels: {a: {key: '${UNSET}'}, b: {key: 'k'}}}");
        assert!(loaded.is_usable() && !loaded.is_valid());
        let part = path::Path::root().key("channels").key("a");
        let why = "line 1, column 22: channels.a.key needs the environment variable UNSET, which is not set";
        assert_eq!(loaded.faults.iter().map(|fault| fault.part.clone()).collect::<Vec<_>>(), [Some(part)]);
        assert_eq!(messages(&loaded.all_problems()), [why]);
        let channels = &loaded.config.channels;
        assert_eq!((channels["a"].why.as_deref(), &channels["a"].key, &channels["b"].why), (Some(why), &None, &None));
        // An unset value that belongs to no part prevents everything from running.
        let loaded = read("{token: '${UNSET}'}");
        assert_eq!(loaded.faults.iter().map(|fault| fault.part.clone()).collect::<Vec<_>>(), [None]);
        // A key that only OpenClaw knows has no effect, whatever it needs.
        let loaded = read("{browser: {enabled: '${UNSET}'}}");
        assert_eq!((loaded.faults.len(), loaded.warnings.len()), (0, 2));
        assert!(messages(&loaded.warnings)[1].contains("browser.enabled needs the environment variable UNSET"));
    }

    #[test]
    fn a_missing_file_is_an_empty_config() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let loaded = read_with(&path);
        assert_eq!((loaded.config, loaded.source, loaded.text), (Config::default(), json!({}), None));
        assert_eq!((loaded.hash.as_str(), loaded.files), (EMPTY_HASH, vec![path]));
        assert_eq!((loaded.problems, loaded.warnings), (vec![], vec![]));
    }

    #[test]
    fn an_empty_file_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        for text in ["", " \n", "\u{feff}", "// {token: 't'}\n/* none */"] {
            fs::write(&path, text).unwrap();
            let loaded = read_with(&path);
            assert_eq!(messages(&loaded.problems), ["the file is empty; write {} for an empty config"], "{text:?}");
            assert_eq!((loaded.text.as_deref(), loaded.config), (Some(text), Config::default()));
        }
        fs::write(&path, "{} // none").unwrap();
        assert_eq!(read_with(&path).problems, []);
    }

    #[test]
    fn an_unreadable_file_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let loaded = read_with(folder.path());
        assert_eq!(messages(&loaded.problems), ["the file is a directory"]);
        assert_eq!((loaded.text, loaded.hash.as_str()), (None, EMPTY_HASH));
        let circle = folder.path().join("circle");
        std::os::unix::fs::symlink("circle", &circle).unwrap();
        let problems = messages(&read_with(&circle).problems);
        assert!(problems.len() == 1 && problems[0].starts_with("the file cannot be read: "), "{problems:?}");
        let binary = folder.path().join("binary");
        fs::write(&binary, b"{}\xff").unwrap();
        let loaded = read_with(&binary);
        assert_eq!(messages(&loaded.problems), ["the file is not valid UTF-8: byte 3 is invalid"]);
        assert_eq!((loaded.text, loaded.config), (None, Config::default()));
    }

    #[test]
    fn a_text_can_be_validated_before_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("more.json"), "{list: [1]}").unwrap();
        let env =
            ReadEnvironment { variable: &|_| None, secret: &|_| Err("is not there".to_owned()), include_roots: &[] };
        let loaded: LoadedConfig<Config> =
            read_text(&folder.path().join("config.json"), "{$include: 'more.json'}", &env);
        assert_eq!((loaded.config.list, loaded.problems), (vec![1], vec![]));
    }

    #[test]
    fn a_file_that_an_agent_can_write_is_not_included() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        fs::write(workspace.join("n.json"), "{token: '${KEY}'}").unwrap();
        fs::write(folder.path().join("mine.json"), "{workspace: 'elsewhere', more: {$include: 'link/n.json'}}")
            .unwrap();
        std::os::unix::fs::symlink("workspace", folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink("workspace", folder.path().join("alias")).unwrap();
        let path = folder.path().join("config.json");
        let problems_of = |include: &str| {
            let workspace_link = folder.path().join("alias");
            fs::write(&path, format!("{{workspace: {workspace_link:?}, $include: {include:?}}}")).unwrap();
            let loaded = read_with(&path);
            assert!(!loaded.is_usable(), "{include}");
            loaded.problems.iter().map(|problem| (problem.path.clone(), problem.to_string())).collect::<Vec<_>>()
        };
        for include in ["workspace/n.json", "./link/../workspace/n.json", "link/n.json", "workspace/later.json"] {
            let problems = problems_of(include);
            let (key, text) = problems.iter().find(|(_, text)| text.contains("an agent can change it")).unwrap();
            assert_eq!(key, "$include", "{include}");
            assert!(text.ends_with("; move the file out of the workspace"), "{text}");
        }
        // An included file is checked by the same rule, and does not define the workspace if the config does.
        assert!(problems_of("mine.json").iter().any(|(key, _)| key == "more.$include"));
        fs::write(&path, "{workspace: '/nowhere', $include: 'workspace/n.json'}").unwrap();
        assert!(read_with(&path).is_usable());
    }

    #[test]
    fn findings_across_values_have_locations() {
        let env =
            ReadEnvironment { variable: &|_| None, secret: &|_| Err("is not there".to_owned()), include_roots: &[] };
        let read = |text: &str| read_text::<Config>(Path::new("config.json"), text, &env);
        let loaded = read("{token: 't',\n list: [1,\n 3, 2]}");
        assert_eq!(messages(&loaded.problems), ["line 3, column 5: list[2] must rise"]);
        assert_eq!(messages(&loaded.warnings), ["line 1, column 9: token is short"]);
        // Omitted values still count for locations, and cause no further problems.
        let loaded = read("{list: [1, 'x', '${UNSET}', 0]}");
        assert_eq!(
            messages(&loaded.all_problems()),
            [
                "line 1, column 12: list[1] must be a whole number from 0 to 255",
                "line 1, column 17: list[2] needs the environment variable UNSET, which is not set",
                "line 1, column 29: list[3] must rise",
            ]
        );
    }
}
