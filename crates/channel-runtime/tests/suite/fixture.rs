//! A gateway in this process, with one channel, a double of its platform, and a scripted model.
//!
//! The gateway is the real one, with a journal in a temporary directory, and has a runtime of its own: killing it drops
//! that runtime, so that all tasks end where they are. What is on disk then is copied, and the next gateway starts with the
//! copy, because the lock of a state directory is released only with the process.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use homard_agent::hub::CrashLoops;
use homard_app::{
    App, Purpose,
    gateway::{self, GatewayOptions},
};
use homard_client::{ConnectResult, Error, GatewayClient, GatewayTarget};
use homard_credentials::gateway_secret::GatewaySecret;
use homard_gateway::LogBuffer;
use homard_settings::{Config, paths::Paths};
use homard_testkit::{
    FakeProvider,
    channel_double::{ChannelDouble, Feature, Place, SeenMessage, User, UserMessage},
    fake_provider::{ProviderReply, ReceivedRequest, dialect::WireFormat},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    sync::{Mutex, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// How long a condition may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a killed gateway may take to drop its tasks: those that are writing to the disk finish.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);
/// The shared secret of the gateway.
const TOKEN: &str = "a token of the suite";

/// A platform, a model, and a directory for gateways.
pub(crate) struct SuiteFixture {
    pub(crate) platform: Arc<dyn ChannelDouble>,
    pub(crate) model: FakeProvider,
    folder: TempDir,
    /// Number of the state directory: each gateway has its own.
    generation: u32,
}

/// Waits for a future with a timeout.
async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// Repeats the text of a message.
pub(crate) fn echo(request: &ReceivedRequest) -> ProviderReply {
    ProviderReply::text(format!("echo {}", request.last_message()))
}

impl SuiteFixture {
    /// Creates a fixture whose owner and friend may write, in the group without a mention, with a model that repeats its
    /// input.
    pub(crate) async fn new(platform: Arc<dyn ChannelDouble>) -> Self {
        Self::with(platform, json!({}), echo).await
    }

    /// Same as `new`, with these members of the channel's section, and a model that answers by `reply`.
    pub(crate) async fn with(
        platform: Arc<dyn ChannelDouble>,
        extra: Value,
        reply: impl FnMut(&ReceivedRequest) -> ProviderReply + Send + 'static,
    ) -> Self {
        let mut account = platform.account();
        let permitted: Vec<_> = [User::Owner, User::Friend].map(|user| platform.user_id(user)).into();
        merge(&mut account, json!({"allowFrom": permitted}));
        if !platform.missing().iter().any(|(missing, _)| *missing == Feature::Groups) {
            merge(&mut account, platform.group_config(false));
        }
        merge(&mut account, extra);
        let owner = format!("{}/default:{}", platform.channel(), platform.user_id(User::Owner));
        let model = FakeProvider::start(reply).await.unwrap();
        let config = json!({
            "channels": {platform.channel(): account},
            "commands": {"ownerAllowFrom": [owner]},
            "models": {"providers": {"puppet": {
                "baseUrl": model.base_url(WireFormat::Chat), "apiKey": "none", "api": "openai-completions",
                "models": [{"id": "m", "input": ["text", "image"], "contextWindow": 100_000, "maxTokens": 4_096}],
            }}},
            "agents": {"defaults": {"model": "puppet/m"}},
        });
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("homard.json"), config.to_string()).unwrap();
        Self { platform, model, folder, generation: 0 }
    }

    /// Returns the state directory of the next gateway, or of the running one.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join(format!("state{}", self.generation))
    }

    /// Starts a gateway and waits until it serves.
    pub(crate) async fn gateway(&self) -> SuiteGateway {
        let paths = Paths { state: self.state(), config: self.folder.path().join("homard.json") };
        let gateway = SuiteGateway::start(paths).await;
        self.platform.gateway_started(gateway.address);
        gateway
    }

    /// Kills a gateway: nothing is finished. The next one starts with what is on disk.
    pub(crate) async fn kill(&mut self, gateway: SuiteGateway) {
        self.end(gateway, Ending::Kill).await;
    }

    /// Stops a gateway in an orderly way.
    pub(crate) async fn stop(&mut self, gateway: SuiteGateway) {
        self.end(gateway, Ending::Stop).await;
    }

    async fn end(&mut self, gateway: SuiteGateway, ending: Ending) {
        gateway.end(ending).await;
        let ended = self.state();
        self.generation += 1;
        copy(&ended, &self.state());
    }

    /// A user sends a message. Returns its id.
    pub(crate) fn post(&self, message: &UserMessage) -> String {
        self.platform.post(message)
    }

    /// The owner sends a direct message. Returns its id.
    pub(crate) fn say(&self, text: &str) -> String {
        self.post(&UserMessage::direct(User::Owner, text))
    }

    /// Waits until a condition of the platform holds.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&dyn ChannelDouble) -> bool) {
        let mut changes = self.platform.changes();
        let waiting = async {
            while !condition(self.platform.as_ref()) {
                changes.changed().await.unwrap();
            }
        };
        let result = timeout(PATIENCE, waiting).await;
        assert!(result.is_ok(), "{what}: not within {PATIENCE:?}; seen: {:#?}", self.platform.seen());
    }

    /// Waits until this many messages of the account are seen, and returns their texts.
    pub(crate) async fn texts(&self, count: usize) -> Vec<String> {
        self.until(&format!("{count} messages"), |platform| platform.seen().len() >= count).await;
        self.platform.seen().into_iter().map(|message| message.text).collect()
    }

    /// Waits until this many messages of the account are seen, and returns the last one.
    pub(crate) async fn last(&self, count: usize) -> SeenMessage {
        self.until(&format!("{count} messages"), |platform| platform.seen().len() >= count).await;
        self.platform.seen().pop().unwrap()
    }

    /// Waits until the model was asked this many times.
    pub(crate) async fn until_asked(&self, count: usize) {
        let asked = async {
            while self.model.requests().len() < count {
                tokio::task::yield_now().await;
            }
        };
        within(&format!("{count} requests to the model"), asked).await;
    }

    /// Returns the id of the owner's direct chat.
    pub(crate) fn owner_chat(&self) -> String {
        self.platform.chat_id(Place::Direct, User::Owner)
    }
}

impl Drop for SuiteFixture {
    fn drop(&mut self) {
        if !thread::panicking() {
            assert_eq!(
                self.platform.violations(),
                Vec::<String>::new(),
                "requests that the platform does not document"
            );
            assert_eq!(self.model.complaints(), Vec::<String>::new());
        }
    }
}

/// Adds the members of an object to another one.
fn merge(object: &mut Value, members: Value) {
    let Value::Object(members) = members else { panic!("{members} is not an object") };
    object.as_object_mut().unwrap().extend(members);
}

/// Copies a directory. What is not a file or a directory, such as a socket, is left out.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, target) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_file() {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// How a gateway ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Stop,
    Kill,
}

/// A running gateway.
pub(crate) struct SuiteGateway {
    pub(crate) address: SocketAddr,
    client: Mutex<GatewayClient>,
    end: Option<oneshot::Sender<Ending>>,
    thread: Option<JoinHandle<()>>,
}

impl SuiteGateway {
    async fn start(paths: Paths) -> Self {
        // Fails only if a provider was already installed.
        rustls::crypto::ring::default_provider().install_default().ok();
        let (ready, address) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let thread = thread::spawn(move || run(&paths, ready, ended));
        let address = within("a gateway", address).await.unwrap();
        let secret = Some(GatewaySecret::Token(TOKEN.to_owned()));
        let target = GatewayTarget { url: format!("ws://{address}"), secret, pin: None, is_own: false, is_down: false };
        let scopes = ["operator.read", "operator.write", "operator.admin", "operator.pairing"];
        let ConnectResult::Gateway(client) = GatewayClient::connect(&target, &scopes, &[]).await.unwrap() else {
            panic!("no gateway listens at {address}");
        };
        Self { address, client: Mutex::new(*client), end: Some(end), thread: Some(thread) }
    }

    /// Calls a method.
    pub(crate) async fn try_call(&self, method: &str, params: Value) -> Result<Value, Error> {
        within(method, self.client.lock().await.call(method, params)).await
    }

    /// Calls a method that succeeds.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        self.try_call(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Calls a method until its result satisfies a condition, and returns that result.
    pub(crate) async fn call_until(&self, method: &str, params: Value, condition: impl Fn(&Value) -> bool) -> Value {
        let start = tokio::time::Instant::now();
        loop {
            let result = self.call(method, params.clone()).await;
            if condition(&result) {
                return result;
            }
            assert!(start.elapsed() < PATIENCE, "{method}: not within {PATIENCE:?}: {result:#}");
        }
    }

    /// Returns the row of the channel's only account.
    pub(crate) async fn status_until(&self, channel: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let row = |status: &Value| status["channelAccounts"][channel][0].clone();
        let status = self.call_until("channels.status", json!({}), |status| condition(&row(status))).await;
        row(&status)
    }

    async fn end(mut self, ending: Ending) {
        self.end.take().unwrap().send(ending).unwrap();
        let thread = self.thread.take().unwrap();
        tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
    }
}

impl Drop for SuiteGateway {
    fn drop(&mut self) {
        // At the end of a case, in whatever way it ended; the thread ends by itself.
        if let Some(end) = self.end.take() {
            end.send(Ending::Kill).ok();
        }
    }
}

/// Runs a gateway in a runtime of its own.
fn run(paths: &Paths, ready: oneshot::Sender<SocketAddr>, ended: oneshot::Receiver<Ending>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let serving = serve(paths, stop.clone(), ready);
        tokio::pin!(serving);
        let ending = tokio::select! {
            () = &mut serving => panic!("the gateway ended"),
            ending = ended => ending.unwrap_or(Ending::Kill),
        };
        if ending == Ending::Stop {
            stop.cancel();
            serving.await;
        }
    });
    runtime.shutdown_timeout(KILL_TIMEOUT);
}

async fn serve(paths: &Paths, stop: CancellationToken, ready: oneshot::Sender<SocketAddr>) {
    let chosen = Config::choose(paths).unwrap();
    let (app, feed) = App::open(&chosen, paths, Purpose::Gateway).unwrap();
    let options = GatewayOptions {
        addresses: vec![([127, 0, 0, 1], 0).into()],
        tls: None,
        secret: GatewaySecret::Token(TOKEN.to_owned()),
        control_ui: None,
        // A case may kill the same run several times.
        crash_loops: CrashLoops::Resume,
        log: LogBuffer::default(),
        inherited: Vec::new(),
        handover: None,
    };
    let gateway = gateway::start(&app, &chosen, paths, options, stop).await.unwrap();
    ready.send(gateway.local_addrs()[0]).unwrap();
    gateway.serve(&app, feed).await.unwrap();
    app.close().await.unwrap();
}
