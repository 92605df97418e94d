//! What a command cannot reach without namespaces, tested with real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod fixture;

use std::{
    fs,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use fixture::{HELPER, ToolFixture, only_text};
use homard_sandbox::Tier;
use homard_tools::ExecSettings;
use rustix::{
    process::geteuid,
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{interval, timeout};

const ENV: [(&str, &str); 1] = [("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")];

/// Variable with the working directory of the process that is killed.
const KILLED: &str = "HOMARD_TEST_KILLED";

fn limited() -> Tier {
    Tier::without_namespaces(Some(HELPER.as_ref()), "of this test".to_owned())
}

/// A sandbox without namespaces, in a directory that commands can see.
fn fixture(change: impl FnOnce(&mut ExecSettings)) -> ToolFixture {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    ToolFixture::below(folder, &ENV, |settings| {
        settings.tier = Some(limited());
        change(settings);
    })
}

async fn run(fixture: &ToolFixture, command: &str) -> (String, bool) {
    let result = fixture.call("exec", json!({"command": command})).await;
    let (text, is_error) = only_text(&result);
    (text.to_owned(), is_error)
}

/// Opens a terminal of the user: our side, the side of a program, and its path.
fn terminal() -> (OwnedFd, OwnedFd, String) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = openpt(flags).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let slave = ioctl_tiocgptpeer(&controller, flags).unwrap();
    let path = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
    (controller, slave, path)
}

/// Returns the processes with a word in their command line.
fn processes(text: &str) -> Vec<String> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let lines = pids.filter(|pid| pid.parse::<u32>().is_ok()).filter_map(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some(format!("{pid} {}", String::from_utf8_lossy(&line).replace('\0', " ")))
    });
    lines.filter(|line| line.contains(text)).collect()
}

/// Returns a unique number of seconds for `sleep`.
fn unique_seconds(seconds: u32) -> String {
    format!("{seconds}.{}", std::process::id())
}

struct SleepProcess(Child);

impl SleepProcess {
    fn new() -> Self {
        Self(Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap())
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap()
    }
}

impl Drop for SleepProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn terminals_of_the_user_are_neither_read_nor_written() {
    let fixture = fixture(|_| {});
    let (controller, _slave, path) = terminal();
    rustix::io::write(&controller, b"typed-password\n").unwrap();
    for pty in [false, true] {
        let command = format!("echo FAKE > {path}; timeout 5 head -1 < {path}; timeout 5 head -1 <> {path}; true");
        let result = fixture.call("exec", json!({"command": command, "pty": pty})).await;
        let (text, _) = only_text(&result);
        assert!(!text.contains("typed-password") && text.contains("Permission denied"), "pty {pty}: {text}");
    }
    rustix::fs::fcntl_setfl(&controller, rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut received = [0; 64];
    let count = rustix::io::read(&controller, &mut received).unwrap();
    assert_eq!(&received[..count], b"typed-password\r\n", "only what the terminal echoes");
}

#[tokio::test]
async fn a_command_has_its_own_terminal() {
    let fixture = fixture(|_| {});
    let command = "echo one > /dev/tty; echo two > $(tty); [ -t 0 ] && echo three; ps -o tty= $$";
    let result = fixture.call("exec", json!({"command": command, "pty": true})).await;
    let (text, is_error) = only_text(&result);
    assert!(!is_error && text.starts_with("one\ntwo\nthree\npts/"), "{text}");
}

#[tokio::test]
async fn a_command_is_not_in_the_session_of_our_terminal() {
    let session = |stat: &str| stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap().to_owned();
    let fixture = fixture(|_| {});
    let (text, _) = run(&fixture, "cat /proc/$$/stat").await;
    assert_ne!(session(&text), session(&fs::read_to_string("/proc/self/stat").unwrap()), "{text}");
}

/// Returns mode, owner, group, and times except that of the last access.
fn metadata(path: &Path) -> (u32, u32, u32, i64, i64) {
    let found = path.symlink_metadata().unwrap();
    (found.mode(), found.uid(), found.gid(), found.mtime(), found.ctime())
}

#[tokio::test]
async fn modes_owners_times_and_attributes_outside_are_unchanged() {
    let fixture = fixture(|_| {});
    let (file, folder) = (fixture.other().join("secret.txt"), fixture.other());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let before = [metadata(&file), metadata(&folder)];
    let numbers =
        if cfg!(target_arch = "x86_64") { [188, 189, 190, 91, 280, 452, 197] } else { [5, 6, 7, 52, 88, 452, 14] };
    let [set, lset, fset, fchmod, utimensat, fchmodat2, remove] = numbers;
    let attempts = format!(
        "for p in ../other ../other/secret.txt; do chmod 777 $p; chmod 000 $p; chmod u+s $p; chmod a+r $p; touch -d 2001-01-01 $p; touch $p; \
         chgrp 12345 $p; chown :12345 $p; \
         perl -e '$p = shift; chmod 0777, $p; utime 1, 1, $p; $v = \"y\"; $n = \"user.x\"; \
         syscall({set}, $p, $n, $v, 1, 0); print \"set \" if !$!; syscall({lset}, $p, $n, $v, 1, 0); \
         open $f, \"<\", $p; syscall({fset}, fileno $f, $n, $v, 1, 0); syscall({fchmod}, fileno $f, 0777); \
         syscall({utimensat}, fileno $f, 0, 0, 0); syscall({utimensat}, -100, $p, 0, 0); \
         syscall({fchmodat2}, -100, $p, 0777, 0); syscall({remove}, $p, $n); \
         ioctl $f, 0x40086602, pack(\"l\", 0x80) and print \"flags\"' $p; done 2> /dev/null; true"
    );
    let (text, _) = run(&fixture, &attempts).await;
    assert_eq!([metadata(&file), metadata(&folder)], before, "{text}");
    assert_eq!(text, "(no output)");
}

#[tokio::test]
async fn programs_that_set_modes_and_times_still_work() {
    let fixture = fixture(|_| {});
    let command = "echo 'echo ran' > x.sh; chmod 755 x.sh && touch -d 2001-01-01 x.sh && cp -p x.sh y.sh && mkdir d && mv x.sh d && \
                   tar cf t.tar d && rm -r d && tar xf t.tar && git init -q repo && chmod 700 y.sh && ls d && ./y.sh";
    let (text, is_error) = run(&fixture, command).await;
    if geteuid().is_root() {
        // Modes of root's files belong to the system, so none is changed.
        assert!(is_error && text.starts_with("x.sh\n") && text.contains("./y.sh: Permission denied"), "{text}");
        assert!(text.contains("[Without bubblewrap, programs cannot make a file executable"), "{text}");
        return;
    }
    assert_eq!((text.as_str(), is_error), ("x.sh\nran", false));
}

#[tokio::test]
async fn limits_and_priorities_of_other_processes_are_unchanged() {
    let fixture = fixture(|_| {});
    let sleeper = SleepProcess::new();
    let nice = |stat: String| stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().to_owned();
    let priorities = || {
        let status = sleeper.file("status");
        let affinity = status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap().to_owned();
        (sleeper.file("limits"), nice(sleeper.file("stat")), affinity, sleeper.file("sched").contains("policy"))
    };
    let policy = || sleeper.file("stat").rsplit_once(')').unwrap().1.split_whitespace().nth(38).unwrap().to_owned();
    let before = (priorities(), policy());
    let pid = sleeper.0.id();
    let command = format!(
        "exec 2>&1; prlimit --pid {pid} --nofile=40:40; prlimit --pid {pid} --fsize=0:0; renice -n 19 -p {pid}; \
         taskset -p 1 {pid}; ionice -c3 -p {pid}; chrt -i -p 0 {pid}; chrt -b -p 0 {pid}; true"
    );
    let (text, _) = run(&fixture, &command).await;
    assert_eq!((priorities(), policy()), before, "{text}");
    let own_changes =
        "ulimit -n 100 && nice -n 1 true && ionice -c3 true && taskset 1 true && chrt -i 0 true && ulimit -n";
    assert_eq!(run(&fixture, own_changes).await, ("100".to_owned(), false));
}

#[tokio::test]
async fn memory_queues_and_events_of_other_programs_are_out_of_reach() {
    let fixture = fixture(|_| {});
    let name = format!("/dev/shm/homard-test-{}", std::process::id());
    fs::write(&name, "shared-canary").unwrap();
    let (text, _) = run(&fixture, &format!("cat {name}; echo x > {name}; echo x > {name}-new; true")).await;
    let shared_memory = fs::read_to_string(&name).unwrap();
    fs::remove_file(&name).unwrap();
    assert!(!text.contains("canary") && shared_memory == "shared-canary", "{text}");
    assert!(!Path::new(&format!("{name}-new")).exists());
    // System V shared memory, queues and semaphores, POSIX queues, and inotify on a hidden directory.
    let calls = if cfg!(target_arch = "x86_64") { [29, 68, 64, 240, 254] } else { [194, 186, 190, 180, 27] };
    for call in calls {
        let command = format!("perl -e 'syscall({call}, 0, 0, 0, 0, 0); print $!+0'");
        assert_eq!(run(&fixture, &command).await, ("1".to_owned(), false), "{call}");
    }
}

#[tokio::test]
async fn no_process_outlives_a_command() {
    let fixture = fixture(|_| {});
    let seconds = unique_seconds(77);
    let plant = "sleep 1; echo evil > AGENTS.md; mkdir -p skills/evil; echo evil > skills/evil/SKILL.md";
    // Forks and exits continuously, each time in a new session; only for a while, so that a failing test does not leave
    // it behind.
    let chain = "use POSIX; $end = time + 20; while (time < $end) { exit if fork; setsid(); $0 = \"MARK\" }"
        .replace("MARK", &seconds);
    let command = format!(
        "(setsid env -i /bin/sleep {seconds} > /dev/null 2>&1 &); (setsid env -i /bin/sh -c '{plant}; sleep {seconds}' > /dev/null 2>&1 &); \
         (setsid perl -e '{chain}' > /dev/null 2>&1 &); nohup sleep {seconds} > /dev/null 2>&1 & sleep 0.1; echo done"
    );
    let (text, is_error) = run(&fixture, &command).await;
    assert!(!is_error && text.starts_with("done"), "{text}");
    assert_eq!(processes(&seconds), Vec::<String>::new());
    assert_eq!(fs::read_dir(fixture.workdir()).unwrap().count(), 0);
}

#[tokio::test]
async fn exit_codes_and_signals_are_returned() {
    let fixture = fixture(|_| {});
    assert_eq!(run(&fixture, "exit 7").await, ("(no output)\n\nCommand exited with code 7".to_owned(), true));
    let (text, _) = run(&fixture, "kill -9 $$").await;
    assert_eq!(text, "(no output)\n\nCommand exited with code 137 (signal 9)");
}

/// The process that the next test kills: runs a command in the background and waits.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "the test that starts this one says where")]
async fn a_process_to_be_killed() {
    let Ok(folder) = std::env::var(KILLED) else { return };
    let fixture = ToolFixture::with(&ENV, |settings| settings.tier = Some(limited()));
    let seconds = fs::read_to_string(Path::new(&folder).join("seconds")).unwrap();
    let command =
        format!("(setsid env -i sleep {seconds} > /dev/null 2>&1 &); setsid sleep {seconds} & sleep {seconds}");
    fixture.call("exec", json!({"command": command, "background": true})).await;
    let mut tick = interval(Duration::from_millis(10));
    while processes(&format!("sleep {seconds}")).iter().filter(|line| line.contains(" sleep ")).count() < 3 {
        tick.tick().await;
    }
    fs::write(Path::new(&folder).join("ready"), "").unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "it starts this program once more")]
async fn commands_end_when_the_gateway_is_killed() {
    let folder = TempDir::new().unwrap();
    let seconds = unique_seconds(66);
    fs::write(folder.path().join("seconds"), &seconds).unwrap();
    let mut gateway = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_to_be_killed"])
        .env(KILLED, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut tick = interval(Duration::from_millis(10));
    let ready = timeout(Duration::from_secs(30), async {
        while !folder.path().join("ready").exists() {
            tick.tick().await;
        }
    });
    let ready = ready.await;
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    ready.expect("the command should run by now");
    let ended = timeout(Duration::from_secs(5), async {
        while !processes(&seconds).is_empty() {
            tick.tick().await;
        }
    });
    assert!(ended.await.is_ok(), "{:?}", processes(&seconds));
}
