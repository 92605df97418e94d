//! Tests of skills as slash commands.

use std::path::PathBuf;

use homard_skills::{Invocation, SlashCommand, ToolDispatch, commands, invoke, rewrite};

use crate::bench::Bench;

fn command(bench: &Bench, name: &str, skill: &str) -> SlashCommand {
    SlashCommand {
        name: name.to_owned(),
        skill: skill.to_owned(),
        file: bench.path(&format!("w/skills/{skill}/SKILL.md")),
        description: format!("Does {skill}."),
        dispatch: None,
    }
}

#[test]
fn commands_have_plain_names_unlike_each_other() {
    let bench = Bench::new();
    let long = "a-name-that-is-longer-than-the-thirty-two-that-fit";
    for name in ["Two Words", "two-words", "status", "skill", "日本", long] {
        bench.skill(name, "");
    }
    bench.skill("private", "user-invocable: false");
    bench.skill("lacking", "metadata: {openclaw: {requires: {bins: [x]}}}");
    let expected = [
        command(&bench, "two_words", "Two Words"),
        command(&bench, "a_name_that_is_longer_than_the_t", long),
        command(&bench, "skill_2", "skill"),
        command(&bench, "status_2", "status"),
        command(&bench, "two_words_2", "two-words"),
        command(&bench, "skill_3", "日本"),
    ];
    assert_eq!(commands(&bench.book(), &["Status", "help"]), expected);
}

#[test]
fn a_description_of_a_command_is_cut_and_its_tool_kept() {
    let bench = Bench::new();
    let front = format!("---\ndescription: {}\ncommand-dispatch: tool\ncommand-tool: adder\n---\n", "x".repeat(101));
    bench.write("w/skills/a/SKILL.md", &front);
    let description = "x".repeat(99) + "…";
    let dispatch = Some(ToolDispatch { tool: "adder".to_owned() });
    assert_eq!(commands(&bench.book(), &[]), [SlashCommand { description, dispatch, ..command(&bench, "a", "a") }]);
}

#[test]
fn a_message_calls_a_skill_by_either_name() {
    let bench = Bench::new();
    bench.skill("two words", "");
    bench.skill("status", "");
    let commands = commands(&bench.book(), &["status"]);
    let called = |text: &str| invoke(&commands, text).map(|call| (call.command, call.args));
    let two = |args: &str| Some(("two_words".to_owned(), args.to_owned()));
    assert_eq!(called("/two_words"), two(""));
    assert_eq!(called("  /Two-Words  a  b\nc "), two("a  b\nc"));
    assert_eq!(called("/skill two-words x"), two("x"));
    assert_eq!(called("/SKILL\ntwo_words\nx"), two("x"));
    assert_eq!(called("/skill status now"), Some(("status_2".to_owned(), "now".to_owned())));
    for text in ["two_words", "/", "/skill", "/skill nobody", "/nobody", "/two", "//two_words", "/ two_words", ""] {
        assert_eq!(called(text), None, "{text}");
    }
}

#[test]
fn a_call_is_told_to_a_model_with_the_file() {
    let call = |args: &str| Invocation {
        command: "a".to_owned(),
        skill: "A".to_owned(),
        file: PathBuf::from("/s/A/SKILL.md"),
        args: args.to_owned(),
        dispatch: None,
    };
    let ask = "Read the skill \"A\" (/s/A/SKILL.md) and follow it for this request.";
    assert_eq!(rewrite(&call("")), ask);
    assert_eq!(rewrite(&call("do\nit")), format!("{ask}\n\nThe user wrote:\ndo\nit"));
}
