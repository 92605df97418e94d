//! Checks that the journal and the transcripts are readable.

use homard_journal::checkup::{DamageKind, DatabaseStatus, FileDamage, TranscriptReport, database_status, transcripts};

use super::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
    fix::Fix,
};
use crate::render;

/// Reads all transcripts, and checks the journal unless a process holds it.
pub(super) fn check(scene: &CheckContext) -> CheckReport {
    let state = &scene.paths.state;
    let is_held = scene.holder.is_some();
    let journal = match database_status(state) {
        DatabaseStatus::InUse if !is_held => DatabaseStatus::Intact,
        found @ (DatabaseStatus::None
        | DatabaseStatus::Intact
        | DatabaseStatus::InUse
        | DatabaseStatus::Corrupt(_)
        | DatabaseStatus::Unusable(_)) => found,
    };
    let found = match transcripts(state) {
        Ok(found) => found,
        Err(error) => {
            let what = format!("the sessions in {} cannot be listed: {error}", state.display());
            return CheckReport::new("", vec![DoctorFinding::problem(what, "check that directory").at(state)]);
        }
    };
    let members = scene.loaded.as_ref().map(|loaded| loaded.config.agents.members());
    let known: Option<Vec<String>> = members.map(|members| members.iter().map(|agent| agent.id.to_string()).collect());
    let place = state.join("journal/journal.db");
    let mut findings: Vec<DoctorFinding> =
        self::journal(&journal).map(|finding| finding.at(place)).into_iter().collect();
    findings.extend(found.damaged.iter().filter_map(|flaw| damaged_file(flaw, is_held)));
    findings.extend(known.and_then(|known| unconfigured_agents(&found, &known)));
    let word = match journal {
        DatabaseStatus::None => "no journal yet",
        DatabaseStatus::Intact => "the journal is intact",
        DatabaseStatus::InUse => "the journal is in use",
        DatabaseStatus::Corrupt(_) | DatabaseStatus::Unusable(_) => "the journal cannot be used",
    };
    let summary = format!("{} can be read, {word}", render::count(found.count, "transcript"));
    CheckReport::new(summary, findings)
}

fn journal(found: &DatabaseStatus) -> Option<DoctorFinding> {
    match found {
        DatabaseStatus::None | DatabaseStatus::Intact | DatabaseStatus::InUse => None,
        DatabaseStatus::Corrupt(why) => {
            let what = format!(
                "the journal is damaged ({why}); records of runs are lost, and sessions are restored from sessions.json"
            );
            Some(
                DoctorFinding::problem(what, "the next start moves the journal aside and creates a new one")
                    .fixed_by(Fix::Journal),
            )
        }
        DatabaseStatus::Unusable(why) => {
            let what = format!("the journal cannot be used: {why}");
            Some(DoctorFinding::problem(what, "check the file, and which version of Homard wrote it"))
        }
    }
}

/// Returns a finding for a damaged file. While a gateway is writing, an incomplete last line is normal.
fn damaged_file(FileDamage { path, kind }: &FileDamage, is_held: bool) -> Option<DoctorFinding> {
    let name = path.display();
    let (what, to_do) = match kind {
        DamageKind::Torn if is_held => return None,
        DamageKind::Torn => (
            format!("{name} ends with an incomplete line, as after a crash"),
            "nothing: the transcript is repaired when the session continues",
        ),
        DamageKind::Damaged(lines) => (
            format!("{name} has damaged lines ({lines}), which are ignored"),
            "nothing: the transcript is repaired when the session continues, and the damaged lines are kept next to it",
        ),
        DamageKind::InvalidRecords(why) => (
            format!("{name} is not a valid session list: {why}"),
            "the next start moves the file aside and rebuilds it from the journal",
        ),
        DamageKind::Unreadable(why) => {
            let to_do = "make sure that the file belongs to the user that runs Homard";
            return Some(DoctorFinding::problem(format!("{name} cannot be read: {why}"), to_do).at(path));
        }
    };
    let finding = DoctorFinding::problem(what, to_do).at(path);
    // Repairs are left to the process that holds the directory.
    Some(if is_held { finding } else { finding.fixed_by(Fix::Journal) })
}

/// Returns a note about agents that have sessions but are not in the config.
fn unconfigured_agents(found: &TranscriptReport, known: &[String]) -> Option<DoctorFinding> {
    let others: Vec<&str> =
        found.agents.iter().map(String::as_str).filter(|agent| !known.iter().any(|id| id == agent)).collect();
    if others.is_empty() {
        return None;
    }
    let what = format!("there are sessions of agents that are not in the config: {}", others.join(", "));
    Some(DoctorFinding::note(what, "add the agents to agents.list, or keep or remove their directories"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_has_is_left_to_it() {
        let flaw = |kind| FileDamage { path: "/s/agents/a/sessions/s.jsonl".into(), kind };
        assert_eq!(damaged_file(&flaw(DamageKind::Torn), true), None);
        let fix = |kind, is_held| damaged_file(&flaw(kind), is_held).and_then(|finding| finding.fix);
        assert_eq!(fix(DamageKind::Torn, false), Some(Fix::Journal));
        assert_eq!(fix(DamageKind::Damaged(2), true), None);
        assert_eq!(fix(DamageKind::Unreadable("no".to_owned()), false), None);
    }

    #[test]
    fn agents_that_nobody_knows_any_more_are_told() {
        let found =
            TranscriptReport { agents: vec!["main".to_owned(), "old".to_owned()], ..TranscriptReport::default() };
        let what = |known: &[&str]| {
            let known: Vec<String> = known.iter().map(|&id| id.to_owned()).collect();
            unconfigured_agents(&found, &known).map(|finding| finding.message)
        };
        let told = "there are sessions of agents that are not in the config: old";
        assert_eq!((what(&["main"]).as_deref(), what(&["old", "main"])), (Some(told), None));
    }
}
