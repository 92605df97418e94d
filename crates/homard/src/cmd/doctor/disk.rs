//! Checks free space and the kind of disk.

use homard_journal::checkup::{DiskStatus, disk_status};

use super::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};

/// Free space below which a warning is given.
const LOW_SPACE: u64 = 512 << 20;

/// Checks the disk of the state directory, or of its nearest existing ancestor.
pub(super) fn check(scene: &CheckContext) -> CheckReport {
    let state = &scene.paths.state;
    let Some(there) = state.ancestors().find(|folder| folder.is_dir()) else {
        return CheckReport::new("unknown", Vec::new());
    };
    match disk_status(there) {
        Ok(found) => evaluate(&found),
        Err(error) => {
            let what = format!("cannot read the disk usage of {}: {error}", there.display());
            CheckReport::new("", vec![DoctorFinding::note(what, "check the disk")])
        }
    }
}

fn evaluate(volume: &DiskStatus) -> CheckReport {
    let mib = |bytes: u64| bytes >> 20;
    let (free, least) = (mib(volume.free), mib(volume.min_free));
    let to_do = "free some space, or choose a directory on another disk with HOMARD_STATE_DIR";
    let mut findings = Vec::new();
    if volume.free < volume.min_free {
        let what = format!("{free} MiB free; below {least} MiB, new messages are rejected");
        findings.push(DoctorFinding::problem(what, to_do));
    } else if volume.free < LOW_SPACE {
        findings.push(DoctorFinding::note(
            format!("only {free} MiB free; below {least} MiB, new messages are rejected"),
            to_do,
        ));
    }
    if let Some(why) = &volume.rejection {
        let (what, to_do) = why.rsplit_once("; ").unwrap_or((why, to_do));
        findings.push(DoctorFinding::problem(what, to_do));
    }
    CheckReport::new(format!("{free} MiB free"), findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_needs_a_hand_and_little_is_told() {
        let told = |free: u64, refused: Option<&str>| {
            let volume = DiskStatus { free: free << 20, min_free: 64 << 20, rejection: refused.map(str::to_owned) };
            let report = evaluate(&volume);
            (report.findings.len(), report.needs_action())
        };
        assert_eq!(told(63, None), (1, true));
        assert_eq!(told(64, None), (1, false));
        assert_eq!(told(512, None), (0, false));
        assert_eq!(told(9999, Some("it is on NFS; choose another")), (1, true));
    }
}
