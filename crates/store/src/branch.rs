//! From a transcript's tree to the straight line that a model sees.

use std::{collections::HashMap, sync::Arc};

use homard_proto::{
    message::Message,
    transcript::{Entry, Kind},
};

/// The messages on the way from the root to the last line, oldest first.
///
/// A parent that is not in the file ends the walk: what is before it is lost, what is after it still counts.
pub fn messages(entries: &[Entry]) -> Vec<Arc<Message>> {
    let place: HashMap<_, _> = entries.iter().enumerate().map(|(at, entry)| (&entry.id, at)).collect();
    let mut path = Vec::new();
    let mut at = entries.len().checked_sub(1);
    while let Some(here) = at {
        let entry = &entries[here];
        if let Kind::Message(said) = &entry.kind {
            path.push(Arc::new(said.message.clone()));
        }
        // A parent always stands before its child; a file that says otherwise would send us in circles.
        at = entry.parent_id.as_ref().and_then(|parent| place.get(parent)).copied().filter(|&parent| parent < here);
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use homard_proto::{EntryId, message::User};

    use super::*;

    fn entry(id: &str, parent: Option<&str>) -> Entry {
        Entry {
            kind: Kind::message(Message::User(User::text(id, 0))),
            id: EntryId::parse(id).unwrap(),
            parent_id: parent.map(|parent| EntryId::parse(parent).unwrap()),
            timestamp: String::new(),
        }
    }

    fn told(entries: &[Entry]) -> Vec<String> {
        messages(entries)
            .iter()
            .map(|message| match &**message {
                Message::User(user) => user.content.text(),
                Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => panic!("{message:?}"),
            })
            .collect()
    }

    #[test]
    fn only_the_last_branch_counts() {
        let tree = [entry("a", None), entry("b", Some("a")), entry("c", Some("a")), entry("d", Some("c"))];
        assert_eq!(told(&tree), ["a", "c", "d"]);
    }

    #[test]
    fn a_missing_parent_and_a_circle_end_the_walk() {
        assert_eq!(told(&[entry("b", Some("gone")), entry("c", Some("b"))]), ["b", "c"]);
        assert_eq!(told(&[entry("a", Some("b")), entry("b", Some("a"))]), ["a", "b"]);
        assert_eq!(told(&[]), Vec::<String>::new());
    }
}
