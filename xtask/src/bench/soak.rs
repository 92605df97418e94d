//! `bench --soak`: a steady load for a long time, to check whether memory grows.
//!
//! Runs start at a steady pace, whether the previous ones have ended or not. They use a fixed number of sessions, each
//! of which is reset after some turns, as people do; so the working set is the same at the end as at the beginning.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{client::BenchClient, config, model::BenchModel, peers::plot::LineChart, process, report::percentile};
use crate::{
    gateway::{self, RunningGateway},
    shell,
};

/// Number of sessions, and number of turns after which each is reset.
const SESSIONS: usize = 200;
const TURNS: usize = 20;
/// Interval between memory readings.
const MEMORY_INTERVAL: Duration = Duration::from_secs(5);
/// Message that starts each run: the model server answers it with 20 chunks.
const TEXT: &str = "chunks=20";
/// Fraction of the time that counts as warm-up.
const WARM_UP: f64 = 0.2;
/// Time limit for unfinished runs at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Growth in MiB per hour below which memory counts as flat.
const FLAT_BELOW: f64 = 5.0;

/// Measurements.
#[derive(Debug, Default)]
struct SoakResult {
    /// Seconds since the beginning, and MiB.
    memory: Vec<(f64, f64)>,
    times: Vec<Duration>,
    failed: usize,
}

/// R90: applies the load for this many minutes, prints progress, and stores the values.
pub(super) async fn run(binary: &Path, minutes: f64, pace: u32) -> Result<()> {
    let model = BenchModel::start().context("cannot start the model server")?;
    let logs = tempfile::tempdir()?;
    let gateway = RunningGateway::start(binary, &config(model.port()), &logs.path().join("soak.log"))?;
    let result = load(&gateway, Duration::from_secs_f64(minutes * 60.0), pace).await?;
    ensure!(!result.times.is_empty(), "no run ended");
    let warm: Vec<(f64, f64)> =
        result.memory.iter().copied().filter(|(at, _)| *at >= minutes * 60.0 * WARM_UP).collect();
    let slope = slope(&warm) * 3600.0;
    let (first, last) = (warm.first().map_or(f64::NAN, |it| it.1), warm.last().map_or(f64::NAN, |it| it.1));
    let sentence = format!(
        "{minutes:.0} minutes at {pace} runs a second: {} runs, {} failed. Memory after the warm-up {first:.1} MiB, \
         at the end {last:.1} MiB; the trend is {slope:.2} MiB an hour{}. A run took {:.1} ms (p50), {:.1} ms (p99).",
        result.times.len(),
        result.failed,
        if slope.abs() < FLAT_BELOW { " (flat)" } else { "" },
        percentile(&result.times, 50),
        percentile(&result.times, 99),
    );
    println!("{sentence}");
    store_result(&sentence, &result, slope)
}

/// Sends at a steady pace and reads the responses.
async fn load(gateway: &RunningGateway, time: Duration, pace: u32) -> Result<SoakResult> {
    let mut client = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    let started_at = Instant::now();
    let mut result = SoakResult::default();
    let mut pace = interval(Duration::from_secs(1) / pace);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut memory_tick = interval(MEMORY_INTERVAL);
    let (mut sent, mut active) = (0, std::collections::HashMap::new());
    while started_at.elapsed() < time || (!active.is_empty() && started_at.elapsed() < time + DRAIN_TIMEOUT) {
        tokio::select! {
            biased;
            _ = memory_tick.tick() => {
                let memory = process::memory(gateway.pid())? as f64 / f64::from(1 << 20);
                result.memory.push((started_at.elapsed().as_secs_f64(), memory));
                if result.memory.len() % 12 == 1 {
                    eprintln!("{:>6.0} s  {memory:>7.1} MiB  {} runs, {} under way", started_at.elapsed().as_secs_f64(), result.times.len(), active.len());
                }
            }
            _ = pace.tick(), if started_at.elapsed() < time => {
                let (session, turn) = (sent % SESSIONS, sent / SESSIONS);
                let key = format!("agent:main:soak-{session}");
                // A reset would abort an active run.
                let is_active = active.values().any(|(_, active_session)| *active_session == session);
                if turn > 0 && turn.is_multiple_of(TURNS) && !is_active {
                    client.request("sessions.reset", json!({"key": key})).await?;
                }
                active.insert(client.start_run_with_text(&key, TEXT).await?, (Instant::now(), session));
                sent += 1;
            }
            answer = client.next_response() => {
                let answer = answer?;
                let id = answer["id"].as_str().unwrap_or_default();
                if answer["payload"]["status"] == "accepted" {
                    continue;
                }
                // Otherwise it is the response to a reset.
                if let Some((start, _)) = active.remove(id) {
                    result.times.push(start.elapsed());
                    if answer["payload"]["status"] != "ok" {
                        result.failed += 1;
                        eprintln!("a run failed: {answer}");
                    }
                }
            }
        }
    }
    result.failed += active.len();
    Ok(result)
}

/// Returns the slope of the least-squares line through these points.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let numerator: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let denominator: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    numerator / denominator
}

/// Stores the result for the benchmark page.
fn store_result(sentence: &str, result: &SoakResult, slope: f64) -> Result<()> {
    let folder = shell::root().join("docs").join("benchmarks");
    fs::create_dir_all(&folder)?;
    let stored =
        json!({"sentence": sentence, "runs": result.times.len(), "failed": result.failed, "mebibytesAnHour": slope});
    fs::write(folder.join("soak.json"), format!("{stored:#}\n"))?;
    let points = result.memory.iter().map(|(at, memory)| (at / 60.0, *memory)).collect();
    let chart = LineChart {
        title: "Memory during the soak",
        axes: ["minutes", "MiB"],
        is_logarithmic: false,
        lines: vec![("Homard".to_owned(), points)],
    };
    fs::write(folder.join("soak.svg"), chart.to_svg())?;
    super::peers::replace_soak()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_line_is_computed() {
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), 2.0);
        assert_eq!(slope(&[(0.0, 4.0), (10.0, 4.0)]), 0.0);
    }
}
