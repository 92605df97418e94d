//! `homard completions` generates shell completions; `homard man`, which packages call, the manual pages.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, Result};
use clap_complete::{Shell, generate};

/// Arguments of `homard completions`.
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

/// Arguments of `homard man`.
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Existing directory, such as /usr/share/man/man1
    directory: PathBuf,
}

/// Writes a manual page for the program and one for each command.
pub(super) fn write_manual(args: &ManArgs, mut command: clap::Command) -> Result<()> {
    command.build();
    let commands = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help").cloned();
    let pages = commands.map(|sub| {
        let name: &'static str = format!("homard-{}", sub.get_name()).leak();
        sub.display_name(name).name(name)
    });
    for page in pages.collect::<Vec<_>>().into_iter().chain([command.clone()]) {
        let path = args.directory.join(format!("{}.1", page.get_name()));
        let mut text = Vec::new();
        clap_mangen::Man::new(page).render(&mut text)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
