//! Files that a command plants to manipulate agents, while it runs and at any depth.
#![allow(clippy::unwrap_used, reason = "tests may")]

mod fixture;

use std::{cell::OnceCell, fs, os::unix::fs::symlink, path::Path, time::Duration};

use fixture::{HELPER, ToolFixture, has_namespaces, only_text};
use homard_sandbox::Tier;
use homard_tools::BackgroundCommands;
use homard_workspace::{Audience, BootstrapLimits, BootstrapReader, LoadRule, PageBody};
use serde_json::json;
use tokio::time::{interval, timeout};

const ENV: [(&str, &str); 1] = [("PATH", "/usr/local/bin:/usr/bin:/bin")];

/// Returns a bench for each tier that works here, with its background commands.
fn fixtures() -> Vec<(&'static str, ToolFixture, BackgroundCommands)> {
    let limited = Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned());
    let mut all = vec![("tier B", Some(limited))];
    if has_namespaces("planted files in namespaces") {
        all.push(("tier A", None));
    }
    let make = |(sandbox, tier)| {
        let background = OnceCell::new();
        let fixture = ToolFixture::with(&ENV, |settings| {
            settings.tier = tier;
            background.set(settings.background.clone()).unwrap();
        });
        (sandbox, fixture, background.into_inner().unwrap())
    };
    all.into_iter().map(make).collect()
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Starts a command and runs `work` when it is ready; the command is killed afterwards.
async fn during(fixture: &ToolFixture, command: &str, action: impl AsyncFnOnce()) {
    let command = format!("{command}; touch ready; sleep 100");
    let started = fixture.call("exec", json!({"command": command, "background": true})).await;
    let id = started.details.unwrap()["sessionId"].as_str().unwrap().to_owned();
    // Not with a second command, whose end would trigger a check.
    let mut tick = interval(Duration::from_millis(5));
    let ready = fixture.workdir().join("ready");
    let waited = timeout(Duration::from_secs(30), async {
        while !ready.exists() {
            tick.tick().await;
        }
    });
    waited.await.unwrap();
    action().await;
    fixture.call("process", json!({"action": "kill", "sessionId": id})).await;
}

/// Returns what a prompt includes of the file with this name.
fn loaded(reader: &BootstrapReader, fixture: &ToolFixture, name: &str) -> Option<String> {
    let pages = reader.pages(fixture.workdir(), Audience::Main, &BootstrapLimits::default());
    pages.into_iter().find(|page| page.name == name).and_then(|page| match page.body {
        PageBody::Whole(text) | PageBody::Cut(text) => Some(text),
        PageBody::Missing | PageBody::Unusable(_) => None,
    })
}

// A17.
#[tokio::test]
async fn files_of_a_running_command_are_not_loaded() {
    for (sandbox, fixture, background) in fixtures() {
        put(&fixture.workdir().join("SOUL.md"), "mine");
        put(&fixture.workdir().join("projects/old/AGENTS.md"), "mine");
        let reader = BootstrapReader::with_gate(background.load_gate());
        let plant = "mkdir -p skills/evil projects/x memory; for f in AGENTS.md HEARTBEAT.md TOOLS.md MEMORY.md BOOT.md \
                     skills/evil/SKILL.md projects/x/AGENTS.md memory/a.md; do echo evil > $f; done";
        during(&fixture, plant, async || {
            for name in ["AGENTS.md", "HEARTBEAT.md", "TOOLS.md", "MEMORY.md"] {
                assert_eq!(loaded(&reader, &fixture, name), None, "{sandbox} {name}");
            }
            assert_eq!(loaded(&reader, &fixture, "SOUL.md").as_deref(), Some("mine"), "{sandbox}");
            for name in ["skills/evil/SKILL.md", "projects/x/AGENTS.md", "BOOT.md", "memory/a.md"] {
                assert_eq!(reader.rule(&fixture.workdir().join(name)), LoadRule::Nothing, "{sandbox} {name}");
            }
            let unchanged = if sandbox == "tier A" { LoadRule::File } else { LoadRule::Text("mine".to_owned()) };
            for (name, rule) in [("projects/old/AGENTS.md", unchanged), ("src/a.md", LoadRule::File)] {
                assert_eq!(reader.rule(&fixture.workdir().join(name)), rule, "{sandbox} {name}");
            }
            assert_eq!(reader.file(fixture.workdir(), "HEARTBEAT.md", 100), Ok(None), "{sandbox}");
        })
        .await;
        for name in ["AGENTS.md", "skills", "memory", "projects/x/AGENTS.md"] {
            assert!(!fixture.workdir().join(name).exists(), "{sandbox} {name}");
        }
        // From now on it is the owner's file.
        put(&fixture.workdir().join("AGENTS.md"), "mine");
        assert_eq!(loaded(&reader, &fixture, "AGENTS.md").as_deref(), Some("mine"), "{sandbox}");
    }
}

#[tokio::test]
async fn files_written_by_a_tool_meanwhile_are_loaded_unchanged() {
    for (sandbox, fixture, background) in fixtures() {
        let reader = BootstrapReader::with_gate(background.load_gate());
        during(&fixture, "true", async || {
            let written = fixture.call("write", json!({"path": "AGENTS.md", "content": "good"})).await;
            assert!(!written.is_error, "{sandbox}: {written:?}");
            assert_eq!(loaded(&reader, &fixture, "AGENTS.md").as_deref(), Some("good"), "{sandbox}");
            // Whatever its content is when it is read.
            fs::write(fixture.workdir().join("AGENTS.md"), "evil").unwrap();
            assert_eq!(loaded(&reader, &fixture, "AGENTS.md").as_deref(), Some("good"), "{sandbox}");
            assert_eq!(reader.file(fixture.workdir(), "AGENTS.md", 100), Ok(Some("good".to_owned())), "{sandbox}");
        })
        .await;
        assert_eq!(fs::read_to_string(fixture.workdir().join("AGENTS.md")).unwrap(), "good", "{sandbox}");
    }
}

#[tokio::test]
async fn a_link_that_a_running_command_replaced_is_not_followed() {
    for (sandbox, fixture, background) in fixtures() {
        put(&fixture.workdir().join("docs/rules.md"), "mine");
        symlink("docs/rules.md", fixture.workdir().join("AGENTS.md")).unwrap();
        let reader = BootstrapReader::with_gate(background.load_gate());
        let plant = "echo evil > evil.md; rm AGENTS.md; ln -s evil.md AGENTS.md";
        during(&fixture, plant, async || {
            assert_eq!(loaded(&reader, &fixture, "AGENTS.md").as_deref(), Some("mine"), "{sandbox}");
        })
        .await;
        fixture.call("exec", json!({"command": "echo evil > docs/rules.md"})).await;
        assert_eq!(fs::read_to_string(fixture.workdir().join("docs/rules.md")).unwrap(), "mine", "{sandbox}");
    }
}

// A17.
#[tokio::test]
async fn files_that_instruct_agents_are_protected_at_any_depth() {
    for (sandbox, fixture, _) in fixtures() {
        for name in ["a/AGENTS.md", "a/.vscode/tasks.json", "node_modules/x/AGENTS.md"] {
            put(&fixture.workdir().join(name), "mine");
        }
        let command = "mkdir -p b/c/.vscode b/.gemini .github node_modules/y/.vscode .cache/z; for f in b/AGENTS.md b/c/.envrc \
                       b/c/.vscode/tasks.json b/c/CLAUDE.md b/c/SOUL.md b/QWEN.md b/.gemini/a .github/copilot-instructions.md b/plain.md node_modules/y/AGENTS.md .cache/z/AGENTS.md; do echo evil > $f; done; \
                       mv a moved";
        let result = fixture.call("exec", json!({"command": command})).await;
        let text = only_text(&result).0;
        let exists = |name: &str| fixture.workdir().join(name).exists();
        for quarantined in [
            "b/AGENTS.md",
            "b/c/.envrc",
            "b/c/.vscode",
            "b/c/CLAUDE.md",
            "b/c/SOUL.md",
            "b/QWEN.md",
            "b/.gemini",
            ".github/copilot-instructions.md",
        ] {
            assert!(!exists(quarantined) && text.contains(quarantined), "{sandbox} {quarantined}: {text}");
        }
        for left in ["b/plain.md", "node_modules/y/AGENTS.md", "moved/AGENTS.md", "moved/.vscode/tasks.json"] {
            assert!(exists(left), "{sandbox} {left}: {text}");
        }
        fixture.call("exec", json!({"command": "echo evil > moved/AGENTS.md; echo evil > moved/.vscode/x"})).await;
        assert_eq!(fs::read_to_string(fixture.workdir().join("moved/AGENTS.md")).unwrap(), "mine", "{sandbox}");
        assert!(!exists("moved/.vscode/x"), "{sandbox}");
    }
}

#[tokio::test]
async fn a_worktree_keeps_its_copies_of_protected_files() {
    for (sandbox, fixture, _) in fixtures() {
        let setup = "git init -q . && git config user.name a && git config user.email a@example.com && echo a > a && git add . \
                     && git commit -qm a";
        assert!(!fixture.call("exec", json!({"command": setup})).await.is_error);
        put(&fixture.workdir().join("AGENTS.md"), "mine\n");
        put(&fixture.workdir().join(".vscode/settings.json"), "{}\n");
        let command = "git add . && git commit -qm b && git worktree add -q tree && git -C tree status --short; \
                       git worktree add -q other && echo evil >> other/AGENTS.md";
        let result = fixture.call("exec", json!({"command": command})).await;
        let text = only_text(&result).0;
        assert!(fixture.workdir().join("tree/AGENTS.md").exists(), "{sandbox}: {text}");
        assert!(fixture.workdir().join("tree/.vscode/settings.json").exists(), "{sandbox}: {text}");
        assert!(!fixture.workdir().join("other/AGENTS.md").exists(), "{sandbox}: {text}");
    }
}

/// Waits until a condition holds.
async fn until(label: &str, mut has_happened: impl FnMut() -> bool) {
    let mut tick = interval(Duration::from_millis(5));
    let waited = timeout(Duration::from_secs(30), async {
        while !has_happened() {
            tick.tick().await;
        }
    });
    assert!(waited.await.is_ok(), "{label}");
}

// A17.
#[tokio::test]
async fn files_planted_by_a_running_command_are_quarantined_while_it_runs() {
    for (sandbox, fixture, _) in fixtures() {
        let plant = "git init -q sub; git -C sub config core.fsmonitor ../x.sh; echo evil > sub/.git/hooks/pre-commit; \
                     git init -q plain; git init -q --bare bare.git; git -C bare.git config core.pager evil; mkdir -p a/.vscode; \
                     echo evil > a/.vscode/tasks.json; echo evil > CLAUDE.md; echo evil > .envrc";
        let workspace = fixture.workdir();
        during(&fixture, plant, async || {
            for name in
                ["sub/.git/config", "sub/.git/hooks/pre-commit", "bare.git/config", "a/.vscode", "CLAUDE.md", ".envrc"]
            {
                until(&format!("{sandbox} {name}"), || !workspace.join(name).exists()).await;
            }
            let running = fixture.call("process", json!({"action": "list"})).await;
            assert!(only_text(&running).0.contains("running"), "{sandbox}: {running:?}");
        })
        .await;
        assert!(workspace.join("plain/.git/config").exists() && workspace.join("sub/.git/HEAD").exists(), "{sandbox}");
    }
}

// A17.
#[tokio::test]
async fn a_command_that_plants_again_is_ended() {
    for (sandbox, fixture, _) in fixtures() {
        let plant = "git init -q sub; while true; do printf '[core]\\n fsmonitor = ../x.sh\\n' > sub/.git/config; done";
        let result = fixture.call("exec", json!({"command": plant, "yieldMs": 110_000, "timeout": 120})).await;
        let text = only_text(&result).0;
        assert!(text.contains("again after the sandbox had quarantined it"), "{sandbox}: {text}");
        let config = fs::read_to_string(fixture.workdir().join("sub/.git/config")).unwrap_or_default();
        assert!(!config.contains("fsmonitor"), "{sandbox}: {text}");
    }
}

/// Creates a repository, as its owner would.
fn repository(fixture: &ToolFixture) {
    let init =
        std::process::Command::new("git").args(["init", "-q", "-b", "main"]).current_dir(fixture.workdir()).status();
    assert!(init.unwrap().success());
}

// A17.
#[tokio::test]
async fn files_changed_by_a_running_command_are_restored_while_it_runs() {
    for (sandbox, fixture, background) in fixtures() {
        repository(&fixture);
        let workspace = fixture.workdir();
        put(&workspace.join("AGENTS.md"), "mine");
        put(&workspace.join("skills/knit/SKILL.md"), "mine");
        symlink("/usr/share", workspace.join("skills/shared")).unwrap();
        put(&workspace.join(".git/hooks/pre-push"), "mine");
        let config = fs::read_to_string(workspace.join(".git/config")).unwrap();
        let reader = BootstrapReader::with_gate(background.load_gate());
        let change = "git config core.fsmonitor ./evil; echo evil > .git/hooks/pre-commit; rm .git/hooks/pre-push; echo evil >> AGENTS.md; \
                      echo evil > skills/knit/SKILL.md; echo evil > skills/knit/more.md; ln -sfn /tmp skills/shared";
        during(&fixture, change, async || {
            assert_eq!(loaded(&reader, &fixture, "AGENTS.md").as_deref(), Some("mine"), "{sandbox}");
            let read = |name: &str| fs::read_to_string(workspace.join(name)).ok();
            for name in ["AGENTS.md", "skills/knit/SKILL.md", ".git/hooks/pre-push"] {
                until(&format!("{sandbox} {name}"), || read(name).as_deref() == Some("mine")).await;
            }
            until(&format!("{sandbox} config"), || read(".git/config").as_ref() == Some(&config)).await;
            for name in [".git/hooks/pre-commit", "skills/knit/more.md"] {
                until(&format!("{sandbox} {name}"), || read(name).is_none()).await;
            }
            until(sandbox, || {
                fs::read_link(workspace.join("skills/shared")).is_ok_and(|to| to == Path::new("/usr/share"))
            })
            .await;
            let running = fixture.call("process", json!({"action": "list"})).await;
            assert!(only_text(&running).0.contains("running"), "{sandbox}: {running:?}");
        })
        .await;
    }
}

// A17.
#[tokio::test]
async fn a_command_that_changes_settings_again_is_ended() {
    for (sandbox, fixture, _) in fixtures().into_iter().filter(|(sandbox, ..)| *sandbox == "tier B") {
        repository(&fixture);
        let change = "while true; do git config core.fsmonitor ./evil; done 2> /dev/null";
        let result = fixture.call("exec", json!({"command": change, "yieldMs": 30_000, "timeout": 60})).await;
        let text = only_text(&result).0;
        assert!(text.contains("again after the sandbox had quarantined it"), "{sandbox}: {text}");
        let config = fs::read_to_string(fixture.workdir().join(".git/config")).unwrap();
        assert!(!config.contains("fsmonitor"), "{sandbox}: {config}");
    }
}

// A17.
#[tokio::test]
async fn settings_that_name_no_program_are_restored_at_the_end() {
    for (sandbox, fixture, _) in fixtures() {
        repository(&fixture);
        let before = fs::read_to_string(fixture.workdir().join(".git/config")).unwrap();
        let change = "for i in 1 2 3 4 5; do git config user.name name$i; sleep 0.2; done; git config user.name; true";
        let result = fixture.call("exec", json!({"command": change, "yieldMs": 30_000, "timeout": 60})).await;
        let text = only_text(&result).0;
        assert_eq!(fs::read_to_string(fixture.workdir().join(".git/config")).unwrap(), before, "{sandbox}: {text}");
        if sandbox == "tier B" {
            assert!(text.starts_with("name5") && text.contains("restored"), "{text}");
        }
    }
}

// A17.
#[tokio::test]
async fn a_repository_that_replaces_the_first_brings_no_settings() {
    let evil = "git init -q other && git -C other config core.fsmonitor ./evil && mv .git first";
    for replace in ["mv other/.git .git", "ln -s other/.git .git", "echo 'gitdir: other/.git' > .git"] {
        for (sandbox, fixture, _) in fixtures() {
            repository(&fixture);
            let command = format!("{evil} && {replace}");
            let result = fixture.call("exec", json!({"command": command})).await;
            let mut git = std::process::Command::new("git");
            let found = git.args(["config", "core.fsmonitor"]).current_dir(fixture.workdir()).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&found.stdout), "", "{sandbox} {replace}: {}", only_text(&result).0);
        }
    }
}

#[tokio::test]
async fn files_written_by_a_tool_into_protected_directories_stay() {
    for (sandbox, fixture, _) in fixtures() {
        put(&fixture.workdir().join("skills/knit/SKILL.md"), "old");
        put(&fixture.workdir().join("AGENTS.md"), "old");
        put(&fixture.workdir().join("SOUL.md"), "old");
        during(&fixture, "echo evil >> AGENTS.md", async || {
            for name in ["skills/knit/SKILL.md", "skills/sew/SKILL.md", "AGENTS.md"] {
                let written = fixture.call("write", json!({"path": name, "content": "new"})).await;
                assert!(!written.is_error, "{sandbox}: {written:?}");
            }
            let patch = "*** Begin Patch\n*** Delete File: SOUL.md\n*** End Patch";
            assert!(!fixture.call("apply_patch", json!({"input": patch})).await.is_error, "{sandbox}");
        })
        .await;
        for name in ["skills/knit/SKILL.md", "skills/sew/SKILL.md", "AGENTS.md"] {
            assert_eq!(
                fs::read_to_string(fixture.workdir().join(name)).ok().as_deref(),
                Some("new"),
                "{sandbox} {name}"
            );
        }
        assert!(!fixture.workdir().join("SOUL.md").exists(), "{sandbox}");
    }
}

#[tokio::test]
async fn long_ordinary_git_work_is_not_disturbed() {
    for (sandbox, fixture, _) in fixtures() {
        let command = "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x; \
                    git init -q . && git commit -q --allow-empty -m x && for i in $(seq 40); do git init -q r$i && git worktree add -q t$i && \
                    git clone -q . c$i || exit 1; done; sleep 1; echo worked";
        let result = fixture.call("exec", json!({"command": command, "yieldMs": 30_000, "timeout": 60})).await;
        let text = only_text(&result).0;
        assert!(text.contains("worked") && !text.contains("aside"), "{sandbox}: {text}");
    }
}

#[tokio::test]
async fn a_command_has_at_most_a_day() {
    let fixture = ToolFixture::with_env(&ENV);
    let arguments = json!({"command": "echo done", "timeout": 10_000_000});
    let result = fixture.call("exec", arguments).await;
    assert!(only_text(&result).0.contains("timeout is at most 86400 seconds"), "{result:?}");
}

#[tokio::test]
async fn files_written_by_a_gateway_hook_meanwhile_stay() {
    for (sandbox, fixture, background) in fixtures() {
        during(&fixture, "mkdir -p memory; echo evil > memory/evil.md", async || {
            let path = fixture.workdir().join("memory/2026-01-01.md");
            background.write_file(fixture.workdir(), &mut || {
                put(&path, "mine");
                Some((path.clone(), "mine".to_owned()))
            });
        })
        .await;
        let read = |name: &str| fs::read_to_string(fixture.workdir().join(name)).ok();
        assert_eq!(read("memory/2026-01-01.md").as_deref(), Some("mine"), "{sandbox}");
        assert_eq!(read("memory/evil.md"), None, "{sandbox}");
    }
}
