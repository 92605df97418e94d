//! Files that no tool opens or changes, whatever the working directory is.
#![allow(clippy::unwrap_used, reason = "tests may")]

mod fixture;

use std::{collections::BTreeMap, fs, os::unix::fs::symlink};

use homard_approvals::LevelOverrides;
use homard_proto::AgentId;
use homard_tools::ExecApprovalSettings;
use serde_json::{Value, json};

use fixture::{ToolFixture, only_text};

const ENV: [(&str, &str); 1] = [("PATH", "/usr/local/bin:/usr/bin:/bin")];

/// A bench whose workspace is the home directory, with the state directory and credentials in it.
fn at_home() -> ToolFixture {
    let outside = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = outside.path().canonicalize().unwrap().join("workspace");
    let fixture = ToolFixture::below(outside, &ENV, |settings| {
        settings.sandbox.home = Some(home.clone());
        settings.sandbox.state_dir = Some(home.join(".homard"));
        settings.sandbox.masked = vec![home.join("conf/homard.json")];
    });
    for (path, text) in [
        (".homard/homard.json", "{}"),
        (".homard/exec-approvals.json", "{\"canary\": 1}"),
        (".homard/gateway-token", "canary"),
        (".ssh/id_ed25519", "canary"),
        ("conf/homard.json", "canary"),
        (".bashrc", "# canary\n"),
        ("notes.txt", "plain\n"),
    ] {
        let path = home.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fixture
}

fn patch(body: &str) -> Value {
    json!({"input": format!("*** Begin Patch\n{body}\n*** End Patch")})
}

#[tokio::test]
async fn file_tools_hide_the_state_directory() {
    let fixture = at_home();
    symlink(".ssh", fixture.workdir().join("link")).unwrap();
    for (tool, arguments) in [
        ("read", json!({"path": ".homard/gateway-token"})),
        ("read", json!({"path": ".ssh/id_ed25519"})),
        ("read", json!({"path": "link/id_ed25519"})),
        ("read", json!({"path": fixture.workdir().join(".ssh/id_ed25519")})),
        ("read", json!({"path": "conf/homard.json"})),
        ("ls", json!({"path": ".homard"})),
        ("ls", json!({"path": "link"})),
        ("find", json!({"path": ".ssh", "pattern": "*"})),
        ("grep", json!({"path": ".ssh", "pattern": "canary"})),
        ("grep", json!({"path": ".ssh/id_ed25519", "pattern": "canary"})),
        ("write", json!({"path": ".homard/exec-approvals.json", "content": "{}"})),
        ("write", json!({"path": ".homard/extensions/evil/x", "content": "x"})),
        ("write", json!({"path": ".ssh/authorized_keys", "content": "x"})),
        ("write", json!({"path": "link/new/authorized_keys", "content": "x"})),
        ("write", json!({"path": ".aws/credentials", "content": "not there yet"})),
        ("edit", json!({"path": ".homard/homard.json", "oldText": "{}", "newText": "{ }"})),
        ("apply_patch", patch("*** Add File: .homard/evil\n+x")),
        ("apply_patch", patch("*** Delete File: .ssh/id_ed25519")),
        ("apply_patch", patch("*** Update File: notes.txt\n*** Move to: .ssh/config\n@@\n-plain\n+x")),
        ("exec", json!({"command": "ls", "workdir": ".ssh"})),
    ] {
        let result = fixture.call(tool, arguments.clone()).await;
        let (text, is_error) = only_text(&result);
        assert!(is_error && text.contains("is hidden from tools"), "{tool} {arguments}: {text}");
    }
    let missing = fixture.call("read", json!({"path": ".ssh/id_ed2551"})).await;
    assert!(!only_text(&missing).0.contains("id_ed25519"), "{missing:?}");
    for (tool, arguments) in [("grep", json!({"pattern": "canary"})), ("find", json!({"pattern": "*"}))] {
        let result = fixture.call(tool, arguments).await;
        let (text, is_error) = only_text(&result);
        let is_visible = [".homard", ".ssh", "homard.json"].iter().any(|name| text.contains(name));
        assert!(!is_error && !is_visible, "{tool}: {text}");
    }
    assert_eq!(fs::read_to_string(fixture.workdir().join(".homard/exec-approvals.json")).unwrap(), "{\"canary\": 1}");
    for absent in [".aws", ".ssh/authorized_keys", ".ssh/new", ".ssh/config", ".homard/extensions", ".homard/evil"] {
        assert!(!fixture.workdir().join(absent).exists(), "{absent}");
    }
    let ordinary = fixture.call("read", json!({"path": "notes.txt"})).await;
    assert_eq!(only_text(&ordinary), ("plain\n", false));
}

#[tokio::test]
async fn file_tools_change_no_shell_start_file() {
    let fixture = at_home();
    for (tool, arguments) in [
        ("write", json!({"path": ".bashrc", "content": "x"})),
        ("write", json!({"path": ".zshrc", "content": "not there yet"})),
        ("write", json!({"path": ".config/fish/config.fish", "content": "x"})),
        ("edit", json!({"path": ".bashrc", "oldText": "canary", "newText": "x"})),
        ("apply_patch", patch("*** Add File: .profile\n+x")),
        ("apply_patch", patch("*** Delete File: .bashrc")),
    ] {
        let result = fixture.call(tool, arguments.clone()).await;
        let (text, is_error) = only_text(&result);
        assert!(
            is_error && text.contains("can make shells or other programs of the user run code"),
            "{tool} {arguments}: {text}"
        );
    }
    assert_eq!(fs::read_to_string(fixture.workdir().join(".bashrc")).unwrap(), "# canary\n");
    assert!(!fixture.workdir().join(".config").exists());
}

#[tokio::test]
async fn commands_change_no_shell_start_file() {
    if !fixture::has_namespaces("commands_change_no_shell_start_file") {
        return;
    }
    let fixture = at_home();
    let command = "echo evil >> .bashrc; echo evil > .profile; mkdir -p .config/fish; echo evil > .config/fish/config.fish; \
                   cat .bashrc";
    let result = fixture.call("exec", json!({"command": command})).await;
    let (text, _) = only_text(&result);
    // Start files often set variables with tokens.
    assert!(!text.contains("# canary"), "{text}");
    assert_eq!(fs::read_to_string(fixture.workdir().join(".bashrc")).unwrap(), "# canary\n");
    assert!(!fixture.workdir().join(".profile").exists(), "{text}");
    assert!(!fixture.workdir().join(".config/fish/config.fish").exists(), "{text}");
}

/// A bench whose workspace is in the state directory; `workspaces` are those of agents, below its parent.
fn below_state(workspaces: &[&str]) -> ToolFixture {
    let outside = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let state = outside.path().canonicalize().unwrap();
    let workspaces = workspaces.iter().map(|name| state.join(name)).collect();
    ToolFixture::below(outside, &ENV, |settings| {
        settings.sandbox.state_dir = Some(state);
        settings.sandbox.workspaces = workspaces;
    })
}

#[tokio::test]
async fn an_agents_workspace_below_the_state_directory_is_open() {
    let fixture = below_state(&["workspace"]);
    let written = fixture.call("write", json!({"path": "a/b.txt", "content": "x"})).await;
    assert_eq!(only_text(&written), ("Wrote 1 bytes to a/b.txt", false));
    let read = fixture.call("read", json!({"path": "a/b.txt"})).await;
    assert_eq!(only_text(&read), ("x", false));
    let ran = fixture.call("exec", json!({"command": "cat a/b.txt"})).await;
    assert!(!ran.is_error, "{ran:?}");
}

#[tokio::test]
async fn the_rest_of_the_state_directory_is_not_a_working_directory() {
    for workspaces in [&[][..], &["other"], &[""]] {
        let fixture = below_state(workspaces);
        fs::write(fixture.workdir().join("a.txt"), "canary").unwrap();
        for (tool, arguments) in [
            ("read", json!({"path": "a.txt"})),
            ("write", json!({"path": "b.txt", "content": "x"})),
            ("ls", json!({})),
            ("exec", json!({"command": "cat a.txt"})),
        ] {
            let result = fixture.call(tool, arguments).await;
            let (text, is_error) = only_text(&result);
            assert!(is_error && text.contains("state directory"), "{workspaces:?} {tool}: {text}");
        }
    }
}

/// Files because of which git, editors or agents run or obey something.
const PROTECTED: [&str; 15] = [
    ".git/config",
    ".git/hooks/pre-commit",
    "sub/.git/config",
    "sub/.git",
    "bare/HEAD",
    "sub/.gitattributes",
    ".gitmodules",
    ".envrc",
    ".vscode/tasks.json",
    ".mcp.json",
    "AGENTS.md",
    "projects/a/AGENTS.md",
    "SOUL.md",
    "skills/evil/SKILL.md",
    "hooks/evil/HOOK.md",
];

/// A bench in which changes of protected files need approval, but approvals are not available.
fn with_approvals() -> ToolFixture {
    ToolFixture::with(&ENV, |settings| {
        let all = LevelOverrides::default();
        settings.approvals =
            Some(ExecApprovalSettings { default: all, by_agent: BTreeMap::new(), safe_bins: Vec::new() });
    })
}

#[tokio::test]
async fn file_tools_change_no_protected_file_without_approval() {
    let fixture = with_approvals();
    fs::create_dir_all(fixture.workdir().join(".git/hooks")).unwrap();
    fs::write(fixture.workdir().join("a.txt"), "x\n").unwrap();
    symlink(".git", fixture.workdir().join("link")).unwrap();
    let mut calls = Vec::new();
    for path in PROTECTED.into_iter().chain(["link/config", "BOOT.md", "HEARTBEAT.md", "BOOTSTRAP.md"]) {
        calls.push(("write", json!({"path": path, "content": "evil\n"})));
        calls.push(("apply_patch", patch(&format!("*** Add File: {path}\n+evil"))));
        calls.push(("apply_patch", patch(&format!("*** Update File: a.txt\n*** Move to: {path}\n@@\n-x\n+evil"))));
    }
    for (tool, arguments) in calls {
        let result = fixture.call(tool, arguments.clone()).await;
        let (text, is_error) = only_text(&result);
        assert!(
            is_error && text.contains("needs the owner's approval: approvals are not available here"),
            "{arguments}: {text}"
        );
    }
    fs::write(fixture.workdir().join("AGENTS.md"), "mine\n").unwrap();
    let edit = fixture.call("edit", json!({"path": "AGENTS.md", "oldText": "mine", "newText": "evil"})).await;
    let removal = fixture.call("apply_patch", patch("*** Delete File: AGENTS.md")).await;
    assert!(only_text(&edit).1 && only_text(&removal).1, "{edit:?} {removal:?}");
    let mut left: Vec<_> = fs::read_dir(fixture.workdir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".git", "AGENTS.md", "a.txt", "link"]);
    assert_eq!(fs::read_to_string(fixture.workdir().join("AGENTS.md")).unwrap(), "mine\n");
}

// A17.
#[tokio::test]
async fn file_tools_change_no_repository_without_a_working_tree() {
    let fixture = with_approvals();
    // One that git recognizes as a repository, and an incomplete one.
    for (folder, names) in [("deep/bare.git", &["objects", "refs"][..]), ("half", &["objects"])] {
        names.iter().for_each(|name| fs::create_dir_all(fixture.workdir().join(folder).join(name)).unwrap());
        fs::write(fixture.workdir().join(folder).join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(fixture.workdir().join(folder).join("config"), "[core]\n").unwrap();
    }
    fs::write(fixture.workdir().join("a.txt"), "x\n").unwrap();
    symlink("deep/bare.git", fixture.workdir().join("link")).unwrap();
    let mut calls = vec![
        ("edit", json!({"path": "deep/bare.git/config", "oldText": "[core]", "newText": "[core] fsmonitor = ./x.sh"})),
        ("apply_patch", patch("*** Delete File: deep/bare.git/config")),
    ];
    for path in ["deep/bare.git/config", "link/config", "half/config"] {
        calls.push(("write", json!({"path": path, "content": "evil\n"})));
    }
    for path in ["deep/bare.git/hooks/post-index-change", "link/config.worktree", "half/refs/a", "half/commondir"] {
        calls.push(("write", json!({"path": path, "content": "evil\n"})));
        calls.push(("apply_patch", patch(&format!("*** Update File: a.txt\n*** Move to: {path}\n@@\n-x\n+evil"))));
    }
    for (tool, arguments) in calls {
        let result = fixture.call(tool, arguments.clone()).await;
        let (text, is_error) = only_text(&result);
        assert!(is_error && text.contains("needs the owner's approval"), "{arguments}: {text}");
    }
    assert_eq!(fs::read_to_string(fixture.workdir().join("deep/bare.git/config")).unwrap(), "[core]\n");
    let beside = fixture.call("write", json!({"path": "deep/config", "content": "x"})).await;
    assert!(!beside.is_error, "{beside:?}");
}

// A17.
#[tokio::test]
async fn files_named_by_a_repository_config_are_protected() {
    let fixture = with_approvals();
    fs::create_dir_all(fixture.workdir().join("sub/.git")).unwrap();
    fs::create_dir_all(fixture.workdir().join("sub/tools/hooks")).unwrap();
    fs::write(fixture.workdir().join("sub/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let config = "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../shared.gitconfig\n";
    fs::write(fixture.workdir().join("sub/.git/config"), config).unwrap();
    fs::write(fixture.workdir().join("sub/shared.gitconfig"), "[alias]\n\tst = status\n").unwrap();
    for path in ["sub/tools/hooks/pre-commit", "sub/shared.gitconfig"] {
        let result = fixture.call("write", json!({"path": path, "content": "evil"})).await;
        assert!(only_text(&result).0.contains("needs the owner's approval"), "{path}: {result:?}");
    }
    let free = fixture.call("write", json!({"path": "sub/tools/a.sh", "content": "x"})).await;
    assert!(!free.is_error, "{free:?}");
    if !fixture::has_namespaces("files_named_by_a_repository_config_are_protected") {
        return;
    }
    let fixture = ToolFixture::new();
    fs::create_dir_all(fixture.workdir().join(".git")).unwrap();
    fs::write(fixture.workdir().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(fixture.workdir().join(".git/config"), config).unwrap();
    let plant = "mkdir -p tools/hooks; echo evil > tools/hooks/pre-commit; echo evil > shared.gitconfig; echo x > tools/a; echo done";
    let text = in_repository(&fixture, plant).await;
    assert!(text.contains("done") && fixture.workdir().join("tools/a").exists(), "{text}");
    for path in ["tools/hooks/pre-commit", "shared.gitconfig"] {
        assert!(!fixture.workdir().join(path).exists(), "{path}: {text}");
    }
}

// A17.
#[tokio::test]
async fn a_repository_with_parts_elsewhere_is_checked() {
    if !fixture::has_namespaces("a_repository_with_parts_elsewhere_is_checked") {
        return;
    }
    let fixture = ToolFixture::new();
    let plant = "git init -q --bare whole && mkdir front && mv whole/HEAD front/HEAD && echo ../whole > front/commondir && \
                 git -C front config core.fsmonitor ./x.sh; git -C front config core.fsmonitor; echo planted $?";
    let text = in_repository(&fixture, &format!("{SETUP}{plant}")).await;
    assert!(text.contains("planted 0"), "{text}");
    assert!(!fixture.workdir().join("front/commondir").exists(), "{text}");
    // A bare repository's records of its worktrees are kept.
    let make = "git init -q repo && git -C repo commit -q --allow-empty -m x && git clone -q --bare repo bare.git && \
                git -C bare.git worktree add -q ../tree; echo made $?";
    let text = in_repository(&fixture, &format!("{SETUP}{make}")).await;
    assert!(text.contains("made 0") && fixture.workdir().join("bare.git/worktrees/tree/commondir").exists(), "{text}");
}

// A17.
#[tokio::test]
async fn no_directory_of_programs_is_created_in_the_home_directory() {
    let outside = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = outside.path().canonicalize().unwrap().join("workspace");
    let fixture = ToolFixture::below(outside, &ENV, |settings| {
        settings.sandbox.home = Some(home.clone());
        settings.sandbox.search_path = vec!["/usr/bin".into(), home.join("scripts")];
    });
    for path in ["bin/git", "go/bin/git", "scripts/git", ".local/bin/git"] {
        let result = fixture.call("write", json!({"path": path, "content": "evil"})).await;
        assert!(result.is_error && !home.join(path).exists(), "{path}: {result:?}");
    }
    if !fixture::has_namespaces("no_directory_of_programs_is_created_in_the_home_directory") {
        return;
    }
    let plant = "mkdir -p bin go/bin scripts .local/bin work; for f in bin go/bin scripts .local/bin work; do echo evil > $f/git; done";
    let result = fixture.call("exec", json!({"command": plant})).await;
    for removed in ["bin", "go", "scripts", ".local"] {
        assert!(!home.join(removed).exists(), "{removed}: {result:?}");
    }
    assert!(home.join("work/git").exists(), "{result:?}");
}

#[tokio::test]
async fn an_agent_keeps_its_own_notes_without_approval() {
    let fixture = with_approvals();
    for path in ["MEMORY.md", "memory/2026-01-01.md", "USER.md", "IDENTITY.md", "src/hooks/use.ts", "a.txt"] {
        let written = fixture.call("write", json!({"path": path, "content": "x"})).await;
        assert!(!written.is_error, "{path}: {written:?}");
    }
    fs::write(fixture.workdir().join("BOOTSTRAP.md"), "hello").unwrap();
    let soul_write = fixture.call("write", json!({"path": "SOUL.md", "content": "x"})).await;
    let guide_removal = fixture.call("apply_patch", patch("*** Delete File: BOOTSTRAP.md")).await;
    assert!(!soul_write.is_error && !guide_removal.is_error, "{soul_write:?} {guide_removal:?}");
    let later = fixture.call("write", json!({"path": "SOUL.md", "content": "y"})).await;
    assert!(later.is_error, "{later:?}");
}

#[tokio::test]
async fn r67_runs_of_non_owners_change_no_protected_file() {
    let fixture = with_approvals();
    let mut cx = fixture.cx(AgentId::main().main_session());
    cx.origin.principal = "channel:telegram:2".to_owned();
    let result = fixture.tool("write").call(cx, json!({"path": "AGENTS.md", "content": "x"})).await;
    assert!(only_text(&result).0.contains("only the owner's runs may request it"), "{result:?}");
}

/// Runs a command in a repository and returns its output.
async fn in_repository(fixture: &ToolFixture, command: &str) -> String {
    let result = fixture.call("exec", json!({"command": command})).await;
    only_text(&result).0.to_owned()
}

const SETUP: &str = "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x; ";

#[tokio::test]
async fn a_nested_repository_brings_nothing_that_git_runs() {
    if !fixture::has_namespaces("a_nested_repository_brings_nothing_that_git_runs") {
        return;
    }
    let fixture = ToolFixture::new();
    let plant = "git init -q . && git init -q deep/sub && cd deep/sub && echo a > a && git add a && git commit -qm x && \
                 git config core.fsmonitor ../../x.sh && echo evil > .git/hooks/pre-commit && cd ../.. && \
                 git init -q --bare bare.git && git -C bare.git config core.pager evil && \
                 mkdir linked && echo 'gitdir: ../bare.git' > linked/.git && \
                 git update-index --add --cacheinfo 160000,$(git -C deep/sub rev-parse HEAD),deep/sub; echo done $?";
    let text = in_repository(&fixture, &format!("{SETUP}{plant}")).await;
    assert!(text.contains("done 0"), "{text}");
    let exists = |path: &str| fixture.workdir().join(path).exists();
    for removed in ["deep/sub/.git/config", "deep/sub/.git/hooks/pre-commit", "bare.git/config", "linked/.git"] {
        assert!(!exists(removed) && text.contains(removed), "{removed}: {text}");
    }
    assert!(exists("deep/sub/.git/HEAD") && exists("deep/sub/a"), "{text}");
}

#[tokio::test]
async fn ordinary_work_in_repositories_is_not_disturbed() {
    if !fixture::has_namespaces("ordinary_work_in_repositories_is_not_disturbed") {
        return;
    }
    let fixture = ToolFixture::new();
    let make = "git init -q . && echo a > a && git add a && git commit -qm a && git init -q sub && cd sub && echo b > b && \
                git add b && git commit -qm b; echo made $?";
    let text = in_repository(&fixture, &format!("{SETUP}{make}")).await;
    assert!(text.contains("made 0") && !text.contains("aside"), "{text}");
    // An owner's setting that names a program is kept, and commands cannot change it.
    let config = fixture.workdir().join("sub/.git/config");
    let config_text = fs::read_to_string(&config).unwrap() + "[core]\n\tpager = less\n";
    fs::write(&config, &config_text).unwrap();
    let command = "git status --short && git checkout -qb topic && git commit -q --allow-empty -m c && git rebase -q master main \
                2>/dev/null; git worktree add -q tree && cd sub && git checkout -qb other && echo c > c && git add c && \
                git commit -qm c; echo worked $?; git config core.fsmonitor ./evil; echo refused $?";
    let text = in_repository(&fixture, &format!("{SETUP}{command}")).await;
    assert!(text.contains("worked 0") && !text.contains("refused 0") && !text.contains("aside"), "{text}");
    assert_eq!(fs::read_to_string(&config).unwrap(), config_text);
    assert!(fixture.workdir().join("tree/.git").exists(), "{text}");
}

#[tokio::test]
async fn a_repository_that_replaces_another_counts_as_new() {
    if !fixture::has_namespaces("a_repository_that_replaces_another_counts_as_new") {
        return;
    }
    let fixture = ToolFixture::new();
    let text = in_repository(&fixture, "git init -q . && git init -q deep/sub; echo made $?").await;
    assert!(text.contains("made 0"), "{text}");
    let swap =
        "mv deep away; git init -q deep/sub && git -C deep/sub config core.fsmonitor ../../x.sh; echo swapped $?";
    let text = in_repository(&fixture, swap).await;
    let config = fs::read_to_string(fixture.workdir().join("deep/sub/.git/config")).unwrap_or_default();
    assert!(!config.contains("fsmonitor"), "{text}");
}

#[tokio::test]
async fn a_protected_file_that_replaces_another_is_quarantined() {
    if !fixture::has_namespaces("a_protected_file_that_replaces_another_is_quarantined") {
        return;
    }
    let fixture = ToolFixture::new();
    let file = fixture.workdir().join("project/part/AGENTS.md");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "good").unwrap();
    let swap = "mv project away; mkdir -p project/part; echo evil > project/part/AGENTS.md; echo swapped $?";
    let text = in_repository(&fixture, swap).await;
    assert!(text.contains("swapped 0") && !file.exists(), "{text}");
    assert_eq!(fs::read_to_string(fixture.workdir().join("away/part/AGENTS.md")).unwrap(), "good");
}

/// Returns a command that plants, in a directory, a repository whose config names a program, and a gitlink to it at the
/// top.
fn plant(directory: &str) -> String {
    format!(
        "git init -q {directory} && (cd {directory} && git commit -q --allow-empty -m x && git config core.fsmonitor ./x.sh) && \
         git update-index --add --cacheinfo 160000,$(git -C {directory} rev-parse HEAD),{directory}"
    )
}

#[tokio::test]
async fn a_planted_repository_is_found_wherever_it_is() {
    if !fixture::has_namespaces("a_planted_repository_is_found_wherever_it_is") {
        return;
    }
    let hidden = format!("{} && chmod 0111 closed", plant("closed/sub"));
    let decoy = format!("mkdir -p decoy/objects decoy/refs && echo x > decoy/HEAD && {}", plant("decoy/objects/sub"));
    for (what, directory) in [(hidden, "closed/sub"), (decoy, "decoy/objects/sub")] {
        let fixture = ToolFixture::new();
        let text = in_repository(&fixture, &format!("{SETUP}git init -q . && {what}; echo planted $?")).await;
        assert!(text.contains("planted 0"), "{text}");
        let config = fs::read_to_string(fixture.workdir().join(directory).join(".git/config")).unwrap_or_default();
        assert!(!config.contains("fsmonitor"), "{directory}: {text}");
    }
}

#[tokio::test]
async fn settings_of_a_worktree_are_quarantined() {
    if !fixture::has_namespaces("settings_of_a_worktree_are_quarantined") {
        return;
    }
    let fixture = ToolFixture::new();
    let make = "git init -q . && git commit -q --allow-empty -m x && git worktree add -q old; echo made $?";
    assert!(in_repository(&fixture, &format!("{SETUP}{make}")).await.contains("made 0"));
    let evil = "git worktree add -q new && for tree in old new; do \
                echo '[core] fsmonitor = ./x.sh' > .git/worktrees/$tree/config.worktree; done; echo planted $?";
    let text = in_repository(&fixture, &format!("{SETUP}{evil}")).await;
    assert!(text.contains("planted 0"), "{text}");
    for tree in ["old", "new"] {
        assert!(
            !fixture.workdir().join(".git/worktrees").join(tree).join("config.worktree").exists(),
            "{tree}: {text}"
        );
        assert!(fixture.workdir().join(tree).join(".git").exists(), "{tree}: {text}");
    }
}
