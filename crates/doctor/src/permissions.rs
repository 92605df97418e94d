//! Checks that the state belongs to this user and is not accessible to others.

use std::path::Path;

use crate::{
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
pub fn check(context: &CheckContext) -> CheckReport {
    let state = &context.paths.state;
    if !state.exists() {
        return CheckReport::new(format!("{} does not exist yet", state.display()), Vec::new());
    }
    let uid = rustix::process::geteuid().as_raw();
    let config = FileInfo::read(&context.paths.config).ok().flatten().filter(|file| !file.path.starts_with(state));
    let files = context.listing.entries.iter().chain(&config);
    let mut findings: Vec<DoctorFinding> = files.clone().filter_map(|file| open(file, state)).collect();
    findings.extend(foreign_files(files.filter(|file| file.owner != uid), uid));
    findings.extend(context.listing.unreadable.iter().map(|(path, error)| {
        let remedy = format!("make the user that runs Homard its owner: chown -R {uid} {}", path.display());
        DoctorFinding::problem(format!("{} cannot be read: {error}", path.display()), remedy).at(path)
    }));
    if let Err(error) = rustix::fs::access(state, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
        let remedy = "run Homard as the user that owns it, or choose another directory with HOMARD_STATE_DIR";
        findings.push(
            DoctorFinding::problem(format!("{} cannot be written to: {error}", state.display()), remedy).at(state),
        );
    }
    CheckReport::new(format!("{} is accessible only by its owner", state.display()), findings)
}

/// Returns a finding if others have access. Below a directory that is closed to others only secrets matter.
fn open(file: &FileInfo, state: &Path) -> Option<DoctorFinding> {
    let FileInfo { path, mode, .. } = file;
    let is_state = path == state;
    if mode & GROUP_AND_OTHERS == 0 || !(is_state || is_secret(file, state)) {
        return None;
    }
    let private_mode = mode & !GROUP_AND_OTHERS & 0o777;
    let message = format!("{} is accessible by other users (mode {mode:o})", path.display());
    let fix = Fix::Mode(path.clone(), private_mode);
    Some(DoctorFinding::problem(message, format!("chmod {private_mode:o} {}", path.display())).at(path).fixed_by(fix))
}

fn is_secret(file: &FileInfo, state: &Path) -> bool {
    let Ok(relative) = file.path.strip_prefix(state) else { return true };
    let top = relative.iter().next().and_then(|name| name.to_str()).unwrap_or_default();
    SECRET_FOLDERS.contains(&top)
        || (!file.is_folder && SECRET_FILES.iter().any(|secret| file.name().starts_with(secret)))
}

/// Returns one finding for all files of other users.
fn foreign_files<'a>(mut files: impl Iterator<Item = &'a FileInfo>, uid: u32) -> Option<DoctorFinding> {
    let FileInfo { path, owner, .. } = files.next()?;
    let more = match files.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let message = format!("{}{more} belongs to user {owner}, but Homard runs as user {uid}", path.display());
    let remedy = "run Homard as the user that owns the state directory, or give all of it to one user with chown -R";
    // Root can access everything; but files that it creates would be inaccessible to the owner.
    Some(if uid == 0 { DoctorFinding::note(message, remedy) } else { DoctorFinding::problem(message, remedy) }.at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_info(path: &str, mode: u32) -> FileInfo {
        FileInfo { path: path.into(), mode, owner: 7, is_folder: !path.contains('.'), changed_ms: 0 }
    }

    #[test]
    fn the_directory_and_secrets_are_for_their_owner_only() {
        let state = Path::new("/s");
        let fix = |path: &str, mode| open(&file_info(path, mode), state).and_then(|finding| finding.fix);
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
    fn files_of_other_users_are_reported_once() {
        let all = [file_info("/s/a", 0), file_info("/s/b", 0)];
        let finding_for =
            |uid| foreign_files(all.iter(), uid).map(|finding| (finding.needs_action(), finding.message)).unwrap();
        assert_eq!(finding_for(8), (true, "/s/a (and 1 more) belongs to user 7, but Homard runs as user 8".to_owned()));
        assert!(!finding_for(0).0);
        assert_eq!(foreign_files([].iter(), 0), None);
    }
}
