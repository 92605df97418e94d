//! `bench --peers`: Homard compared with OpenClaw and with a minimal gateway, with the same model server and load
//! generator, on one machine, in one session.
//!
//! [`peer`] is a gateway to measure, [`mod@line`] the lines of the table with their targets. The measurements:
//! [`start`], [`runs`], [`length`] streams and histories, [`scale`] at once, and what is visible from [`outside`].
//! [`page`] writes `docs/benchmarks.md`, and [`plot`] its diagrams.

mod environment;
mod length;
mod line;
mod outside;
mod page;
mod peer;
pub(super) mod plot;
mod runs;
mod scale;
mod start;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use self::{
    environment::{PeerEnvironment, PeerValue},
    peer::Peer,
};
pub(super) use self::{line::PeerRow, page::replace_soak};
use crate::{
    bench::model::BenchModel,
    conform,
    gateway::{self, BuildProfile},
    shell,
};

/// Time limits: in total, and for one row of one peer.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const ROW_TIMEOUT: Duration = Duration::from_secs(150);

/// Options of `--peers`.
#[derive(Debug, Default)]
pub(super) struct PeerOptions<'a> {
    /// Only these rows; all if empty.
    pub(super) rows: &'a [PeerRow],
    /// Only peers whose name contains this.
    pub(super) peer: Option<&'a str>,
    /// A Homard binary that is already built.
    pub(super) binary: Option<&'a Path>,
    /// Build profile of Homard.
    pub(super) profile: Option<BuildProfile>,
}

/// Result of a measurement: a value, or why there is none.
#[derive(Debug, Clone, PartialEq)]
enum MeasuredCell {
    Value(f64),
    Missing(String),
}

/// All cells: by line, then by peer.
#[derive(Debug, Default)]
struct PeerResults {
    cells: BTreeMap<&'static str, BTreeMap<String, MeasuredCell>>,
    peers: Vec<String>,
}

impl PeerResults {
    fn get(&self, line: &str, peer: &str) -> Option<&MeasuredCell> {
        self.cells.get(line)?.get(peer)
    }

    fn value(&self, line: &str, peer: &str) -> Option<f64> {
        match self.get(line, peer)? {
            MeasuredCell::Value(value) => Some(*value),
            MeasuredCell::Missing(_) => None,
        }
    }

    /// Enters the results of a row for a peer: every line of the row gets a cell.
    fn enter(&mut self, row: PeerRow, peer: &str, measured: Result<Vec<PeerValue>>) {
        let (values, why) = match measured {
            Ok(values) => (values, "not measured".to_owned()),
            Err(error) => (Vec::new(), format!("{error:#}")),
        };
        for line in line::of(row) {
            let value = values.iter().find(|(key, _)| *key == line.key).map(|(_, value)| MeasuredCell::Value(*value));
            let cells = self.cells.entry(line.key).or_default();
            cells.insert(peer.to_owned(), value.unwrap_or_else(|| MeasuredCell::Missing(why.clone())));
        }
    }

    fn to_json(&self) -> Value {
        let cell_json = |cell: &MeasuredCell| match cell {
            MeasuredCell::Value(value) => json!(value),
            MeasuredCell::Missing(why) => json!({"not": why}),
        };
        let line = |line: &line::TableLine| {
            let cells = self.cells.get(line.key)?;
            let cells: Map<String, Value> = cells.iter().map(|(peer, cell)| (peer.clone(), cell_json(cell))).collect();
            Some((line.key.to_owned(), json!({"title": line.title, "unit": line.unit, "figures": cells})))
        };
        Value::Object(line::LINES.iter().filter_map(line).collect())
    }
}

/// Measures, prints progress, and, if everything was measured, writes the page.
pub(super) fn run(options: &PeerOptions<'_>) -> Result<()> {
    let peers = peers(options)?;
    let folder = tempfile::tempdir()?;
    let model = BenchModel::start().context("cannot start the model server")?;
    let environment = PeerEnvironment { model, folder: folder.path().to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = if options.rows.is_empty() { PeerRow::value_variants() } else { options.rows };
    let started_at = Instant::now();
    let mut results = PeerResults { peers: peers.iter().map(Peer::name).collect(), ..PeerResults::default() };
    for row in rows {
        for peer in &peers {
            let name = peer.name();
            let time_left = TOTAL_TIMEOUT.saturating_sub(started_at.elapsed()).min(ROW_TIMEOUT);
            let start = Instant::now();
            let measured = runtime.block_on(async {
                timeout(time_left, measure(*row, &environment, peer))
                    .await
                    .with_context(|| format!("not finished within {time_left:?}"))?
            });
            results.enter(*row, &name, measured);
            print_progress(&results, *row, &name, started_at.elapsed(), start.elapsed());
        }
    }
    print!("{}", page::table(&results));
    if options.rows.is_empty() && options.peer.is_none() {
        page::write(&results, started_at.elapsed())?;
    }
    Ok(())
}

async fn measure(row: PeerRow, environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    match row {
        PeerRow::Install => start::install(peer),
        PeerRow::Start => start::start(environment, peer).await,
        PeerRow::FullStart => start::full_start(environment, peer).await,
        PeerRow::Runs => runs::runs(environment, peer).await,
        PeerRow::Commit => runs::commit(environment, peer).await,
        PeerRow::Load => runs::load(environment, peer).await,
        PeerRow::After => runs::after(environment, peer).await,
        PeerRow::Stream => length::stream(environment, peer).await,
        PeerRow::Busy => length::busy(environment, peer).await,
        PeerRow::History => length::history(environment, peer).await,
        PeerRow::Fanout => scale::fanout(environment, peer).await,
        PeerRow::Idle => scale::idle(environment, peer).await,
        PeerRow::Writes => outside::writes(environment, peer).await,
        PeerRow::Once => outside::once(environment, peer).await,
    }
}

/// Prints a line of progress for a row of a peer.
fn print_progress(results: &PeerResults, row: PeerRow, peer: &str, total: Duration, elapsed: Duration) {
    let values: Vec<String> = line::of(row)
        .filter_map(|line| match results.get(line.key, peer)? {
            MeasuredCell::Value(value) => Some(format!("{} {} {}", line.key, page::number(*value), line.unit)),
            MeasuredCell::Missing(_) => None,
        })
        .collect();
    let values = match (values.is_empty(), line::of(row).next().and_then(|line| results.get(line.key, peer))) {
        (true, Some(MeasuredCell::Missing(why))) => format!("– ({why})"),
        (true, Some(MeasuredCell::Value(_)) | None) | (false, _) => values.join(", "),
    };
    let (minutes, seconds) = (total.as_secs() / 60, total.as_secs() % 60);
    eprintln!("{minutes:>3}:{seconds:02}  {row:?}, {peer}: {values} [{:.0} s]", elapsed.as_secs_f64());
}

/// Builds and installs all selected peers.
fn peers(options: &PeerOptions<'_>) -> Result<Vec<Peer>> {
    let logs = shell::root().join("target").join("bench");
    fs::create_dir_all(&logs)?;
    let is_selected =
        |name: &str| options.peer.is_none_or(|name_part| name.to_lowercase().contains(&name_part.to_lowercase()));
    let mut peers = Vec::new();
    if is_selected("floor") {
        peers.push(Peer::Floor(example("floor")?));
    }
    // Installing takes a while, so only selected ones are installed.
    if ["openclaw 2026.2.9", "openclaw 2026.9.6"].into_iter().any(is_selected) {
        let all = conform::installed(&logs)?.into_iter().map(Peer::OpenClaw);
        peers.extend(all.filter(|peer| is_selected(&peer.name())));
    }
    if is_selected("homard") {
        let binary = match options.binary {
            Some(binary) => fs::canonicalize(binary).with_context(|| format!("cannot find {}", binary.display()))?,
            None => gateway::build(options.profile.unwrap_or(BuildProfile::Dist))?,
        };
        peers.push(Peer::Homard(binary));
    }
    ensure!(!peers.is_empty(), "no peer matches {:?}", options.peer.unwrap_or_default());
    Ok(peers)
}

/// Builds an example of this package with the distribution profile.
fn example(name: &str) -> Result<PathBuf> {
    shell::run(&mut shell::cargo(&["build", "--package", "xtask", "--example", name, "--profile", "dist"]))?;
    Ok(shell::target()?.join("dist").join("examples").join(name))
}

/// Restarts a debug build of this program as a release build with the same arguments, because the load generator must
/// not be the bottleneck; returns whether that was necessary.
pub(super) fn rerun_in_release() -> Result<bool> {
    if !cfg!(debug_assertions) {
        return Ok(false);
    }
    shell::run(&mut shell::cargo(&["build", "--package", "xtask", "--release"]))?;
    let mut release = Command::new(shell::target()?.join("release").join("xtask"));
    shell::run(release.args(std::env::args_os().skip(1)))?;
    Ok(true)
}

#[cfg(test)]
mod tests;
