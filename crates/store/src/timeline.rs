//! What happened in a run, and when: small enough to be kept with every run.
//!
//! Main steps tile the time from a run's acceptance to its end: each begins where the one before ended, so that every
//! millisecond has a name. What happened within or beside them (a tool among others, a hook, a switch) is told *aside*.

use homard_proto::RunId;
use serde::{Deserialize, Deserializer, Serialize};

/// One step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// When it began; milliseconds since the epoch.
    pub from: u64,
    /// When it ended; milliseconds since the epoch.
    pub to: u64,
    /// What it was.
    #[serde(flatten)]
    pub what: What,
}

/// What a step was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum What {
    /// It waited in line for its turn, the last part of it for a slot.
    Queued {
        /// How long for a slot.
        slot_ms: u64,
    },
    /// What a model is told was gathered: files, hooks, the conversation.
    Prepared,
    /// A model was asked.
    Model(Box<Asked>),
    /// A model had failed, and it was waited before it was asked again.
    Retry {
        /// What had gone wrong.
        why: String,
    },
    /// What must be on disk before a tool starts was stored.
    Stored,
    /// Tools were at work.
    Tools,
    /// The conversation was made short, or not.
    Compaction {
        /// Tokens before and after, about; `None` if it was not made short.
        tokens: Option<(u64, u64)>,
        /// How it was done, or why it was not.
        how: String,
        /// How much of the run's message was kept, if it did not fit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<TruncatedInput>,
    },
    /// The program was not there, or did not know of the run.
    Down,
    /// It was held after several crashes in a row, until its owner released it.
    Held,
    /// What was said last was stored.
    Finished,
    /// Hooks looked at what the run stores and sends last.
    FinalHooks,
    /// So many more steps, which are not kept one by one.
    More {
        /// How many.
        steps: u64,
    },
    /// Aside: one call of a tool.
    Tool {
        /// The tool.
        name: String,
        /// The call.
        call: String,
        /// A digest of its arguments: equal calls have equal ones.
        digest: String,
        /// Whether it failed.
        is_error: bool,
        /// How many characters its result had and how many were kept, if those are fewer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut: Option<(u64, u64)>,
    },
    /// Aside: a hook decided something.
    Hook {
        /// Where.
        point: String,
        /// Which.
        hook: String,
        /// What.
        decision: String,
    },
    /// Aside: somebody was passed over, and the next one is asked.
    Switched {
        /// Who, as `provider/model`.
        from_model: String,
        /// In a word.
        reason: String,
        /// What went wrong.
        why: String,
    },
    /// Aside: a message joined the run.
    Joined,
    /// Aside: the run's message got another place in the queue than its sender was told before.
    Placed {
        /// The place, as senders are told: `steered`, `queued`, `summarized` and so on.
        disposition: String,
        /// The position in line, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<u64>,
    },
    /// Aside: the run had waited for half a minute, and its session was busy with this.
    Busy {
        /// What another run was doing.
        activity: String,
        /// For how long.
        busy_ms: u64,
    },
    /// Aside: too many messages waited in the queue, and the model got a summary of these instead of their text.
    Summarized {
        /// The runs that they asked for.
        runs: Vec<RunId>,
    },
    /// Aside: a piece of the answer was sent before the answer was whole.
    Block,
    /// Aside: a text of the answer was not sent, because a tool had sent it to the same conversation.
    Withheld {
        /// The tool call that had sent it.
        call: String,
        /// How it repeats what the call sent: `same`, `part` or `introduced`.
        repetition: String,
        /// How many characters it has.
        chars: u64,
        /// Its beginning.
        text: String,
    },
}

impl What {
    /// Whether it happened within or beside the main steps.
    pub fn is_aside(&self) -> bool {
        match self {
            Self::Tool { .. }
            | Self::Hook { .. }
            | Self::Switched { .. }
            | Self::Joined
            | Self::Placed { .. }
            | Self::Busy { .. }
            | Self::Summarized { .. }
            | Self::Block
            | Self::Withheld { .. } => true,
            Self::Queued { .. }
            | Self::Prepared
            | Self::Model(_)
            | Self::Retry { .. }
            | Self::Stored
            | Self::Tools
            | Self::Compaction { .. }
            | Self::Down
            | Self::Held
            | Self::Finished
            | Self::FinalHooks
            | Self::More { .. } => false,
        }
    }
}

/// A question to a model and what came of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Asked {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The name of the credential, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What it was told.
    pub prompt: Prompt,
    /// After how many milliseconds it began to answer; `None` if it never did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_ms: Option<u64>,
    /// Prompt tokens that were not cached.
    pub input: u64,
    /// Tokens that it wrote.
    pub output: u64,
    /// Prompt tokens from the provider's cache.
    pub cache_read: u64,
    /// Prompt tokens into the provider's cache.
    pub cache_write: u64,
    /// In US dollars.
    pub cost: f64,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a model was told, by size.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Prompt {
    /// The sections of the system prompt with their characters; only where they are other than before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<(String, u64)>,
    /// The characters of the system prompt.
    pub system: u64,
    /// How many tools.
    pub tools: u64,
    /// How many messages.
    pub messages: u64,
    /// All of it in tokens, about.
    pub tokens: u64,
    /// What is other than in the session's question before, so that a provider's cache ends there; `None` if there is
    /// only more at the end, empty if there was no question before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<String>,
    /// How many old tool results it shows shortened or not at all, to save what the provider's cache has lost anyway.
    #[serde(skip_serializing_if = "is_none")]
    pub pruned: u64,
    /// What it leaves out or cuts; only in the first question for which the prompt was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortened: Option<Shortened>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// A message that did not fit into the context window: the model got its beginning and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TruncatedInput {
    /// The tokens of the message, estimated.
    pub original_tokens: u64,
    /// The tokens of what the model got.
    pub kept_tokens: u64,
    /// The characters of the message.
    pub original_chars: u64,
    /// The characters of what the model got.
    pub kept_chars: u64,
}

/// What a prompt leaves out or cuts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Shortened {
    /// `lean` or `bare`; `rich` for a full prompt in which files are cut.
    pub style: String,
    /// The context window that made the prompt lean, in tokens; `None` if the config chose the style.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// How many tools are left out.
    pub tools: u64,
    /// Files of the workspace that are not there as a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<CutFile>,
}

/// A file of the workspace of which a prompt has only a part.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CutFile {
    /// Its name.
    pub name: String,
    /// How many characters it has.
    pub chars: u64,
    /// How many of them the prompt has.
    pub kept: u64,
}

/// What happened in a run, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct Steps(Vec<Step>);

impl Steps {
    /// So many are kept: it is the beginning of a long run that tells where its time went, and rows must stay small.
    pub const MAX: usize = 200;

    /// Keeps steps that are in order. Of too many, the rest is one step.
    pub fn new(mut steps: Vec<Step>) -> Self {
        if steps.len() > Self::MAX {
            let rest = steps.split_off(Self::MAX - 1);
            let from = steps.iter().rev().find(|step| !step.what.is_aside()).map_or(0, |step| step.to);
            let last = rest.iter().rev().find(|step| !step.what.is_aside());
            steps.extend(last.map(|last| Step { from, to: last.to, what: What::More { steps: rest.len() as u64 } }));
        }
        Self(steps)
    }

    /// Them.
    pub fn all(&self) -> &[Step] {
        &self.0
    }

    /// How much of the run's message the model got, if it did not fit.
    pub fn truncated_input(&self) -> Option<TruncatedInput> {
        let input = |step: &Step| if let What::Compaction { input, .. } = step.what { input } else { None };
        self.0.iter().rev().find_map(input)
    }

    /// Whether a model got a summary of the message of this run instead of its text.
    pub fn is_summarized(&self, run: &RunId) -> bool {
        let has = |step: &Step| matches!(&step.what, What::Summarized { runs } if runs.contains(run));
        self.0.iter().any(has)
    }

    /// How many milliseconds have a name.
    pub fn accounted(&self) -> u64 {
        self.0.iter().filter(|step| !step.what.is_aside()).map(|step| step.to - step.from).sum()
    }

    /// Those from a moment on: what a message that joined a run has to do with.
    pub fn since(&self, at: u64) -> Self {
        let after = self.0.iter().filter(|step| step.to > at || (step.to == at && step.what.is_aside()));
        let after = after.map(|step| Step { from: step.from.max(at), ..step.clone() });
        // It may have waited for the one that speaks for it.
        let first = self.0.iter().find(|step| !step.what.is_aside()).map_or(at, |step| step.from);
        let waited = (first > at).then_some(Step { from: at, to: first, what: What::Queued { slot_ms: 0 } });
        Self(waited.into_iter().chain(after).collect())
    }
}

/// Steps that other versions wrote and nobody can read are passed over: a run's end is worth more than its course.
impl<'de> Deserialize<'de> for Steps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let steps = Vec::<serde_json::Value>::deserialize(deserializer)?;
        Ok(Self(steps.into_iter().filter_map(|step| serde_json::from_value(step).ok()).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(from: u64, to: u64, what: What) -> Step {
        Step { from, to, what }
    }

    #[test]
    fn a_long_run_stays_small_and_is_still_accounted_for() {
        let steps = (0..1_000).map(|at| step(at, at + 1, if at % 2 == 0 { What::Prepared } else { What::Tools }));
        let kept = Steps::new(steps.collect());
        assert_eq!((kept.all().len(), kept.accounted()), (Steps::MAX, 1_000));
        assert_eq!(kept.all()[199], step(199, 1_000, What::More { steps: 801 }));
    }

    #[test]
    fn what_cannot_be_read_is_passed_over() {
        let text = r#"[["model",1020],{"from":1,"to":2,"step":"prepared"},{"from":2,"to":3,"step":"novel"}]"#;
        let steps: Steps = serde_json::from_str(text).unwrap();
        assert_eq!(steps, Steps(vec![step(1, 2, What::Prepared)]));
        assert_eq!(serde_json::to_string(&steps).unwrap(), r#"[{"from":1,"to":2,"step":"prepared"}]"#);
    }

    #[test]
    fn steps_of_earlier_versions_are_read() {
        let text = r#"[{"from":1,"to":2,"step":"compaction","tokens":[9,4],"how":"asked"},
            {"from":1,"to":2,"step":"tool","name":"read","call":"c","digest":"ab","isError":false}]"#;
        let steps: Steps = serde_json::from_str(text).unwrap();
        let compaction = What::Compaction { tokens: Some((9, 4)), how: "asked".to_owned(), input: None };
        let (name, call, digest) = ("read".to_owned(), "c".to_owned(), "ab".to_owned());
        let tool = What::Tool { name, call, digest, is_error: false, cut: None };
        assert_eq!(steps, Steps(vec![step(1, 2, compaction), step(1, 2, tool)]));
        assert_eq!(steps.truncated_input(), None);
    }

    #[test]
    fn who_joins_later_sees_what_came_after() {
        let steps = Steps(vec![
            step(0, 5, What::Queued { slot_ms: 0 }),
            step(5, 9, What::Prepared),
            step(7, 7, What::Joined),
            step(9, 20, What::Tools),
        ]);
        let seen = steps.since(7);
        assert_eq!(seen.all(), [step(7, 9, What::Prepared), step(7, 7, What::Joined), step(9, 20, What::Tools)]);
        assert_eq!(seen.accounted(), 13);
        let later = Steps(vec![step(9, 20, What::Tools)]);
        assert_eq!(later.since(7).all(), [step(7, 9, What::Queued { slot_ms: 0 }), step(9, 20, What::Tools)]);
    }
}
