//! Background commands in the record of their session. Pure.
//!
//! A command is in the record from before its call is answered until its end is reported: by a run that consumes the
//! report in the commit that starts it, or because the agent read the result itself. So a report is neither lost nor
//! repeated, and commands that were interrupted by the end of the process are known.

use std::path::PathBuf;

use homard_prompt::notes::{EVENT, one_line};
use homard_proto::{Route, session::Record};
use homard_store::Authority;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool::RunOrigin;

/// Field of a record with the commands.
const COMMANDS_FIELD: &str = "backgroundCommands";

/// Prefix of the ids of commands that ran after an approval.
pub(crate) const APPROVAL: &str = "approval";

/// Maximum number of commands per session; those that ended first are dropped first.
const MAX_COMMANDS: usize = 64;

/// Maximum characters of a command line that are stored.
const MAX_LABEL_CHARS: usize = 120;

/// Origin of a command: the run that reports its end has the same authority and route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandOrigin {
    principal: String,
    #[serde(default)]
    route: Route,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cwd: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Authority::is_full")]
    authority: Authority,
}

impl From<&RunOrigin> for CommandOrigin {
    fn from(origin: &RunOrigin) -> Self {
        Self {
            principal: origin.principal.clone(),
            route: origin.route.clone(),
            cwd: origin.cwd.clone(),
            authority: origin.authority,
        }
    }
}

impl From<CommandOrigin> for RunOrigin {
    fn from(origin: CommandOrigin) -> Self {
        let CommandOrigin { principal, route, cwd, authority } = origin;
        Self { principal, route, cwd, authority }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredCommand {
    id: String,
    command: String,
    origin: CommandOrigin,
    /// How it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    report: Option<String>,
}

/// A change to a session's background commands.
#[derive(Debug, Clone)]
pub(crate) enum CommandChange {
    /// Adds a command that was started. With a report it has ended already, and its earlier entry is replaced.
    Add { id: String, command: String, origin: CommandOrigin, report: Option<String> },
    /// Sets the report of a command. No change if it has one.
    Report { id: String, report: String },
    /// Removes a command that needs no report.
    Remove(String),
    /// Reports all running commands as interrupted: their process is gone.
    Interrupt,
}

impl CommandChange {
    /// Returns the changed record; `None` if nothing changes.
    pub(crate) fn apply(&self, record: &Record) -> Option<Record> {
        let before = read(record);
        let mut commands = before.clone();
        match self {
            Self::Add { id, command, origin, report } => {
                let command = one_line(command).chars().take(MAX_LABEL_CHARS).collect();
                let (id, origin, report) = (id.clone(), origin.clone(), report.as_deref().map(one_line));
                if report.is_some() {
                    commands.retain(|known| known.id != id || known.report.is_some());
                }
                commands.push(StoredCommand { id, command, origin, report });
                if commands.len() > MAX_COMMANDS {
                    let oldest = commands.iter().position(|command| command.report.is_some());
                    commands.remove(oldest.unwrap_or(0));
                }
            }
            Self::Report { id, report } => {
                let found = commands.iter_mut().find(|command| command.id == *id && command.report.is_none());
                if let Some(command) = found {
                    command.report = Some(one_line(report));
                }
            }
            // The last match: every process numbers its commands from the start, so an earlier one may have the same
            // id.
            Self::Remove(id) => {
                if let Some(index) = commands.iter().rposition(|command| command.id == *id) {
                    commands.remove(index);
                }
            }
            Self::Interrupt => {
                for command in commands.iter_mut().filter(|command| command.report.is_none()) {
                    let StoredCommand { id, command: line, .. } = &*command;
                    let report = format!(
                        "Command was interrupted, because the gateway stopped while it ran (session {id}): {line}"
                    );
                    command.report = Some(report);
                }
            }
        }
        (commands != before).then(|| {
            let mut record = record.clone();
            write(&mut record, &commands);
            record
        })
    }
}

fn read(record: &Record) -> Vec<StoredCommand> {
    let commands = record.extra.get(COMMANDS_FIELD).and_then(Value::as_array).into_iter().flatten();
    // Entries in the format of a later version are ignored.
    commands.filter_map(|command| StoredCommand::deserialize(command).ok()).collect()
}

fn write(record: &mut Record, commands: &[StoredCommand]) {
    match serde_json::to_value(commands) {
        Ok(value) if !commands.is_empty() => drop(record.extra.insert(COMMANDS_FIELD.to_owned(), value)),
        Ok(_) | Err(_) => drop(record.extra.shift_remove(COMMANDS_FIELD)),
    }
}

/// True if a session has background commands.
pub(crate) fn has_commands(record: &Record) -> bool {
    !read(record).is_empty()
}

/// Returns the reports for one run: the origin of the commands and their ids.
pub(crate) fn pending_reports(record: &Record) -> Option<(CommandOrigin, Vec<String>)> {
    let ended: Vec<_> = read(record).into_iter().filter(|command| command.report.is_some()).collect();
    let origin = ended.first()?.origin.clone();
    let ids = ended.iter().filter(|command| command.origin == origin).map(|command| command.id.clone()).collect();
    Some((origin, ids))
}

/// Removes reports from a record: those of one origin, or all.
pub(crate) fn take_reports(record: &mut Record, only_origin: Option<&CommandOrigin>) -> Vec<String> {
    let (reported, remaining): (Vec<_>, Vec<_>) = read(record)
        .into_iter()
        .partition(|command| command.report.is_some() && only_origin.is_none_or(|origin| *origin == command.origin));
    if reported.is_empty() {
        return Vec::new();
    }
    write(record, &remaining);
    reported.into_iter().filter_map(|command| Some(format!("{EVENT}{}", command.report?))).collect()
}

#[cfg(test)]
mod tests {
    use homard_proto::SessionId;

    use super::*;

    fn origin(to: &str) -> CommandOrigin {
        let route = Route::new(Some("telegram"), Some(to), None, None);
        CommandOrigin::from(&RunOrigin { principal: "owner".to_owned(), route, ..RunOrigin::default() })
    }

    fn add(id: &str, to: &str) -> CommandChange {
        CommandChange::Add { id: id.to_owned(), command: format!("make {id}"), origin: origin(to), report: None }
    }

    fn report(id: &str) -> CommandChange {
        CommandChange::Report { id: id.to_owned(), report: format!("{id} is done") }
    }

    fn changed(changes: &[CommandChange]) -> Record {
        let record = Record::new(SessionId::parse("s").unwrap(), 0);
        changes.iter().fold(record, |record, change| change.apply(&record).unwrap_or(record))
    }

    #[test]
    fn commands_that_ended_together_are_reported_together() {
        let mut record =
            changed(&[add("a", "1"), add("b", "1"), add("c", "2"), add("d", "1"), report("b"), report("a")]);
        assert_eq!(pending_reports(&record), Some((origin("1"), vec!["a".to_owned(), "b".to_owned()])));
        let reports = take_reports(&mut record, Some(&origin("1")));
        assert_eq!(reports, ["System event: a is done", "System event: b is done"]);
        assert_eq!((pending_reports(&record), has_commands(&record)), (None, true));
        record = report("c").apply(&record).unwrap();
        assert_eq!(take_reports(&mut record, Some(&origin("1"))), Vec::<String>::new());
        assert_eq!(take_reports(&mut record, None), ["System event: c is done"]);
    }

    #[test]
    fn a_report_replaces_the_entry_of_its_command() {
        let CommandChange::Add { id, command, origin, .. } = add("a", "1") else { unreachable!() };
        let report = CommandChange::Add { id, command, origin, report: Some("a is done".to_owned()) };
        for changes in [vec![report.clone()], vec![add("a", "1"), report]] {
            let mut record = changed(&changes);
            assert_eq!(take_reports(&mut record, None), ["System event: a is done"]);
            assert!(!has_commands(&record));
        }
    }

    #[test]
    fn a_command_whose_result_was_read_is_not_reported() {
        let record = changed(&[add("a", "1"), CommandChange::Remove("a".to_owned())]);
        assert_eq!(record.extra.get(COMMANDS_FIELD), None);
        assert_eq!(report("a").apply(&record), None);
        let record = changed(&[add("a", "1"), report("a")]);
        assert_eq!(report("a").apply(&record), None, "the first end counts");
        assert_eq!(
            pending_reports(&changed(&[add("a", "1"), report("a"), CommandChange::Remove("a".to_owned())])),
            None
        );
    }

    #[test]
    fn commands_running_at_shutdown_are_reported_as_interrupted() {
        let mut record = changed(&[add("a", "1"), add("b", "1"), report("b"), CommandChange::Interrupt]);
        let reports = take_reports(&mut record, None);
        let interrupted =
            "System event: Command was interrupted, because the gateway stopped while it ran (session a): make a";
        assert_eq!(reports, [interrupted, "System event: b is done"]);
        assert_eq!(CommandChange::Interrupt.apply(&record), None);
    }

    #[test]
    fn the_number_of_commands_in_a_record_is_limited() {
        let many: Vec<_> =
            (0..MAX_COMMANDS + 9).flat_map(|n| [add(&n.to_string(), "1"), report(&n.to_string())]).collect();
        let mut record = changed(&many);
        let reports = take_reports(&mut record, None);
        assert_eq!((reports.len(), reports[0].as_str()), (MAX_COMMANDS, "System event: 9 is done"));
    }
}
