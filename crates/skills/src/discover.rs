//! Which skills lie in the folders, and which of two with one name is meant.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::{
    skill::{self, Origin, Skill, Source},
    walk::{Candidate, Kind, Walk},
};

/// The folders in which skills lie, weakest first: of two skills with one name, the one found later is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roots {
    /// `skills.load.extraDirs`.
    pub extra: Vec<PathBuf>,
    /// Folders of enabled plugins.
    pub plugins: Vec<PathBuf>,
    /// What is shipped with the program.
    pub bundled: Option<PathBuf>,
    /// `<state>/skills`.
    pub managed: PathBuf,
    /// `~/.agents/skills`.
    pub personal: Option<PathBuf>,
    /// `<workspace>/.agents/skills`.
    pub project: Option<PathBuf>,
    /// `<workspace>/skills`.
    pub workspace: PathBuf,
}

impl Roots {
    /// The usual places for a state directory, a home and a workspace.
    pub fn usual(state: &Path, home: Option<&Path>, workspace: &Path) -> Self {
        Self {
            managed: state.join("skills"),
            personal: home.map(|home| home.join(".agents/skills")),
            project: Some(workspace.join(".agents/skills")),
            workspace: workspace.join("skills"),
            ..Self::default()
        }
    }

    /// Every folder with its kind, weakest first; also what a watcher should watch.
    pub fn folders(&self) -> Vec<(Source, &Path)> {
        let extra = self.extra.iter().map(|root| (Source::Extra, root));
        let plugins = self.plugins.iter().map(|root| (Source::Plugin, root));
        let bundled = self.bundled.iter().map(|root| (Source::Bundled, root));
        let personal = self.personal.iter().map(|root| (Source::Personal, root));
        let project = self.project.iter().map(|root| (Source::Project, root));
        extra
            .chain(plugins)
            .chain(bundled)
            .chain([(Source::Managed, &self.managed)])
            .chain(personal)
            .chain(project)
            .chain([(Source::Workspace, &self.workspace)])
            .map(|(source, root)| (source, root.as_path()))
            .filter(|(_, root)| !root.as_os_str().is_empty())
            .collect()
    }
}

/// How much of a root is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How far below a root a skill may lie.
    pub depth: usize,
    /// How many folders of a root are looked into.
    pub folders: usize,
    /// How many skill files of a root are read.
    pub candidates: usize,
    /// How many bytes a skill file may have.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 6, folders: 5_000, candidates: 300, file_bytes: 256 * 1024 }
    }
}

/// What lies in the folders.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// The skills, by name.
    pub skills: Vec<Skill>,
    /// What is wrong or worth knowing, by path.
    pub problems: Vec<Problem>,
}

/// Something about a path that its owner should know; the rest is read all the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// What it is about.
    pub path: PathBuf,
    /// The rest of a sentence that begins with the path.
    pub what: String,
    /// Whether something should be repaired.
    pub level: Level,
}

/// How much a [`Problem`] matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Good to know.
    Info,
    /// Somebody should repair it.
    Warning,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.what)
    }
}

/// Reads every root. What cannot be read is left out and told.
pub fn discover(roots: &Roots, limits: &Limits) -> Found {
    discover_allowed(roots, limits, &|_, _| true)
}

/// The same, but for files that may not be loaded: `allows` is asked with the real path and the text of each.
pub fn discover_allowed(roots: &Roots, limits: &Limits, allows: &dyn Fn(&Path, &str) -> bool) -> Found {
    let mut problems = Vec::new();
    let mut chosen: BTreeMap<String, (Skill, PathBuf)> = BTreeMap::new();
    for (source, root) in roots.folders() {
        let walk = Walk::through(root, limits);
        problems.extend(walk.problems);
        for candidate in walk.found {
            let real = candidate.real.clone();
            let (skill, notes) = match load(candidate, source, limits, allows) {
                Ok(read) => read,
                Err(problem) => {
                    problems.extend(problem);
                    continue;
                }
            };
            problems.extend(notes.into_iter().map(|note| warning(&skill.file, note)));
            let (name, file) = (skill.name.clone(), skill.file.clone());
            // Two roots may be one folder: a home that is also a workspace.
            if let Some((hidden, its_real)) = chosen.insert(name, (skill, real.clone()))
                && its_real != real
            {
                let what = format!("is a skill \"{}\" that is hidden by {}", hidden.name, file.display());
                problems.push(Problem { path: hidden.file, what, level: Level::Info });
            }
        }
    }
    problems.sort();
    problems.dedup();
    Found { skills: chosen.into_values().map(|(skill, _)| skill).collect(), problems }
}

pub(crate) fn warning(path: &Path, what: impl Into<String>) -> Problem {
    Problem { path: path.to_owned(), what: what.into(), level: Level::Warning }
}

/// Reads a candidate; a note without front matter is no skill and no problem.
fn load(
    candidate: Candidate,
    source: Source,
    limits: &Limits,
    allows: &dyn Fn(&Path, &str) -> bool,
) -> Result<(Skill, Vec<String>), Option<Problem>> {
    let Candidate { file, real, kind } = candidate;
    let text = text(&real, limits.file_bytes).map_err(|what| Some(warning(&file, what)))?;
    if !allows(&file, &text) || !allows(&real, &text) {
        return Err(Some(warning(&file, "is left out while the command runs that may have made it")));
    }
    let dir = file.parent().map(Path::to_owned).unwrap_or_default();
    let name = match kind {
        Kind::Folder => dir.file_name(),
        Kind::Note => file.file_stem(),
    };
    let name = name.map(|name| skill::on_one_line(&name.to_string_lossy())).unwrap_or_default();
    let origin = Origin { dir, file: file.clone(), source, name };
    skill::read(&text, origin).map_err(|error| {
        let is_no_skill = kind == Kind::Note && error == skill::Error::NoFrontMatter;
        (!is_no_skill).then(|| warning(&file, error.to_string()))
    })
}

/// The text of a file, or what is wrong with it.
fn text(file: &Path, most: u64) -> Result<String, String> {
    // Asked before it is opened: opening a pipe would wait for whoever writes to it.
    let meta = fs::metadata(file).map_err(unreadable)?;
    if !meta.is_file() {
        return Err("is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    fs::File::open(file).and_then(|file| file.take(most + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > most {
        return Err(format!("is larger than the {most} bytes that a skill file may have"));
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| "is not text in UTF-8".to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn unreadable(error: io::Error) -> String {
    format!("cannot be read: {}", error.kind())
}
