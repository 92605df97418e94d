//! Ordinary git work by an agent's commands: it needs no approval, and nothing of it is quarantined.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod fixture;

use std::process::Command;

use fixture::{HELPER, ToolFixture, has_namespaces, only_text};
use homard_sandbox::Tier;
use serde_json::json;

const ENV: [(&str, &str); 1] = [("PATH", "/usr/local/bin:/usr/bin:/bin")];

/// Setup by the owner: a repository with a submodule, with remotes in `remotes`.
const PREPARE: &str = r"
git init -q -b main --bare remotes/project.git
git init -q -b main --bare remotes/library.git
git clone -q remotes/library.git library && cd library && git checkout -qb main
echo 'fn library() {}' > library.rs && git add . && git commit -qm library && git push -q origin main && cd .. && rm -rf library
git init -q -b main . && echo remotes > .git/info/exclude
git remote add origin ./remotes/project.git
printf 'one\ntwo\nthree\n' > notes.txt && mkdir src && echo 'fn main() {}' > src/main.rs
git add . && git commit -qm first
git submodule --quiet add ../library.git library && git commit -qm submodule
git push -q origin main
";

/// Commands that an agent runs, in this order, in the same repository.
const TASKS: [(&str, &str); 36] = [
    ("status", "git status --short --branch"),
    ("log", "git log --oneline --graph --stat"),
    ("diff", "echo four >> notes.txt && git diff | grep '^+four'"),
    ("commit", "git add notes.txt && git commit -qm 'Add four'"),
    ("commit all", "echo five >> notes.txt && git commit -qam 'Add five'"),
    ("amend", "echo six >> notes.txt && git commit -qa --amend -m 'Add five and six'"),
    ("branch", "git branch topic && git branch --list topic | grep topic"),
    ("switch", "git switch -q topic && echo a > a.txt && git add a.txt && git commit -qm a"),
    ("merge", "git switch -q main && git merge -q --no-ff -m 'Merge topic' topic"),
    ("new branch", "git checkout -qb fix && echo b > b.txt && git add b.txt && git commit -qm b"),
    ("rebase", "git switch -q main && echo c > c.txt && git add c.txt && git commit -qm c && git rebase -q main fix"),
    (
        "interactive rebase",
        "echo d > d.txt && git add d.txt && git commit -qm d && \
         GIT_SEQUENCE_EDITOR=\"sed -i '2s/pick/fixup/'\" git rebase -q -i main && test $(git rev-list --count main..fix) = 1",
    ),
    ("fast forward", "git switch -q main && git merge -q --ff-only fix && git branch -d fix"),
    ("cherry-pick", "git switch -qc pick HEAD~1 && git cherry-pick main && git switch -q main && git branch -D pick"),
    ("revert", "git revert --no-edit HEAD && test ! -e b.txt"),
    ("stash", "echo draft >> notes.txt && git stash -q && git diff --quiet && git stash pop -q && ! git diff --quiet"),
    ("restore", "git restore notes.txt && git diff --quiet"),
    ("move and remove", "git mv a.txt e.txt && git rm -q c.txt && git commit -qm 'Move and remove'"),
    ("reset", "git reset -q --soft HEAD~1 && git commit -qm again && git reset -q --hard HEAD~1"),
    ("tag", "git tag -a v1 -m 'Version 1' && git describe"),
    ("blame", "git blame notes.txt | wc -l"),
    ("search", "git grep -n 'fn main' && git log -S five --oneline"),
    ("bisect", "git bisect start HEAD HEAD~3 && git bisect run test -e src/main.rs && git bisect reset"),
    ("worktree", "git worktree add -q tree topic && git -C tree status --short && git worktree remove tree"),
    (
        "conflict",
        "git switch -qc other && echo x > notes.txt && git commit -qam x && git switch -q main && echo y > notes.txt && \
         git commit -qam y && ! git merge -q other && printf 'x\\ny\\n' > notes.txt && git add notes.txt && \
         git commit -qm 'Merge other'",
    ),
    ("patch", "git format-patch -q -1 --stdout topic > topic.patch && git apply --stat topic.patch && rm topic.patch"),
    ("fetch", "git fetch -q origin && git log -1 origin/main --oneline"),
    ("push", "git push -q origin main"),
    ("push a new branch", "git push -q -u origin topic"),
    ("branch of a remote one", "git checkout -q --no-track -b tracking origin/main"),
    ("pull", "git switch -q main && git pull -q --rebase origin main"),
    ("delete a branch", "git branch -D tracking other"),
    ("submodule", "git submodule status && git -C library fetch -q && git -C library checkout -q origin/main"),
    (
        "work in a submodule",
        "cd library && git checkout -q main && echo '// new' >> library.rs && git commit -qam new && git push -q && cd .. && \
         git commit -qam 'Update the library'",
    ),
    ("clone", "git clone -q . copy && git -C copy log --oneline | wc -l && rm -rf copy"),
    ("clean up", "echo x > junk && git clean -fdq && git gc -q && git fsck --no-progress"),
];

/// This one sets an upstream in the repository's config. In tier A git reports that it cannot, and continues; in tier B
/// the config is restored.
const SETS_UPSTREAM: &str = "push a new branch";

#[tokio::test]
async fn ordinary_git_tasks_need_no_approval() {
    let mut fixtures = vec![("tier B", ToolFixture::with(&ENV, |settings| settings.tier = Some(limited())))];
    if has_namespaces("ordinary_git_tasks_need_no_approval") {
        fixtures.push(("tier A", ToolFixture::new()));
    }
    for (tier, fixture) in fixtures {
        let failed = failed_tasks(&fixture).await;
        assert!(failed.is_empty(), "{tier}: {} of {} tasks failed:\n{}", failed.len(), TASKS.len(), failed.join("\n"));
    }
}

fn limited() -> Tier {
    Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned())
}

/// Runs all tasks; returns those that failed or lost files to the quarantine.
async fn failed_tasks(fixture: &ToolFixture) -> Vec<String> {
    let identity = ["AUTHOR", "COMMITTER"]
        .map(|role| [(format!("GIT_{role}_NAME"), "Ann"), (format!("GIT_{role}_EMAIL"), "ann@example.com")])
        .concat();
    let prepared = Command::new("bash")
        .args(["-ec", PREPARE])
        .current_dir(fixture.workdir())
        .envs(identity.iter().map(|(name, value)| (name.as_str(), *value)))
        .envs([
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "protocol.file.allow"),
            ("GIT_CONFIG_VALUE_0", "always"),
        ])
        .output()
        .unwrap();
    assert!(prepared.status.success(), "{}", String::from_utf8_lossy(&prepared.stderr));
    let exports: String = identity.iter().map(|(name, value)| format!("export {name}={value}; ")).collect();
    let mut failed = Vec::new();
    for (task, command) in TASKS {
        let result = fixture.call("exec", json!({"command": format!("{exports}({command}) && echo finished")})).await;
        let text = only_text(&result).0;
        let is_touched = ["The sandbox quarantined", "The sandbox restored"].iter().any(|note| text.contains(note));
        if !text.lines().any(|line| line == "finished") || (is_touched && task != SETS_UPSTREAM) {
            failed.push(format!("{task}: {text}"));
        }
    }
    failed
}
