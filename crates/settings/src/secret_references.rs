//! Secrets that the config names instead of containing them: in a file, in a credential of the service manager, or in
//! the output of a command.
//!
//! Anyone who can change the config could run a command, so commands are off unless the environment, which neither
//! the config nor a client can change, switches them on.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use homard_config::SecretReference;

use crate::paths;

/// Maximum size of a secret in bytes.
const MAX_BYTES: u64 = 64 * 1024;
/// How long a command may run.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Variables that a command gets, in addition to those that begin with one of [`COMMAND_PREFIXES`]: what programs need to
/// run, and to reach an agent or a desktop that keeps secrets.
const COMMAND_VARIABLES: [&str; 16] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "GNUPGHOME",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SSH_AUTH_SOCK",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
];
/// Beginnings of further variables of a command: locales, directories, and password managers.
const COMMAND_PREFIXES: [&str; 7] = ["LC_", "XDG_", "GPG_", "PASSWORD_STORE_", "OP_", "BW_", "VAULT_"];
/// Setting that switches commands on.
const COMMANDS: &str = "SECRET_COMMANDS";
/// Variable with the directory of the service manager's credentials.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Returns the secret, or a text that completes a sentence which begins with the key in the config.
pub(crate) fn resolve(reference: SecretReference<'_>) -> Result<String, String> {
    match reference {
        SecretReference::File(path) => {
            let path = paths::expand(Path::new(path.trim()), paths::home().as_deref());
            if path.is_relative() {
                return Err(format!("names the file {}, which is not an absolute path", path.display()));
            }
            read(&path)
        }
        SecretReference::Credential(name) => match credential_path(name.trim())? {
            Some(path) => read(&path),
            None => Err(format!(
                "needs the credential {}, and no service manager passed any (CREDENTIALS_DIRECTORY is not set)",
                name.trim()
            )),
        },
        SecretReference::Command(command) => {
            if paths::setting(COMMANDS).is_none_or(|value| value != "1") {
                return Err(format!(
                    "runs a command for a secret, which is off; to allow it, set HOMARD_{COMMANDS}=1 in Homard's environment"
                ));
            }
            output(command)
        }
    }
}

/// Returns a credential that the service manager passed under this name; `None` if there is none.
pub fn credential(name: &str) -> Option<String> {
    read(&credential_path(name).ok()??).ok()
}

/// Returns the path of a credential; `None` if the service manager passed none at all.
fn credential_path(name: &str) -> Result<Option<PathBuf>, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !name.bytes().all(is_plain) || name.is_empty() || name.starts_with('.') {
        return Err(format!("names the credential {name:?}; use letters, digits, '-', '_' and '.'"));
    }
    Ok(paths::env(CREDENTIALS).map(|folder| PathBuf::from(folder).join(name)))
}

/// Reads a secret. No message contains its text.
fn read(path: &Path) -> Result<String, String> {
    let open = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = open().map_err(|error| format!("names the file {}, which cannot be read: {error}", path.display()))?;
    text(bytes).map_err(|why| format!("names the file {}, which {why}", path.display()))
}

/// Runs a command and returns its output.
fn output(command: &str) -> Result<String, String> {
    let failed = |why: String| format!("runs the command {command:?}, which {why}");
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .env_clear()
        .envs(paths::variables().filter(|(name, _)| is_for_commands(name)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let Some(mut stdout) = child.stdout.take() else { return Err(failed("has no output".to_owned())) };
    let (sender, receiver) = mpsc::channel();
    // Ends with the pipe; if the command leaves it open, the thread is abandoned with it.
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let result = stdout.by_ref().take(MAX_BYTES + 1).read_to_end(&mut bytes).map(|_| bytes);
        // The receiver is gone after the time limit.
        drop(sender.send(result));
    });
    let received = receiver.recv_timeout(COMMAND_TIMEOUT);
    if received.is_err() {
        child.kill().map_err(|error| failed(format!("cannot be stopped: {error}")))?;
    }
    let status = child.wait().map_err(|error| failed(format!("cannot be waited for: {error}")))?;
    match received {
        Ok(Ok(bytes)) if status.success() && bytes.is_empty() => Err(failed("printed nothing".to_owned())),
        Err(_) => Err(failed(format!("did not end within {} s", COMMAND_TIMEOUT.as_secs()))),
        Ok(Err(error)) => Err(failed(format!("cannot be read: {error}"))),
        Ok(Ok(_)) if !status.success() => Err(failed(format!("failed ({status})"))),
        Ok(Ok(bytes)) => text(bytes).map_err(failed),
    }
}

/// True if a command for a secret gets this variable. Those with other secrets are not among them.
fn is_for_commands(name: &str) -> bool {
    COMMAND_VARIABLES.contains(&name) || COMMAND_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the text of a secret without the line break at its end.
fn text(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("has more than {} KiB", MAX_BYTES / 1024));
    }
    let text = String::from_utf8(bytes).map_err(|error| format!("is not UTF-8 text ({})", error.utf8_error()))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.trim().is_empty() { Err("is empty".to_owned()) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_read_without_its_last_line_break() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let resolved = || resolve(SecretReference::File(path.to_str().unwrap()));
        assert!(resolved().unwrap_err().contains("which cannot be read"));
        fs::write(&path, "sk-1 \n").unwrap();
        assert_eq!(resolved().as_deref(), Ok("sk-1 "));
        for (text, why) in
            [(b"\n".to_vec(), "is empty"), (vec![b'x'; 70_000], "has more than 64 KiB"), (vec![0xff], "is not UTF-8")]
        {
            fs::write(&path, text).unwrap();
            assert!(resolved().unwrap_err().contains(why));
        }
        assert_eq!(
            resolve(SecretReference::File("key")).unwrap_err(),
            "names the file key, which is not an absolute path"
        );
    }

    #[test]
    fn the_name_of_a_credential_is_no_path() {
        for name in ["../key", "a/b", ".", ".hidden", ""] {
            assert!(credential_path(name).is_err(), "{name}");
        }
    }

    #[test]
    fn commands_are_off_by_default() {
        let refused = resolve(SecretReference::Command("echo key")).unwrap_err();
        assert_eq!(
            refused,
            "runs a command for a secret, which is off; to allow it, set HOMARD_SECRET_COMMANDS=1 in Homard's environment"
        );
    }

    #[test]
    fn a_command_gets_no_variables_with_keys_of_models() {
        for name in ["PATH", "HOME", "GNUPGHOME", "LC_ALL", "OP_SERVICE_ACCOUNT_TOKEN"] {
            assert!(is_for_commands(name), "{name}");
        }
        for name in
            ["OPENAI_API_KEY", "ANTHROPIC_OAUTH_TOKEN", "CREDENTIALS_DIRECTORY", "HOMARD_GATEWAY_TOKEN", "LD_PRELOAD"]
        {
            assert!(!is_for_commands(name), "{name}");
        }
    }

    #[test]
    fn the_output_of_a_command_is_the_secret_if_it_succeeds() {
        assert_eq!(output("echo key").as_deref(), Ok("key"));
        assert_eq!(
            output("echo key; exit 3").unwrap_err(),
            "runs the command \"echo key; exit 3\", which failed (exit status: 3)"
        );
        assert_eq!(output("true").unwrap_err(), "runs the command \"true\", which printed nothing");
    }
}
