//! `homard completions`: generates shell completions.

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
    /// Shell that the script is for
    shell: Shell,
}

/// Writes the completions to stdout.
pub(super) fn run(args: &Args, mut command: clap::Command) -> Result<()> {
    let mut script = Vec::new();
    generate(args.shell, &mut command, "homard", &mut script);
    match io::stdout().write_all(&script) {
        // A closed pipe is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}
