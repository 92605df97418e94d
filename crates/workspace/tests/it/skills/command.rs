//! Tests of skills as slash commands.

use std::path::PathBuf;

use homard_workspace::skills::{Invocation, SlashCommand, ToolDispatch, commands, invoke, rewrite};

use crate::skills::fixture::Fixture;

fn command(fixture: &Fixture, name: &str, skill: &str) -> SlashCommand {
    SlashCommand {
        name: name.to_owned(),
        skill: skill.to_owned(),
        file: fixture.path(&format!("w/skills/{skill}/SKILL.md")),
        description: format!("Does {skill}."),
        dispatch: None,
    }
}

#[test]
fn commands_have_plain_unique_names() {
    let fixture = Fixture::new();
    let long = "a-name-that-is-longer-than-the-thirty-two-that-fit";
    for name in ["Two Words", "two-words", "status", "skill", "日本", long] {
        fixture.skill(name, "");
    }
    fixture.skill("private", "user-invocable: false");
    fixture.skill("lacking", "metadata: {openclaw: {requires: {bins: [x]}}}");
    let expected = [
        command(&fixture, "two_words", "Two Words"),
        command(&fixture, "a_name_that_is_longer_than_the_t", long),
        command(&fixture, "skill_2", "skill"),
        command(&fixture, "status_2", "status"),
        command(&fixture, "two_words_2", "two-words"),
        command(&fixture, "skill_3", "日本"),
    ];
    assert_eq!(commands(&fixture.skill_set(), &["Status", "help"]), expected);
}

#[test]
fn a_commands_description_is_truncated_and_its_tool_kept() {
    let fixture = Fixture::new();
    let front = format!("---\ndescription: {}\ncommand-dispatch: tool\ncommand-tool: adder\n---\n", "x".repeat(101));
    fixture.write("w/skills/a/SKILL.md", &front);
    let description = "x".repeat(99) + "…";
    let dispatch = Some(ToolDispatch { tool: "adder".to_owned() });
    assert_eq!(
        commands(&fixture.skill_set(), &[]),
        [SlashCommand { description, dispatch, ..command(&fixture, "a", "a") }]
    );
}

#[test]
fn a_message_invokes_a_skill_by_either_name() {
    let fixture = Fixture::new();
    fixture.skill("two words", "");
    fixture.skill("status", "");
    let commands = commands(&fixture.skill_set(), &["status"]);
    let invoked = |text: &str| invoke(&commands, text).map(|call| (call.command, call.args));
    let two = |args: &str| Some(("two_words".to_owned(), args.to_owned()));
    assert_eq!(invoked("/two_words"), two(""));
    assert_eq!(invoked("  /Two-Words  a  b\nc "), two("a  b\nc"));
    assert_eq!(invoked("/skill two-words x"), two("x"));
    assert_eq!(invoked("/SKILL\ntwo_words\nx"), two("x"));
    assert_eq!(invoked("/skill status now"), Some(("status_2".to_owned(), "now".to_owned())));
    for text in ["two_words", "/", "/skill", "/skill nobody", "/nobody", "/two", "//two_words", "/ two_words", ""] {
        assert_eq!(invoked(text), None, "{text}");
    }
}

#[test]
fn an_invocation_is_rewritten_with_the_file() {
    let call = |args: &str| Invocation {
        command: "a".to_owned(),
        skill: "A".to_owned(),
        file: PathBuf::from("/s/A/SKILL.md"),
        args: args.to_owned(),
        dispatch: None,
    };
    let instruction = "Read the skill \"A\" (/s/A/SKILL.md) and follow it for this request.";
    assert_eq!(rewrite(&call("")), instruction);
    assert_eq!(rewrite(&call("do\nit")), format!("{instruction}\n\nThe user wrote:\ndo\nit"));
}
