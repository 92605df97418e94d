//! `homard completions`: what a shell needs to complete commands of ours.

use std::io::{self, Write};

use anyhow::Result;
use clap_complete::{Shell, generate};

/// What `homard completions` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard completions bash > ~/.local/share/bash-completion/completions/homard
  homard completions zsh > ~/.zfunc/_homard
  homard completions fish > ~/.config/fish/completions/homard.fish")]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

/// Writes it to stdout.
pub(super) fn run(args: &Args, mut command: clap::Command) -> Result<()> {
    let mut script = Vec::new();
    generate(args.shell, &mut command, "homard", &mut script);
    match io::stdout().write_all(&script) {
        // That nobody reads any more is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}
