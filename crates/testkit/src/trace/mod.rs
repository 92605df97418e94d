//! The format of a `.trace` file: one statement per line, seven verbs.
//!
//! ```text
//! # a comment; `# case 106` names the conformance case
//! set    timeout=60s tools=sequential slots=1 agent=ops
//! set    tool push effect {"type":"object"}
//! set    session agent:main:main {"sessionId":"old","sendPolicy":"deny"}
//! set    line agent:main:main {"type":"message","message":{…},"id":"a1","parentId":null,"timestamp":"t"}
//! set    api=google-generative-ai idle=5m
//! set    retries=3 down=300ms turns=9 calls=20 repeats=3 errors=5 cost=0.5
//! set    queue="collect debounce:1s cap:2" queue.slack=followup reset=daily
//! set    window=12000 fallback=40000 thinks="low high" thinking=high style=lean zone=UTC
//! set    file "AGENTS.md" "Be kind."
//! set    picture "cat.png"
//! set    channel telegram limit=4000 idempotent=yes blocks=yes replies=first threads=reply to=owner
//! at     0ms    say "deploy it"
//! at     10ms   say "again" run=k2 key=agent:ops:main timeout=5
//! at     15ms   chat "stop, use make" mode=steer channel=slack to=c1 thread=9
//! at     20ms   agent p3 {"message":"hi","idempotencyKey":"k3"}
//! at     30ms   wait run-1 for 5s
//! at     500ms  abort run-1
//! at     510ms  event "the build is green" key=main
//! at     515ms  reset key=main
//! at     517ms  undo key=main
//! at     520ms  resize main=3
//! at     600ms  drain 5s
//! at     700ms  restart
//! at     800ms  restart local
//! at     900ms  release run-1
//! model  text "On " | 50ms | "it." ; call c1 exec {"cmd":"make"} ; usage in=10 out=2 cost=0.01
//! tool   c1 takes 1s reports "50 %" at 500ms says "built"
//! courier #2 takes 1s busy "flood" after 30s
//! fault  store.commit #3 ENOSPC
//! fault  store.commit #7 stored dies
//! hook   memory before_agent_start priority=10 answers {"prependContext":"It is Monday."}
//! hook   keeper before_tool_call guard takes 1s fails "no idea"
//! hook   files signal=agent:bootstrap answers {"drops":"SOUL.md"}
//! hook   weather command answers "It rains."
//! ```
//! A line that begins with white space continues the line above; `"ab"*3` is `"ababab"`.
//!
//! - **set**: the initial state. Every trace has the agent `main` and the tools `exec {cmd}`, which has side effects,
//!   and `read {path}`, which has none. A run is ended after this many `turns=`, `calls=`, `repeats=` of one call,
//!   consecutive `errors=`, or dollars (`cost=`; each answer costs what its `usage` says). A failed model request is
//!   retried `retries=` times. A process that went down stays down for `down=`. `queue=` is the queue mode, as typed
//!   after `/queue`; `history.slack=2` is the number of turns of a direct chat that are shown. The model has a context
//!   `window=`, an `api=` and a `provider=`, supports reasoning levels (`thinks=`) and images unless `sees=no`; each
//!   `fallback=` adds a model with that context window. `sums=` names the compaction model: `script/sums` reads the
//!   script too, any other is unavailable. With `pruning=5m` tool results older than that are omitted from requests.
//!   `thinking=`, `verbose=` and `reasoning=` are defaults. `file`, `link` (with its target), `picture` and `huge` (50
//!   MB) are on a real disk, in the workspace of all agents, or beside it: `"../a.png"`. Prompts have a `style=`
//!   (`rich`, `lean`, `bare`), messages a time in a `zone=`; with `pictures=confined` only those in the workspace are
//!   shown. A `channel` is defined with its properties; replies are delivered in blocks with `blocks=yes`, with a
//!   `delay=natural` between them and a `prefix=` before each.
//! - **at**: something arrives. `say` is a message (`run= key= agent= session= timeout= thinking= label= lane= channel=
//!   prompt= restart= parent= as=`) that always gets a run of its own, `chat` is one that follows the queue mode (`run=
//!   key= mode= channel= to= account= thread= message= timeout= as=`, and `blocks="5..20 end idle:1000"` for a reply in
//!   blocks); without `run=` its run is called `run-1`, `run-2` and so on. `phone` is a message as delivered by a chat
//!   platform (`channel= account= event= from= name= to= thread= message= key= as=`): its run is named after its event,
//!   `e1`, `e2` and so on. `agent`, `chat`, `wait` and `abort` also accept the parameters of the method as JSON, with
//!   `p3` before them for the older protocol. `event` is a system event for the session's next run, `reset` starts a
//!   new transcript, `undo` reverts its last compaction, `resize` changes the number of slots. `shutdown` stops the
//!   process gracefully, `drain` does so after active runs have ended or a timeout; `restart` starts it again, and
//!   without either of them kills it first; `restart local` starts a local turn instead of a gateway. `release` and
//!   `drop` decide about a held run.
//! - **model**: the next answer: `text`, `think`, `call <id> <name> <json>` (`-` for a missing id, `raw "…"` for
//!   arguments that are not JSON), `pause`, `usage`, `stop <reason>`; and, instead of a regular end, `fail <kind> "…"`,
//!   `cut`, `hang` or `panic "…"`. Pieces joined by `|` arrive one by one; a time among them is a pause.
//! - **tool**: behaviour of a call, selected by its id or by the tool's name: `takes`, `reports "…" at`, `says`,
//!   `fails`, `panics`, `details <json>`, `hangs` (forever), `obeys` (ends when cancelled) and `lends` (the run's slot,
//!   meanwhile). With `ends "…" after <time>` it starts a background command that ends like this, and `reads <call>`
//!   reads the end of the one that another call started; `{call}` in the report is the call. A tool that `sends` delivers
//!   its argument `message` to the chat in `target`, or to the chat of its run, before it answers. `{workdir}` in its text
//!   is the working directory of its run.
//! - **courier**: behaviour of a channel sender, selected by the number of the call, counted across restarts: `takes`,
//!   `hears` (accepts), `refuses "…"`, `busy "…" [after <time>]`, `loses "…"` (accepts, but the response is lost),
//!   `drops "…"` (does not accept, and the response is lost), `panics "…"` or `hangs`. By default it accepts at once.
//! - **fault**: a fault of the store: the number of a commit, counted across restarts, and its error (`ENOSPC`, `EIO`)
//!   or duration (`takes`). With `dies` the process crashes before that commit takes effect, with `stored dies` after
//!   it took effect but before the caller learns of it; in both cases it is restarted.
//! - **hook**: a hook at a point of the agent loop (`priority=`, `guard`), a listener for a signal (`signal=`), or a
//!   chat command (`command`): `takes`, and then `answers <json>`, `fails "…"` or `hangs`. A listener's answer may have
//!   `says` (in the chat), `drops` (a file of the prompt) and `bootstrapFiles`.

mod act;
mod scan;
mod setup;
mod turn;
mod verbs;

use std::{collections::BTreeMap, time::Duration};

use homard_proto::{Generation, RunId};
use homard_queue::RunClass;
use serde_json::Value;

use crate::{
    channel_sender::SenderBehaviour, faults::StoreFault, hooks::ScriptedParticipant, script::ScriptedAnswer,
    tools::ToolBehaviour,
};

pub use setup::TraceSetup;

/// A test scenario: the initial state, what arrives, and the behaviour of the model and the tools.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Initial state.
    pub setup: TraceSetup,
    /// What arrives, ordered by time.
    pub acts: Vec<TraceAct>,
    /// Answers of the model.
    pub turns: Vec<ScriptedAnswer>,
    /// Behaviour of tools, by call id or tool name.
    pub tools: BTreeMap<String, ToolBehaviour>,
    /// Faults of the store, by number of commit.
    pub faults: BTreeMap<u64, StoreFault>,
    /// Behaviour of channels, by number of call.
    pub sender_behaviours: BTreeMap<u64, SenderBehaviour>,
    /// Hooks, listeners and chat commands.
    pub participants: Vec<ScriptedParticipant>,
}

/// Something that arrives from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceAct {
    /// Time since the beginning.
    pub at: Duration,
    /// Text of the statement in the file.
    pub text: String,
    /// Its parsed form.
    pub kind: ActKind,
}

/// Kinds of acts.
#[derive(Debug, Clone, PartialEq)]
pub enum ActKind {
    /// Method `agent`.
    Agent {
        /// Who makes the request.
        principal: String,
        /// Protocol version of the parameters.
        generation: Generation,
        /// The parameters.
        params: Value,
    },
    /// Method `chat.send`.
    Chat {
        /// Who makes the request.
        principal: String,
        /// The parameters.
        params: Value,
        /// Rules for a reply in blocks.
        blocks: Option<homard_reply::blocks::BlockRules>,
        /// Id of the message on its channel.
        message_id: Option<String>,
    },
    /// A message from a chat platform.
    PlatformMessage(Box<PlatformMessage>),
    /// Method `agent.wait`.
    Wait {
        /// Protocol version of the parameters.
        generation: Generation,
        /// The parameters.
        params: Value,
    },
    /// Method `chat.abort`.
    Abort {
        /// The parameters.
        params: Value,
    },
    /// Aborts a run in any session.
    AbortRun(RunId),
    /// Adds a system event for a session's next run.
    Event {
        /// The session.
        key: String,
        /// Text of the event.
        text: String,
    },
    /// Starts a new transcript for a session.
    Reset {
        /// The session.
        key: String,
    },
    /// Reverts the last compaction of a session.
    Undo {
        /// The session.
        key: String,
    },
    /// Changes the number of slots.
    Resize(RunClass, usize),
    /// Shuts the process down after active runs have ended, or after this time.
    Drain(Duration),
    /// Shuts the process down gracefully.
    ShutDown,
    /// Kills the process, if it is running, and starts another.
    Restart(ProcessKind),
    /// Enqueues a held run again.
    Release(RunId),
    /// Ends a held run.
    Drop(RunId),
}

/// Kind of process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProcessKind {
    /// Resumes all unfinished runs when it starts.
    #[default]
    Gateway,
    /// Resumes only the unfinished runs of the sessions that it uses.
    LocalTurn,
}

/// A message from an authorized sender on a chat platform.
#[derive(Debug, Clone, PartialEq)]
pub struct PlatformMessage {
    /// The session.
    pub key: String,
    /// Principal, for the hub.
    pub principal: String,
    /// Sender on the platform.
    pub sender: homard_store::Sender,
    /// Channel, account and id of the inbound event.
    pub origin: homard_store::Origin,
    /// Origin of the message.
    pub route: homard_proto::Route,
    /// Id of the message on the platform.
    pub message_id: String,
    /// Text.
    pub text: String,
}

impl Trace {
    /// Creates a trace in which one message is sent at the beginning, with these answers of the model.
    pub fn one_message(text: &str, turns: Vec<ScriptedAnswer>) -> Self {
        let params = serde_json::json!({"message": text, "idempotencyKey": "run-1"});
        let kind = ActKind::Agent { principal: "owner".to_owned(), generation: Generation::Four, params };
        let act = TraceAct { at: Duration::ZERO, text: format!("say {text:?}"), kind };
        Self { acts: vec![act], turns, ..Self::empty() }
    }

    /// Parses a file; `name` is used in errors.
    pub fn read(name: &str, text: &str) -> anyhow::Result<Self> {
        let mut trace = Self::empty();
        for (number, line) in statements(text) {
            verbs::parse(&line, &mut trace).map_err(|error| anyhow::anyhow!("{name}:{number}: {error}"))?;
        }
        if trace.acts.is_empty() {
            anyhow::bail!("{name}: nothing happens in it; add a line such as: at 0ms say \"hello\"");
        }
        trace.acts.sort_by_key(|act| act.at);
        Ok(trace)
    }

    fn empty() -> Self {
        Self {
            setup: TraceSetup::default(),
            acts: Vec::new(),
            turns: Vec::new(),
            tools: BTreeMap::new(),
            faults: BTreeMap::new(),
            sender_behaviours: BTreeMap::new(),
            participants: Vec::new(),
        }
    }
}

/// Returns the statements of a file with the number of their first line: without comments, continued lines joined.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match statements.last_mut() {
            Some((_, statement)) if line.starts_with([' ', '\t']) => {
                statement.push(' ');
                statement.push_str(line.trim());
            }
            _ => statements.push((number, line.trim_end().to_owned())),
        }
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(text: &str) -> String {
        Trace::read("x.trace", text).unwrap_err().to_string()
    }

    #[test]
    fn a_syntax_error_says_where_and_what_was_expected() {
        assert_eq!(
            complaint("# nothing\n"),
            "x.trace: nothing happens in it; add a line such as: at 0ms say \"hello\""
        );
        assert_eq!(
            complaint("at 0ms say \"a\"\n\nwen 5ms"),
            "x.trace:3: expected `set`, `at`, `model`, `tool`, `courier`, `fault` or `hook`, found `wen 5ms`"
        );
        assert_eq!(
            complaint("at soon say \"a\""),
            "x.trace:1: expected a time such as 500ms, 2s, 5m or 48h, found `soon`"
        );
        assert_eq!(
            complaint("at 0ms shout \"a\""),
            "x.trace:1: expected `say`, `chat`, `phone`, `agent`, `wait`, `abort`, `event`, `reset`, `undo`, `resize`, `drain`, `shutdown`, `restart`, `release` or `drop`, found `shout`"
        );
        assert_eq!(complaint("at 0ms say hello"), "x.trace:1: expected a \"text\", found `hello`");
        assert_eq!(complaint("at 0ms say \"a"), "x.trace:1: expected a \"text\", found `\"a`");
        assert_eq!(complaint("at 0ms say \"a\" colour=red"), "x.trace:1: expected a setting of `say`, found `colour`");
        assert_eq!(complaint("at 0ms agent {\"message\":"), "x.trace:1: expected JSON, found `{\"message\":`");
        assert_eq!(complaint("model text \"a\" text \"b\""), "x.trace:1: expected `;`, found `text \"b\"`");
        assert_eq!(complaint("model cut ; text \"b\""), "x.trace:1: expected nothing after `cut`, found `text \"b\"`");
        assert_eq!(
            complaint("tool c1 takes 5ms"),
            "x.trace:1: expected `says`, `fails`, `panics`, `hangs` or `obeys`, found the end of the line"
        );
        assert_eq!(complaint("fault store.commit 3"), "x.trace:1: expected a number such as #3, found `3`");
    }

    #[test]
    fn an_indented_line_continues_the_one_above() {
        let trace = Trace::read("x.trace", "at 0ms say \"a\"\nmodel text \"b\" ;\n  text \"c\"\n").unwrap();
        assert_eq!(trace.turns[0].0.len(), 3);
    }
}
