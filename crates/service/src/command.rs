//! Programs of the service manager.

use std::process::{Command, Output};

use crate::Error;

/// Runs a program to its end and returns its stdout. Fails if the program does.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<String, Error> {
    let output = output(program, args)?;
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(Error::Failed {
        command: format!("{program} {}", args.join(" ")),
        status: output.status.to_string(),
        output: text(&output.stderr),
    })
}

/// Runs a program to its end.
pub(crate) fn output(program: &str, args: &[&str]) -> Result<Output, Error> {
    Command::new(program).args(args).output().map_err(|error| Error::Start { program: program.to_owned(), error })
}

/// Returns an output without the blanks around it.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
