//! Invariants of outgoing channel messages, whatever happens to the hub.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use homard_agent::{Outcome, payload_of};
use homard_proto::{EntryId, RunId, message::Message};
use homard_store::{Delivery, DeliveryState, EndRecord, RunState};

use super::message;
use crate::{runner::TraceResult, tools::TOOL_SENT};

/// Every sent message was queued, none is sent twice, their order is kept, none is forgotten, an unknown delivery is
/// reported, and a run sends exactly its reply.
pub(super) fn broken(played: &TraceResult) -> Vec<String> {
    let mut wrong = Vec::new();
    let states: BTreeMap<_, _> = played.outbox.iter().map(|row| (row.delivery.id.as_str(), &row.state)).collect();
    let heard = hearing(played, &mut wrong);
    for delivery in &played.taken.deliveries {
        let id = delivery.id.as_str();
        match states.get(id) {
            // What has arrived is not in the outbox.
            None | Some(DeliveryState::Sent { .. }) if heard.contains(id) => {}
            None | Some(DeliveryState::Sent { .. }) => {
                wrong.push(format!("{id} is known as sent, and nobody heard it"));
            }
            Some(DeliveryState::Unknown) => {
                if played.idempotent.contains(&delivery.target.channel) {
                    wrong.push(format!("{id} is unknown on a channel where it could be said again"));
                }
                if !played.log.delivered.iter().any(|(_, told)| told.id == id && told.state == DeliveryState::Unknown) {
                    wrong.push(format!("nobody was told that {id} is unknown"));
                }
            }
            Some(DeliveryState::Dead { .. }) => {}
            Some(DeliveryState::Queued | DeliveryState::Sending | DeliveryState::Failed { .. }) if played.stopped => {}
            Some(state @ (DeliveryState::Queued | DeliveryState::Sending | DeliveryState::Failed { .. })) => {
                wrong.push(format!("{id} was forgotten: {state:?}"));
            }
        }
    }
    for run in &played.taken.delivering {
        let is_refused = |delivery: &&Delivery| match states.get(delivery.id.as_str()) {
            Some(DeliveryState::Dead { reason }) => !reason.starts_with("taken back"),
            _ => false,
        };
        let ended = match played.rows.get(run).map(|row| &row.state) {
            Some(RunState::Ended(ended)) if ended.outcome == Outcome::Done => ended,
            _ => continue,
        };
        let own = || played.taken.deliveries.iter().filter(|delivery| delivery.run.as_ref() == Some(run));
        if played.taken.hosts.contains_key(run) || own().any(|delivery| is_refused(&delivery)) {
            continue;
        }
        // A delivery with an unknown result counts as sent, as it does for the run.
        let is_taken_back =
            |delivery: &&Delivery| matches!(states.get(delivery.id.as_str()), Some(DeliveryState::Dead { .. }));
        let said = said(played, run, ended);
        // A block may have been sent of an answer that was lost when the process died; the model was asked again.
        let is_resumed = played.rows.get(run).is_some_and(|row| !row.resumed_at.is_empty());
        let is_lost = |delivery: &&Delivery| {
            is_resumed
                && delivery.payload.get("block").is_some()
                && !letters(&said).contains(&letters(answer(delivery)))
        };
        let posted = own().filter(|delivery| !is_taken_back(delivery) && !is_lost(delivery));
        let posted: String = posted.map(answer).collect();
        if letters(&posted) != letters(&said) {
            wrong.push(format!("run {run} said {said:?}, and on its channel {posted:?}"));
        }
    }
    wrong
}

/// Accepted messages by key.
fn hearing<'a>(played: &'a TraceResult, wrong: &mut Vec<String>) -> BTreeSet<&'a str> {
    let queued: BTreeMap<_, _> = (0..)
        .zip(&played.taken.deliveries)
        .map(|(place, delivery)| (delivery.key.as_str(), (place, delivery)))
        .collect();
    let mut heard = BTreeSet::new();
    let mut last: HashMap<_, usize> = HashMap::new();
    let by_runs = played.heard.iter().map(|heard| &heard.message).filter(|said| !said.id.starts_with(TOOL_SENT));
    for said in by_runs {
        let Some((place, delivery)) = queued.get(said.id.as_str()) else {
            wrong.push(format!("{} was said and never queued", said.id));
            continue;
        };
        if !heard.insert(said.id.as_str()) {
            // A notice may be read twice.
            if delivery.is_idempotent {
                continue;
            }
            wrong.push(format!("{} was heard twice", said.id));
        } else if last.insert(&delivery.target, *place).is_some_and(|before| before > *place) {
            wrong.push(format!("{} was heard too late", said.id));
        }
    }
    heard
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
    let text = text.split_once(TOO_LONG).map_or(text, |(words, _)| words);
    let rest = text.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    rest.map_or(text, |(_, rest)| rest)
}

/// Returns the stored reply of a run.
fn said(played: &TraceResult, run: &RunId, ended: &EndRecord) -> String {
    // A heartbeat without a finding sends nothing, whatever the model wrote.
    if ended.payloads.as_ref().is_some_and(|kept| kept.as_array().is_some_and(Vec::is_empty)) {
        return String::new();
    }
    let key = played.rows.get(run).map(|row| &row.key);
    let own = played.transcripts().filter(|(of, _)| Some(*of) == key);
    let lines: Vec<_> = own.flat_map(|(_, entries)| entries).collect();
    let line = |id: &EntryId| match lines.iter().find(|entry| entry.id == *id).and_then(|entry| message(entry)) {
        Some(Message::Assistant(said)) => payload_of(said).text,
        Some(Message::User(_) | Message::ToolResult(_) | Message::Other(_)) | None => String::new(),
    };
    ended.replies.iter().map(line).chain(ended.words.clone()).collect()
}

fn letters(text: &str) -> String {
    text.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Trace, runner::play};

    const TRACE: &str = "set channel telegram\nat 0ms chat \"a\" run=k1 channel=telegram to=42\n\
                         at 1s chat \"b\" run=k2 channel=telegram to=42\nmodel text \"One.\"\nmodel text \"Two.\"\n";

    /// What is said of a trace with something wrong in it.
    fn complaints(spoil: impl FnOnce(&mut TraceResult)) -> Vec<String> {
        let mut played = play(&Trace::read("x.trace", TRACE).unwrap()).unwrap();
        spoil(&mut played);
        broken(&played)
    }

    #[test]
    fn what_goes_wrong_on_a_channel_is_found() {
        assert_eq!(complaints(|_| {}), Vec::<String>::new());
        assert_eq!(complaints(|played| played.heard.swap(0, 1)), ["k1/0.0 was heard too late"]);
        assert_eq!(complaints(|played| played.heard.extend_from_within(..1)), ["k1/0.0 was heard twice"]);
        assert_eq!(complaints(|played| drop(played.heard.pop())), ["k2/0.0 is known as sent, and nobody heard it"]);
        assert_eq!(
            complaints(|played| drop(played.taken.deliveries.pop())),
            ["k2/0.0 was said and never queued", "run k2 said \"Two.\", and on its channel \"\""]
        );
    }
}
