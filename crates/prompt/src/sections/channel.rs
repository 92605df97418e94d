//! Prompt sections about messaging and the current channel.

use super::{StableInput, capped, replies::SILENT, sanitize, sanitized, tool};
use crate::input::{PromptContext, ReactionLevel};

/// Maximum number of channel hints.
const MAX_HINTS: usize = 20;

pub(super) fn messaging(stable: &StableInput<'_>) -> Option<String> {
    let mut lines = vec![
        "## Messaging".to_owned(),
        "- A reply goes back to where the message came from.".to_owned(),
        "- Homard delivers; do not call a messenger's API with commands of your own.".to_owned(),
    ];
    if let Some(send) = tool(stable.tools, "sessions_send") {
        lines.push(format!("- To write to another session use {} with its key.", sanitize(send)));
    }
    if let Some(message) = tool(stable.tools, "message").map(sanitize) {
        lines.push("### message tool".to_owned());
        lines.push(format!(
            "- Use {message} to send a message that is not a reply, and for polls, reactions and the like."
        ));
        lines.push("- To send, give action=send, target and message; with several channels, also channel.".to_owned());
        lines.push(format!("- If that message says everything, reply with {SILENT}; any other reply is sent as well."));
    }
    Some(lines.join("\n"))
}

/// Renders the hints for the current channel. A session may be used from several.
pub(super) fn hints(context: &PromptContext<'_>) -> Option<String> {
    let turn = &context.turn;
    let hints: Vec<_> = turn.hints.iter().filter_map(|hint| sanitized(Some(hint))).collect();
    let mut lines = capped(hints.iter().map(|hint| format!("- {}", hint.trim_start_matches("- "))), MAX_HINTS);
    let has_buttons = turn.capabilities.iter().any(|capability| capability.eq_ignore_ascii_case("inlineButtons"));
    if let Some(message) = tool(context.stable.tools, "message").filter(|_| has_buttons) {
        lines.push(format!(
            "- Buttons work here: {} with action=send and buttons=[[{{\"text\", \"callback_data\"}}]], a list for each row. \
             A press comes back as a message with the callback_data.",
            sanitize(message)
        ));
    }
    (!lines.is_empty()).then(|| format!("## This Channel\n{}", lines.join("\n")))
}

pub(super) fn reactions(context: &PromptContext<'_>) -> Option<String> {
    let channel_text = sanitized(context.turn.channel).map_or_else(String::new, |channel| format!(" on {channel}"));
    let frequency = match context.turn.reactions? {
        ReactionLevel::Minimal => {
            "only when it says more than words would, to confirm something or to share a strong feeling; \
             not more than once in five to ten messages"
        }
        ReactionLevel::Extensive => "freely, whenever it feels natural: to agree, to thank, to laugh, to confirm",
    };
    Some(format!("## Reactions\nYou can react to messages with an emoji{channel_text}. Do so {frequency}."))
}
