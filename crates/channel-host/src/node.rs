//! Finding a Node that is new enough for the packages.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use homard_plugins::find_program;
use tokio::{process::Command, time::timeout};

/// Version of Node that is installed beside the packages if the machine has none that is new enough.
pub const NODE_VERSION: &str = "24.21.0";

/// Timeout for the version query.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// A version of Node: major and minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeVersion {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

impl NodeVersion {
    /// Minimum version for the packages.
    pub const MIN: Self = Self { major: 24, minor: 16 };

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().strip_prefix('v')?.split('.').map(str::parse);
        Some(Self { major: parts.next()?.ok()?, minor: parts.next()?.ok()? })
    }
}

impl fmt::Display for NodeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Name of the npm package with Node's program for this machine.
pub(crate) fn program_package() -> Option<String> {
    let system = match std::env::consts::OS {
        "linux" => "linux",
        "macos" => "darwin",
        _ => return None,
    };
    let machine = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        _ => return None,
    };
    Some(format!("node-{system}-{machine}"))
}

/// Path of the program that was installed beside the packages.
pub(crate) fn installed_program(packages: &Path) -> Option<PathBuf> {
    let program = packages.join("node_modules").join(program_package()?).join("bin/node");
    program.is_file().then_some(program)
}

/// Returns a Node that is new enough: the configured one, the one beside the packages, or the one on the `PATH`. An
/// error says what was found.
pub(crate) async fn find(
    configured: Option<&Path>,
    packages: &Path,
    path: &str,
    min: NodeVersion,
) -> Result<PathBuf, String> {
    let on_path = || find_program("node", Path::new("/"), path).ok();
    let Some(node) = configured.map(Path::to_owned).or_else(|| installed_program(packages)).or_else(on_path) else {
        return Err("node was not found on the PATH".to_owned());
    };
    let displayed = node.display();
    let mut command = Command::new(&node);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).env_clear().kill_on_drop(true);
    let output = match timeout(VERSION_TIMEOUT, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("{displayed} cannot be run: {error}")),
        Err(_) => return Err(format!("{displayed} --version timed out")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    match NodeVersion::parse(&text) {
        Some(version) if version >= min => Ok(node),
        Some(version) => Err(format!("{displayed} is Node {version}, and the channel packages need {min} or newer")),
        None => Err(format!("{displayed} --version did not print a version")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        let version = |text| NodeVersion::parse(text);
        assert_eq!(version("v24.16.0\n"), Some(NodeVersion::MIN));
        assert!(version("v24.9.1").unwrap() < NodeVersion::MIN && version("v26.0.0").unwrap() > NodeVersion::MIN);
        assert_eq!([version("24.1"), version("v24"), version("node")], [None; 3]);
    }
}
