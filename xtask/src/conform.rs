//! `conform`: unmodified OpenClaw clients of both generations against the built gateway.
//!
//! [`install`] fetches the clients, [`client`] runs one of them in a fresh home, [`rows`] is the checklist. The gateway
//! answers with its built-in demo model, so nothing but the npm registry is needed. What every client said is kept.

mod client;
mod install;
mod rows;

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use serde_json::json;

use self::{client::Client, rows::Scene};
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
}

/// Runs the checklist and prints a table.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = shell::root().join("target").join("conform");
    let logs = folder.join("logs");
    let clients = install::GENERATIONS.iter().map(|generation| install::install(generation, &folder, &logs));
    let clients = clients.collect::<Result<Vec<Client>>>()?;
    if args.install_only {
        return Ok(());
    }
    let binary = gateway::build(Profile::Release)?;
    let config = json!({"agents": {"defaults": {"model": {"primary": "homard/demo"}}}});
    fs::create_dir_all(&logs)?;
    let gateway = Gateway::start(&binary, &config, &logs.join("gateway.log"))?;
    let failures = check_all(&clients, &gateway);
    println!("what was said: {}", logs.strip_prefix(shell::root()).unwrap_or(&logs).display());
    if failures > 0 {
        bail!("{failures} of {} checks failed", clients.len() * rows::ROWS.len());
    }
    Ok(())
}

/// Runs every row with every client; how many failed.
fn check_all(clients: &[Client], gateway: &Gateway) -> usize {
    let mut failures = 0;
    println!("{:>3}  {:<28} {:<10} result", "row", "what", "client");
    for row in rows::ROWS {
        for client in clients {
            let state = gateway.state();
            let scene = Scene { client, port: gateway.port(), state: &state };
            let result = (row.check)(&scene);
            let verdict = match &result {
                Ok(()) => "pass".to_owned(),
                Err(why) => format!("FAIL: {why:#}"),
            };
            failures += usize::from(result.is_err());
            println!("{:>3}  {:<28} {:<10} {verdict}", row.number, row.what, client.version);
        }
    }
    failures
}

/// Removes what an earlier time left behind.
fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}
