//! Cost of `exec` compared with `sh -c true`, and of redacting secrets from a result. Done by the example `bench_tools`
//! of the tools crate, interleaved.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::report::BenchReport;
use crate::shell;

/// A task, and the times of each contestant.
#[derive(Debug, PartialEq)]
pub(super) struct Comparison {
    pub(super) what: String,
    pub(super) times: Vec<(String, Vec<Duration>)>,
}

/// Benchmarks a no-op command. The gateway's own binary is the sandbox helper.
pub(super) fn measure(bench_tools: &Path, gateway: &Path, report: &mut BenchReport) -> Result<()> {
    for comparison in run(Command::new(bench_tools).arg("exec").arg(gateway))? {
        report.exec(&comparison);
    }
    Ok(())
}

/// R73: benchmarks redaction of secrets.
pub(super) fn secrets(bench_tools: &Path, report: &mut BenchReport) -> Result<()> {
    for comparison in run(Command::new(bench_tools).arg("secrets"))? {
        report.secrets(&comparison);
    }
    Ok(())
}

/// Builds `bench_tools` beside the gateway's binary.
pub(super) fn build(gateway: &Path) -> Result<PathBuf> {
    let folder = gateway.parent().context("the gateway's binary has no parent directory")?;
    let profile = folder.file_name().and_then(|name| name.to_str()).context("cannot determine the build profile")?;
    let args = ["build", "--package", "homard-tools", "--example", "bench_tools", "--profile", profile];
    shell::run(&mut shell::cargo(&args))?;
    Ok(folder.join("examples").join("bench_tools"))
}

/// Runs `bench_tools` and parses its output.
pub(super) fn run(bench_tools: &mut Command) -> Result<Vec<Comparison>> {
    let output = shell::output(bench_tools)?;
    let output = serde_json::Deserializer::from_slice(&output).into_iter::<Value>();
    output.map(|line| read(&line.context("bench_tools did not write JSON")?)).collect()
}

fn read(line: &Value) -> Result<Comparison> {
    let what = line["what"].as_str().context("the output of bench_tools has no `what`")?.to_owned();
    let measured = line["took"].as_object().context("the output of bench_tools has no `took`")?;
    let times = |times: &Value| {
        let times = times.as_array().into_iter().flatten().filter_map(Value::as_f64);
        times.map(|micros| Duration::from_secs_f64(micros / 1e6)).collect()
    };
    Ok(Comparison { what, times: measured.iter().map(|(name, values)| (name.clone(), times(values))).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_comparison() {
        let line = r#"{"what":"exec","took":{"bare":[1500.0,2000.0],"sh -c true":[1000.0]}}"#;
        let times_of = |micros: &[u64]| micros.iter().map(|&micros| Duration::from_micros(micros)).collect();
        let expected = Comparison {
            what: "exec".to_owned(),
            times: vec![("bare".to_owned(), times_of(&[1500, 2000])), ("sh -c true".to_owned(), times_of(&[1000]))],
        };
        let parsed = run(Command::new("printf").args(["%s\n%s\n", line, line])).unwrap();
        assert_eq!(parsed, [Comparison { what: expected.what.clone(), times: expected.times.clone() }, expected]);
    }
}
