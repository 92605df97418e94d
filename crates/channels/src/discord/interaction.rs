//! Interactions: slash commands, and the buttons below a message that names a pending approval.
//!
//! A button contains the same command as the text that it is shown with, `/approve ID DECISION`. It needs no secret:
//! the user who presses it is checked like the sender of a message with that command.

use serde_json::{Value, json};

/// Type of a slash command.
const COMMAND_TYPE: u64 = 2;

/// Type of a pressed button.
const COMPONENT_TYPE: u64 = 3;

/// Name of the only option of a slash command.
const OPTION: &str = "text";

/// Maximum number of commands that Discord accepts.
const MAX_COMMANDS: usize = 100;

/// Maximum length of a description.
const MAX_DESCRIPTION: usize = 100;

/// Maximum length of an approval's id in a button; Discord limits the whole to 100.
const MAX_APPROVAL_ID: usize = 64;

/// Prefix of the ids of our buttons.
const BUTTON_PREFIX: &str = "homard:approve:";

/// Decisions on an approval, with the labels of their buttons and their styles: green, grey and red.
const DECISIONS: [(&str, &str, u8); 3] =
    [("allow-once", "Allow once", 3), ("allow-always", "Always allow", 2), ("deny", "Deny", 4)];

/// What an interaction asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InteractionKind {
    /// A slash command, as text.
    Command(String),
    /// A decision on an approval, as the text of the command.
    Approval(String),
}

/// Parses an interaction.
pub(super) fn kind(event: &Value) -> Option<InteractionKind> {
    let data = &event["data"];
    match event["type"].as_u64()? {
        COMMAND_TYPE => {
            let name = data["name"].as_str().filter(|_| data["type"].as_u64().unwrap_or(1) == 1)?;
            let options = data["options"].as_array().into_iter().flatten();
            let mut text = format!("/{name}");
            for option in options.filter_map(|option| option["value"].as_str()) {
                text.push(' ');
                text.push_str(option.trim());
            }
            Some(InteractionKind::Command(text.trim_end().to_owned()))
        }
        COMPONENT_TYPE => {
            let (id, decision) = data["custom_id"].as_str()?.strip_prefix(BUTTON_PREFIX)?.rsplit_once(':')?;
            let is_known = DECISIONS.iter().any(|(known, _, _)| *known == decision) && is_approval_id(id);
            is_known.then(|| InteractionKind::Approval(format!("/approve {id} {decision}")))
        }
        _ => None,
    }
}

/// Returns the response that acknowledges an interaction. It is sent once the interaction is stored; the answer follows
/// as a message.
pub(super) fn acknowledgement(kind: &InteractionKind, is_ephemeral: bool) -> Value {
    match kind {
        InteractionKind::Command(text) => {
            let flags = if is_ephemeral { 1 << 6 } else { 0 };
            json!({"type": 4, "data": {"content": shown(text), "flags": flags, "allowed_mentions": {"parse": []}}})
        }
        // The buttons stay; the answer reports the decision.
        InteractionKind::Approval(_) => json!({"type": 6}),
    }
}

/// Returns a text as inline code.
fn shown(text: &str) -> String {
    let text: String = text.chars().filter(|c| *c != '`').take(1900).collect();
    format!("`{}`", text.replace('\n', " "))
}

/// Returns the rows of buttons for a text, if it names exactly one pending approval.
pub(super) fn buttons(text: &str) -> Option<Value> {
    let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_matches(['`', '"', '\'', '*'])).collect();
    let ids = words.windows(3).filter(|words| words[0] == "/approve" && is_decision(words[2]));
    let mut ids: Vec<&str> = ids.map(|words| words[1]).filter(|id| is_approval_id(id)).collect();
    ids.dedup();
    let [id] = ids.as_slice() else { return None };
    let button = |(decision, label, style): (&str, &str, u8)| json!({"type": 2, "style": style, "label": label, "custom_id": format!("{BUTTON_PREFIX}{id}:{decision}")});
    let buttons: Vec<Value> = DECISIONS.into_iter().map(button).collect();
    Some(json!([{"type": 1, "components": buttons}]))
}

fn is_decision(word: &str) -> bool {
    let word = word.trim_end_matches(['.', ',', '`', ')']);
    DECISIONS.iter().any(|(decision, _, _)| word.split('|').any(|word| word == *decision))
}

fn is_approval_id(id: &str) -> bool {
    (1..=MAX_APPROVAL_ID).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Returns the commands in the form in which Discord registers them.
pub(super) fn registration(commands: &[(String, String)]) -> Vec<Value> {
    let mut names = Vec::new();
    let mut registered = Vec::new();
    for (name, description) in commands {
        let name = name.trim_start_matches('/').to_lowercase();
        let is_name = (1..=32).contains(&name.chars().count())
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
        if !is_name || names.contains(&name) || registered.len() >= MAX_COMMANDS {
            continue;
        }
        let description: String = description.chars().take(MAX_DESCRIPTION).collect();
        let description = if description.trim().is_empty() { name.clone() } else { description };
        let option = json!({"type": 3, "name": OPTION, "description": "what follows the command", "required": false});
        registered.push(json!({"name": name, "description": description, "type": 1, "options": [option]}));
        names.push(name);
    }
    registered
}

/// True if Discord has these commands already. Registering them again would count against a daily limit.
pub(super) fn is_registered(present: &Value, wanted: &[Value]) -> bool {
    let key = |command: &Value| (command["name"].to_string(), command["description"].to_string());
    let mut present: Vec<_> = present.as_array().into_iter().flatten().map(key).collect();
    let mut wanted: Vec<_> = wanted.iter().map(key).collect();
    present.sort();
    wanted.sort();
    present == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_command_becomes_its_text() {
        let command = |data: Value| kind(&json!({"type": 2, "data": data}));
        let text = |text: &str| Some(InteractionKind::Command(text.to_owned()));
        assert_eq!(command(json!({"name": "status", "type": 1})), text("/status"));
        let options = json!([{"name": "text", "type": 3, "value": " opus "}]);
        assert_eq!(command(json!({"name": "model", "options": options})), text("/model opus"));
        assert_eq!(command(json!({"name": "Report user", "type": 2})), None, "a command of a context menu");
        assert_eq!(kind(&json!({"type": 1})), None);
    }

    #[test]
    fn a_text_that_names_an_approval_has_buttons_that_decide_it() {
        let rows = buttons("Waiting. To allow it: `/approve a-1 allow-once`").unwrap();
        let ids: Vec<_> = rows[0]["components"].as_array().unwrap().iter().map(|button| &button["custom_id"]).collect();
        let texts: Vec<_> =
            ids.iter().map(|id| kind(&json!({"type": 3, "data": {"custom_id": id}})).unwrap()).collect();
        let expected = ["/approve a-1 allow-once", "/approve a-1 allow-always", "/approve a-1 deny"];
        assert_eq!(texts, expected.map(|text| InteractionKind::Approval(text.to_owned())));
        for text in ["none", "/approve", "/approve a-1", "/approve a/b deny", "/approve a-1 deny /approve b-2 deny"] {
            assert_eq!(buttons(text), None, "{text}");
        }
        for id in ["other:a-1:deny", "homard:approve:a-1:yes", "homard:approve::deny", "homard:approve:a b:deny"] {
            assert_eq!(kind(&json!({"type": 3, "data": {"custom_id": id}})), None, "{id}");
        }
    }

    #[test]
    fn commands_are_registered_in_the_form_that_discord_accepts() {
        let command = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let long = "x".repeat(200);
        let wanted = registration(&[
            command("/Status", &long),
            command("status", "twice"),
            command("no good", "x"),
            command("new", " "),
        ]);
        let names: Vec<_> = wanted.iter().map(|command| command["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["status", "new"]);
        assert_eq!(wanted[0]["description"].as_str().unwrap().len(), MAX_DESCRIPTION);
        assert_eq!(wanted[1]["description"], "new");
        let present = json!([
            {"id": "7", "name": "new", "description": "new"},
            {"id": "8", "name": "status", "description": "x".repeat(100)},
        ]);
        assert!(is_registered(&present, &wanted) && !is_registered(&json!([]), &wanted));
    }
}
