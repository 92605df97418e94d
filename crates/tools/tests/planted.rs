//! Files that a command plants to manipulate agents, while it runs and at any depth.
#![allow(clippy::unwrap_used, reason = "tests may")]

mod fixture;

use std::{cell::OnceCell, fs, os::unix::fs::symlink, path::Path, time::Duration};

use fixture::{HELPER, ToolFixture, has_namespaces, only_text};
use homard_tools::{BackgroundCommands, sandbox::Tier};
use homard_workspace::{Audience, BootstrapLimits, BootstrapReader, LoadRule, PageBody};
use serde_json::json;
use tokio::time::{interval, timeout};

const ENV: [(&str, &str); 1] = [("PATH", "/usr/local/bin:/usr/bin:/bin")];

/// Returns a bench for each tier that works here, with its background commands.
fn benches() -> Vec<(&'static str, ToolFixture, BackgroundCommands)> {
    let limited = Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned());
    let mut all = vec![("tier B", Some(limited))];
    if has_namespaces("planted files in namespaces") {
        all.push(("tier A", None));
    }
    let make = |(way, tier)| {
        let background = OnceCell::new();
        let bench = ToolFixture::with(&ENV, |settings| {
            settings.tier = tier;
            background.set(settings.background.clone()).unwrap();
        });
        (way, bench, background.into_inner().unwrap())
    };
    all.into_iter().map(make).collect()
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Starts a command and runs `work` when it is ready; the command is killed afterwards.
async fn during(bench: &ToolFixture, command: &str, work: impl AsyncFnOnce()) {
    let command = format!("{command}; touch ready; sleep 100");
    let started = bench.call("exec", json!({"command": command, "background": true})).await;
    let id = started.details.unwrap()["sessionId"].as_str().unwrap().to_owned();
    // Not with a second command, whose end would trigger a check.
    let mut tick = interval(Duration::from_millis(5));
    let ready = bench.workdir().join("ready");
    let waited = timeout(Duration::from_secs(30), async {
        while !ready.exists() {
            tick.tick().await;
        }
    });
    waited.await.unwrap();
    work().await;
    bench.call("process", json!({"action": "kill", "sessionId": id})).await;
}

/// Returns what a prompt includes of the file with this name.
fn loaded(reader: &BootstrapReader, bench: &ToolFixture, name: &str) -> Option<String> {
    let pages = reader.pages(bench.workdir(), Audience::Main, &BootstrapLimits::default());
    pages.into_iter().find(|page| page.name == name).and_then(|page| match page.body {
        PageBody::Whole(text) | PageBody::Cut(text) => Some(text),
        PageBody::Missing | PageBody::Unusable(_) => None,
    })
}

// A17.
#[tokio::test]
async fn m4_what_a_running_command_makes_is_not_loaded() {
    for (way, bench, background) in benches() {
        put(&bench.workdir().join("SOUL.md"), "mine");
        put(&bench.workdir().join("projects/old/AGENTS.md"), "mine");
        let reader = BootstrapReader::with_gate(background.load_gate());
        let plant = "mkdir -p skills/evil projects/x memory; for f in AGENTS.md HEARTBEAT.md TOOLS.md MEMORY.md BOOT.md \
                     skills/evil/SKILL.md projects/x/AGENTS.md memory/a.md; do echo evil > $f; done";
        during(&bench, plant, async || {
            for name in ["AGENTS.md", "HEARTBEAT.md", "TOOLS.md", "MEMORY.md"] {
                assert_eq!(loaded(&reader, &bench, name), None, "{way} {name}");
            }
            assert_eq!(loaded(&reader, &bench, "SOUL.md").as_deref(), Some("mine"), "{way}");
            for name in ["skills/evil/SKILL.md", "projects/x/AGENTS.md", "BOOT.md", "memory/a.md"] {
                assert_eq!(reader.rule(&bench.workdir().join(name)), LoadRule::Nothing, "{way} {name}");
            }
            let unchanged = if way == "tier A" { LoadRule::File } else { LoadRule::Text("mine".to_owned()) };
            for (name, rule) in [("projects/old/AGENTS.md", unchanged), ("src/a.md", LoadRule::File)] {
                assert_eq!(reader.rule(&bench.workdir().join(name)), rule, "{way} {name}");
            }
            assert_eq!(reader.file(bench.workdir(), "HEARTBEAT.md", 100), Ok(None), "{way}");
        })
        .await;
        for name in ["AGENTS.md", "skills", "memory", "projects/x/AGENTS.md"] {
            assert!(!bench.workdir().join(name).exists(), "{way} {name}");
        }
        // From now on it is the owner's file.
        put(&bench.workdir().join("AGENTS.md"), "mine");
        assert_eq!(loaded(&reader, &bench, "AGENTS.md").as_deref(), Some("mine"), "{way}");
    }
}

#[tokio::test]
async fn m4_what_a_tool_wrote_meanwhile_is_loaded_as_it_was_written() {
    for (way, bench, background) in benches() {
        let reader = BootstrapReader::with_gate(background.load_gate());
        during(&bench, "true", async || {
            let wrote = bench.call("write", json!({"path": "AGENTS.md", "content": "good"})).await;
            assert!(!wrote.is_error, "{way}: {wrote:?}");
            assert_eq!(loaded(&reader, &bench, "AGENTS.md").as_deref(), Some("good"), "{way}");
            // Whatever its content is when it is read.
            fs::write(bench.workdir().join("AGENTS.md"), "evil").unwrap();
            assert_eq!(loaded(&reader, &bench, "AGENTS.md").as_deref(), Some("good"), "{way}");
            assert_eq!(reader.file(bench.workdir(), "AGENTS.md", 100), Ok(Some("good".to_owned())), "{way}");
        })
        .await;
        assert_eq!(fs::read_to_string(bench.workdir().join("AGENTS.md")).unwrap(), "good", "{way}");
    }
}

#[tokio::test]
async fn m4_a_link_that_a_running_command_replaced_is_not_followed() {
    for (way, bench, background) in benches() {
        put(&bench.workdir().join("docs/rules.md"), "mine");
        symlink("docs/rules.md", bench.workdir().join("AGENTS.md")).unwrap();
        let reader = BootstrapReader::with_gate(background.load_gate());
        let plant = "echo evil > evil.md; rm AGENTS.md; ln -s evil.md AGENTS.md";
        during(&bench, plant, async || {
            assert_eq!(loaded(&reader, &bench, "AGENTS.md").as_deref(), Some("mine"), "{way}");
        })
        .await;
        bench.call("exec", json!({"command": "echo evil > docs/rules.md"})).await;
        assert_eq!(fs::read_to_string(bench.workdir().join("docs/rules.md")).unwrap(), "mine", "{way}");
    }
}

// A17.
#[tokio::test]
async fn m4_files_that_steer_agents_are_protected_at_any_depth() {
    for (way, bench, _) in benches() {
        for name in ["a/AGENTS.md", "a/.vscode/tasks.json", "node_modules/x/AGENTS.md"] {
            put(&bench.workdir().join(name), "mine");
        }
        let command = "mkdir -p b/c/.vscode b/.gemini .github node_modules/y/.vscode .cache/z; for f in b/AGENTS.md b/c/.envrc \
                       b/c/.vscode/tasks.json b/c/CLAUDE.md b/c/SOUL.md b/QWEN.md b/.gemini/a .github/copilot-instructions.md b/plain.md node_modules/y/AGENTS.md .cache/z/AGENTS.md; do echo evil > $f; done; \
                       mv a moved";
        let result = bench.call("exec", json!({"command": command})).await;
        let text = only_text(&result).0;
        let there = |name: &str| bench.workdir().join(name).exists();
        for gone in [
            "b/AGENTS.md",
            "b/c/.envrc",
            "b/c/.vscode",
            "b/c/CLAUDE.md",
            "b/c/SOUL.md",
            "b/QWEN.md",
            "b/.gemini",
            ".github/copilot-instructions.md",
        ] {
            assert!(!there(gone) && text.contains(gone), "{way} {gone}: {text}");
        }
        for left in ["b/plain.md", "node_modules/y/AGENTS.md", "moved/AGENTS.md", "moved/.vscode/tasks.json"] {
            assert!(there(left), "{way} {left}: {text}");
        }
        bench.call("exec", json!({"command": "echo evil > moved/AGENTS.md; echo evil > moved/.vscode/x"})).await;
        assert_eq!(fs::read_to_string(bench.workdir().join("moved/AGENTS.md")).unwrap(), "mine", "{way}");
        assert!(!there("moved/.vscode/x"), "{way}");
    }
}

#[tokio::test]
async fn m4_a_worktree_keeps_its_copies_of_protected_files() {
    for (way, bench, _) in benches() {
        let setup = "git init -q . && git config user.name a && git config user.email a@example.com && echo a > a && git add . \
                     && git commit -qm a";
        assert!(!bench.call("exec", json!({"command": setup})).await.is_error);
        put(&bench.workdir().join("AGENTS.md"), "mine\n");
        put(&bench.workdir().join(".vscode/settings.json"), "{}\n");
        let command = "git add . && git commit -qm b && git worktree add -q tree && git -C tree status --short; \
                       git worktree add -q other && echo evil >> other/AGENTS.md";
        let result = bench.call("exec", json!({"command": command})).await;
        let text = only_text(&result).0;
        assert!(bench.workdir().join("tree/AGENTS.md").exists(), "{way}: {text}");
        assert!(bench.workdir().join("tree/.vscode/settings.json").exists(), "{way}: {text}");
        assert!(!bench.workdir().join("other/AGENTS.md").exists(), "{way}: {text}");
    }
}

/// Waits until a condition holds.
async fn until(what: &str, mut has_happened: impl FnMut() -> bool) {
    let mut tick = interval(Duration::from_millis(5));
    let waited = timeout(Duration::from_secs(30), async {
        while !has_happened() {
            tick.tick().await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

// A17.
#[tokio::test]
async fn c2_what_a_running_command_plants_is_taken_aside_while_it_runs() {
    for (way, bench, _) in benches() {
        let plant = "git init -q sub; git -C sub config core.fsmonitor ../x.sh; echo evil > sub/.git/hooks/pre-commit; \
                     git init -q plain; git init -q --bare bare.git; git -C bare.git config core.pager evil; mkdir -p a/.vscode; \
                     echo evil > a/.vscode/tasks.json; echo evil > CLAUDE.md; echo evil > .envrc";
        let work = bench.workdir();
        during(&bench, plant, async || {
            for name in
                ["sub/.git/config", "sub/.git/hooks/pre-commit", "bare.git/config", "a/.vscode", "CLAUDE.md", ".envrc"]
            {
                until(&format!("{way} {name}"), || !work.join(name).exists()).await;
            }
            let running = bench.call("process", json!({"action": "list"})).await;
            assert!(only_text(&running).0.contains("running"), "{way}: {running:?}");
        })
        .await;
        assert!(work.join("plain/.git/config").exists() && work.join("sub/.git/HEAD").exists(), "{way}");
    }
}

// A17.
#[tokio::test]
async fn c2_a_command_that_plants_again_is_ended() {
    for (way, bench, _) in benches() {
        let plant = "git init -q sub; while true; do printf '[core]\\n fsmonitor = ../x.sh\\n' > sub/.git/config; done";
        let result = bench.call("exec", json!({"command": plant, "yieldMs": 30_000, "timeout": 60})).await;
        let text = only_text(&result).0;
        assert!(text.contains("again after the sandbox had quarantined it"), "{way}: {text}");
        let config = fs::read_to_string(bench.workdir().join("sub/.git/config")).unwrap_or_default();
        assert!(!config.contains("fsmonitor"), "{way}: {text}");
    }
}

/// Creates a repository, as its owner would.
fn repository(bench: &ToolFixture) {
    let init =
        std::process::Command::new("git").args(["init", "-q", "-b", "main"]).current_dir(bench.workdir()).status();
    assert!(init.unwrap().success());
}

// A17.
#[tokio::test]
async fn c2_what_a_running_command_changes_is_put_back_while_it_runs() {
    for (way, bench, background) in benches() {
        repository(&bench);
        let work = bench.workdir();
        put(&work.join("AGENTS.md"), "mine");
        put(&work.join("skills/knit/SKILL.md"), "mine");
        symlink("/usr/share", work.join("skills/shared")).unwrap();
        put(&work.join(".git/hooks/pre-push"), "mine");
        let config = fs::read_to_string(work.join(".git/config")).unwrap();
        let reader = BootstrapReader::with_gate(background.load_gate());
        let change = "git config core.fsmonitor ./evil; echo evil > .git/hooks/pre-commit; rm .git/hooks/pre-push; echo evil >> AGENTS.md; \
                      echo evil > skills/knit/SKILL.md; echo evil > skills/knit/more.md; ln -sfn /tmp skills/shared";
        during(&bench, change, async || {
            assert_eq!(loaded(&reader, &bench, "AGENTS.md").as_deref(), Some("mine"), "{way}");
            let read = |name: &str| fs::read_to_string(work.join(name)).ok();
            for name in ["AGENTS.md", "skills/knit/SKILL.md", ".git/hooks/pre-push"] {
                until(&format!("{way} {name}"), || read(name).as_deref() == Some("mine")).await;
            }
            until(&format!("{way} config"), || read(".git/config").as_ref() == Some(&config)).await;
            for name in [".git/hooks/pre-commit", "skills/knit/more.md"] {
                until(&format!("{way} {name}"), || read(name).is_none()).await;
            }
            until(way, || fs::read_link(work.join("skills/shared")).is_ok_and(|to| to == Path::new("/usr/share")))
                .await;
            let running = bench.call("process", json!({"action": "list"})).await;
            assert!(only_text(&running).0.contains("running"), "{way}: {running:?}");
        })
        .await;
    }
}

// A17.
#[tokio::test]
async fn c2_a_command_that_changes_settings_again_is_ended() {
    for (way, bench, _) in benches().into_iter().filter(|(way, ..)| *way == "tier B") {
        repository(&bench);
        let change = "while true; do git config core.fsmonitor ./evil; done 2> /dev/null";
        let result = bench.call("exec", json!({"command": change, "yieldMs": 30_000, "timeout": 60})).await;
        let text = only_text(&result).0;
        assert!(text.contains("again after the sandbox had quarantined it"), "{way}: {text}");
        let config = fs::read_to_string(bench.workdir().join(".git/config")).unwrap();
        assert!(!config.contains("fsmonitor"), "{way}: {config}");
    }
}

// A17.
#[tokio::test]
async fn c2_settings_that_name_no_program_are_put_back_at_the_end() {
    for (way, bench, _) in benches() {
        repository(&bench);
        let before = fs::read_to_string(bench.workdir().join(".git/config")).unwrap();
        let change = "for i in 1 2 3 4 5; do git config user.name name$i; sleep 0.2; done; git config user.name; true";
        let result = bench.call("exec", json!({"command": change, "yieldMs": 30_000, "timeout": 60})).await;
        let text = only_text(&result).0;
        assert_eq!(fs::read_to_string(bench.workdir().join(".git/config")).unwrap(), before, "{way}: {text}");
        if way == "tier B" {
            assert!(text.starts_with("name5") && text.contains("restored"), "{text}");
        }
    }
}

// A17.
#[tokio::test]
async fn c2_another_repository_in_the_place_of_the_first_brings_no_settings() {
    let evil = "git init -q other && git -C other config core.fsmonitor ./evil && mv .git first";
    for replace in ["mv other/.git .git", "ln -s other/.git .git", "echo 'gitdir: other/.git' > .git"] {
        for (way, bench, _) in benches() {
            repository(&bench);
            let command = format!("{evil} && {replace}");
            let result = bench.call("exec", json!({"command": command})).await;
            let mut git = std::process::Command::new("git");
            let found = git.args(["config", "core.fsmonitor"]).current_dir(bench.workdir()).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&found.stdout), "", "{way} {replace}: {}", only_text(&result).0);
        }
    }
}

#[tokio::test]
async fn c2_what_a_tool_wrote_into_protected_directories_meanwhile_stays() {
    for (way, bench, _) in benches() {
        put(&bench.workdir().join("skills/knit/SKILL.md"), "old");
        put(&bench.workdir().join("AGENTS.md"), "old");
        put(&bench.workdir().join("SOUL.md"), "old");
        during(&bench, "echo evil >> AGENTS.md", async || {
            for name in ["skills/knit/SKILL.md", "skills/sew/SKILL.md", "AGENTS.md"] {
                let wrote = bench.call("write", json!({"path": name, "content": "new"})).await;
                assert!(!wrote.is_error, "{way}: {wrote:?}");
            }
            let patch = "*** Begin Patch\n*** Delete File: SOUL.md\n*** End Patch";
            assert!(!bench.call("apply_patch", json!({"input": patch})).await.is_error, "{way}");
        })
        .await;
        for name in ["skills/knit/SKILL.md", "skills/sew/SKILL.md", "AGENTS.md"] {
            assert_eq!(fs::read_to_string(bench.workdir().join(name)).ok().as_deref(), Some("new"), "{way} {name}");
        }
        assert!(!bench.workdir().join("SOUL.md").exists(), "{way}");
    }
}

#[tokio::test]
async fn c2_ordinary_work_with_git_that_takes_long_is_left_alone() {
    for (way, bench, _) in benches() {
        let work = "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x; \
                    git init -q . && git commit -q --allow-empty -m x && for i in $(seq 40); do git init -q r$i && git worktree add -q t$i && \
                    git clone -q . c$i || exit 1; done; sleep 1; echo worked";
        let result = bench.call("exec", json!({"command": work, "yieldMs": 30_000, "timeout": 60})).await;
        let text = only_text(&result).0;
        assert!(text.contains("worked") && !text.contains("aside"), "{way}: {text}");
    }
}

#[tokio::test]
async fn m4_a_command_has_at_most_a_day() {
    let bench = ToolFixture::with_env(&ENV);
    let asked = json!({"command": "echo done", "timeout": 10_000_000});
    let result = bench.call("exec", asked).await;
    assert!(only_text(&result).0.contains("timeout is at most 86400 seconds"), "{result:?}");
}

#[tokio::test]
async fn m4_what_a_hook_of_the_gateway_writes_meanwhile_stays() {
    for (way, bench, background) in benches() {
        during(&bench, "mkdir -p memory; echo evil > memory/evil.md", async || {
            let path = bench.workdir().join("memory/2026-01-01.md");
            background.write_file(bench.workdir(), &mut || {
                put(&path, "mine");
                Some((path.clone(), "mine".to_owned()))
            });
        })
        .await;
        let read = |name: &str| fs::read_to_string(bench.workdir().join(name)).ok();
        assert_eq!(read("memory/2026-01-01.md").as_deref(), Some("mine"), "{way}");
        assert_eq!(read("memory/evil.md"), None, "{way}");
    }
}
