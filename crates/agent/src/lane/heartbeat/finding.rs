//! Interpretation of heartbeat answers, and detection of repeated reports. Pure.
//!
//! The last report is in the session's record, as in OpenClaw: it changes in the commit that queues the report for
//! delivery, so a finding is reported once, regardless of crashes between heartbeats.

use homard_proto::session::Record;
use homard_reply::{
    heartbeat::{self, HeartbeatReply},
    parse_stream::{MessageDirectives, ParsedReply},
    payload::Payload,
};
use serde_json::Value;

use crate::event::{HeartbeatAnswer, HeartbeatKind};

/// Time within which the same text is not reported again, in milliseconds.
const REPEAT_WINDOW_MS: u64 = 24 * 60 * 60 * 1000;

/// Field of the session's record: text of the last report.
const TEXT: &str = "lastHeartbeatText";
/// Field of the session's record: when the last report was queued for delivery.
const SENT_AT: &str = "lastHeartbeatSentAt";
/// Field of the session's record: when the last report was shown to connected clients only, because there was no chat.
const SHOWN_AT: &str = "lastHeartbeatShownAt";

/// Inputs for the interpretation of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerContext<'a> {
    /// True if the last message contains the acknowledgement token.
    pub has_token: bool,
    /// Maximum characters besides the token in an answer that still means that there is nothing to report.
    pub ack_max: usize,
    /// True if system events caused the heartbeat: the answer is about them, so it is not a repetition.
    pub has_events: bool,
    /// True if there is a chat to report to.
    pub(crate) has_chat: bool,
    /// Record of the session.
    pub record: Option<&'a Record>,
    /// Current time in milliseconds since the epoch.
    pub now: u64,
}

/// Interprets the answer of a heartbeat.
pub(crate) fn interpret(replies: &[Payload], context: AnswerContext<'_>) -> HeartbeatAnswer {
    let texts: Vec<_> = replies.iter().map(|reply| reply.text.as_str()).filter(|text| !text.is_empty()).collect();
    let (text, last) = (texts.join("\n\n"), texts.last().copied().unwrap_or_default().to_owned());
    let media: Vec<_> = replies.iter().flat_map(|reply| reply.media.clone()).collect();
    let has_media = !media.is_empty();
    let found = MessageDirectives { is_heartbeat: context.has_token, media, ..MessageDirectives::default() };
    let kind =
        match heartbeat::parse_reply(ParsedReply { text: last, found, ..ParsedReply::default() }, context.ack_max) {
            HeartbeatReply::Empty => HeartbeatKind::Empty,
            HeartbeatReply::Nothing => HeartbeatKind::Ok,
            HeartbeatReply::Content(_) if !context.has_events && !has_media && is_repeated(&text, context) => {
                HeartbeatKind::Duplicate
            }
            HeartbeatReply::Content(_) => HeartbeatKind::Finding { is_queued: false },
        };
    HeartbeatAnswer { kind, text }
}

fn is_repeated(text: &str, context: AnswerContext<'_>) -> bool {
    let Some(record) = context.record else { return false };
    let recent = |name: &str| {
        let at_ms = record.extra.get(name).and_then(Value::as_u64);
        at_ms.is_some_and(|at_ms| context.now.saturating_sub(at_ms) < REPEAT_WINDOW_MS)
    };
    let is_same = record.extra.get(TEXT).and_then(Value::as_str).is_some_and(|last| last.trim() == text.trim());
    // A text that was only shown to clients is new to a chat.
    is_same && (recent(SENT_AT) || (!context.has_chat && recent(SHOWN_AT)))
}

/// Records a reported finding: sent to a chat, or shown to connected clients only.
pub(crate) fn record_finding(record: &mut Record, answer: &HeartbeatAnswer, at_ms: u64) {
    let HeartbeatKind::Finding { is_queued } = answer.kind else { return };
    let (name, other) = if is_queued { (SENT_AT, SHOWN_AT) } else { (SHOWN_AT, SENT_AT) };
    record.extra.insert(TEXT.to_owned(), answer.text.as_str().into());
    record.extra.insert(name.to_owned(), at_ms.into());
    record.extra.shift_remove(other);
}

#[cfg(test)]
mod tests {
    use homard_proto::SessionId;

    use super::*;

    const DAY: u64 = REPEAT_WINDOW_MS;

    fn kind(texts: &[&str], context: AnswerContext<'_>) -> HeartbeatKind {
        let replies: Vec<_> = texts.iter().map(|text| Payload::answer(*text)).collect();
        interpret(&replies, context).kind
    }

    fn plain(record: Option<&Record>, now: u64) -> AnswerContext<'_> {
        AnswerContext { has_token: false, ack_max: 10, has_events: false, has_chat: true, record, now }
    }

    #[test]
    fn a_short_text_beside_the_token_reports_nothing() {
        let token = AnswerContext { has_token: true, ..plain(None, 0) };
        assert_eq!(kind(&[], token), HeartbeatKind::Ok);
        assert_eq!(kind(&["all good"], token), HeartbeatKind::Ok);
        assert_eq!(kind(&["I look at the mail now.", "all good"], token), HeartbeatKind::Ok);
        assert_eq!(kind(&["all is well, but the printer burns"], token), HeartbeatKind::Finding { is_queued: false });
        assert_eq!(kind(&[], plain(None, 0)), HeartbeatKind::Empty);
        assert_eq!(kind(&["fire"], plain(None, 0)), HeartbeatKind::Finding { is_queued: false });
    }

    #[test]
    fn a_picture_is_always_a_finding() {
        let picture = Payload { media: vec!["a.png".to_owned()], ..Payload::default() };
        let token = AnswerContext { has_token: true, ..plain(None, 0) };
        assert_eq!(interpret(&[picture], token).kind, HeartbeatKind::Finding { is_queued: false });
    }

    #[test]
    fn the_same_text_is_reported_once_a_day() {
        let mut record = Record::new(SessionId::parse("s").unwrap(), 0);
        let finding = HeartbeatKind::Finding { is_queued: false };
        let queued = HeartbeatKind::Finding { is_queued: true };
        record_finding(&mut record, &HeartbeatAnswer { kind: queued, text: "fire".to_owned() }, 5);
        assert_eq!(kind(&["fire "], plain(Some(&record), 5 + DAY - 1)), HeartbeatKind::Duplicate);
        assert_eq!(kind(&["fire"], plain(Some(&record), 5 + DAY)), finding);
        assert_eq!(kind(&["water"], plain(Some(&record), 6)), finding);
        let caused = AnswerContext { has_events: true, ..plain(Some(&record), 6) };
        assert_eq!(kind(&["fire"], caused), finding, "it answers something that happened since");
    }

    #[test]
    fn a_finding_shown_only_to_clients_is_new_to_a_chat() {
        let mut record = Record::new(SessionId::parse("s").unwrap(), 0);
        let finding = HeartbeatKind::Finding { is_queued: false };
        record_finding(&mut record, &HeartbeatAnswer { kind: finding, text: "fire".to_owned() }, 5);
        let without_chat = AnswerContext { has_chat: false, ..plain(Some(&record), 6) };
        assert_eq!(kind(&["fire"], without_chat), HeartbeatKind::Duplicate);
        assert_eq!(kind(&["fire"], plain(Some(&record), 6)), finding);
    }
}
