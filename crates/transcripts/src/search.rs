//! The search for a text in the messages of sessions.

use serde_json::{Value, json};

use crate::{Error, MessageSource, ShownMessage, sequence_number};

/// Characters of a match that are shown, and how many of them before it.
const MAX_SNIPPET: usize = 160;
const SNIPPET_START: usize = 40;

/// Returns the matching messages, newest first in each session.
pub async fn search(
    source: &mut MessageSource,
    text: &str,
    only: Option<String>,
    limit: usize,
) -> Result<Vec<Value>, Error> {
    let keys = match only {
        Some(key) => vec![key],
        None => source.keys().await?,
    };
    let wanted = text.to_lowercase();
    let mut found = Vec::new();
    for key in keys {
        let Some(conversation) = source.conversation(&key, None).await? else { continue };
        for message in conversation.messages.iter().rev() {
            let shown = ShownMessage::new(message);
            let texts = std::iter::once(&shown.text).chain(&shown.calls);
            let Some(snippet) = texts.flat_map(|text| text.lines()).find_map(|line| snippet(line, &wanted)) else {
                continue;
            };
            found.push(json!({
                "key": key, "sessionId": conversation.session_id, "id": message["__openclaw"]["id"],
                "seq": sequence_number(message), "from": shown.author, "timestamp": message["timestamp"],
                "snippet": snippet,
            }));
            if found.len() >= limit {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Returns the part of a line around a text in lower case, if the line contains it.
fn snippet(line: &str, wanted: &str) -> Option<String> {
    let lower = line.to_lowercase();
    let at = lower.find(wanted)?;
    let start = lower[..at].chars().count().saturating_sub(SNIPPET_START);
    let part: String = line.chars().skip(start).take(MAX_SNIPPET).collect();
    Some(part.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snippet_surrounds_the_match() {
        assert_eq!(snippet("We need MILK today", "milk").as_deref(), Some("We need MILK today"));
        let long = format!("{}MILK{}", "é".repeat(100), "ö".repeat(300));
        let found = snippet(&long, "milk").unwrap();
        assert_eq!((found.chars().count(), found.find("MILK")), (160, Some(80)));
        assert_eq!(snippet("nothing", "milk"), None);
    }
}
