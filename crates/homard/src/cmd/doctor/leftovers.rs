//! Finds files left behind by killed processes: temporary files, locks, and damaged files that were moved aside.

use std::{fs, path::Path};

use homard_journal::lock;
use serde_json::Value;

use super::{
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
pub(super) fn is_install(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(".install-"))
}

/// Checks the names of all listed files.
pub(super) fn check(scene: &CheckContext) -> CheckReport {
    let seen = || scene.listing.entries.iter();
    let drafts = seen().filter(|seen| is_draft(seen, scene.now_ms)).map(|seen| {
        let what = format!("{} was left by a process that was stopped while writing", seen.path.display());
        removable(seen, what)
    });
    let locks = seen()
        .filter(|seen| is_dead_lock(seen))
        .map(|seen| removable(seen, format!("{} is the lock of a process that no longer exists", seen.path.display())));
    let mut findings: Vec<DoctorFinding> = drafts.chain(locks).collect();
    findings.extend(set_aside(&seen().filter(|seen| is_aside(seen.name())).collect::<Vec<_>>()));
    CheckReport::new("none", findings)
}

fn removable(seen: &FileInfo, what: String) -> DoctorFinding {
    let to_do = format!("rm {}{}", if seen.is_folder { "-r " } else { "" }, seen.path.display());
    DoctorFinding::problem(what, to_do).at(&seen.path).fixed_by(Fix::Remove(seen.path.clone()))
}

fn is_draft(seen: &FileInfo, now_ms: u64) -> bool {
    let name = seen.name();
    let is_named_so = match seen.is_folder {
        true => is_install(&seen.path),
        false => name.ends_with(".tmp") || name.starts_with(".tmp"),
    };
    is_named_so && seen.changed_ms.saturating_add(MIN_AGE_MS) < now_ms
}

/// Returns true for a lock of OpenClaw's whose process no longer exists.
fn is_dead_lock(seen: &FileInfo) -> bool {
    if seen.is_folder
        || !seen.name().ends_with(".lock")
        || seen.name() == "gateway.lock"
        || cfg!(not(target_os = "linux"))
    {
        return false;
    }
    let said: Option<Value> = fs::read(&seen.path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let pid = said.and_then(|said| u32::try_from(said.get("pid")?.as_u64()?).ok());
    pid.is_some_and(|pid| lock::process_start_time(pid).is_none())
}

/// Returns true if the name is that of a damaged file, or a part of one, that was moved aside.
fn is_aside(name: &str) -> bool {
    let since = |why: &str| name.rsplit_once(why).is_some_and(|(_, at)| at.bytes().all(|byte| byte.is_ascii_digit()));
    since(".torn-") || since(".corrupt-")
}

fn set_aside(seen: &[&FileInfo]) -> Option<DoctorFinding> {
    let first = seen.first()?;
    let named: Vec<String> = seen.iter().take(MAX_NAMED).map(|seen| seen.path.display().to_string()).collect();
    let more = match seen.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = format!("damaged files, or parts of them, were moved aside: {}{more}", named.join(", "));
    Some(DoctorFinding::note(what, "inspect them, and remove them when they are no longer needed").at(&first.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &str, is_folder: bool, changed_ms: u64) -> FileInfo {
        FileInfo { path: path.into(), mode: 0o600, owner: 0, is_folder, changed_ms }
    }

    #[test]
    fn drafts_are_old_and_named_so() {
        let now = MIN_AGE_MS + 10;
        let is = |path: &str, is_folder, at| is_draft(&seen(path, is_folder, at), now);
        assert!(is("/s/sessions.json.tmp", false, 9) && is("/s/.tmpAbC123", false, 9) && is("/s/.install-x", true, 9));
        assert!(!is("/s/sessions.json.tmp", false, 10), "it may be at work");
        assert!(!is("/s/sessions.json", false, 0) && !is("/s/x.tmp", true, 0));
    }

    #[test]
    fn what_was_set_aside_is_told_once() {
        assert!(is_aside("s.jsonl.torn-17") && is_aside("sessions.json.corrupt-3"));
        assert!(!is_aside("s.jsonl") && !is_aside("s.jsonl.deleted.2026") && !is_aside("my.torn-notes"));
        let all: Vec<FileInfo> = (0..5).map(|n| seen(&format!("/s/{n}.torn-1"), false, 0)).collect();
        let told = set_aside(&all.iter().collect::<Vec<_>>()).unwrap();
        let what =
            "damaged files, or parts of them, were moved aside: /s/0.torn-1, /s/1.torn-1, /s/2.torn-1 and 2 more";
        assert_eq!((told.message.as_str(), told.needs_action()), (what, false));
    }
}
