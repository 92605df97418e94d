//! Whatever a transcript on disk contains, compaction brings it under budget and keeps calls and results together, and
//! undoing the compaction restores exactly what the model saw before.
//!
//! `GRID=all` tests two hundred transcripts.
#![allow(clippy::unwrap_used, reason = "tests may")]
#![allow(clippy::disallowed_methods, reason = "whoever runs the tests says how many transcripts they want")]

use std::{fs, path::Path, sync::Arc};

use homard_agent::{
    Agents, FencedStore, Hub, HubRules, Inbound, InboundSender, Outcome, Profile, Subscriber, hub::SubmitOutcome,
    tape::TapeState,
};
use homard_journal::Journal;
use homard_model::{Error, ErrorKind, Model, ModelSpec, Request, candidates::Candidates, stream::AnswerEnd, tokens};
use homard_proto::{
    AgentId, RunId, SessionKey,
    message::{Message, StopReason, Usage, User},
};
use homard_queue::Slots;
use homard_runtime::Ambient;
use homard_testkit::{AnswerStep, ScriptedAnswer, ScriptedModel};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

/// Maximum size of a transcript in bytes.
const MAX_BYTES: usize = 1_000_000;

/// A context window that fits them all.
const WIDE_WINDOW: u64 = 100_000_000;

/// Part of a conversation.
#[derive(Debug, Clone)]
enum ConversationPart {
    Asks(GeneratedText),
    Shows(GeneratedText),
    Says(GeneratedText),
    /// Several calls in one message, with their results.
    Calls(usize, GeneratedText),
    /// Calls, each in a message of its own.
    Chain(usize, GeneratedText),
    Writes(GeneratedText),
    Fails,
}

/// A text: its kind and length.
#[derive(Debug, Clone, Copy)]
struct GeneratedText(&'static str, usize);

impl GeneratedText {
    fn text(self) -> String {
        self.0.chars().cycle().take(self.1).collect()
    }
}

fn texts(max_length: usize) -> impl Strategy<Value = GeneratedText> {
    let kinds = vec![
        "The tide comes in and goes out again. ",
        "    let x = f(&y[1..], \"z\")?; // {:#?}\n",
        "海邊的房子和燈塔。",
        "0123456789abcdefghijklmnopqrstuvwxyz",
        "🦞🏠",
        "\n",
    ];
    (select(kinds), 1..max_length).prop_map(|(kind, length)| GeneratedText(kind, length))
}

fn parts(max_length: usize) -> impl Strategy<Value = ConversationPart> {
    prop_oneof![
        3 => texts(max_length).prop_map(ConversationPart::Asks),
        1 => texts(max_length).prop_map(ConversationPart::Shows),
        3 => texts(max_length).prop_map(ConversationPart::Says),
        2 => (1..9usize, texts(max_length)).prop_map(|(calls, text)| ConversationPart::Calls(calls, text)),
        1 => (1..9usize, texts(max_length)).prop_map(|(calls, text)| ConversationPart::Chain(calls, text)),
        1 => texts(max_length).prop_map(ConversationPart::Writes),
        1 => Just(ConversationPart::Fails),
    ]
}

/// Conversations: many small parts, a few huge ones, thousands of calls.
fn conversations() -> impl Strategy<Value = Vec<ConversationPart>> {
    let huge = (vec(parts(400), 0..30), parts(200_000), vec(parts(400), 0..30)).prop_map(|(mut parts, huge, more)| {
        parts.push(huge);
        parts.extend(more);
        parts
    });
    let calls = (vec(parts(400), 0..4), 500..2_000usize, texts(60)).prop_map(|(mut parts, calls, generated)| {
        parts.push(ConversationPart::Chain(calls, generated));
        parts
    });
    prop_oneof![3 => vec(parts(4_000), 1..120), 2 => huge, 1 => calls]
}

/// Returns the messages of a conversation. It begins with a user message and ends with an answer, as between two runs.
fn messages(parts: &[ConversationPart]) -> Vec<Value> {
    let assistant = |content: Value, stop: &str| {
        json!({"role": "assistant", "content": content, "api": "scripted", "provider": "script", "model": "script-1",
               "stopReason": stop, "timestamp": 1})
    };
    let text = |generated: &GeneratedText| json!({"type": "text", "text": generated.text()});
    let call = |id: &str, name: &str, arguments: Value| json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments});
    let result = |id: &str, name: &str, content: Value| json!({"role": "toolResult", "toolCallId": id, "toolName": name, "content": [content], "isError": false, "timestamp": 1});
    let mut all = vec![json!({"role": "user", "content": "Let us begin.", "timestamp": 1})];
    for (index, part) in parts.iter().enumerate() {
        let id = |number: usize| format!("call_{index}_{number}");
        match part {
            ConversationPart::Asks(generated) => {
                all.push(json!({"role": "user", "content": [text(generated)], "timestamp": 1}))
            }
            ConversationPart::Shows(generated) => {
                let image = json!({"type": "image", "data": "iVBORw0KGgo=".repeat(200), "mimeType": "image/png"});
                all.push(json!({"role": "user", "content": [text(generated), image], "timestamp": 1}));
            }
            ConversationPart::Says(generated) => all.push(assistant(json!([text(generated)]), "stop")),
            ConversationPart::Calls(count, generated) => {
                let calls = (0..*count).map(|number| call(&id(number), "read", json!({"path": "a"})));
                all.push(assistant(calls.collect(), "toolUse"));
                all.extend((0..*count).map(|number| result(&id(number), "read", text(generated))));
            }
            ConversationPart::Chain(count, generated) => {
                for number in 0..*count {
                    all.push(assistant(json!([call(&id(number), "read", json!({"path": "a"}))]), "toolUse"));
                    all.push(result(&id(number), "read", text(generated)));
                }
            }
            ConversationPart::Writes(generated) => {
                let arguments = json!({"path": "a", "content": generated.text()});
                all.push(assistant(json!([call(&id(0), "write", arguments)]), "toolUse"));
                all.push(result(&id(0), "write", json!({"type": "text", "text": "ok"})));
            }
            ConversationPart::Fails => all.push(assistant(json!([]), "error")),
        }
    }
    // Truncates to the maximum size without separating calls from their results.
    let mut size = 0;
    let fits = all.iter().take_while(|message| {
        size += message.to_string().len();
        size < MAX_BYTES
    });
    let fits = fits.count();
    let is_middle = |at: usize| all.get(at).is_some_and(|message| message["role"] == "toolResult");
    let end = (0..=fits).rev().find(|at| !is_middle(*at)).unwrap_or(fits);
    all.truncate(end);
    all.push(assistant(json!([{"type": "text", "text": "So it is."}]), "stop"));
    all
}

/// Writes a session to disk, as OpenClaw leaves it.
fn write(state: &Path, messages: &[Value]) {
    let folder = state.join("agents/main/sessions");
    fs::create_dir_all(&folder).unwrap();
    let id = "00000000-0000-4000-8000-000000000000";
    let time = "2026-01-01T00:00:00.000Z";
    let mut lines = vec![json!({"type": "session", "version": 3, "id": id, "timestamp": time, "cwd": "/"}).to_string()];
    let mut parent = Value::Null;
    for (index, message) in messages.iter().enumerate() {
        let name = json!(format!("{index:08x}"));
        let entry = json!({"type": "message", "id": name, "parentId": parent, "timestamp": time, "message": message});
        lines.push(entry.to_string());
        parent = name;
    }
    fs::write(folder.join(format!("{id}.jsonl")), lines.join("\n") + "\n").unwrap();
    let records = json!({"agent:main:main": {"sessionId": id, "updatedAt": 1_767_225_600_000u64}});
    fs::write(folder.join("sessions.json"), records.to_string()).unwrap();
}

/// Behaviour of the compaction model.
#[derive(Debug, Clone, Copy)]
enum SummaryBehaviour {
    Well,
    Nothing,
    Garbage,
    Fails,
    TooLong,
}

const CHECKPOINT: &str = "## Goal\nKeep the house by the sea.\n## Constraints\nnone\n## Progress\n### Done\nmuch of it\n\
    ### In progress\nmore\n### Blocked\nnothing\n## Decisions\nto go on\n## Next steps\ngo on\n## Critical context\n\
    the word is tide, and the house stands by the sea where it always stood";

fn summarize(summarizer: SummaryBehaviour) -> ScriptedAnswer {
    let done = AnswerStep::Done(AnswerEnd { stop: StopReason::Stop, usage: Usage::default() });
    match summarizer {
        SummaryBehaviour::Well => ScriptedAnswer(vec![AnswerStep::Text(CHECKPOINT.to_owned()), done]),
        SummaryBehaviour::Nothing => ScriptedAnswer(vec![done]),
        SummaryBehaviour::Garbage => ScriptedAnswer(vec![AnswerStep::Text("blah ".repeat(20_000)), done]),
        SummaryBehaviour::Fails => ScriptedAnswer(vec![AnswerStep::Fail(Error::new(ErrorKind::Server, "down"))]),
        SummaryBehaviour::TooLong => {
            ScriptedAnswer(vec![AnswerStep::Fail(Error::new(ErrorKind::Overflow, "prompt is too long"))])
        }
    }
}

/// A hub on a state directory, and its scripted model.
struct CompactionFixture {
    hub: Hub,
    script: Arc<ScriptedModel>,
    key: SessionKey,
    window: u64,
    summarizer: SummaryBehaviour,
}

fn spec(context_window: u64) -> ModelSpec {
    let [provider, model, api] = ["script", "script-1", "scripted"].map(str::to_owned);
    ModelSpec { provider, model, api, context_window, max_output: 4_000, ..ModelSpec::default() }
}

/// An agent whose model has this context window. Those of one script are the same model.
fn agents(script: &Arc<ScriptedModel>, summarizer: SummaryBehaviour) -> Agents {
    let summarizer_model =
        ScriptedModel::free(Box::new(move |_| summarize(summarizer))).with_spec(spec(script.spec().context_window));
    let summarizer_model = Candidates::single(Arc::new(summarizer_model));
    let mut profile = Profile {
        resolve_model: Arc::new(move |_| Ok(summarizer_model.clone())),
        ..Profile::new(AgentId::main(), Candidates::single(script.clone()))
    };
    profile.compaction.model = Some("script/sums".to_owned());
    profile.compaction.flush.enabled = false;
    Agents::new(profile, [])
}

fn script(window: u64) -> Arc<ScriptedModel> {
    let done = || AnswerStep::Done(AnswerEnd { stop: StopReason::Stop, usage: Usage::default() });
    let answer = move |_: &Request| ScriptedAnswer(vec![AnswerStep::Text("Yes.".to_owned()), done()]);
    Arc::new(ScriptedModel::free(Box::new(answer)).with_spec(spec(window)))
}

impl CompactionFixture {
    fn open(state: &Path, window: u64, summarizer: SummaryBehaviour) -> Self {
        let script = script(WIDE_WINDOW);
        let journal = Journal::open(state, || 1_800_000_000_000).unwrap();
        let fence = journal.fence();
        let agents = agents(&script, summarizer);
        let (hub, _) = Hub::start(
            Ambient::system(),
            FencedStore::new(Arc::new(journal), fence),
            agents,
            Slots::new(4, 8, 1),
            HubRules::default(),
        );
        let key = SessionKey::parse("main", &AgentId::main()).unwrap();
        Self { hub, script, key, window, summarizer }
    }

    /// Changes the context window.
    fn set_window(&mut self, window: u64) {
        self.script = script(window);
        self.hub.reconfigure(agents(&self.script, self.summarizer), homard_agent::HubRules::default());
    }

    /// Returns the model request for this message.
    async fn request_for(&self, text: &str) -> Request {
        let (run, message) = (RunId::parse(text).unwrap(), User::text(text, 1));
        let inbound = Inbound::plain(run, InboundSender::new("owner", "agent"), self.key.clone(), message);
        let SubmitOutcome::New(tape) = self.hub.submit(inbound).await.unwrap().outcome else { panic!("not new") };
        let TapeState::Ended(end) = Subscriber::new(tape).end().await else { panic!("{text} did not end") };
        assert_eq!(end.outcome, Outcome::Done, "{text}");
        self.script.requests().pop().unwrap().request
    }

    /// Compacts the conversation in the small context window; returns the next request and its estimated size.
    async fn compact(&mut self) -> Option<(Request, u64)> {
        self.set_window(self.window);
        let report = self.hub.sessions().compact(&self.key, None).await.unwrap();
        report.tokens?;
        let (_, after) = report.tokens.unwrap();
        Some((self.request_for("short").await, after))
    }
}

fn calls_and_results(request: &Request) -> (Vec<String>, Vec<String>) {
    let mut pairs = (Vec::new(), Vec::new());
    for message in &request.messages {
        match &**message {
            Message::Assistant(answer) => pairs.0.extend(answer.tool_calls().map(|call| call.id.clone())),
            Message::ToolResult(result) => pairs.1.push(result.tool_call_id.clone()),
            Message::User(_) | Message::Other(_) => {}
        }
    }
    pairs
}

fn size(request: &Request) -> u64 {
    let message_tokens: u64 = request.messages.iter().map(|message| tokens::of_message(message)).sum();
    tokens::estimate(&request.system) + tokens::of_tools(&request.tools) + message_tokens
}

fn cases() -> u32 {
    if std::env::var("GRID").is_ok_and(|value| value == "all") { 200 } else { 16 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_transcript_can_be_compacted_and_restored(
        parts in conversations(),
        window in 16_000u64..100_000,
        summarizer in select(vec![SummaryBehaviour::Well, SummaryBehaviour::Nothing, SummaryBehaviour::Garbage, SummaryBehaviour::Fails, SummaryBehaviour::TooLong]),
    ) {
        let state = tempfile::tempdir().unwrap();
        write(state.path(), &messages(&parts));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut fixture = CompactionFixture::open(state.path(), window, summarizer);
            let before = fixture.request_for("before").await;
            let threshold = window - window / 4;
            match fixture.compact().await {
                Some((compacted, after)) => {
                    prop_assert!(after <= threshold, "{} of {}", after, threshold);
                    // The message sent since then adds a few tokens.
                    prop_assert!(size(&compacted) <= threshold + 20, "{} of {}", size(&compacted), threshold);
                    let (calls, results) = calls_and_results(&compacted);
                    prop_assert_eq!(calls, results);
                    fixture.hub.sessions().undo_compaction(&fixture.key, None).await.unwrap();
                }
                None => prop_assert!(size(&before) <= threshold, "nothing was done for {} of {}", size(&before), threshold),
            }
            let is_undone = fixture.hub.sessions().compactions(&fixture.key).await.unwrap().iter().all(|each| each.is_undone);
            prop_assert!(is_undone);
            fixture.set_window(WIDE_WINDOW);
            let after = fixture.request_for("after").await;
            prop_assert_eq!(&after.system, &before.system);
            prop_assert_eq!(&after.messages[..before.messages.len()], &before.messages[..]);
            fixture.hub.lifecycle().shut_down().await;
            Ok(())
        })?;
    }
}
