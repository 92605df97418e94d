//! Tier A: translates layers to arguments of `bwrap`, which creates namespaces without root.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::{
    CommandLocation,
    home_view::contains_parent,
    layers::{Layer, Layers, PRIVATE},
};

/// Path of the helper program inside the sandbox.
pub(crate) const HELPER: &str = "/run/homard-sandbox";

/// Arguments for every command: its own namespaces, no capabilities, and termination together with the gateway.
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

/// Shared memory, a private directory too.
const SHARED: &str = "/dev/shm";

/// Returns all arguments but the filter and the command. `size` is the size limit of a directory in memory in bytes.
pub(crate) fn arguments(layers: &Layers, location: &CommandLocation<'_>, size: Option<u64>) -> Vec<OsString> {
    let mut all: Vec<OsString> = words(ALWAYS).collect();
    let temporary = |path: &Path| {
        let size = size.into_iter().flat_map(|size| [OsString::from("--size"), size.to_string().into()]);
        size.chain([OsString::from("--tmpfs"), path.into()]).collect::<Vec<_>>()
    };
    all.extend(temporary(Path::new(SHARED)));
    if !layers.has_network {
        all.extend(words(["--unshare-net"]));
    }
    // A new session prevents input to the terminal that Homard was started from. A terminal of its own is allowed.
    if !location.has_terminal {
        all.extend(words(["--new-session"]));
    }
    let mut hidden_parents: Vec<&PathBuf> = Vec::new();
    for (path, layer) in &layers.all {
        match layer {
            Layer::Private => all.extend(temporary(path)),
            Layer::Readable => all.extend([OsString::from("--ro-bind"), path.into(), path.into()]),
            Layer::Writable => all.extend([OsString::from("--bind"), path.into(), path.into()]),
            Layer::Hidden if path.is_dir() => {
                all.extend([OsString::from("--tmpfs"), path.into()]);
                hidden_parents.push(path);
            }
            Layer::Hidden => all.extend(nothing(path)),
        }
    }
    all.extend(layers.sockets.iter().flat_map(nothing));
    for (link, target) in &layers.links {
        all.extend([OsString::from("--symlink"), target.into(), link.into()]);
    }
    // Last, because mount points inside them had to be created first.
    all.extend(hidden_parents.into_iter().flat_map(|path| [OsString::from("--remount-ro"), path.into()]));
    if layers.has_network {
        all.extend(names());
    }
    // Directories on a path with `..` may be hidden.
    let real = contains_parent(location.cwd).then(|| location.cwd.canonicalize().ok()).flatten();
    all.extend([OsString::from("--chdir"), real.as_deref().unwrap_or(location.cwd).into()]);
    all
}

/// Hides a path that is not a directory.
fn nothing(path: &PathBuf) -> [OsString; 3] {
    [OsString::from("--ro-bind"), OsString::from("/dev/null"), path.into()]
}

/// Returns a mount of the resolver configuration for host names, which is often in the private `/run`.
fn names() -> Vec<OsString> {
    let Ok(path) = Path::new("/etc/resolv.conf").canonicalize() else { return Vec::new() };
    if !PRIVATE.iter().any(|private| path.starts_with(private)) {
        return Vec::new();
    }
    vec![OsString::from("--ro-bind"), (&path).into(), (&path).into()]
}

/// Converts arguments of a command line.
fn words<const N: usize>(argv: [&str; N]) -> impl Iterator<Item = OsString> {
    argv.map(OsString::from).into_iter()
}
