//! Checks the clock: schedules, limits and the order of sessions depend on it.

use std::path::PathBuf;

use super::{
    Scene,
    finding::{Finding, Report},
    walk::Seen,
};

/// Earliest plausible time: 2026-01-01.
const EARLIEST_MS: u64 = 1_767_225_600_000;
/// Tolerated deviation of file times.
const TOLERANCE_MS: u64 = 120_000;

/// Compares the clock with the times of existing files and of a newly created one.
pub(super) fn look(scene: &Scene) -> Report {
    let newest = scene.listing.seen.iter().max_by_key(|seen| seen.changed_ms);
    let made = tempfile::NamedTempFile::new_in(&scene.paths.state).ok();
    let made = made.and_then(|file| Seen::look(file.path()).ok().flatten()).map(|seen| seen.changed_ms);
    judge(scene.now_ms, newest.map(|seen| (seen.path.clone(), seen.changed_ms)), made)
}

fn judge(now_ms: u64, newest: Option<(PathBuf, u64)>, made_ms: Option<u64>) -> Report {
    let set = "set the clock of this machine, and have it kept right (timedatectl set-ntp true)";
    let mut findings = Vec::new();
    if now_ms < EARLIEST_MS {
        findings.push(Finding::wrong(format!("the clock says {}, which is long ago", at(now_ms)), set));
    } else if let Some((path, changed)) = newest.filter(|(_, changed)| *changed > now_ms + TOLERANCE_MS) {
        let what = format!(
            "{} was changed at {}, and now it is {}: the clock is wrong, or was",
            path.display(),
            at(changed),
            at(now_ms)
        );
        let to_do = format!("{set}; if it is right now: touch {}", path.display());
        findings.push(Finding::wrong(what, to_do).at(path));
    }
    if let Some(made) = made_ms.filter(|made| made.abs_diff(now_ms) > TOLERANCE_MS) {
        let seconds = made.abs_diff(now_ms) / 1000;
        let what = format!("the disk's clock is {seconds} s off this machine's");
        findings.push(Finding::wrong(what, "set the clock of whatever serves that disk"));
    }
    Report::new(at(now_ms), findings)
}

fn at(ms: u64) -> String {
    let stamp = i64::try_from(ms / 1000).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    stamp.map_or_else(|| format!("{ms} ms"), |stamp| stamp.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_cannot_be_right_is_told() {
        let now = EARLIEST_MS + 1_000_000_000;
        let whats = |now, changed, made| {
            let report = judge(now, Some(("/s/x".into(), changed)), made);
            report.findings.into_iter().map(|finding| finding.what).collect::<Vec<_>>()
        };
        assert_eq!(whats(now, now + TOLERANCE_MS, Some(now - TOLERANCE_MS)), [""; 0]);
        assert_eq!(whats(3_000, 0, None), ["the clock says 1970-01-01T00:00:03Z, which is long ago"]);
        assert_eq!(
            whats(now, now + 3_600_000, Some(now + 200_000)),
            [
                "/s/x was changed at 2026-01-12T14:46:40Z, and now it is 2026-01-12T13:46:40Z: the clock is wrong, or was",
                "the disk's clock is 200 s off this machine's",
            ]
        );
    }
}
