//! The skills that were found, and what became of each.

use std::collections::BTreeMap;

use crate::{
    discover::{Found, Problem},
    gate::{Host, Rules, Verdict, judge},
    skill::Skill,
};

/// What was found, judged by a machine and by a user's rules.
///
/// A value: it does not change when files do. Whoever wants to know discovers again and compares.
#[derive(Debug, Clone, PartialEq)]
pub struct Book {
    /// Every skill, by name.
    pub skills: Vec<Judged>,
    /// What is wrong or worth knowing, by path.
    pub problems: Vec<Problem>,
    pub(crate) host: Host,
    rules: Rules,
}

/// A skill and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The skill.
    pub skill: Skill,
    /// What became of it.
    pub verdict: Verdict,
}

impl Judged {
    /// Whether a run may use it.
    pub fn is_usable(&self) -> bool {
        self.verdict.is_eligible && !self.verdict.is_filtered_out
    }
}

impl Book {
    /// Judges what was found.
    pub fn new(found: Found, host: Host, rules: Rules) -> Self {
        let judged = |skill| Judged { verdict: judge(&skill, &host, &rules), skill };
        let skills = found.skills.into_iter().map(judged).collect();
        Self { skills, problems: found.problems, host, rules }
    }

    /// The skills that a run may use, by name.
    pub fn usable(&self) -> impl Iterator<Item = &Skill> {
        self.skills.iter().filter(|judged| judged.is_usable()).map(|judged| &judged.skill)
    }
}

/// The variables that a run's commands get: those that its skills ask for. They hold secrets: for child processes only,
/// never for a log.
///
/// What is set in our own environment counts before what the rules say, and the first skill that gives one wins.
pub fn variables(book: &Book) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for skill in book.usable() {
        let asked = skill.requires.env.iter().chain(&skill.primary_env);
        let own = asked.filter_map(|name| Some((name, book.host.env.get(name)?)));
        let entry = book.rules.entries.get(&skill.key);
        let key = skill.primary_env.as_ref().zip(entry.and_then(|entry| entry.api_key.as_ref()));
        let given = entry.into_iter().flat_map(|entry| &entry.env).chain(key);
        let given = given.map(|(name, value)| (name, book.host.env.get(name).unwrap_or(value)));
        for (name, value) in own.chain(given) {
            if is_name(name) && !value.is_empty() && !value.contains('\0') {
                variables.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    variables
}

/// Whether a name can be a variable's: others would keep a command from being started at all.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}
