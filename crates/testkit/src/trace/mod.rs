//! The lines of a `.trace` file: one act a line, seven verbs.
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
//! A line that begins with a blank continues the line above it; `"ab"*3` is `"ababab"`.
//!
//! - **set**: how the world is before it begins. Every trace has the agent `main` and the tools `exec {cmd}`, which has
//!   effects, and `read {path}`, which has none. A run is ended after so many `turns=`, `calls=`, `repeats=` of one call,
//!   `errors=` in a row, or dollars (`cost=`; each answer costs what its `usage` says). A model that fails is asked again
//!   as often as `retries=` says. A process that went down is gone for `down=`. `queue=` is how messages wait, as it is typed behind `/queue`, `history.slack=2` how many turns of a direct chat are shown. The
//!   model has a `window=`, is of an `api=` and a `provider=`, may be asked to think (`thinks=` levels) and sees pictures unless `sees=no`;
//!   each `fallback=` is one more, with that window. `sums=` names the model that sums up: `script/sums` reads the script
//!   too, any other cannot be had. With `pruning=5m` old tool results are left out of requests after so long.
//!   `thinking=`, `verbose=` and `reasoning=` are what holds where nobody says so. `file`, `link` (with where it leads),
//!   `picture` and `huge` (50 MB) are on a real disk, in the workspace of all agents, or beside it: `"../a.png"`.
//!   Prompts have a `style=` (`rich`, `lean`, `bare`), messages a time in a `zone=`; with `pictures=confined` only those
//!   in the workspace are shown. A `channel` is set up with what it is like; answers go there in blocks with `blocks=yes`,
//!   with a `delay=natural` between them and a `prefix=` before each.
//! - **at**: something arrives. `say` is a message (`run= key= agent= session= timeout= thinking= label= lane=
//!   channel= prompt= restart= parent= as=`) that is always a run of its own, `chat` is one that goes by the rules of
//!   the queue (`run= key= mode= channel= to= account= thread= message= timeout= as=`, and `blocks="5..20 end idle:1000"` for an answer in blocks); without `run=` its run is called `run-1`,
//!   `run-2` and so on. `phone` is a message as a chat platform brings it (`channel= account= event= from= name= to= thread=
//!   message= key= as=`): its run is named after its event, `e1`, `e2` and so on. `agent`, `chat`, `wait` and `abort` also take the parameters of the method as JSON, `p3` before
//!   them for the older protocol. `event` is something that the session's next run is told, `reset` gives it a
//!   new transcript, `undo` makes its last compaction void, `resize` changes how many
//!   runs may be at work. `shutdown` stops the process in good order, `drain` when what is at work has ended or the time
//!   is up; `restart` starts it again, and without either kills it first; `restart local` starts a local turn instead of a
//!   gateway. `release` and `drop` decide about a held run.
//! - **model**: the next answer: `text`, `think`, `call <id> <name> <json>` (`-` for a missing id, `raw "…"` for
//!   arguments that are not JSON), `pause`, `usage`, `stop <reason>`; and, instead of a good end, `fail <kind> "…"`,
//!   `cut`, `hang` or `panic "…"`. Pieces joined by `|` arrive one by one; a time among them is a pause.
//! - **tool**: what a call does, found by its id or by the tool's name: `takes`, `reports "…" at`, `says`, `fails`,
//!   `panics`, `details <json>`, `hangs` (for ever), `obeys` (ends when told to) and `lends` (the run's slot, meanwhile).
//!   With `ends "…" after <time>` it starts a background command that ends like this, and `reads <call>` reads the end of
//!   the one that another call started.
//!   `{workdir}` in what it says is the directory that its run works in.
//! - **courier**: what a channel does when it is called, by the number of the call, counted over all restarts: `takes`,
//!   `hears`, `refuses "…"`, `busy "…" [after <time>]`, `loses "…"` (it hears, and nobody learns of it), `drops "…"` (it
//!   does not, and nobody learns of that), `panics "…"` or `hangs`. Without a line it hears at once.
//! - **fault**: what goes wrong: the number of a commit, counted over all restarts, and why (`ENOSPC`, `EIO`) or for how
//!   long (`takes`). With `dies` the process dies before that commit takes effect, with `stored dies` after it did but
//!   before anybody is told; either way it is started again.
//! - **hook**: somebody takes part at a point of the loop (`priority=`, `guard`), where something is signalled
//!   (`signal=`), or in the chat (`command`): `takes`, and then `answers <json>`, `fails "…"` or `hangs`. A listener's
//!   answer may have `says` (in the chat), `drops` (a file of the prompt) and `bootstrapFiles`.

mod act;
mod scan;
mod setup;
mod turn;
mod verbs;

use std::{collections::BTreeMap, time::Duration};

use homard_agent::Class;
use homard_proto::{Generation, RunId};
use serde_json::Value;

use crate::{courier::Conduct, faults::Fault, hooks::Part, script::Turn, tools::Behaviour};

pub use setup::Setup;

/// A behaviour: what the world is like, what happens to it, and what the model and the tools do.
#[derive(Debug, Clone)]
pub struct Trace {
    /// How the world is before it begins.
    pub setup: Setup,
    /// What arrives, in order of time.
    pub acts: Vec<Act>,
    /// What the model says.
    pub turns: Vec<Turn>,
    /// What tools do, by call or by tool.
    pub tools: BTreeMap<String, Behaviour>,
    /// What goes wrong, by number of commit.
    pub faults: BTreeMap<u64, Fault>,
    /// What channels do, by number of call.
    pub conducts: BTreeMap<u64, Conduct>,
    /// Who takes part besides.
    pub parts: Vec<Part>,
}

/// Something that arrives from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct Act {
    /// When, counted from the beginning.
    pub at: Duration,
    /// As it is written in the file.
    pub text: String,
    /// What it is.
    pub deed: Deed,
}

/// What can arrive from outside.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// The method `agent`.
    Agent {
        /// Who asks.
        principal: String,
        /// The protocol whose rules the parameters keep.
        generation: Generation,
        /// The parameters.
        params: Value,
    },
    /// The method `chat.send`.
    Chat {
        /// Who asks.
        principal: String,
        /// The parameters.
        params: Value,
        /// How its answer is sent in blocks.
        blocks: Option<homard_reply::blocks::Rules>,
        /// What its channel calls the message.
        message: Option<String>,
    },
    /// A message from a chat platform.
    Phone(Box<Phone>),
    /// The method `agent.wait`.
    Wait {
        /// The protocol whose rules the parameters keep.
        generation: Generation,
        /// The parameters.
        params: Value,
    },
    /// The method `chat.abort`.
    Abort {
        /// The parameters.
        params: Value,
    },
    /// A run shall stop, whatever its session.
    AbortRun(RunId),
    /// Something happened that a session's next run is told.
    Event {
        /// The session.
        key: String,
        /// What happened.
        text: String,
    },
    /// A session gets a new transcript.
    Reset {
        /// The session.
        key: String,
    },
    /// The last compaction of a session does not count any more.
    Undo {
        /// The session.
        key: String,
    },
    /// Another number of runs may be at work.
    Resize(Class, usize),
    /// The process goes down, and lets what is at work end for so long.
    Drain(Duration),
    /// The process goes down, in good order.
    ShutDown,
    /// The process dies, if it is still there, and another is started.
    Restart(Process),
    /// A held run is queued again.
    Release(RunId),
    /// A held run ends.
    Drop(RunId),
}

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Process {
    /// It takes up everything that is unfinished when it starts.
    #[default]
    Gateway,
    /// It takes up only what is unfinished in the sessions that it works in.
    LocalTurn,
}

/// A message from a chat platform, from somebody who was let in.
#[derive(Debug, Clone, PartialEq)]
pub struct Phone {
    /// The session.
    pub key: String,
    /// Who it is from, for the hub.
    pub principal: String,
    /// Who it is from, for the platform.
    pub sender: homard_store::Sender,
    /// The event that brings it.
    pub origin: homard_store::Origin,
    /// Where it comes from.
    pub route: homard_proto::Route,
    /// What the platform calls it.
    pub message: String,
    /// What is said.
    pub words: String,
}

impl Trace {
    /// A trace in which one message is sent at the beginning, and the model says this.
    pub fn one_message(text: &str, turns: Vec<Turn>) -> Self {
        let params = serde_json::json!({"message": text, "idempotencyKey": "run-1"});
        let deed = Deed::Agent { principal: "owner".to_owned(), generation: Generation::Four, params };
        let act = Act { at: Duration::ZERO, text: format!("say {text:?}"), deed };
        Self { acts: vec![act], turns, ..Self::empty() }
    }

    /// Reads a file; `name` is what errors call it.
    pub fn read(name: &str, text: &str) -> anyhow::Result<Self> {
        let mut trace = Self::empty();
        for (number, line) in lines(text) {
            verbs::read(&line, &mut trace).map_err(|wrong| anyhow::anyhow!("{name}:{number}: {wrong}"))?;
        }
        if trace.acts.is_empty() {
            anyhow::bail!("{name}: nothing happens in it; add a line such as: at 0ms say \"hello\"");
        }
        trace.acts.sort_by_key(|act| act.at);
        Ok(trace)
    }

    fn empty() -> Self {
        Self {
            setup: Setup::default(),
            acts: Vec::new(),
            turns: Vec::new(),
            tools: BTreeMap::new(),
            faults: BTreeMap::new(),
            conducts: BTreeMap::new(),
            parts: Vec::new(),
        }
    }
}

/// The acts of a file with the number of their first line: comments gone, continued lines joined.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut acts: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match acts.last_mut() {
            Some((_, act)) if line.starts_with([' ', '\t']) => {
                act.push(' ');
                act.push_str(line.trim());
            }
            _ => acts.push((number, line.trim_end().to_owned())),
        }
    }
    acts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(text: &str) -> String {
        Trace::read("x.trace", text).unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_line_is_named_with_what_was_expected() {
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
