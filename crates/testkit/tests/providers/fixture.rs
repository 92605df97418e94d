//! A hub with an in-memory store and models behind real HTTP.

use std::{collections::HashSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_agent::{
    Agents, FencedStore, Hub, HubRules, Outcome, Profile, RequestEvent, RunEvent, StoredEvent, Subscriber, TapeEvent,
    hub::{AcceptedRun, SubmitOutcome},
    intake,
    profile::RetrySettings,
    tool::{Tool, ToolCx, ToolResult, Toolbox},
};
use homard_model::{
    ModelSpec, ReasoningLevel, ToolSpec,
    candidates::{Candidate, CandidateRank, Candidates, Credential, CredentialOrder},
    profile_health::HealthTracker,
    retry::RetryLimits,
};
use homard_proto::{
    AgentId, SessionKey,
    message::{Block, ImageBlock},
};
use homard_providers::{Credentials, HttpClient, ModelTarget, RemoteModel, Secret};
use homard_queue::Slots;
use homard_runtime::Ambient;
use homard_store::{Fence, MemoryStore, ToolClass};
use homard_testkit::{FakeProvider, fake_provider::dialect::WireFormat};
use serde_json::{Value, json};

/// Idle timeout for a model that must not time out.
pub(crate) const LONG_IDLE: Duration = Duration::from_secs(20);
/// Idle timeout for a model that will time out.
pub(crate) const SHORT_IDLE: Duration = Duration::from_millis(100);
/// Retry limits that are short enough for a test.
pub(crate) const LIMITS: RetryLimits = RetryLimits {
    rate_limits: 3,
    retries: 2,
    total: Duration::from_secs(90),
    initial_delay: Duration::from_millis(1),
    max_delay: Duration::from_secs(60),
    max_delay_if_ready: Duration::from_secs(8),
};

/// Returns a model of the fake provider with a wire format.
pub(crate) fn target(fake: &FakeProvider, dialect: WireFormat, idle: Duration) -> ModelTarget {
    let spec = ModelSpec {
        provider: format!("fake-{dialect:?}").to_lowercase(),
        model: "m-1".to_owned(),
        api: dialect.api().to_owned(),
        max_output: 8_192,
        thinking: vec![ReasoningLevel::Low, ReasoningLevel::High],
        accepts_images: true,
        idle_timeout: idle,
        ..ModelSpec::default()
    };
    ModelTarget {
        auth: Some(Credentials::Key(Secret::from("sk-fake"))),
        ..ModelTarget::new(spec, fake.base_url(dialect))
    }
}

/// Returns the candidates, each with a key of its own, and their health records.
pub(crate) fn candidates(fake: &FakeProvider, models: &[(WireFormat, Duration)]) -> (Candidates, Arc<HealthTracker>) {
    let client = HttpClient::default();
    let rank = |(dialect, idle): &(WireFormat, Duration)| {
        let model = Arc::new(RemoteModel::new(target(fake, *dialect, *idle), &client).unwrap());
        let profile = profile(*dialect).into();
        CandidateRank {
            candidates: vec![Candidate { model, profile, credential: Credential::ApiKey }],
            order: CredentialOrder::Configured,
        }
    };
    let health = Arc::new(HealthTracker::default());
    (Candidates::new(models.iter().map(rank).collect(), health.clone()).unwrap(), health)
}

pub(crate) fn profile(dialect: WireFormat) -> String {
    format!("{dialect:?}:default")
}

/// A hub with one agent, and one session.
pub(crate) struct ProviderFixture {
    pub(crate) hub: Hub,
    pub(crate) key: SessionKey,
}

impl ProviderFixture {
    pub(crate) fn new(candidates: Candidates) -> Self {
        let profile = Profile {
            retry: RetrySettings { limits: LIMITS, ..RetrySettings::default() },
            toolbox: toolbox(),
            ..Profile::new(AgentId::main(), candidates)
        };
        let store = Arc::new(MemoryStore::default());
        let agents = Agents::new(profile, []);
        let (hub, _) = Hub::start(
            Ambient::system(),
            FencedStore::new(store, Fence::default()),
            agents,
            Slots::new(4, 4, 4),
            HubRules::default(),
        );
        Self { hub, key: AgentId::main().main_session() }
    }

    /// Sends a message and returns a subscriber of its run.
    pub(crate) async fn submit(&self, run: &str, message: &str) -> Subscriber {
        let params: Value = json!({"message": message, "idempotencyKey": run, "sessionKey": self.key.to_string()});
        let inbound = intake::agent(&self.hub, "owner", serde_json::from_value(params).unwrap()).await.unwrap();
        let AcceptedRun { outcome: SubmitOutcome::New(tape), .. } = self.hub.submit(inbound).await.unwrap() else {
            panic!("{run} is not new");
        };
        Subscriber::new(tape)
    }

    /// Sends a message and returns all events of its run.
    pub(crate) async fn send(&self, run: &str, message: &str) -> Vec<TapeEvent> {
        let mut subscriber = self.submit(run, message).await;
        let mut events = Vec::new();
        while let Some(batch) = subscriber.next().await {
            events.extend(batch);
        }
        events
    }
}

/// Returns the outcome of a run; asserts that it ended exactly once and last.
pub(crate) fn outcome(events: &[TapeEvent]) -> Outcome {
    let ends = |event: &&TapeEvent| matches!(event.kind, RunEvent::Stored(StoredEvent::Ended(_)));
    assert_eq!(events.iter().filter(ends).count(), 1, "{events:#?}");
    let Some(TapeEvent { kind: RunEvent::Stored(StoredEvent::Ended(end)), .. }) = events.last() else {
        panic!("it goes on after its end")
    };
    end.outcome.clone()
}

/// Returns the text that a client finally shows, one for each answer. Asserts that it is what was stored, and that no
/// word occurs twice: all words of a test are unique.
pub(crate) fn client_texts(events: &[TapeEvent]) -> Vec<String> {
    let (mut texts, mut now) = (Vec::new(), String::new());
    for event in events {
        if let RunEvent::Text { delta, .. } = &event.kind {
            now.push_str(delta);
        }
        if let RunEvent::Model(RequestEvent::MessageReset { .. }) = &event.kind {
            now.clear();
        }
        if let RunEvent::Stored(StoredEvent::Assistant { message: answer, .. }) = &event.kind {
            assert_eq!(answer.text().trim_end(), now, "what was told is not what is kept");
            texts.push(std::mem::take(&mut now));
        }
    }
    let all = texts.join(" ");
    let mut words = HashSet::new();
    assert!(all.split_whitespace().all(|word| words.insert(word)), "a word stands twice: {all}");
    texts
}

fn toolbox() -> Toolbox {
    Toolbox::new(["look", "snap", "fail"].map(|name| Arc::new(QuickTool(name)) as Arc<dyn Tool>))
}

/// A tool that returns after a short delay.
struct QuickTool(&'static str);

#[async_trait]
impl Tool for QuickTool {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({"type": "object", "properties": {"at": {"type": "string"}}});
        ToolSpec { name: self.0.to_owned(), description: "Looks at something.".to_owned(), parameters }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, _: ToolCx, _: Value) -> ToolResult {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        match self.0 {
            "snap" => ToolResult { content: vec![Block::Image(picture())], ..ToolResult::text("") },
            "fail" => ToolResult::error("there is nothing"),
            _ => ToolResult::text("it is there"),
        }
    }
}

fn picture() -> ImageBlock {
    serde_json::from_value(json!({"mimeType": "image/png", "data": "iVBORw0KGgo="})).unwrap()
}
