//! Real packages against fake platforms. Run by `cargo xtask channels`, which installs them and names their directory.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use homard_channel_host::{ChannelHost, HostSettings, install, package};
use homard_channels::{Channel as _, ChannelError};
use homard_stdx::SeededRng;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{sleep, timeout},
};

use crate::support::{Account, RecordingSink, text};

/// Maximum duration of a step.
const LIMIT: Duration = Duration::from_secs(90);
/// The fake platforms.
const CRABLINE: &str = "@openclaw/crabline@0.1.27";

fn setting(name: &str) -> Option<String> {
    std::env::vars().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// Node beside the packages, or the one that `HOMARD_NODE` names.
fn node_of(packages: &Path) -> PathBuf {
    let machine = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "x64" };
    let beside = packages.join(format!("node_modules/node-linux-{machine}/bin/node"));
    if beside.is_file() { beside } else { PathBuf::from(setting("HOMARD_NODE").expect("HOMARD_NODE names Node 24")) }
}

/// Installs a package as `homard channels add` does, and the fake platforms beside it.
async fn installed(name: &str) -> PathBuf {
    let channels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/channel-host");
    let package = package(name).unwrap();
    if !install::is_installed(&channels, package) {
        install::install(package, &channels, &std::env::vars().collect(), |_| {}).await.unwrap();
    }
    let packages = install::packages_dir(&channels).canonicalize().unwrap();
    if !packages.join("node_modules/@openclaw/crabline").exists() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]).arg(&packages).arg(CRABLINE);
        assert!(npm.status().await.unwrap().success());
    }
    packages
}

struct FakePlatform {
    _child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    section: Value,
    env: BTreeMap<String, String>,
    sent: Vec<String>,
}

impl FakePlatform {
    async fn start(channel: &str, packages: &Path, node: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/real/platform.mjs");
        let mut child = Command::new(node)
            .args([script.as_os_str(), channel.as_ref(), packages.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut platform = Self {
            _child: child,
            stdin,
            lines: BufReader::new(stdout).lines(),
            section: Value::Null,
            env: BTreeMap::new(),
            sent: Vec::new(),
        };
        let first = platform.line().await;
        platform.section = first["section"].clone();
        platform.env = serde_json::from_value(first["env"].clone()).unwrap();
        platform
    }

    async fn line(&mut self) -> Value {
        loop {
            let line = timeout(LIMIT, self.lines.next_line()).await.expect("the platform is silent").unwrap().unwrap();
            // Libraries of the fake platform log to stdout, too.
            let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
            match line["sent"].as_str() {
                Some(text) => self.sent.push(text.to_owned()),
                None => return line,
            }
        }
    }

    async fn inject(&mut self, text: &str, is_group: bool) {
        let line = json!({"inject": {"text": text, "group": is_group}});
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let answer = self.line().await;
        assert_eq!(answer["injected"], text, "{answer}");
    }

    /// Waits until a text was sent.
    async fn until_sent(&mut self, text: &str) {
        let wait = async {
            while !self.sent.iter().any(|sent| sent.contains(text)) {
                let line = self.lines.next_line().await.unwrap().unwrap();
                let line: Value = serde_json::from_str(&line).unwrap_or_default();
                self.sent.extend(line["sent"].as_str().map(str::to_owned));
            }
        };
        timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("{text} was never sent"));
    }

    /// Reads what was sent until there is nothing for a while.
    async fn read_rest(&mut self) {
        while let Ok(Ok(Some(line))) = timeout(Duration::from_secs(2), self.lines.next_line()).await {
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            self.sent.extend(line["sent"].as_str().map(str::to_owned));
        }
    }
}

struct RealChannel {
    name: String,
    platform: FakePlatform,
    host: Arc<ChannelHost>,
    account: Account,
    _dir: tempfile::TempDir,
}

impl RealChannel {
    async fn start(name: &str, installation: &Path) -> Self {
        let packages = installation.to_owned();
        let node = node_of(&packages);
        let platform = FakePlatform::start(name, &packages, &node).await;
        let dir = tempfile::tempdir().unwrap();
        let path = [("PATH".to_owned(), setting("PATH").unwrap())].into_iter();
        let env = path.chain(platform.env.clone()).collect();
        let mut settings = HostSettings::new(*package(name).unwrap(), dir.path(), env);
        (settings.packages, settings.node) = (packages, Some(node));
        settings.timing.backoff = Duration::from_millis(50);
        settings.timing.longest_backoff = Duration::from_secs(1);
        let host = Arc::new(ChannelHost::new(settings));
        let account = Account::start(&host, platform.section.clone());
        Self { name: name.to_owned(), platform, host, account, _dir: dir }
    }

    fn count(&self, text: &str) -> usize {
        self.account.sink.messages().iter().filter(|message| message.text == text).count()
    }

    async fn until_received(&self, text: &str) {
        let has = |sink: &RecordingSink| sink.messages().iter().any(|message| message.text == text);
        timeout(LIMIT, self.account.sink.until(text, has)).await.unwrap();
    }
}

/// A message arrives, an answer leaves with the platform's id, a long text is sent in parts, and an unknown chat is an
/// error that says so.
async fn talks(real: &mut RealChannel) {
    timeout(LIMIT, real.account.up()).await.unwrap();
    real.platform.inject("hello", false).await;
    real.until_received("hello").await;
    let received = real.account.sink.messages().remove(0);
    assert!(!received.sender.id.is_empty() && !received.message.is_empty(), "{received:?}");
    if real.name == "irc" {
        real.platform.inject("hello all", true).await;
        real.until_received("hello all").await;
        assert_eq!(real.account.sink.messages()[1].peer.id, "#ops");
    }
    let receipt = real.account.channel.send(text(&received.peer.id, "an answer")).await.unwrap();
    assert!(receipt.message.is_some());
    real.platform.until_sent("an answer").await;
    let long = "word ".repeat(1000);
    let receipt = real.account.channel.send(text(&received.peer.id, &long)).await.unwrap();
    assert!(receipt.details["messageIds"].as_array().is_some_and(|ids| ids.len() > 1), "{receipt:?}");
    real.account.channel.identity().await.unwrap();
    let memory = real.host.memory().unwrap() >> 20;
    let line = format!("{}: receives and answers; its process uses {memory} MiB\n", real.name);
    std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
}

/// Platforms that deliver an event again until it is acknowledged. On the others one that was on its way to a process that
/// was killed is lost before the gateway could store it.
const ACKNOWLEDGES: [&str; 1] = ["matrix"];

/// Kills the host at random points while messages arrive and leave.
async fn survives(real: &mut RealChannel, kills: usize) {
    let mut rng = SeededRng::named(1, &real.name);
    let (mut unknown, mut sent, mut missed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let to = real.account.sink.messages()[0].peer.id.clone();
    for round in 0..kills {
        let (inbound, outbound) = (format!("in {round} end"), format!("out {round} end"));
        real.platform.inject(&inbound, false).await;
        let outgoing = text(&to, &outbound);
        let sending = real.account.channel.send(outgoing);
        let (pid, delay) = (real.host.pid(), Duration::from_millis(rng.below(400)));
        let killing = async {
            sleep(delay).await;
            if let Some(pid) = pid {
                std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
            }
        };
        match tokio::join!(sending, killing).0 {
            Ok(_) => drop(sent.insert(outbound)),
            Err(ChannelError::Unknown(_)) => drop(unknown.insert(outbound)),
            Err(ChannelError::Unavailable(_)) => {}
            Err(other) => panic!("{other}"),
        }
        let is_up_again = |sink: &RecordingSink| sink.failures().len() > round && sink.is_up();
        timeout(LIMIT, real.account.sink.until("up again", is_up_again)).await.unwrap();
        if ACKNOWLEDGES.contains(&real.name.as_str()) {
            real.until_received(&inbound).await;
        } else if real.count(&inbound) == 0 {
            missed.insert(inbound);
        }
    }
    real.platform.read_rest().await;
    for round in 0..kills {
        let (inbound, outbound) = (format!("in {round} end"), format!("out {round} end"));
        let arrived = real.platform.sent.iter().filter(|text| text.contains(&outbound)).count();
        let expected = if sent.contains(&outbound) { 1..=1 } else { 0..=usize::from(unknown.contains(&outbound)) };
        assert!(expected.contains(&arrived), "{outbound} arrived {arrived} times");
        // The gateway drops the copies, which have the same id.
        let ids: BTreeSet<_> =
            real.account.sink.messages().into_iter().filter(|m| m.text == inbound).map(|m| m.event).collect();
        assert!(ids.len() == 1 || missed.contains(&inbound), "{inbound}: {ids:?}");
    }
    let (sent, unknown, missed) = (sent.len(), unknown.len(), missed.len());
    let line =
        format!("{}: {kills} kills, {sent} sent, {unknown} unknown, none twice, {missed} not redelivered\n", real.name);
    std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn real_packages_receive_and_answer() {
    let Some(names) = setting("HOMARD_CHANNELS") else {
        let line = "skipped: real channel packages are run by cargo xtask channels\n";
        return std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
    };
    let prepared = setting("HOMARD_CHANNEL_PACKAGES").map(PathBuf::from);
    let kills = setting("HOMARD_CHANNEL_KILLS").map_or(0, |kills| kills.parse().unwrap());
    for name in names.split(',') {
        let packages = match &prepared {
            Some(packages) => packages.clone(),
            None => installed(name).await,
        };
        let mut real = RealChannel::start(name, &packages).await;
        talks(&mut real).await;
        if kills > 0 {
            survives(&mut real, kills).await;
        }
        real.host.close().await;
    }
}
