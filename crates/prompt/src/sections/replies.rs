//! Prompt sections about replies: quoting, reasoning and silence.

use homard_reply::heartbeat::TOKEN;

use super::{StableInput, non_empty};

/// The reply that is not sent.
pub(super) const SILENT: &str = "NO_REPLY";

pub(super) fn tags(_: &StableInput<'_>) -> Option<String> {
    let text = "\
## Reply Tags
Where a channel can quote, a tag at the very beginning of a reply makes it an answer to a message:
- [[reply_to_current]] answers the message at hand.
- [[reply_to:<id>]] answers another one; only with an id that you were given.
The tag is taken out before the reply is sent.";
    Some(text.to_owned())
}

pub(super) fn format(stable: &StableInput<'_>) -> Option<String> {
    let text = "\
## Reasoning Format
Write every reply in two parts and nothing outside of them:
<think>your reasoning, which is not shown</think>
<final>what the person reads</final>";
    stable.needs_tags.then(|| text.to_owned())
}

pub(super) fn silence(_: &StableInput<'_>) -> Option<String> {
    Some(format!(
        "## Silent Replies\n\
         When nothing should be said, reply with {SILENT} and not one character more. Never put it into a reply that says \
         something."
    ))
}

pub(super) fn heartbeats(stable: &StableInput<'_>) -> Option<String> {
    let description = match non_empty(stable.heartbeat) {
        Some(prompt) => format!("A heartbeat is a message from a timer, not from a person. It says: {prompt}"),
        None => "A heartbeat is a message from a timer, not from a person; it begins by saying so.".to_owned(),
    };
    Some(format!(
        "## Heartbeats\n\
         {description}\n\
         If nothing needs attention then, reply with {TOKEN} and nothing else. If something does, say what, without {TOKEN}."
    ))
}
