//! What a sandboxed command cannot do, tested with real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod fixture;

use std::{
    collections::BTreeMap,
    fs,
    net::{TcpListener, UdpSocket},
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
};

use fixture::{HELPER, ToolFixture, has_namespaces, only_text};
use homard_sandbox::{AccessMode, SandboxPolicy, Tier, explain};
use homard_tools::ExecSettings;
use serde_json::json;
use tempfile::TempDir;

/// Content of files that must not be readable.
const SECRET: &str = "canary-7c1f";

const SECRETS: [&str; 9] = [
    "state/openclaw.json",
    "state/agents/main/sessions/a.jsonl",
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".gnupg/private-keys-v1.d/x.key",
    ".config/gh/hosts.yml",
    ".netrc",
    ".cargo/credentials.toml",
    "vault/chosen.txt",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SandboxKind {
    Namespace,
    NamespaceWithoutHelper,
    Landlock,
}

/// Filters the sandboxes that work here.
fn available(wanted: &[SandboxKind]) -> Vec<SandboxKind> {
    let has_namespaces = wanted == [SandboxKind::Landlock] || has_namespaces("the sandbox in namespaces");
    wanted.iter().copied().filter(|kind| has_namespaces || *kind == SandboxKind::Landlock).collect()
}

/// Returns all sandboxes that work here.
fn all_available() -> Vec<SandboxKind> {
    available(&[SandboxKind::Namespace, SandboxKind::NamespaceWithoutHelper, SandboxKind::Landlock])
}

fn limited() -> Tier {
    Tier::without_namespaces(Some(HELPER.as_ref()), "this test says so".to_owned())
}

/// A home directory with secrets and a workspace in it. In the target directory, because commands do not see `/tmp`.
fn home(kind: SandboxKind, change: impl FnOnce(&mut ExecSettings)) -> ToolFixture {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = folder.path().canonicalize().unwrap();
    for name in SECRETS {
        put(&home.join(name), SECRET);
    }
    put(&home.join("notes.txt"), "plain");
    put(&home.join(".config/tool/settings"), "settings");
    let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", home.to_str().unwrap()), ("TOKEN", SECRET)];
    ToolFixture::below(folder, &env, |settings| {
        settings.sandbox.state_dir = Some(home.join("state"));
        settings.sandbox.masked = vec![home.join("vault")];
        match kind {
            SandboxKind::Namespace => {}
            SandboxKind::NamespaceWithoutHelper => settings.helper = None,
            SandboxKind::Landlock => settings.tier = Some(limited()),
        }
        change(settings);
    })
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

async fn run(fixture: &ToolFixture, command: &str) -> (String, bool) {
    let result = fixture.call("exec", json!({"command": command})).await;
    let (text, is_error) = only_text(&result);
    (text.to_owned(), is_error)
}

// A13, R79.
#[tokio::test]
async fn secrets_of_the_home_directory_cannot_be_read() {
    for kind in all_available() {
        let fixture = home(kind, |_| {});
        for name in SECRETS {
            let (text, is_error) = run(&fixture, &format!("cat ~/{name}; cat ../{name}; cp ~/{name} here")).await;
            assert!(is_error && !text.contains(SECRET), "{kind:?} {name}: {text}");
        }
        let attempts = "ln -s ~/.ssh link; cat link/*; ln ~/.netrc hard; cat hard; tar c ~ 2> /dev/null | grep -a canary; \
                     grep -r canary ~ /proc/*/environ /proc/*/cwd/ 2> /dev/null | grep -v cmdline; mv ~/.ssh ssh; cat ssh/*";
        let (text, _) = run(&fixture, attempts).await;
        assert!(!text.contains(SECRET), "{kind:?}: {text}");
        let (text, is_error) = run(&fixture, "cat ~/notes.txt ~/.config/tool/settings").await;
        assert!(is_error && !text.contains("plain") && !text.contains("settings\n\n"), "{kind:?}: {text}");
    }
}

#[tokio::test]
async fn nothing_outside_the_workspace_can_be_changed() {
    for kind in all_available() {
        let fixture = home(kind, |_| {});
        // The first command creates Homard's own record directory.
        run(&fixture, "true").await;
        let before = contents(fixture.outside());
        let attempts = "exec 2> /dev/null; echo x > ~/new; echo x >> ~/notes.txt; rm ~/notes.txt; chmod 777 ~/notes.txt; \
                     mkdir ~/.config/new; mv ~/notes.txt ~/moved; ln -s / ~/link; ln ~/notes.txt ~/hard; touch ~/.ssh/x; \
                     truncate -s 0 ~/notes.txt; ln -s ~/notes.txt through; echo x > through; rm through; \
                     cd ..; touch beside; echo x > /etc/homard-test; touch /usr/bin/homard-test; true";
        run(&fixture, attempts).await;
        assert_eq!(contents(fixture.outside()), before, "{kind:?}");
        assert!(!Path::new("/etc/homard-test").exists() && !Path::new("/usr/bin/homard-test").exists());
    }
}

// R52
#[tokio::test]
async fn the_network_cannot_be_reached() {
    let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    let name = format!("homard-test-{}", std::process::id());
    let address = <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(&name);
    let hidden = UnixListener::bind_addr(&address.unwrap()).unwrap();
    hidden.set_nonblocking(true).unwrap();
    let perl = |body: &str| format!("perl -MSocket -e '{body}'");
    let connect =
        format!("connect($s, pack_sockaddr_in({tcp_port}, inet_aton(\"127.0.0.1\"))) or exit 1; print \"out\"");
    let abstract_name = format!("connect($s, pack_sockaddr_un(\"\\0{name}\")) or exit 1; print \"out\"");
    let attempts = [
        format!("echo > /dev/tcp/127.0.0.1/{tcp_port} && echo out"),
        "echo > /dev/tcp/192.0.2.1/80 && echo out".to_owned(),
        format!("echo x > /dev/udp/127.0.0.1/{udp_port}; true"),
        "echo x > /dev/udp/192.0.2.1/53 && echo out".to_owned(),
        format!("curl -s --max-time 5 http://127.0.0.1:{tcp_port} && echo out"),
        "getent ahosts example.com && echo out".to_owned(),
        perl(&format!("socket($s, PF_INET, SOCK_STREAM, 0) or exit 1; {connect}")),
        perl("socket($s, PF_INET, SOCK_RAW, 1) or exit 1; print \"out\""),
        perl("socket($s, 17, SOCK_RAW, 0) or exit 1; print \"out\""),
        perl("socket($s, 16, SOCK_RAW, 0) or exit 1; print \"out\""),
        perl("socket($s, 40, SOCK_STREAM, 0) or exit 1; print \"out\""),
        perl(&format!("socket($s, PF_UNIX, SOCK_STREAM, 0) or exit 1; {abstract_name}")),
        perl(
            "socket($s, PF_UNIX, SOCK_STREAM, 0) or exit 1; connect($s, pack_sockaddr_un(\"/run/docker.sock\")) or exit 1; print \"out\"",
        ),
    ];
    for kind in all_available() {
        let fixture = home(kind, |_| {});
        for command in &attempts {
            let (text, _) = run(&fixture, &format!("exec 2> /dev/null; {command}")).await;
            assert!(!text.contains("out\n") && !text.starts_with("out"), "{kind:?} {command}: {text}");
        }
        assert!(tcp.accept().is_err() && udp.recv(&mut [0; 8]).is_err() && hidden.accept().is_err(), "{kind:?}");
    }
}

#[tokio::test]
async fn the_network_can_be_reached_where_the_policy_says_so() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    for kind in all_available() {
        let fixture = home(kind, |settings| settings.sandbox.network = true);
        let command = format!("echo > /dev/tcp/127.0.0.1/{port} && echo out");
        assert_eq!(run(&fixture, &command).await, ("out".to_owned(), false), "{kind:?}");
    }
}

/// Ways to create, change or replace a file.
const TRICKS: [&str; 8] = [
    "echo evil > PATH",
    "mkdir -p PATH && echo evil > PATH/evil",
    "rm -rf PATH; echo evil > PATH",
    "mv PATH moved; mkdir -p PATH; echo evil > PATH/evil",
    "ln -s /etc/passwd PATH; ln -sfn /etc/passwd PATH",
    "echo evil > new; mv -f new PATH; mv -fT new PATH",
    "d=$(dirname PATH); [ $d = . ] || { mv $d moved; mkdir $d; echo evil > PATH; }",
    "cp /bin/true PATH; chmod 777 PATH; truncate -s 1 PATH; touch PATH/evil",
];

const CONTROL_FILES: [&str; 13] = [
    ".git/hooks",
    ".git/hooks/pre-commit",
    ".git/config",
    ".git/commondir",
    ".openclaw",
    ".codex",
    ".claude",
    ".vscode",
    ".envrc",
    "skills",
    "hooks",
    "AGENTS.md",
    "MEMORY.md",
];

// R53, A17: existing files are not changed while the command runs, and files that it creates are gone when it has
// ended.
#[tokio::test]
async fn files_that_instruct_agents_or_git_are_neither_changed_nor_created() {
    for kind in all_available() {
        for is_there in [true, false] {
            for path in CONTROL_FILES {
                let fixture = home(kind, |_| {});
                let root = fixture.workdir();
                if is_there {
                    let name = root.join(path);
                    put(&if name.extension().is_none() { name.join("one") } else { name }, "good");
                }
                if is_there || path.ends_with("commondir") {
                    put(&root.join(".git/HEAD"), "ref: refs/heads/main\n");
                }
                let before = control_files(root);
                let tricks: Vec<_> = TRICKS.iter().map(|trick| format!("({})", trick.replace("PATH", path))).collect();
                let probe = "grep -rq evil PATH && echo seen".replace("PATH", path);
                let (text, _) = run(&fixture, &format!("{}\n{probe}", tricks.join("\n"))).await;
                assert_eq!(control_files(root), before, "{kind:?} {path} {is_there}: {text}");
                // Without mounts, a change is undone shortly after.
                let is_seen = text.contains("seen") && is_there && kind != SandboxKind::Landlock;
                assert!(!is_seen, "{kind:?} {path}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn files_created_by_a_command_are_quarantined_and_reported() {
    for kind in all_available() {
        let fixture = home(kind, |_| {});
        let command = "umask 0; echo evil > AGENTS.md; mkdir -p skills/evil; echo evil > skills/evil/SKILL.md; \
                       ln -s /etc/passwd CLAUDE.md; echo hi > a.txt; chmod 0 skills; chmod 500 .";
        let (text, is_error) = run(&fixture, command).await;
        let quarantined = fixture.outside().canonicalize().unwrap().join("state/quarantine/1");
        assert!(!is_error && text.contains(": AGENTS.md, CLAUDE.md, skills."), "{kind:?}: {text}");
        assert!(text.contains(quarantined.to_str().unwrap()), "{kind:?}: {text}");
        let found: Vec<PathBuf> = contents(fixture.workdir()).into_keys().collect();
        assert_eq!(found, [PathBuf::from("a.txt")], "{kind:?}");
        let expected = [
            ("AGENTS.md", "evil\n"),
            ("CLAUDE.md", "-> /etc/passwd"),
            ("skills", "/"),
            ("skills/evil", "/"),
            ("skills/evil/SKILL.md", "evil\n"),
        ];
        assert_eq!(
            contents(&quarantined),
            expected.map(|(path, text)| (path.into(), text.to_owned())).into(),
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn nothing_appears_in_the_workspace_while_a_command_runs() {
    if !has_namespaces("nothing_appears_in_the_workspace_while_a_command_runs") {
        return;
    }
    let fixture = home(SandboxKind::Namespace, |_| {});
    let script = "until [ -e go ]; do sleep 0.01; done; echo evil > SOUL.md";
    fixture.call("exec", json!({"command": script, "background": true})).await;
    assert_eq!(run(&fixture, "ls -A").await, ("(no output)".to_owned(), false));
    assert_eq!(contents(fixture.workdir()), BTreeMap::new());
    fs::write(fixture.workdir().join("go"), "").unwrap();
    let poll = json!({"action": "poll", "sessionId": "amber-reef", "timeout": 20_000});
    let polled = fixture.call("process", poll).await;
    assert!(
        only_text(&polled).0.contains("quarantined files that were created while a command ran: SOUL.md."),
        "{polled:?}"
    );
    assert_eq!(contents(fixture.workdir()).into_keys().collect::<Vec<_>>(), [PathBuf::from("go")]);
    assert_eq!(contents(&fixture.outside().join("state/sandbox")), BTreeMap::new());
}

#[tokio::test]
async fn a_repository_can_be_created_but_not_its_hooks() {
    if !has_namespaces("a_repository_can_be_created_but_not_its_hooks") {
        return;
    }
    let fixture = home(SandboxKind::Namespace, |_| {});
    let (text, is_error) = run(&fixture, "git init -q -b main && git config user.name me && git status -s").await;
    assert_eq!((text.as_str(), is_error), ("(no output)", false));
    assert!(fs::read_to_string(fixture.workdir().join(".git/config")).unwrap().contains("name = me"));
    for (evil, quarantined) in [
        ("echo evil > .git/hooks/pre-commit", ".git/hooks/pre-commit"),
        ("git config core.fsmonitor ./evil", ".git/config"),
        ("mkdir -p repo; mv .git repo; echo 'gitdir: repo/.git' > .git", ".git"),
    ] {
        let fixture = home(SandboxKind::Namespace, |_| {});
        let (text, _) = run(&fixture, &format!("git init -q && mkdir -p .git/hooks && {evil}")).await;
        assert!(text.contains(&format!("while a command ran: {quarantined}.")), "{evil}: {text}");
        assert!(!fixture.workdir().join(quarantined).exists(), "{evil}: {text}");
    }
}

#[tokio::test]
async fn git_works_in_the_sandbox_but_cannot_change_hooks() {
    if !has_namespaces("git_works_in_the_sandbox_but_cannot_change_hooks") {
        return;
    }
    let fixture = home(SandboxKind::Namespace, |_| {});
    let init =
        std::process::Command::new("git").args(["init", "-q", "-b", "main"]).current_dir(fixture.workdir()).status();
    assert!(init.unwrap().success());
    let config = fs::read_to_string(fixture.workdir().join(".git/config")).unwrap();
    let command = "echo hi > a.txt && git add -A && git -c user.name=a -c user.email=b commit -q -m one && git status -s \
                   && git log --format=%s && git ls-files";
    assert_eq!(run(&fixture, command).await, ("one\na.txt".to_owned(), false));
    let (_, is_error) = run(&fixture, "git config core.hooksPath evil").await;
    assert!(is_error);
    assert_eq!(fs::read_to_string(fixture.workdir().join(".git/config")).unwrap(), config);
}

#[tokio::test]
async fn a_symlink_in_place_of_a_protected_file_is_restored() {
    for kind in all_available() {
        let fixture = home(kind, |_| {});
        put(&fixture.workdir().join("docs/rules.md"), "good");
        symlink("docs/rules.md", fixture.workdir().join("AGENTS.md")).unwrap();
        run(&fixture, "rm AGENTS.md; echo evil > AGENTS.md").await;
        assert_eq!(fs::read_link(fixture.workdir().join("AGENTS.md")).unwrap(), Path::new("docs/rules.md"), "{kind:?}");
    }
}

#[tokio::test]
async fn files_of_one_of_two_commands_are_not_legitimate_for_the_other() {
    if !has_namespaces("files_of_one_of_two_commands_are_not_legitimate_for_the_other") {
        return;
    }
    let fixture = home(SandboxKind::Namespace, |_| {});
    let first = "echo evil > SOUL.md; touch a; until [ -e go ]; do sleep 0.01; done; echo evil > SOUL.md";
    fixture.call("exec", json!({"command": first, "background": true})).await;
    let (text, is_error) = run(&fixture, "until [ -e a ]; do sleep 0.01; done; echo more >> SOUL.md").await;
    assert!(!is_error && text.contains("SOUL.md"), "{text}");
    assert!(!fixture.workdir().join("SOUL.md").exists());
    run(&fixture, "touch go").await;
    fixture.call("process", json!({"action": "poll", "sessionId": "amber-reef", "timeout": 20_000})).await;
    let found: Vec<PathBuf> = contents(fixture.workdir()).into_keys().collect();
    assert_eq!(found, [PathBuf::from("a"), PathBuf::from("go")]);
}

#[tokio::test]
async fn nothing_can_be_changed_in_read_only_mode() {
    for kind in all_available() {
        let fixture = home(kind, |settings| settings.sandbox.mode = AccessMode::ReadOnly);
        put(&fixture.workdir().join("a.txt"), "a");
        let before = contents(fixture.workdir());
        let (text, _) = run(&fixture, "cat a.txt; echo x > a.txt; echo x > b.txt; mkdir c; rm a.txt").await;
        assert!(text.starts_with('a'), "{kind:?}: {text}");
        assert_eq!(contents(fixture.workdir()), before, "{kind:?}");
    }
}

#[tokio::test]
async fn more_can_be_read_and_changed_where_the_policy_says_so() {
    for kind in all_available() {
        let mut extra = None;
        let fixture = home(kind, |settings| {
            let home = settings.sandbox.home.clone().unwrap();
            settings.sandbox.extra_read = vec![home.join("state/agents")];
            settings.sandbox.extra_write = vec![home.join(".config/tool")];
            extra = Some(home);
        });
        let command =
            "cat ~/state/agents/main/sessions/a.jsonl; echo new > ~/.config/tool/settings; cat ~/state/openclaw.json";
        let (text, is_error) = run(&fixture, command).await;
        assert!(is_error && text.starts_with(SECRET), "{kind:?}: {text}");
        assert_eq!(text.matches(SECRET).count(), 1, "{kind:?}: {text}");
        assert_eq!(fs::read_to_string(extra.unwrap().join(".config/tool/settings")).unwrap(), "new\n", "{kind:?}");
    }
}

// R79
#[tokio::test]
async fn processes_of_others_are_out_of_reach() {
    for kind in all_available() {
        let fixture = home(kind, |_| {});
        let pid = std::process::id();
        let command = format!(
            "exec 2> /dev/null; kill -0 {pid} && echo signalled; cat /proc/{pid}/environ && echo read; \
             cat /proc/{pid}/root/etc/hostname && echo entered; echo $TOKEN; ulimit -c; true"
        );
        let (text, _) = run(&fixture, &command).await;
        let limit = if kind == SandboxKind::NamespaceWithoutHelper { text.as_str() } else { "0" };
        assert_eq!(text.trim(), limit.trim(), "{kind:?}");
        assert!(!["signalled", "read", "entered", SECRET].iter().any(|word| text.contains(word)), "{kind:?}: {text}");
    }
}

#[tokio::test]
async fn system_calls_that_attack_the_kernel_are_refused() {
    // System call numbers of this architecture: perl has no names for them.
    let calls = [("ptrace", 101), ("unshare", 272), ("mount", 165), ("bpf", 321), ("keyctl", 250), ("io_uring", 425)];
    for kind in all_available().into_iter().filter(|_| cfg!(target_arch = "x86_64")) {
        let fixture = home(kind, |_| {});
        for (name, number) in calls {
            let command = format!("perl -e 'syscall({number}, 0x10000000, 0, 0, 0, 0); print $!+0'");
            assert_eq!(run(&fixture, &command).await, ("1".to_owned(), false), "{kind:?} {name}");
        }
        // The x32 ABI, and the call whose flags cannot be inspected (`clone3`), are reported as not implemented.
        for number in [0x4000_0000 + 39, 435] {
            let command = format!("perl -e 'syscall({number}, 0, 0); print $!+0'");
            assert_eq!(run(&fixture, &command).await, ("38".to_owned(), false), "{kind:?} {number}");
        }
    }
}

// R51
#[tokio::test]
async fn without_any_sandbox_a_command_is_refused() {
    let tier = Tier::without_namespaces(None, "bubblewrap is not installed".to_owned());
    let reason = "bubblewrap is not installed, and the helper program for Landlock is missing";
    assert_eq!(tier, Tier::C { why: reason.to_owned() });
    let fixture = home(SandboxKind::Namespace, |settings| settings.tier = Some(tier));
    let expected = format!(
        "the command was not run, because no sandbox is available: {reason}. Install bubblewrap (apt-get install \
         bubblewrap), or ask the owner to set tools.exec.sandbox.mode to full"
    );
    assert_eq!(run(&fixture, "touch ran").await, (expected, true));
    assert!(!fixture.workdir().join("ran").exists());
}

#[test]
fn a_broken_helper_yields_no_tier() {
    let tier = Tier::without_namespaces(Some(Path::new("/bin/false")), "it is not there".to_owned());
    let reason = "it is not there, and Landlock does not work either (exit status: 1)";
    assert_eq!(tier, Tier::C { why: reason.to_owned() });
}

#[tokio::test]
async fn a_command_in_namespaces_has_a_tmp_of_its_own() {
    if !has_namespaces("a_command_in_namespaces_has_a_tmp_of_its_own") {
        return;
    }
    let outside = TempDir::new_in("/tmp").unwrap();
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    let fixture = home(SandboxKind::Namespace, |_| {});
    let (text, is_error) = run(&fixture, &format!("ls -A /tmp; echo x > /tmp/{name} && cat /tmp/{name}")).await;
    assert!(!is_error && text.ends_with('x') && text.matches(name).count() == 0, "{text}");
    assert!(outside.path().is_dir());
}

#[test]
fn a_policy_is_explained() {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir(root.join("state")).unwrap();
    fs::create_dir(root.join("work")).unwrap();
    let mut policy = SandboxPolicy { state_dir: Some(root.join("state")), ..SandboxPolicy::default() };
    let tier = Tier::A { bwrap: "/usr/bin/bwrap".into(), has_sizes: true };
    let explanation = explain(&policy, &tier, &root.join("work"));
    let root = root.display();
    assert_eq!(explanation[0], "Tier A: namespaces (/usr/bin/bwrap), a system call filter, and Landlock.");
    assert_eq!(explanation[1], format!("Can be changed: {root}/work (mode workspace)."));
    assert!(
        explanation[2].starts_with("Cannot be seen: ") && explanation[2].contains(&format!("{root}/state")),
        "{explanation:?}"
    );
    assert!(explanation[6].starts_with("The network cannot be reached"), "{explanation:?}");
    policy.mode = AccessMode::Full;
    let explanation = explain(&policy, &tier, folder.path());
    assert_eq!(explanation, ["No sandbox: commands have all permissions of the user (mode full)."]);
}

/// Returns the content of a directory: the text of files, the target of symlinks.
fn contents(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            let text = if kind.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if kind.is_dir() {
                folders.push(path.clone());
                "/".to_owned()
            } else {
                String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned()
            };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), text);
        }
    }
    found
}

/// Returns the same for files that control agents and git.
fn control_files(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = contents(root);
    found.retain(|path, _| CONTROL_FILES.iter().any(|control| path.starts_with(control)) || path == Path::new(".git"));
    found
}
