//! Exec policy: whether a command runs, is refused or needs approval; and that what runs is what was approved.
#![cfg(test)]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homard_approvals::{
    Approval, ApprovalDecision, ApprovalState, AskMode, ExecApprovals, LevelOverrides, Security,
    display::MAX_COMMAND_BYTES,
    store::{ApprovalStore, MemoryApprovalStore},
};
use homard_proto::{AgentId, RunId};
use homard_runtime::Ambient;
use homard_tools::{ExecDecision, ExecPolicy, ExecRequest, argv};
use serde_json::{Value, json};
use tempfile::TempDir;

const BYPASS: &str = include_str!("bypass.txt");

/// A fake machine with a workspace and programs that do nothing.
struct FakeMachine {
    folder: TempDir,
    store: Arc<MemoryApprovalStore>,
}

impl FakeMachine {
    fn new(programs: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin", "work", "other"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let machine = Self { folder, store: Arc::default() };
        for name in programs {
            machine.program(&machine.bin().join(name));
        }
        machine
    }

    fn program(&self, path: &Path) {
        fs::write(path, "#!/bin/false\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn path(&self, command: &str) -> Vec<String> {
        let mut command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        command[0] = self.bin().join(&command[0]).to_str().unwrap().to_owned();
        command
    }

    async fn allow(&self, allowlist: &[Value]) {
        let policy = json!({"version": 1, "agents": {"main": {"allowlist": allowlist}}});
        self.store.set_policy(policy.to_string()).await.unwrap();
    }

    async fn policy(&self) -> ExecPolicy {
        ExecPolicy {
            approvals: ExecApprovals::open(self.store.clone(), Ambient::fixed(1_800_000_000_000)).await.unwrap(),
            config: LevelOverrides { security: Some(Security::Allowlist), ask: Some(AskMode::OnMiss) },
            safe_bins: argv::SAFE_BINS.map(str::to_owned).to_vec(),
            shell: PathBuf::from("/bin/sh"),
        }
    }

    fn request(&self, command: &str) -> ExecRequest {
        let agent = AgentId::main();
        ExecRequest {
            session: agent.main_session(),
            agent,
            run: RunId::parse("run-1").unwrap(),
            command: command.to_owned(),
            workspace: self.work(),
            cwd: self.work(),
            env: vec![("PATH".to_owned(), format!("{}:/usr/bin:/bin:.", self.bin().display()))],
            has_own_env: false,
            requested_levels: LevelOverrides::default(),
            profile: "guarded".to_owned(),
            call: json!({"command": command}),
        }
    }
}

fn decoded(text: &str) -> String {
    let mut decoded = String::new();
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            decoded.push(character);
            continue;
        }
        match rest.next().unwrap() {
            'n' => decoded.push('\n'),
            't' => decoded.push('\t'),
            'r' => decoded.push('\r'),
            '0' => decoded.push('\0'),
            'e' => decoded.push('\u{1b}'),
            'u' => {
                let code: String = rest.by_ref().take_while(|character| *character != '}').skip(1).collect();
                decoded.push(char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap());
            }
            other => decoded.push(other),
        }
    }
    decoded
}

fn is_run(decision: &ExecDecision) -> bool {
    matches!(decision, ExecDecision::Run(_))
}

fn id(decision: ExecDecision) -> String {
    match decision {
        ExecDecision::Pending { id, .. } => id,
        ExecDecision::Run(_) | ExecDecision::Refuse(_) => panic!("{decision:?}"),
    }
}

// A14, R57.
#[tokio::test(start_paused = true)]
async fn a_rule_for_a_harmless_command_allows_no_other() {
    let lines = BYPASS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let corpus: Vec<(&str, String)> =
        lines.map(|line| line.split_once('\t').unwrap()).map(|(prefix, command)| (prefix, decoded(command))).collect();
    assert!(corpus.len() >= 80, "{}", corpus.len());
    let mut names: BTreeSet<&str> = corpus.iter().filter_map(|(prefix, _)| prefix.split(' ').next()).collect();
    names.extend(["rm", "tee", "id"]);
    for name in ["linked", "planted"] {
        names.remove(name);
    }
    let machine = FakeMachine::new(&names.iter().copied().collect::<Vec<_>>());
    // A symlink with a harmless name to a shell, and one into the workspace.
    symlink("/bin/sh", machine.bin().join("linked")).unwrap();
    for name in ["ls", "planted"] {
        machine.program(&machine.work().join(name));
    }
    symlink(machine.work().join("planted"), machine.bin().join("planted")).unwrap();
    let prefixes: BTreeSet<&str> = corpus.iter().map(|(prefix, _)| *prefix).collect();
    let argv_rules: Vec<Value> = prefixes.iter().map(|prefix| json!({"argv": machine.path(prefix)})).collect();
    let by_path: Vec<Value> = prefixes.iter().map(|prefix| json!({"pattern": machine.path(prefix)[0]})).collect();
    let both: Vec<Value> = argv_rules.iter().chain(&by_path).cloned().collect();
    let mut unexpected = Vec::new();
    for rules in [&argv_rules, &by_path, &both] {
        machine.allow(rules).await;
        for (prefix, command) in &corpus {
            let policy = ExecPolicy {
                config: LevelOverrides { ask: Some(AskMode::Off), ..machine.policy().await.config },
                ..machine.policy().await
            };
            let decision = policy.decide(&machine.request(command)).await;
            if is_run(&decision) {
                unexpected.push(format!("{prefix}: {command}"));
            }
        }
        // The rules still allow what they are meant for.
        for harmless in [
            "git status",
            "git log -1",
            "ls -la",
            "cat x y",
            "find . -name x",
            "sort x",
            "ls && cat x; git status | cat",
        ] {
            let decision = machine.policy().await.decide(&machine.request(harmless)).await;
            assert!(is_run(&decision), "{harmless}: {decision:?}");
        }
    }
    assert_eq!(unexpected, Vec::<String>::new());
}

// A14, R57.
#[tokio::test(start_paused = true)]
async fn an_allowed_command_runs_as_the_checked_argv() {
    let machine = FakeMachine::new(&["ls", "cat"]);
    machine.allow(&[json!({"argv": machine.path("ls")}), json!({"argv": machine.path("cat x")})]).await;
    let policy = machine.policy().await;
    let bin = machine.bin();
    let single = policy.decide(&machine.request("ls -la 'a b'")).await;
    assert_eq!(
        single,
        ExecDecision::Run(vec![bin.join("ls").display().to_string(), "-la".to_owned(), "a b".to_owned()])
    );
    let chain = policy.decide(&machine.request("ls | cat x")).await;
    let script = format!("'{bin}/ls' | '{bin}/cat' 'x'", bin = bin.display());
    assert_eq!(chain, ExecDecision::Run(vec!["/bin/sh".to_owned(), "-c".to_owned(), script]));
    assert!(!is_run(&policy.decide(&machine.request("ls | cat y")).await));
    assert!(!is_run(&policy.decide(&ExecRequest { has_own_env: true, ..machine.request("ls") }).await));
}

#[tokio::test(start_paused = true)]
async fn filters_in_system_directories_need_no_rule() {
    let machine = FakeMachine::new(&["ls", "head"]);
    machine.allow(&[json!({"argv": machine.path("ls")})]).await;
    let policy = machine.policy().await;
    assert!(is_run(&policy.decide(&machine.request("ls | wc -l")).await));
    // This one is found first in `PATH` and is not the system's.
    assert!(!is_run(&policy.decide(&machine.request("ls | head -5")).await));
    assert!(!is_run(&policy.decide(&machine.request("ls | wc /etc/passwd")).await));
    let none = ExecPolicy { safe_bins: Vec::new(), ..policy };
    assert!(!is_run(&none.decide(&machine.request("ls | wc -l")).await));
}

#[tokio::test(start_paused = true)]
async fn the_strictest_level_applies() {
    let machine = FakeMachine::new(&["ls", "rm"]);
    machine.allow(&[json!({"argv": machine.path("ls")})]).await;
    let policy = machine.policy().await;
    let kind = async |command: &str, security: Option<Security>, ask: Option<AskMode>, config: LevelOverrides| {
        let request = ExecRequest { requested_levels: LevelOverrides { security, ask }, ..machine.request(command) };
        match (ExecPolicy { config, ..policy.clone() }).decide(&request).await {
            ExecDecision::Run(_) => "run",
            ExecDecision::Refuse(_) => "refuse",
            ExecDecision::Pending { .. } => "ask",
        }
    };
    let levels = |security, ask| LevelOverrides { security: Some(security), ask: Some(ask) };
    let default_levels = levels(Security::Allowlist, AskMode::OnMiss);
    assert_eq!(kind("ls", None, None, default_levels).await, "run");
    assert_eq!(kind("rm x", None, None, default_levels).await, "ask");
    assert_eq!(kind("rm x", Some(Security::Full), Some(AskMode::Off), default_levels).await, "ask");
    assert_eq!(kind("ls", Some(Security::Deny), None, default_levels).await, "refuse");
    assert_eq!(kind("ls", None, Some(AskMode::Always), default_levels).await, "ask");
    assert_eq!(kind("rm x", None, None, levels(Security::Allowlist, AskMode::Off)).await, "refuse");
    assert_eq!(kind("rm x", None, None, levels(Security::Full, AskMode::OnMiss)).await, "run");
    assert_eq!(kind("rm x > y", None, None, levels(Security::Full, AskMode::Always)).await, "ask");
    assert_eq!(kind("ls", None, None, LevelOverrides::default()).await, "refuse");
    machine.store.set_policy("{".to_owned()).await.unwrap();
    assert_eq!(kind("ls", None, None, levels(Security::Full, AskMode::Off)).await, "refuse");
}

#[tokio::test(start_paused = true)]
async fn allow_always_is_offered_for_plain_commands_outside_the_workspace() {
    let machine = FakeMachine::new(&["git", "rm", "bash"]);
    let policy = machine.policy().await;
    let offered = async |command: &str| {
        let id = id(policy.decide(&machine.request(command)).await);
        let entry = policy.approvals.get(&id).unwrap();
        (entry.offers().contains(&ApprovalDecision::AllowAlways), id)
    };
    machine.program(&machine.work().join("mine"));
    for command in ["bash x", "rm x > y", "./mine", "rm x; bash y", "rm $x", "nothing-of-that-name"] {
        assert!(!offered(command).await.0, "{command}");
    }
    let (is_offered, id) = offered("git log -1; rm x").await;
    assert!(is_offered);
    policy.approvals.decide(&id, ApprovalDecision::AllowAlways, "ann").await.unwrap();
    for command in ["git log -1; rm x", "git log --stat", "rm x"] {
        assert!(is_run(&policy.decide(&machine.request(command)).await), "{command}");
    }
    for command in ["git show", "rm x y", "rm"] {
        assert!(!is_run(&policy.decide(&machine.request(command)).await), "{command}");
    }
    let asked_always = ExecRequest {
        requested_levels: LevelOverrides { ask: Some(AskMode::Always), security: None },
        ..machine.request("rm z")
    };
    let id = id_of(&policy, &asked_always).await;
    assert_eq!(policy.approvals.get(&id).unwrap().offers(), [ApprovalDecision::AllowOnce, ApprovalDecision::Deny]);
}

async fn id_of(policy: &ExecPolicy, request: &ExecRequest) -> String {
    id(policy.decide(request).await)
}

/// Requests approval, grants it, applies a change, and returns whether the command still runs.
async fn changed(change: impl AsyncFn(&FakeMachine, &ExecPolicy, &mut ExecRequest)) -> Result<Vec<String>, String> {
    let machine = FakeMachine::new(&["tool"]);
    fs::write(machine.work().join("input"), "1").unwrap();
    let policy = machine.policy().await;
    let mut request = machine.request("tool input > out");
    let id = id_of(&policy, &request).await;
    policy.approvals.decide(&id, ApprovalDecision::AllowOnce, "ann").await.unwrap();
    change(&machine, &policy, &mut request).await;
    policy.claim(&id, &request).await
}

// A15, R58.
#[tokio::test(start_paused = true)]
async fn an_approved_command_runs_only_if_nothing_changed() {
    let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), "tool input > out".to_owned()];
    assert_eq!(changed(async |_, _, _| {}).await, Ok(argv));
    let outcomes = [
        changed(async |_, _, request| request.command.push_str(" x")).await,
        changed(async |machine, _, _| {
            let (workspace, aside) = (machine.work(), machine.folder.path().join("aside"));
            fs::rename(&workspace, &aside).unwrap();
            fs::create_dir(&workspace).unwrap();
            fs::rename(aside.join("input"), workspace.join("input")).unwrap();
        })
        .await,
        changed(async |machine, _, _| {
            let (workspace, aside) = (machine.work(), machine.folder.path().join("aside"));
            fs::rename(&workspace, &aside).unwrap();
            symlink(machine.folder.path().join("other"), &workspace).unwrap();
        })
        .await,
        changed(async |_, _, request| request.env.push(("LC_ALL".to_owned(), "C".to_owned()))).await,
        changed(async |machine, _, _| {
            fs::remove_file(machine.bin().join("tool")).unwrap();
            machine.program(&machine.bin().join("tool"));
        })
        .await,
        changed(async |machine, _, _| fs::write(machine.work().join("input"), "22").unwrap()).await,
        changed(async |_, _, request| request.session = AgentId::normalize("ops").main_session()).await,
        changed(async |_, _, request| request.run = RunId::parse("run-2").unwrap()).await,
        changed(async |_, _, request| request.profile = "full".to_owned()).await,
        changed(async |_, _, _| tokio::time::advance(Duration::from_secs(300)).await).await,
        changed(async |_, policy, request| {
            let id = policy.approvals.unfinished()[0].id.clone();
            policy.claim(&id, request).await.unwrap();
        })
        .await,
        changed(async |machine, _, _| machine.program(&machine.work().join("out"))).await,
    ];
    let ran: Vec<_> = outcomes.iter().enumerate().filter(|(_, outcome)| outcome.is_ok()).collect();
    assert_eq!(ran, []);
}

// A15, R59.
#[tokio::test(start_paused = true)]
async fn a_command_too_long_to_be_shown_cannot_be_approved() {
    let machine = FakeMachine::new(&["tool"]);
    let policy = machine.policy().await;
    let hostile = "tool \u{202e}x\u{1b}[2K\r > y";
    let entry: Approval = policy.approvals.get(&id_of(&policy, &machine.request(hostile)).await).unwrap();
    let request = &entry.requested()["request"];
    assert_eq!(request["command"], "tool \\u{202e}x\\u{1b}[2K\\u{d} > y");
    assert_eq!(request["commandArgv"], json!(["/bin/sh", "-c", hostile]));
    for length in [1, 1000, MAX_COMMAND_BYTES] {
        assert_eq!(
            policy.approvals.get(&id_of(&policy, &machine.request(&"x".repeat(length))).await).unwrap().shown().len(),
            length
        );
    }
    for length in [MAX_COMMAND_BYTES + 1, 1024 * 1024] {
        let decision = policy.decide(&machine.request(&"x".repeat(length))).await;
        assert!(
            matches!(&decision, ExecDecision::Refuse(reason) if reason.contains("is too long to be shown in full")),
            "{length}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn pending_exec_approvals_survive_a_restart() {
    let machine = FakeMachine::new(&["tool"]);
    let request = machine.request("tool x");
    let id = id_of(&machine.policy().await, &request).await;
    let policy = machine.policy().await;
    assert_eq!(policy.approvals.pending().len(), 1);
    policy.approvals.decide(&id, ApprovalDecision::AllowOnce, "ann").await.unwrap();
    let again = machine.policy().await;
    assert_eq!(again.claim(&id, &request).await, Ok(machine.path("tool x")));
    assert!(again.claim(&id, &request).await.is_err());
    assert_eq!(again.approvals.get(&id).unwrap().state, ApprovalState::AllowedOnce);
}

/// Makes the workspace a git repository with this config.
fn git_config(machine: &FakeMachine, text: &str) {
    let git = machine.work().join(".git");
    fs::create_dir_all(git.join("objects")).unwrap();
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(git.join("config"), text).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rule_for_git_counts_only_where_the_repository_names_no_program() {
    let plain_config = "[core]\n\tbare = false\n[branch \"main\"]\n\tremote = origin\n";
    for has_pattern in [false, true] {
        let machine = FakeMachine::new(&["git"]);
        let families = ["git status", "git diff", "git add"];
        let rules = families.iter().map(|family| json!({"argv": machine.path(family)}));
        let git_rule = json!({"pattern": machine.bin().join("git")});
        machine.allow(&if has_pattern { vec![git_rule] } else { rules.collect() }).await;
        let policy = machine.policy().await;
        for command in ["git status", "git diff", "git add README", "git status && git diff"] {
            git_config(&machine, plain_config);
            assert!(is_run(&policy.decide(&machine.request(command)).await), "{command}");
            for setting in ["[core]\n\tfsmonitor = sh evil.sh", "[filter \"x\"]\n\tclean = sh evil.sh"] {
                git_config(&machine, setting);
                let decision = policy.decide(&machine.request(command)).await;
                let entry = policy.approvals.get(&id(decision)).unwrap();
                assert_eq!(entry.offers(), [ApprovalDecision::AllowOnce, ApprovalDecision::Deny], "{command}");
                assert!(
                    entry.client_fields["warningText"].as_str().unwrap().contains("may cause git to run a program")
                );
                policy.approvals.decide(&entry.id, ApprovalDecision::Deny, "test").await.unwrap();
            }
        }
        // There may be repositories below the working directory, and it may be inside of one.
        git_config(&machine, plain_config);
        let below = ExecRequest { cwd: machine.work().join("a/b"), ..machine.request("git status") };
        fs::create_dir_all(&below.cwd).unwrap();
        assert!(is_run(&policy.decide(&below).await));
        git_config(&machine, "[core]\n\tfsmonitor = sh evil.sh\n");
        assert!(!is_run(&policy.decide(&below).await));
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_for_git_covers_only_the_settings_at_that_time() {
    let machine = FakeMachine::new(&["git"]);
    git_config(&machine, "[core]\n\tfsmonitor = true\n");
    let policy = machine.policy().await;
    let request = machine.request("git push");
    for change in [".git/config", ".gitattributes", ".git/info/attributes", ".git/hooks/pre-push"] {
        let approval_id = id(policy.decide(&request).await);
        policy.approvals.decide(&approval_id, ApprovalDecision::AllowOnce, "test").await.unwrap();
        let file = machine.work().join(change);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        machine.program(&file);
        let refused = policy.claim(&approval_id, &request).await.unwrap_err();
        assert!(refused.contains("of the git repository has changed since the request"), "{change}: {refused}");
    }
}
