//! Finds the id that a user means: by the id, a name, or a unique prefix of the id.

use crate::{cli_error::CliError, render};

/// Shorter prefixes are not accepted.
const MIN_PREFIX: usize = 4;
/// This many candidates of an ambiguous prefix are listed.
const MAX_LISTED: usize = 10;

/// Something that can be named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate<'a> {
    pub(super) id: &'a str,
    pub(super) name: Option<&'a str>,
}

/// Returns the id of the candidate that was typed: its exact id, else its exact name, else a prefix of its id. Returns
/// `None` if there is none, and a usage error if there are several.
pub(super) fn resolve<'a>(noun: &str, input: &str, all: &[Candidate<'a>]) -> Result<Option<&'a str>, CliError> {
    if let Some(exact) = all.iter().find(|candidate| candidate.id == input) {
        return Ok(Some(exact.id));
    }
    let named: Vec<_> = all.iter().filter(|candidate| candidate.name == Some(input)).collect();
    let is_prefix = |id: &str| input.chars().count() >= MIN_PREFIX && id.starts_with(input);
    let found = match named.is_empty() {
        false => named,
        true => all.iter().filter(|candidate| is_prefix(candidate.id)).collect(),
    };
    match found.as_slice() {
        [] => Ok(None),
        [single] => Ok(Some(single.id)),
        several => Err(ambiguous(noun, input, several)),
    }
}

fn ambiguous(noun: &str, input: &str, several: &[&Candidate<'_>]) -> CliError {
    let line = |candidate: &&Candidate<'_>| match candidate.name {
        Some(name) => format!("  {} ({name})", candidate.id),
        None => format!("  {}", candidate.id),
    };
    let mut lines = vec![format!("{noun} {input} is ambiguous:")];
    lines.extend(several.iter().take(MAX_LISTED).map(line));
    if several.len() > MAX_LISTED {
        lines.push(format!("  and {} more", several.len() - MAX_LISTED));
    }
    let lines: Vec<_> = lines.iter().map(|line| render::strip_controls(&line.replace(['\n', '\t'], " "))).collect();
    CliError::usage(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOBS: [Candidate<'static>; 3] = [
        Candidate { id: "6f1c0a52", name: Some("Weather") },
        Candidate { id: "6f1c0a52-1f0e", name: Some("Tea") },
        Candidate { id: "77aa9b10", name: Some("Tea") },
    ];

    fn found(input: &str) -> Result<Option<&'static str>, String> {
        resolve("job", input, &JOBS).map_err(|error| error.message)
    }

    #[test]
    fn an_exact_id_wins_over_a_prefix() {
        assert_eq!(found("6f1c0a52"), Ok(Some("6f1c0a52")));
        assert_eq!(found("Weather"), Ok(Some("6f1c0a52")));
    }

    #[test]
    fn a_unique_prefix_is_enough() {
        assert_eq!((found("77aa"), found("6f1c0a52-")), (Ok(Some("77aa9b10")), Ok(Some("6f1c0a52-1f0e"))));
        assert_eq!(found("9999"), Ok(None));
    }

    #[test]
    fn three_characters_are_too_few() {
        assert_eq!(found("77a"), Ok(None));
    }

    #[test]
    fn an_ambiguous_prefix_lists_its_candidates() {
        let error = resolve("job", "6f1c", &JOBS).unwrap_err();
        assert_eq!(error.message, "job 6f1c is ambiguous:\n  6f1c0a52 (Weather)\n  6f1c0a52-1f0e (Tea)");
        assert_eq!(error.exit, 2);
        let ids: Vec<String> = (10..23).map(|number| format!("run-{number}")).collect();
        let runs: Vec<_> = ids.iter().map(|id| Candidate { id, name: None }).collect();
        let message = resolve("run", "run-", &runs).unwrap_err().message;
        assert_eq!((message.lines().count(), message.lines().last()), (12, Some("  and 3 more")));
    }

    #[test]
    fn a_name_that_two_share_is_ambiguous() {
        assert!(found("Tea").unwrap_err().starts_with("job Tea is ambiguous:"));
    }

    #[test]
    fn control_characters_are_removed() {
        let jobs = ["aaaa1", "aaaa2"].map(|id| Candidate { id, name: Some("\u{1b}[2J\nx") });
        let message = resolve("job", "aaaa", &jobs).unwrap_err().message;
        assert_eq!(message, "job aaaa is ambiguous:\n  aaaa1 ([2J x)\n  aaaa2 ([2J x)");
    }
}
