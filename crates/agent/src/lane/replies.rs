//! The replies of an ended run, with prefix, footer and warnings.

use std::sync::Arc;

use homard_proto::{message::Usage, session::Record};
use homard_reply::{footer, payload::Payload, shape::Expectation};
use serde_json::Value;

use super::{Lane, Ticket};
use crate::{
    event::{Outcome, ReplyEvent, RunEnd},
    hub::is_answer_due,
    profile::Profile,
    replies::Replies,
};

/// Replies of a run, and how it ended.
pub(super) struct RepliesOf<'a> {
    pub(super) collected: Replies,
    pub(super) outcome: &'a Outcome,
    /// Token usage of the run.
    pub(super) usage: &'a Usage,
}

/// Builds the replies for the user.
pub(super) fn build_replies(lane: &Lane, ticket: &Ticket, profile: &Profile, result: RepliesOf<'_>) -> Vec<Payload> {
    let RepliesOf { collected, outcome, usage } = result;
    let inbound = &ticket.inbound;
    let is_due = *outcome == Outcome::Done
        && ticket.fixed_reply().is_none()
        && ticket.task().is_none()
        && is_answer_due(inbound.options.class, &inbound.sender.principal, &lane.key);
    // A run that was asked again and still answers with silence may stay silent.
    let expectation = if is_due && !collected.is_silent() { Expectation::LastAnswer } else { Expectation::Free };
    let error = match outcome {
        Outcome::Failed(failure) => Some(failure.message.clone()),
        Outcome::Done | Outcome::Aborted(_) => None,
    };
    let extras = lane.session.as_ref().map(|session| ReplyExtras::of(&session.record, profile)).unwrap_or_default();
    let (shaped, withheld) = collected.shape(error, extras.reasoning, expectation);
    for mut withheld in withheld {
        profile.secrets.mask_string(&mut withheld.text);
        ticket.tape.emit_silent(lane.hub.ambient.now_ms(), ReplyEvent::Withheld(Arc::new(withheld)));
    }
    let mut replies = shaped.payloads;
    if let Some(prefix) = reply_prefix(lane, profile) {
        replies = replies.into_iter().map(|reply| prefix.apply(reply)).collect();
    }
    if let Some(line) = footer::usage(extras.usage, usage, &lane.key).filter(|_| *outcome == Outcome::Done) {
        footer::append(&mut replies, &line);
    }
    replies
}

/// Builds the configured prefix of every answer.
pub(super) fn reply_prefix(lane: &Lane, profile: &Profile) -> Option<footer::ReplyPrefix> {
    let template = profile.secrets.mask(profile.delivery.prefix.as_deref()?);
    let name = profile.identity.name.as_deref().map(|name| profile.secrets.mask(name));
    let record = lane.session.as_ref().map(|session| &session.record);
    let values = footer::PrefixValues {
        provider: record.and_then(|record| record.model_provider.as_deref()),
        model: record.and_then(|record| record.model.as_deref()),
        thinking: record.and_then(|record| record.thinking_level.as_deref()),
        name: name.as_deref(),
    };
    footer::ReplyPrefix::new(&template, values)
}

/// Returns the reply text that is in no transcript entry because the model wrote none; a retry must get it, too.
pub(super) fn text_without_entry(end: &RunEnd) -> Option<String> {
    let is_bare = end.outcome == Outcome::Done && end.entries.is_empty() && !end.replies.is_empty();
    is_bare.then(|| end.replies.iter().map(|reply| reply.text.as_str()).collect::<Vec<_>>().join("\n\n"))
}

/// What is shown beside an answer.
#[derive(Debug, Clone, Copy, Default)]
struct ReplyExtras {
    reasoning: bool,
    usage: footer::UsageMode,
}

impl ReplyExtras {
    fn of(record: &Record, profile: &Profile) -> Self {
        let field = |name: &str| record.extra.get(name).and_then(Value::as_str);
        let reasoning = field("reasoningLevel").unwrap_or(profile.levels(profile.spec()).reasoning);
        Self {
            reasoning: reasoning == "on",
            usage: field("responseUsage").and_then(footer::UsageMode::parse).unwrap_or_default(),
        }
    }
}
