//! `$include`: other files in the place of an object, or merged below its keys.
//!
//! A file that cannot be included is a problem at its `$include`; the keys beside it are still read.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use serde_json::Value;

use crate::{
    file::{self, Files},
    path::Step,
    problem::{self, ConfigProblem, SourceLocation},
    tree::{self, Kind, SourceOffset, TreeMember, TreeNode, dotted},
};

/// Key with which an object includes other files.
const INCLUDE: &str = "$include";
/// Maximum nesting depth of included files.
const MAX_DEPTH: usize = 10;
/// Maximum length of a name in bytes.
const MAX_NAME_BYTES: usize = 4096;
/// Maximum number of includes of one config.
const MAX_INCLUDES: usize = 256;
/// Maximum total size of all files in bytes.
const MAX_TOTAL_BYTES: usize = 32 << 20;

/// Resolves includes.
pub(crate) struct IncludeResolver<'a> {
    /// Folders in addition to the config's own from which files may be included.
    pub(crate) roots: &'a [PathBuf],
    pub(crate) files: &'a mut Files,
    /// Every requested file, including missing ones.
    pub(crate) watched: &'a mut Vec<PathBuf>,
    /// Included files, with the location of each include.
    pub(crate) included: &'a mut Vec<IncludedFile>,
    pub(crate) problems: &'a mut Vec<ConfigProblem>,
    pub(crate) warnings: &'a mut Vec<ConfigProblem>,
    /// Number of requested files.
    pub(crate) requested: usize,
    /// Files being read, from the config to the current one.
    pub(crate) chain: Vec<PathBuf>,
    /// Path of the current value.
    pub(crate) path: Vec<Step>,
}

/// An included file, and the location that names it.
pub(crate) struct IncludedFile {
    path: PathBuf,
    /// Key, as in `agents.$include`.
    key: String,
    location: Option<SourceLocation>,
}

impl IncludedFile {
    /// Returns a problem if one of these directories contains the file: an agent can write there.
    pub(crate) fn refuse_in(&self, directories: &[PathBuf]) -> Option<ConfigProblem> {
        let directory = directory_of(&self.path, directories)?;
        Some(ConfigProblem {
            path: self.key.clone(),
            location: self.location.clone(),
            message: format!(
                "names {}, which is in {}, where an agent can change it",
                self.path.display(),
                directory.display()
            ),
            help: Some("move the file out of the workspace".to_owned()),
        })
    }
}

/// Returns the directory that contains a file, if any. Symlinks are resolved.
pub(crate) fn directory_of<'a>(file: &Path, directories: &'a [PathBuf]) -> Option<&'a PathBuf> {
    let file = real(file);
    directories.iter().find(|directory| file.starts_with(real(directory)))
}

/// Resolves the symlinks in the existing part of a path.
fn real(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|above| Some((above.canonicalize().ok()?, above)));
    match existing {
        Some((real, above)) => path.strip_prefix(above).map_or_else(|_| real.clone(), |rest| real.join(rest)),
        None => path.to_owned(),
    }
}

impl IncludeResolver<'_> {
    /// Parses the text of the file at the end of the chain; an empty object if it is invalid.
    pub(crate) fn read(&mut self, text: String) -> TreeNode {
        let path = self.chain.last().cloned().unwrap_or_default();
        let file = self.files.add(&path, text);
        match tree::parse(self.files.text(file), file) {
            Ok(parsed) => {
                for (steps, at) in
                    parsed.repeated.into_iter().take(problem::MAX_PROBLEMS.saturating_sub(self.warnings.len()))
                {
                    self.warnings.push(ConfigProblem {
                        path: dotted(&[self.path.clone(), steps].concat()),
                        location: Some(self.files.location(at)),
                        message: "is defined twice; the last definition applies".to_owned(),
                        help: Some("remove one of them".to_owned()),
                    });
                }
                self.resolve(parsed.node)
            }
            Err(error) => {
                self.problems.push(ConfigProblem {
                    path: String::new(),
                    location: Some(self.files.location(error.at)),
                    message: error.message,
                    help: None,
                });
                TreeNode { at: None, kind: Kind::Object(Vec::new()) }
            }
        }
    }

    fn resolve(&mut self, node: TreeNode) -> TreeNode {
        let kind = match node.kind {
            Kind::Object(members) => return self.object(node.at, members),
            Kind::Array(nodes) => {
                let resolved = nodes.into_iter().enumerate().map(|(index, node)| {
                    self.path.push(Step::Index(index));
                    let node = self.resolve(node);
                    self.path.pop();
                    node
                });
                Kind::Array(resolved.collect())
            }
            Kind::Scalar(value) => Kind::Scalar(value),
        };
        TreeNode { at: node.at, kind }
    }

    fn object(&mut self, at: Option<SourceOffset>, members: Vec<TreeMember>) -> TreeNode {
        let mut include = None;
        let mut siblings = Vec::with_capacity(members.len());
        for member in members {
            if member.name == INCLUDE {
                include = Some(member.node);
                continue;
            }
            self.path.push(Step::Key(member.name.clone()));
            siblings.push(TreeMember { node: self.resolve(member.node), ..member });
            self.path.pop();
        }
        let is_bare = siblings.is_empty();
        let siblings = TreeNode { at, kind: Kind::Object(siblings) };
        let Some(include) = include else { return siblings };
        let Some(included) = self.included(&include) else { return siblings };
        if is_bare {
            return included;
        }
        match included.kind {
            Kind::Object(_) => included.merged(siblings),
            Kind::Array(_) | Kind::Scalar(_) => {
                self.refuse(
                    &include,
                    "names a file that is not an object, so it cannot be merged with the other keys",
                    None,
                );
                siblings
            }
        }
    }

    /// Returns the merged content of the named files.
    fn included(&mut self, include: &TreeNode) -> Option<TreeNode> {
        let names: Vec<(&TreeNode, &str)> = match &include.kind {
            Kind::Scalar(Value::String(name)) => vec![(include, name)],
            Kind::Array(nodes) => nodes.iter().filter_map(|node| Some((node, text(node)?))).collect(),
            Kind::Object(_) | Kind::Scalar(_) => Vec::new(),
        };
        let wanted = if let Kind::Array(nodes) = &include.kind { nodes.len() } else { 1 };
        if names.len() != wanted {
            self.refuse(include, "must be a file name or a list of file names", None);
        }
        let mut merged: Option<TreeNode> = None;
        for (node, name) in names {
            let Some(next) = self.file(node, name) else { continue };
            merged = Some(match merged {
                Some(base) => base.merged(next),
                None => next,
            });
        }
        merged
    }

    fn file(&mut self, node: &TreeNode, name: &str) -> Option<TreeNode> {
        self.requested += 1;
        let path = match self.find(name) {
            Ok(path) => path,
            Err((message, help)) => {
                self.refuse(node, &message, help);
                return None;
            }
        };
        if !self.watched.contains(&path) {
            self.watched.push(path.clone());
        }
        let key = dotted(&[self.path.as_slice(), &[Step::Key(INCLUDE.to_owned())]].concat());
        let location = node.at.map(|at| self.files.location(at));
        self.included.push(IncludedFile { path: path.clone(), key, location });
        let text = match file::read(&path) {
            Ok(Some(bytes)) => file::text(bytes),
            Ok(None) => Err("does not exist".to_owned()),
            Err(why) => Err(why),
        };
        match text {
            Ok(text) => {
                self.chain.push(path);
                let node = self.read(text);
                self.chain.pop();
                Some(node)
            }
            Err(why) => {
                let message = format!("of {} names {}, which {why}", self.name(self.from()), self.name(&path));
                self.refuse(node, &message, None);
                None
            }
        }
    }

    /// Returns the path of an included file, or why it must not be read, with advice. The reason continues a sentence
    /// that starts with the path of the `$include` key.
    fn find(&self, name: &str) -> Result<PathBuf, (String, Option<&'static str>)> {
        if name.is_empty() || name.contains('\0') || name.len() >= MAX_NAME_BYTES {
            return Err((format!("must be a file name of fewer than {MAX_NAME_BYTES} bytes"), None));
        }
        if self.requested > MAX_INCLUDES || self.files.size() > MAX_TOTAL_BYTES {
            return Err((
                format!("exceeds the limit of {MAX_INCLUDES} files or {} MiB in total", MAX_TOTAL_BYTES >> 20),
                None,
            ));
        }
        let path = plain(&self.from().parent().unwrap_or(Path::new("")).join(name));
        if !self.is_allowed(&path) {
            let message = format!("of {} names {name}, which is outside the config directory", self.name(self.from()));
            return Err((message, Some("move the file there, or add its directory to HOMARD_INCLUDE_ROOTS")));
        }
        let chain = || {
            let names: Vec<_> = self.chain.iter().chain([&path]).map(|file| self.name(file)).collect();
            names.join(" → ")
        };
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if self.chain.iter().any(|file| real(file) == real(&path)) {
            return Err((format!("creates an include cycle: {}", chain()), None));
        }
        if self.chain.len() > MAX_DEPTH {
            return Err((format!("is nested more than {MAX_DEPTH} files deep: {}", chain()), None));
        }
        Ok(path)
    }

    /// True if a file is in a folder from which files may be included. Symlinks are resolved.
    fn is_allowed(&self, path: &Path) -> bool {
        let config_folder = self.files.folder();
        let folders = || std::iter::once(config_folder).chain(self.roots.iter().map(PathBuf::as_path));
        match fs::canonicalize(path) {
            Ok(real) => folders().any(|folder| {
                let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                fs::canonicalize(folder).is_ok_and(|folder| real.starts_with(folder))
            }),
            Err(_) => folders().any(|folder| path.starts_with(plain(folder))),
        }
    }

    /// Returns the file being read.
    fn from(&self) -> &Path {
        self.chain.last().map_or(Path::new(""), PathBuf::as_path)
    }

    fn name(&self, file: &Path) -> String {
        self.files.name(file).display().to_string()
    }

    fn refuse(&mut self, node: &TreeNode, message: &str, help: Option<&str>) {
        if self.problems.len() >= problem::MAX_PROBLEMS {
            return;
        }
        self.problems.push(ConfigProblem {
            path: dotted(&[self.path.as_slice(), &[Step::Key(INCLUDE.to_owned())]].concat()),
            location: node.at.map(|at| self.files.location(at)),
            message: message.to_owned(),
            help: help.map(str::to_owned),
        });
    }
}

fn text(node: &TreeNode) -> Option<&str> {
    match &node.kind {
        Kind::Scalar(Value::String(text)) => Some(text),
        Kind::Scalar(_) | Kind::Object(_) | Kind::Array(_) => None,
    }
}

/// Normalizes `.` and `..` in a path, as far as possible.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            Component::ParentDir if plain.has_root() => {}
            Component::ParentDir | Component::Normal(_) | Component::RootDir | Component::Prefix(_) => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct ResolvedTree {
        value: Value,
        problems: Vec<String>,
        watched: Vec<PathBuf>,
    }

    /// Reads `config/main.json` of these files.
    fn include(files: &[(&str, &str)], roots: &[&str]) -> ResolvedTree {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let main = folder.path().join("config/main.json");
        let roots: Vec<_> = roots.iter().map(|root| folder.path().join(root)).collect();
        let (mut watched, mut problems, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
        let node = IncludeResolver {
            roots: &roots,
            files: &mut Files::new(&main),
            watched: &mut watched,
            included: &mut Vec::new(),
            problems: &mut problems,
            warnings: &mut warnings,
            requested: 0,
            chain: vec![main.clone()],
            path: Vec::new(),
        }
        .read(fs::read_to_string(&main).unwrap());
        let message = |problem: &ConfigProblem| problem.to_string().replace(folder.path().to_str().unwrap(), "");
        ResolvedTree {
            value: node.value(),
            problems: problems.iter().map(message).collect(),
            watched: watched.iter().map(|path| path.strip_prefix(folder.path()).unwrap().to_owned()).collect(),
        }
    }

    #[test]
    fn one_include_replaces_and_several_are_merged_below_sibling_keys() {
        let resolved = include(
            &[
                ("config/main.json", "{a: {$include: './more/a.json'}, b: {$include: ['b1.json', 'b2.json'], z: [3]}}"),
                ("config/more/a.json", "{list: {$include: 'list.json'}}"),
                ("config/more/list.json", "[1, 2]"),
                ("config/b1.json", "{x: 1, y: {p: 1}, z: [1]}"),
                ("config/b2.json", "{x: 2, y: {q: 2}, z: [2]}"),
            ],
            &[],
        );
        assert_eq!(
            resolved.value,
            json!({"a": {"list": [1, 2]}, "b": {"x": 2, "y": {"p": 1, "q": 2}, "z": [1, 2, 3]}})
        );
        assert_eq!(resolved.problems, [""; 0]);
        let watched = ["more/a.json", "more/list.json", "b1.json", "b2.json"];
        assert_eq!(resolved.watched, watched.map(|name| Path::new("config").join(name)));
    }

    #[test]
    fn a_failed_include_is_reported_and_other_keys_are_read() {
        let resolved = include(
            &[
                (
                    "config/main.json",
                    "{\n a: {$include: 'none.json', x: 1},\n b: {$include: 7},\n c: {$include: ['list.json', 1], x: 1},\n \
                     d: {$include: ''},\n e: {$include: 'sub'},\n f: {$include: 'sub/bad.json'}}",
                ),
                ("config/list.json", "[]"),
                ("config/sub/bad.json", "{\n  x: }"),
            ],
            &[],
        );
        assert_eq!(resolved.value, json!({"a": {"x": 1}, "b": {}, "c": {"x": 1}, "d": {}, "e": {}, "f": {}}));
        assert_eq!(
            resolved.problems,
            [
                "line 2, column 16: a.$include of main.json names none.json, which does not exist",
                "line 3, column 16: b.$include must be a file name or a list of file names",
                "line 4, column 16: c.$include must be a file name or a list of file names",
                "line 4, column 16: c.$include names a file that is not an object, so it cannot be merged with the other keys",
                "line 5, column 16: d.$include must be a file name of fewer than 4096 bytes",
                "line 6, column 16: e.$include of main.json names sub, which is a directory",
                "sub/bad.json, line 2, column 6: unexpected close brace",
            ]
        );
    }

    #[test]
    fn files_outside_the_config_directory_need_an_include_root() {
        let files = [
            ("config/main.json", "{a: {$include: '../far/a.json'}, b: {$include: '../far/none.json'}}"),
            ("far/a.json", "{x: 1}"),
        ];
        let refused = |column, key, name| {
            format!(
                "line 1, column {column}: {key}.$include of main.json names ../far/{name}, which is outside the \
                 config directory; move the file there, or add its directory to HOMARD_INCLUDE_ROOTS"
            )
        };
        let resolved = include(&files, &[]);
        assert_eq!(resolved.problems, [refused(16, "a", "a.json"), refused(48, "b", "none.json")]);
        assert_eq!(resolved.value, json!({"a": {}, "b": {}}));
        let resolved = include(&files, &["far"]);
        assert_eq!(
            resolved.problems,
            ["line 1, column 48: b.$include of main.json names /far/none.json, which does not exist"]
        );
        assert_eq!(resolved.value, json!({"a": {"x": 1}, "b": {}}));
    }

    #[test]
    fn a_symlink_counts_as_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        fs::create_dir(&config).unwrap();
        fs::write(folder.path().join("secret.json"), "{x: 1}").unwrap();
        std::os::unix::fs::symlink("../secret.json", config.join("link.json")).unwrap();
        let main = config.join("main.json");
        let files = &mut Files::new(&main);
        let (watched, included) = (&mut Vec::new(), &mut Vec::new());
        let (problems, warnings, chain) = (&mut Vec::new(), &mut Vec::new(), vec![main]);
        let mut include = IncludeResolver {
            roots: &[],
            files,
            watched,
            included,
            problems,
            warnings,
            requested: 0,
            chain,
            path: Vec::new(),
        };
        assert_eq!(include.read("{$include: 'link.json'}".to_owned()).value(), json!({}));
        assert_eq!(problems[0].message, "of main.json names link.json, which is outside the config directory");
    }

    #[test]
    fn include_cycles_and_deep_chains_are_rejected() {
        let resolved = include(
            &[("config/main.json", "{$include: 'a.json', x: 1}"), ("config/a.json", "{b: {$include: './main.json'}}")],
            &[],
        );
        assert_eq!(resolved.value, json!({"b": {}, "x": 1}));
        assert_eq!(
            resolved.problems,
            ["a.json, line 1, column 16: b.$include creates an include cycle: main.json → a.json → main.json"]
        );
        let deep: Vec<_> = (1..=11)
            .map(|at| (format!("config/{at}.json"), format!("{{x{at}: 1, $include: '{}.json'}}", at + 1)))
            .chain([("config/main.json".to_owned(), "{$include: '1.json'}".to_owned())])
            .collect();
        let resolved =
            include(&deep.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>(), &[]);
        let links: Vec<_> = (1..=11).map(|at| format!("{at}.json")).collect();
        assert_eq!(
            resolved.problems,
            [format!(
                "10.json, line 1, column 20: $include is nested more than 10 files deep: main.json → {}",
                links.join(" → ")
            )]
        );
        assert_eq!(resolved.value.as_object().map(serde_json::Map::len), Some(10));
    }

    #[test]
    fn the_number_of_includes_is_bounded() {
        let text = |next: usize| format!("{{$include: [{}]}}", format!("'{next}.json',").repeat(10));
        let files: Vec<_> = (1..=9)
            .map(|at| (format!("config/{at}.json"), text(at + 1)))
            .chain([("config/main.json".to_owned(), text(1)), ("config/10.json".to_owned(), "{}".to_owned())])
            .collect();
        let resolved =
            include(&files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>(), &[]);
        assert!(resolved.problems[0].ends_with("$include exceeds the limit of 256 files or 32 MiB in total"));
        assert!(resolved.problems.len() <= 50, "{}", resolved.problems.len());
    }
}
