//! Checks free space and the kind of disk.

use homard_journal::checkup::{DiskStatus, disk_status};

use crate::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};

/// Free space below which a warning is given.
const LOW_SPACE: u64 = 512 << 20;

/// Checks the disk of the state directory, or of its nearest existing ancestor.
pub fn check(context: &CheckContext) -> CheckReport {
    let state = &context.paths.state;
    let Some(existing) = state.ancestors().find(|folder| folder.is_dir()) else {
        return CheckReport::new("unknown", Vec::new());
    };
    match disk_status(existing) {
        Ok(found) => evaluate(&found),
        Err(error) => {
            let message = format!("cannot read the disk usage of {}: {error}", existing.display());
            CheckReport::new("", vec![DoctorFinding::note(message, "make sure that the disk is mounted and readable")])
        }
    }
}

fn evaluate(volume: &DiskStatus) -> CheckReport {
    let mib = |bytes: u64| bytes >> 20;
    let (free, min_free) = (mib(volume.free), mib(volume.min_free));
    let remedy = "free some space, or choose a directory on another disk with HOMARD_STATE_DIR";
    let mut findings = Vec::new();
    if volume.free < volume.min_free {
        let message = format!("{free} MiB free; below {min_free} MiB, new messages are rejected");
        findings.push(DoctorFinding::problem(message, remedy));
    } else if volume.free < LOW_SPACE {
        findings.push(DoctorFinding::note(
            format!("only {free} MiB free; below {min_free} MiB, new messages are rejected"),
            remedy,
        ));
    }
    if let Some(why) = &volume.rejection {
        let (message, remedy) = why.rsplit_once("; ").unwrap_or((why, remedy));
        findings.push(DoctorFinding::problem(message, remedy));
    }
    CheckReport::new(format!("{free} MiB free"), findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_a_problem_and_little_space_a_note() {
        let levels = |free: u64, rejection: Option<&str>| {
            let volume = DiskStatus { free: free << 20, min_free: 64 << 20, rejection: rejection.map(str::to_owned) };
            let report = evaluate(&volume);
            (report.findings.len(), report.needs_action())
        };
        assert_eq!(levels(63, None), (1, true));
        assert_eq!(levels(64, None), (1, false));
        assert_eq!(levels(512, None), (0, false));
        assert_eq!(levels(9999, Some("it is on NFS; choose another")), (1, true));
    }
}
