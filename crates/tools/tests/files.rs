//! What the file tools do with things that a folder of a repository cannot hold.
#![allow(clippy::unwrap_used, reason = "tests may")]

mod bench;

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bench::{Bench, said};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use serde_json::json;

#[test]
fn a_pipe_or_a_socket_is_refused_without_waiting() {
    let bench = Bench::new();
    mknodat(CWD, bench.workdir().join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(bench.workdir().join("socket")).unwrap();
    for name in ["pipe", "socket"] {
        let refused = format!("{name} is a device, a pipe or a socket: only regular files can be used");
        for (tool, arguments) in [("read", json!({"path": name})), ("write", json!({"path": name, "content": "x"}))] {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let call = async { tokio::time::timeout(Duration::from_secs(20), bench.call(tool, arguments)).await };
            let result = runtime.block_on(call);
            // A thread that hangs in `open` must fail the test, not hang it.
            runtime.shutdown_background();
            assert_eq!(said(&result.unwrap()), (refused.as_str(), true), "{tool}");
        }
    }
}

#[tokio::test]
async fn read_stops_after_2000_lines() {
    let bench = Bench::new();
    let lines = |from: u32, to: u32| (from..=to).map(|n| format!("line {n}\n")).collect::<String>();
    fs::write(bench.workdir().join("a.txt"), lines(1, 4500)).unwrap();
    let first = bench.call("read", json!({"path": "a.txt"})).await;
    let notice = "\n[Lines 1 to 2000 of a.txt, which goes on. Use offset=2001 to read on.]";
    assert_eq!(said(&first), ((lines(1, 2000) + notice).as_str(), false));
    let last = bench.call("read", json!({"path": "a.txt", "offset": 4001, "limit": 100_000})).await;
    assert_eq!(said(&last), (lines(4001, 4500).as_str(), false));
}

// Pitfall 42.
#[tokio::test]
async fn read_stops_after_50_kib_at_the_end_of_a_line() {
    let bench = Bench::new();
    let line = "x".repeat(1023) + "\n";
    fs::write(bench.workdir().join("a.txt"), line.repeat(51)).unwrap();
    let page = bench.call("read", json!({"path": "a.txt"})).await;
    let notice = "\n[Lines 1 to 50 of a.txt, which goes on. Use offset=51 to read on.]";
    assert_eq!(said(&page), ((line.repeat(50) + notice).as_str(), false));
    let rest = bench.call("read", json!({"path": "a.txt", "offset": 2})).await;
    assert_eq!(said(&rest), (line.repeat(50).as_str(), false));
}

#[tokio::test]
async fn read_shows_the_beginning_of_an_endless_line() {
    let bench = Bench::new();
    // Three bytes each, so that the cut falls into a character.
    fs::write(bench.workdir().join("a.txt"), "start\n".to_owned() + &"€".repeat(20_000) + "\nend\n").unwrap();
    let long = bench.call("read", json!({"path": "a.txt", "offset": 2})).await;
    let shown = "€".repeat(50 * 1024 / 3)
        + "\n\n[Line 2 of a.txt is longer than 50 KiB; only its beginning is shown. Use exec to cut out more of it, or \
           offset=3 to read on after it.]";
    assert_eq!(said(&long), (shown.as_str(), false));
    let after = bench.call("read", json!({"path": "a.txt", "offset": 3})).await;
    assert_eq!(said(&after), ("end\n", false));
}

#[tokio::test]
async fn read_says_when_a_text_is_not_utf8() {
    let bench = Bench::new();
    fs::write(bench.workdir().join("latin.txt"), b"un caf\xe9 cr\xe8me, s'il vous pla\xeet\n").unwrap();
    let text =
        "un caf\u{fffd} cr\u{fffd}me, s'il vous pla\u{fffd}t\n\n[Bytes that are not UTF-8 are shown as \u{fffd}.]";
    assert_eq!(said(&bench.call("read", json!({"path": "latin.txt"})).await), (text, false));
    fs::write(bench.workdir().join("noise.txt"), [0xff, 0xfe, 0xfd, b'a']).unwrap();
    let refused = "noise.txt is a binary file: only text can be read";
    assert_eq!(said(&bench.call("read", json!({"path": "noise.txt"})).await), (refused, true));
}

#[tokio::test]
async fn write_keeps_the_mode_and_respects_read_only() {
    let bench = Bench::new();
    let file = bench.workdir().join("run.sh");
    fs::write(&file, "old").unwrap();
    for mode in [0o750, 0o600, 0o666] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        bench.call("write", json!({"path": "run.sh", "content": format!("{mode}")})).await;
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{mode}"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, mode);
    }
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    let refused = bench.call("write", json!({"path": "run.sh", "content": "new"})).await;
    assert_eq!(said(&refused), ("run.sh is read-only: change its mode first", true));
    let names: Vec<_> = fs::read_dir(bench.workdir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["run.sh"], "nothing temporary is left");
}

#[tokio::test]
async fn ls_lists_500_entries_and_counts_the_rest() {
    let bench = Bench::new();
    for n in 0..620 {
        fs::write(bench.workdir().join(format!("{n:04}")), "").unwrap();
    }
    let names: Vec<String> = (0..500).map(|n| format!("{n:04}")).collect();
    let notice =
        "\n\n[120 of 620 entries are left out. List a directory further down, or use exec to filter.]".to_owned();
    let listed = bench.call("ls", json!({"limit": 1000})).await;
    assert_eq!(said(&listed), ((names.join("\n") + &notice).as_str(), false));
}

#[tokio::test]
async fn ls_keeps_odd_names_on_one_line() {
    let bench = Bench::new();
    fs::write(bench.workdir().join("two\nlines"), "").unwrap();
    fs::write(bench.workdir().join("crème"), "").unwrap();
    assert_eq!(said(&bench.call("ls", json!({})).await), ("crème\ntwo\\nlines", false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_becomes_a_link_meanwhile_does_not_lead_out() {
    let bench = Bench::new();
    let [real, link] = ["real", "link"].map(|name| bench.workdir().join(name));
    fs::create_dir(&real).unwrap();
    fs::write(real.join("secret.txt"), "harmless").unwrap();
    symlink("../other", &link).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                for n in 0..500 {
                    let read = bench.call("read", json!({"path": "real/secret.txt"})).await;
                    assert!(read.is_error || said(&read).0 == "harmless", "{read:?}");
                    let path = if n % 2 == 0 { "real/secret.txt".to_owned() } else { format!("real/{n}/new.txt") };
                    bench.call("write", json!({"path": path, "content": "harmless"})).await;
                }
            });
        });
        is_over.store(true, Ordering::Relaxed);
    });
    bench.assert_outside_is_untouched();
}
