//! The discovered skills and their eligibility.

use std::collections::BTreeMap;

use crate::skills::{
    discover::{DiscoveredSkills, SkillProblem},
    eligibility::{Eligibility, HostEnvironment, SkillRules, check_eligibility},
    skill::Skill,
};

/// Discovered skills with their eligibility on this machine and by the rules of the config.
///
/// An immutable snapshot: it does not change with the files. To detect changes, discover again and compare.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillSet {
    /// All discovered skills, usable or not, sorted by name.
    pub skills: Vec<JudgedSkill>,
    /// Problems and notes, sorted by path.
    pub problems: Vec<SkillProblem>,
    pub(crate) host: HostEnvironment,
    rules: SkillRules,
}

/// A skill and its eligibility.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedSkill {
    /// The skill.
    pub skill: Skill,
    /// Whether it can be used.
    pub verdict: Eligibility,
}

impl JudgedSkill {
    /// True if a run may use it.
    pub fn is_usable(&self) -> bool {
        self.verdict.is_eligible && !self.verdict.is_filtered_out
    }
}

impl SkillSet {
    /// Checks the eligibility of the discovered skills.
    pub fn new(discovered: DiscoveredSkills, host: HostEnvironment, rules: SkillRules) -> Self {
        let judged = |skill| JudgedSkill { verdict: check_eligibility(&skill, &host, &rules), skill };
        let skills = discovered.skills.into_iter().map(judged).collect();
        Self { skills, problems: discovered.problems, host, rules }
    }

    /// Returns the skills that a run may use, sorted by name.
    pub fn usable(&self) -> impl Iterator<Item = &Skill> {
        self.skills.iter().filter(|judged| judged.is_usable()).map(|judged| &judged.skill)
    }
}

/// Returns the environment variables for a run's commands: those that its skills request. They contain secrets: for
/// child processes only, never for a log.
///
/// The process environment takes precedence over the rules, and the first skill that provides a variable wins.
pub fn environment(skills: &SkillSet) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for skill in skills.usable() {
        let requested = skill.requires.env.iter().chain(&skill.primary_env);
        let from_host = requested.filter_map(|name| Some((name, skills.host.env.get(name)?)));
        let entry = skills.rules.entries.get(&skill.key);
        let key = skill.primary_env.as_ref().zip(entry.and_then(|entry| entry.api_key.as_ref()));
        let from_rules = entry.into_iter().flat_map(|entry| &entry.env).chain(key);
        let from_rules = from_rules.map(|(name, value)| (name, skills.host.env.get(name).unwrap_or(value)));
        for (name, value) in from_host.chain(from_rules) {
            if is_name(name) && !value.is_empty() && !value.contains('\0') {
                variables.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    variables
}

/// True if a name is valid for a variable: an invalid one would prevent a command from starting.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}
