//! `homard dashboard`: opens the gateway's page in a browser, with a one-time link that signs it in.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use homard_settings::paths;
use serde_json::{Value, json};

use super::query::{Call, CommandContext};
use crate::render;

/// Arguments of `homard dashboard`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard dashboard             open the page in a browser
  homard dashboard --no-open   only print the link")]
pub(super) struct Args {
    /// Print the link without opening it
    #[arg(long)]
    no_open: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints the link, and opens it if this is a terminal on a desktop.
pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = CommandContext::load()?;
    let answer = setup.call(Call::admin("device.loginCode.create", json!({}))).await?;
    let answer = answer.ok_or_else(|| setup.not_running())?;
    let url = link(&setup.target.url, &answer).context("the gateway's answer contains no code")?;
    if args.json {
        let document = json!({"url": url, "expiresAtMs": answer["expiresAtMs"]});
        return Ok(render::print_json(&document)?);
    }
    render::print(&url)?;
    let is_opened = !args.no_open && render::is_terminal() && open(&url);
    let what = if is_opened { "opened in your browser" } else { "open it in a browser within a minute" };
    render::remark(&format!("{what}; the link works once"));
    Ok(())
}

/// Builds the link from the gateway's address and its answer.
fn link(address: &str, answer: &Value) -> Option<String> {
    // `ws` becomes `http`, and `wss` becomes `https`.
    let page = address.strip_prefix("ws").map(|rest| format!("http{rest}"))?;
    let path = answer["path"].as_str()?.trim_start_matches('/');
    Some(format!("{}/{path}#code={}", page.trim_end_matches('/'), answer["code"].as_str()?))
}

/// Opens a link in the desktop's browser; returns whether there is one.
fn open(url: &str) -> bool {
    let is_desktop =
        cfg!(target_os = "macos") || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| paths::env(name).is_some());
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    is_desktop && command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_has_the_code_in_its_fragment() {
        let answer = |path: &str| json!({"code": "abc", "path": path});
        assert_eq!(link("ws://127.0.0.1:18789", &answer("/")).as_deref(), Some("http://127.0.0.1:18789/#code=abc"));
        assert_eq!(
            link("wss://desk.lan/x/", &answer("/homard/")).as_deref(),
            Some("https://desk.lan/x/homard/#code=abc")
        );
        assert_eq!(link("ws://h", &json!({})), None);
    }
}
