//! Exec policy: decides whether a command runs, is refused, or needs approval.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_approvals::{
    APPROVAL_TIMEOUT, Approval, ApprovalParams, ApprovalPolicy, ApprovalRule, AskMode, CommandFingerprint, DirIdentity,
    EffectiveLevels, Error as DeskError, ExecApprovals, FileIdentity, LevelOverrides, Security, display, fingerprint,
};
use homard_proto::{AgentId, RunId, SessionKey};
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;

use crate::{
    argv::{self, NotPlain, Operator, ShellCommand},
    sandbox::GitSettings,
};

/// Directories whose safe filter programs (see [`ExecPolicy::safe_bins`]) are allowed without a rule.
const TRUSTED_FOLDERS: [&str; 2] = ["/bin", "/usr/bin"];

/// Maximum number of files that a command may name.
const MAX_FILES: usize = 256;

/// The exec policy of an agent. Clones share the approvals.
#[derive(Debug, Clone)]
pub struct ExecPolicy {
    /// Approval requests and rules.
    pub approvals: ExecApprovals,
    /// Configured levels: `tools.exec.security` and `tools.exec.ask`.
    pub config: LevelOverrides,
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
    pub requested_levels: LevelOverrides,
    /// Description of the sandbox.
    pub profile: String,
    /// The call's arguments, stored to repeat it after approval.
    pub call: Value,
}

/// Decision about a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecDecision {
    /// Run this argv; its first element is the absolute path of a program.
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

/// What the policy decides about and the owner approves: a parsed command, and what it depends on in the file system.
#[derive(Debug, Clone, PartialEq)]
struct CommandFacts {
    /// What an approval of the command is bound to.
    fingerprint: CommandFingerprint,
    /// Settings of the git repository that it uses.
    git: Option<GitSettings>,
    /// Its parts with absolute program paths; the error says why the command is not plain, as defined in [`argv`].
    plain: Result<Vec<ResolvedCommand>, NotPlain>,
}

/// A part of a plain command with its resolved program.
#[derive(Debug, Clone, PartialEq)]
struct ResolvedCommand {
    /// The part, with the absolute path of the program as its first word.
    command: ShellCommand,
    /// True if the program is in the workspace, by its path or after resolving symlinks.
    is_in_workspace: bool,
    /// True if the program is git, by its name or after resolving symlinks.
    is_git: bool,
}

impl ExecPolicy {
    /// Decides about a command.
    pub async fn decide(&self, request: &ExecRequest) -> ExecDecision {
        let (rules, levels) = match self.levels(request).await {
            Ok(found) => found,
            Err(reason) => return ExecDecision::Refuse(reason),
        };
        if levels.security == Security::Full && levels.ask != AskMode::Always {
            return ExecDecision::Run(shell_argv(&self.shell, request.command.clone()));
        }
        let facts = match self.gather(request).await {
            Ok(facts) => facts,
            Err(error) => return ExecDecision::Refuse(format!("The command could not be run: {error}.")),
        };
        let allowed = self.check_rules(request, &facts, &rules.rules(&request.agent));
        match (levels.ask, allowed) {
            (AskMode::Always, _) => self.request_approval(request, facts, levels, Vec::new()).await,
            (AskMode::Off | AskMode::OnMiss, Ok(())) => ExecDecision::Run(facts.fingerprint.argv),
            (AskMode::Off, Err(reason)) => ExecDecision::Refuse(format!(
                "The command may not be run: no rule allows it ({reason}), and approval requests are disabled."
            )),
            (AskMode::OnMiss, Err(_)) => {
                let rules = self.rules_to_add(request, &facts);
                self.request_approval(request, facts, levels, rules).await
            }
        }
    }

    /// Consumes an approval: returns the argv to run, at most once, if nothing has changed since the request.
    pub async fn claim(&self, id: &str, request: &ExecRequest) -> Result<Vec<String>, String> {
        self.levels(request).await?;
        let facts = self.gather(request).await.map_err(|error| format!("The command could not be run: {error}."))?;
        let approval = self
            .approvals
            .consume(id, facts.fingerprint)
            .await
            .map_err(|error| format!("The command could not be run: {error}."))?;
        Ok(approval.fingerprint.map(|fingerprint| fingerprint.argv).unwrap_or_default())
    }

    /// Returns the current rules and the effective levels, or why nothing may run at all.
    async fn levels(&self, request: &ExecRequest) -> Result<(ApprovalPolicy, EffectiveLevels), String> {
        let rules =
            self.approvals.rules().await.map_err(|error| format!("The command could not be run: {error}."))?.policy;
        let levels = EffectiveLevels::of(&[request.requested_levels, self.config, rules.levels_of(&request.agent)]);
        match levels.security {
            Security::Deny => Err(format!(
                "The command may not be run: commands are denied. The operator of the gateway can allow them in {}.",
                self.approvals.location()
            )),
            Security::Allowlist | Security::Full => Ok((rules, levels)),
        }
    }

    /// Checks the allowlist; the error says why no rule allows the command.
    fn check_rules(&self, request: &ExecRequest, facts: &CommandFacts, rules: &[ApprovalRule]) -> Result<(), NotPlain> {
        let parts = facts.plain.as_ref().map_err(NotPlain::clone)?;
        if request.has_own_env {
            return Err(NotPlain("the command sets variables".to_owned()));
        }
        if let Some(program) = facts.git.as_ref().and_then(|git| git.program.as_ref()) {
            return Err(NotPlain(format!("{} may cause git to run a program", program.display())));
        }
        let home = request.env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| home.as_str());
        for found in parts {
            let Some((program, arguments)) = found.command.words.split_first() else { continue };
            if found.is_in_workspace {
                return Err(NotPlain(format!("{program} is in the workspace")));
            }
            if !self.is_safe(found) && !rules.iter().any(|rule| rule.allows(program, arguments, home)) {
                return Err(NotPlain(format!("{} is not allowed", found.command.words.join(" "))));
            }
        }
        Ok(())
    }

    fn is_safe(&self, found: &ResolvedCommand) -> bool {
        let program = Path::new(found.command.words.first().map(String::as_str).unwrap_or_default());
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_trusted =
            program.parent().is_some_and(|folder| TRUSTED_FOLDERS.iter().any(|trusted| folder == Path::new(trusted)));
        is_trusted && self.safe_bins.iter().any(|safe| safe == name) && argv::only_filters(&found.command)
    }

    /// Returns the rules that "allow always" would add: one for each part that is not safe by itself. Empty if one of
    /// the parts cannot be allowed permanently.
    fn rules_to_add(&self, request: &ExecRequest, facts: &CommandFacts) -> Vec<ApprovalRule> {
        let Ok(parts) = &facts.plain else { return Vec::new() };
        let runs_more = facts.git.as_ref().is_some_and(|git| git.program.is_some());
        if request.has_own_env || runs_more || parts.iter().any(|found| found.is_in_workspace) {
            return Vec::new();
        }
        parts.iter().filter(|found| !self.is_safe(found)).map(ResolvedCommand::rule).collect()
    }

    async fn request_approval(
        &self,
        request: &ExecRequest,
        facts: CommandFacts,
        levels: EffectiveLevels,
        rules: Vec<ApprovalRule>,
    ) -> ExecDecision {
        let resolved = facts.plain.as_ref().ok().and_then(|parts| parts.first()?.command.words.first().cloned());
        let mut fields = Map::new();
        let mut add_field = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
        add_field("cwd", facts.fingerprint.cwd.path.as_str().into());
        add_field("host", "gateway".into());
        add_field("security", levels.security.as_str().into());
        add_field("ask", levels.ask.as_str().into());
        add_field("resolvedPath", resolved.into());
        add_field("sessionKey", request.session.as_str().into());
        add_field("runId", request.run.as_str().into());
        add_field("commandArgv", json!(facts.fingerprint.argv));
        add_field("envKeys", request.env.iter().map(|(name, _)| name.as_str()).collect());
        add_field("sandbox", request.profile.as_str().into());
        let git = facts.git.as_ref().and_then(|git| git.program.as_ref());
        if let Err(reason) = &facts.plain {
            add_field("warningText", reason.to_string().into());
        } else if let Some(program) = git {
            add_field("warningText", format!("{} may cause git to run a program", program.display()).into());
        }
        let ticket = ApprovalParams {
            id: None,
            agent: request.agent.clone(),
            command: request.command.clone(),
            fields,
            fingerprint: Some(facts.fingerprint),
            rules,
            call: request.call.clone(),
            expires: APPROVAL_TIMEOUT,
        };
        match self.approvals.request(ticket).await {
            Ok(entry) => ExecDecision::Pending { text: pending_text(&entry), id: entry.id },
            Err(error @ (DeskError::Unknown(_) | DeskError::Settled(..) | DeskError::Invalidated { .. })) => {
                ExecDecision::Refuse(format!(
                    "The command may not be run, because approval could not be requested: {error}."
                ))
            }
            Err(error @ (DeskError::Invalid(_) | DeskError::Full | DeskError::Store(_))) => {
                ExecDecision::Refuse(format!("The command could not be run: {error}."))
            }
        }
    }

    async fn gather(&self, request: &ExecRequest) -> io::Result<CommandFacts> {
        let (request, shell) = (Arc::new(request.clone()), self.shell.clone());
        spawn_blocking(move || gather_facts(&request, &shell))
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

/// Formats the tool result for a command that waits for approval.
fn pending_text(entry: &Approval) -> String {
    format!(
        "The command waits until it is approved (approval {id}). The request expires after 5 minutes. Do not run the \
         command again: you will receive the result as a message. Continue with something else, or say that you are \
         waiting. To allow it: /approve {id} allow-once",
        id = entry.id
    )
}

impl ResolvedCommand {
    /// Returns the rule that allows this part again: its subcommand with any arguments if that is harmless, otherwise
    /// exactly this argv.
    fn rule(&self) -> ApprovalRule {
        let argv = self.command.words.clone();
        let Some((program, arguments)) = argv.split_first() else { return ApprovalRule::exact(argv) };
        match argv::fixed_arguments(program.rsplit('/').next().unwrap_or_default(), arguments) {
            Some(last_fixed) => ApprovalRule::prefix(argv[..=last_fixed].to_vec()),
            None => ApprovalRule::exact(argv),
        }
    }
}

/// Returns the argv that runs a script in a shell.
pub(crate) fn shell_argv(shell: &Path, text: String) -> Vec<String> {
    vec![shell.to_string_lossy().into_owned(), "-c".to_owned(), text]
}

/// Parses a command, resolves its programs, and computes its fingerprint. Blocks.
///
/// The argv of the fingerprint is what will be executed: the words of a single plain command, and otherwise a shell
/// with the quoted parts, or with the text as requested if the command is not plain.
fn gather_facts(request: &ExecRequest, shell: &Path) -> io::Result<CommandFacts> {
    let path = request.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_str()).unwrap_or_default();
    let lookup = LookupContext { cwd: &request.cwd, path, workspace: &request.workspace };
    let plain: Result<Vec<ResolvedCommand>, NotPlain> =
        argv::parse(&request.command).and_then(|parts| parts.into_iter().map(|part| lookup.resolve(part)).collect());
    let argv = match &plain {
        Ok(parts) => match &parts[..] {
            [ResolvedCommand { command: part, .. }] if part.operator == Operator::First => part.words.clone(),
            _ => shell_argv(shell, argv::script(&parts.iter().map(|found| found.command.clone()).collect::<Vec<_>>())),
        },
        Err(_) => shell_argv(shell, request.command.clone()),
    };
    let uses_git = argv::mentions(&request.command).any(|word| word == "git" || word.ends_with("/git"))
        || plain.as_ref().is_ok_and(|parts| parts.iter().any(|found| found.is_git));
    let git = if uses_git { GitSettings::of(&request.cwd) } else { None };
    let folder = fs::metadata(&request.cwd)?;
    let cwd = DirIdentity { path: request.cwd.to_string_lossy().into_owned(), dev: folder.dev(), ino: folder.ino() };
    let fingerprint = CommandFingerprint {
        files: lookup.named_files(&request.command, argv.first())?,
        argv,
        cwd,
        env: fingerprint::digest(request.env.iter().map(|(name, value)| (name.as_str(), value.as_str()))),
        session: request.session.as_str().to_owned(),
        run: request.run.as_str().to_owned(),
        profile: request.profile.clone(),
        repository: git.as_ref().map(|git| git.digest.clone()),
    };
    Ok(CommandFacts { fingerprint, git, plain })
}

/// Where programs and files are looked up.
struct LookupContext<'a> {
    cwd: &'a Path,
    path: &'a str,
    workspace: &'a Path,
}

impl LookupContext<'_> {
    /// Resolves the program of a part. A symlink's target is also checked by its own name.
    fn resolve(&self, mut part: ShellCommand) -> Result<ResolvedCommand, NotPlain> {
        let Some((program, arguments)) = part.words.split_first_mut() else { return Err(NotPlain(String::new())) };
        let unknown = || NotPlain(format!("program {program} was not found"));
        let path = self.find_program(program).ok_or_else(unknown)?;
        let target = fs::canonicalize(&path)
            .map_err(|error| NotPlain(format!("cannot resolve the path of {program}: {error}")))?;
        let name = target.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !argv::is_multi_call(name)
            && let Some(reason) = argv::hazard(name, arguments)
        {
            return Err(reason);
        }
        let is_git = [&path, &target].into_iter().any(|path| path.file_name().is_some_and(|name| name == "git"));
        *program = path.to_str().ok_or_else(unknown)?.to_owned();
        let workspace = fs::canonicalize(self.workspace);
        let is_inside = [&path, &target].into_iter().any(|path| {
            path.starts_with(self.workspace) || workspace.as_ref().is_ok_and(|workspace| path.starts_with(workspace))
        });
        Ok(ResolvedCommand { command: part, is_in_workspace: is_inside, is_git })
    }

    /// Returns the file that a shell would execute for this name. Relative parts of `PATH` are ignored.
    fn find_program(&self, name: &str) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(self.cwd.join(name)).filter(|path| is_program(path));
        }
        let folders = self.path.split(':').filter(|folder| folder.starts_with('/'));
        folders.map(|folder| Path::new(folder).join(name)).find(|path| is_program(path))
    }

    /// Returns the programs and files that a command names, with their identities. A command that is too long for an
    /// approval request needs none.
    fn named_files(&self, command: &str, first: Option<&String>) -> io::Result<Vec<FileIdentity>> {
        let command = if command.len() > display::MAX_COMMAND_BYTES { "" } else { command };
        let candidates = argv::mentions(command).flat_map(|word| [Some(self.cwd.join(word)), self.find_program(word)]);
        let mut paths: Vec<PathBuf> = first.map(PathBuf::from).into_iter().chain(candidates.flatten()).collect();
        paths.sort();
        paths.dedup();
        let files: Vec<_> = paths.iter().filter_map(|path| file_identity(path)).collect();
        // Checking only some of them would be arbitrary.
        let is_fine = files.len() <= MAX_FILES;
        is_fine
            .then_some(files)
            .ok_or_else(|| io::Error::other(format!("the command names more than {MAX_FILES} files")))
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn file_identity(path: &Path) -> Option<FileIdentity> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let nanoseconds = |seconds: i64, subsecond: i64| seconds.saturating_mul(1_000_000_000).saturating_add(subsecond);
    Some(FileIdentity {
        path: path.to_string_lossy().into_owned(),
        dev: found.dev(),
        ino: found.ino(),
        size: found.len(),
        written: nanoseconds(found.mtime(), found.mtime_nsec()),
        changed: nanoseconds(found.ctime(), found.ctime_nsec()),
    })
}
