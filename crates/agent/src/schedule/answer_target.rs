//! Destination of a job's answer, as configured in the job. Pure.
//!
//! | `delivery` | the answer |
//! |---|---|
//! | none, and nothing in the payload | stays in the job's run history and its session |
//! | `{mode: "none"}` | the same |
//! | `{mode: "announce", channel, to, accountId, threadId, bestEffort}` | is sent there |
//!
//! Older jobs have it in their payload: `deliver`, `channel`, `to`, `bestEffortDeliver`. Missing values are taken from
//! the last route of the agent's main session.

use homard_proto::{Extra, Route};
use serde_json::Value;

use super::job::{AgentTurn, CronJob, JobPayload};
use crate::delivery::plan::{DeliveryRequest, LAST};

/// Destination of a job's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AnswerTarget {
    /// As a request would have it.
    pub(super) wish: DeliveryRequest,
    /// True if a failed delivery does not fail the job.
    pub(super) is_best_effort: bool,
}

/// Reads the destination of a job's answer.
pub(super) fn answer_target(job: &CronJob, turn: &AgentTurn) -> AnswerTarget {
    match job.delivery.as_ref().and_then(Value::as_object) {
        Some(said) => AnswerTarget {
            wish: DeliveryRequest {
                is_wanted: word(said, "mode").is_none_or(|mode| mode != "none"),
                route: route(said, "channel"),
            },
            is_best_effort: flag(said, "bestEffort") == Some(true),
        },
        None => AnswerTarget {
            wish: DeliveryRequest {
                is_wanted: flag(&turn.extra, "deliver").unwrap_or(word(&turn.extra, "to").is_some()),
                route: route(&turn.extra, if turn.extra.contains_key("channel") { "channel" } else { "provider" }),
            },
            is_best_effort: flag(&turn.extra, "bestEffortDeliver") == Some(true),
        },
    }
}

impl CronJob {
    /// Returns the chat that the job names for its answer. `None` if the answer is not sent, or goes to the last route
    /// of the main session. The channel is `None` if the job does not name one.
    pub fn recipient(&self) -> Option<Route> {
        let JobPayload::AgentTurn(turn) = &self.payload else { return None };
        let DeliveryRequest { is_wanted, route } = answer_target(self, turn).wish;
        let channel = route.channel.filter(|channel| channel != LAST);
        (is_wanted && route.to.is_some()).then_some(Route { channel, ..route })
    }
}

fn route(said: &Extra, channel: &str) -> Route {
    let channel = word(said, channel).map(|name| name.to_lowercase());
    let (to, account) = (word(said, "to"), word(said, "accountId"));
    Route::new(channel.as_deref(), to.as_deref(), account.as_deref(), word(said, "threadId").as_deref())
}

/// Returns the value of a field; threads and people are numbers on some platforms.
fn word(said: &Extra, name: &str) -> Option<String> {
    let text = match said.get(name)? {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(text).filter(|text| !text.is_empty())
}

fn flag(said: &Extra, name: &str) -> Option<bool> {
    said.get(name)?.as_bool()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(delivery: &Value, payload: &Value) -> (bool, Route, bool) {
        let mut fields = json!({
            "id": "j1", "schedule": {"kind": "every", "everyMs": 5}, "sessionTarget": "isolated",
            "payload": {"kind": "agentTurn", "message": "look"},
        });
        if !delivery.is_null() {
            fields["delivery"] = delivery.clone();
        }
        let more = payload.as_object().cloned().unwrap_or_default();
        fields["payload"].as_object_mut().unwrap().extend(more);
        let job: CronJob = serde_json::from_value(fields).unwrap();
        let JobPayload::AgentTurn(turn) = &job.payload else { panic!("{job:?}") };
        let AnswerTarget { wish, is_best_effort } = answer_target(&job, turn);
        (wish.is_wanted, wish.route, is_best_effort)
    }

    #[test]
    fn a_job_says_where_its_answer_goes() {
        let nothing = Value::Null;
        let there = |channel, to| Route::new(Some(channel), to, None, None);
        assert_eq!(said(&nothing, &nothing), (false, Route::default(), false));
        assert!(!said(&json!({"mode": "none", "channel": "telegram", "to": "7"}), &nothing).0);
        assert_eq!(said(&json!({"mode": "announce"}), &nothing), (true, Route::default(), false));
        let whole = json!({
            "mode": "announce", "channel": " Telegram ", "to": 7, "accountId": "bot", "threadId": 9, "bestEffort": true,
        });
        let route = Route::new(Some("telegram"), Some("7"), Some("bot"), Some("9"));
        assert_eq!(said(&whole, &json!({"to": "8"})), (true, route, true));
        assert_eq!(said(&nothing, &json!({"to": "8"})), (true, Route::new(None, Some("8"), None, None), false));
        assert!(!said(&nothing, &json!({"deliver": false, "to": "8"})).0);
        let old = json!({"deliver": true, "provider": "telegram", "to": "8", "bestEffortDeliver": true});
        assert_eq!(said(&nothing, &old), (true, there("telegram", Some("8")), true));
        assert!(!said(&nothing, &json!({"channel": "telegram"})).0, "a channel alone was a wish for nothing");
    }
}
