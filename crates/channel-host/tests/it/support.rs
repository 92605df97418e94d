//! Test support: an installation with a fake package, a fake platform, and a sink that records.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use homard_channel_host::{ChannelHost, HostSettings, HostedChannel, NodeVersion, ProcessTiming, package};
use homard_channels::{Batch, Channel as _, ChannelEvent, ConnectionState, Incoming, Outgoing, Sink, SinkError};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, tcp::OwnedWriteHalf},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

/// Maximum duration of a step.
const LIMIT: Duration = Duration::from_secs(30);

/// Node of the machine, or the one installed for the tests.
pub(crate) async fn node() -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/node22/node_modules/node/bin/node");
    let from_env = std::env::vars().find(|(name, _)| name == "HOMARD_NODE").map(|(_, path)| PathBuf::from(path));
    let configured = from_env.or_else(|| installed.exists().then_some(installed));
    let path = std::env::vars().find(|(name, _)| name == "PATH").map(|(_, path)| path).unwrap_or_default();
    let found = homard_plugins::which_node(configured.as_deref(), &path).await.ok();
    if found.is_none() {
        let line = "skipped: the channel host: there is no Node that is new enough\n";
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
    }
    found
}

/// An installation with the fake package as the channel `irc`.
pub(crate) struct Installation {
    dir: tempfile::TempDir,
    node: PathBuf,
    pub(crate) max_memory: u64,
}

impl Installation {
    pub(crate) fn new(node: PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let modules = dir.path().join("packages/node_modules");
        let write = |path: &str, text: &str| {
            let file = modules.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let exports = json!({
            "./plugin-sdk/runtime-config-snapshot": "./dist/snapshot.mjs",
        });
        let library = json!({"name": "openclaw", "version": "2026.9.6", "type": "module", "exports": exports});
        write("openclaw/package.json", &library.to_string());
        write("openclaw/dist/snapshot.mjs", include_str!("fake/snapshot.mjs"));
        write("openclaw/dist/plugin-state-store-fake.mjs", include_str!("fake/stores.mjs"));
        write("openclaw/dist/runtime-channel-fake.mjs", include_str!("fake/runtime-channel-fake.mjs"));
        let manifest = json!({"name": "@openclaw/irc", "version": "2026.9.5", "main": "./index.mjs"});
        write("@openclaw/irc/package.json", &manifest.to_string());
        write("@openclaw/irc/index.mjs", include_str!("fake/package.mjs"));
        Self { dir, node, max_memory: 1 << 40 }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Creates a host for the channel.
    pub(crate) fn host(&self) -> Arc<ChannelHost> {
        let env = [("PATH", "/usr/bin:/bin"), ("IRC_NICK", "bot"), ("ANTHROPIC_API_KEY", "secret")];
        let env: BTreeMap<_, _> = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let mut settings = HostSettings::new(*package("irc").unwrap(), self.dir.path(), env);
        (settings.node, settings.min_node) = (Some(self.node.clone()), NodeVersion { major: 22, minor: 0 });
        settings.package.has_uploads = true;
        settings.max_memory = self.max_memory;
        settings.timing = ProcessTiming {
            ping_every: Duration::from_millis(300),
            ping_within: Duration::from_secs(2),
            backoff: Duration::from_millis(10),
            longest_backoff: Duration::from_millis(50),
            grace: Duration::from_millis(500),
            ..settings.timing
        };
        Arc::new(ChannelHost::new(settings))
    }
}

/// The fake platform.
pub(crate) struct Platform {
    pub(crate) port: u16,
    lines: mpsc::UnboundedReceiver<Value>,
    writer: watch::Receiver<Option<Arc<tokio::sync::Mutex<OwnedWriteHalf>>>>,
}

impl Platform {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, lines) = mpsc::unbounded_channel();
        let (connection, writer) = watch::channel(None);
        #[allow(clippy::disallowed_methods, reason = "a test needs no name for its tasks")]
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (reader, half) = stream.into_split();
                connection.send_replace(Some(Arc::new(tokio::sync::Mutex::new(half))));
                let sender = sender.clone();
                tokio::spawn(async move {
                    let mut lines = BufReader::new(reader).lines();
                    while let Ok(Some(line)) = lines.next_line().await {
                        drop(sender.send(serde_json::from_str(&line).unwrap()));
                    }
                });
            }
        });
        Self { port, lines, writer }
    }

    /// Sends a line to the newest connection.
    pub(crate) async fn tell(&mut self, line: &Value) {
        let found = timeout(LIMIT, self.writer.wait_for(Option::is_some)).await.unwrap().unwrap().clone();
        let mut writer = found.as_ref().unwrap().lock().await;
        // The connection may have ended; the tests look at what arrives.
        writer.write_all(format!("{line}\n").as_bytes()).await.ok();
    }

    /// Waits for a line with a member.
    pub(crate) async fn heard(&mut self, member: &str) -> Value {
        let find = async {
            loop {
                let line = self.lines.recv().await.unwrap();
                if !line[member].is_null() {
                    return line;
                }
            }
        };
        timeout(LIMIT, find).await.unwrap_or_else(|_| panic!("the platform never received {member}"))
    }

    /// Closes the newest connection.
    pub(crate) async fn disconnect(&mut self) {
        let found = self.writer.borrow().clone().unwrap();
        found.lock().await.shutdown().await.unwrap();
    }
}

/// A sink that records what it receives, and fails on demand.
#[derive(Debug)]
pub(crate) struct RecordingSink {
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    messages: Vec<Incoming>,
    states: Vec<ConnectionState>,
    refusals: usize,
}

impl Default for RecordingSink {
    fn default() -> Self {
        Self { inner: Mutex::default(), changes: watch::channel(0).0 }
    }
}

impl RecordingSink {
    pub(crate) fn refuse(&self, times: usize) {
        self.inner.lock().unwrap().refusals = times;
    }

    pub(crate) fn messages(&self) -> Vec<Incoming> {
        self.inner.lock().unwrap().messages.clone()
    }

    /// Returns the reasons for which the connection was down.
    pub(crate) fn failures(&self) -> Vec<String> {
        let inner = self.inner.lock().unwrap();
        let why = |state: &ConnectionState| match state {
            ConnectionState::Down { why, .. } | ConnectionState::Conflict { why, .. } => Some(why.clone()),
            ConnectionState::Up => None,
        };
        inner.states.iter().filter_map(why).collect()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.inner.lock().unwrap().states.last() == Some(&ConnectionState::Up)
    }

    /// Waits until a condition is true.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let wait = async {
            let mut changes = self.changes.subscribe();
            while !condition(self) {
                changes.changed().await.unwrap();
            }
        };
        if timeout(LIMIT, wait).await.is_err() {
            panic!("{what}: {:?}", self.inner.lock().unwrap());
        }
    }
}

#[async_trait]
impl Sink for RecordingSink {
    async fn store(&self, batch: Batch) -> Result<(), SinkError> {
        {
            let mut inner = self.inner.lock().unwrap();
            if inner.refusals > 0 {
                inner.refusals -= 1;
                return Err(SinkError("the disk is full".to_owned()));
            }
            inner.messages.extend(batch.events.into_iter().filter_map(|event| match event {
                ChannelEvent::Message(incoming) => Some(*incoming),
                ChannelEvent::Edited(_) | ChannelEvent::Reacted(_) | ChannelEvent::Membership(_) => None,
            }));
        }
        self.changes.send_modify(|version| *version += 1);
        Ok(())
    }

    fn report_state(&self, state: ConnectionState) {
        self.inner.lock().unwrap().states.push(state);
        self.changes.send_modify(|version| *version += 1);
    }
}

/// An account that receives.
pub(crate) struct Account {
    pub(crate) channel: Arc<HostedChannel>,
    pub(crate) sink: Arc<RecordingSink>,
    task: JoinHandle<()>,
}

impl Account {
    pub(crate) fn start(host: &Arc<ChannelHost>, section: Value) -> Self {
        let channel = Arc::new(HostedChannel::new(host.clone(), "default", section, None));
        let sink = Arc::new(RecordingSink::default());
        let (receiver, stored) = (channel.clone(), sink.clone());
        #[allow(clippy::disallowed_methods, reason = "a test needs no name for its tasks")]
        let task = tokio::spawn(async move {
            receiver.receive(None, stored.as_ref()).await;
        });
        Self { channel, sink, task }
    }

    pub(crate) async fn up(&self) {
        self.sink.until("the account never connected", RecordingSink::is_up).await;
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn text(to: &str, text: &str) -> Outgoing {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let id = format!("delivery-{}", LAST.fetch_add(1, Ordering::Relaxed));
    let mut outgoing = Outgoing { id, text: text.to_owned(), ..Outgoing::default() };
    outgoing.destination.to = to.to_owned();
    outgoing
}
