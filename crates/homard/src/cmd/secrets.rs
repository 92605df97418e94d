//! `homard secrets audit`: finds secrets that lie in plain text.

use anyhow::{Context, Result};
use clap::Subcommand;
use homard_app::plain_secrets::{self, PlainSecret, SearchResult};
use homard_settings::{Config, paths::Paths};
use serde_json::{Value, json};

use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// Arguments of `homard secrets`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard secrets audit
  homard secrets audit --check --json")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show where secrets lie in plain text: config, .env files, credentials, backups, logs, transcripts
    Audit {
        /// Fail if a secret lies where none belongs, or other users can read one
        #[arg(long)]
        check: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    /// Returns true if the output is JSON.
    pub(super) fn wants_json(&self) -> bool {
        let Command::Audit { json, .. } = self.command;
        json
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    let Command::Audit { check, json: is_json } = args.command;
    let paths = Paths::find()?;
    let loaded = match Config::inspect(&paths) {
        Ok(chosen) => chosen.loaded,
        // The readable part of the file is searched, too.
        Err(loaded) => *loaded,
    };
    let SearchResult { found, searched, unsearched } =
        plain_secrets::search(&loaded, &paths).context("cannot search the state directory")?;
    if is_json {
        let places: Vec<Value> = found.iter().map(document).collect();
        let unsearched: Vec<_> = unsearched.iter().map(|(path, why)| json!({"path": path, "reason": why})).collect();
        render::print_json(&json!({"found": places, "searched": searched, "unsearched": unsearched}))?;
    } else {
        print(&found, searched)?;
        for (path, why) in &unsearched {
            render::remark(&format!("not searched: {}: {why}", path.display()));
        }
    }
    let bad = found.iter().filter(|found| !found.place.is_expected() || found.is_shared).count();
    if check && bad > 0 {
        let text = format!("secrets lie in plain text in {}", render::count(bad, "file"));
        return Err(CliError { is_reported: is_json, ..CliError::new("secrets", text) }.into());
    }
    Ok(())
}

fn document(found: &PlainSecret) -> Value {
    let mut document = json!(found);
    document["isExpected"] = found.place.is_expected().into();
    document["remedy"] = found.place.remedy().into();
    document
}

fn print(found: &[PlainSecret], searched: usize) -> Result<()> {
    if found.is_empty() {
        return Ok(render::print(&format!(
            "no secrets lie in plain text ({} searched)",
            render::count(searched, "file")
        ))?);
    }
    let mut rows = vec![["FILE", "SECRETS", "REMEDY"].map(str::to_owned).to_vec()];
    for found in found {
        let secrets = match found.keys.as_slice() {
            [] => render::count(found.count, "line"),
            keys => keys.join(", "),
        };
        let shared = if found.is_shared { "; other users can read it" } else { "" };
        let cells = [found.path.display().to_string(), secrets, format!("{}{shared}", found.place.remedy())];
        rows.push(cells.map(|cell| render::strip_controls(&cell)).to_vec());
    }
    Ok(render::print_table(&Table::list(rows))?)
}
