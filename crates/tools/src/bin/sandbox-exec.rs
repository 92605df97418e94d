//! The last step into a sandbox as a separate binary, for this crate's tests, which have no gateway binary to
//! re-execute.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != homard_sandbox::ENTER) {
        return ExitCode::from(2);
    }
    let error = match homard_sandbox::enter(arguments) {
        Ok(code) => return code,
        Err(error) => error,
    };
    #[allow(clippy::print_stderr, reason = "a program says why it failed")]
    {
        eprintln!("{error}");
    }
    ExitCode::from(126)
}
