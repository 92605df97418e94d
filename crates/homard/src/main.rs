//! The `homard` binary: an AI agent gateway and its command line.
//!
//! Start with `cmd`, the commands. What they print is formatted by `homard-render`, what they start is built by
//! `homard-app`.

mod cli_error;
mod cmd;
mod signal;

use std::{net::TcpListener, process::ExitCode};

use anyhow::{Context, Result};
use homard_render as render;
use homard_service::{activation, handover};
use rustix::process::{Resource, Rlimit};

use crate::cmd::Cli;

fn main() -> ExitCode {
    // While there is a single thread: a command that enters the sandbox starts with this binary.
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|arg| arg == homard_sandbox::ENTER) {
        return homard_sandbox::enter(args).unwrap_or_else(|error| {
            render::remark(&format!("sandbox: {error}"));
            ExitCode::from(126)
        });
    }
    // A core dump would contain every secret of this process. Lowering the limit never fails.
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).ok();
    // Processes of the same user cannot read the memory through /proc either, unless debugging is requested.
    #[cfg(target_os = "linux")]
    if homard_settings::paths::setting("DUMPABLE").is_none_or(|value| value != "1")
        && let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        render::remark(&format!("warning: other processes of this user can read the memory of this process: {error}"));
    }
    let cli = Cli::read();
    let wants_json = cli.wants_json();
    let Err(error) = start(cli) else { return ExitCode::SUCCESS };
    if cli_error::is_reported(&error) {
        return cli_error::exit_code(&error);
    }
    let is_printed = if wants_json { render::print_json(&cli_error::document(&error)).is_ok() } else { false };
    if !is_printed {
        render::remark(&format!("error: {error:#}"));
    }
    cli_error::exit_code(&error)
}

/// Returns the sockets that the previous process or the service manager passed to this one.
fn listeners() -> Result<Vec<TcpListener>> {
    let process = homard_settings::paths::env(handover::VARIABLE).and_then(|process| process.into_string().ok());
    let mut listeners = handover::received_listeners(process.as_deref())
        .context("cannot take over the sockets of the previous process")?;
    listeners.extend(activation::inherited_listeners().context("cannot use the sockets of the service manager")?);
    Ok(listeners)
}

fn start(cli: Cli) -> Result<()> {
    let (logging, file) = cli.logging();
    let log = homard_logging::start(cli.log_level(), &logging, file.as_deref())?;
    // Fails only if a provider was already installed, which is not the case.
    rustls::crypto::ring::default_provider().install_default().ok();
    // While there is a single thread: this changes the environment.
    let inherited = if cli.serves() { listeners()? } else { Vec::new() };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let result = runtime.block_on(cli.run(log, inherited));
    // Remaining tasks are not awaited.
    runtime.shutdown_background();
    result
}
