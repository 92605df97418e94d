//! Tests of the history that a model sees of a transcript.

use homard_proto::message::{Assistant, Block, User};
use serde_json::json;

use super::*;

fn entry(id: &str, parent: Option<&str>) -> Entry {
    Entry {
        kind: Kind::message(Message::User(User::text(id, 0))),
        id: EntryId::parse(id).unwrap(),
        parent_id: parent.map(|parent| EntryId::parse(parent).unwrap()),
        timestamp: String::new(),
    }
}

/// An entry as it is on disk.
fn line(id: &str, parent: &str, mut fields: Value) -> Entry {
    fields["id"] = id.into();
    fields["parentId"] = parent.into();
    fields["timestamp"] = "t".into();
    serde_json::from_value(fields).unwrap()
}

fn compaction(id: &str, parent: &str, first_kept: &str) -> Entry {
    line(id, parent, json!({"type": "compaction", "summary": id, "firstKeptEntryId": first_kept, "tokensBefore": 9}))
}

fn texts(history: &[Arc<Message>]) -> Vec<String> {
    let texts = history.iter().map(|message| match &**message {
        Message::User(user) => user.content.text(),
        Message::Assistant(assistant) => assistant.text(),
        Message::ToolResult(_) | Message::Other(_) => panic!("{message:?}"),
    });
    texts.collect()
}

fn visible_texts(entries: &[Entry]) -> Vec<String> {
    let shorten = |text: String| match text.split_once("<summary>\n") {
        Some((_, rest)) => format!("summary {}", rest.trim_end_matches("\n</summary>")),
        None => text,
    };
    texts(&messages(entries)).into_iter().map(shorten).collect()
}

#[test]
fn only_the_last_branch_counts() {
    let tree = [entry("a", None), entry("b", Some("a")), entry("c", Some("a")), entry("d", Some("c"))];
    assert_eq!(visible_texts(&tree), ["a", "c", "d"]);
}

#[test]
fn an_entry_with_a_lost_parent_follows_the_previous_entry() {
    assert_eq!(visible_texts(&[entry("b", Some("gone")), entry("c", Some("b"))]), ["b", "c"]);
    assert_eq!(visible_texts(&[entry("a", None), entry("c", Some("gone")), entry("d", Some("c"))]), ["a", "c", "d"]);
}

#[test]
fn a_parent_cycle_ends_and_a_repeated_entry_counts_once() {
    assert_eq!(visible_texts(&[entry("a", Some("b")), entry("b", Some("a"))]), ["a", "b"]);
    assert_eq!(visible_texts(&[entry("a", Some("a"))]), ["a"]);
    let twice = [entry("a", None), entry("b", Some("a")), entry("b", Some("a")), entry("c", Some("b"))];
    assert_eq!(visible_texts(&twice), ["a", "b", "c"]);
    assert_eq!(visible_texts(&[]), Vec::<String>::new());
}

// Pitfall 34: such entries were written without a parent and hid everything before them.
#[test]
fn a_message_without_a_parent_follows_the_previous_entry() {
    let raw = json!({"type": "message", "id": "b", "timestamp": "t", "message": {"role": "user", "content": "b"}});
    let raw = serde_json::from_value(raw).unwrap();
    assert_eq!(visible_texts(&[entry("a", None), raw, entry("c", Some("b"))]), ["a", "b", "c"]);
}

#[test]
fn an_entry_of_another_type_without_a_parent_is_a_new_root() {
    let change = json!({"type": "model_change", "provider": "p", "modelId": "m", "id": "b", "timestamp": "t"});
    let change = serde_json::from_value(change).unwrap();
    assert_eq!(visible_texts(&[entry("a", None), change, entry("c", Some("b"))]), ["c"]);
}

// Case 85. The compaction `s` summarizes `a` and keeps the entries from `k` on.
#[test]
fn after_a_compaction_come_the_summary_kept_and_later_entries() {
    let tree = [
        entry("a", None),
        entry("k", Some("a")),
        entry("l", Some("k")),
        compaction("s", "l", "k"),
        entry("m", Some("s")),
    ];
    assert_eq!(visible_texts(&tree), ["summary s", "k", "l", "m"]);
    assert_eq!(texts(&all_messages(&tree)), ["a", "k", "l", "m"]);
}

#[test]
fn the_last_compaction_on_the_path_wins() {
    let tree = [
        entry("a", None),
        compaction("s", "a", "a"),
        entry("b", Some("s")),
        compaction("t", "b", "a"),
        entry("c", Some("t")),
        compaction("elsewhere", "b", "b"),
        entry("d", Some("c")),
    ];
    assert_eq!(visible_texts(&tree), ["summary t", "a", "b", "c", "d"]);
}

#[test]
fn an_undone_compaction_is_ignored_and_the_one_before_it_applies() {
    let undo = |id: &str, parent: &str, compaction: &str| Entry {
        kind: Kind::compaction_undone(&EntryId::parse(compaction).unwrap()),
        id: EntryId::parse(id).unwrap(),
        parent_id: Some(EntryId::parse(parent).unwrap()),
        timestamp: "t".to_owned(),
    };
    let mut tree = vec![
        entry("a", None),
        entry("b", Some("a")),
        compaction("s", "b", "b"),
        entry("c", Some("s")),
        compaction("t", "c", "c"),
        entry("d", Some("t")),
    ];
    assert_eq!(visible_texts(&tree), ["summary t", "c", "d"]);
    tree.push(undo("u", "d", "t"));
    tree.push(entry("e", Some("u")));
    assert_eq!(visible_texts(&tree), ["summary s", "b", "c", "d", "e"]);
    let summaries = |tree: &[Entry]| -> Vec<_> {
        compactions(tree).into_iter().map(|info| (info.id.to_string(), info.tokens_before, info.is_undone)).collect()
    };
    assert_eq!(summaries(&tree), [("s".to_owned(), Some(9), false), ("t".to_owned(), Some(9), true)]);
    tree.push(undo("v", "e", "s"));
    assert_eq!(visible_texts(&tree), ["a", "b", "c", "d", "e"]);
}

#[test]
fn excluded_entries_are_hidden_and_stay_in_the_transcript() {
    let exclude = |id: &str, parent: &str, first: &str| Entry {
        kind: Kind::exclusion(&EntryId::parse(first).unwrap()),
        id: EntryId::parse(id).unwrap(),
        parent_id: Some(EntryId::parse(parent).unwrap()),
        timestamp: "t".to_owned(),
    };
    let mut tree = vec![
        entry("a", None),
        entry("b", Some("a")),
        entry("c", Some("b")),
        exclude("m", "c", "b"),
        entry("d", Some("m")),
        // A mark naming an entry that does not exist is ignored.
        exclude("n", "d", "gone"),
        exclude("o", "n", "e"),
        entry("e", Some("o")),
    ];
    assert_eq!(visible_texts(&tree), ["a", "d", "e"]);
    assert_eq!(all_messages(&tree).len(), 5);
    tree.push(compaction("s", "e", "a"));
    assert_eq!(visible_texts(&tree), ["summary s", "a", "d", "e"]);
}

#[test]
fn a_compaction_that_names_a_later_entry_keeps_none() {
    for first_kept in ["gone", "beside", "c"] {
        let tree = [
            entry("a", None),
            entry("beside", Some("a")),
            entry("b", Some("a")),
            compaction("s", "b", first_kept),
            entry("c", Some("s")),
        ];
        assert_eq!(visible_texts(&tree), ["summary s", "c"], "{first_kept}");
    }
}

#[test]
fn branch_summaries_and_notes_become_user_messages() {
    let tree = [
        entry("a", None),
        line("b", "a", json!({"type": "branch_summary", "fromId": "x", "summary": "tried x"})),
        line("c", "b", json!({"type": "custom_message", "customType": "n", "content": "a note", "display": true})),
        line(
            "d",
            "c",
            json!({"type": "custom_message", "customType": "n", "content": [{"type": "text", "text": "b"}]}),
        ),
        line("e", "d", json!({"type": "custom", "customType": "model-snapshot", "data": {"content": "hidden"}})),
        line("f", "e", json!({"type": "label", "targetId": "a", "label": "hidden"})),
    ];
    assert_eq!(visible_texts(&tree), ["a", "summary tried x", "a note", "b"]);
}

fn bash(fields: &Value) -> Vec<String> {
    let mut message = json!({"role": "bashExecution", "command": "ls", "timestamp": 5});
    for (name, value) in fields.as_object().unwrap() {
        message[name] = value.clone();
    }
    visible_texts(&[line("a", "-", json!({"type": "message", "message": message}))])
}

#[test]
fn a_user_command_is_visible_unless_excluded() {
    assert_eq!(bash(&json!({"output": "a\nb\n", "exitCode": 0})), ["Ran `ls`\n```\na\nb\n```"]);
    assert_eq!(bash(&json!({"exitCode": 2})), ["Ran `ls`\n(no output)\nThe command ended with code 2."]);
    assert_eq!(
        bash(&json!({"output": "```", "cancelled": true})),
        ["Ran `ls`\n````\n```\n````\nThe command was stopped."]
    );
    assert_eq!(
        bash(&json!({"output": "z", "truncated": true, "fullOutputPath": "/tmp/o"})),
        ["Ran `ls`\n```\nz\n```\nThe beginning of the output is left out. All of it is in /tmp/o."]
    );
    assert_eq!(bash(&json!({"output": "x", "excludeFromContext": true})), Vec::<String>::new());
    let long = bash(&json!({"output": "é".repeat(40_000)}));
    assert_eq!(long[0].chars().filter(|&c| c == 'é').count(), 30_000);
}

#[test]
fn a_message_with_a_malformed_field_is_salvaged() {
    let message = |message: Value| line("a", "-", json!({"type": "message", "message": message}));
    let visible = |fields: Value| messages(&[message(fields)]);
    let answer = |text: &str| Assistant { content: vec![Block::text(text)], ..Assistant::default() };
    assert_eq!(
        visible(json!({"role": "assistant", "content": "plain"})),
        [Arc::new(Message::Assistant(answer("plain")))]
    );
    assert_eq!(
        visible(
            json!({"role": "assistant", "content": [{"type": "text", "text": "x"}], "stopReason": "end_turn", "usage": null})
        ),
        [Arc::new(Message::Assistant(answer("x")))]
    );
    let result = visible(json!({"role": "toolResult", "toolCallId": "1", "content": "out", "isError": true}));
    let Message::ToolResult(result) = &*result[0] else { panic!("{result:?}") };
    assert_eq!(
        (result.tool_name.as_str(), result.is_error, &result.content),
        ("unknown", true, &vec![Block::text("out")])
    );
    assert_eq!(visible(json!({"role": "oracle", "content": "hm"})), []);
    assert_eq!(visible(json!({"role": "user"})), []);
}

// Case 96.
#[test]
fn a_turn_limit_keeps_the_last_turns_and_what_follows() {
    let answer = || Arc::new(Message::Assistant(Assistant { content: vec![Block::text("A")], ..Assistant::default() }));
    let user = |text: &str| Arc::new(Message::User(User::text(text, 0)));
    let history = [user("1"), answer(), user("2"), answer(), user("3"), answer()];
    let last_texts = |turns| texts(last_turns(&history, turns));
    assert_eq!(last_texts(2), ["2", "A", "3", "A"]);
    assert_eq!(last_texts(1), ["3", "A"]);
    for unlimited in [0, 3, 99] {
        assert_eq!(last_texts(unlimited).len(), 6);
    }
    assert_eq!(last_turns(&[answer()], 1), [answer()]);
}
