//! Tests of the list of skills for a model.

use homard_workspace::skills::{PromptLimits, block};

use crate::skills::fixture::Fixture;

const INTRO: &str = "\
Skills are instructions for particular kinds of work.
When one fits the request, read the file at its location before you act, and follow it.
A relative path in that file starts from the folder in which the file lies.

<available_skills>
";

fn list_of(fixture: &Fixture, max_skills: usize, chars: usize) -> String {
    block(&fixture.skill_set(), &PromptLimits { max_skills, chars }, Some(fixture.home.path()))
}

#[test]
fn the_list_contains_only_skills_for_the_model() {
    let fixture = Fixture::new();
    fixture.write("w/skills/a/SKILL.md", "---\nname: a<b>\ndescription: |\n  One & \"two\"\n  lines.\n---\n");
    fixture.skill("hidden", "disable-model-invocation: true");
    fixture.skill("lacking", "metadata: {openclaw: {requires: {bins: [x]}}}");
    let list = |root: &str| {
        format!(
            "{INTRO}  <skill>\n    <name>a&lt;b&gt;</name>\n    <description>One &amp; &quot;two&quot; lines.</description>\n    \
             <location>{root}/w/skills/a/SKILL.md</location>\n  </skill>\n</available_skills>"
        )
    };
    assert_eq!(list_of(&fixture, 150, 30_000), list("~"));
    let home = fixture.home.path().to_str().unwrap();
    assert_eq!(block(&fixture.skill_set(), &PromptLimits::default(), None), list(home));
}

#[test]
fn a_list_that_is_too_long_omits_descriptions_then_skills() {
    let fixture = Fixture::new();
    for name in ["a", "b", "c"] {
        fixture.skill(name, "");
    }
    let short = |name: &str| {
        format!("  <skill>\n    <name>{name}</name>\n    <location>~/w/skills/{name}/SKILL.md</location>\n  </skill>\n")
    };
    let full = list_of(&fixture, 150, 30_000);
    let all = format!("{INTRO}{}{}{}</available_skills>", short("a"), short("b"), short("c"));
    let one = format!("{INTRO}{}</available_skills>\n2 more skills are not listed here.", short("a"));
    assert_eq!(list_of(&fixture, 150, full.len()), full);
    assert_eq!(list_of(&fixture, 150, full.len() - 1), all);
    assert_eq!(list_of(&fixture, 150, all.len()), all);
    assert_eq!(list_of(&fixture, 150, one.len()), one);
    assert_eq!(list_of(&fixture, 150, one.len() - 1), "");
    let two = list_of(&fixture, 2, 30_000);
    assert_eq!(two.lines().last(), Some("1 more skill is not listed here."));
    assert!(two.contains("<description>Does b.</description>") && !two.contains("<name>c</name>"), "{two}");
    assert_eq!(list_of(&fixture, 0, 30_000), "");
}

#[test]
fn a_long_description_is_cut() {
    let fixture = Fixture::new();
    fixture.write("w/skills/a/SKILL.md", &format!("---\ndescription: {}\n---\n", "é".repeat(2_000)));
    let list = list_of(&fixture, 150, 30_000);
    assert!(list.contains(&format!("<description>{}…</description>", "é".repeat(1_023))), "{list}");
}
