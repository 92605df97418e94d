//! `channels`: OpenClaw's channel packages in Homard's channel host, against fake platforms.
//!
//! The test is `crates/channel-host/tests/it/real.rs`. It installs the pinned versions like `homard channels add`, or uses
//! a directory in which other versions were installed.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};

/// Channels with a fake platform.
const CHANNELS: [&str; 6] = ["irc", "signal", "mattermost", "matrix", "whatsapp", "zalo"];

/// Arguments of `channels`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these channels [default: all that have a fake platform]
    channel: Vec<String>,
    /// Kill the host this often per channel, while messages arrive and leave
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    kills: usize,
    /// Use the packages below DIR/node_modules, with @openclaw/crabline beside them, instead of installing the pinned ones
    #[arg(long, value_name = "DIR")]
    packages: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let channels = match args.channel.as_slice() {
        [] => CHANNELS.join(","),
        some => some.join(","),
    };
    let mut command = Command::new("cargo");
    command.args(["test", "-p", "homard-channel-host", "--test", "it", "real", "--", "--nocapture"]);
    command.env("HOMARD_CHANNELS", channels).env("HOMARD_CHANNEL_KILLS", args.kills.to_string());
    if let Some(packages) = &args.packages {
        command.env("HOMARD_CHANNEL_PACKAGES", packages);
    }
    let status = command.status().context("cargo cannot be run")?;
    ensure!(status.success(), "a channel does not work with its package");
    Ok(())
}
