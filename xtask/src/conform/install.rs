//! Installs the clients, each with the Node version that it needs, from the npm registry.

use std::{
    env::consts,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::client::{OpenClawClient, ProtocolVersion};
use crate::shell;

/// A version of OpenClaw.
#[derive(Debug)]
pub(super) struct OpenClawVersion {
    /// Version of the npm package `openclaw`.
    version: &'static str,
    protocol: ProtocolVersion,
    /// The major version of Node that it needs.
    node: &'static str,
    /// Packages that npm must use instead of unavailable ones.
    overrides: &'static [(&'static str, &'static str)],
}

/// The versions that are tested.
pub(super) const VERSIONS: &[OpenClawVersion] = &[
    OpenClawVersion {
        version: "2026.2.9",
        protocol: ProtocolVersion::Three,
        node: "22",
        // One is a git URL, the other was removed from the registry.
        overrides: &[("libsignal", "npm:libsignal@2.0.1"), ("cssomnom", "npm:cssom@0.5.0")],
    },
    OpenClawVersion { version: "2026.9.6", protocol: ProtocolVersion::Four, node: "24", overrides: &[] },
];

/// Installs a version below `folder`, unless that was done before, and checks that it starts.
pub(super) fn install(generation: &OpenClawVersion, folder: &Path, logs: &Path) -> Result<OpenClawClient> {
    let version = generation.version;
    let home = folder.join(version);
    let node_package = node_package()?;
    let wanted = manifest(generation, &node_package);
    npm(&home, &wanted)?;
    let modules = home.join("node_modules");
    let node: PathBuf = modules.join(node_package).join("bin").join("node");
    let script = modules.join("openclaw").join("openclaw.mjs");
    let client = OpenClawClient { version, protocol: generation.protocol, node, script, logs: logs.join(version) };
    let reported = client.reported_version()?;
    ensure!(
        reported.contains(version),
        "the client in {} should be {version}, but reports {reported:?}",
        home.display()
    );
    println!("OpenClaw {version} starts");
    Ok(client)
}

/// Installs the dependencies of a manifest in a folder, unless that was done before.
pub(crate) fn npm(home: &Path, manifest: &Value) -> Result<()> {
    let (manifest, done) = (manifest.to_string(), home.join("installed.json"));
    if fs::read_to_string(&done).ok().as_ref() == Some(&manifest) {
        return Ok(());
    }
    println!("installing {manifest} (once; this takes a minute or more) …");
    fs::create_dir_all(home)?;
    fs::write(home.join("package.json"), &manifest)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(home);
    shell::run(&mut npm).context("npm is needed to install the clients; it comes with Node")?;
    fs::write(&done, manifest)?;
    Ok(())
}

fn manifest(generation: &OpenClawVersion, node_package: &str) -> Value {
    let overrides: Value =
        generation.overrides.iter().map(|(name, with)| ((*name).to_owned(), Value::from(*with))).collect();
    json!({
        "private": true,
        "dependencies": {"openclaw": generation.version, node_package: generation.node},
        "overrides": overrides,
    })
}

/// Returns the package that contains Node for this machine. The package `node` only selects it, with a script.
pub(super) fn node_package() -> Result<String> {
    let system = match consts::OS {
        "linux" => "linux",
        "macos" => "darwin",
        other => bail!("there is no Node package for {other}; run conform on Linux or macOS"),
    };
    let machine = match consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => bail!("there is no Node package for {other}; run conform on x86_64 or aarch64"),
    };
    Ok(format!("node-{system}-{machine}"))
}
