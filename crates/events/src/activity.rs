//! What a run is doing at the moment, for senders whose messages are queued behind it.

use std::{fmt, time::Duration};

use homard_proto::CallId;

use crate::event::{CompactionEvent, RequestEvent, RunEvent, StoredEvent, TapeEvent, ToolEvent};

/// Why a session is busy while a message is queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// Activity of the active run.
    pub activity: Activity,
    /// Duration of that activity so far.
    pub lasts: Duration,
    /// How long the message has been queued.
    pub waited: Duration,
}

/// Activity of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// Preparing a request or committing an answer.
    Preparing,
    /// Waiting for this model (`provider/model`) or reading its answer.
    Model(String),
    /// Waiting before it retries this model.
    Retrying(String),
    /// Running these tools.
    Tools(Vec<String>),
    /// Compacting the context.
    Compacting,
    /// Answering a message of another route. The queued message's sender must not learn more.
    Elsewhere,
    /// No run of the session is active: all slots are in use by other sessions.
    OtherSessions,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preparing => f.write_str("preparing the next request"),
            Self::Model(model) => write!(f, "waiting for {model}"),
            Self::Retrying(model) => write!(f, "waiting to retry {model}"),
            Self::Tools(names) => write!(f, "running {}", names.join(", ")),
            Self::Compacting => f.write_str("compacting the conversation"),
            Self::Elsewhere => f.write_str("answering another message"),
            Self::OtherSessions => f.write_str("answering in other conversations"),
        }
    }
}

/// Returns the activity of a run with these events, and its start in milliseconds since the epoch.
pub fn of(events: &[TapeEvent]) -> (Activity, u64) {
    let mut tools: Vec<(&CallId, &str)> = Vec::new();
    let (mut activity, mut since) = (Activity::Preparing, events.first().map_or(0, |event| event.at));
    for TapeEvent { at, kind } in events {
        let next = match kind {
            RunEvent::Model(RequestEvent::Requested(span)) => {
                Activity::Model(format!("{}/{}", span.provider, span.model))
            }
            RunEvent::Model(RequestEvent::Retrying { model, .. }) => Activity::Retrying(model.clone()),
            RunEvent::Compaction(CompactionEvent::Started) => Activity::Compacting,
            RunEvent::Tool(ToolEvent::Started { call, name, .. }) => {
                tools.push((call, name));
                if tools.len() > 1 {
                    continue;
                }
                Activity::Tools(Vec::new())
            }
            RunEvent::Stored(StoredEvent::ToolEnded { call, .. }) => {
                tools.retain(|(open, _)| open != &call);
                if !tools.is_empty() {
                    continue;
                }
                Activity::Preparing
            }
            RunEvent::Stored(
                StoredEvent::Started { .. } | StoredEvent::Assistant { .. } | StoredEvent::Compacted { .. },
            )
            | RunEvent::Model(RequestEvent::CandidateFailed { .. })
            | RunEvent::Compaction(CompactionEvent::Failed { .. }) => Activity::Preparing,
            RunEvent::Queue(_)
            | RunEvent::Stored(StoredEvent::Input(_) | StoredEvent::Ended(_))
            | RunEvent::Model(
                RequestEvent::FirstToken
                | RequestEvent::NoResponse { .. }
                | RequestEvent::AnswerDropped { .. }
                | RequestEvent::Changed { .. }
                | RequestEvent::MessageReset { .. },
            )
            | RunEvent::Text { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::Tool(ToolEvent::Progress { .. })
            | RunEvent::HookDecision(_)
            | RunEvent::Reply(_) => continue,
        };
        (activity, since) = (next, *at);
    }
    if let Activity::Tools(names) = &mut activity {
        names.extend(tools.into_iter().map(|(_, name)| name.to_owned()));
    }
    (activity, since)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use homard_proto::{SessionId, message::ToolResult};
    use homard_store::timeline::ModelRequestSpan;
    use serde_json::Value;

    use super::*;

    fn call(id: &str) -> CallId {
        CallId::parse(id).unwrap()
    }

    fn started(id: &str, name: &str) -> RunEvent {
        RunEvent::Tool(ToolEvent::Started { call: call(id), name: name.to_owned(), arguments: Value::Null })
    }

    fn ended(id: &str) -> RunEvent {
        let result = ToolResult {
            tool_call_id: id.to_owned(),
            tool_name: "t".to_owned(),
            content: Vec::new(),
            details: None,
            is_error: false,
            timestamp: 0,
            extra: Default::default(),
        };
        RunEvent::Stored(StoredEvent::ToolEnded { call: call(id), result: Arc::new(result), shown: None })
    }

    fn describe(kinds: &[RunEvent]) -> (String, u64) {
        let events: Vec<_> = (1..).zip(kinds).map(|(at, kind)| TapeEvent { at, kind: kind.clone() }).collect();
        let (activity, since) = of(&events);
        (activity.to_string(), since)
    }

    #[test]
    fn the_activity_is_the_newest_one_that_has_not_ended() {
        let start = RunEvent::Stored(StoredEvent::Started { session: SessionId::parse("s").unwrap() });
        let span = ModelRequestSpan { provider: "p".to_owned(), model: "m".to_owned(), ..ModelRequestSpan::default() };
        let model_requested = RunEvent::Model(RequestEvent::Requested(Arc::new(span)));
        assert_eq!(describe(std::slice::from_ref(&start)), ("preparing the next request".to_owned(), 1));
        assert_eq!(
            describe(&[start.clone(), model_requested.clone(), RunEvent::Model(RequestEvent::FirstToken)]),
            ("waiting for p/m".to_owned(), 2)
        );
        let two_tools = [start, model_requested, started("a", "exec"), started("b", "read")];
        assert_eq!(describe(&two_tools), ("running exec, read".to_owned(), 3));
        assert_eq!(describe(&[&two_tools[..], &[ended("a")]].concat()), ("running read".to_owned(), 3));
        assert_eq!(
            describe(&[&two_tools[..], &[ended("b"), ended("a")]].concat()),
            ("preparing the next request".to_owned(), 6)
        );
        let compacting =
            [&two_tools[..], &[ended("b"), ended("a"), RunEvent::Compaction(CompactionEvent::Started)]].concat();
        assert_eq!(describe(&compacting), ("compacting the conversation".to_owned(), 7));
    }
}
