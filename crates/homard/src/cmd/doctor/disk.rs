//! Checks free space and the kind of disk.

use homard_journal::checkup::{Volume, volume};

use super::{
    Scene,
    finding::{Finding, Report},
};

/// Free space below which a warning is given.
const SCARCE: u64 = 512 << 20;

/// Checks the disk of the state directory, or of its nearest existing ancestor.
pub(super) fn look(scene: &Scene) -> Report {
    let state = &scene.paths.state;
    let Some(there) = state.ancestors().find(|folder| folder.is_dir()) else {
        return Report::new("nobody can tell", Vec::new());
    };
    match volume(there) {
        Ok(found) => judge(&found),
        Err(error) => {
            let what = format!("the disk of {} cannot be looked at: {error}", there.display());
            Report::new("", vec![Finding::note(what, "see whether it is well")])
        }
    }
}

fn judge(volume: &Volume) -> Report {
    let mib = |bytes: u64| bytes >> 20;
    let (free, least) = (mib(volume.free), mib(volume.least));
    let to_do = "free some space, or choose a directory on another disk with HOMARD_STATE_DIR";
    let mut findings = Vec::new();
    if volume.free < volume.least {
        let what = format!("{free} MiB are free, and with less than {least} new messages are refused");
        findings.push(Finding::wrong(what, to_do));
    } else if volume.free < SCARCE {
        findings
            .push(Finding::note(format!("only {free} MiB are free; below {least} new messages are refused"), to_do));
    }
    if let Some(why) = &volume.refused {
        let (what, to_do) = why.rsplit_once("; ").unwrap_or((why, to_do));
        findings.push(Finding::wrong(what, to_do));
    }
    Report::new(format!("{free} MiB free"), findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_needs_a_hand_and_little_is_told() {
        let told = |free: u64, refused: Option<&str>| {
            let volume = Volume { free: free << 20, least: 64 << 20, refused: refused.map(str::to_owned) };
            let report = judge(&volume);
            (report.findings.len(), report.needs_a_hand())
        };
        assert_eq!(told(63, None), (1, true));
        assert_eq!(told(64, None), (1, false));
        assert_eq!(told(512, None), (0, false));
        assert_eq!(told(9999, Some("it is on NFS; choose another")), (1, true));
    }
}
