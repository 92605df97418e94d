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

fn compaction(id: &str, parent: &str, kept: &str) -> Entry {
    line(id, parent, json!({"type": "compaction", "summary": id, "firstKeptEntryId": kept, "tokensBefore": 9}))
}

fn words(history: &[Arc<Message>]) -> Vec<String> {
    let words = history.iter().map(|message| match &**message {
        Message::User(user) => user.content.text(),
        Message::Assistant(said) => said.text(),
        Message::ToolResult(_) | Message::Other(_) => panic!("{message:?}"),
    });
    words.collect()
}

fn seen(entries: &[Entry]) -> Vec<String> {
    let short = |text: String| match text.split_once("<summary>\n") {
        Some((_, rest)) => format!("summary {}", rest.trim_end_matches("\n</summary>")),
        None => text,
    };
    words(&messages(entries)).into_iter().map(short).collect()
}

#[test]
fn only_the_last_branch_counts() {
    let tree = [entry("a", None), entry("b", Some("a")), entry("c", Some("a")), entry("d", Some("c"))];
    assert_eq!(seen(&tree), ["a", "c", "d"]);
}

#[test]
fn a_lost_parent_costs_only_its_own_line() {
    assert_eq!(seen(&[entry("b", Some("gone")), entry("c", Some("b"))]), ["b", "c"]);
    assert_eq!(seen(&[entry("a", None), entry("c", Some("gone")), entry("d", Some("c"))]), ["a", "c", "d"]);
}

#[test]
fn a_circle_ends_and_a_repeated_line_counts_once() {
    assert_eq!(seen(&[entry("a", Some("b")), entry("b", Some("a"))]), ["a", "b"]);
    assert_eq!(seen(&[entry("a", Some("a"))]), ["a"]);
    let twice = [entry("a", None), entry("b", Some("a")), entry("b", Some("a")), entry("c", Some("b"))];
    assert_eq!(seen(&twice), ["a", "b", "c"]);
    assert_eq!(seen(&[]), Vec::<String>::new());
}

// Pitfall 34: such entries were written without a parent and hid everything before them.
#[test]
fn a_message_without_a_parent_follows_the_line_before_it() {
    let raw = json!({"type": "message", "id": "b", "timestamp": "t", "message": {"role": "user", "content": "b"}});
    let raw = serde_json::from_value(raw).unwrap();
    assert_eq!(seen(&[entry("a", None), raw, entry("c", Some("b"))]), ["a", "b", "c"]);
}

#[test]
fn another_line_without_a_parent_is_a_new_beginning() {
    let change = json!({"type": "model_change", "provider": "p", "modelId": "m", "id": "b", "timestamp": "t"});
    let change = serde_json::from_value(change).unwrap();
    assert_eq!(seen(&[entry("a", None), change, entry("c", Some("b"))]), ["c"]);
}

// Case 85.
#[test]
fn after_a_compaction_come_its_summary_what_it_kept_and_what_follows() {
    let tree = [
        entry("a", None),
        entry("k", Some("a")),
        entry("l", Some("k")),
        compaction("s", "l", "k"),
        entry("m", Some("s")),
    ];
    assert_eq!(seen(&tree), ["summary s", "k", "l", "m"]);
    assert_eq!(words(&all_messages(&tree)), ["a", "k", "l", "m"]);
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
    assert_eq!(seen(&tree), ["summary t", "a", "b", "c", "d"]);
}

#[test]
fn an_undone_compaction_counts_no_more_and_the_one_before_it_does() {
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
    assert_eq!(seen(&tree), ["summary t", "c", "d"]);
    tree.push(undo("u", "d", "t"));
    tree.push(entry("e", Some("u")));
    assert_eq!(seen(&tree), ["summary s", "b", "c", "d", "e"]);
    let told = |tree: &[Entry]| -> Vec<_> {
        compactions(tree).into_iter().map(|one| (one.id.to_string(), one.tokens_before, one.is_undone)).collect()
    };
    assert_eq!(told(&tree), [("s".to_owned(), Some(9), false), ("t".to_owned(), Some(9), true)]);
    tree.push(undo("v", "e", "s"));
    assert_eq!(seen(&tree), ["a", "b", "c", "d", "e"]);
}

#[test]
fn lines_that_a_later_one_leaves_out_are_not_told_and_stay_in_the_transcript() {
    let mark = |id: &str, parent: &str, first: &str| Entry {
        kind: Kind::exclusion(&EntryId::parse(first).unwrap()),
        id: EntryId::parse(id).unwrap(),
        parent_id: Some(EntryId::parse(parent).unwrap()),
        timestamp: "t".to_owned(),
    };
    let mut tree = vec![
        entry("a", None),
        entry("b", Some("a")),
        entry("c", Some("b")),
        mark("m", "c", "b"),
        entry("d", Some("m")),
        // A mark naming an entry that does not exist is ignored.
        mark("n", "d", "gone"),
        mark("o", "n", "e"),
        entry("e", Some("o")),
    ];
    assert_eq!(seen(&tree), ["a", "d", "e"]);
    assert_eq!(all_messages(&tree).len(), 5);
    tree.push(compaction("s", "e", "a"));
    assert_eq!(seen(&tree), ["summary s", "a", "d", "e"]);
}

#[test]
fn a_compaction_that_keeps_a_line_which_is_not_before_it_keeps_none() {
    for kept in ["gone", "beside", "c"] {
        let tree = [
            entry("a", None),
            entry("beside", Some("a")),
            entry("b", Some("a")),
            compaction("s", "b", kept),
            entry("c", Some("s")),
        ];
        assert_eq!(seen(&tree), ["summary s", "c"], "{kept}");
    }
}

#[test]
fn summaries_of_branches_and_notes_are_told_by_the_user() {
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
    assert_eq!(seen(&tree), ["a", "summary tried x", "a note", "b"]);
}

fn bash(fields: &Value) -> Vec<String> {
    let mut message = json!({"role": "bashExecution", "command": "ls", "timestamp": 5});
    for (name, value) in fields.as_object().unwrap() {
        message[name] = value.clone();
    }
    seen(&[line("a", "-", json!({"type": "message", "message": message}))])
}

#[test]
fn a_command_of_the_users_is_told_unless_it_was_kept_out() {
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
fn a_message_with_a_strange_field_still_counts() {
    let message = |message: Value| line("a", "-", json!({"type": "message", "message": message}));
    let told = |fields: Value| messages(&[message(fields)]);
    let answer = |text: &str| Assistant { content: vec![Block::text(text)], ..Assistant::default() };
    assert_eq!(told(json!({"role": "assistant", "content": "plain"})), [Arc::new(Message::Assistant(answer("plain")))]);
    assert_eq!(
        told(
            json!({"role": "assistant", "content": [{"type": "text", "text": "x"}], "stopReason": "end_turn", "usage": null})
        ),
        [Arc::new(Message::Assistant(answer("x")))]
    );
    let result = told(json!({"role": "toolResult", "toolCallId": "1", "content": "out", "isError": true}));
    let Message::ToolResult(result) = &*result[0] else { panic!("{result:?}") };
    assert_eq!(
        (result.tool_name.as_str(), result.is_error, &result.content),
        ("unknown", true, &vec![Block::text("out")])
    );
    assert_eq!(told(json!({"role": "oracle", "content": "hm"})), []);
    assert_eq!(told(json!({"role": "user"})), []);
}

// Case 96.
#[test]
fn a_limit_of_turns_keeps_the_last_ones_and_what_follows() {
    let answer = || Arc::new(Message::Assistant(Assistant { content: vec![Block::text("A")], ..Assistant::default() }));
    let user = |text: &str| Arc::new(Message::User(User::text(text, 0)));
    let history = [user("1"), answer(), user("2"), answer(), user("3"), answer()];
    let kept = |turns| words(last_turns(&history, turns));
    assert_eq!(kept(2), ["2", "A", "3", "A"]);
    assert_eq!(kept(1), ["3", "A"]);
    for unlimited in [0, 3, 99] {
        assert_eq!(kept(unlimited).len(), 6);
    }
    assert_eq!(last_turns(&[answer()], 1), [answer()]);
}
