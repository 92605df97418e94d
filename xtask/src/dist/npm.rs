//! The npm packages: `homard`, a small script, and one package per platform with the binary.

use std::{fs, path::Path, process::Command};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Release, install, tar};
use crate::shell;

/// Writes both packages, as `npm pack` would.
pub(super) fn packages(release: &Release) -> Result<()> {
    let architecture = if std::env::consts::ARCH == "x86_64" { "x64" } else { "arm64" };
    let platform = format!("homard-linux-{architecture}");
    let description = "Self-hosted AI agent gateway, compatible with OpenClaw";
    let folder = release.out.join("npm");
    let wrapper = folder.join("homard");
    let script = fs::read(shell::root().join("xtask/packaging/npm/homard.js"))?;
    install(&wrapper.join("bin/homard.js"), &script, 0o755)?;
    let manifest = json!({
        "name": "homard", "version": release.version, "description": description, "license": "MIT",
        "bin": {"homard": "bin/homard.js"}, "engines": {"node": ">=18"},
        "optionalDependencies": {"homard-linux-x64": release.version, "homard-linux-arm64": release.version},
    });
    pack(release, &wrapper, &manifest)?;
    let binary = folder.join(&platform);
    install(&binary.join("bin/homard"), &fs::read(release.tree.join("usr/bin/homard"))?, 0o755)?;
    let mut manifest = json!({
        "name": platform, "version": release.version, "description": format!("{description} (binary)"),
        "license": "MIT", "os": ["linux"], "cpu": [architecture],
    });
    if release.glibc.is_some() {
        manifest["libc"] = json!(["glibc"]);
    }
    pack(release, &binary, &manifest)?;
    Ok(fs::remove_dir_all(folder)?)
}

/// Runs the first command with `npx` in an empty home, from the packages and without a registry.
pub(super) fn test(release: &Release) -> Result<()> {
    let (home, mut npx) = (tempfile::tempdir()?, Command::new("npx"));
    // Agents work in the current directory, but not in the home directory without consent.
    let work = home.path().join("work");
    fs::create_dir(&work)?;
    npx.args(["--yes", "--offline"]).current_dir(work).env("HOME", home.path());
    npx.env("HOMARD_STATE_DIR", home.path().join("state")).env_remove("HOMARD_CONFIG_PATH");
    for entry in fs::read_dir(&release.out)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "tgz") {
            npx.arg("--package").arg(path);
        }
    }
    let output = shell::output(npx.args(["--", "homard", "agent", "--message", "hello"]))?;
    let answer = String::from_utf8_lossy(&output).trim().to_owned();
    ensure!(!answer.is_empty(), "the first command printed nothing");
    println!("ok   npx homard answers: {answer}");
    Ok(())
}

fn pack(release: &Release, folder: &Path, manifest: &Value) -> Result<()> {
    install(&folder.join("package.json"), format!("{manifest:#}\n").as_bytes(), 0o644)?;
    let name = manifest["name"].as_str().unwrap_or_default();
    tar(&release.out.join(format!("{name}-{}.tgz", release.version)), folder, &["--transform", "s,^\\.,package,"])
}
