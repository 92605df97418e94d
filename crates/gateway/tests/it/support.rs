//! Test support: a gateway with a scripted model, and a client.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ed25519_dalek::{Signer, SigningKey};
use futures_util::{SinkExt, StreamExt, stream};
use homard_agent::{
    Agents, FencedStore, Hub, HubRules, Profile,
    access::ToolRules,
    tool::{Tool, ToolCx, ToolResult, Toolbox},
};
use homard_gateway::{Gateway, Secret, Settings, bind};
use homard_model::{
    EventStream, Model, ModelEvent, ModelSpec, Request, ToolSpec, candidates::Candidates, stream::AnswerEnd,
};
use homard_proto::{
    AgentId, RunId, SessionId, SessionKey,
    message::{StopReason, Usage},
    session::Record,
    transcript::Entry,
};
use homard_queue::Slots;
use homard_runtime::{Ambient, task};
use homard_schedule::{
    self as schedule, Schedule,
    heartbeat::{HeartbeatConfig, HeartbeatFile},
    store::MemoryJobStore,
};
use homard_store::{
    DeliveryRow, Error as StoreError, Fence, MemoryStore, Rec, RunQuery, RunRow, Session, Store, StoreReader,
    StoreWriter, ToolClass, UnfinishedRun, Verdict,
    usage::{UsageQuery, UsageSum},
};
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Error as WsError, Message, client::IntoClientRequest, http::HeaderValue, protocol::WebSocketConfig},
};
use tokio_util::sync::CancellationToken;

use crate::record::ConnectionRecord;

pub(crate) const TOKEN: &str = "the-shared-token";

/// Timeout for everything a test waits for, so that it fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The model's n-th answer.
pub(crate) type Script = Arc<dyn Fn(usize) -> EventStream + Send + Sync>;

struct GatewayTestModel {
    spec: ModelSpec,
    script: Script,
    answers: AtomicUsize,
    message_counts: Arc<Mutex<Vec<usize>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Model for GatewayTestModel {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        self.message_counts.lock().unwrap().push(request.messages.len());
        self.requests.lock().unwrap().push(request);
        (self.script)(self.answers.fetch_add(1, Ordering::SeqCst))
    }
}

pub(crate) fn done(stop: StopReason) -> ModelEvent {
    ModelEvent::Done(AnswerEnd { stop, usage: Usage { input: 100, output: 5, ..Usage::default() } })
}

/// Every answer consists of these texts.
pub(crate) fn says(texts: &'static [&'static str]) -> Script {
    Arc::new(move |_| {
        let texts = texts.iter().map(|&text| ModelEvent::Text(text.to_owned()));
        stream::iter(texts.chain([done(StopReason::Stop)])).boxed()
    })
}

/// Streams a text, waits for a permit, streams the rest.
pub(crate) fn waits(gate: &Arc<Semaphore>) -> Script {
    let gate = gate.clone();
    Arc::new(move |_| {
        let gate = gate.clone();
        let rest = stream::once(async move {
            gate.acquire().await.unwrap().forget();
            ModelEvent::Text(" world".to_owned())
        });
        let first = stream::iter([ModelEvent::Text("hello".to_owned())]);
        first.chain(rest).chain(stream::iter([done(StopReason::Stop)])).boxed()
    })
}

/// A tool that returns its arguments, with this name and class. `fail` and `panic` in the arguments cause errors. The
/// one named `gate` waits for a permit first.
struct EchoTool(&'static str, ToolClass, Arc<Semaphore>);

#[async_trait]
impl Tool for EchoTool {
    fn spec(&self) -> ToolSpec {
        // This one accepts integers only.
        let parameters = match self.0 {
            "count" => json!({"type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]}),
            _ => json!({}),
        };
        ToolSpec { name: self.0.to_owned(), description: "says it again".to_owned(), parameters }
    }

    fn class(&self) -> ToolClass {
        self.1
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        if self.0 == "gate" {
            self.2.acquire().await.unwrap().forget();
        }
        cx.progress.report(ToolResult::text("half"));
        // Gives the run time to read the progress; an available result would take precedence.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(arguments["panic"] != true, "as it was told");
        match arguments["fail"].as_str() {
            Some(why) => ToolResult::error(why),
            None => ToolResult::text(arguments.to_string()),
        }
    }
}

/// Hook that can reject a batch before it is stored.
pub(crate) type BatchCheck = fn(&[Rec]) -> Result<(), StoreError>;

/// A memory store with injected errors and changed verdicts.
pub(crate) struct FaultyMemoryStore {
    pub(crate) store: MemoryStore,
    pub(crate) before: BatchCheck,
    pub(crate) after: fn(Verdict) -> Verdict,
    /// Every batch waits for a permit.
    pub(crate) gate: Arc<Semaphore>,
    /// Every read of a transcript waits for a permit.
    pub(crate) reads: Arc<Semaphore>,
    /// Number of transcript reads that fail.
    pub(crate) failing_reads: Arc<AtomicUsize>,
}

impl Default for FaultyMemoryStore {
    fn default() -> Self {
        Self {
            store: MemoryStore::default(),
            before: |_| Ok(()),
            after: |verdict| verdict,
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            reads: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            failing_reads: Arc::default(),
        }
    }
}

#[async_trait]
impl StoreWriter for FaultyMemoryStore {
    async fn commit(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, StoreError> {
        self.gate.acquire().await.unwrap().forget();
        (self.before)(&batch)?;
        Ok(self.store.commit(fence, batch).await?.into_iter().map(self.after).collect())
    }
}

#[async_trait]
impl StoreReader for FaultyMemoryStore {
    async fn load(&self, key: &SessionKey) -> Result<Option<Session>, StoreError> {
        self.reads.acquire().await.unwrap().forget();
        self.store.load(key).await
    }

    async fn live_transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Vec<Entry>, StoreError> {
        self.store.live_transcript(key, session).await
    }

    async fn transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Option<Vec<Entry>>, StoreError> {
        self.reads.acquire().await.unwrap().forget();
        if self
            .failing_reads
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |remaining| remaining.checked_sub(1))
            .is_ok()
        {
            return Err(StoreError::Disk("as it was told".to_owned()));
        }
        self.store.transcript(key, session).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        self.store.run(run).await
    }

    async fn record(&self, key: &SessionKey) -> Result<Option<Arc<Record>>, StoreError> {
        self.store.record(key).await
    }

    async fn list(&self) -> Result<Vec<(SessionKey, Arc<Record>)>, StoreError> {
        self.store.list().await
    }

    async fn find(&self, session: &SessionId) -> Result<Option<SessionKey>, StoreError> {
        self.store.find(session).await
    }

    async fn recover(&self) -> Result<Vec<UnfinishedRun>, StoreError> {
        self.store.recover().await
    }

    async fn outbox(&self) -> Result<Vec<DeliveryRow>, StoreError> {
        self.store.outbox().await
    }

    async fn delivery(&self, id: &str) -> Result<Option<DeliveryRow>, StoreError> {
        self.store.delivery(id).await
    }

    async fn runs(&self, query: &RunQuery) -> Result<Vec<RunRow>, StoreError> {
        self.store.runs(query).await
    }

    async fn find_run(&self, name: &str) -> Result<Option<RunId>, StoreError> {
        self.store.find_run(name).await
    }

    async fn deliveries_of(&self, run: &RunId) -> Result<Vec<DeliveryRow>, StoreError> {
        self.store.deliveries_of(run).await
    }

    async fn usage(&self, period: &UsageQuery) -> Result<Vec<UsageSum>, StoreError> {
        self.store.usage(period).await
    }
}

/// The gateway's settings and the tools of its agent.
struct TestHost<'a> {
    settings: Settings,
    tools: &'a [(&'static str, ToolClass)],
}

/// A running gateway.
pub(crate) struct TestGateway {
    pub(crate) address: SocketAddr,
    pub(crate) hub: Hub,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinHandle<()>,
    /// Number of messages in each model request.
    pub(crate) message_counts: Arc<Mutex<Vec<usize>>>,
    /// The model requests.
    pub(crate) requests: Arc<Mutex<Vec<Request>>>,
    /// The tool `gate` returns once per permit.
    pub(crate) gate: Arc<Semaphore>,
}

impl TestGateway {
    pub(crate) async fn new(script: Script) -> Self {
        Self::with_store(Arc::new(MemoryStore::default()), script).await
    }

    pub(crate) async fn with_store(store: Arc<dyn Store>, script: Script) -> Self {
        Self::with_rules(store, script, HubRules::default()).await
    }

    pub(crate) async fn with_rules(store: Arc<dyn Store>, script: Script, rules: HubRules) -> Self {
        Self::build(store, script, rules, |gateway| gateway).await
    }

    /// A gateway that answers "hi" and is configured by `change`.
    pub(crate) async fn with(change: impl FnOnce(Gateway) -> Gateway) -> Self {
        Self::build(Arc::new(MemoryStore::default()), says(&["hi"]), HubRules::default(), change).await
    }

    pub(crate) async fn build(
        store: Arc<dyn Store>,
        script: Script,
        rules: HubRules,
        change: impl FnOnce(Gateway) -> Gateway,
    ) -> Self {
        Self::with_tools(store, script, rules, &[("echo", ToolClass::Read)], change).await
    }

    /// With an agent that has these echo tools.
    pub(crate) async fn with_tools(
        store: Arc<dyn Store>,
        script: Script,
        rules: HubRules,
        tools: &[(&'static str, ToolClass)],
        change: impl FnOnce(Gateway) -> Gateway,
    ) -> Self {
        let local_settings = settings(SocketAddr::from(([127, 0, 0, 1], 0)));
        Self::start(TestHost { settings: local_settings, tools }, store, script, rules, change).await
    }

    /// With these settings.
    pub(crate) async fn with_settings(
        settings: Settings,
        store: Arc<dyn Store>,
        script: Script,
        rules: HubRules,
        change: impl FnOnce(Gateway) -> Gateway,
    ) -> Self {
        Self::start(TestHost { settings, tools: &[] }, store, script, rules, change).await
    }

    async fn start(
        TestHost { settings, tools }: TestHost<'_>,
        store: Arc<dyn Store>,
        script: Script,
        rules: HubRules,
        change: impl FnOnce(Gateway) -> Gateway,
    ) -> Self {
        let spec = ModelSpec {
            provider: "test".to_owned(),
            model: "scripted".to_owned(),
            api: "none".to_owned(),
            context_window: 100_000,
            max_output: 1000,
            ..ModelSpec::default()
        };
        let message_counts: Arc<Mutex<Vec<usize>>> = Arc::default();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let model = GatewayTestModel {
            spec,
            script,
            answers: AtomicUsize::new(0),
            message_counts: message_counts.clone(),
            requests: requests.clone(),
        };
        let gate = Arc::new(Semaphore::new(0));
        let tool = |&(name, class): &_| Arc::new(EchoTool(name, class, gate.clone())) as Arc<dyn Tool>;
        let profile = Profile {
            toolbox: Toolbox::new(tools.iter().map(tool)),
            rules: Some(ToolRules::default()),
            timeout: Some(Duration::from_secs(60)),
            ..Profile::new(AgentId::main(), Candidates::single(Arc::new(model)))
        };
        let agents = Agents::new(profile, []);
        let (store, slots) = (FencedStore::new(store, Fence::default()), Slots::new(4, 4, 1));
        let (hub, feed) = Hub::start(Ambient::system(), store, agents, slots, rules);
        let gateway = bind(settings).await.unwrap();
        let address = gateway.local_addrs()[0];
        let stop = CancellationToken::new();
        let schedule_settings = schedule::ScheduleSettings {
            is_enabled: true,
            zone: TimeZone::UTC,
            heartbeats: vec![HeartbeatConfig::of(AgentId::main())],
            file: HeartbeatFile::new(|_| None),
        };
        let job_store = Arc::new(MemoryJobStore::default());
        let (schedule, _) = Schedule::start(&hub, job_store, schedule_settings, stop.clone()).await.unwrap();
        let gateway = change(gateway.with_schedule(Ok(schedule)));
        let serving = task::spawn("gateway", gateway.serve(hub.clone(), feed, stop.clone()));
        Self { address, hub, stop, serving, message_counts, requests, gate }
    }

    /// Opens a connection and returns it with its challenge.
    pub(crate) async fn open(&self) -> (TestClient, Value) {
        let mut socket = TestClient::open(self.address, &[]).await.unwrap();
        let challenge = socket.next().await;
        assert_eq!(challenge["event"], "connect.challenge");
        (socket, challenge["payload"].clone())
    }

    /// Opens a connection and completes the handshake.
    pub(crate) async fn client(&self, protocol: u64, change: Value) -> TestClient {
        let (mut socket, _) = self.open().await;
        let mut params = connect(protocol);
        for (name, value) in change.as_object().unwrap() {
            params[name] = value.clone();
        }
        let hello = socket.ask("hello", "connect", params).await;
        assert_eq!(hello["payload"]["type"], "hello-ok", "{hello}");
        let health = socket.next().await;
        assert_eq!((&health["event"], &health["seq"]), (&json!("health"), &json!(1)));
        socket
    }
}

pub(crate) fn settings(address: SocketAddr) -> Settings {
    Settings {
        bind: vec![address],
        secret: Secret::new(Some(TOKEN.to_owned()), None),
        allowed_origins: vec!["https://desk.example".to_owned()],
        trusted_proxies: vec![Ipv4Addr::new(127, 0, 0, 9).into()],
        tls: None,
        allow_insecure: false,
        state_dir: PathBuf::from("/state"),
        config_path: None,
    }
}

/// Valid `connect` parameters without a device.
pub(crate) fn connect(protocol: u64) -> Value {
    json!({
        "minProtocol": protocol, "maxProtocol": protocol, "role": "operator", "caps": ["tool-events"],
        "client": {"id": "gateway-client", "mode": "backend", "version": "1", "platform": "linux"},
        "scopes": ["operator.admin", "operator.read", "operator.write"], "auth": {"token": TOKEN},
    })
}

/// Client side of a WebSocket.
pub(crate) struct TestClient(WebSocketStream<TcpStream>, ConnectionRecord);

impl TestClient {
    /// Connects with these headers; an HTTP response instead of an upgrade is returned as its status.
    pub(crate) async fn open(address: SocketAddr, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        Self::open_from(Ipv4Addr::LOCALHOST, address, headers).await
    }

    /// Connects to this path.
    pub(crate) async fn open_at(address: SocketAddr, path: &str) -> Result<Self, u16> {
        Self::upgrade(Ipv4Addr::LOCALHOST, address, path, &[]).await
    }

    /// Like [`open`](Self::open), from another address of this machine.
    pub(crate) async fn open_from(
        from: Ipv4Addr,
        address: SocketAddr,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        Self::upgrade(from, address, "/", headers).await
    }

    async fn upgrade(
        from: Ipv4Addr,
        address: SocketAddr,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let stream = socket.connect(address).await.unwrap();
        let config = WebSocketConfig::default().max_frame_size(None).max_message_size(None);
        let handshake = client_async_with_config(request, stream, Some(config));
        match timeout(PATIENCE, handshake).await.unwrap() {
            Ok((socket, response)) => {
                assert!(response.headers().get("sec-websocket-extensions").is_none());
                Ok(Self(socket, ConnectionRecord::default()))
            }
            Err(WsError::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.0.send(Message::Text(text.into())).await.unwrap();
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.send(Message::Binary(bytes.to_vec().into())).await.unwrap();
    }

    pub(crate) async fn send(&mut self, id: &str, method: &str, params: Value) {
        self.1.record_request(id, method);
        self.send_text(&json!({"type": "req", "id": id, "method": method, "params": params}).to_string()).await;
    }

    /// Sends a request and returns its first response; other frames are skipped.
    pub(crate) async fn ask(&mut self, id: &str, method: &str, params: Value) -> Value {
        self.send(id, method, params).await;
        self.answer(id).await
    }

    /// Returns the next response to a request; other frames are skipped.
    pub(crate) async fn answer(&mut self, id: &str) -> Value {
        loop {
            let frame = self.next().await;
            if frame["type"] == "res" && frame["id"] == id {
                return frame;
            }
        }
    }

    /// Returns the next frame.
    pub(crate) async fn next(&mut self) -> Value {
        match self.read().await {
            Some(Message::Text(text)) => serde_json::from_str(&text).unwrap(),
            other => panic!("expected a frame, got {other:?}"),
        }
    }

    /// Returns the frames up to the close, and its code and reason.
    pub(crate) async fn read_to_close(&mut self) -> (Vec<Value>, Option<(u16, String)>) {
        let mut frames = Vec::new();
        loop {
            match self.read().await {
                Some(Message::Text(text)) => frames.push(serde_json::from_str(&text).unwrap()),
                Some(Message::Close(close)) => {
                    let close = close.unwrap();
                    return (frames, Some((close.code.into(), close.reason.to_string())));
                }
                None => return (frames, None),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Returns the next message other than a ping; `None` when the connection is lost.
    async fn read(&mut self) -> Option<Message> {
        loop {
            match timeout(PATIENCE, self.0.next()).await.expect("nothing was heard for too long") {
                Some(Ok(Message::Ping(_))) => {}
                Some(Ok(message)) => {
                    self.1.record_frame(&message);
                    return Some(message);
                }
                Some(Err(_)) | None => return None,
            }
        }
    }
}

/// Signing key of the test's device.
pub(crate) fn device() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

/// Adds the device's signature over the parameters; `version` is `v1`, `v2` or `v3`.
pub(crate) fn sign(params: &mut Value, version: &str, nonce: &str, signed_at: u64) {
    let key = device().verifying_key().to_bytes();
    let id = hex::encode(Sha256::digest(key));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let scopes: Vec<_> = params["scopes"].as_array().unwrap().iter().map(text).collect();
    let mut parts =
        vec![version.to_owned(), id.clone(), text(&params["client"]["id"]), text(&params["client"]["mode"])];
    let secret = params["auth"].get("token").unwrap_or(&params["auth"]["bootstrapToken"]);
    parts.extend([text(&params["role"]), scopes.join(","), signed_at.to_string(), text(secret)]);
    if version != "v1" {
        parts.push(nonce.to_owned());
    }
    if version == "v3" {
        parts.extend([text(&params["client"]["platform"]), text(&params["client"]["deviceFamily"])]);
    }
    let signature = device().sign(parts.join("|").as_bytes());
    params["device"] = json!({
        "id": id, "publicKey": BASE64_URL_SAFE_NO_PAD.encode(key), "signedAt": signed_at,
        "signature": BASE64_URL_SAFE_NO_PAD.encode(signature.to_bytes()),
    });
    if version != "v1" {
        params["device"]["nonce"] = nonce.into();
    }
}
