//! Exec policy: decides whether a command runs, is refused, or needs approval.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_agent::approval::{
    Ask, Bound, Desk, EXPIRES, Effective, Entry, Error as DeskError, FileSeen, FolderSeen, Policy, Rule, Security,
    Ticket, Wish, bound, display,
};
use homard_proto::{AgentId, RunId, SessionKey};
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;

use crate::{
    argv::{self, Joint, NotPlain, Part},
    git_settings::GitSettings,
};

/// Directories of the filters that need no rule.
const TRUSTED: [&str; 2] = ["/bin", "/usr/bin"];

/// Maximum number of files that a command may name.
const MOST_FILES: usize = 256;

/// The exec policy of an agent. Clones share the approvals.
#[derive(Debug, Clone)]
pub struct Gate {
    /// Approval requests and rules.
    pub desk: Desk,
    /// Configured levels: `tools.exec.security` and `tools.exec.ask`.
    pub config: Wish,
    /// Filters that need no rule as long as they only read standard input: `tools.exec.safeBins`, from
    /// [`argv::SAFE_BINS`].
    pub safe_bins: Vec<String>,
    /// Shell for commands that are not plain.
    pub shell: PathBuf,
}

/// A command to be checked.
#[derive(Debug, Clone)]
pub struct ExecRequest {
    /// Agent whose rules apply.
    pub agent: AgentId,
    /// The session.
    pub session: SessionKey,
    /// The run.
    pub run: RunId,
    /// The command as requested.
    pub command: String,
    /// The agent's workspace. Programs in it are never allowed by a rule, because the agent can change them.
    pub workspace: PathBuf,
    /// Working directory.
    pub cwd: PathBuf,
    /// The complete environment.
    pub env: Vec<(String, String)>,
    /// True if the call itself sets variables.
    pub has_own_env: bool,
    /// Levels requested by the call: `security` and `ask`.
    pub wish: Wish,
    /// Description of the sandbox.
    pub profile: String,
    /// The call's arguments, stored to repeat it after approval.
    pub call: Value,
}

/// Decision about a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Run these words; the first is the absolute path of a program.
    Run(Vec<String>),
    /// Refuse, with the reason.
    Refuse(String),
    /// An approval was requested.
    Pending {
        /// Id of the approval request.
        id: String,
        /// Text for the model.
        text: String,
    },
}

/// Facts about a command, gathered from the file system.
#[derive(Debug, Clone, PartialEq)]
struct Look {
    bound: Bound,
    /// Settings of the git repository that it uses.
    git: Option<GitSettings>,
    /// Its parts with absolute program paths, if the command is plain.
    plain: Result<Vec<Found>, NotPlain>,
}

/// A part of a plain command with its resolved program.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    /// The part, with the absolute path of the program as its first word.
    part: Part,
    /// True if the program is in the workspace, by its path or after resolving symlinks.
    is_inside: bool,
    /// True if the program is git, by its name or after resolving symlinks.
    is_git: bool,
}

impl Gate {
    /// Decides about a command.
    pub async fn gate(&self, request: &ExecRequest) -> Decision {
        let (rules, levels) = match self.levels(request).await {
            Ok(found) => found,
            Err(why) => return Decision::Refuse(why),
        };
        if levels.security == Security::Full && levels.ask != Ask::Always {
            return Decision::Run(in_shell(&self.shell, request.command.clone()));
        }
        let look = match self.look(request).await {
            Ok(look) => look,
            Err(error) => return Decision::Refuse(format!("It was not run: {error}.")),
        };
        let allowed = self.allowed(request, &look, &rules.rules(&request.agent));
        match (levels.ask, allowed) {
            (Ask::Always, _) => self.ask(request, look, levels, Vec::new()).await,
            (Ask::Off | Ask::OnMiss, Ok(())) => Decision::Run(look.bound.argv),
            (Ask::Off, Err(why)) => {
                Decision::Refuse(format!("It was not run: no rule allows it ({why}), and nobody may be asked."))
            }
            (Ask::OnMiss, Err(_)) => {
                let rules = self.offered(request, &look);
                self.ask(request, look, levels, rules).await
            }
        }
    }

    /// Consumes an approval: returns the words to run, once and now, if nothing has changed since the request.
    pub async fn claim(&self, id: &str, request: &ExecRequest) -> Result<Vec<String>, String> {
        self.levels(request).await?;
        let look = self.look(request).await.map_err(|error| format!("It was not run: {error}."))?;
        let taken = self.desk.take(id, look.bound).await.map_err(|error| format!("It was not run: {error}."))?;
        Ok(taken.bound.map(|bound| bound.argv).unwrap_or_default())
    }

    /// Returns the current rules and the effective levels, or why nothing may run at all.
    async fn levels(&self, request: &ExecRequest) -> Result<(Policy, Effective), String> {
        let rules = self.desk.rules().await.map_err(|error| format!("It was not run: {error}."))?.policy;
        let levels = Effective::of(&[request.wish, self.config, rules.wish(&request.agent)]);
        match levels.security {
            Security::Deny => Err(format!(
                "It was not run: commands are denied. Whoever runs the gateway can allow them in {}.",
                self.desk.place()
            )),
            Security::Allowlist | Security::Full => Ok((rules, levels)),
        }
    }

    /// Checks the allowlist; the error says why no rule allows the command.
    fn allowed(&self, request: &ExecRequest, look: &Look, rules: &[Rule]) -> Result<(), NotPlain> {
        let parts = look.plain.as_ref().map_err(NotPlain::clone)?;
        if request.has_own_env {
            return Err(NotPlain("it sets variables".to_owned()));
        }
        if let Some(program) = look.git.as_ref().and_then(|git| git.program.as_ref()) {
            return Err(NotPlain(format!("{} may have git run a program", program.display())));
        }
        let home = request.env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| home.as_str());
        for found in parts {
            let Some((program, arguments)) = found.part.words.split_first() else { continue };
            if found.is_inside {
                return Err(NotPlain(format!("{program} is in the workspace")));
            }
            if !self.is_safe(found) && !rules.iter().any(|rule| rule.allows(program, arguments, home)) {
                return Err(NotPlain(format!("{} is not allowed", found.part.words.join(" "))));
            }
        }
        Ok(())
    }

    fn is_safe(&self, found: &Found) -> bool {
        let program = Path::new(found.part.words.first().map(String::as_str).unwrap_or_default());
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_trusted =
            program.parent().is_some_and(|folder| TRUSTED.iter().any(|trusted| folder == Path::new(trusted)));
        is_trusted && self.safe_bins.iter().any(|safe| safe == name) && argv::only_filters(&found.part)
    }

    /// Returns the rules that "allow always" would add: one for each part that is not safe by itself. Empty if one of
    /// the parts cannot be allowed permanently.
    fn offered(&self, request: &ExecRequest, look: &Look) -> Vec<Rule> {
        let Ok(parts) = &look.plain else { return Vec::new() };
        let runs_more = look.git.as_ref().is_some_and(|git| git.program.is_some());
        if request.has_own_env || runs_more || parts.iter().any(|found| found.is_inside) {
            return Vec::new();
        }
        parts.iter().filter(|found| !self.is_safe(found)).map(Found::rule).collect()
    }

    async fn ask(&self, request: &ExecRequest, look: Look, levels: Effective, rules: Vec<Rule>) -> Decision {
        let resolved = look.plain.as_ref().ok().and_then(|parts| parts.first()?.part.words.first().cloned());
        let mut told = Map::new();
        let mut tell = |name: &str, value: Value| drop(told.insert(name.to_owned(), value));
        tell("cwd", look.bound.cwd.path.as_str().into());
        tell("host", "gateway".into());
        tell("security", levels.security.as_str().into());
        tell("ask", levels.ask.as_str().into());
        tell("resolvedPath", resolved.into());
        tell("sessionKey", request.session.as_str().into());
        tell("runId", request.run.as_str().into());
        tell("commandArgv", json!(look.bound.argv));
        tell("envKeys", request.env.iter().map(|(name, _)| name.as_str()).collect());
        tell("sandbox", request.profile.as_str().into());
        let git = look.git.as_ref().and_then(|git| git.program.as_ref());
        if let Err(why) = &look.plain {
            tell("warningText", why.to_string().into());
        } else if let Some(program) = git {
            tell("warningText", format!("{} may have git run a program", program.display()).into());
        }
        let ticket = Ticket {
            id: None,
            agent: request.agent.clone(),
            command: request.command.clone(),
            told,
            bound: Some(look.bound),
            rules,
            call: request.call.clone(),
            expires: EXPIRES,
        };
        match self.desk.ask(ticket).await {
            Ok(entry) => Decision::Pending { text: pending(&entry), id: entry.id },
            Err(error @ (DeskError::Unknown(_) | DeskError::Settled(..) | DeskError::Void { .. })) => {
                Decision::Refuse(format!("It was not run, and nobody could be asked: {error}."))
            }
            Err(error @ (DeskError::Invalid(_) | DeskError::Full | DeskError::Store(_))) => {
                Decision::Refuse(format!("It was not run: {error}."))
            }
        }
    }

    async fn look(&self, request: &ExecRequest) -> io::Result<Look> {
        let (request, shell) = (Arc::new(request.clone()), self.shell.clone());
        spawn_blocking(move || look(&request, &shell)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

/// Formats the tool result for a command that waits for approval.
fn pending(entry: &Entry) -> String {
    format!(
        "It waits until somebody allows it (approval {id}), for 5 minutes at most. Do not run it again: you will be told \
         what came of it. Go on with something else, or say that you wait. To allow it: /approve {id} allow-once",
        id = entry.id
    )
}

impl Found {
    /// Returns the rule that allows this part again: its subcommand with any arguments if that is harmless, otherwise
    /// exactly these words.
    fn rule(&self) -> Rule {
        let words = self.part.words.clone();
        let Some((program, arguments)) = words.split_first() else { return Rule::exact(words) };
        match argv::family(program.rsplit('/').next().unwrap_or_default(), arguments) {
            Some(more) => Rule::prefix(words[..=more].to_vec()),
            None => Rule::exact(words),
        }
    }
}

/// Returns the words that run a text in a shell.
pub(crate) fn in_shell(shell: &Path, text: String) -> Vec<String> {
    vec![shell.to_string_lossy().into_owned(), "-c".to_owned(), text]
}

/// Gathers the facts about a command. Blocks.
fn look(request: &ExecRequest, shell: &Path) -> io::Result<Look> {
    let path = request.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_str()).unwrap_or_default();
    let place = Place { cwd: &request.cwd, path, workspace: &request.workspace };
    let plain: Result<Vec<Found>, NotPlain> =
        argv::read(&request.command).and_then(|parts| parts.into_iter().map(|part| place.found(part)).collect());
    let words = match &plain {
        Ok(parts) => match &parts[..] {
            [Found { part, .. }] if part.joint == Joint::First => part.words.clone(),
            _ => in_shell(shell, argv::script(&parts.iter().map(|found| found.part.clone()).collect::<Vec<_>>())),
        },
        Err(_) => in_shell(shell, request.command.clone()),
    };
    let uses_git = argv::mentions(&request.command).any(|word| word == "git" || word.ends_with("/git"))
        || plain.as_ref().is_ok_and(|parts| parts.iter().any(|found| found.is_git));
    let git = if uses_git { GitSettings::of(&request.cwd) } else { None };
    let folder = fs::metadata(&request.cwd)?;
    let cwd = FolderSeen { path: request.cwd.to_string_lossy().into_owned(), dev: folder.dev(), ino: folder.ino() };
    let bound = Bound {
        files: place.files(&request.command, words.first())?,
        argv: words,
        cwd,
        env: bound::digest(request.env.iter().map(|(name, value)| (name.as_str(), value.as_str()))),
        session: request.session.as_str().to_owned(),
        run: request.run.as_str().to_owned(),
        profile: request.profile.clone(),
        repository: git.as_ref().map(|git| git.digest.clone()),
    };
    Ok(Look { bound, git, plain })
}

/// Where programs and files are looked up.
struct Place<'a> {
    cwd: &'a Path,
    path: &'a str,
    workspace: &'a Path,
}

impl Place<'_> {
    /// Resolves the program of a part. A symlink's target is also checked by its own name.
    fn found(&self, mut part: Part) -> Result<Found, NotPlain> {
        let Some((program, arguments)) = part.words.split_first_mut() else { return Err(NotPlain(String::new())) };
        let unknown = || NotPlain(format!("there is no program {program}"));
        let path = self.program(program).ok_or_else(unknown)?;
        let target =
            fs::canonicalize(&path).map_err(|error| NotPlain(format!("{program} cannot be found: {error}")))?;
        let name = target.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !argv::is_many(name)
            && let Some(why) = argv::hazard(name, arguments)
        {
            return Err(why);
        }
        let is_git = [&path, &target].into_iter().any(|path| path.file_name().is_some_and(|name| name == "git"));
        *program = path.to_str().ok_or_else(unknown)?.to_owned();
        let workspace = fs::canonicalize(self.workspace);
        let is_inside = [&path, &target].into_iter().any(|path| {
            path.starts_with(self.workspace) || workspace.as_ref().is_ok_and(|workspace| path.starts_with(workspace))
        });
        Ok(Found { part, is_inside, is_git })
    }

    /// Returns the file that a shell would execute for this name. Relative parts of `PATH` are ignored.
    fn program(&self, name: &str) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(self.cwd.join(name)).filter(|path| is_program(path));
        }
        let folders = self.path.split(':').filter(|folder| folder.starts_with('/'));
        folders.map(|folder| Path::new(folder).join(name)).find(|path| is_program(path))
    }

    /// Returns the programs and files that a command names, with their identities. A command that is too long for an
    /// approval request needs none.
    fn files(&self, command: &str, first: Option<&String>) -> io::Result<Vec<FileSeen>> {
        let command = if command.len() > display::LONGEST { "" } else { command };
        let named = argv::mentions(command).flat_map(|word| [Some(self.cwd.join(word)), self.program(word)]);
        let mut paths: Vec<PathBuf> = first.map(PathBuf::from).into_iter().chain(named.flatten()).collect();
        paths.sort();
        paths.dedup();
        let files: Vec<_> = paths.iter().filter_map(|path| seen(path)).collect();
        // Checking only some of them would be arbitrary.
        let is_fine = files.len() <= MOST_FILES;
        is_fine.then_some(files).ok_or_else(|| io::Error::other(format!("it names more than {MOST_FILES} files")))
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn seen(path: &Path) -> Option<FileSeen> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let nanoseconds = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    Some(FileSeen {
        path: path.to_string_lossy().into_owned(),
        dev: found.dev(),
        ino: found.ino(),
        size: found.len(),
        written: nanoseconds(found.mtime(), found.mtime_nsec()),
        changed: nanoseconds(found.ctime(), found.ctime_nsec()),
    })
}
