//! Checks the clock: schedules, limits and the order of sessions depend on it.

use std::path::PathBuf;

use crate::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
    listing::FileInfo,
};

/// Earliest plausible time: 2026-01-01.
const EARLIEST_MS: u64 = 1_767_225_600_000;
/// Tolerated deviation of file times.
const TOLERANCE_MS: u64 = 120_000;

/// Compares the clock with the times of existing files and of a newly created one.
pub fn check(context: &CheckContext) -> CheckReport {
    let newest = context.listing.entries.iter().max_by_key(|info| info.changed_ms);
    let created_ms = tempfile::NamedTempFile::new_in(&context.paths.state).ok();
    let created_ms = created_ms.and_then(|file| FileInfo::read(file.path()).ok().flatten()).map(|info| info.changed_ms);
    evaluate(context.now_ms, newest.map(|info| (info.path.clone(), info.changed_ms)), created_ms)
}

fn evaluate(now_ms: u64, newest: Option<(PathBuf, u64)>, made_ms: Option<u64>) -> CheckReport {
    let set = "set the clock of this machine and keep it synchronized (timedatectl set-ntp true)";
    let mut findings = Vec::new();
    if now_ms < EARLIEST_MS {
        findings.push(DoctorFinding::problem(
            format!("the system clock shows {}, which is too far in the past", at(now_ms)),
            set,
        ));
    } else if let Some((path, changed)) = newest.filter(|(_, changed)| *changed > now_ms + TOLERANCE_MS) {
        let message = format!(
            "{} was modified at {}, but the current time is {}: the clock is wrong now, or was wrong then",
            path.display(),
            at(changed),
            at(now_ms)
        );
        let remedy = format!("{set}; if the clock is right now: touch {}", path.display());
        findings.push(DoctorFinding::problem(message, remedy).at(path));
    }
    if let Some(created_ms) = made_ms.filter(|created_ms| created_ms.abs_diff(now_ms) > TOLERANCE_MS) {
        let difference = homard_render::duration_ms(created_ms.abs_diff(now_ms) / 1000 * 1000);
        let message = format!("the clock of the file system differs from this machine's by {difference}");
        findings.push(DoctorFinding::problem(message, "set the clock of the file server"));
    }
    CheckReport::new(at(now_ms), findings)
}

fn at(ms: u64) -> String {
    let stamp = i64::try_from(ms / 1000).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    stamp.map_or_else(|| format!("{ms}ms"), |stamp| stamp.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_implausible_clock_is_reported() {
        let now = EARLIEST_MS + 1_000_000_000;
        let messages = |now, changed, created_ms| {
            let report = evaluate(now, Some(("/s/x".into(), changed)), created_ms);
            report.findings.into_iter().map(|finding| finding.message).collect::<Vec<_>>()
        };
        assert_eq!(messages(now, now + TOLERANCE_MS, Some(now - TOLERANCE_MS)), [""; 0]);
        assert_eq!(
            messages(3_000, 0, None),
            ["the system clock shows 1970-01-01T00:00:03Z, which is too far in the past"]
        );
        assert_eq!(
            messages(now, now + 3_600_000, Some(now + 200_000)),
            [
                "/s/x was modified at 2026-01-12T14:46:40Z, but the current time is 2026-01-12T13:46:40Z: the clock is wrong now, or was wrong then",
                "the clock of the file system differs from this machine's by 3m 20s",
            ]
        );
    }
}
