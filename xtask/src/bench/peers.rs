//! `bench --peers`: Homard compared with OpenClaw and with a minimal gateway, with the same model server and load
//! generator, on one machine, in one session.
//!
//! [`peer`] is a gateway to measure, [`mod@line`] the lines of the table with their targets. The measurements:
//! [`start`], [`runs`], [`long`] streams and histories, [`many`] at once, and what is visible from [`outside`].
//! [`page`] writes `docs/benchmarks.md`, and [`plot`] its diagrams.

mod line;
mod long;
mod many;
mod outside;
mod page;
mod peer;
pub(super) mod plot;
mod runs;
mod stage;
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

pub(super) use self::{line::Row, page::put_soak};
use self::{
    peer::Peer,
    stage::{Figure, Stage},
};
use crate::{
    bench::model::Model,
    conform,
    gateway::{self, Profile},
    shell,
};

/// Time limits: in total, and for one row of one peer.
const WHOLE: Duration = Duration::from_secs(30 * 60);
const EACH: Duration = Duration::from_secs(150);

/// Options of `--peers`.
#[derive(Debug, Default)]
pub(super) struct Wishes<'a> {
    /// Only these rows; all if empty.
    pub(super) rows: &'a [Row],
    /// Only peers whose name contains this.
    pub(super) peer: Option<&'a str>,
    /// A Homard binary that is already built.
    pub(super) binary: Option<&'a Path>,
    /// Build profile of Homard.
    pub(super) profile: Option<Profile>,
}

/// Result of a measurement: a value, or why there is none.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Is(f64),
    Not(String),
}

/// All cells: by line, then by peer.
#[derive(Debug, Default)]
struct Figures {
    cells: BTreeMap<&'static str, BTreeMap<String, Cell>>,
    peers: Vec<String>,
}

impl Figures {
    fn get(&self, line: &str, peer: &str) -> Option<&Cell> {
        self.cells.get(line)?.get(peer)
    }

    fn value(&self, line: &str, peer: &str) -> Option<f64> {
        match self.get(line, peer)? {
            Cell::Is(value) => Some(*value),
            Cell::Not(_) => None,
        }
    }

    /// Enters the results of a row for a peer: every line of the row gets a cell.
    fn enter(&mut self, row: Row, peer: &str, brought: Result<Vec<Figure>>) {
        let (figures, why) = match brought {
            Ok(figures) => (figures, "not measured of it".to_owned()),
            Err(error) => (Vec::new(), format!("{error:#}")),
        };
        for line in line::of(row) {
            let value = figures.iter().find(|(key, _)| *key == line.key).map(|(_, value)| Cell::Is(*value));
            let cells = self.cells.entry(line.key).or_default();
            cells.insert(peer.to_owned(), value.unwrap_or_else(|| Cell::Not(why.clone())));
        }
    }

    fn to_json(&self) -> Value {
        let told = |cell: &Cell| match cell {
            Cell::Is(value) => json!(value),
            Cell::Not(why) => json!({"not": why}),
        };
        let line = |line: &line::Line| {
            let cells = self.cells.get(line.key)?;
            let cells: Map<String, Value> = cells.iter().map(|(peer, cell)| (peer.clone(), told(cell))).collect();
            Some((line.key.to_owned(), json!({"title": line.title, "unit": line.unit, "figures": cells})))
        };
        Value::Object(line::LINES.iter().filter_map(line).collect())
    }
}

/// Measures, prints progress, and, if everything was measured, writes the page.
pub(super) fn run(wishes: &Wishes<'_>) -> Result<()> {
    let peers = peers(wishes)?;
    let folder = tempfile::tempdir()?;
    let model = Model::start().context("cannot start the model server")?;
    let stage = Stage { model, folder: folder.path().to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = if wishes.rows.is_empty() { Row::value_variants() } else { wishes.rows };
    let begun = Instant::now();
    let mut figures = Figures { peers: peers.iter().map(Peer::name).collect(), ..Figures::default() };
    for row in rows {
        for peer in &peers {
            let name = peer.name();
            let left = WHOLE.saturating_sub(begun.elapsed()).min(EACH);
            let start = Instant::now();
            let measured = runtime.block_on(async {
                timeout(left, measure(*row, &stage, peer)).await.with_context(|| format!("no end within {left:?}"))?
            });
            figures.enter(*row, &name, measured);
            tell(&figures, *row, &name, (begun.elapsed(), start.elapsed()));
        }
    }
    print!("{}", page::table(&figures));
    if wishes.rows.is_empty() && wishes.peer.is_none() {
        page::write(&figures, begun.elapsed())?;
    }
    Ok(())
}

async fn measure(row: Row, stage: &Stage, peer: &Peer) -> Result<Vec<Figure>> {
    match row {
        Row::Install => start::install(peer),
        Row::Start => start::start(stage, peer).await,
        Row::FullStart => start::full_start(stage, peer).await,
        Row::Runs => runs::runs(stage, peer).await,
        Row::Commit => runs::commit(stage, peer).await,
        Row::Load => runs::load(stage, peer).await,
        Row::After => runs::after(stage, peer).await,
        Row::Stream => long::stream(stage, peer).await,
        Row::Busy => long::busy(stage, peer).await,
        Row::History => long::history(stage, peer).await,
        Row::Fanout => many::fanout(stage, peer).await,
        Row::Idle => many::idle(stage, peer).await,
        Row::Writes => outside::writes(stage, peer).await,
        Row::Once => outside::once(stage, peer).await,
    }
}

/// Prints a line of progress for a row of a peer.
fn tell(figures: &Figures, row: Row, peer: &str, (since, took): (Duration, Duration)) {
    let told: Vec<String> = line::of(row)
        .filter_map(|line| match figures.get(line.key, peer)? {
            Cell::Is(value) => Some(format!("{} {} {}", line.key, page::number(*value), line.unit)),
            Cell::Not(_) => None,
        })
        .collect();
    let told = match (told.is_empty(), line::of(row).next().and_then(|line| figures.get(line.key, peer))) {
        (true, Some(Cell::Not(why))) => format!("– ({why})"),
        (true, Some(Cell::Is(_)) | None) | (false, _) => told.join(", "),
    };
    let (minutes, seconds) = (since.as_secs() / 60, since.as_secs() % 60);
    eprintln!("{minutes:>3}:{seconds:02}  {row:?}, {peer}: {told} [{:.0} s]", took.as_secs_f64());
}

/// Builds and installs all selected peers.
fn peers(wishes: &Wishes<'_>) -> Result<Vec<Peer>> {
    let logs = shell::root().join("target").join("bench");
    fs::create_dir_all(&logs)?;
    let is_wished = |name: &str| wishes.peer.is_none_or(|wish| name.to_lowercase().contains(&wish.to_lowercase()));
    let mut peers = Vec::new();
    if is_wished("floor") {
        peers.push(Peer::Floor(example("floor")?));
    }
    // Installing takes a while, so only selected ones are installed.
    if ["openclaw 2026.2.9", "openclaw 2026.9.6"].into_iter().any(is_wished) {
        let all = conform::installed(&logs)?.into_iter().map(Peer::OpenClaw);
        peers.extend(all.filter(|peer| is_wished(&peer.name())));
    }
    if is_wished("homard") {
        let binary = match wishes.binary {
            Some(binary) => fs::canonicalize(binary).with_context(|| format!("cannot find {}", binary.display()))?,
            None => gateway::build(wishes.profile.unwrap_or(Profile::Dist))?,
        };
        peers.push(Peer::Homard(binary));
    }
    ensure!(!peers.is_empty(), "nobody is called {:?}", wishes.peer.unwrap_or_default());
    Ok(peers)
}

/// Builds an example of this package with the distribution profile.
fn example(name: &str) -> Result<PathBuf> {
    shell::run(&mut shell::cargo(&["build", "--package", "xtask", "--example", name, "--profile", "dist"]))?;
    Ok(shell::target()?.join("dist").join("examples").join(name))
}

/// Restarts a debug build of this program as a release build with the same arguments, because the load generator must
/// not be the bottleneck; returns whether that was necessary.
pub(super) fn is_done_by_a_quick_build() -> Result<bool> {
    if !cfg!(debug_assertions) {
        return Ok(false);
    }
    shell::run(&mut shell::cargo(&["build", "--package", "xtask", "--release"]))?;
    let mut quick = Command::new(shell::target()?.join("release").join("xtask"));
    shell::run(quick.args(std::env::args_os().skip(1)))?;
    Ok(true)
}

#[cfg(test)]
mod tests;
