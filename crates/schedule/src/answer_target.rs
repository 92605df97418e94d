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

use homard_agent::delivery::{DeliveryRequest, LAST};
use homard_proto::{Extra, Route};
use serde_json::Value;

use super::job::{AgentTurn, CronJob, JobPayload};

/// Destination of a job's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AnswerTarget {
    /// As a request would have it.
    pub(super) request: DeliveryRequest,
    /// True if a failed delivery does not fail the job.
    pub(super) is_best_effort: bool,
}

/// Reads the destination of a job's answer.
pub(super) fn answer_target(job: &CronJob, turn: &AgentTurn) -> AnswerTarget {
    match job.delivery.as_ref().and_then(Value::as_object) {
        Some(delivery) => AnswerTarget {
            request: DeliveryRequest {
                is_wanted: text_value(delivery, "mode").is_none_or(|mode| mode != "none"),
                route: route(delivery, "channel"),
            },
            is_best_effort: flag(delivery, "bestEffort") == Some(true),
        },
        None => AnswerTarget {
            request: DeliveryRequest {
                is_wanted: flag(&turn.extra, "deliver").unwrap_or(text_value(&turn.extra, "to").is_some()),
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
        let DeliveryRequest { is_wanted, route } = answer_target(self, turn).request;
        let channel = route.channel.filter(|channel| channel != LAST);
        (is_wanted && route.to.is_some()).then_some(Route { channel, ..route })
    }
}

fn route(fields: &Extra, channel: &str) -> Route {
    let channel = text_value(fields, channel).map(|name| name.to_lowercase());
    let (to, account) = (text_value(fields, "to"), text_value(fields, "accountId"));
    Route::new(channel.as_deref(), to.as_deref(), account.as_deref(), text_value(fields, "threadId").as_deref())
}

/// Returns the value of a field; threads and people are numbers on some platforms.
fn text_value(fields: &Extra, name: &str) -> Option<String> {
    let text = match fields.get(name)? {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(text).filter(|text| !text.is_empty())
}

fn flag(fields: &Extra, name: &str) -> Option<bool> {
    fields.get(name)?.as_bool()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target_of(delivery: &Value, payload: &Value) -> (bool, Route, bool) {
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
        let AnswerTarget { request, is_best_effort } = answer_target(&job, turn);
        (request.is_wanted, request.route, is_best_effort)
    }

    #[test]
    fn the_answer_target_of_a_job_is_parsed() {
        let nothing = Value::Null;
        let route_to = |channel, to| Route::new(Some(channel), to, None, None);
        assert_eq!(target_of(&nothing, &nothing), (false, Route::default(), false));
        assert!(!target_of(&json!({"mode": "none", "channel": "telegram", "to": "7"}), &nothing).0);
        assert_eq!(target_of(&json!({"mode": "announce"}), &nothing), (true, Route::default(), false));
        let whole = json!({
            "mode": "announce", "channel": " Telegram ", "to": 7, "accountId": "bot", "threadId": 9, "bestEffort": true,
        });
        let route = Route::new(Some("telegram"), Some("7"), Some("bot"), Some("9"));
        assert_eq!(target_of(&whole, &json!({"to": "8"})), (true, route, true));
        assert_eq!(target_of(&nothing, &json!({"to": "8"})), (true, Route::new(None, Some("8"), None, None), false));
        assert!(!target_of(&nothing, &json!({"deliver": false, "to": "8"})).0);
        let old = json!({"deliver": true, "provider": "telegram", "to": "8", "bestEffortDeliver": true});
        assert_eq!(target_of(&nothing, &old), (true, route_to("telegram", Some("8")), true));
        assert!(!target_of(&nothing, &json!({"channel": "telegram"})).0, "a channel alone was a wish for nothing");
    }
}
