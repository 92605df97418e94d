//! Tests of the list of skills for a model.

use homard_skills::{PromptLimits, block};

use crate::bench::Bench;

const INTRO: &str = "\
Skills are instructions for particular kinds of work.
When one fits the request, read the file at its location before you act, and follow it.
A relative path in that file starts from the folder in which the file lies.

<available_skills>
";

fn told(bench: &Bench, most: usize, chars: usize) -> String {
    block(&bench.book(), &PromptLimits { max_skills: most, chars }, Some(bench.home.path()))
}

#[test]
fn the_list_names_what_a_model_may_use() {
    let bench = Bench::new();
    bench.write("w/skills/a/SKILL.md", "---\nname: a<b>\ndescription: |\n  One & \"two\"\n  lines.\n---\n");
    bench.skill("hidden", "disable-model-invocation: true");
    bench.skill("lacking", "metadata: {openclaw: {requires: {bins: [x]}}}");
    let list = |root: &str| {
        format!(
            "{INTRO}  <skill>\n    <name>a&lt;b&gt;</name>\n    <description>One &amp; &quot;two&quot; lines.</description>\n    \
             <location>{root}/w/skills/a/SKILL.md</location>\n  </skill>\n</available_skills>"
        )
    };
    assert_eq!(told(&bench, 150, 30_000), list("~"));
    let home = bench.home.path().to_str().unwrap();
    assert_eq!(block(&bench.book(), &PromptLimits::default(), None), list(home));
}

#[test]
fn a_list_that_is_too_long_goes_without_descriptions_and_then_without_skills() {
    let bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.skill(name, "");
    }
    let short = |name: &str| {
        format!("  <skill>\n    <name>{name}</name>\n    <location>~/w/skills/{name}/SKILL.md</location>\n  </skill>\n")
    };
    let full = told(&bench, 150, 30_000);
    let all = format!("{INTRO}{}{}{}</available_skills>", short("a"), short("b"), short("c"));
    let one = format!("{INTRO}{}</available_skills>\n2 more skills are not listed here.", short("a"));
    assert_eq!(told(&bench, 150, full.len()), full);
    assert_eq!(told(&bench, 150, full.len() - 1), all);
    assert_eq!(told(&bench, 150, all.len()), all);
    assert_eq!(told(&bench, 150, one.len()), one);
    assert_eq!(told(&bench, 150, one.len() - 1), "");
    let two = told(&bench, 2, 30_000);
    assert_eq!(two.lines().last(), Some("1 more skill is not listed here."));
    assert!(two.contains("<description>Does b.</description>") && !two.contains("<name>c</name>"), "{two}");
    assert_eq!(told(&bench, 0, 30_000), "");
}

#[test]
fn a_long_description_is_cut() {
    let bench = Bench::new();
    bench.write("w/skills/a/SKILL.md", &format!("---\ndescription: {}\n---\n", "é".repeat(2_000)));
    let list = told(&bench, 150, 30_000);
    assert!(list.contains(&format!("<description>{}…</description>", "é".repeat(1_023))), "{list}");
}
