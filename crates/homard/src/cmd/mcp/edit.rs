//! `homard mcp add`, `remove` and `show`: the servers in the config file.

use std::collections::BTreeMap;

use anyhow::Result;
use homard_config::{
    edit,
    path::{Path, get},
    redact,
};
use homard_settings::{Config, paths::Paths};
use homard_setup::edit_config;
use serde_json::{Value, json};

use crate::{cli_error::CliError, render};

/// A new server: a program or a URL.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("transport").required(true))]
pub(super) struct NewServer {
    /// Server name; its tools are named NAME__TOOL
    name: String,
    /// URL of a server that speaks streamable HTTP
    #[arg(long, value_name = "URL", group = "transport")]
    url: Option<String>,
    /// HTTP header for the URL (repeatable), such as "Authorization=Bearer ${TOKEN}"
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = pair, requires = "url")]
    headers: Vec<(String, String)>,
    /// Environment variable of the program (repeatable); a value such as ${TOKEN} stays a reference
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = pair, conflicts_with = "url")]
    env: Vec<(String, String)>,
    /// Replace a server of this name
    #[arg(long)]
    force: bool,
    /// Program and its arguments, after --
    #[arg(last = true, value_name = "COMMAND", group = "transport")]
    command: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        Some(_) | None => Err("write it as NAME=VALUE".to_owned()),
    }
}

fn servers() -> Path {
    Path::root().key("mcp").key("servers")
}

/// Returns the servers that the file itself contains, as they are written there.
fn written(paths: &Paths) -> Value {
    get(&Config::read_file(&paths.config).source, &servers()).cloned().unwrap_or_default()
}

pub(super) fn add(paths: &Paths, args: &NewServer, is_json: bool) -> Result<()> {
    let name = args.name.trim();
    if name.is_empty() {
        return Err(CliError::usage("NAME is blank; pass a name for the server").into());
    }
    if !args.force && !written(paths)[name].is_null() {
        let text = format!("server \"{name}\" exists; replace it with --force, or see: homard mcp show {name}");
        return Err(CliError::new("exists", text).into());
    }
    let map = |pairs: &[(String, String)]| pairs.iter().cloned().collect::<BTreeMap<_, _>>();
    let mut server = match (&args.url, args.command.split_first()) {
        (Some(url), _) => json!({"url": url, "headers": map(&args.headers)}),
        (None, Some((command, rest))) => json!({"command": command, "args": rest, "env": map(&args.env)}),
        (None, None) => json!({}),
    };
    if let Some(fields) = server.as_object_mut() {
        fields.retain(|_, value| {
            !value.as_object().is_some_and(serde_json::Map::is_empty) && !value.as_array().is_some_and(Vec::is_empty)
        });
    }
    let change = edit_config(paths, |text| edit::set(text, &servers().key(name), &server))?;
    if is_json {
        let document = json!({"ok": true, "name": name, "path": paths.config, "changed": change.changed});
        return Ok(render::print_json(&document)?);
    }
    let text = format!(
        "added server {name} in {}\nconnect to it with: homard mcp test {name}\na running gateway applies the change immediately",
        paths.config.display()
    );
    Ok(render::print(&render::strip_controls(&text))?)
}

pub(super) fn remove(paths: &Paths, name: &str, is_json: bool) -> Result<()> {
    if written(paths)[name].is_null() {
        let text = format!("the config file has no server \"{name}\"; if a file that it includes has, remove it there");
        return Err(CliError::not_found(text).into());
    }
    edit_config(paths, |text| Ok(edit::unset(text, &servers().key(name))?.0))?;
    if is_json {
        return Ok(render::print_json(&json!({"ok": true, "name": name, "path": paths.config}))?);
    }
    let text = format!(
        "removed server {name} from {}\na running gateway applies the change immediately",
        paths.config.display()
    );
    Ok(render::print(&render::strip_controls(&text))?)
}

/// Prints the settings of a server without its secrets. `state` says whether it is used.
pub(super) fn show(source: &Value, name: &str, state: &str, is_json: bool) -> Result<()> {
    // Redacted as a part of the whole config, because names on the path decide what is a secret.
    let all = redact::redact(source);
    let settings = get(&all, &servers().key(name)).cloned().unwrap_or_default();
    if is_json {
        return Ok(render::print_json(&json!({"name": name, "state": state, "config": settings}))?);
    }
    let text = format!("{name}: {state}\n{settings:#}");
    Ok(render::print(&render::strip_controls(&text))?)
}
