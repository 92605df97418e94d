//! Prompt section about messaging.

use super::{StableInput, replies::SILENT, sanitize, tool};

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
