//! What tools see of the home directory: the workspace, toolchains, caches and the git identity, and nothing else.
#![allow(clippy::unwrap_used, reason = "tests may")]

mod fixture;

use std::{fs, os::unix::fs::symlink, path::Path};

use fixture::{HELPER, ToolFixture, has_namespaces, only_text};
use homard_sandbox::Tier;
use homard_tools::ExecSettings;
use serde_json::json;
use tempfile::TempDir;

/// Files in which programs store credentials, histories and profiles.
const CREDENTIALS: [&str; 57] = [
    ".Xauthority",
    ".bash_history",
    ".bashrc",
    ".bitcoin/wallet.dat",
    ".boto",
    ".cache/huggingface/token",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".composer/auth.json",
    ".config/Bitwarden/data.json",
    ".config/Code/User/globalStorage/state.vscdb",
    ".config/Signal/config.json",
    ".config/Slack/Cookies",
    ".config/configstore/firebase-tools.json",
    ".config/doctl/config.yaml",
    ".config/environment.d/secrets.conf",
    ".config/git/credentials",
    ".config/hub",
    ".config/microsoft-edge/Default/Cookies",
    ".config/pip/pip.conf",
    ".config/rclone/rclone.conf",
    ".config/solana/id.json",
    ".config/sops/age/keys.txt",
    ".config/stripe/config.toml",
    ".config/vivaldi/Default/Cookies",
    ".cursor/auth.json",
    ".docker/config.json",
    ".electrum/wallets/default",
    ".env",
    ".fly/config.yml",
    ".gem/credentials",
    ".gemini/oauth_creds.json",
    ".gradle/gradle.properties",
    ".histfile",
    ".huggingface/token",
    ".kaggle/kaggle.json",
    ".kube/config",
    ".local/share/TelegramDesktop/tdata/key",
    ".local/share/atuin/history.db",
    ".local/share/com.vercel.cli/auth.json",
    ".local/share/fish/fish_history",
    ".local/share/opencode/auth.json",
    ".m2/settings.xml",
    ".mc/config.json",
    ".my.cnf",
    ".mysql_history",
    ".netrc",
    ".oci/config",
    ".ollama/id_ed25519",
    ".pip/pip.conf",
    ".rclone.conf",
    ".s3cfg",
    ".ssh/id_ed25519",
    ".var/app/org.mozilla.firefox/.mozilla/firefox/p/logins.json",
    ".vault_pass",
    ".yarnrc.yml",
    "snap/firefox/common/.mozilla/firefox/p/logins.json",
];

/// Files that development needs.
const DEVELOPMENT: [&str; 14] = [
    ".cache/go-build/00/a",
    ".cache/pip/a",
    ".cargo/bin/tool",
    ".cargo/config.toml",
    ".cargo/registry/index/a",
    ".config/git/config",
    ".config/git/ignore",
    ".local/bin/tool",
    ".local/lib/python3.11/site-packages/a.py",
    ".m2/repository/a",
    ".npm/_cacache/index-v5/a",
    ".nvm/versions/node/v22/bin/node",
    ".rustup/toolchains/stable/bin/rustc",
    "go/pkg/mod/a",
];

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Returns a bench for each tier that works here, whose home directory contains all of the above. `workspace` is below
/// it.
fn fixtures(workspace: &str, change: impl Fn(&Path, &mut ExecSettings)) -> Vec<(&'static str, ToolFixture)> {
    let limited = Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned());
    let mut all = vec![("tier B", Some(limited))];
    if has_namespaces("the view of the home directory in namespaces") {
        all.push(("tier A", None));
    }
    let make = |(sandbox, tier): (&'static str, Option<Tier>)| {
        let outside = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let top = outside.path().canonicalize().unwrap();
        // `ToolFixture` works in the folder `workspace`.
        let home = if workspace.is_empty() { top.join("workspace") } else { top };
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", home.to_str().unwrap())];
        let fixture = ToolFixture::below(outside, &env, |settings| {
            settings.tier = tier;
            settings.sandbox.state_dir = Some(home.join(".homard"));
            change(&home, settings);
        });
        for name in CREDENTIALS {
            put(&home.join(name), "canary");
        }
        for name in DEVELOPMENT {
            put(&home.join(name), "tool");
        }
        put(&home.join("taxes.txt"), "plain");
        put(&home.join(".homard/gateway-token"), "canary");
        (sandbox, fixture)
    };
    all.into_iter().map(make).collect()
}

async fn run(fixture: &ToolFixture, command: &str) -> String {
    let result = fixture.call("exec", json!({"command": command})).await;
    only_text(&result).0.to_owned()
}

/// Returns the files of the home directory among `names` that a command can read.
async fn readable(fixture: &ToolFixture, names: &[&str]) -> Vec<String> {
    let command = format!("for f in {}; do cat ~/$f > /dev/null 2>&1 && echo $f; done; true", names.join(" "));
    run(fixture, &command).await.lines().filter(|line| *line != "(no output)").map(ToOwned::to_owned).collect()
}

// A13.
#[tokio::test]
async fn commands_read_no_credential_file_of_the_home_directory() {
    for (sandbox, fixture) in fixtures("workspace", |_, _| {}) {
        assert_eq!(readable(&fixture, &CREDENTIALS).await, Vec::<String>::new(), "{sandbox}");
        assert_eq!(
            readable(&fixture, &["taxes.txt", ".homard/gateway-token"]).await,
            Vec::<String>::new(),
            "{sandbox}"
        );
        let found = run(&fixture, "grep -rl canary ~ /proc/self/root/$HOME 2> /dev/null; true").await;
        assert_eq!(found, "(no output)", "{sandbox}");
    }
}

#[tokio::test]
async fn commands_read_toolchains_and_caches_but_do_not_change_them() {
    for (sandbox, fixture) in fixtures("workspace", |_, _| {}) {
        assert_eq!(readable(&fixture, &DEVELOPMENT).await, DEVELOPMENT, "{sandbox}");
        run(&fixture, "for f in ~/.cargo/bin/tool ~/.local/bin/tool ~/new ~/.cargo/new; do echo x > $f; done").await;
        assert_eq!(fs::read_to_string(fixture.outside().join(".local/bin/tool")).unwrap(), "tool", "{sandbox}");
        assert!(!fixture.outside().join("new").exists() && !fixture.outside().join(".cargo/new").exists(), "{sandbox}");
    }
}

#[tokio::test]
async fn git_commits_with_the_identity_of_the_user() {
    for (sandbox, fixture) in fixtures("workspace", |_, _| {}) {
        let config = "[user]\n\tname = Ann\n\temail = ann@example.com\n";
        // As with dotfiles kept in a repository.
        put(&fixture.outside().join("dotfiles/gitconfig"), config);
        symlink("dotfiles/gitconfig", fixture.outside().join(".gitconfig")).unwrap();
        fs::remove_dir_all(fixture.outside().join(".config/git")).unwrap();
        let command = "git init -q -b main && echo a > a && git add a && git commit -qm one && git log --format=%an";
        assert_eq!(run(&fixture, command).await, "Ann", "{sandbox}");
        assert_eq!(readable(&fixture, &["dotfiles/other"]).await, Vec::<String>::new(), "{sandbox}");
    }
}

#[tokio::test]
async fn the_owner_can_make_more_of_the_home_directory_visible() {
    let opened = ["docs/a.txt", ".config/gh/hosts.yml"];
    let closed = ["docs/.key", "taxes.txt", ".config/hub", ".ssh/id_ed25519"];
    for (sandbox, fixture) in fixtures("workspace", |home, settings| {
        put(&home.join("docs/a.txt"), "a");
        put(&home.join("docs/.key"), "canary");
        put(&home.join(".config/gh/hosts.yml"), "a");
        settings.sandbox.extra_read = vec![home.join("docs"), home.join(".config/gh")];
        settings.sandbox.masked = vec![home.join("docs/.key")];
    }) {
        assert_eq!(readable(&fixture, &opened).await, opened, "{sandbox}");
        assert_eq!(readable(&fixture, &closed).await, Vec::<String>::new(), "{sandbox}");
    }
    // The whole home directory is opened, but known credentials stay hidden.
    for (sandbox, fixture) in
        fixtures("workspace", |home, settings| settings.sandbox.extra_read = vec![home.to_owned()])
    {
        let found = readable(&fixture, &["taxes.txt", ".boto", ".ssh/id_ed25519", ".homard/gateway-token"]).await;
        assert_eq!(found, ["taxes.txt", ".boto"], "{sandbox}");
    }
}

#[tokio::test]
async fn a_home_directory_that_is_the_workspace_shows_no_hidden_files() {
    for (sandbox, fixture) in fixtures("", |_, _| {}) {
        for name in CREDENTIALS.into_iter().chain([".homard/gateway-token"]) {
            let read = fixture.call("read", json!({"path": name})).await;
            assert!(only_text(&read).0.contains("is hidden from tools"), "{sandbox} {name}: {read:?}");
        }
        for path in [".tmux.conf", ".config/nvim/init.vim", ".cargo/bin/tool", ".gitconfig"] {
            let written = fixture.call("write", json!({"path": path, "content": "evil"})).await;
            assert!(written.is_error, "{sandbox} {path}: {written:?}");
        }
        let read_config = fixture.call("read", json!({"path": ".cargo/config.toml"})).await;
        assert_eq!(only_text(&read_config), ("tool", false), "{sandbox}");
        let edited = fixture.call("edit", json!({"path": "taxes.txt", "oldText": "plain", "newText": "plainly"})).await;
        assert!(!edited.is_error, "{sandbox}: {edited:?}");
        assert_eq!(readable(&fixture, &CREDENTIALS).await, Vec::<String>::new(), "{sandbox}");
        assert_eq!(readable(&fixture, &DEVELOPMENT).await, DEVELOPMENT, "{sandbox}");
        assert_eq!(readable(&fixture, &["taxes.txt"]).await, ["taxes.txt"], "{sandbox}");
        run(&fixture, "echo evil > ~/.cargo/bin/tool; echo evil > ~/.local/bin/new; echo evil > ~/.tmux.conf").await;
        assert_eq!(fs::read_to_string(fixture.workdir().join(".cargo/bin/tool")).unwrap(), "tool", "{sandbox}");
        assert!(!fixture.workdir().join(".local/bin/new").exists(), "{sandbox}");
        assert!(!fixture.workdir().join(".tmux.conf").exists(), "{sandbox}");
    }
}

#[tokio::test]
async fn a_masked_file_in_the_workspace_is_hidden() {
    for (sandbox, fixture) in fixtures("workspace", |home, settings| {
        settings.sandbox.masked = vec![home.join("workspace/keys"), home.join("workspace/deep/.env")];
    }) {
        put(&fixture.workdir().join("keys/a"), "canary");
        put(&fixture.workdir().join("deep/.env"), "canary");
        put(&fixture.workdir().join("deep/a"), "plain");
        let text = run(&fixture, "cat keys/a deep/.env; cat deep/a; echo changed > deep/a").await;
        assert!(!text.contains("canary") && text.contains("plain"), "{sandbox}: {text}");
        assert_eq!(fs::read_to_string(fixture.workdir().join("deep/a")).unwrap(), "changed\n", "{sandbox}");
    }
}

fn git(folder: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let done = std::process::Command::new("git").args(identity).args(arguments).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {done:?}");
}

#[tokio::test]
async fn the_repository_around_a_workspace_can_be_read() {
    for (sandbox, fixture) in fixtures("workspace", |_, _| {}) {
        let home = fixture.outside().canonicalize().unwrap();
        let project = home.join("projects/one");
        put(&project.join("Cargo.toml"), "whole");
        put(&project.join("part/a"), "a");
        git(&project, &["init", "-q"]);
        git(&project, &["add", "."]);
        git(&project, &["commit", "-qm", "first"]);
        git(&project, &["worktree", "add", "-q", "../tree"]);
        // A gitlink from elsewhere grants nothing.
        put(&home.join("projects/evil/.git"), &format!("gitdir: {}\n", home.join(".kube").display()));
        for (folder, expected) in [
            (project.join("part"), "whole\nfirst"),
            (home.join("projects/tree"), "first"),
            (home.join("projects/evil"), "(no output)"),
        ] {
            let mut cx = fixture.cx(homard_proto::AgentId::main().main_session());
            cx.workdir = folder.clone();
            let command = "exec 2> /dev/null; cat ../Cargo.toml && echo; git log --format=%s; cat ~/.kube/config; true";
            let result = fixture.tool("exec").call(cx, json!({"command": command})).await;
            assert_eq!(only_text(&result).0, expected, "{sandbox} {}", folder.display());
        }
    }
}

#[tokio::test]
async fn a_workspace_behind_a_link_can_be_used_by_its_name() {
    for (sandbox, fixture) in fixtures("workspace", |home, settings| {
        settings.sandbox.extra_read = vec![home.join("projects"), home.join("projects/one")];
    }) {
        let elsewhere = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        put(&elsewhere.path().join("one/a"), "a");
        put(&elsewhere.path().join("two/b"), "b");
        let home = fixture.outside().canonicalize().unwrap();
        symlink(elsewhere.path(), home.join("projects")).unwrap();
        let mut cx = fixture.cx(homard_proto::AgentId::main().main_session());
        cx.workdir = home.join("projects/one");
        let command = "cat a ~/projects/one/a ~/projects/two/b && echo c > ~/projects/one/c && cat c";
        let result = fixture.tool("exec").call(cx, json!({"command": command})).await;
        assert_eq!(only_text(&result), ("aabc", false), "{sandbox}");
    }
}
