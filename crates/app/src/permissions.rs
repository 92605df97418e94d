//! Removes other users' access to the state directory and the config file at every start.

use std::{
    fs::{self, Permissions},
    io::ErrorKind,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use homard_settings::paths::Paths;

use crate::Error;

/// Permission bits of group and others.
const GROUP_AND_OTHERS: u32 = 0o077;
/// Bits that must be removed: any access by others, and writing by the group.
const UNACCEPTABLE: u32 = 0o027;

/// Restricts both and returns what was changed. Fails if one of them is accessible to others and cannot be changed.
pub(crate) fn restrict(paths: &Paths) -> Result<Vec<String>, Error> {
    let closed = [restrict_path(&paths.state)?, restrict_path(&paths.config)?];
    Ok(closed.into_iter().flatten().collect())
}

fn restrict_path(path: &Path) -> Result<Option<String>, Error> {
    let failed = |why: String| {
        let text = format!(
            "{} can be read or changed by other users, and that cannot be corrected: {why}\nnothing was started; correct it with: chmod go= {0}",
            path.display()
        );
        Error::Permissions(text)
    };
    let mode = match fs::metadata(path) {
        Ok(found) => found.permissions().mode() & 0o7777,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    if mode & GROUP_AND_OTHERS == 0 {
        return Ok(None);
    }
    let private_mode = mode & !GROUP_AND_OTHERS;
    let name = path.display();
    match fs::set_permissions(path, Permissions::from_mode(private_mode)) {
        Ok(()) => {
            Ok(Some(format!("other users could read {name} (mode {mode:04o}); its mode is {private_mode:04o} now")))
        }
        Err(error) if mode & UNACCEPTABLE != 0 => Err(failed(error.to_string())),
        Err(error) => {
            Ok(Some(format!("the group can read {name} (mode {mode:04o}), and that cannot be corrected: {error}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_paths_are_restricted_and_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let (state, config) = (folder.path().join("state"), folder.path().join("homard.json"));
        fs::create_dir(&state).unwrap();
        fs::write(&config, "{}").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for (loose, closed) in [((0o755, 0o644), (0o700, 0o600)), ((0o770, 0o440), (0o700, 0o400))] {
            set(&state, loose.0);
            set(&config, loose.1);
            let warnings =
                [restrict_path(&state), restrict_path(&config)].map(|warnings| warnings.unwrap().unwrap_or_default());
            assert!(
                warnings[0].contains(&format!("(mode {:04o}); its mode is {:04o} now", loose.0, closed.0)),
                "{warnings:?}"
            );
            assert!(warnings[1].contains("homard.json"), "{warnings:?}");
            assert_eq!((mode(&state), mode(&config)), closed);
            assert_eq!([restrict_path(&state), restrict_path(&config)].map(Result::unwrap), [None, None]);
        }
        assert_eq!(restrict_path(&folder.path().join("missing")).unwrap(), None);
    }

    #[test]
    fn a_path_that_cannot_be_restricted_prevents_the_start() {
        // The kernel does not allow this change, not even for root.
        let error = restrict_path(Path::new("/proc/self/status")).unwrap_err();
        assert!(error.to_string().contains("/proc/self/status can be read or changed by other users"), "{error:?}");
        assert!(error.to_string().contains("correct it with: chmod go= /proc/self/status"), "{error:?}");
    }
}
