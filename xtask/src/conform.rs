//! `conform`: unmodified OpenClaw clients of both generations against the built gateway.
//!
//! [`install`] fetches the clients, [`client`] runs one of them in a fresh home, [`rows`] is the checklist, and [`state`]
//! sends a state directory there and back. [`skills`] compares how the shipped skills are judged. The gateway answers with its built-in demo model, so nothing but the npm
//! registry is needed. What every client said is kept. [`sdk`] shows our requests to the vendors' own types; [`openai`] lets the
//! official clients of OpenAI speak to the gateway.

mod client;
mod install;
mod model;
mod openai;
mod rows;
mod sdk;
mod skills;
mod state;
mod talk;

use std::{fmt::Display, fs, path::Path};

use anyhow::{Context, Result, bail};
use serde_json::json;

use self::{
    client::{Client, Protocol},
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
        let binary = gateway::build(Profile::Release)?;
        let scene = openai::Scene { folder: &folder, binary: &binary, logs: &logs, records: args.record };
        let results = openai::check(scene);
        return if results.contains(&false) { bail!("official clients are not content") } else { Ok(()) };
    }
    let clients = install::GENERATIONS.iter().map(|generation| install::install(generation, &folder, &logs));
    let clients = clients.collect::<Result<Vec<Client>>>()?;
    if args.install_only {
        return Ok(());
    }
    let binary = gateway::build(Profile::Release)?;
    if args.skills_only {
        let results = check_skills(&clients, &binary);
        return if results.contains(&false) { bail!("skills are judged differently") } else { Ok(()) };
    }
    let config = json!({"agents": {"defaults": {"model": {"primary": "homard/demo"}}}});
    let gateway = Gateway::start(&binary, &config, &logs.join("gateway.log"))?;
    println!("{:>5}  {:<28} {:<10} result", "row", "what", "client");
    let mut results = check_rows(&clients, &gateway);
    // The newer generation keeps its sessions in a database of its own.
    for client in clients.iter().filter(|client| matches!(client.protocol, Protocol::Three)) {
        let result = state::check(client, &binary, &config);
        results.push(tell(&"state", "there and back", client, &result));
    }
    results.extend(check_skills(&clients, &binary));
    results.push(sdk::check(&folder));
    let scene = openai::Scene { folder: &folder, binary: &binary, logs: &logs, records: args.record };
    results.extend(openai::check(scene));
    let failures = results.iter().filter(|passed| !**passed).count();
    println!("what was said: {}", logs.strip_prefix(shell::root()).unwrap_or(&logs).display());
    if failures > 0 {
        bail!("{failures} of {} checks failed", results.len());
    }
    Ok(())
}

/// Runs every row with every client; whether each passed.
fn check_rows(clients: &[Client], gateway: &Gateway) -> Vec<bool> {
    let state = gateway.state();
    let pairs = rows::ROWS.iter().flat_map(|row| clients.iter().map(move |client| (row, client)));
    let check = |(row, client): (&rows::Row, _)| {
        let result = (row.check)(&Scene { client, port: gateway.port(), state: &state });
        tell(&row.number, row.what, client, &result)
    };
    pairs.map(check).collect()
}

/// Compares the skills of every client with what Homard makes of them; whether they are the same.
fn check_skills(clients: &[Client], binary: &Path) -> Vec<bool> {
    clients.iter().map(|client| tell(&"skill", "shipped skills", client, &skills::check(client, binary))).collect()
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
