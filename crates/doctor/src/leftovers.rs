//! Finds files left behind by killed processes: temporary files, locks, and damaged files that were moved aside.

use std::{fs, path::Path};

use homard_journal::lock;
use serde_json::Value;

use crate::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
    fix::Fix,
    listing::FileInfo,
};

/// A temporary file younger than this may still be in use.
const MIN_AGE_MS: u64 = 10 * 60 * 1000;
/// Maximum number of moved-aside files that are named.
const MAX_NAMED: usize = 3;

/// Returns true for the directory of an interrupted installation.
pub fn is_install(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(".install-"))
}

/// Checks the names of all listed files.
pub fn check(context: &CheckContext) -> CheckReport {
    let files = || context.listing.entries.iter();
    let drafts = files().filter(|file| is_draft(file, context.now_ms)).map(|file| {
        let message = format!("{} was left by a process that was stopped while writing", file.path.display());
        removable(file, message)
    });
    let locks = files()
        .filter(|file| is_dead_lock(file))
        .map(|file| removable(file, format!("{} is the lock of a process that no longer exists", file.path.display())));
    let mut findings: Vec<DoctorFinding> = drafts.chain(locks).collect();
    findings.extend(set_aside(&files().filter(|file| is_aside(file.name())).collect::<Vec<_>>()));
    CheckReport::new("none", findings)
}

fn removable(file: &FileInfo, message: String) -> DoctorFinding {
    let remedy = format!("rm {}{}", if file.is_folder { "-r " } else { "" }, file.path.display());
    DoctorFinding::problem(message, remedy).at(&file.path).fixed_by(Fix::Remove(file.path.clone()))
}

fn is_draft(file: &FileInfo, now_ms: u64) -> bool {
    let name = file.name();
    let has_draft_name = match file.is_folder {
        true => is_install(&file.path),
        false => name.ends_with(".tmp") || name.starts_with(".tmp"),
    };
    has_draft_name && file.changed_ms.saturating_add(MIN_AGE_MS) < now_ms
}

/// Returns true for a lock of OpenClaw's whose process no longer exists.
fn is_dead_lock(file: &FileInfo) -> bool {
    if file.is_folder
        || !file.name().ends_with(".lock")
        || file.name() == "gateway.lock"
        || cfg!(not(target_os = "linux"))
    {
        return false;
    }
    let content: Option<Value> = fs::read(&file.path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let pid = content.and_then(|content| u32::try_from(content.get("pid")?.as_u64()?).ok());
    pid.is_some_and(|pid| lock::process_start_time(pid).is_none())
}

/// Returns true if the name is that of a damaged file, or a part of one, that was moved aside.
fn is_aside(name: &str) -> bool {
    let has_timestamp =
        |marker: &str| name.rsplit_once(marker).is_some_and(|(_, at)| at.bytes().all(|byte| byte.is_ascii_digit()));
    has_timestamp(".torn-") || has_timestamp(".corrupt-")
}

fn set_aside(files: &[&FileInfo]) -> Option<DoctorFinding> {
    let first = files.first()?;
    let named: Vec<String> = files.iter().take(MAX_NAMED).map(|file| file.path.display().to_string()).collect();
    let more = match files.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!("damaged files, or parts of them, were moved aside: {}{more}", named.join(", "));
    Some(DoctorFinding::note(message, "inspect them, and remove them when they are no longer needed").at(&first.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_info(path: &str, is_folder: bool, changed_ms: u64) -> FileInfo {
        FileInfo { path: path.into(), mode: 0o600, owner: 0, is_folder, changed_ms }
    }

    #[test]
    fn drafts_are_recognized_by_name_and_age() {
        let now = MIN_AGE_MS + 10;
        let is = |path: &str, is_folder, at| is_draft(&file_info(path, is_folder, at), now);
        assert!(is("/s/sessions.json.tmp", false, 9) && is("/s/.tmpAbC123", false, 9) && is("/s/.install-x", true, 9));
        assert!(!is("/s/sessions.json.tmp", false, 10), "it may be at work");
        assert!(!is("/s/sessions.json", false, 0) && !is("/s/x.tmp", true, 0));
    }

    #[test]
    fn files_moved_aside_are_reported_once() {
        assert!(is_aside("s.jsonl.torn-17") && is_aside("sessions.json.corrupt-3"));
        assert!(!is_aside("s.jsonl") && !is_aside("s.jsonl.deleted.2026") && !is_aside("my.torn-notes"));
        let all: Vec<FileInfo> = (0..5).map(|n| file_info(&format!("/s/{n}.torn-1"), false, 0)).collect();
        let finding = set_aside(&all.iter().collect::<Vec<_>>()).unwrap();
        let expected =
            "damaged files, or parts of them, were moved aside: /s/0.torn-1, /s/1.torn-1, /s/2.torn-1 and 2 more";
        assert_eq!((finding.message.as_str(), finding.needs_action()), (expected, false));
    }
}
