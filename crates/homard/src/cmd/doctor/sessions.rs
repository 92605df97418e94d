//! Checks that the journal and the transcripts are readable.

use homard_journal::checkup::{Database, Flaw, FlawKind, Transcripts, database, transcripts};

use super::{
    Scene,
    finding::{Finding, Report},
    fix::Fix,
};

/// Reads all transcripts, and checks the journal unless a process holds it.
pub(super) fn look(scene: &Scene) -> Report {
    let state = &scene.paths.state;
    let is_held = scene.holder.is_some();
    let journal = match database(state) {
        Database::InUse if !is_held => Database::Sound,
        found @ (Database::None | Database::Sound | Database::InUse | Database::Damaged(_) | Database::Unusable(_)) => {
            found
        }
    };
    let found = match transcripts(state) {
        Ok(found) => found,
        Err(error) => {
            let what = format!("the sessions in {} cannot be listed: {error}", state.display());
            return Report::new("", vec![Finding::wrong(what, "see what is wrong with that folder").at(state)]);
        }
    };
    let members = scene.loaded.as_ref().map(|loaded| loaded.config.agents.members());
    let known: Option<Vec<String>> = members.map(|members| members.iter().map(|agent| agent.id.to_string()).collect());
    let place = state.join("journal/journal.db");
    let mut findings: Vec<Finding> = self::journal(&journal).map(|finding| finding.at(place)).into_iter().collect();
    findings.extend(found.flaws.iter().filter_map(|flaw| flawed(flaw, is_held)));
    findings.extend(known.and_then(|known| retired(&found, &known)));
    let word = match journal {
        Database::None => "no journal yet",
        Database::Sound => "the journal is sound",
        Database::InUse => "the journal is in use",
        Database::Damaged(_) | Database::Unusable(_) => "the journal is not",
    };
    let summary = match found.count {
        1 => format!("1 transcript can be read, {word}"),
        count => format!("{count} transcripts can be read, {word}"),
    };
    Report::new(summary, findings)
}

fn journal(found: &Database) -> Option<Finding> {
    match found {
        Database::None | Database::Sound | Database::InUse => None,
        Database::Damaged(why) => {
            let what = format!(
                "the journal is damaged ({why}); what was known of runs is lost, and sessions come from sessions.json"
            );
            Some(Finding::wrong(what, "the next start sets it aside and begins another").fixed_by(Fix::Journal))
        }
        Database::Unusable(why) => {
            let what = format!("the journal cannot be used: {why}");
            Some(Finding::wrong(what, "see what is wrong with that file, or which version of Homard wrote it"))
        }
    }
}

/// Returns a finding for a damaged file. While a gateway is writing, an incomplete last line is normal.
fn flawed(Flaw { path, kind }: &Flaw, is_held: bool) -> Option<Finding> {
    let name = path.display();
    let (what, to_do) = match kind {
        FlawKind::Torn if is_held => return None,
        FlawKind::Torn => (
            format!("{name} ends in the middle of a line, as a crash leaves it"),
            "nothing: it is put right when the conversation goes on",
        ),
        FlawKind::Damaged(lines) => (
            format!("{name} has damaged lines ({lines}), which are passed by"),
            "nothing: it is put right when the conversation goes on, and they are kept beside it",
        ),
        FlawKind::NoRecords(why) => (
            format!("{name} is not what it should be: {why}"),
            "the next start sets it aside and writes it anew from the journal",
        ),
        FlawKind::Unreadable(why) => {
            let to_do = "see that it belongs to the user that runs Homard";
            return Some(Finding::wrong(format!("{name} cannot be read: {why}"), to_do).at(path));
        }
    };
    let finding = Finding::wrong(what, to_do).at(path);
    // Repairs are left to the process that holds the directory.
    Some(if is_held { finding } else { finding.fixed_by(Fix::Journal) })
}

/// Returns a note about agents that have sessions but are not in the config.
fn retired(found: &Transcripts, known: &[String]) -> Option<Finding> {
    let others: Vec<&str> =
        found.agents.iter().map(String::as_str).filter(|agent| !known.iter().any(|id| id == agent)).collect();
    if others.is_empty() {
        return None;
    }
    let what = format!("there are conversations of agents that the config does not have: {}", others.join(", "));
    Some(Finding::note(what, "if they are to answer, put them into agents.list; else leave it or remove their folders"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_has_is_left_to_it() {
        let flaw = |kind| Flaw { path: "/s/agents/a/sessions/s.jsonl".into(), kind };
        assert_eq!(flawed(&flaw(FlawKind::Torn), true), None);
        let fix = |kind, is_held| flawed(&flaw(kind), is_held).and_then(|finding| finding.fix);
        assert_eq!(fix(FlawKind::Torn, false), Some(Fix::Journal));
        assert_eq!(fix(FlawKind::Damaged(2), true), None);
        assert_eq!(fix(FlawKind::Unreadable("no".to_owned()), false), None);
    }

    #[test]
    fn agents_that_nobody_knows_any_more_are_told() {
        let found = Transcripts { agents: vec!["main".to_owned(), "old".to_owned()], ..Transcripts::default() };
        let what = |known: &[&str]| {
            let known: Vec<String> = known.iter().map(|&id| id.to_owned()).collect();
            retired(&found, &known).map(|finding| finding.what)
        };
        let told = "there are conversations of agents that the config does not have: old";
        assert_eq!((what(&["main"]).as_deref(), what(&["old", "main"])), (Some(told), None));
    }
}
