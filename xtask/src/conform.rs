//! `conform`: unmodified OpenClaw clients of both protocol versions against the built gateway.
//!
//! [`install`] fetches the clients, [`client`] runs one of them in a fresh home, and [`rows`] is the checklist:
//! commands of a client ([`commands`]), its TUI in tmux ([`tui`], [`screen`]), its Control UI in a headless Chromium
//! ([`page`]), and scripted requests ([`scripts`], [`wire`]). A model controlled by the messages ([`model_rule`],
//! [`model`]) answers, so only the npm registry is needed. All output and frames are recorded; [`schema`] validates the
//! frames against OpenClaw's published schema. [`state`] transfers a state directory to OpenClaw and back, [`skills`]
//! compares the status of the shipped skills, [`sdk`] validates our requests with the vendors' own types, and
//! [`openai`] runs OpenAI's official clients against the gateway.

mod client;
mod commands;
pub(crate) mod install;
mod messages;
mod model;
mod model_rule;
mod openai;
mod page;
mod plugins;
mod rows;
mod schema;
mod screen;
mod scripts;
mod sdk;
mod skills;
mod state;
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
    client::{OpenClawClient, ProtocolVersion},
    model::RuleModel,
    page::BrowserAutomation,
    rows::RowContext,
};
use crate::{
    gateway::{self, BuildProfile, RunningGateway},
    shell,
};

/// Arguments of `conform`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only install the clients and check that they start
    #[arg(long)]
    install_only: bool,
    /// Only validate the recorded requests with the vendors' Python SDKs
    #[arg(long)]
    sdk_only: bool,
    /// Only run OpenAI's official clients against the gateway
    #[arg(long)]
    openai_only: bool,
    /// Record what those clients send
    #[arg(long)]
    record: bool,
    /// Only compare the status of the skills that OpenClaw ships
    #[arg(long)]
    skills_only: bool,
    /// Only load plugins that OpenClaw ships, and call their tools
    #[arg(long)]
    plugins_only: bool,
    /// Only validate the frames of the gateway's own tests against the published schema
    #[arg(long)]
    schema_only: bool,
    /// Only these rows of the checklist, by number or by a part of the name
    #[arg(long, value_name = "ROW")]
    row: Vec<String>,
    /// Only this client version, such as 2026.9.6
    #[arg(long, value_name = "VERSION")]
    client: Option<String>,
    /// Use this gateway binary instead of building one
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Length of the long session of row 29
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    long: u64,
}

/// Runs the checklist and prints a table.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = shell::root().join("target").join("conform");
    if args.sdk_only {
        return if sdk::check(&folder) { Ok(()) } else { bail!("the vendors' SDK types reject some of our requests") };
    }
    let logs = folder.join("logs");
    fs::create_dir_all(&logs)?;
    if args.openai_only {
        let binary = args.binary.clone().map_or_else(|| gateway::build(BuildProfile::Debug), Ok)?;
        let environment =
            openai::OpenAiEnvironment { folder: &folder, binary: &binary, logs: &logs, records: args.record };
        let results = openai::check(environment);
        return if results.contains(&false) { bail!("checks with the official OpenAI clients failed") } else { Ok(()) };
    }
    let clients = install::VERSIONS.iter().map(|generation| install::install(generation, &folder, &logs));
    let clients = clients.collect::<Result<Vec<OpenClawClient>>>()?;
    if args.install_only {
        return Ok(());
    }
    let binary = args.binary.clone().map_or_else(|| gateway::build(BuildProfile::Debug), Ok)?;
    if args.skills_only {
        let results = check_skills(&clients, &binary);
        return if results.contains(&false) {
            bail!("OpenClaw and Homard report different skill states")
        } else {
            Ok(())
        };
    }
    if args.plugins_only {
        let results = check_plugins(&clients, &binary);
        return if results.contains(&false) { bail!("checks of OpenClaw's plugins failed") } else { Ok(()) };
    }
    if args.schema_only {
        let newest = clients.last().context("no client is installed")?;
        return schema::check_own_tests(&folder, &newest.node, &logs);
    }
    let mut table = ConformTable::default();
    let row_environment = ConformEnvironment { folder: &folder, logs: &logs, binary: &binary, args };
    check_rows(&clients, &row_environment, &mut table)?;
    let mut results: Vec<bool> = table.rows.values().flatten().map(|cell| cell.why.is_none()).collect();
    if let Some(newest) = clients.last() {
        let result = schema::check(&folder, &newest.node, &logs.join("frames.jsonl"));
        results.push(print_row(&"frame", "published schema", newest, &result));
    }
    if args.row.is_empty() {
        if let Some(newest) = clients.last() {
            let result = schema::check_own_tests(&folder, &newest.node, &logs);
            results.push(print_row(&"frame", "published schema, own tests", newest, &result));
        }
        let config = json!({"agents": {"defaults": {"model": {"primary": "homard/demo"}}}});
        // The newer version keeps its sessions in a database of its own.
        for client in clients.iter().filter(|client| matches!(client.protocol, ProtocolVersion::Three)) {
            let result = state::check(client, &binary, &config);
            results.push(print_row(&"state", "state round trip", client, &result));
        }
        results.extend(check_skills(&clients, &binary));
        results.extend(check_plugins(&clients, &binary));
        results.push(sdk::check(&folder));
        let environment =
            openai::OpenAiEnvironment { folder: &folder, binary: &binary, logs: &logs, records: args.record };
        results.extend(openai::check(environment));
    }
    table.print(&clients);
    let failures = results.iter().filter(|passed| !**passed).count();
    println!("logs: {}", logs.strip_prefix(shell::root()).unwrap_or(&logs).display());
    if failures > 0 {
        bail!("{failures} of {} checks failed", results.len());
    }
    Ok(())
}

/// An installed OpenClaw, for use by other commands.
#[derive(Debug)]
pub(crate) struct InstalledOpenClaw {
    pub(crate) version: &'static str,
    pub(crate) protocol: u8,
    pub(crate) node: PathBuf,
    pub(crate) script: PathBuf,
}

/// Returns all tested versions of OpenClaw; installs those that are missing.
pub(crate) fn installed(logs: &Path) -> Result<Vec<InstalledOpenClaw>> {
    let folder = shell::root().join("target").join("conform");
    let clients = install::VERSIONS.iter().map(|generation| install::install(generation, &folder, logs));
    clients
        .map(|client| {
            let OpenClawClient { version, protocol, node, script, .. } = client?;
            let protocol = match protocol {
                ProtocolVersion::Three => 3,
                ProtocolVersion::Four => 4,
            };
            Ok(InstalledOpenClaw { version, protocol, node, script })
        })
        .collect()
}

/// Environment of all rows.
struct ConformEnvironment<'a> {
    folder: &'a Path,
    logs: &'a Path,
    binary: &'a Path,
    args: &'a Args,
}

/// Result of a row with a client.
struct ConformCell {
    version: &'static str,
    why: Option<String>,
}

/// Results of all rows.
#[derive(Default)]
struct ConformTable {
    rows: BTreeMap<(u8, &'static str), Vec<ConformCell>>,
}

impl ConformTable {
    /// Prints a line for each row, and a column for each client.
    fn print(&self, clients: &[OpenClawClient]) {
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
            for ConformCell { version, why } in cells {
                if let Some(why) = why {
                    println!("{:>9} {version}: {why}", "");
                }
            }
        }
    }
}

/// Runs every selected row with every selected client. Each client has a gateway of its own, which serves that client's
/// Control UI.
fn check_rows(
    clients: &[OpenClawClient],
    environment: &ConformEnvironment<'_>,
    table: &mut ConformTable,
) -> Result<()> {
    let ConformEnvironment { folder, logs, binary, args } = *environment;
    let is_selected =
        |row: &&rows::ChecklistRow| args.row.is_empty() || args.row.iter().any(|name| row.is_selected(name));
    let selected_rows: Vec<&rows::ChecklistRow> = rows::ROWS.iter().filter(is_selected).collect();
    ensure!(!selected_rows.is_empty(), "no row matches {:?}", args.row);
    let node = clients.last().map(|client| client.node.clone()).context("no client is installed")?;
    let browser = BrowserAutomation::install(folder);
    let record = logs.join("frames.jsonl");
    fs::write(&record, "")?;
    let mut count = 0;
    let clients: Vec<&OpenClawClient> =
        clients.iter().filter(|client| args.client.as_ref().is_none_or(|version| client.version == version)).collect();
    for client in &clients {
        let model = RuleModel::start(model_rule::answer)?;
        let mut config = model.config();
        config["gateway"] = json!({"controlUi": {"root": client.package().join("dist").join("control-ui")}});
        let gateway = RunningGateway::start(binary, &config, &logs.join(format!("gateway-{}.log", client.version)))?;
        let state = gateway.state();
        for row in &selected_rows {
            count += 1;
            let (total, started_at) = (selected_rows.len() * clients.len(), Instant::now());
            print!("[{count}/{total}] {:>2} {:<30} {:<10} … ", row.number, row.what, client.version);
            io::stdout().flush()?;
            let context = RowContext {
                client,
                port: gateway.port(),
                state: &state,
                binary,
                record: &record,
                node: &node,
                browser: &browser,
                long: Duration::from_secs(args.long),
            };
            let why = (row.check)(&context).err().map(|why| format!("{why:#}"));
            let verdict = why.as_ref().map_or_else(|| "pass".to_owned(), |why| format!("FAIL: {why}"));
            println!("{verdict} ({:.1} s)", started_at.elapsed().as_secs_f64());
            table.rows.entry((row.number, row.what)).or_default().push(ConformCell { version: client.version, why });
        }
    }
    Ok(())
}

/// Compares the skills of every client with Homard's view of them; returns whether they are the same.
fn check_skills(clients: &[OpenClawClient], binary: &Path) -> Vec<bool> {
    clients.iter().map(|client| print_row(&"skill", "shipped skills", client, &skills::check(client, binary))).collect()
}

/// Loads plugins of the older client, whose API Homard implements; returns whether they work.
fn check_plugins(clients: &[OpenClawClient], binary: &Path) -> Vec<bool> {
    let older = clients.iter().filter(|client| matches!(client.protocol, ProtocolVersion::Three));
    older.map(|client| print_row(&"plugin", "shipped plugins", client, &plugins::check(client, binary))).collect()
}

/// Prints a line of the table; returns whether the check passed.
fn print_row(row: &dyn Display, what: &str, client: &OpenClawClient, result: &Result<()>) -> bool {
    let verdict = match result {
        Ok(()) => "pass".to_owned(),
        Err(why) => format!("FAIL: {why:#}"),
    };
    println!("{row:>5}  {what:<28} {:<10} {verdict}", client.version);
    result.is_ok()
}

/// Removes the results of an earlier run.
fn empty_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}
