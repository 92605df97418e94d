//! Notes for a run besides its message: system events since the last run, and that the last run was stopped.
//!
//! Events are kept in the session's record until a run consumes them together with its message in one commit, so none
//! is lost or repeated. They are stored beside the text of the message, so that people see only their own text, and the
//! model reads the same bytes every time.

use std::sync::Arc;

use homard_proto::{
    message::{Block, Content, Message, User},
    session::Record,
};
use homard_store::Authority;
use serde::Deserialize;
use serde_json::{Value, json};

/// Field of a record with pending events.
const EVENTS_FIELD: &str = "systemEvents";

/// Member with the text of a stored event whose authority is limited. An event with full authority is stored as a plain
/// string.
const TEXT: &str = "text";

/// Member with the authority of such an event: that of the request that added it. A heartbeat that reads the event
/// has no higher authority.
const AUTHORITY: &str = "authority";

/// Field of a message with the notes of its run.
pub(super) const NOTES: &str = "notes";

/// Maximum number of pending events; the oldest are dropped first.
const MAX_EVENTS: usize = 20;

/// Maximum characters of an event.
const MAX_EVENT_CHARS: usize = 2_000;

/// Note after a stopped run.
const STOPPED_NOTE: &str = "The run before this message was stopped before it finished. \
                       Check the current state before you continue its work.";

/// Prefix of a system event in the notes of a message.
pub const EVENT: &str = "System event: ";

/// Builds an event for the record: a string if it has full authority, else an object with its text and authority.
fn event(text: String, authority: Authority) -> Value {
    if authority.is_full() { text.into() } else { json!({TEXT: text, AUTHORITY: authority}) }
}

fn text(event: &Value) -> Option<&str> {
    event.as_str().or_else(|| event.get(TEXT)?.as_str())
}

/// Returns the lowest authority among the pending events; full authority if there are none.
pub fn authority(record: &Record) -> Authority {
    let events = record.extra.get(EVENTS_FIELD).and_then(Value::as_array).into_iter().flatten();
    let authority_of =
        |event: &Value| event.get(AUTHORITY).map(|value| Authority::deserialize(value).unwrap_or(Authority::Limited));
    events.filter_map(authority_of).min().unwrap_or_default()
}

/// Returns a record with one more event.
pub fn add_event(record: &Record, text: &str, authority: Authority) -> Record {
    let mut record = record.clone();
    let mut events = match record.extra.shift_remove(EVENTS_FIELD) {
        Some(Value::Array(events)) => events,
        Some(_) | None => Vec::new(),
    };
    events.push(event(one_line(text), authority));
    events.drain(..events.len().saturating_sub(MAX_EVENTS));
    record.extra.insert(EVENTS_FIELD.to_owned(), events.into());
    record
}

/// True if there are pending events.
pub fn has_pending_events(record: &Record) -> bool {
    record.extra.get(EVENTS_FIELD).and_then(Value::as_array).is_some_and(|events| !events.is_empty())
}

/// Normalizes an event: one line, limited length, and no brackets, which distinguish it from what people write.
pub fn one_line(text: &str) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    joined.replace('[', "(").replace(']', ")").chars().take(MAX_EVENT_CHARS).collect()
}

/// Removes the notes for the next run from a record and returns them.
pub fn take(record: &mut Record) -> Vec<String> {
    let stopped = record.aborted_last_run == Some(true);
    let mut notes: Vec<_> = stopped.then(|| STOPPED_NOTE.to_owned()).into_iter().collect();
    if stopped {
        record.aborted_last_run = Some(false);
    }
    if let Some(Value::Array(events)) = record.extra.shift_remove(EVENTS_FIELD) {
        notes.extend(events.iter().filter_map(text).map(|event| format!("{EVENT}{event}")));
    }
    notes
}

/// Returns true if a note is a system event, not a note about the previous run.
pub fn is_event(note: &str) -> bool {
    note.starts_with(EVENT)
}

/// Returns true if a message has system events in its notes.
pub fn has_events(message: &Message) -> bool {
    let Message::User(user) = message else { return false };
    let notes = user.extra.get(NOTES).and_then(Value::as_array).into_iter().flatten();
    notes.filter_map(Value::as_str).any(is_event)
}

/// Adds notes to a message.
pub fn attach(message: &mut User, notes: &[String]) {
    if !notes.is_empty() {
        message.extra.insert(NOTES.to_owned(), json!(notes));
    }
}

/// Inserts the notes into the messages, as sent to a model.
pub fn insert_notes(messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    messages.into_iter().map(|message| with_notes(&message).map_or(message, Arc::new)).collect()
}

fn with_notes(message: &Message) -> Option<Message> {
    let Message::User(user) = message else { return None };
    let notes = user.extra.get(NOTES)?.as_array()?;
    let lines: Vec<_> = notes.iter().filter_map(Value::as_str).collect();
    let text = format!("[{}]\n\n", lines.join("]\n["));
    let mut user = user.clone();
    match &mut user.content {
        Content::Text(body) => body.insert_str(0, &text),
        Content::Blocks(blocks) => match blocks.first_mut() {
            Some(Block::Text(body)) => body.text.insert_str(0, &text),
            Some(Block::Image(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_)) | None => {
                blocks.insert(0, Block::text(text.trim_end()));
            }
        },
    }
    Some(Message::User(user))
}

#[cfg(test)]
mod tests {
    use homard_proto::SessionId;

    use super::*;

    #[test]
    fn events_are_consumed_once_and_stored_beside_the_text() {
        let mut record = Record::new(SessionId::parse("s").unwrap(), 0);
        record.aborted_last_run = Some(true);
        let mut record = add_event(&add_event(&record, " rain ", Authority::Full), "sun", Authority::Limited);
        assert_eq!(record.extra[EVENTS_FIELD], json!(["rain", {"text": "sun", "authority": "limited"}]));
        assert_eq!(authority(&record), Authority::Limited);
        let notes = take(&mut record);
        assert_eq!(authority(&record), Authority::Full);
        assert_eq!(notes, [STOPPED_NOTE, "System event: rain", "System event: sun"]);
        assert_eq!((take(&mut record), record.aborted_last_run), (Vec::new(), Some(false)));
        let mut user = User::text("hello", 1);
        attach(&mut user, &notes[1..]);
        assert_eq!(user.content.text(), "hello");
        let read = insert_notes(vec![Arc::new(Message::User(user))]);
        let Message::User(read) = &*read[0] else { panic!("{read:?}") };
        assert_eq!(read.content.text(), "[System event: rain]\n[System event: sun]\n\nhello");
    }

    #[test]
    fn the_oldest_excess_events_are_dropped() {
        let mut record = Record::new(SessionId::parse("s").unwrap(), 0);
        for number in 0..30 {
            record = add_event(&record, &number.to_string(), Authority::Full);
        }
        let notes = take(&mut record);
        assert_eq!((notes.len(), notes[0].as_str()), (MAX_EVENTS, "System event: 10"));
    }
}
