//! Tier A: layers as the arguments of `bwrap`, which makes namespaces without being root.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::home_view::goes_up;

use super::{
    Place,
    layers::{Layer, Layers, PRIVATE},
    words,
};

/// Where the program that does the last step is inside.
pub(super) const HELPER: &str = "/run/homard-sandbox";

/// What every command gets: namespaces of its own, no capabilities, and an end when we end.
const ALWAYS: [&str; 15] = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
    "--cap-drop",
    "ALL",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
];

/// Shared memory, which is in a directory of its own too.
const SHARED: &str = "/dev/shm";

/// All arguments but the filter and the command. `size` is how many bytes a directory in memory may hold.
pub(super) fn arguments(layers: &Layers, place: &Place<'_>, size: Option<u64>) -> Vec<OsString> {
    let mut all: Vec<OsString> = words(ALWAYS).collect();
    let temporary = |path: &Path| {
        let size = size.into_iter().flat_map(|size| [OsString::from("--size"), size.to_string().into()]);
        size.chain([OsString::from("--tmpfs"), path.into()]).collect::<Vec<_>>()
    };
    all.extend(temporary(Path::new(SHARED)));
    if !layers.has_network {
        all.extend(words(["--unshare-net"]));
    }
    // Nobody may type into the terminal that we were started from. One of its own it may have.
    if !place.has_terminal {
        all.extend(words(["--new-session"]));
    }
    let mut sealed: Vec<&PathBuf> = Vec::new();
    for (path, layer) in &layers.all {
        match layer {
            Layer::Private => all.extend(temporary(path)),
            Layer::Readable => all.extend([OsString::from("--ro-bind"), path.into(), path.into()]),
            Layer::Writable => all.extend([OsString::from("--bind"), path.into(), path.into()]),
            Layer::Hidden if path.is_dir() => {
                all.extend([OsString::from("--tmpfs"), path.into()]);
                sealed.push(path);
            }
            Layer::Hidden => all.extend(nothing(path)),
        }
    }
    all.extend(layers.sockets.iter().flat_map(nothing));
    for (link, target) in &layers.links {
        all.extend([OsString::from("--symlink"), target.into(), link.into()]);
    }
    // Last, because places for what is mounted in them had to be made.
    all.extend(sealed.into_iter().flat_map(|path| [OsString::from("--remount-ro"), path.into()]));
    if layers.has_network {
        all.extend(names());
    }
    // Directories on a way that goes up again may be hidden.
    let real = goes_up(place.cwd).then(|| place.cwd.canonicalize().ok()).flatten();
    all.extend([OsString::from("--chdir"), real.as_deref().unwrap_or(place.cwd).into()]);
    all
}

/// Hides what is no directory.
fn nothing(path: &PathBuf) -> [OsString; 3] {
    [OsString::from("--ro-bind"), OsString::from("/dev/null"), path.into()]
}

/// Names of hosts are looked up with the help of a file that often lies in `/run`, which is private.
fn names() -> Vec<OsString> {
    let Ok(path) = Path::new("/etc/resolv.conf").canonicalize() else { return Vec::new() };
    if !PRIVATE.iter().any(|private| path.starts_with(private)) {
        return Vec::new();
    }
    vec![OsString::from("--ro-bind"), (&path).into(), (&path).into()]
}
