//! Properties for arbitrary names, descriptions and messages.

use std::collections::BTreeSet;

use homard_workspace::skills::{
    DiscoveredSkills, HostEnvironment, PromptLimits, SkillRules, SkillSet, SlashCommand, block, commands, invoke,
};
use proptest::prelude::*;

use crate::skills::fixture::Fixture;

/// Builds a set of skills that are not on disk: copies of one that is, with name and description replaced.
fn skill_set_of(pairs: &[(String, String)]) -> SkillSet {
    let fixture = Fixture::new();
    fixture.skill("seed", "");
    let DiscoveredSkills { skills, problems } = fixture.discovered();
    let generated = pairs.iter().map(|(name, description)| {
        let mut skill = skills[0].clone();
        skill.name.clone_from(name);
        skill.description.clone_from(description);
        skill
    });
    SkillSet::new(
        DiscoveredSkills { skills: generated.collect(), problems },
        HostEnvironment::default(),
        SkillRules::default(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn command_names_are_plain_and_unique(
        names in prop::collection::vec("(\\PC{0,40}|[a-c_-]{1,3}|x{30,40}|skill)", 0..40),
    ) {
        let skill_set = skill_set_of(&names.into_iter().map(|name| (name, String::new())).collect::<Vec<_>>());
        let commands = commands(&skill_set, &["a", "b_2", "skill_2"]);
        let distinct: BTreeSet<_> = commands.iter().map(|command| command.name.clone()).collect();
        prop_assert_eq!(commands.len(), skill_set.skills.len());
        prop_assert_eq!(distinct.len(), commands.len());
        for SlashCommand { name, .. } in commands {
            let is_plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            prop_assert!(is_plain && (1..=32).contains(&name.len()), "{}", name);
            prop_assert!(!["a", "b_2", "skill", "skill_2"].contains(&name.as_str()), "{}", name);
        }
    }

    #[test]
    fn a_list_is_never_longer_than_allowed(
        pairs in prop::collection::vec(("\\PC{1,60}", "\\PC{0,300}"), 0..20),
        max_skills in 0_usize..25,
        chars in 0_usize..5_000,
    ) {
        let skill_set = skill_set_of(&pairs);
        let list = block(&skill_set, &PromptLimits { max_skills, chars }, None);
        prop_assert!(list.chars().count() <= chars || list.is_empty());
        prop_assert!(list.matches("  <skill>\n").count() <= max_skills);
    }

    #[test]
    fn no_message_makes_invoke_panic(text in "/?(skill )?\\PC{0,40}") {
        let skill_set = skill_set_of(&[("a b".to_owned(), String::new())]);
        let commands = commands(&skill_set, &[]);
        let call = invoke(&commands, &text);
        prop_assert!(call.is_none_or(|call| call.command == "a_b"));
    }
}
