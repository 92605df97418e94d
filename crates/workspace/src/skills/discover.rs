//! Discovers skills in their folders and resolves duplicate names.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::skills::{
    skill::{self, Skill, SkillOrigin, SkillSource},
    walk::{Kind, RootWalk, SkillCandidate},
};

/// Skill folders in increasing precedence: of two skills with one name, the one found later wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillRoots {
    /// `skills.load.extraDirs`.
    pub extra: Vec<PathBuf>,
    /// Folders of enabled plugins.
    pub plugins: Vec<PathBuf>,
    /// Skills shipped with the program.
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

impl SkillRoots {
    /// Returns the default folders for a state directory, a home and a workspace.
    pub fn standard(state: &Path, home: Option<&Path>, workspace: &Path) -> Self {
        Self {
            managed: state.join("skills"),
            personal: home.map(|home| home.join(".agents/skills")),
            project: Some(workspace.join(".agents/skills")),
            workspace: workspace.join("skills"),
            ..Self::default()
        }
    }

    /// Returns every folder with its kind, in increasing precedence. These are also the folders to watch for changes.
    pub fn folders(&self) -> Vec<(SkillSource, &Path)> {
        let extra = self.extra.iter().map(|root| (SkillSource::Extra, root));
        let plugins = self.plugins.iter().map(|root| (SkillSource::Plugin, root));
        let bundled = self.bundled.iter().map(|root| (SkillSource::Bundled, root));
        let personal = self.personal.iter().map(|root| (SkillSource::Personal, root));
        let project = self.project.iter().map(|root| (SkillSource::Project, root));
        extra
            .chain(plugins)
            .chain(bundled)
            .chain([(SkillSource::Managed, &self.managed)])
            .chain(personal)
            .chain(project)
            .chain([(SkillSource::Workspace, &self.workspace)])
            .map(|(source, root)| (source, root.as_path()))
            .filter(|(_, root)| !root.as_os_str().is_empty())
            .collect()
    }
}

/// Limits on reading a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscoveryLimits {
    /// Maximum depth of a skill below a root.
    pub depth: usize,
    /// Maximum number of folders searched in a root.
    pub folders: usize,
    /// Maximum number of skill files read in a root.
    pub candidates: usize,
    /// Maximum size of a skill file in bytes.
    pub file_bytes: u64,
}

impl Default for DiscoveryLimits {
    fn default() -> Self {
        Self { depth: 6, folders: 5_000, candidates: 300, file_bytes: 256 * 1024 }
    }
}

/// Result of the discovery.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiscoveredSkills {
    /// Skills, by name.
    pub skills: Vec<Skill>,
    /// Problems and notes, by path.
    pub problems: Vec<SkillProblem>,
}

/// A note about a path for its owner; the other skills are still read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SkillProblem {
    /// Path.
    pub path: PathBuf,
    /// Remainder of a sentence that starts with the path.
    pub message: String,
    /// Severity.
    pub level: ProblemLevel,
}

/// Severity of a [`SkillProblem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemLevel {
    /// Informational.
    Info,
    /// Should be repaired.
    Warning,
}

impl fmt::Display for SkillProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.message)
    }
}

/// Reads every root. Unreadable files are skipped and reported.
pub fn discover(roots: &SkillRoots, limits: &DiscoveryLimits) -> DiscoveredSkills {
    discover_allowed(roots, limits, &|_, _| true)
}

/// Like [`discover()`], without files for which `allows` returns false. It is called with the text and the path of each
/// file, and again with the path after resolving symlinks.
pub fn discover_allowed(
    roots: &SkillRoots,
    limits: &DiscoveryLimits,
    allows: &dyn Fn(&Path, &str) -> bool,
) -> DiscoveredSkills {
    let mut problems = Vec::new();
    let mut chosen: BTreeMap<String, (Skill, PathBuf)> = BTreeMap::new();
    for (source, root) in roots.folders() {
        let walk = RootWalk::through(root, limits);
        problems.extend(walk.problems);
        for candidate in walk.found {
            let real = candidate.real.clone();
            let (skill, notes) = match load(candidate, source, limits, allows) {
                Ok(loaded) => loaded,
                Err(problem) => {
                    problems.extend(problem);
                    continue;
                }
            };
            problems.extend(notes.into_iter().map(|note| warning(&skill.file, note)));
            let (name, file) = (skill.name.clone(), skill.file.clone());
            // Two roots may be the same folder: a home that is also a workspace.
            if let Some((overridden, overridden_real)) = chosen.insert(name, (skill, real.clone()))
                && overridden_real != real
            {
                let message =
                    format!("defines the skill \"{}\", which is overridden by {}", overridden.name, file.display());
                problems.push(SkillProblem { path: overridden.file, message, level: ProblemLevel::Info });
            }
        }
    }
    problems.sort();
    problems.dedup();
    DiscoveredSkills { skills: chosen.into_values().map(|(skill, _)| skill).collect(), problems }
}

pub(crate) fn warning(path: &Path, message: impl Into<String>) -> SkillProblem {
    SkillProblem { path: path.to_owned(), message: message.into(), level: ProblemLevel::Warning }
}

/// Reads a candidate; a note without front matter is neither a skill nor a problem.
fn load(
    candidate: SkillCandidate,
    source: SkillSource,
    limits: &DiscoveryLimits,
    allows: &dyn Fn(&Path, &str) -> bool,
) -> Result<(Skill, Vec<String>), Option<SkillProblem>> {
    let SkillCandidate { file, real, kind } = candidate;
    let text = text(&real, limits.file_bytes).map_err(|message| Some(warning(&file, message)))?;
    if !allows(&file, &text) || !allows(&real, &text) {
        return Err(Some(warning(&file, "is ignored while a command that may have created it is running")));
    }
    let dir = file.parent().map(Path::to_owned).unwrap_or_default();
    let name = match kind {
        Kind::Folder => dir.file_name(),
        Kind::Note => file.file_stem(),
    };
    let name = name.map(|name| skill::on_one_line(&name.to_string_lossy())).unwrap_or_default();
    let origin = SkillOrigin { dir, file: file.clone(), source, name };
    skill::read(&text, origin).map_err(|error| {
        let is_no_skill = kind == Kind::Note && error == skill::Error::NoFrontMatter;
        (!is_no_skill).then(|| warning(&file, error.to_string()))
    })
}

/// Reads the text of a file, or returns what is wrong with it.
fn text(file: &Path, max_bytes: u64) -> Result<String, String> {
    // Checked before opening: opening a pipe would wait for a writer.
    let meta = fs::metadata(file).map_err(unreadable)?;
    if !meta.is_file() {
        return Err("is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    fs::File::open(file).and_then(|file| file.take(max_bytes + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > max_bytes {
        return Err(format!("is larger than {max_bytes} bytes, the limit for skill files"));
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| "is not UTF-8 text".to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn unreadable(error: io::Error) -> String {
    format!("cannot be read: {}", error.kind())
}
