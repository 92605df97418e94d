//! Migration of transcript lines written by older versions.
//!
//! Version 1 had no ids and no parents, and its compactions refer to line numbers; version 2 has another name for
//! custom messages. Generated values depend only on the position in the file, so every read generates the same ones.

use homard_proto::{EntryId, transcript::Entry};
use serde_json::{Map, Value};

/// Migrates a transcript line of an older version to the current format; returns true if it changed.
///
/// `ids` are those of the preceding lines, including the header; `last` is the preceding entry, which becomes the
/// parent of a line without one.
pub(crate) fn complete(fields: &mut Map<String, Value>, ids: &[Option<EntryId>], last: Option<&Entry>) -> bool {
    let mut changed = false;
    if !fields.contains_key("id") {
        // Eight hex digits, like all entry ids.
        fields.insert("id".to_owned(), format!("{:08x}", ids.len()).into());
        changed = true;
    }
    if !fields.contains_key("parentId") {
        fields.insert("parentId".to_owned(), last.map(|last| last.id.as_str()).into());
        changed = true;
    }
    if !fields.contains_key("timestamp") {
        fields.insert("timestamp".to_owned(), last.map_or("", |last| last.timestamp.as_str()).into());
        changed = true;
    }
    if let Some(index) = fields.remove("firstKeptEntryIndex") {
        let first_kept = index.as_u64().and_then(|index| ids.get(usize::try_from(index).ok()?)?.as_ref());
        if let Some(first_kept) = first_kept {
            fields.insert("firstKeptEntryId".to_owned(), first_kept.as_str().into());
        }
        changed = true;
    }
    if let Some(Value::Object(message)) = fields.get_mut("message")
        && message.get("role").and_then(Value::as_str) == Some("hookMessage")
    {
        message.insert("role".to_owned(), "custom".into());
        changed = true;
    }
    changed
}

#[cfg(test)]
mod tests {
    use homard_proto::SessionId;
    use serde_json::json;

    use crate::transcript;

    // Case 84.
    #[test]
    fn a_transcript_of_version_one_is_completed_the_same_way_every_time() {
        let lines = [
            json!({"type":"session","id":"s","timestamp":"t0","cwd":"/w"}),
            json!({"type":"message","timestamp":"t1","message":{"role":"user","content":"a","timestamp":1}}),
            json!({"type":"message","timestamp":"t2","message":{"role":"hookMessage","content":"b","customType":"x"}}),
            json!({"type":"compaction","timestamp":"t3","summary":"c","firstKeptEntryIndex":2,"tokensBefore":9}),
        ];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let session = SessionId::parse("s").unwrap();
        let parsed = transcript::read(text.as_bytes(), &session);
        assert!(parsed.is_old && parsed.damaged == 0);
        let repaired = parsed.repaired_text();
        let values: Vec<serde_json::Value> =
            repaired.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        let expected = [
            json!({"type":"session","id":"s","timestamp":"t0","cwd":"/w","version":3}),
            json!({"type":"message","id":"00000001","parentId":null,"timestamp":"t1",
                "message":{"role":"user","content":"a","timestamp":1}}),
            json!({"type":"message","id":"00000002","parentId":"00000001","timestamp":"t2",
                "message":{"role":"custom","content":"b","customType":"x"}}),
            json!({"type":"compaction","id":"00000003","parentId":"00000002","timestamp":"t3",
                "summary":"c","firstKeptEntryId":"00000002","tokensBefore":9}),
        ];
        assert_eq!(values, expected);
        let again = transcript::read(&repaired, &session);
        assert!(again.is_intact());
        assert_eq!(again.entries, parsed.entries);
    }

    #[test]
    fn a_transcript_of_version_two_keeps_its_ids() {
        let text = concat!(
            r#"{"type":"session","version":2,"id":"s","timestamp":"t","cwd":"/w"}"#,
            "\n",
            r#"{"type":"message","id":"x","parentId":null,"timestamp":"t","message":{"role":"hookMessage","content":"b"}}"#,
            "\n"
        );
        let parsed = transcript::read(text.as_bytes(), &SessionId::parse("s").unwrap());
        assert_eq!((parsed.entries[0].id.as_str(), parsed.is_old), ("x", true));
        assert!(String::from_utf8(parsed.repaired_text()).unwrap().contains(r#""role":"custom""#));
    }
}
