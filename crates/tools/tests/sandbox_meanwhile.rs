//! Files that our own tools or people write while a sandboxed command runs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod fixture;

use std::{fs, path::Path};

use fixture::{HELPER, ToolFixture, only_text};
use homard_sandbox::Tier;
use serde_json::json;
use tempfile::TempDir;

const ENV: [(&str, &str); 1] = [("PATH", "/usr/local/bin:/usr/bin:/bin")];

/// Makes a command wait until the file `go` exists.
const WAIT: &str = "touch ready; until [ -e go ]; do sleep 0.01; done";

fn namespace() -> ToolFixture {
    ToolFixture::with_env(&ENV)
}

fn sandboxes() -> [(&'static str, ToolFixture); 2] {
    let limited = ToolFixture::with(&ENV, |settings| {
        settings.tier = Some(Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned()));
    });
    [("namespace", namespace()), ("landlock", limited)]
}

/// Runs a command in the background, runs `work` when it is ready, lets it continue, and returns its output.
async fn during(fixture: &ToolFixture, before: &str, after: &str, action: impl AsyncFnOnce()) -> String {
    let command = format!("{before}; {WAIT}; {after}");
    let started = fixture.call("exec", json!({"command": command, "background": true})).await;
    let id = started.details.unwrap()["sessionId"].as_str().unwrap().to_owned();
    let ready = "until [ -e ready ]; do sleep 0.01; done; rm ready";
    assert!(!fixture.call("exec", json!({"command": ready})).await.is_error);
    action().await;
    fs::write(fixture.workdir().join("go"), "").unwrap();
    let polled = fixture.call("process", json!({"action": "poll", "sessionId": id, "timeout": 20_000})).await;
    fs::remove_file(fixture.workdir().join("go")).unwrap();
    only_text(&polled).0.to_owned()
}

async fn write(fixture: &ToolFixture, path: &str, content: &str) {
    let result = fixture.call("write", json!({"path": path, "content": content})).await;
    assert!(!result.is_error, "{result:?}");
}

/// Replaces a file as editors do.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

fn read(fixture: &ToolFixture, path: &str) -> Option<String> {
    fs::read_to_string(fixture.workdir().join(path)).ok()
}

#[tokio::test]
async fn files_written_by_our_own_tools_stay() {
    for (sandbox, fixture) in sandboxes() {
        let output = during(&fixture, "true", "true", async || {
            write(&fixture, "AGENTS.md", "one").await;
            fixture.call("edit", json!({"path": "AGENTS.md", "oldText": "one", "newText": "two"})).await;
            write(&fixture, "./skills/knit/SKILL.md", "knit").await;
            let patch = "*** Begin Patch\n*** Add File: SOUL.md\n+calm\n*** Add File: CLAUDE.md\n+x\n*** End Patch";
            fixture.call("apply_patch", json!({"input": patch})).await;
            let patch = "*** Begin Patch\n*** Update File: CLAUDE.md\n*** Move to: hooks/a\n@@\n-x\n+y\n*** End Patch";
            fixture.call("apply_patch", json!({"input": patch})).await;
        });
        let output = output.await;
        assert!(!output.contains("quarantined"), "{sandbox}: {output}");
        for (path, text) in
            [("AGENTS.md", "two"), ("skills/knit/SKILL.md", "knit"), ("SOUL.md", "calm\n"), ("hooks/a", "y\n")]
        {
            assert_eq!(read(&fixture, path).as_deref(), Some(text), "{sandbox} {path}");
        }
        assert_eq!(read(&fixture, "CLAUDE.md"), None, "{sandbox}");
    }
}

#[tokio::test]
async fn changes_of_a_command_to_files_of_our_own_tools_are_undone() {
    for (sandbox, fixture) in sandboxes() {
        let evil = "echo evil >> AGENTS.md; echo evil > skills/knit/more; ln SOUL.md other; rm CLAUDE.md; mkdir CLAUDE.md; \
                    touch CLAUDE.md/x; echo evil > MEMORY.md";
        let output = during(&fixture, "true", evil, async || {
            for path in ["AGENTS.md", "skills/knit/SKILL.md", "SOUL.md", "CLAUDE.md"] {
                write(&fixture, path, "good").await;
            }
            write(&fixture, "MEMORY.md", "good").await;
            let patch = "*** Begin Patch\n*** Delete File: MEMORY.md\n*** End Patch";
            fixture.call("apply_patch", json!({"input": patch})).await;
        });
        let output = output.await;
        let restored_names = ": AGENTS.md, CLAUDE.md, MEMORY.md, SOUL.md, skills/knit/more.";
        assert!(output.contains(restored_names), "{sandbox}: {output}");
        for path in ["AGENTS.md", "skills/knit/SKILL.md", "SOUL.md", "CLAUDE.md"] {
            assert_eq!(read(&fixture, path).as_deref(), Some("good"), "{sandbox} {path}");
        }
        assert_eq!((read(&fixture, "MEMORY.md"), read(&fixture, "skills/knit/more")), (None, None), "{sandbox}");
        // Under another name it would not be protected from the next command.
        fixture.call("exec", json!({"command": "echo evil >> other"})).await;
        assert_eq!(read(&fixture, "SOUL.md").as_deref(), Some("good"), "{sandbox}");
    }
}

#[tokio::test]
async fn a_file_replaced_by_our_own_tools_is_still_protected() {
    let fixture = namespace();
    fs::write(fixture.workdir().join("AGENTS.md"), "old").unwrap();
    fs::write(fixture.workdir().join("SOUL.md"), "old").unwrap();
    let evil = "echo evil >> AGENTS.md; echo evil > SOUL.md";
    let output = during(&fixture, evil, evil, async || {
        write(&fixture, "AGENTS.md", "new").await;
        let patch = "*** Begin Patch\n*** Delete File: SOUL.md\n*** End Patch";
        fixture.call("apply_patch", json!({"input": patch})).await;
    });
    let output = output.await;
    assert!(
        output.contains("quarantined files that were created while a command ran: AGENTS.md, SOUL.md."),
        "{output}"
    );
    assert_eq!((read(&fixture, "AGENTS.md").as_deref(), read(&fixture, "SOUL.md")), (Some("new"), None));
}

#[tokio::test]
async fn a_second_command_knows_what_our_own_tools_wrote_during_the_first() {
    let fixture = namespace();
    let output = during(&fixture, "true", "true", async || {
        write(&fixture, "AGENTS.md", "good").await;
        assert_eq!(only_text(&fixture.call("exec", json!({"command": "cat AGENTS.md"})).await), ("good", false));
    });
    assert!(!output.await.contains("quarantined"));
    assert_eq!(read(&fixture, "AGENTS.md").as_deref(), Some("good"));
}

#[tokio::test]
async fn a_protected_file_replaced_by_a_person_stays_and_is_reported() {
    // Without namespaces it is restored: the person's change cannot be told apart from one by the command.
    if !fixture::has_namespaces("a_protected_file_replaced_by_a_person_stays_and_is_reported") {
        return;
    }
    let fixture = namespace();
    let path = fixture.workdir().join("AGENTS.md");
    fs::write(&path, "old").unwrap();
    let output = during(&fixture, "true", "true", async || replace(&path, "new")).await;
    let note = format!(
        "[{} was replaced while a command ran, and the command could change the new file: check it before you use it]",
        path.display()
    );
    assert!(output.ends_with(&note), "{output}");
    assert_eq!(read(&fixture, "AGENTS.md").as_deref(), Some("new"));
}

#[tokio::test]
async fn files_created_by_a_person_meanwhile_are_quarantined_and_reported() {
    let fixture = namespace();
    let output =
        during(&fixture, "true", "true", async || fs::write(fixture.workdir().join("SOUL.md"), "mine").unwrap()).await;
    let quarantined = fixture.state().join("quarantine/1");
    assert!(output.contains(&format!("Kept in {}]", quarantined.display())), "{output}");
    assert_eq!(fs::read_to_string(quarantined.join("SOUL.md")).unwrap(), "mine");
}

// A28, R79: a mount disappears when the file below it is replaced.
#[tokio::test]
async fn a_secret_replaced_meanwhile_stays_hidden() {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = folder.path().canonicalize().unwrap();
    if ["/tmp", "/var/tmp", "/run"].iter().any(|private| home.starts_with(private)) {
        let test = "a_secret_replaced_meanwhile_stays_hidden";
        return fixture::skip(test, "the target directory is in a directory that commands have for themselves");
    }
    fs::write(home.join(".netrc"), "secret").unwrap();
    fs::write(home.join("notes.txt"), "notes").unwrap();
    let fixture = ToolFixture::below(folder, &[ENV[0], ("HOME", home.to_str().unwrap())], |settings| {
        settings.sandbox.extra_read = vec![home.clone()];
    });
    let command = "cat ~/.netrc; cat ~/notes.txt";
    let output = during(&fixture, command, command, async || replace(&home.join(".netrc"), "secret")).await;
    assert!(!output.contains("secret") && output.matches("notes").count() == 2, "{output}");
    // Without namespaces a directory with a hidden file cannot be listed (docs/security.md).
    if fixture::has_namespaces("a_secret_replaced_meanwhile_stays_hidden: listing the home directory") {
        let listed = fixture.call("exec", json!({"command": "ls -A ~; ls / > /dev/null"})).await;
        assert_eq!(fixture::only_text(&listed), (".netrc\nnotes.txt\nother\nworkspace", false));
    }
}

#[tokio::test]
async fn another_name_for_the_settings_of_a_new_repository_changes_nothing_later() {
    let fixture = namespace();
    fixture.call("exec", json!({"command": "git init -q && ln .git/config other"})).await;
    fixture.call("exec", json!({"command": "printf '[core]\\nfsmonitor = ./evil\\n' >> other"})).await;
    assert!(!read(&fixture, ".git/config").unwrap_or_default().contains("evil"));
}

#[tokio::test]
async fn empty_directories_in_place_of_files_are_removed() {
    let fixture = namespace();
    for name in [".git", "AGENTS.md", ".envrc", "skills", "hooks"] {
        fs::create_dir(fixture.workdir().join(name)).unwrap();
    }
    let result = fixture.call("exec", json!({"command": "git init -q && git status -s && mkdir SOUL.md"})).await;
    assert_eq!(only_text(&result), ("(no output)", false));
    let mut names: Vec<_> = fs::read_dir(fixture.workdir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".git", "hooks", "skills"]);
    assert!(fixture.workdir().join(".git/HEAD").exists());
}
