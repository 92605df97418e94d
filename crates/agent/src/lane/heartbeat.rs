//! End of a heartbeat run: whether its answer is reported, and whether it stays in the context.

pub(super) mod finding;

use homard_proto::transcript::{Entry, Kind};
use homard_queue::slots::RunClass;
use homard_reply::payload::Payload;
use homard_runtime::ambient::iso;
use homard_store::Rec;

use super::{Lane, ticket::ActiveRun};
use crate::{
    event::{HeartbeatAnswer, HeartbeatKind, RunEvent, StoredEvent, TapeEvent},
    lane::heartbeat::finding::AnswerContext,
    profile::Profile,
};

/// Tools that affect people, other sessions or later runs. Their calls must be in the context when a reaction arrives.
const LASTING_TOOLS: [&str; 4] = ["message", "sessions_send", "sessions_spawn", "cron"];

/// Parses the answer of a successful heartbeat and removes replies that report nothing new. `None` for a run that is
/// not a heartbeat.
pub(super) fn read_heartbeat(
    lane: &Lane,
    active: &ActiveRun,
    profile: &Profile,
    has_token: bool,
    replies: &mut Vec<Payload>,
) -> Option<HeartbeatAnswer> {
    if active.ticket.inbound.options.class != RunClass::Heartbeat {
        return None;
    }
    let context = AnswerContext {
        has_token,
        ack_max: profile.delivery.ack_max,
        has_events: active.has_events,
        has_chat: active.output.is_some(),
        record: lane.session.as_ref().map(|session| &session.record),
        now: lane.hub.ambient.now_ms(),
    };
    let answer = finding::interpret(replies, context);
    match answer.kind {
        HeartbeatKind::Empty | HeartbeatKind::Ok | HeartbeatKind::Duplicate => replies.clear(),
        HeartbeatKind::Finding { .. } => {}
    }
    Some(answer)
}

/// Builds the entry that removes a heartbeat from the model's context if it reported nothing and had no lasting
/// effect. Otherwise idle heartbeats would accumulate in the context until the next compaction.
pub(super) fn exclude_heartbeat(
    lane: &Lane,
    active: &ActiveRun,
    answer: &HeartbeatAnswer,
    events: &[TapeEvent],
) -> Option<Rec> {
    let is_lasting = events.iter().any(|event| match &event.kind {
        RunEvent::Stored(StoredEvent::ToolEnded { result, .. }) => {
            LASTING_TOOLS.contains(&result.tool_name.as_str()) && !result.is_error
        }
        // A compaction refers to the entries it keeps, which may be among these.
        RunEvent::Stored(StoredEvent::Compacted { .. }) => true,
        RunEvent::Stored(
            StoredEvent::Started { .. } | StoredEvent::Input(_) | StoredEvent::Assistant { .. } | StoredEvent::Ended(_),
        )
        | RunEvent::Queue(_)
        | RunEvent::Model(_)
        | RunEvent::Text { .. }
        | RunEvent::Thinking { .. }
        | RunEvent::Tool(_)
        | RunEvent::HookDecision(_)
        | RunEvent::Reply(_)
        | RunEvent::Compaction(_) => false,
    });
    match answer.kind {
        HeartbeatKind::Empty | HeartbeatKind::Ok | HeartbeatKind::Duplicate => {}
        HeartbeatKind::Finding { .. } => return None,
    }
    if is_lasting || active.has_events || active.ticket.tape.broken().is_some() {
        return None;
    }
    let (session, first_entry) = (active.progress.session.clone()?, active.progress.input_entry.as_ref()?);
    let (id, timestamp) = (lane.hub.ambient.entry_id(), iso(lane.hub.ambient.now_ms()));
    let entry = Box::new(Entry { kind: Kind::exclusion(first_entry), id, parent_id: None, timestamp });
    Some(Rec::Entry { run: Some(active.ticket.inbound.id.run.clone()), key: lane.key.clone(), session, entry })
}
