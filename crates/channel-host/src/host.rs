//! The process of one channel's package, shared by the accounts of the channel, and what it may request.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use homard_channels::Incoming;
use homard_plugins::{
    Error, Host, ManagedProcess, PluginHttpCall, PluginHttpReply, ProcessTiming, Program, ProgramCommand, ProgramDown,
    RunningProgram, read_http,
};
use homard_runtime::Ambient;
use homard_stdx::sync::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_blocking,
};

use crate::{
    facts::MessageFacts,
    ingress::IngressStore,
    memory,
    node::{self, NodeVersion},
    packages::{HostedPackage, fits},
    scripts,
};

/// Heap limit of Node in MiB.
const HEAP_MB: u32 = 1024;
/// Default maximum of the process's resident memory.
const MEMORY_BYTES: u64 = 1536 << 20;
/// Timeout of an HTTP request for a package.
const HTTP_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of events of an account that may wait for the channel.
const MAX_EVENTS: usize = 64;
/// Environment variables that the process gets, if set, besides those that begin with the channel's name.
const VARIABLES: [&str; 16] = [
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "TZ",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Where a channel's package and its files are, and the limits of its process.
#[derive(Clone)]
pub struct HostSettings {
    /// The package.
    pub package: HostedPackage,
    /// Directory of the installed packages.
    pub packages: PathBuf,
    /// Directory of the channel's own files.
    pub dir: PathBuf,
    /// Directory for the scripts of the Node side.
    pub scripts: PathBuf,
    /// Path of Node from the config.
    pub node: Option<PathBuf>,
    /// Minimum version of Node.
    pub min_node: NodeVersion,
    /// The gateway's environment, of which the process gets only a part.
    pub env: BTreeMap<String, String>,
    /// Maximum resident memory; a process that uses more is restarted.
    pub max_memory: u64,
    /// Timeouts and delays of the process.
    pub timing: ProcessTiming,
}

impl std::fmt::Debug for HostSettings {
    /// Omits the environment, which contains secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostSettings").field("package", &self.package).field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl HostSettings {
    /// Returns the settings of a channel whose files are below a directory for all channels.
    pub fn new(package: HostedPackage, channels: &Path, env: BTreeMap<String, String>) -> Self {
        Self {
            package,
            packages: crate::install::packages_dir(channels),
            dir: crate::install::channel_dir(channels, package.name),
            scripts: channels.join("host"),
            node: None,
            min_node: NodeVersion::MIN,
            env,
            max_memory: MEMORY_BYTES,
            timing: ProcessTiming {
                start: Duration::from_secs(90),
                ping_every: Duration::from_secs(10),
                ping_within: Duration::from_secs(20),
                backoff: Duration::from_secs(1),
                longest_backoff: Duration::from_secs(120),
                grace: Duration::from_secs(5),
            },
        }
    }

    /// Returns how to link an account in a terminal, such as by a QR code. The gateway must not use it meanwhile.
    pub async fn login_command(&self, account: &str, section: &Value) -> Result<ProgramCommand, String> {
        let mut command = self.command("login.mjs").await?;
        let mut params = self.init_params();
        (params["account"], params["section"]) = (json!(account), section.clone());
        command.env.insert("HOMARD_CHANNEL_LOGIN".to_owned(), params.to_string());
        Ok(command)
    }

    /// Directory with the credentials of a linked account, as OpenClaw lays it out.
    pub fn linked_account(&self, account: &str) -> PathBuf {
        self.state_dir().join("credentials").join(self.package.name).join(account)
    }

    /// Returns how to run a script of the Node side; an error says what the owner has to do.
    async fn command(&self, script: &str) -> Result<ProgramCommand, String> {
        self.check_packages()?;
        let Self { packages, node, min_node, env, .. } = self;
        let path = env.get("PATH").map(String::as_str).unwrap_or_default();
        let node = node::find(node.as_deref(), packages, path, *min_node)
            .await
            .map_err(|why| format!("{why}; run: homard channels add {}", self.package.name))?;
        let (scripts, state) = (self.scripts.clone(), self.state_dir());
        let prepared = spawn_blocking(move || {
            fs::create_dir_all(state)?;
            scripts::write(&scripts)
        });
        let scripts = prepared
            .await
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(|error| format!("the scripts of the channel host cannot be written: {error}"))?;
        let run = vec![
            node.display().to_string(),
            format!("--max-old-space-size={HEAP_MB}"),
            scripts.join(script).display().to_string(),
        ];
        Ok(ProgramCommand { run, dir: self.dir.clone(), env: self.environment() })
    }

    fn init_params(&self) -> Value {
        let Self { package, packages, .. } = self;
        json!({
            "protocol": 1, "channel": package.name, "package": package.package, "root": packages,
            "stateDir": self.state_dir(), "hasUploads": package.has_uploads,
        })
    }

    /// Directory that the package uses as OpenClaw's state directory.
    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir.join("openclaw")
    }

    /// Returns the environment of the process: common variables, and those of this channel.
    fn environment(&self) -> BTreeMap<String, String> {
        let own = self.package.name.to_uppercase().replace('-', "_");
        let is_own = |name: &str| {
            let name = name.strip_prefix("OPENCLAW_").unwrap_or(name);
            name.strip_prefix(own.as_str()).is_some_and(|rest| rest.starts_with('_'))
        };
        let kept = self.env.iter().filter(|(name, _)| VARIABLES.contains(&name.as_str()) || is_own(name));
        let mut env: BTreeMap<_, _> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        env.insert("OPENCLAW_STATE_DIR".to_owned(), self.state_dir().display().to_string());
        env
    }

    /// Checks the versions of the installed packages; an error says what to do.
    pub fn check_packages(&self) -> Result<(), String> {
        let modules = self.packages.join("node_modules");
        let version = |name: &str| -> Option<String> {
            let text = fs::read(modules.join(name).join("package.json")).ok()?;
            serde_json::from_slice::<Value>(&text).ok()?["version"].as_str().map(str::to_owned)
        };
        let HostedPackage { name, package, .. } = self.package;
        match (version("openclaw"), version(package)) {
            (Some(openclaw), Some(found)) => fits(&self.package, &openclaw, &found),
            (None, _) | (_, None) => {
                Err(format!("the package {package} is not installed; run: homard channels add {name}"))
            }
        }
    }
}

/// Something that happened on an account.
#[derive(Debug)]
pub(crate) enum HostEvent {
    /// A message arrived; the answer says whether it is stored.
    Message(Box<Incoming>, oneshot::Sender<Result<(), String>>),
    /// The state of its connection changed.
    State { generation: u64, state: AccountState },
}

/// State of an account's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccountState {
    Up,
    Down(String),
    /// The package ended the connection; the account has to be started again.
    Ended(String),
}

/// An HTTP route of a package.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HostRoute {
    path: String,
    is_prefix: bool,
}

/// What a package reported about its platform.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PackageTraits {
    pub(crate) text_limit: Option<usize>,
    pub(crate) threads: bool,
    pub(crate) reactions: bool,
    pub(crate) polls: bool,
}

/// The process of one channel's package.
#[derive(Debug)]
pub struct ChannelHost {
    shared: Arc<HostShared>,
    process: ManagedProcess,
    generations: AtomicU64,
}

struct HostShared {
    settings: HostSettings,
    accounts: Mutex<BTreeMap<String, (u64, mpsc::Sender<HostEvent>)>>,
    stores: Mutex<BTreeMap<String, Arc<IngressStore>>>,
    routes: Mutex<Vec<HostRoute>>,
    traits: Mutex<PackageTraits>,
}

impl std::fmt::Debug for HostShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostShared").field("channel", &self.settings.package.name).finish_non_exhaustive()
    }
}

impl ChannelHost {
    /// Creates the host of a channel; its process is started when an account receives.
    pub fn new(settings: HostSettings) -> Self {
        let timing = settings.timing;
        let shared = Arc::new(HostShared {
            settings,
            accounts: Mutex::default(),
            stores: Mutex::default(),
            routes: Mutex::default(),
            traits: Mutex::default(),
        });
        Self { process: ManagedProcess::new(shared.clone(), timing), shared, generations: AtomicU64::new(0) }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &HostSettings {
        &self.shared.settings
    }

    pub(crate) fn traits(&self) -> PackageTraits {
        *self.shared.traits.lock()
    }

    pub(crate) async fn up(&self) -> Result<RunningProgram, ProgramDown> {
        self.process.up().await
    }

    pub(crate) fn running(&self) -> Option<RunningProgram> {
        self.process.running()
    }

    /// Returns the resident memory of the process, if it runs.
    pub fn memory(&self) -> Option<u64> {
        memory::resident(self.process.running()?.pid()?)
    }

    /// Returns the id of the process, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.running()?.pid()
    }

    /// Ends the process and waits for its end.
    pub async fn close(&self) {
        self.process.close().await;
    }

    /// Starts to receive the events of an account, instead of an earlier receiver.
    pub(crate) fn register(&self, account: &str) -> (u64, mpsc::Receiver<HostEvent>) {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = mpsc::channel(MAX_EVENTS);
        self.shared.accounts.lock().insert(account.to_owned(), (generation, sender));
        (generation, receiver)
    }

    /// Stops receiving the events of an account.
    pub(crate) fn unregister(&self, account: &str, generation: u64) {
        let mut accounts = self.shared.accounts.lock();
        if accounts.get(account).is_some_and(|(current, _)| *current == generation) {
            accounts.remove(account);
        }
    }

    /// Returns true if the package serves this path.
    pub fn has_route(&self, path: &str) -> bool {
        let fits = |route: &HostRoute| {
            let below = path.strip_prefix(route.path.trim_end_matches('/'));
            path == route.path || (route.is_prefix && below.is_some_and(|rest| rest.starts_with('/')))
        };
        self.shared.routes.lock().iter().any(fits)
    }

    /// Passes an HTTP request to the package.
    pub async fn handle_http(&self, path: &str, call: PluginHttpCall) -> Result<PluginHttpReply, Error> {
        let Some(process) = self.running() else {
            return Err(Error::Unavailable("the channel host is not running".to_owned()));
        };
        let mut params = call.into_params();
        params["ref"] = json!(path);
        read_http(process.call("http.request", &params, HTTP_TIMEOUT).await.map_err(|failed| failed.error)?)
    }
}

impl HostShared {
    /// Returns the ingress store of an account, opened on first use.
    fn store(&self, account: &str) -> Result<Arc<IngressStore>, String> {
        let mut stores = self.stores.lock();
        if let Some(store) = stores.get(account) {
            return Ok(store.clone());
        }
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
        let name: String = account.chars().map(plain).take(64).collect();
        let path = self.settings.dir.join(format!("ingress-{name}.jsonl"));
        let store = IngressStore::open(path.clone())
            .map(Arc::new)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        stores.insert(account.to_owned(), store.clone());
        Ok(store)
    }

    /// Returns the receiver of an account's events. A package may report events of running accounts only.
    fn receiver(&self, account: &str) -> Result<mpsc::Sender<HostEvent>, String> {
        let accounts = self.accounts.lock();
        let found = accounts.get(account).map(|(_, sender)| sender.clone());
        found.ok_or_else(|| format!("account {account} does not receive"))
    }

    async fn accept(&self, params: Value) -> Result<Value, String> {
        let facts: MessageFacts =
            serde_json::from_value(params).map_err(|error| format!("the facts of a message are invalid: {error}"))?;
        let receiver = self.receiver(&facts.account)?;
        let incoming = facts.into_incoming(Ambient::system().now_ms())?;
        let (answer, stored) = oneshot::channel();
        let is_gone = || "the account stopped receiving".to_owned();
        receiver.send(HostEvent::Message(Box::new(incoming), answer)).await.map_err(|_closed| is_gone())?;
        stored.await.map_err(|_closed| is_gone())??;
        Ok(json!({}))
    }

    fn report(&self, params: &Value) -> Option<()> {
        let account = params["account"].as_str()?;
        let generation = params["generation"].as_u64()?;
        let why = params["why"].as_str().unwrap_or("the package gave no reason").to_owned();
        let state = match params["state"].as_str()? {
            "up" => AccountState::Up,
            "down" => AccountState::Down(why),
            "ended" => AccountState::Ended(why),
            _ => return None,
        };
        let receiver = self.receiver(account).ok()?;
        if let Err(error) = receiver.try_send(HostEvent::State { generation, state }) {
            tracing::debug!(account, %error, "a state of an account was not reported");
        }
        Some(())
    }
}

#[derive(Deserialize)]
struct AccountParams {
    account: String,
}

#[derive(Deserialize)]
struct WriteParams {
    account: String,
    rows: Vec<Value>,
    removed: Vec<String>,
}

fn parse<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, String> {
    serde_json::from_value(params).map_err(|error| error.to_string())
}

#[async_trait]
impl Host for HostShared {
    fn serves(&self, method: &str) -> bool {
        matches!(method, "ingress.load" | "ingress.write" | "inbound")
    }

    async fn serve(&self, method: &str, params: Value) -> Result<Value, String> {
        match method {
            "ingress.load" => {
                let store = self.store(&parse::<AccountParams>(params)?.account)?;
                Ok(json!({"rows": store.rows()}))
            }
            "ingress.write" => {
                let WriteParams { account, rows, removed } = parse(params)?;
                let store = self.store(&account)?;
                let written = spawn_blocking(move || store.write(rows, removed)).await;
                written.map_err(|error| error.to_string())??;
                Ok(json!({}))
            }
            "inbound" => self.accept(params).await,
            _ => Err(format!("unknown method {method:?}")),
        }
    }

    fn notified(&self, method: &str, params: &Value) -> bool {
        match method {
            "account.status" => self.report(params).is_some(),
            "routes" => match Vec::<HostRoute>::deserialize(&params["routes"]) {
                Ok(routes) => {
                    *self.routes.lock() = routes.into_iter().take(100).collect();
                    true
                }
                Err(_) => false,
            },
            _ => false,
        }
    }
}

#[async_trait]
impl Program for HostShared {
    fn name(&self) -> String {
        format!("channel host {}", self.settings.package.name)
    }

    async fn command(&self) -> Result<ProgramCommand, String> {
        self.settings.command("host.mjs").await
    }

    fn init_params(&self) -> Value {
        self.settings.init_params()
    }

    fn initialised(&self, answer: Value) {
        match PackageTraits::deserialize(answer) {
            Ok(traits) => *self.traits.lock() = traits,
            Err(error) => {
                tracing::warn!(channel = self.settings.package.name, %error, "the package reported invalid traits")
            }
        }
        self.routes.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::package;

    #[test]
    fn the_process_gets_only_the_variables_of_its_channel() {
        let env = [
            ("PATH", "/bin"),
            ("MATRIX_ACCESS_TOKEN", "m"),
            ("OPENCLAW_MATRIX_X", "x"),
            ("MATRIXED", "no"),
            ("ANTHROPIC_API_KEY", "secret"),
            ("OPENCLAW_GATEWAY_TOKEN", "secret"),
            ("TELEGRAM_BOT_TOKEN", "secret"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let settings = HostSettings::new(*package("matrix").unwrap(), Path::new("/state/channels"), env);
        let names: Vec<_> = settings.environment().into_keys().collect();
        assert_eq!(names, ["MATRIX_ACCESS_TOKEN", "OPENCLAW_MATRIX_X", "OPENCLAW_STATE_DIR", "PATH"]);
    }

    #[test]
    fn packages_that_are_missing_or_do_not_fit_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let settings = HostSettings::new(*package("matrix").unwrap(), home.path(), BTreeMap::new());
        assert!(settings.check_packages().unwrap_err().contains("homard channels add matrix"));
        let install = |name: &str, version: &str| {
            let dir = settings.packages.join("node_modules").join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("package.json"), json!({"version": version}).to_string()).unwrap();
        };
        install("openclaw", "2026.9.6");
        install("@openclaw/matrix", "2026.9.6");
        assert_eq!(settings.check_packages(), Ok(()));
        install("openclaw", "2025.1.1");
        assert!(settings.check_packages().unwrap_err().contains("openclaw 2025.1.1 is installed"));
    }
}
