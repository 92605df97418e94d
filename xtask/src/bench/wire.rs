//! Cost of a wire decoder compared with reading without parsing. The example `read_stream` of the providers crate does
//! both, interleaved.

use std::{path::Path, process::Command};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{model::BenchModel, report::BenchReport};
use crate::shell;

/// Measurement of one stream: CPU time, and time to the first text, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WireMeasurement {
    pub(super) cpu_time: f64,
    pub(super) first: f64,
}

/// Builds the example beside the gateway's binary, runs it, and reports its measurements.
pub(super) fn measure(gateway: &Path, model: &BenchModel, report: &mut BenchReport) -> Result<()> {
    let folder = gateway.parent().context("the gateway's binary has no parent directory")?;
    let profile = folder.file_name().and_then(|name| name.to_str()).context("cannot determine the build profile")?;
    let args = ["build", "--package", "homard-providers", "--example", "read_stream", "--profile", profile];
    shell::run(&mut shell::cargo(&args))?;
    let url = format!("http://127.0.0.1:{}/v1", model.port());
    let output = shell::output(Command::new(folder.join("examples").join("read_stream")).arg(url))?;
    let output: Value = serde_json::from_slice(&output).context("read_stream did not write JSON")?;
    for row in output.as_array().into_iter().flatten() {
        let read = |reader: &str| WireMeasurement {
            cpu_time: row[reader]["used"].as_f64().unwrap_or(f64::NAN),
            first: row[reader]["first"].as_f64().unwrap_or(f64::NAN),
        };
        let chunks = row["chunks"].as_u64().context("the output of read_stream has no size")?;
        report.wire(chunks as usize, read("wire"), read("bare"));
    }
    Ok(())
}
