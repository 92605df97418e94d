//! Validates every request recorded in the tests with the vendors' own Python SDKs.
//!
//! Their request types must accept each of them, and reject deliberately broken copies: otherwise a check that checks
//! nothing would pass. `sdk.py` does the validation.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::shell;

/// Packages from PyPI.
const PACKAGES: [&str; 3] = ["anthropic==2.8.0", "openai==3.49.0", "google-genai==3.1.0"];
/// Minimum number of requests: with fewer, the files were moved.
const MIN_REQUESTS: u64 = 100;

/// Validates with the SDKs, installed below `folder`; returns whether all is well. If they cannot be installed, it
/// reports that and returns true.
pub(super) fn check(folder: &Path) -> bool {
    let verdict = match install(&folder.join("sdk")) {
        Err(why) => Ok(format!("skipped: the SDKs cannot be installed from PyPI: {why:#}")),
        Ok(python) => validate(&python).map(|count| format!("pass ({count} requests)")),
    };
    let is_good = verdict.is_ok();
    let line = verdict.unwrap_or_else(|why| format!("FAIL: {why:#}"));
    println!("{:>5}  {:<28} {:<10} {line}", "sdk", "request types", "python");
    is_good
}

/// Installs the SDKs, unless that was done before; returns the path of their Python.
pub(super) fn install(home: &Path) -> Result<PathBuf> {
    let (venv, done) = (home.join("venv"), home.join("installed"));
    let python = venv.join("bin").join("python");
    let wanted = PACKAGES.join(" ");
    if fs::read_to_string(&done).ok().as_deref() != Some(&wanted) || !python.exists() {
        println!("installing {wanted} (once; this takes a minute) …");
        fs::create_dir_all(home)?;
        shell::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        shell::run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
        fs::write(&done, &wanted)?;
    }
    Ok(python)
}

/// Validates all requests; returns their number.
fn validate(python: &Path) -> Result<u64> {
    let requests = requests(&shell::files(&shell::root())?);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conform/sdk.py");
    let mut command = Command::new(python);
    command.arg(script).args(requests).current_dir(shell::root());
    let output: Value = serde_json::from_slice(&shell::output(&mut command)?).context("sdk.py did not write JSON")?;
    let rejected: Vec<_> = output["wrong"].as_object().into_iter().flatten().collect();
    if let Some((file, why)) = rejected.first() {
        bail!("{} requests are rejected; the first is {file}: {why}", rejected.len());
    }
    let missed: Vec<_> = output["missed"].as_array().into_iter().flatten().collect();
    if let Some(first) = missed.first() {
        bail!(
            "{} invalid requests are not rejected, so the check is not effective; the first is {first}",
            missed.len()
        );
    }
    let count = output["checked"].as_u64().unwrap_or(0);
    ensure!(count >= MIN_REQUESTS, "only {count} requests were found");
    Ok(count)
}

/// Returns the recorded requests, each as `<wire>=<file>`.
fn requests(files: &[PathBuf]) -> Vec<String> {
    let request = |path: &PathBuf| {
        let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
        let wire = match parts[..] {
            ["crates", "providers", "tests", "corpus", wire, _, "request.json" | "replay.json"] => wire,
            ["crates", "testkit", "tests", "pairs", _, "to", file] => file.strip_suffix(".json")?,
            _ => return None,
        };
        Some(format!("{wire}={}", path.display()))
    };
    files.iter().filter_map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_by_their_paths() {
        let files = [
            "crates/providers/tests/corpus/openai-responses/plain/request.json",
            "crates/providers/tests/corpus/openai-responses/plain/history.json",
            "crates/testkit/tests/pairs/openai-responses/to/anthropic-messages.json",
            "crates/testkit/tests/pairs/openai-responses/history.json",
        ];
        assert_eq!(
            requests(&files.map(PathBuf::from)),
            [format!("openai-responses={}", files[0]), format!("anthropic-messages={}", files[2])]
        );
    }
}
