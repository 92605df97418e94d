//! `homard mcp`: manages MCP servers. Works with and without a gateway: a server that is tested is started here.

mod edit;

use anyhow::Result;
use clap::Subcommand;
use homard_app::mcp_servers;
use homard_settings::{mcp::Server, paths::Paths};
use homard_tools::mcp::{ServerSetup, ServerState, ServerStatus, ServerTransport};
use serde_json::{Value, json};

use super::ids::{self, Candidate};
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// Arguments of `homard mcp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard mcp list          list the configured servers
  homard mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
  homard mcp add tracker --url https://mcp.example.com/mcp --header 'Authorization=Bearer ${TOKEN}'
  homard mcp show files    show its settings, without secrets
  homard mcp test files    start a server and list its tools
  homard mcp remove files")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List configured MCP servers
    List,
    /// Add a server to the config
    Add(edit::NewServer),
    /// Remove a server from the config
    #[command(visible_alias = "rm")]
    Remove {
        /// Server name
        name: String,
    },
    /// Show the settings of a server, without secrets
    #[command(visible_aliases = ["get", "info"])]
    Show {
        /// Server name in the config or a unique prefix of it
        name: String,
    },
    /// Connect to a server and list its tools
    Test {
        /// Server name in the config or a unique prefix of it
        name: String,
    },
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let all = &chosen.loaded.config.mcp.servers;
    let servers: Vec<_> =
        all.iter().map(|(name, server)| (name.as_str(), server, server.setup(name, &paths.state))).collect();
    match &args.command {
        Command::List => list(&servers, &paths, args.json),
        Command::Add(server) => edit::add(&paths, server, args.json),
        Command::Remove { name } => edit::remove(&paths, name, args.json),
        Command::Show { name } => {
            let (name, server, _) = find(&servers, name)?;
            edit::show(&chosen.loaded.source, name, &state(server), args.json)
        }
        Command::Test { name } => {
            let (name, server, setup) = find(&servers, name)?;
            let unusable = || CliError::new("unusable", format!("{name} is not used: {}", state(server)));
            test(setup.clone().ok_or_else(unusable)?, args.json).await
        }
    }
}

/// Returns the server that was typed: by its name or a unique prefix of it.
fn find<'a, 'b>(servers: &'b [ServerEntry<'a>], typed: &str) -> Result<&'b ServerEntry<'a>, CliError> {
    let known: Vec<_> = servers.iter().map(|(id, ..)| Candidate { id, name: None }).collect();
    let resolved = ids::resolve("server", typed, &known)?;
    servers
        .iter()
        .find(|(known, ..)| Some(*known) == resolved)
        .ok_or_else(|| CliError::not_found(format!("server \"{typed}\" not found; list servers with: homard mcp list")))
}

type ServerEntry<'a> = (&'a str, &'a Server, Option<ServerSetup>);

fn list(servers: &[ServerEntry<'_>], paths: &Paths, wants_json: bool) -> Result<()> {
    if wants_json {
        let row = |(name, server, setup): &ServerEntry<'_>| {
            json!({
                "name": name, "enabled": server.enabled != Some(false), "used": setup.is_some(),
                "state": state(server), "place": setup.as_ref().map(display_address),
            })
        };
        return Ok(render::print_json(&json!({"servers": servers.iter().map(row).collect::<Vec<_>>()}))?);
    }
    if servers.is_empty() {
        let file = paths.config.display();
        return Ok(render::print(&format!(
            "no MCP servers; add one to mcp.servers in {file}, or with: homard mcp add NAME -- COMMAND; see: homard docs mcp"
        ))?);
    }
    let titles = ["SERVER", "STATE", "PLACE"].map(str::to_owned).to_vec();
    let line = |(name, server, setup): &ServerEntry<'_>| {
        let cells = [(*name).to_owned(), state(server), setup.as_ref().map_or_else(|| "-".to_owned(), display_address)];
        cells.map(|cell| render::strip_controls(&cell)).to_vec()
    };
    Ok(render::print_table(&Table::list(std::iter::once(titles).chain(servers.iter().map(line)).collect()))?)
}

/// Returns whether a server is used, and if not, why.
fn state(server: &Server) -> String {
    if let Some(fault) = server.fault.as_ref().filter(|_| server.enabled != Some(false)) {
        return format!("down: {fault}");
    }
    match (server.enabled, server.config_error()) {
        (Some(false), _) => "off".to_owned(),
        (Some(true) | None, Some((key, why))) => format!("ignored: {key} {why}"),
        (Some(true) | None, None) => "on".to_owned(),
    }
}

/// Returns the address of a server without its secrets: arguments, and parts of a URL other than host and path, are
/// omitted.
fn display_address(setup: &ServerSetup) -> String {
    match &setup.transport {
        ServerTransport::Command { command, .. } => command.clone(),
        ServerTransport::Http { url, .. } => {
            let plain = url.split(['?', '#']).next().unwrap_or_default();
            match plain.split_once("://") {
                Some((scheme, rest)) => {
                    let (host, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
                    let host = host.rsplit('@').next().unwrap_or_default();
                    path.map_or_else(|| format!("{scheme}://{host}"), |path| format!("{scheme}://{host}/{path}"))
                }
                None => plain.to_owned(),
            }
        }
    }
}

async fn test(setup: ServerSetup, wants_json: bool) -> Result<()> {
    let limit = setup.connect_timeout * 2;
    let servers = mcp_servers::start(vec![setup]);
    servers.settled(limit).await;
    let status = servers.status().into_iter().next();
    let names: Vec<String> = servers.tools().iter().map(|tool| tool.spec().name).collect();
    servers.close().await;
    let Some(status) = status else { return Ok(()) };
    if status.state != ServerState::Ready {
        let why = status.error.as_deref().unwrap_or("not ready in time");
        return Err(CliError::new(
            "connection",
            format!("{} cannot be used: {}", status.name, render::strip_controls(why)),
        )
        .into());
    }
    if wants_json {
        return Ok(render::print_json(&document(&status, &names))?);
    }
    Ok(render::print(&describe(&status, &names))?)
}

fn document(status: &ServerStatus, names: &[String]) -> Value {
    let tools = status.tools.iter().zip(names).map(|(tool, name)| json!({"tool": tool, "name": name}));
    json!({"ok": true, "name": status.name, "server": status.server, "tools": tools.collect::<Vec<_>>()})
}

fn describe(status: &ServerStatus, names: &[String]) -> String {
    let server_name = status.server.as_ref().map(|server| format!(" ({server})")).unwrap_or_default();
    let count = match names.len() {
        0 => "no enabled tools".to_owned(),
        count => render::count(count, "tool"),
    };
    let lines = std::iter::once(format!("{}{server_name} works: {count}", status.name));
    let lines: Vec<_> = lines.chain(names.iter().map(|name| format!("  {name}"))).collect();
    render::strip_controls(&lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_server_address_is_shown_without_secrets() {
        let address = |url: &str| {
            let transport = ServerTransport::Http { url: url.to_owned(), headers: BTreeMap::new() };
            display_address(&ServerSetup::new("x", transport))
        };
        assert_eq!(address("https://me:secret@x.example/mcp?key=secret#secret"), "https://x.example/mcp");
        assert_eq!(address("https://x.example"), "https://x.example");
        assert_eq!(address("https://me:secret@x.example?key=a/b"), "https://x.example");
        assert_eq!(address("what?"), "what");
    }
}
