//! A very long session in a small context window never fails, whatever the compaction model answers: every request
//! contains the standing rules and the newest message verbatim, fits, and has a result for every call.
//!
//! `GRID=all` runs sessions of two thousand turns.
#![allow(clippy::unwrap_used, reason = "tests may")]
#![allow(clippy::disallowed_methods, reason = "whoever runs the tests says how long the sessions are")]

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use homard_agent::{
    Agents, FencedStore, Hub, HubRules, Inbound, InboundSender, Outcome, Profile, Subscriber,
    hub::SubmitOutcome,
    tape::TapeState,
    tool::{Tool, ToolCx, ToolResult, ToolSpec, Toolbox},
};
use homard_model::{
    Error, ErrorKind, ModelSpec, Request,
    candidates::Candidates,
    stream::{AnswerEnd, CallDelta},
    tokens,
};
use homard_prompt::PromptConfig;
use homard_proto::{
    AgentId, RunId, SessionId, SessionKey,
    message::{Message, StopReason, Usage, User},
    session::Record,
    transcript::Entry,
};
use homard_queue::Slots;
use homard_runtime::Ambient;
use homard_stdx::SeededRng;
use homard_store::{
    DeliveryRow, Error as StoreError, Fence, MemoryStore, Rec, RunQuery, RunRow, Session, StoreReader, StoreWriter,
    ToolClass, UnfinishedRun, Verdict,
    usage::{UsageQuery, UsageSum},
};
use homard_testkit::{AnswerStep, ScriptedAnswer, ScriptedModel};
use serde_json::{Value, json};

const WINDOW: u64 = 16_000;

/// Content of a file in the workspace.
const RULE: &str = "Never move the lighthouse, not even a little.";

/// Behaviour of the compaction model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SummarizerBehaviour {
    Well,
    SaysNothing,
    TalksGarbage,
    Fails,
    /// Answers with something unrelated: the whole history is lost.
    DropsEverything,
    FindsAllTooLong,
    Hangs,
    /// A different one of these each time.
    Anyhow,
}

/// How the answering model counts tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenCounting {
    /// It does not report them.
    Unreported,
    /// As estimated.
    Alike,
    /// It counts 50 % more, and rejects what does not fit.
    More,
}

fn turns(default: usize) -> usize {
    if std::env::var("GRID").is_ok_and(|value| value == "all") { 2_000 } else { default }
}

/// Generates text: prose, code, Chinese, or one long word.
fn random_text(rng: &mut SeededRng, max_tokens: u64) -> String {
    let size = (1 + rng.below(max_tokens)) as usize;
    match rng.below(4) {
        0 => "the tide comes in and goes out again ".repeat(size / 8 + 1),
        1 => (0..size / 12 + 1).map(|line| format!("    let x_{line} = f(&y[{line}..], \"z\")?;\n")).collect(),
        2 => "海邊的房子和燈塔".repeat(size / 12 + 1),
        _ => "0123456789abcdef".repeat(size / 8 + 1),
    }
}

/// A tool that returns about as many tokens as the file's name says.
struct ReadTool;

#[async_trait]
impl Tool for ReadTool {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        ToolSpec { name: "read".to_owned(), description: "Reads a file.".to_owned(), parameters }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, _: ToolCx, arguments: Value) -> ToolResult {
        let seed: u64 = arguments["path"].as_str().and_then(|path| path.parse().ok()).unwrap_or_default();
        let mut rng = SeededRng::new(seed);
        let max_tokens = *rng.pick(&[50, 50, 500, 2_000, 20_000]);
        match rng.below(8) {
            0 => ToolResult::error(format!("no such file {}", random_text(&mut rng, 50))),
            _ => ToolResult::text(random_text(&mut rng, max_tokens)),
        }
    }
}

/// State shared by the models and the test.
#[derive(Debug, Default)]
struct TestState {
    /// The newest message.
    newest: String,
    requests: usize,
    problems: Vec<String>,
}

fn text_of(message: &Message) -> String {
    match message {
        Message::User(user) => user.content.text(),
        Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => String::new(),
    }
}

/// Returns what is wrong with a request.
fn violations(request: &Request, newest: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if !request.system.contains(RULE) {
        problems.push("the standing rules are not there".to_owned());
    }
    if !request.messages.iter().any(|message| text_of(message).contains(newest)) {
        problems.push(format!("the newest request is not there: {newest}"));
    }
    let size = size(request);
    if size > WINDOW {
        problems.push(format!("it has {size} tokens"));
    }
    let mut open = Vec::new();
    for message in &request.messages {
        match &**message {
            Message::ToolResult(result) => match open.iter().position(|call| *call == result.tool_call_id) {
                Some(index) => drop(open.remove(index)),
                None => problems.push(format!("nobody asked for the result of {}", result.tool_call_id)),
            },
            Message::Assistant(answer) => {
                problems.extend(open.drain(..).map(|call| format!("{call} has no result")));
                open.extend(answer.tool_calls().map(|call| call.id.clone()));
            }
            Message::User(_) | Message::Other(_) => {}
        }
    }
    problems.extend(open.into_iter().map(|call| format!("{call} has no result")));
    problems
}

fn size(request: &Request) -> u64 {
    let message_tokens: u64 = request.messages.iter().map(|message| tokens::of_message(message)).sum();
    tokens::estimate(&request.system) + tokens::of_tools(&request.tools) + message_tokens
}

/// The answering model: it reads a few files and then answers. After the compaction model has failed, it is asked for
/// the summary, and fails in the same way.
fn answers(
    state: Arc<Mutex<TestState>>,
    summarizer: SummarizerBehaviour,
    counting: TokenCounting,
    mut rng: SeededRng,
) -> impl FnMut(&Request) -> ScriptedAnswer + Send {
    move |request| {
        if request.system.starts_with("You write checkpoints") {
            return summarize(summarizer, &mut rng);
        }
        let mut state = state.lock().unwrap();
        state.requests += 1;
        let number = state.requests;
        let found = violations(request, &state.newest);
        state.problems.extend(found.into_iter().map(|problem| format!("question {number}: {problem}")));
        let size = match counting {
            TokenCounting::Unreported => 0,
            TokenCounting::Alike => size(request),
            TokenCounting::More => size(request) * 3 / 2,
        };
        if size > WINDOW {
            return ScriptedAnswer(vec![AnswerStep::Fail(Error::new(ErrorKind::Overflow, "prompt is too long"))]);
        }
        let mut steps = Vec::new();
        let since_user = request.messages.iter().rev().take_while(|message| !matches!(***message, Message::User(_)));
        let rounds = since_user.filter(|message| matches!(***message, Message::Assistant(_))).count();
        let stop = if rounds < 5 && rng.percent(60) {
            for index in 0..1 + rng.below(3) as usize {
                let (id, name) = (Some(format!("call_{number}_{index}")), Some("read".to_owned()));
                let arguments = json!({"path": rng.below(1_000_000).to_string()}).to_string();
                steps.push(AnswerStep::Call(CallDelta { index, id, name, arguments }));
            }
            StopReason::ToolUse
        } else {
            let max_tokens = *rng.pick(&[50, 50, 50, 1_500]);
            steps.push(AnswerStep::Text(random_text(&mut rng, max_tokens)));
            StopReason::Stop
        };
        let output = if size == 0 { 0 } else { 100 };
        let usage = Usage { input: size, output, total_tokens: size + output, ..Usage::default() };
        steps.push(AnswerStep::Done(AnswerEnd { stop, usage }));
        ScriptedAnswer(steps)
    }
}

const CHECKPOINT: &str = "## Goal\nKeep the house by the sea.\n## Constraints\nnone\n## Progress\n### Done\nmuch of it\n\
    ### In progress\nmore\n### Blocked\nnothing\n## Decisions\nto go on\n## Next steps\ngo on\n## Critical context\n\
    the word is tide, and the house stands by the sea where it always stood";

/// The compaction model.
fn summarize(summarizer: SummarizerBehaviour, rng: &mut SeededRng) -> ScriptedAnswer {
    let done = || AnswerStep::Done(AnswerEnd { stop: StopReason::Stop, usage: Usage::default() });
    let says = |text: &str| ScriptedAnswer(vec![AnswerStep::Text(text.to_owned()), done()]);
    match summarizer {
        SummarizerBehaviour::Well => says(CHECKPOINT),
        SummarizerBehaviour::SaysNothing => ScriptedAnswer(vec![done()]),
        SummarizerBehaviour::TalksGarbage => says(&random_text(rng, 30_000)),
        SummarizerBehaviour::Fails => ScriptedAnswer(vec![AnswerStep::Fail(Error::new(ErrorKind::Server, "down"))]),
        SummarizerBehaviour::DropsEverything => {
            says(&"I like trains, and I would like to talk about them instead. ".repeat(20))
        }
        SummarizerBehaviour::FindsAllTooLong => {
            ScriptedAnswer(vec![AnswerStep::Fail(Error::new(ErrorKind::Overflow, "prompt is too long"))])
        }
        SummarizerBehaviour::Hangs => ScriptedAnswer(vec![AnswerStep::Hang]),
        SummarizerBehaviour::Anyhow => {
            let each = [
                SummarizerBehaviour::Well,
                SummarizerBehaviour::SaysNothing,
                SummarizerBehaviour::TalksGarbage,
                SummarizerBehaviour::Fails,
                SummarizerBehaviour::DropsEverything,
                SummarizerBehaviour::FindsAllTooLong,
                SummarizerBehaviour::Hangs,
            ];
            summarize(*rng.pick(&each), rng)
        }
    }
}

/// A store that counts reads of transcripts.
#[derive(Default)]
struct CountingStore {
    inner: MemoryStore,
    reads: AtomicUsize,
}

#[async_trait]
impl StoreWriter for CountingStore {
    async fn commit(&self, fence: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, StoreError> {
        self.inner.commit(fence, batch).await
    }
}

#[async_trait]
impl StoreReader for CountingStore {
    async fn load(&self, key: &SessionKey) -> Result<Option<Session>, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.load(key).await
    }

    async fn live_transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Vec<Entry>, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.live_transcript(key, session).await
    }

    async fn transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Option<Vec<Entry>>, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.transcript(key, session).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        self.inner.run(run).await
    }

    async fn record(&self, key: &SessionKey) -> Result<Option<Arc<Record>>, StoreError> {
        self.inner.record(key).await
    }

    async fn list(&self) -> Result<Vec<(SessionKey, Arc<Record>)>, StoreError> {
        self.inner.list().await
    }

    async fn find(&self, session: &SessionId) -> Result<Option<SessionKey>, StoreError> {
        self.inner.find(session).await
    }

    async fn recover(&self) -> Result<Vec<UnfinishedRun>, StoreError> {
        self.inner.recover().await
    }

    async fn outbox(&self) -> Result<Vec<DeliveryRow>, StoreError> {
        self.inner.outbox().await
    }

    async fn delivery(&self, id: &str) -> Result<Option<DeliveryRow>, StoreError> {
        self.inner.delivery(id).await
    }

    async fn runs(&self, query: &RunQuery) -> Result<Vec<RunRow>, StoreError> {
        self.inner.runs(query).await
    }

    async fn find_run(&self, name: &str) -> Result<Option<RunId>, StoreError> {
        self.inner.find_run(name).await
    }

    async fn deliveries_of(&self, run: &RunId) -> Result<Vec<DeliveryRow>, StoreError> {
        self.inner.deliveries_of(run).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageSum>, StoreError> {
        self.inner.usage(query).await
    }
}

fn spec(model: &str) -> ModelSpec {
    let [provider, model, api] = ["script", model, "scripted"].map(str::to_owned);
    ModelSpec { provider, model, api, context_window: WINDOW, max_output: 4_000, ..ModelSpec::default() }
}

/// Runs a session with this many turns; returns the number of compactions and of transcript reads.
async fn play(turns: usize, summarizer: SummarizerBehaviour, counting: TokenCounting) -> (u64, usize) {
    let workspace = tempfile::tempdir().unwrap();
    fs::write(workspace.path().join("AGENTS.md"), format!("# Rules\n\n{RULE}\n")).unwrap();
    let state = Arc::new(Mutex::new(TestState::default()));
    let script = ScriptedModel::free(Box::new(answers(state.clone(), summarizer, counting, SeededRng::new(5))))
        .with_spec(spec("script-1"));
    let mut rng = SeededRng::new(6);
    let summarizer_model =
        ScriptedModel::free(Box::new(move |_| summarize(summarizer, &mut rng))).with_spec(spec("script-2"));
    let summarizer_model = Candidates::single(Arc::new(summarizer_model));
    let mut profile = Profile {
        workdir: workspace.path().to_owned(),
        toolbox: Toolbox::new([Arc::new(ReadTool) as Arc<dyn Tool>]),
        prompt: PromptConfig { workspace: Some(workspace.path().to_owned()), ..PromptConfig::default() },
        timeout: Some(Duration::from_secs(3_600)),
        resolve_model: Arc::new(move |_| Ok(summarizer_model.clone())),
        ..Profile::new(AgentId::main(), Candidates::single(Arc::new(script)))
    };
    profile.compaction.model = Some("script/script-2".to_owned());
    let store = Arc::new(CountingStore::default());
    let agents = Agents::new(profile, []);
    let (hub, _feed) = Hub::start(
        Ambient::fixed(0),
        FencedStore::new(store.clone(), Fence::default()),
        agents,
        Slots::new(4, 8, 1),
        HubRules::default(),
    );
    let key = SessionKey::parse("main", &AgentId::main()).unwrap();
    let mut rng = SeededRng::new(7);
    for turn in 0..turns {
        let max_tokens = *rng.pick(&[20, 20, 20, 200, 1_500]);
        let text = format!("Request {turn} of {turns}: {}", random_text(&mut rng, max_tokens).trim_end());
        state.lock().unwrap().newest.clone_from(&text);
        let message = User::text(text, hub.ambient().now_ms());
        let run = RunId::parse(&format!("turn-{turn}")).unwrap();
        let accepted =
            hub.submit(Inbound::plain(run, InboundSender::new("owner", "agent"), key.clone(), message)).await.unwrap();
        let SubmitOutcome::New(tape) = accepted.outcome else { panic!("turn {turn} is not new") };
        let TapeState::Ended(end) = Subscriber::new(tape).end().await else { panic!("turn {turn} did not end") };
        assert_eq!(end.outcome, Outcome::Done, "turn {turn} with {summarizer:?} and {counting:?}");
        assert_eq!(
            state.lock().unwrap().problems,
            Vec::<String>::new(),
            "turn {turn} with {summarizer:?} and {counting:?}"
        );
    }
    hub.lifecycle().shut_down().await;
    let reads = store.reads.load(Ordering::Relaxed);
    let session = store.load(&key).await.unwrap().unwrap();
    // The transcript keeps every entry.
    let user_entries = session.entries.iter().filter(|entry| json!(entry)["message"]["role"] == "user").count();
    assert_eq!(user_entries, turns);
    (json!(session.record)["compactionCount"].as_u64().unwrap_or_default(), reads)
}

/// Compaction uses the cached transcript: it is read once, at the first message, however often it is compacted.
#[tokio::test(start_paused = true)]
async fn a_compaction_reads_no_transcript() {
    let (compactions, reads) = play(60, SummarizerBehaviour::Well, TokenCounting::Alike).await;
    assert!(compactions > 6, "only {compactions} compactions");
    assert!(reads <= 2, "{reads} reads for {compactions} compactions");
}

#[test]
fn missing_parts_of_a_request_are_reported() {
    let message = |value: Value| Arc::new(serde_json::from_value::<Message>(value).unwrap());
    let user = |text: &str| message(json!({"role": "user", "content": text, "timestamp": 0}));
    let call = message(
        json!({"role": "assistant", "content": [{"type": "toolCall", "id": "c1", "name": "read", "arguments": {}}]}),
    );
    let result = message(json!({"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": []}));
    let problems_of = |system: &str, messages: Vec<_>| {
        let request = Request { system: system.into(), messages, ..Request::default() };
        violations(&request, "the newest")
    };
    let valid = vec![user("and the newest"), call.clone(), result.clone()];
    assert_eq!(problems_of(RULE, valid.clone()), Vec::<String>::new());
    assert_eq!(problems_of("Be kind.", valid), ["the standing rules are not there"]);
    assert_eq!(problems_of(RULE, vec![user("the oldest")]), ["the newest request is not there: the newest"]);
    assert_eq!(problems_of(RULE, vec![user("the newest"), call]), ["c1 has no result"]);
    assert_eq!(problems_of(RULE, vec![user("the newest"), result]), ["nobody asked for the result of c1"]);
    let long = problems_of(RULE, vec![user("the newest"), user(&"word ".repeat(20_000))]);
    assert!(matches!(&long[..], [problem] if problem.starts_with("it has ")), "{long:?}");
}

/// Maximum number of turns per compaction; with fewer compactions the test would prove nothing.
const MAX_TURNS_PER_COMPACTION: u64 = 10;

macro_rules! sessions {
    ($($name:ident: $turns:literal, $summarizer:ident, $counting:ident;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let turns = turns($turns);
            let (compactions, _) = play(turns, SummarizerBehaviour::$summarizer, TokenCounting::$counting).await;
            assert!(compactions >= turns as u64 / MAX_TURNS_PER_COMPACTION, "only {compactions} compactions in {turns} turns");
        }
    )*};
}

sessions! {
    a_model_that_summarizes_well: 200, Well, Alike;
    a_model_that_says_nothing: 100, SaysNothing, Alike;
    a_model_that_talks_garbage: 100, TalksGarbage, Alike;
    a_model_that_fails: 100, Fails, Alike;
    a_model_that_drops_everything: 100, DropsEverything, Alike;
    a_model_that_finds_all_too_long: 100, FindsAllTooLong, Alike;
    a_model_that_hangs: 100, Hangs, Alike;
    a_model_that_does_anything: 100, Anyhow, Alike;
    a_model_that_does_not_count: 100, Anyhow, Unreported;
    a_model_that_counts_more_than_is_estimated: 100, Anyhow, More;
}
