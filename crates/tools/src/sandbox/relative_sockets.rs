//! Unix sockets that were bound by a relative path. The kernel's table names them as they were bound, without the
//! directory, so they have to be looked for.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

/// The column of the kernel's table that holds the path; before it there are numbers.
const PATH_COLUMN: usize = 7;

/// The sockets among these names that are there: below the working directory of a process, or among the sockets that were
/// found in the workspace. A process that has changed its directory since may be missed elsewhere.
pub(super) fn find(table: &str, in_workspace: &[PathBuf]) -> Vec<PathBuf> {
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

/// The path of a line, if it is relative.
fn relative(line: &str) -> Option<&Path> {
    let mut rest = line;
    for _ in 0..PATH_COLUMN {
        rest = rest.trim_start().split_once(' ')?.1;
    }
    // Names without a file begin with @.
    (!rest.is_empty() && !rest.starts_with(['/', '@'])).then(|| Path::new(rest))
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
}

/// Where the processes work that this user may look at.
fn working_directories() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l1_relative_names_are_read_from_the_table() {
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
