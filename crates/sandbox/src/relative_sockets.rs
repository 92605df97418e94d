//! Finds Unix sockets that were bound by a relative path. The kernel's table lists the path as it was bound, without
//! the directory, so the sockets have to be searched for.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

/// Index of the path column in the kernel's table; the columns before it are numbers.
const PATH_COLUMN: usize = 7;

/// Returns the existing sockets with these relative paths: below the working directory of a process, or among the
/// sockets found in the workspace. Elsewhere, a socket is missed if its process has changed the working directory
/// since.
pub(crate) fn find(table: &str, in_workspace: &[PathBuf]) -> Vec<PathBuf> {
    let names: BTreeSet<&Path> = table.lines().skip(1).filter_map(relative).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let below = working_directories().into_iter().flat_map(|folder| {
        let paths = names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
        paths.into_iter().filter(|path| is_socket(path))
    });
    let known = in_workspace.iter().filter(|path| names.iter().any(|name| path.ends_with(name))).cloned();
    below.chain(known).collect()
}

/// Returns the path in a line, if it is relative.
pub(crate) fn relative(line: &str) -> Option<&Path> {
    let mut rest = line;
    for _ in 0..PATH_COLUMN {
        rest = rest.trim_start().split_once(' ')?.1;
    }
    // Abstract names, which have no file, begin with @.
    (!rest.is_empty() && !rest.starts_with(['/', '@'])).then(|| Path::new(rest))
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
}

/// Returns the working directories of all processes that this user may inspect.
fn working_directories() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_names_are_read_from_the_table() {
        let lines = [
            ("0000000000000000: 00000002 00000000 00010000 0001 01 25427 rel.sock", Some("rel.sock")),
            ("0000000000000000: 00000002 00000000 00010000 0001 01   427 run/a b.sock", Some("run/a b.sock")),
            ("0000000000000000: 00000002 00000000 00010000 0001 01 25427 /run/a.sock", None),
            ("0000000000000000: 00000002 00000000 00010000 0001 01 25427 @abstract", None),
            ("0000000000000000: 00000003 00000000 00000000 0001 03 25427", None),
        ];
        for (line, expected) in lines {
            assert_eq!(relative(line), expected.map(Path::new), "{line}");
        }
    }
}
