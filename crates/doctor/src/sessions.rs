//! Checks that the journal and the transcripts are readable.

use homard_journal::checkup::{DamageKind, DatabaseStatus, FileDamage, TranscriptReport, database_status, transcripts};

use crate::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
    fix::Fix,
};

/// Reads all transcripts, and checks the journal unless a process holds it.
pub fn check(context: &CheckContext) -> CheckReport {
    let state = &context.paths.state;
    let is_held = context.holder.is_some();
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
            let message = format!("the sessions in {} cannot be listed: {error}", state.display());
            return CheckReport::new(
                "",
                vec![
                    DoctorFinding::problem(message, "make sure that the user that runs Homard can read this directory")
                        .at(state),
                ],
            );
        }
    };
    let members = context.loaded.as_ref().map(|loaded| loaded.config.agents.members());
    let known: Option<Vec<String>> = members.map(|members| members.iter().map(|agent| agent.id.to_string()).collect());
    let path = state.join("journal/journal.db");
    let mut findings: Vec<DoctorFinding> =
        self::journal(&journal).map(|finding| finding.at(path)).into_iter().collect();
    findings.extend(found.damaged.iter().filter_map(|damage| damaged_file(damage, is_held)));
    findings.extend(known.and_then(|known| unconfigured_agents(&found, &known)));
    let journal_state = match journal {
        DatabaseStatus::None => "no journal yet",
        DatabaseStatus::Intact => "the journal is intact",
        DatabaseStatus::InUse => "the journal is in use",
        DatabaseStatus::Corrupt(_) | DatabaseStatus::Unusable(_) => "the journal cannot be used",
    };
    let summary = format!("{} can be read, {journal_state}", homard_render::count(found.count, "transcript"));
    CheckReport::new(summary, findings)
}

fn journal(found: &DatabaseStatus) -> Option<DoctorFinding> {
    match found {
        DatabaseStatus::None | DatabaseStatus::Intact | DatabaseStatus::InUse => None,
        DatabaseStatus::Corrupt(why) => {
            let message = format!(
                "the journal is damaged ({why}); records of runs are lost, and sessions are restored from sessions.json"
            );
            Some(
                DoctorFinding::problem(
                    message,
                    "start the gateway, which moves the journal aside and creates a new one",
                )
                .fixed_by(Fix::Journal),
            )
        }
        DatabaseStatus::Unusable(why) => {
            let message = format!("the journal cannot be used: {why}");
            Some(DoctorFinding::problem(
                message,
                "follow the message; if it names no way out, check the file and the disk",
            ))
        }
    }
}

/// Returns a finding for a damaged file. While a gateway is writing, an incomplete last line is normal.
fn damaged_file(FileDamage { path, kind }: &FileDamage, is_held: bool) -> Option<DoctorFinding> {
    let name = path.display();
    let (message, remedy) = match kind {
        DamageKind::Torn if is_held => return None,
        DamageKind::Torn => (
            format!("{name} ends with an incomplete line, as after a crash"),
            "no action is needed: the transcript is repaired when the session continues",
        ),
        DamageKind::Damaged(lines) => (
            format!("{name} has damaged lines ({lines}), which are ignored"),
            "no action is needed: the transcript is repaired when the session continues, and the damaged lines are kept next to it",
        ),
        DamageKind::InvalidRecords(why) => (
            format!("{name} is not a valid session list: {why}"),
            "start or restart the gateway, which moves the file aside and rebuilds it from the journal",
        ),
        DamageKind::Unreadable(why) => {
            let remedy = "make sure that the file belongs to the user that runs Homard";
            return Some(DoctorFinding::problem(format!("{name} cannot be read: {why}"), remedy).at(path));
        }
    };
    let finding = DoctorFinding::problem(message, remedy).at(path);
    // Repairs are left to the process that holds the directory.
    Some(if is_held { finding } else { finding.fixed_by(Fix::Journal) })
}

/// Returns a note about agents that have sessions but are not in the config.
fn unconfigured_agents(found: &TranscriptReport, known: &[String]) -> Option<DoctorFinding> {
    let unknown: Vec<&str> =
        found.agents.iter().map(String::as_str).filter(|agent| !known.iter().any(|id| id == agent)).collect();
    if unknown.is_empty() {
        return None;
    }
    let message = format!("there are sessions of agents that are not in the config: {}", unknown.join(", "));
    Some(DoctorFinding::note(message, "add the agents to agents.list, or keep or remove their directories"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_running_process_are_not_fixed() {
        let damage = |kind| FileDamage { path: "/s/agents/a/sessions/s.jsonl".into(), kind };
        assert_eq!(damaged_file(&damage(DamageKind::Torn), true), None);
        let fix = |kind, is_held| damaged_file(&damage(kind), is_held).and_then(|finding| finding.fix);
        assert_eq!(fix(DamageKind::Torn, false), Some(Fix::Journal));
        assert_eq!(fix(DamageKind::Damaged(2), true), None);
        assert_eq!(fix(DamageKind::Unreadable("no".to_owned()), false), None);
    }

    #[test]
    fn sessions_of_unconfigured_agents_are_reported() {
        let found =
            TranscriptReport { agents: vec!["main".to_owned(), "old".to_owned()], ..TranscriptReport::default() };
        let message_for = |known: &[&str]| {
            let known: Vec<String> = known.iter().map(|&id| id.to_owned()).collect();
            unconfigured_agents(&found, &known).map(|finding| finding.message)
        };
        let expected = "there are sessions of agents that are not in the config: old";
        assert_eq!((message_for(&["main"]).as_deref(), message_for(&["old", "main"])), (Some(expected), None));
    }
}
