//! Files that our own tools or people write while a sandboxed command runs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod fixture;

use std::{fs, path::Path};

use fixture::{HELPER, ToolFixture, only_text};
use homard_tools::sandbox::Tier;
use serde_json::json;
use tempfile::TempDir;

const ENV: [(&str, &str); 1] = [("PATH", "/usr/local/bin:/usr/bin:/bin")];

/// Makes a command wait until the file `go` exists.
const WAIT: &str = "touch ready; until [ -e go ]; do sleep 0.01; done";

fn namespace() -> ToolFixture {
    ToolFixture::with_env(&ENV)
}

fn ways() -> [(&'static str, ToolFixture); 2] {
    let limited = ToolFixture::with(&ENV, |settings| {
        settings.tier = Some(Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned()));
    });
    [("namespace", namespace()), ("landlock", limited)]
}

/// Runs a command in the background, runs `work` when it is ready, lets it continue, and returns its output.
async fn during(bench: &ToolFixture, before: &str, after: &str, work: impl AsyncFnOnce()) -> String {
    let command = format!("{before}; {WAIT}; {after}");
    let started = bench.call("exec", json!({"command": command, "background": true})).await;
    let id = started.details.unwrap()["sessionId"].as_str().unwrap().to_owned();
    let ready = "until [ -e ready ]; do sleep 0.01; done; rm ready";
    assert!(!bench.call("exec", json!({"command": ready})).await.is_error);
    work().await;
    fs::write(bench.workdir().join("go"), "").unwrap();
    let polled = bench.call("process", json!({"action": "poll", "sessionId": id, "timeout": 20_000})).await;
    fs::remove_file(bench.workdir().join("go")).unwrap();
    only_text(&polled).0.to_owned()
}

async fn write(bench: &ToolFixture, path: &str, content: &str) {
    let result = bench.call("write", json!({"path": path, "content": content})).await;
    assert!(!result.is_error, "{result:?}");
}

/// Replaces a file as editors do.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

fn read(bench: &ToolFixture, path: &str) -> Option<String> {
    fs::read_to_string(bench.workdir().join(path)).ok()
}

#[tokio::test]
async fn what_our_own_tools_write_stays() {
    for (way, bench) in ways() {
        let said = during(&bench, "true", "true", async || {
            write(&bench, "AGENTS.md", "one").await;
            bench.call("edit", json!({"path": "AGENTS.md", "oldText": "one", "newText": "two"})).await;
            write(&bench, "./skills/knit/SKILL.md", "knit").await;
            let patch = "*** Begin Patch\n*** Add File: SOUL.md\n+calm\n*** Add File: CLAUDE.md\n+x\n*** End Patch";
            bench.call("apply_patch", json!({"input": patch})).await;
            let patch = "*** Begin Patch\n*** Update File: CLAUDE.md\n*** Move to: hooks/a\n@@\n-x\n+y\n*** End Patch";
            bench.call("apply_patch", json!({"input": patch})).await;
        });
        let said = said.await;
        assert!(!said.contains("quarantined"), "{way}: {said}");
        for (path, text) in
            [("AGENTS.md", "two"), ("skills/knit/SKILL.md", "knit"), ("SOUL.md", "calm\n"), ("hooks/a", "y\n")]
        {
            assert_eq!(read(&bench, path).as_deref(), Some(text), "{way} {path}");
        }
        assert_eq!(read(&bench, "CLAUDE.md"), None, "{way}");
    }
}

#[tokio::test]
async fn what_a_command_does_to_files_of_our_own_tools_is_undone() {
    for (way, bench) in ways() {
        let evil = "echo evil >> AGENTS.md; echo evil > skills/knit/more; ln SOUL.md other; rm CLAUDE.md; mkdir CLAUDE.md; \
                    touch CLAUDE.md/x; echo evil > MEMORY.md";
        let said = during(&bench, "true", evil, async || {
            for path in ["AGENTS.md", "skills/knit/SKILL.md", "SOUL.md", "CLAUDE.md"] {
                write(&bench, path, "good").await;
            }
            write(&bench, "MEMORY.md", "good").await;
            let patch = "*** Begin Patch\n*** Delete File: MEMORY.md\n*** End Patch";
            bench.call("apply_patch", json!({"input": patch})).await;
        });
        let said = said.await;
        let taken = ": AGENTS.md, CLAUDE.md, MEMORY.md, SOUL.md, skills/knit/more.";
        assert!(said.contains(taken), "{way}: {said}");
        for path in ["AGENTS.md", "skills/knit/SKILL.md", "SOUL.md", "CLAUDE.md"] {
            assert_eq!(read(&bench, path).as_deref(), Some("good"), "{way} {path}");
        }
        assert_eq!((read(&bench, "MEMORY.md"), read(&bench, "skills/knit/more")), (None, None), "{way}");
        // Under another name it would not be protected from the next command.
        bench.call("exec", json!({"command": "echo evil >> other"})).await;
        assert_eq!(read(&bench, "SOUL.md").as_deref(), Some("good"), "{way}");
    }
}

#[tokio::test]
async fn a_file_that_our_own_tools_replaced_is_protected_still() {
    let bench = namespace();
    fs::write(bench.workdir().join("AGENTS.md"), "old").unwrap();
    fs::write(bench.workdir().join("SOUL.md"), "old").unwrap();
    let evil = "echo evil >> AGENTS.md; echo evil > SOUL.md";
    let said = during(&bench, evil, evil, async || {
        write(&bench, "AGENTS.md", "new").await;
        let patch = "*** Begin Patch\n*** Delete File: SOUL.md\n*** End Patch";
        bench.call("apply_patch", json!({"input": patch})).await;
    });
    let said = said.await;
    assert!(said.contains("quarantined files that were created while a command ran: AGENTS.md, SOUL.md."), "{said}");
    assert_eq!((read(&bench, "AGENTS.md").as_deref(), read(&bench, "SOUL.md")), (Some("new"), None));
}

#[tokio::test]
async fn a_second_command_knows_what_our_own_tools_wrote_during_the_first() {
    let bench = namespace();
    let said = during(&bench, "true", "true", async || {
        write(&bench, "AGENTS.md", "good").await;
        assert_eq!(only_text(&bench.call("exec", json!({"command": "cat AGENTS.md"})).await), ("good", false));
    });
    assert!(!said.await.contains("quarantined"));
    assert_eq!(read(&bench, "AGENTS.md").as_deref(), Some("good"));
}

#[tokio::test]
async fn a_protected_file_that_a_person_replaced_stays_and_is_pointed_out() {
    // Without namespaces it is put back: nothing tells the person's change from the command's.
    if !fixture::has_namespaces("a_protected_file_that_a_person_replaced_stays_and_is_pointed_out") {
        return;
    }
    let bench = namespace();
    let path = bench.workdir().join("AGENTS.md");
    fs::write(&path, "old").unwrap();
    let said = during(&bench, "true", "true", async || replace(&path, "new")).await;
    let note = format!(
        "[{} was replaced while a command ran, and the command could change the new file: check it before you use it]",
        path.display()
    );
    assert!(said.ends_with(&note), "{said}");
    assert_eq!(read(&bench, "AGENTS.md").as_deref(), Some("new"));
}

#[tokio::test]
async fn what_a_person_makes_meanwhile_is_taken_aside_and_the_result_says_where() {
    let bench = namespace();
    let said =
        during(&bench, "true", "true", async || fs::write(bench.workdir().join("SOUL.md"), "mine").unwrap()).await;
    let kept = bench.state().join("quarantine/1");
    assert!(said.contains(&format!("Kept in {}]", kept.display())), "{said}");
    assert_eq!(fs::read_to_string(kept.join("SOUL.md")).unwrap(), "mine");
}

// A28, R79: a mount disappears when the file below it is replaced.
#[tokio::test]
async fn a_secret_that_is_replaced_meanwhile_stays_hidden() {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = folder.path().canonicalize().unwrap();
    if ["/tmp", "/var/tmp", "/run"].iter().any(|private| home.starts_with(private)) {
        let test = "a_secret_that_is_replaced_meanwhile_stays_hidden";
        return fixture::skip(test, "the target directory is in a directory that commands have for themselves");
    }
    fs::write(home.join(".netrc"), "secret").unwrap();
    fs::write(home.join("notes.txt"), "notes").unwrap();
    let bench = ToolFixture::below(folder, &[ENV[0], ("HOME", home.to_str().unwrap())], |settings| {
        settings.sandbox.extra_read = vec![home.clone()];
    });
    let look = "cat ~/.netrc; cat ~/notes.txt";
    let said = during(&bench, look, look, async || replace(&home.join(".netrc"), "secret")).await;
    assert!(!said.contains("secret") && said.matches("notes").count() == 2, "{said}");
    // Without namespaces a directory with a hidden file cannot be listed (docs/security.md).
    if fixture::has_namespaces("a_secret_that_is_replaced_meanwhile_stays_hidden: listing the home directory") {
        let listed = bench.call("exec", json!({"command": "ls -A ~; ls / > /dev/null"})).await;
        assert_eq!(fixture::only_text(&listed), (".netrc\nnotes.txt\nother\nworkspace", false));
    }
}

#[tokio::test]
async fn another_name_for_the_settings_of_a_new_repository_changes_nothing_later() {
    let bench = namespace();
    bench.call("exec", json!({"command": "git init -q && ln .git/config other"})).await;
    bench.call("exec", json!({"command": "printf '[core]\\nfsmonitor = ./evil\\n' >> other"})).await;
    assert!(!read(&bench, ".git/config").unwrap_or_default().contains("evil"));
}

#[tokio::test]
async fn empty_directories_where_files_belong_are_swept_away() {
    let bench = namespace();
    for name in [".git", "AGENTS.md", ".envrc", "skills", "hooks"] {
        fs::create_dir(bench.workdir().join(name)).unwrap();
    }
    let result = bench.call("exec", json!({"command": "git init -q && git status -s && mkdir SOUL.md"})).await;
    assert_eq!(only_text(&result), ("(no output)", false));
    let mut names: Vec<_> = fs::read_dir(bench.workdir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".git", "hooks", "skills"]);
    assert!(bench.workdir().join(".git/HEAD").exists());
}
