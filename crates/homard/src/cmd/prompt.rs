//! Terminal prompts: a secret, typed without echo or piped in; and yes or no.

use std::io::{self, IsTerminal, Read, Write};

use anyhow::{Context, Result};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::cli_error::CliError;

/// Maximum length of the input.
const MAX_INPUT: u64 = 64 * 1024;

/// Reads a secret.
pub(super) fn secret(label: &str) -> Result<String> {
    let mut stdin = io::stdin().lock();
    if !stdin.is_terminal() {
        let mut text = String::new();
        stdin.take(MAX_INPUT).read_to_string(&mut text).context("cannot read the key from stdin")?;
        return Ok(text);
    }
    let mut stderr = io::stderr().lock();
    // First, because it discards earlier input: an answer to the prompt must not be among that.
    let echo_guard = EchoGuard::new().context("cannot disable the echo of the terminal; pipe the key in instead")?;
    write!(stderr, "{label} (not shown): ").and_then(|()| stderr.flush())?;
    let line = read_line(&mut stdin, &mut io::sink());
    drop(echo_guard);
    writeln!(stderr)?;
    line
}

/// Asks for a line of text; needs a terminal. Ctrl-C is an error with exit code 130.
pub(super) fn text(label: &str) -> Result<String> {
    let (mut stdin, mut stderr) = (io::stdin().lock(), io::stderr().lock());
    let echo_guard = EchoGuard::new().context("cannot read from the terminal")?;
    write!(stderr, "{label} ").and_then(|()| stderr.flush())?;
    let line = read_line(&mut stdin, &mut stderr);
    drop(echo_guard);
    writeln!(stderr)?;
    line
}

/// Asks a yes/no question; `None` without a terminal.
pub(super) fn confirm(question: &str) -> Result<Option<bool>> {
    let (mut stdin, mut stderr) = (io::stdin().lock(), io::stderr().lock());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return Ok(None);
    }
    let echo_guard = EchoGuard::new().context("cannot read from the terminal")?;
    write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush())?;
    let line = read_line(&mut stdin, &mut io::sink());
    drop(echo_guard);
    let line = line?;
    writeln!(stderr, "{}", crate::render::strip_controls(&line))?;
    Ok(Some(matches!(line.trim().to_lowercase().as_str(), "y" | "yes")))
}

/// Reads a line key by key, because the terminal is not in line mode, and shows it on `echo`.
fn read_line(keys: &mut impl Read, echo: &mut impl Write) -> Result<String> {
    let mut line = Vec::new();
    let mut key = [0];
    loop {
        if keys.read(&mut key).context("cannot read from the terminal")? == 0 {
            break;
        }
        let shown: &[u8] = match key[0] {
            b'\n' | b'\r' | 0x04 => break,
            0x03 => return Err(CliError { exit: 130, ..CliError::new("interrupted", "nothing was changed") }.into()),
            0x08 | 0x7f if line.is_empty() => b"",
            0x08 | 0x7f => {
                // A character of several bytes is removed as a whole.
                while line.pop().is_some_and(|byte: u8| byte & 0xc0 == 0x80) {}
                b"\x08 \x08"
            }
            0x15 => {
                line.clear();
                b"\r\x1b[K"
            }
            byte => {
                line.push(byte);
                &key
            }
        };
        // An echo that fails does not change the input.
        echo.write_all(shown).and_then(|()| echo.flush()).ok();
    }
    String::from_utf8(line).context("the input is not UTF-8")
}

/// Disables echo and line mode until dropped. Ctrl-C is read as a key, otherwise it would leave echo disabled.
struct EchoGuard(Termios);

impl EchoGuard {
    fn new() -> rustix::io::Result<Self> {
        let original = tcgetattr(io::stdin())?;
        let mut silent = original.clone();
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(original))
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        // A failure cannot be reported and is ignored.
        tcsetattr(io::stdin(), OptionalActions::Flush, &self.0).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_can_be_corrected_and_given_up() {
        let line = |keys: &[u8]| read_line(&mut &*keys, &mut io::sink());
        assert_eq!(line(b"sk-x\x7f1\nrest").unwrap(), "sk-1");
        assert_eq!(line(b"wrong\x15sk-2\x04").unwrap(), "sk-2");
        assert_eq!(line("a\u{e9}\x7fb\n".as_bytes()).unwrap(), "ab");
        assert_eq!(line(b"sk-3\x03").unwrap_err().to_string(), "nothing was changed");
        let mut shown = Vec::new();
        assert_eq!(read_line(&mut &b"ab\x7fc\n"[..], &mut shown).unwrap(), "ac");
        assert_eq!(shown, b"ab\x08 \x08c");
    }
}
