//! File tools with files that a folder of a repository cannot hold.
#![allow(clippy::unwrap_used, reason = "tests may")]

mod fixture;

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, net::UnixListener},
    time::Duration,
};

use fixture::{ToolFixture, only_text};
use futures_util::future::join_all;
use homard_proto::message::Block;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

#[test]
fn a_pipe_or_a_socket_is_refused_without_waiting() {
    let fixture = ToolFixture::new();
    mknodat(CWD, fixture.workdir().join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(fixture.workdir().join("socket")).unwrap();
    for name in ["pipe", "socket"] {
        let refused = format!("{name} is a device, a pipe or a socket: only regular files can be used");
        for (tool, arguments) in [
            ("read", json!({"path": name})),
            ("grep", json!({"path": name, "pattern": "x"})),
            ("write", json!({"path": name, "content": "x"})),
            ("edit", json!({"path": name, "oldText": "x", "newText": "y"})),
            ("apply_patch", json!({"input": format!("*** Begin Patch\n*** Delete File: {name}\n*** End Patch")})),
        ] {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let call = async { tokio::time::timeout(Duration::from_secs(20), fixture.call(tool, arguments)).await };
            let result = runtime.block_on(call);
            // A thread that hangs in `open` must fail the test, not hang it.
            runtime.shutdown_background();
            assert_eq!(only_text(&result.unwrap()), (refused.as_str(), true), "{tool}");
        }
    }
}

#[tokio::test]
async fn read_stops_after_2000_lines() {
    let fixture = ToolFixture::new();
    let lines = |from: u32, to: u32| (from..=to).map(|n| format!("line {n}\n")).collect::<String>();
    fs::write(fixture.workdir().join("a.txt"), lines(1, 4500)).unwrap();
    let first = fixture.call("read", json!({"path": "a.txt"})).await;
    let notice = "\n[Lines 1 to 2000 of a.txt; the file continues. Use offset=2001 to read on.]";
    assert_eq!(only_text(&first), ((lines(1, 2000) + notice).as_str(), false));
    let last = fixture.call("read", json!({"path": "a.txt", "offset": 4001, "limit": 100_000})).await;
    assert_eq!(only_text(&last), (lines(4001, 4500).as_str(), false));
}

// Pitfall 42.
#[tokio::test]
async fn read_stops_after_50_kib_at_the_end_of_a_line() {
    let fixture = ToolFixture::new();
    let line = "x".repeat(1023) + "\n";
    fs::write(fixture.workdir().join("a.txt"), line.repeat(51)).unwrap();
    let page = fixture.call("read", json!({"path": "a.txt"})).await;
    let notice = "\n[Lines 1 to 50 of a.txt; the file continues. Use offset=51 to read on.]";
    assert_eq!(only_text(&page), ((line.repeat(50) + notice).as_str(), false));
    let rest = fixture.call("read", json!({"path": "a.txt", "offset": 2})).await;
    assert_eq!(only_text(&rest), (line.repeat(50).as_str(), false));
}

#[tokio::test]
async fn read_shows_the_beginning_of_an_endless_line() {
    let fixture = ToolFixture::new();
    // Three bytes each, so that the cut is inside a character.
    fs::write(fixture.workdir().join("a.txt"), "start\n".to_owned() + &"€".repeat(20_000) + "\nend\n").unwrap();
    let long = fixture.call("read", json!({"path": "a.txt", "offset": 2})).await;
    let expected = "€".repeat(50 * 1024 / 3)
        + "\n\n[Line 2 of a.txt is longer than 50 KiB; only its beginning is shown. Use cursor=51204 to read on in it, \
           or offset=3 to read on after it.]";
    assert_eq!(only_text(&long), (expected.as_str(), false));
    let rest = fixture.call("read", json!({"path": "a.txt", "cursor": 51204})).await;
    assert_eq!(only_text(&rest), (("€".repeat(20_000 - 50 * 1024 / 3) + "\nend\n").as_str(), false));
    let after = fixture.call("read", json!({"path": "a.txt", "offset": 3})).await;
    assert_eq!(only_text(&after), ("end\n", false));
}

#[tokio::test]
async fn read_says_when_a_text_is_not_utf8() {
    let fixture = ToolFixture::new();
    fs::write(fixture.workdir().join("latin.txt"), b"un caf\xe9 cr\xe8me, s'il vous pla\xeet\n").unwrap();
    let text =
        "un caf\u{fffd} cr\u{fffd}me, s'il vous pla\u{fffd}t\n\n[Bytes that are not UTF-8 are shown as \u{fffd}.]";
    assert_eq!(only_text(&fixture.call("read", json!({"path": "latin.txt"})).await), (text, false));
    fs::write(fixture.workdir().join("noise.txt"), [0xff, 0xfe, 0xfd, b'a']).unwrap();
    let refused = "noise.txt is a binary file: only text and images can be read";
    assert_eq!(only_text(&fixture.call("read", json!({"path": "noise.txt"})).await), (refused, true));
}

#[tokio::test]
async fn write_keeps_the_mode_and_respects_read_only() {
    let fixture = ToolFixture::new();
    let file = fixture.workdir().join("run.sh");
    fs::write(&file, "old").unwrap();
    for mode in [0o750, 0o600, 0o666] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        fixture.call("write", json!({"path": "run.sh", "content": format!("{mode}")})).await;
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{mode}"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, mode);
    }
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    let refused = fixture.call("write", json!({"path": "run.sh", "content": "new"})).await;
    assert_eq!(only_text(&refused), ("run.sh is read-only: change its mode first", true));
    let names: Vec<_> = fs::read_dir(fixture.workdir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["run.sh"], "nothing temporary is left");
}

#[tokio::test]
async fn ls_lists_500_entries_and_counts_the_rest() {
    let fixture = ToolFixture::new();
    for n in 0..620 {
        fs::write(fixture.workdir().join(format!("{n:04}")), "").unwrap();
    }
    let names: Vec<String> = (0..500).map(|n| format!("{n:04}")).collect();
    let notice = "\n\n[120 of 620 entries are left out. Use after=\"0499\" to go on.]".to_owned();
    let listed = fixture.call("ls", json!({"limit": 1000})).await;
    assert_eq!(only_text(&listed), ((names.join("\n") + &notice).as_str(), false));
}

#[tokio::test]
async fn ls_keeps_unusual_names_on_one_line() {
    let fixture = ToolFixture::new();
    fs::write(fixture.workdir().join("two\nlines"), "").unwrap();
    fs::write(fixture.workdir().join("crème"), "").unwrap();
    assert_eq!(only_text(&fixture.call("ls", json!({})).await), ("crème\ntwo\\nlines", false));
}

// A18, R60.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_replaced_by_a_symlink_does_not_escape_the_workspace() {
    let fixture = ToolFixture::new();
    let swaps = async {
        for n in 0..500 {
            let read = fixture.call("read", json!({"path": "real/secret.txt"})).await;
            assert!(read.is_error || only_text(&read).0 == "harmless", "{read:?}");
            let path = if n % 2 == 0 { "real/secret.txt".to_owned() } else { format!("real/{n}/new.txt") };
            fixture.call("write", json!({"path": path, "content": "harmless"})).await;
            let edit = json!({"path": "real/secret.txt", "oldText": "secret", "newText": "changed"});
            assert!(fixture.call("edit", edit).await.is_error);
            let patch = format!("*** Begin Patch\n*** Add File: real/p{n}/x\n+harmless\n*** End Patch");
            fixture.call("apply_patch", json!({"input": patch})).await;
            let found = fixture.call("grep", json!({"pattern": "a secret"})).await;
            assert_eq!(only_text(&found), ("(no matches)", false));
        }
    };
    fixture.while_swapped("secret.txt", "harmless", swaps).await;
    fixture.assert_outside_is_untouched();
}

#[tokio::test]
async fn read_reports_that_an_image_was_scaled() {
    let fixture = ToolFixture::new();
    // 2500 x 1 pixels, all of one colour.
    fs::write(fixture.workdir().join("wide.gif"), wide_gif()).unwrap();
    let result = fixture.call("read", json!({"path": "wide.gif"})).await;
    let [Block::Text(text), Block::Image(image)] = result.content.as_slice() else { panic!("{result:?}") };
    let expected = ("wide.gif is a picture: image/jpeg, scaled down to 2000 x 1", "image/jpeg");
    assert_eq!((text.text.as_str(), image.mime_type.as_str()), expected);
}

/// Returns a hand-written GIF wider than models accept: each pixel is a 3-bit code; the table is cleared before it
/// grows.
fn wide_gif() -> Vec<u8> {
    let mut bits: Vec<u8> = Vec::new();
    for pixel in 0..2500 {
        if pixel % 2 == 0 {
            bits.extend([0, 0, 1]); // Clear code: 4.
        }
        bits.extend([0, 0, 0]);
    }
    bits.extend([1, 0, 1]); // End code: 5.
    let data: Vec<u8> = bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, bit| sum << 1 | bit)).collect();
    let mut gif =
        b"GIF89a\xc4\x09\x01\x00\x80\x00\x00\x10\x20\x30\xff\xff\xff,\x00\x00\x00\x00\xc4\x09\x01\x00\x00\x02".to_vec();
    for block in data.chunks(255) {
        gif.push(block.len().try_into().unwrap());
        gif.extend(block);
    }
    gif.extend(b"\x00;");
    gif
}

#[tokio::test]
async fn edits_and_patches_keep_the_mode() {
    let fixture = ToolFixture::new();
    let mode = |name: &str| fs::metadata(fixture.workdir().join(name)).unwrap().permissions().mode() & 0o7777;
    fs::write(fixture.workdir().join("run.sh"), "one\n").unwrap();
    fs::set_permissions(fixture.workdir().join("run.sh"), Permissions::from_mode(0o750)).unwrap();
    fixture.call("edit", json!({"path": "run.sh", "oldText": "one", "newText": "two"})).await;
    assert_eq!(mode("run.sh"), 0o750);
    let patch = "*** Begin Patch\n*** Update File: run.sh\n*** Move to: go.sh\n@@\n-two\n+three\n*** End Patch";
    fixture.call("apply_patch", json!({"input": patch})).await;
    assert_eq!(
        (mode("go.sh"), fs::read_to_string(fixture.workdir().join("go.sh")).unwrap()),
        (0o750, "three\n".into())
    );
    let names: Vec<_> = fs::read_dir(fixture.workdir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["go.sh"], "nothing temporary is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_edits_of_one_file_are_all_kept() {
    let fixture = ToolFixture::new();
    let numbers = |sign: &str| (0..60).map(|n| format!("{sign}{n:02}\n")).collect::<String>();
    fs::write(fixture.workdir().join("a.txt"), numbers("-")).unwrap();
    let edit = |n: u32| {
        let (old, new) = (format!("-{n:02}"), format!("+{n:02}"));
        match n % 2 {
            0 => fixture.call("edit", json!({"path": "a.txt", "oldText": old, "newText": new})),
            _ => {
                let patch = format!("*** Begin Patch\n*** Update File: ./a.txt\n@@\n-{old}\n+{new}\n*** End Patch");
                fixture.call("apply_patch", json!({"input": patch}))
            }
        }
    };
    for result in join_all((0..60).map(edit)).await {
        assert!(!result.is_error, "{result:?}");
    }
    assert_eq!(fs::read_to_string(fixture.workdir().join("a.txt")).unwrap(), numbers("+"));
}

#[test]
fn the_file_tools_accept_old_and_new_parameters() {
    let fixture = ToolFixture::new();
    for (tool, expected) in [
        ("read", "path offset limit cursor optional file_path"),
        ("write", "path content file_path"),
        ("edit", "path oldText newText edits file_path old_string new_string"),
        ("apply_patch", "input"),
        ("find", "pattern path limit"),
        ("grep", "pattern path glob ignoreCase literal context limit"),
        ("ls", "path limit after"),
    ] {
        let spec = fixture.tool(tool).spec();
        let parameters: Vec<_> = spec.parameters["properties"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(parameters.join(" "), expected, "{tool}");
    }
}
