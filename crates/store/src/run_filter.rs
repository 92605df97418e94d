//! Conditions on runs in lists.

use homard_proto::{AgentId, SessionKey};

use crate::{Outcome, RunRow, RunState};

/// Conditions that listed runs meet. Absent ones are met by every run. Texts are compared without regard to the case of
/// ASCII letters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFilter {
    /// Status as [`RunRow::status`] returns it.
    pub status: Option<String>,
    /// Agent of the session.
    pub agent: Option<AgentId>,
    /// First part of the session key after the agent, such as `telegram` or `cron`.
    pub channel: Option<String>,
    /// Part of the name of the model that answered, as `provider/model`.
    pub model: Option<String>,
    /// Part of the run id, the session key or the error.
    pub search: Option<String>,
}

/// What conditions look at in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunSummary<'a> {
    /// Run id.
    pub run: &'a str,
    /// Session key.
    pub key: &'a str,
    /// Status.
    pub status: &'a str,
    /// Model that answered, as `provider/model`.
    pub model: &'a str,
    /// Error, or an empty text.
    pub error: &'a str,
}

impl RunFilter {
    /// True if every run meets it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if a run meets the conditions.
    pub fn matches(&self, row: &RunRow) -> bool {
        let (model, error) = match &row.state {
            RunState::Ended(ended) => {
                (format!("{}/{}", ended.model.0, ended.model.1), ended.outcome.error().unwrap_or_default())
            }
            RunState::Accepted | RunState::Running | RunState::Absorbed(_) | RunState::Held => ("/".to_owned(), ""),
        };
        self.matches_summary(&RunSummary {
            run: row.run.as_str(),
            key: row.key.as_str(),
            status: row.status(),
            model: &model,
            error,
        })
    }

    /// Like [`matches`](Self::matches), without the row.
    pub fn matches_summary(&self, run: &RunSummary<'_>) -> bool {
        let is_met =
            |condition: &Option<String>, is_met: &dyn Fn(&str) -> bool| condition.as_deref().is_none_or(is_met);
        is_met(&self.status, &|status| run.status == status)
            && is_met(&self.model, &|part| contains(run.model, part))
            && is_met(&self.search, &|part| [run.run, run.key, run.error].iter().any(|text| contains(text, part)))
            && self.meets_session(run.key)
    }

    /// True if a session key meets the conditions on sessions.
    fn meets_session(&self, key: &str) -> bool {
        if self.agent.is_none() && self.channel.is_none() {
            return true;
        }
        let Ok(key) = SessionKey::parse(key, &AgentId::main()) else { return false };
        let is_of = |channel: &String| key.rest().strip_prefix(&**channel).is_some_and(|rest| rest.starts_with(':'));
        self.agent.as_ref().is_none_or(|agent| key.agent() == Some(agent)) && self.channel.as_ref().is_none_or(is_of)
    }
}

fn contains(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let Some((first, rest)) = part.split_first() else { return true };
    // Most positions differ in the first letter already.
    let is_at = |at: usize| text.get(at + 1..at + part.len()).is_some_and(|tail| tail.eq_ignore_ascii_case(rest));
    text.iter().enumerate().any(|(at, byte)| byte.eq_ignore_ascii_case(first) && is_at(at))
}

impl RunRow {
    /// Returns the status as clients see it.
    pub fn status(&self) -> &'static str {
        match &self.state {
            RunState::Accepted => "accepted",
            RunState::Running => "running",
            RunState::Absorbed(_) => "absorbed",
            RunState::Held => "held",
            RunState::Ended(ended) => ended.outcome.status(),
        }
    }
}

impl Outcome {
    /// Returns the status of a run that ended like this, as clients see it.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Done => "ok",
            Self::Aborted(_) => "aborted",
            Self::Failed(_) => "error",
        }
    }
}
