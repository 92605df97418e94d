//! Validates frames that clients received, and those of the gateway's own tests, against OpenClaw's published schema of
//! protocol 4.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::install;
use crate::shell;

/// The script that validates.
const SCRIPT: &str = include_str!("schema.mjs");

/// Variable with the file to which the gateway's tests write the frames that they receive.
const RECORD: &str = "HOMARD_TEST_FRAMES";

/// Runs the gateway's own tests, and validates their frames.
pub(super) fn check_own_tests(folder: &Path, node: &Path, logs: &Path) -> Result<()> {
    let record = logs.join("tests.jsonl");
    fs::write(&record, "")?;
    let mut tests = shell::cargo(&["test", "--package", "homard-gateway", "--test", "it", "--quiet"]);
    shell::run(tests.env(RECORD, &record)).context("the gateway's own tests failed")?;
    check(folder, node, &record)
}

/// Validates recorded frames; the findings are stored beside the record.
pub(super) fn check(folder: &Path, node: &Path, record: &Path) -> Result<()> {
    let home = folder.join("schema");
    let wanted = json!({"@openclaw/gateway-protocol": "2026.9.1", "ajv": "8"});
    install::npm(&home, &json!({"private": true, "dependencies": wanted}))?;
    let script = home.join("schema.mjs");
    fs::write(&script, SCRIPT)?;
    let schema = home.join("node_modules/@openclaw/gateway-protocol/protocol.schema.json");
    let output = Command::new(node).arg(&script).arg(record).arg(schema).output().context("cannot start Node")?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let Ok(found) = serde_json::from_str::<Value>(&stdout) else {
        bail!("the script failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    };
    fs::write(record.with_extension("schema.json"), format!("{found:#}\n"))?;
    println!("frames of protocol 4: {}, checked parts: {}", found["count"], found["checked"]);
    for why in found["known"].as_array().into_iter().flatten() {
        println!("  known deviation: {}", why.as_str().unwrap_or_default());
    }
    let texts = |name: &str| -> Vec<String> {
        found[name].as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
    };
    println!("  not in the schema: {}", texts("unknown").join(", "));
    let deviations = texts("deviations");
    ensure!(deviations.is_empty(), "{}", deviations.join("; "));
    Ok(())
}
