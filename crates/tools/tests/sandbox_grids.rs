//! R56 and R60, extended: process trees that are hard to kill, and paths that only sometimes lead outside.
//!
//! `GRID=all` kills two hundred process trees in each sandbox, and tries a million paths.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests may")]

mod fixture;

use std::{fs, time::Duration};

use fixture::{HELPER, ToolFixture, only_text};
use homard_sandbox::Tier;
use serde_json::json;
use tokio::time::{Instant, interval, timeout};

const ENV: [(&str, &str); 1] = [("PATH", "/usr/local/bin:/usr/bin:/bin")];

/// Processes that ignore signals, lead sessions, are orphans, have no environment, hold the output, and are many. They
/// exit after a while, so that a failing test does not leave them behind.
const FAMILY: &str = "
    (trap '' TERM HUP INT; touch stubborn; for i in {1..600}; do sleep 0.1; done) &
    setsid bash -c 'touch session; exec sleep 60' &
    (setsid bash -c '(trap \"\" TERM; touch orphan; for i in {1..600}; do sleep 0.1; done) & disown' > /dev/null 2>&1 &)
    (env -i bash -c 'exec -a other bash -c \"touch bare; sleep 60\"' < /dev/null &)
    for i in {1..200}; do sleep 60 & done
    touch leader
";
const MEMBERS: [&str; 5] = ["stubborn", "session", "orphan", "bare", "leader"];

/// How a process tree is ended.
const ENDS: [FamilyEnd; 3] = [FamilyEnd::Cancel, FamilyEnd::Kill, FamilyEnd::Leave];

#[derive(Debug, Clone, Copy)]
enum FamilyEnd {
    /// The run is cancelled.
    Cancel,
    /// The background command is killed.
    Kill,
    /// The command itself exits and leaves the others behind.
    Leave,
}

#[allow(clippy::disallowed_methods, reason = "whoever runs the tests says how much of the grids they want")]
fn is_long() -> bool {
    std::env::var("GRID").is_ok_and(|value| value == "all")
}

/// Returns the processes with the workspace as working directory, except zombies.
fn live_processes(fixture: &ToolFixture) -> Vec<String> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let is_there = |pid: &String| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == fixture.workdir());
    pids.filter(|pid| pid.parse::<u32>().is_ok()).filter(is_there).collect()
}

async fn complete(fixture: &ToolFixture) {
    let mut tick = interval(Duration::from_millis(5));
    let waited = timeout(Duration::from_secs(30), async {
        while !MEMBERS.iter().all(|name| fixture.workdir().join(name).exists()) {
            tick.tick().await;
        }
    });
    waited.await.expect("the family should be complete by now");
}

/// Starts and ends a process tree; returns how long ending it took.
async fn round(fixture: &ToolFixture, end: FamilyEnd) -> Duration {
    let waiting = format!("{FAMILY} wait");
    match end {
        FamilyEnd::Cancel => {
            let call = fixture.call("exec", json!({"command": waiting, "yieldMs": 60_000}));
            let (_, started_at) = tokio::join!(call, async {
                complete(fixture).await;
                fixture.cancel.cancel();
                Instant::now()
            });
            started_at.elapsed()
        }
        FamilyEnd::Kill => {
            let started = fixture.call("exec", json!({"command": waiting, "background": true})).await;
            let id = started.details.unwrap()["sessionId"].as_str().unwrap().to_owned();
            complete(fixture).await;
            let started_at = Instant::now();
            fixture.call("process", json!({"action": "kill", "sessionId": id})).await;
            started_at.elapsed()
        }
        FamilyEnd::Leave => {
            let members = MEMBERS.map(|name| format!("-e {name}")).join(" -a ");
            let command = format!("{FAMILY} until [ {members} ]; do sleep 0.01; done; touch left");
            let call = fixture.call("exec", json!({"command": command, "yieldMs": 60_000}));
            let result = timeout(Duration::from_secs(60), call).await.unwrap();
            assert!(!result.is_error, "{result:?}");
            let left = fs::metadata(fixture.workdir().join("left")).unwrap().modified().unwrap();
            left.elapsed().unwrap_or_default()
        }
    }
}

// R56.
#[tokio::test]
async fn r56_no_process_tree_outlives_its_end() {
    let rounds = if is_long() { 200 } else { ENDS.len() };
    let limited = Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned());
    for (sandbox, tier, max) in [("tier A", None, 3), ("tier B", Some(limited), 5)] {
        let mut longest = Duration::ZERO;
        for number in 0..rounds {
            let end = ENDS[number % ENDS.len()];
            let fixture = ToolFixture::with(&ENV, |settings| settings.tier = tier.clone());
            let elapsed = round(&fixture, end).await;
            assert_eq!(live_processes(&fixture), Vec::<String>::new(), "{sandbox} {end:?}, round {number}");
            assert!(elapsed <= Duration::from_secs(max), "{sandbox} {end:?}, round {number}: {elapsed:?}");
            longest = longest.max(elapsed);
        }
        println!("{sandbox}: {rounds} families of 200 and more are gone, the slowest after {longest:?}");
    }
}

// A18, R60.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r60_no_attempt_of_many_escapes_the_workspace() {
    let attempts = if is_long() { 1_000_000 } else { 3_000 };
    let fixture = ToolFixture::new();
    let (mut inside, mut refused) = (0, 0);
    let swaps = async {
        for n in 0..attempts {
            let (tool, arguments) = match n % 40 {
                10 => ("write", json!({"path": "real/secret.txt", "content": "harmless"})),
                20 => ("edit", json!({"path": "real/secret.txt", "oldText": "secret", "newText": "changed"})),
                30 => {
                    let patch = "*** Begin Patch\n*** Delete File: real/new.txt\n*** End Patch";
                    ("apply_patch", json!({"input": patch}))
                }
                31 => ("write", json!({"path": "real/deep/er/new.txt", "content": "harmless"})),
                35 => ("write", json!({"path": "real/new.txt", "content": "harmless"})),
                5 | 15 | 25 => ("ls", json!({"path": "real"})),
                7 => ("find", json!({"pattern": "*", "path": "real"})),
                9 => ("grep", json!({"pattern": "a secret", "path": "real"})),
                _ => ("read", json!({"path": "real/secret.txt"})),
            };
            let result = fixture.call(tool, arguments).await;
            let (text, is_error) = only_text(&result);
            assert!(!text.contains("a secret"), "{tool}, try {n}: {text}");
            if is_error { refused += 1 } else { inside += 1 }
        }
    };
    fixture.while_swapped("secret.txt", "harmless", swaps).await;
    fixture.assert_outside_is_untouched();
    assert!(inside > 0 && refused > 0, "{inside} {refused}: nothing was swapped");
    println!("{attempts} tries: {inside} stayed inside, {refused} were refused, none led out");
}

/// Returns paths that lead out of a workspace, through the links of the test below or without one.
fn spellings_of_paths_outside(root: &str, outside: &str) -> Vec<String> {
    let below = outside.trim_start_matches('/');
    let parent_paths = [
        "..",
        "./..",
        "folder/../..",
        "folder/./../..",
        ".//..",
        "folder//..//..",
        "nothing/../..",
        "folder/../folder/../..",
        "../workspace/..",
        "../../../../../../../../../..",
        "up",
        "up/.",
        "folder/../up",
        "through/..",
        "relative/..",
    ];
    let mut paths: Vec<String> = parent_paths.iter().map(|parent| format!("{parent}/other/secret.txt")).collect();
    paths.extend(parent_paths.iter().map(|parent| format!("{root}/{parent}/other/secret.txt")));
    paths.extend(
        ["slash", "magic_root", "magic_root/proc/self/root"].map(|link| format!("{link}/{below}/other/secret.txt")),
    );
    paths.extend(["relative", "absolute", "twice", "through"].map(|link| format!("{link}/secret.txt")));
    paths.extend(["file", "loop", "magic_fd/1", "magic_cwd/Cargo.toml", "slash/etc/passwd"].map(ToOwned::to_owned));
    for prefix in ["/proc/self/root", "/proc/thread-self/root", "/proc/1/root", "/dev/fd/../..", "/./", "//", "/..", ""]
    {
        paths.push(format!("{prefix}{outside}/other/secret.txt"));
        paths.push(format!("{prefix}/etc/passwd"));
    }
    for unusual in [
        "~/x",
        "$HOME/x",
        "file:///etc/passwd",
        "%2e%2e/other/secret.txt",
        "..\\other\\secret.txt",
        "..\0/x",
        "\u{2024}\u{2024}/x",
    ] {
        paths.push(unusual.to_owned());
    }
    paths.extend((1..40).map(|depth| format!("{}other/secret.txt", "../".repeat(depth))));
    paths
}

// A18, R60: more than a hundred spellings of a path outside.
#[tokio::test]
async fn r60_no_spelling_of_a_path_escapes_the_workspace() {
    let fixture = ToolFixture::new();
    let root = fixture.workdir().display().to_string();
    let outside = fixture.outside().canonicalize().unwrap().display().to_string();
    let links = [
        ("relative", "../other".to_owned()),
        ("absolute", format!("{outside}/other")),
        ("file", "../other/secret.txt".to_owned()),
        ("up", "..".to_owned()),
        ("slash", "/".to_owned()),
        ("magic_root", "/proc/self/root".to_owned()),
        ("magic_cwd", "/proc/self/cwd".to_owned()),
        ("magic_fd", "/proc/self/fd".to_owned()),
        ("twice", "relative".to_owned()),
        ("loop", "loop".to_owned()),
        ("through", "folder/../../other".to_owned()),
    ];
    fs::create_dir(fixture.workdir().join("folder")).unwrap();
    for (name, target) in &links {
        std::os::unix::fs::symlink(target, fixture.workdir().join(name)).unwrap();
    }
    fs::hard_link(fixture.other().join("secret.txt"), fixture.workdir().join("hard")).unwrap();
    let paths = spellings_of_paths_outside(&root, &outside);
    assert!(paths.len() >= 100, "{}", paths.len());
    for path in &paths {
        for (tool, arguments) in [
            ("read", json!({"path": path})),
            ("edit", json!({"path": path, "oldText": "secret", "newText": "changed"})),
            ("ls", json!({"path": path})),
            ("find", json!({"pattern": "*", "path": path})),
            ("grep", json!({"pattern": "secret|root:", "path": path})),
            ("apply_patch", json!({"input": format!("*** Begin Patch\n*** Delete File: {path}\n*** End Patch")})),
            ("apply_patch", json!({"input": format!("*** Begin Patch\n*** Add File: {path}x\n+x\n*** End Patch")})),
            ("write", json!({"path": path, "content": "changed"})),
        ] {
            let result = fixture.call(tool, arguments).await;
            let text = only_text(&result).0;
            assert!(!text.contains("a secret") && !text.contains("root:"), "{tool} {path}: {text}");
        }
        fixture.assert_outside_is_untouched();
    }
    // A second name (hard link) outside keeps the old content.
    fixture.call("write", json!({"path": "hard", "content": "changed"})).await;
    fixture.assert_outside_is_untouched();
}
