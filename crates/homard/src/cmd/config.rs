//! `homard config`: reads, changes and validates the config file. Only the file is read and written, so it works with
//! and without a gateway; a running one reloads it.

mod change;
mod get;
mod validate;

use anyhow::Result;
use clap::Subcommand;
use homard_config::{path::Path, schema};
use homard_settings::{Config, paths::Paths};
use serde_json::json;

use crate::{cli_error::CliError, render};

/// Arguments of `homard config`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard config get agents.defaults.model
  homard config set agents.defaults.model anthropic/claude-opus-5-5
  homard config set tools.deny '[\"exec\"]'
  homard config set 'agents.list[0].id' work
  homard config set models.providers.local.apiKey '${LOCAL_KEY}'
  homard config unset gateway.port
  homard config validate
  homard config path
  homard config schema > homard.schema.json

A path is written as agents.list[0].id; a name with a dot in it as models.providers[\"a.b\"].")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON; with `set`, VALUE must be JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print values of the config file, without secrets and defaults
    Get {
        /// Config key, such as gateway.port [default: the whole file]
        path: Option<String>,
        /// Include secrets; only on a terminal
        #[arg(long)]
        show_secrets: bool,
    },
    /// Set a value; keeps comments and everything else in the file
    Set {
        /// Config key, such as gateway.port
        path: String,
        /// New value: JSON5; anything that is not valid JSON5 is a string
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Remove a value
    #[command(visible_aliases = ["remove", "rm"])]
    Unset {
        /// Config key, such as gateway.port
        path: String,
    },
    /// List all problems in the config file, with line numbers
    Validate,
    /// Print the JSON schema of the config
    Schema {
        /// Print the reference as Markdown instead
        #[arg(long)]
        markdown: bool,
    },
    /// Print the path of the config file
    #[command(visible_alias = "file")]
    Path,
}

impl Args {
    /// Returns true if the output is JSON, including failures. The result of `validate` is a document even if it fails.
    pub(super) fn wants_json(&self) -> bool {
        self.json && !matches!(self.command, Command::Validate)
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    if let Command::Schema { markdown } = args.command {
        let printed = match markdown {
            true => render::print(schema::reference::<Config>().trim_end()),
            false => render::print_json(&schema::schema::<Config>()),
        };
        return Ok(printed?);
    }
    let paths = Paths::find()?;
    match &args.command {
        Command::Get { path, show_secrets } => {
            let path = path.as_deref().map(parse).transpose()?;
            get::run(&paths, path.as_ref(), get::GetOptions { secrets: *show_secrets, json: args.json })
        }
        Command::Set { path, value } => change::set(&paths, &parse(path)?, value, args.json),
        Command::Unset { path } => change::unset(&paths, &parse(path)?, args.json),
        Command::Validate => validate::run(&paths, args.json),
        Command::Path if args.json => {
            let (path, exists) = (&paths.config, paths.config.exists());
            Ok(render::print_json(&json!({"path": path, "exists": exists}))?)
        }
        Command::Path | Command::Schema { .. } => Ok(render::print(&paths.config.display().to_string())?),
    }
}

fn parse(path: &str) -> Result<Path, CliError> {
    path.parse().map_err(|error: homard_config::path::Error| CliError::usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cmd::reference::assert_up_to_date;

    #[test]
    fn the_reference_is_up_to_date() {
        let keys = concat!(env!("CARGO_MANIFEST_DIR"), "/../settings/data/config-keys.txt");
        let command = "UPDATE_DOCS=1 cargo test -p homard the_reference_is_up_to_date";
        assert_up_to_date(keys, &schema::key_list::<Config>(), command);
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let text = fs::read_to_string(file).unwrap();
        let marker = format!("<!-- Generated from here on; regenerate with: {command} -->\n\n");
        let (by_hand, _) = text.split_once(&marker).expect("docs/configuration.md has lost its mark");
        assert_up_to_date(file, &format!("{by_hand}{marker}{}", schema::reference::<Config>()), command);
    }
}
