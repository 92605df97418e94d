//! Invariants of outgoing channel messages, whatever happens to the hub.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use homard_agent::{Outcome, payload_of};
use homard_proto::{EntryId, RunId, message::Message};
use homard_store::{Delivery, DeliveryState, EndRecord, RunState};

use super::message;
use crate::{runner::TraceResult, tools::TOOL_SENT};

/// Every sent message was queued, none is sent twice, their order is kept, none is forgotten, an unknown delivery is
/// reported, and a run sends exactly its reply.
pub(super) fn broken(result: &TraceResult) -> Vec<String> {
    let mut problems = Vec::new();
    let states: BTreeMap<_, _> =
        result.channels.outbox.iter().map(|row| (row.delivery.id.as_str(), &row.state)).collect();
    let accepted = accepted_keys(result, &mut problems);
    for delivery in &result.committed.deliveries {
        let id = delivery.id.as_str();
        match states.get(id) {
            // A confirmed delivery is not in the outbox.
            None | Some(DeliveryState::Sent { .. }) if accepted.contains(id) => {}
            None | Some(DeliveryState::Sent { .. }) => {
                problems.push(format!("{id} is known as sent, and nobody heard it"));
            }
            Some(DeliveryState::Unknown { .. }) => {
                if result.channels.idempotent.contains(&delivery.target.channel) {
                    problems.push(format!("{id} is unknown on a channel where it could be said again"));
                }
                if !result
                    .log
                    .delivered
                    .iter()
                    .any(|(_, report)| report.id == id && matches!(report.state, DeliveryState::Unknown { .. }))
                {
                    problems.push(format!("nobody was told that {id} is unknown"));
                }
            }
            Some(DeliveryState::Dead { .. }) => {}
            Some(DeliveryState::Queued | DeliveryState::Sending | DeliveryState::Failed { .. })
                if result.conditions.stopped => {}
            Some(state @ (DeliveryState::Queued | DeliveryState::Sending | DeliveryState::Failed { .. })) => {
                problems.push(format!("{id} was forgotten: {state:?}"));
            }
        }
    }
    for run in &result.committed.delivering {
        let is_refused = |delivery: &&Delivery| match states.get(delivery.id.as_str()) {
            Some(DeliveryState::Dead { reason }) => !reason.starts_with("taken back"),
            _ => false,
        };
        let ended = match result.rows.get(run).map(|row| &row.state) {
            Some(RunState::Ended(ended)) if ended.outcome == Outcome::Done => ended,
            _ => continue,
        };
        let own_deliveries =
            || result.committed.deliveries.iter().filter(|delivery| delivery.run.as_ref() == Some(run));
        if result.committed.hosts.contains_key(run) || own_deliveries().any(|delivery| is_refused(&delivery)) {
            continue;
        }
        // A delivery with an unknown result counts as sent, as it does for the run.
        let is_taken_back =
            |delivery: &&Delivery| matches!(states.get(delivery.id.as_str()), Some(DeliveryState::Dead { .. }));
        let reply = stored_reply(result, run, ended);
        // A block may have been sent of an answer that was lost when the process died; the model was asked again.
        let is_resumed = result.rows.get(run).is_some_and(|row| !row.resumed_at.is_empty());
        let is_lost = |delivery: &&Delivery| {
            is_resumed
                && delivery.payload.get("block").is_some()
                && !without_whitespace(&reply).contains(&without_whitespace(answer(delivery)))
        };
        let delivered = own_deliveries().filter(|delivery| !is_taken_back(delivery) && !is_lost(delivery));
        let delivered: String = delivered.map(answer).collect();
        if without_whitespace(&delivered) != without_whitespace(&reply) {
            problems.push(format!("run {run} said {reply:?}, and on its channel {delivered:?}"));
        }
    }
    problems
}

/// Returns the ids of the accepted messages; reports those that were not queued, sent twice or out of order.
fn accepted_keys<'a>(result: &'a TraceResult, problems: &mut Vec<String>) -> BTreeSet<&'a str> {
    let queued: BTreeMap<_, _> = (0..)
        .zip(&result.committed.deliveries)
        .map(|(position, delivery)| (delivery.key.as_str(), (position, delivery)))
        .collect();
    let mut accepted = BTreeSet::new();
    let mut last: HashMap<_, usize> = HashMap::new();
    let by_runs = result
        .channels
        .accepted_messages
        .iter()
        .map(|accepted_message| &accepted_message.message)
        .filter(|message| !message.id.starts_with(TOOL_SENT));
    for message in by_runs {
        let Some((position, delivery)) = queued.get(message.id.as_str()) else {
            problems.push(format!("{} was said and never queued", message.id));
            continue;
        };
        if !accepted.insert(message.id.as_str()) {
            // A notice may be read twice.
            if delivery.is_idempotent {
                continue;
            }
            problems.push(format!("{} was heard twice", message.id));
        } else if last.insert(&delivery.target, *position).is_some_and(|previous| previous > *position) {
            problems.push(format!("{} was heard too late", message.id));
        }
    }
    accepted
}

/// Prefix of the warning below a reply to a message that did not fit.
const TOO_LONG: &str = "⚠️ Your message was too long";

/// Returns the reply text of a delivery, without status lines, notices, tool lines and a prefix in brackets.
fn answer(delivery: &Delivery) -> &str {
    let text = delivery.payload["text"].as_str().unwrap_or_default();
    let is_notice = delivery.id.contains("/held");
    if text.starts_with(['🧭', '🧹']) || is_notice || delivery.payload["isOfTool"] == true {
        return "";
    }
    let text = text.split_once(TOO_LONG).map_or(text, |(answer_text, _)| answer_text);
    let rest = text.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    rest.map_or(text, |(_, rest)| rest)
}

/// Returns the stored reply of a run.
fn stored_reply(result: &TraceResult, run: &RunId, ended: &EndRecord) -> String {
    // A heartbeat without a finding sends nothing, whatever the model wrote.
    if ended.payloads.as_ref().is_some_and(|payloads| payloads.as_array().is_some_and(Vec::is_empty)) {
        return String::new();
    }
    let key = result.rows.get(run).map(|row| &row.key);
    let own = result.transcripts().filter(|(session, _)| Some(*session) == key);
    let entries: Vec<_> = own.flat_map(|(_, all)| all).collect();
    let text_of = |id: &EntryId| match entries.iter().find(|entry| entry.id == *id).and_then(|entry| message(entry)) {
        Some(Message::Assistant(answer)) => payload_of(answer).text,
        Some(Message::User(_) | Message::ToolResult(_) | Message::Other(_)) | None => String::new(),
    };
    ended.replies.iter().map(text_of).chain(ended.command_reply.clone()).collect()
}

fn without_whitespace(text: &str) -> String {
    text.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Trace, runner::play};

    const TRACE: &str = "set channel telegram\nat 0ms chat \"a\" run=k1 channel=telegram to=42\n\
                         at 1s chat \"b\" run=k2 channel=telegram to=42\nmodel text \"One.\"\nmodel text \"Two.\"\n";

    /// Returns the problems of a result that was tampered with.
    fn complaints(tamper: impl FnOnce(&mut TraceResult)) -> Vec<String> {
        let mut result = play(&Trace::read("x.trace", TRACE).unwrap()).unwrap();
        tamper(&mut result);
        broken(&result)
    }

    #[test]
    fn delivery_problems_are_reported() {
        assert_eq!(complaints(|_| {}), Vec::<String>::new());
        assert_eq!(complaints(|result| result.channels.accepted_messages.swap(0, 1)), ["k1/0.0 was heard too late"]);
        assert_eq!(
            complaints(|result| result.channels.accepted_messages.extend_from_within(..1)),
            ["k1/0.0 was heard twice"]
        );
        assert_eq!(
            complaints(|result| drop(result.channels.accepted_messages.pop())),
            ["k2/0.0 is known as sent, and nobody heard it"]
        );
        assert_eq!(
            complaints(|result| drop(result.committed.deliveries.pop())),
            ["k2/0.0 was said and never queued", "run k2 said \"Two.\", and on its channel \"\""]
        );
    }
}
