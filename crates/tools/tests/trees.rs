//! The search tools with large, deep and changing trees.
#![allow(clippy::unwrap_used, reason = "tests may")]

mod fixture;

use std::fs;

use fixture::{ToolFixture, only_text};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use serde_json::json;

/// Creates 40 directories with 50 files each; every file has a line with its own number.
fn plant(fixture: &ToolFixture) {
    for folder in 0..40 {
        let path = fixture.workdir().join(format!("d{folder:02}"));
        fs::create_dir(&path).unwrap();
        for file in 0..50 {
            fs::write(path.join(format!("f{file:02}.txt")), format!("first\nneedle {folder} {file}\n")).unwrap();
        }
    }
}

#[tokio::test]
async fn grep_lists_matches_in_tree_order_despite_threads() {
    let fixture = ToolFixture::new();
    plant(&fixture);
    let lines: Vec<String> = (0..40)
        .flat_map(|folder| (0..50).map(move |file| format!("d{folder:02}/f{file:02}.txt:2: needle {folder} {file}")))
        .collect();
    let notice = "\n\n[There are more than 100. Use a larger limit, or a narrower pattern.]";
    for _ in 0..20 {
        let found = fixture.call("grep", json!({"pattern": "needle"})).await;
        assert_eq!(only_text(&found), ((lines[..100].join("\n") + notice).as_str(), false));
    }
    let found = fixture.call("grep", json!({"pattern": "needle 39 4\\d"})).await;
    assert_eq!(only_text(&found), (lines[1990..].join("\n").as_str(), false));
}

#[tokio::test]
async fn grep_and_find_end_at_50_kib() {
    let fixture = ToolFixture::new();
    plant(&fixture);
    let long = "y".repeat(490);
    fs::write(fixture.workdir().join("long.txt"), format!("{long}\n").repeat(1000)).unwrap();
    let found = fixture.call("grep", json!({"pattern": "y", "limit": 1000})).await;
    // 101 lines of 503 to 505 bytes fit.
    let lines: Vec<String> = (1..=101).map(|line| format!("long.txt:{line}: {long}")).collect();
    let notice = "\n\n[There are more than fit in 50 KiB. Use a narrower pattern.]";
    let expected = lines.join("\n") + notice;
    assert_eq!(only_text(&found), (expected.as_str(), false));
    assert_eq!(
        found.details,
        Some(json!({"truncation": {"truncated": true, "truncatedBy": "bytes", "maxBytes": 51200}}))
    );

    let deep = fixture.workdir().join("n".repeat(200)).join("m".repeat(200));
    fs::create_dir_all(&deep).unwrap();
    for file in 0..300 {
        fs::write(deep.join(format!("{file:03}.md")), "").unwrap();
    }
    let found = fixture.call("find", json!({"pattern": "*.md"})).await;
    assert!(only_text(&found).0.len() <= 51_200 + 100, "{}", only_text(&found).0.len());
    assert!(only_text(&found).0.ends_with(notice), "{}", only_text(&found).0);
}

#[tokio::test]
async fn find_lists_1000_paths_by_default() {
    let fixture = ToolFixture::new();
    plant(&fixture);
    let paths: Vec<String> =
        (0..40).flat_map(|folder| (0..50).map(move |file| format!("d{folder:02}/f{file:02}.txt"))).collect();
    let notice = "\n\n[There are more than 1000. Use a larger limit, or a narrower pattern.]";
    let found = fixture.call("find", json!({"pattern": "*.txt"})).await;
    assert_eq!(only_text(&found), ((paths[..1000].join("\n") + notice).as_str(), false));
    let found = fixture.call("find", json!({"pattern": "*.txt", "limit": 5000})).await;
    assert_eq!(only_text(&found), (paths.join("\n").as_str(), false));
}

#[tokio::test]
async fn a_tree_that_is_too_deep_is_searched_up_to_the_limit() {
    let fixture = ToolFixture::new();
    let name = "d".repeat(200);
    let mut directory = openat(CWD, fixture.workdir(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..30 {
        mkdirat(&directory, &name, Mode::RWXU).unwrap();
        directory = openat(&directory, &name, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    fs::write(fixture.workdir().join("a.txt"), "needle\n").unwrap();
    let found = fixture.call("find", json!({"pattern": "*.txt"})).await;
    assert_eq!(only_text(&found), ("a.txt\n\n[1 directories could not be read.]", false));
    let found = fixture.call("grep", json!({"pattern": "needle"})).await;
    assert_eq!(only_text(&found), ("a.txt:1: needle\n\n[1 files or directories could not be searched.]", false));
}

#[tokio::test]
async fn a_stopped_run_does_not_wait_for_a_search() {
    let fixture = ToolFixture::new();
    plant(&fixture);
    fixture.cancel.cancel();
    for (tool, arguments) in
        [("find", json!({"pattern": "*"})), ("grep", json!({"pattern": "needle"})), ("ls", json!({"path": "d00"}))]
    {
        let refused = "the run was stopped before the tool finished";
        assert_eq!(only_text(&fixture.call(tool, arguments).await), (refused, true), "{tool}");
    }
    let read = fixture.call("read", json!({"path": "d00/f00.txt"})).await;
    assert_eq!(only_text(&read), ("d00/f00.txt: the run was stopped while the file was read", true));
}

// A18, R60.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_replaced_by_a_symlink_is_not_walked() {
    let fixture = ToolFixture::new();
    let swaps = async {
        for _ in 0..1000 {
            let found = fixture.call("find", json!({"pattern": "**/*.txt"})).await;
            assert!(!only_text(&found).0.contains("secret.txt"), "{found:?}");
            let found = fixture.call("grep", json!({"pattern": "secret$"})).await;
            assert_eq!(only_text(&found), ("(no matches)", false));
            let listed = fixture.call("ls", json!({"path": "real"})).await;
            assert!(!only_text(&listed).0.contains("secret.txt"), "{listed:?}");
        }
    };
    fixture.while_swapped("harmless.txt", "a secret of ours", swaps).await;
    fixture.assert_outside_is_untouched();
}
