//! Checks that the state belongs to this user and is not accessible to others.

use std::path::Path;

use super::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
    fix::Fix,
    listing::FileInfo,
};

/// Permission bits of group and others.
const GROUP_AND_OTHERS: u32 = 0o077;

/// Prefixes of the names of files with secrets.
const SECRET_FILES: [&str; 6] =
    ["gateway-token", "homard.json", "openclaw.json", "config.last-good.json", "auth-profiles.json", "auth.json"];
/// Directories with secrets.
const SECRET_FOLDERS: [&str; 3] = ["credentials", "devices", "identity"];

/// Checks the listed files and the config file, which may be elsewhere.
pub(super) fn check(scene: &CheckContext) -> CheckReport {
    let state = &scene.paths.state;
    if !state.exists() {
        return CheckReport::new(format!("{} does not exist yet", state.display()), Vec::new());
    }
    let me = rustix::process::geteuid().as_raw();
    let config = FileInfo::read(&scene.paths.config).ok().flatten().filter(|seen| !seen.path.starts_with(state));
    let seen = scene.listing.entries.iter().chain(&config);
    let mut findings: Vec<DoctorFinding> = seen.clone().filter_map(|seen| open(seen, state)).collect();
    findings.extend(foreign_files(seen.filter(|seen| seen.owner != me), me));
    findings.extend(scene.listing.unreadable.iter().map(|(path, why)| {
        let to_do = format!("make the user that runs Homard its owner: chown -R {me} {}", path.display());
        DoctorFinding::problem(format!("{} cannot be read: {why}", path.display()), to_do).at(path)
    }));
    if let Err(why) = rustix::fs::access(state, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
        let to_do = "run Homard as the user that owns it, or choose another directory with HOMARD_STATE_DIR";
        findings
            .push(DoctorFinding::problem(format!("{} cannot be written to: {why}", state.display()), to_do).at(state));
    }
    CheckReport::new(format!("{} is accessible only by its owner", state.display()), findings)
}

/// Returns a finding if others have access. Below a directory that is closed to others only secrets matter.
fn open(seen: &FileInfo, state: &Path) -> Option<DoctorFinding> {
    let FileInfo { path, mode, .. } = seen;
    let is_state = path == state;
    if mode & GROUP_AND_OTHERS == 0 || !(is_state || is_secret(seen, state)) {
        return None;
    }
    let wanted = mode & !GROUP_AND_OTHERS & 0o777;
    let what = format!("{} is accessible by other users (mode {mode:o})", path.display());
    let fix = Fix::Mode(path.clone(), wanted);
    Some(DoctorFinding::problem(what, format!("chmod {wanted:o} {}", path.display())).at(path).fixed_by(fix))
}

fn is_secret(seen: &FileInfo, state: &Path) -> bool {
    let Ok(inside) = seen.path.strip_prefix(state) else { return true };
    let top = inside.iter().next().and_then(|name| name.to_str()).unwrap_or_default();
    SECRET_FOLDERS.contains(&top)
        || (!seen.is_folder && SECRET_FILES.iter().any(|secret| seen.name().starts_with(secret)))
}

/// Returns one finding for all files of other users.
fn foreign_files<'a>(mut seen: impl Iterator<Item = &'a FileInfo>, me: u32) -> Option<DoctorFinding> {
    let FileInfo { path, owner, .. } = seen.next()?;
    let more = match seen.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let what = format!("{}{more} belongs to user {owner}, but Homard runs as user {me}", path.display());
    let to_do = "run Homard as the user that owns the state directory, or give all of it to one user with chown -R";
    // Root can access everything; but files that it creates would be inaccessible to the owner.
    Some(if me == 0 { DoctorFinding::note(what, to_do) } else { DoctorFinding::problem(what, to_do) }.at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &str, mode: u32) -> FileInfo {
        FileInfo { path: path.into(), mode, owner: 7, is_folder: !path.contains('.'), changed_ms: 0 }
    }

    #[test]
    fn the_directory_and_secrets_are_for_their_owner_only() {
        let state = Path::new("/s");
        let fix = |path: &str, mode| open(&seen(path, mode), state).and_then(|finding| finding.fix);
        let mode = |path: &str, mode| Some(Fix::Mode(path.into(), mode));
        assert_eq!(fix("/s", 0o755), mode("/s", 0o700));
        assert_eq!(fix("/s", 0o700), None);
        assert_eq!(fix("/s/homard.json", 0o644), mode("/s/homard.json", 0o600));
        assert_eq!(fix("/s/homard.json.bak.1", 0o640), mode("/s/homard.json.bak.1", 0o600));
        assert_eq!(
            fix("/s/agents/main/agent/auth-profiles.json", 0o604),
            mode("/s/agents/main/agent/auth-profiles.json", 0o600)
        );
        assert_eq!(fix("/s/credentials/telegram.json", 0o444), mode("/s/credentials/telegram.json", 0o400));
        assert_eq!(fix("/elsewhere/config.json", 0o664), mode("/elsewhere/config.json", 0o600));
        assert_eq!(fix("/s/agents/main/sessions/s1.jsonl", 0o644), None);
    }

    #[test]
    fn what_belongs_to_others_is_told_once() {
        let all = [seen("/s/a", 0), seen("/s/b", 0)];
        let told = |me| foreign_files(all.iter(), me).map(|finding| (finding.needs_action(), finding.message)).unwrap();
        assert_eq!(told(8), (true, "/s/a (and 1 more) belongs to user 7, but Homard runs as user 8".to_owned()));
        assert!(!told(0).0);
        assert_eq!(foreign_files([].iter(), 0), None);
    }
}
