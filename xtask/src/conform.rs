//! `conform`: unmodified OpenClaw clients of both generations against the built gateway.
//!
//! [`install`] fetches the clients, [`client`] runs one of them in a fresh home, and [`rows`] is the checklist: commands of a
//! client ([`commands`]), its TUI in tmux ([`tui`], [`screen`]), its Control UI in a headless Chromium ([`page`]), and
//! questions put by hand ([`scripts`], [`wire`]). A model that does what a message says ([`puppet`], [`model`]) answers, so
//! nothing but the npm registry is needed. What every client said, saw and heard is kept; [`schema`] checks the frames against
//! what OpenClaw publishes. [`state`] sends a state directory there and back, [`skills`] compares how the shipped skills are
//! judged, [`sdk`] shows our requests to the vendors' own types, and [`openai`] lets the official clients of OpenAI speak to
//! the gateway.

mod client;
mod commands;
mod install;
mod model;
mod openai;
mod page;
mod plugins;
mod puppet;
mod rows;
mod schema;
mod screen;
mod scripts;
mod sdk;
mod skills;
mod state;
mod talk;
mod tui;
mod wire;

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tokio::time::Instant;

use self::{
    client::{Client, Protocol},
    model::Model,
    page::Stage,
    rows::Scene,
};
use crate::{
    gateway::{self, Gateway, Profile},
    shell,
};

/// What `conform` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Install the clients, see that they start, and stop there
    #[arg(long)]
    install_only: bool,
    /// Only ask the vendors' Python SDKs about the requests on record
    #[arg(long)]
    sdk_only: bool,
    /// Only let the official clients of OpenAI speak to the gateway
    #[arg(long)]
    openai_only: bool,
    /// Put on record what those clients send
    #[arg(long)]
    record: bool,
    /// Only compare how the skills that OpenClaw ships are judged
    #[arg(long)]
    skills_only: bool,
    /// Only load plugins that OpenClaw ships, and call their tools
    #[arg(long)]
    plugins_only: bool,
    /// Only hold what the gateway says in its own tests against the published schema
    #[arg(long)]
    schema_only: bool,
    /// Only these rows of the checklist, by number or by a part of the name
    #[arg(long, value_name = "ROW")]
    row: Vec<String>,
    /// Only with this client, such as 2026.9.6
    #[arg(long, value_name = "VERSION")]
    client: Option<String>,
    /// A gateway that is built already
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// How long the long session of row 29 is
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    long: u64,
}

/// Runs the checklist and prints a table.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = shell::root().join("target").join("conform");
    if args.sdk_only {
        return if sdk::check(&folder) { Ok(()) } else { bail!("the vendors' types refuse requests of ours") };
    }
    let logs = folder.join("logs");
    fs::create_dir_all(&logs)?;
    if args.openai_only {
        let binary = args.binary.clone().map_or_else(|| gateway::build(Profile::Debug), Ok)?;
        let scene = openai::Scene { folder: &folder, binary: &binary, logs: &logs, records: args.record };
        let results = openai::check(scene);
        return if results.contains(&false) { bail!("official clients are not content") } else { Ok(()) };
    }
    let clients = install::GENERATIONS.iter().map(|generation| install::install(generation, &folder, &logs));
    let clients = clients.collect::<Result<Vec<Client>>>()?;
    if args.install_only {
        return Ok(());
    }
    let binary = args.binary.clone().map_or_else(|| gateway::build(Profile::Debug), Ok)?;
    if args.skills_only {
        let results = check_skills(&clients, &binary);
        return if results.contains(&false) { bail!("skills are judged differently") } else { Ok(()) };
    }
    if args.plugins_only {
        let results = check_plugins(&clients, &binary);
        return if results.contains(&false) { bail!("plugins of OpenClaw do not work") } else { Ok(()) };
    }
    if args.schema_only {
        let newest = clients.last().context("there is no client")?;
        return schema::of_tests(&folder, &newest.node, &logs);
    }
    let mut table = Table::default();
    let ground = Ground { folder: &folder, logs: &logs, binary: &binary, args };
    check_rows(&clients, &ground, &mut table)?;
    let mut results: Vec<bool> = table.rows.values().flatten().map(|cell| cell.why.is_none()).collect();
    if let Some(newest) = clients.last() {
        let result = schema::check(&folder, &newest.node, &logs.join("frames.jsonl"));
        results.push(tell(&"frame", "published schema", newest, &result));
    }
    if args.row.is_empty() {
        if let Some(newest) = clients.last() {
            let result = schema::of_tests(&folder, &newest.node, &logs);
            results.push(tell(&"frame", "published schema, own tests", newest, &result));
        }
        let config = json!({"agents": {"defaults": {"model": {"primary": "homard/demo"}}}});
        // The newer generation keeps its sessions in a database of its own.
        for client in clients.iter().filter(|client| matches!(client.protocol, Protocol::Three)) {
            let result = state::check(client, &binary, &config);
            results.push(tell(&"state", "there and back", client, &result));
        }
        results.extend(check_skills(&clients, &binary));
        results.extend(check_plugins(&clients, &binary));
        results.push(sdk::check(&folder));
        let scene = openai::Scene { folder: &folder, binary: &binary, logs: &logs, records: args.record };
        results.extend(openai::check(scene));
    }
    table.print(&clients);
    let failures = results.iter().filter(|passed| !**passed).count();
    println!("what was said: {}", logs.strip_prefix(shell::root()).unwrap_or(&logs).display());
    if failures > 0 {
        bail!("{failures} of {} checks failed", results.len());
    }
    Ok(())
}

/// An OpenClaw that is installed, for whoever wants to run it.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) version: &'static str,
    pub(crate) protocol: u8,
    pub(crate) node: PathBuf,
    pub(crate) script: PathBuf,
}

/// Installs all generations, unless that was done before.
pub(crate) fn installed(logs: &Path) -> Result<Vec<Installed>> {
    let folder = shell::root().join("target").join("conform");
    let clients = install::GENERATIONS.iter().map(|generation| install::install(generation, &folder, logs));
    clients
        .map(|client| {
            let Client { version, protocol, node, script, .. } = client?;
            let protocol = match protocol {
                Protocol::Three => 3,
                Protocol::Four => 4,
            };
            Ok(Installed { version, protocol, node, script })
        })
        .collect()
}

/// What all rows stand on.
struct Ground<'a> {
    folder: &'a Path,
    logs: &'a Path,
    binary: &'a Path,
    args: &'a Args,
}

/// What came of a row with a client.
struct Cell {
    version: &'static str,
    why: Option<String>,
}

/// What came of all rows.
#[derive(Default)]
struct Table {
    rows: BTreeMap<(u8, &'static str), Vec<Cell>>,
}

impl Table {
    /// Prints a line for each row, and a column for each client.
    fn print(&self, clients: &[Client]) {
        print!("\n{:>5}  {:<30}", "row", "what");
        clients.iter().for_each(|client| print!(" {:<10}", client.version));
        println!();
        for ((number, what), cells) in &self.rows {
            print!("{number:>5}  {what:<30}");
            for client in clients {
                let cell = cells.iter().find(|cell| cell.version == client.version);
                let word = cell.map_or("-", |cell| if cell.why.is_none() { "pass" } else { "FAIL" });
                print!(" {word:<10}");
            }
            println!();
            for Cell { version, why } in cells {
                if let Some(why) = why {
                    println!("{:>9} {version}: {why}", "");
                }
            }
        }
    }
}

/// Runs every row that is meant with every client that is meant. Each client has a gateway of its own, which serves that
/// client's Control UI.
fn check_rows(clients: &[Client], ground: &Ground<'_>, table: &mut Table) -> Result<()> {
    let Ground { folder, logs, binary, args } = *ground;
    let is_meant = |row: &&rows::Row| args.row.is_empty() || args.row.iter().any(|name| row.is_meant(name));
    let meant: Vec<&rows::Row> = rows::ROWS.iter().filter(is_meant).collect();
    ensure!(!meant.is_empty(), "no row is called {:?}", args.row);
    let node = clients.last().map(|client| client.node.clone()).context("there is no client")?;
    let stage = Stage::install(folder);
    let record = logs.join("frames.jsonl");
    fs::write(&record, "")?;
    let mut count = 0;
    let clients: Vec<&Client> =
        clients.iter().filter(|client| args.client.as_ref().is_none_or(|version| client.version == version)).collect();
    for client in &clients {
        let model = Model::start(puppet::says)?;
        let mut config = model.config();
        config["gateway"] = json!({"controlUi": {"root": client.package().join("dist").join("control-ui")}});
        let gateway = Gateway::start(binary, &config, &logs.join(format!("gateway-{}.log", client.version)))?;
        let state = gateway.state();
        for row in &meant {
            count += 1;
            let (of, begun) = (meant.len() * clients.len(), Instant::now());
            print!("[{count}/{of}] {:>2} {:<30} {:<10} … ", row.number, row.what, client.version);
            io::stdout().flush()?;
            let scene = Scene {
                client,
                port: gateway.port(),
                state: &state,
                binary,
                record: &record,
                node: &node,
                stage: &stage,
                long: Duration::from_secs(args.long),
            };
            let why = (row.check)(&scene).err().map(|why| format!("{why:#}"));
            let verdict = why.as_ref().map_or_else(|| "pass".to_owned(), |why| format!("FAIL: {why}"));
            println!("{verdict} ({:.1} s)", begun.elapsed().as_secs_f64());
            table.rows.entry((row.number, row.what)).or_default().push(Cell { version: client.version, why });
        }
    }
    Ok(())
}

/// Compares the skills of every client with what Homard makes of them; whether they are the same.
fn check_skills(clients: &[Client], binary: &Path) -> Vec<bool> {
    clients.iter().map(|client| tell(&"skill", "shipped skills", client, &skills::check(client, binary))).collect()
}

/// Loads plugins of the older client, whose API is the one that Homard offers; whether they work.
fn check_plugins(clients: &[Client], binary: &Path) -> Vec<bool> {
    let older = clients.iter().filter(|client| matches!(client.protocol, Protocol::Three));
    older.map(|client| tell(&"plugin", "shipped plugins", client, &plugins::check(client, binary))).collect()
}

/// Prints a line of the table; whether the check passed.
fn tell(row: &dyn Display, what: &str, client: &Client, result: &Result<()>) -> bool {
    let verdict = match result {
        Ok(()) => "pass".to_owned(),
        Err(why) => format!("FAIL: {why:#}"),
    };
    println!("{row:>5}  {what:<28} {:<10} {verdict}", client.version);
    result.is_ok()
}

/// Removes what an earlier time left behind.
fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}
