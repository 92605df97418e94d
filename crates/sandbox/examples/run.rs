//! Runs a shell command in a sandbox around a directory: `run DIRECTORY COMMAND`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::{
    error::Error,
    ffi::{OsStr, OsString},
    fs::File,
    path::PathBuf,
    process::ExitCode,
};

use homard_sandbox::{CommandLocation, ENTER, Sandbox, SandboxPolicy, Tier, Watches, enter, explain};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // While there is a single thread: a command that enters the sandbox starts with this binary.
    let mut arguments = std::env::args_os().skip(1);
    let Some(first) = arguments.next() else { return Err("usage: run DIRECTORY COMMAND".into()) };
    if first == ENTER {
        return Ok(enter(arguments)?);
    }
    let workspace = PathBuf::from(first).canonicalize()?;
    let command = arguments.next().unwrap_or_else(|| OsString::from("ls -la"));
    let helper = std::env::current_exe()?;
    let tier = Tier::detect(Some(&helper), "/usr/local/bin:/usr/bin:/bin");
    let (policy, watches) = (SandboxPolicy::default(), Watches::default());
    for sentence in explain(&policy, &tier, &workspace) {
        eprintln!("{sentence}");
    }
    let sandbox = Sandbox { policy: &policy, tier: Some(&tier), helper: Some(&helper), watches: &watches };
    let directory = File::open(&workspace)?.into();
    let location =
        CommandLocation { workspace: &workspace, cwd: &workspace, directory: &directory, has_terminal: false };
    let argv = [OsStr::new("/bin/sh"), OsStr::new("-c"), &command];
    let mut prepared = sandbox.command(&argv, &location)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(async { prepared.command.spawn()?.wait().await })?;
    for note in prepared.resources.finish().unwrap_or_default() {
        println!("{note}");
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
