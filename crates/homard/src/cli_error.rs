//! CLI errors: the message for people, the document for programs, and the exit code.

use std::{fmt, process::ExitCode};

use homard_client::RpcError;
use serde_json::{Value, json};

/// An error with a kind and an exit code. Any other error is a plain failure with exit code 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CliError {
    /// Error type for programs: a code of the gateway's, or `usage`, `not_found`, `config`, `connection`, `interrupted`, `failed`.
    pub(crate) kind: String,
    /// Message for people: what failed, where, and what to do next.
    pub(crate) message: String,
    /// The run that failed.
    pub(crate) run: Option<String>,
    /// Where the error occurred: `gateway` or `local`.
    pub(crate) origin: Option<&'static str>,
    pub(crate) exit: u8,
    /// True if the output already shows the error, so that only the exit code remains to be set.
    pub(crate) is_reported: bool,
}

impl CliError {
    /// Creates an error with exit code 1.
    pub(crate) fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: message.into(), run: None, origin: None, exit: 1, is_reported: false }
    }

    /// Creates an error for invalid usage, exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: 2, ..Self::new("usage", message) }
    }

    /// Creates an error for the thing that a command is about and that does not exist, exit code 1.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new("not_found", message)
    }

    /// Creates an error for an unusable config file, with which nothing was started: exit code 78, EX_CONFIG.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self { exit: 78, ..Self::new("config", message) }
    }

    /// Returns why the gateway rejected a parameter, without the name of the method; `None` for any other error.
    pub(crate) fn invalid_params(&self) -> Option<&str> {
        let text = self.message.strip_prefix("invalid ").filter(|_| self.kind == "INVALID_REQUEST")?;
        text.split_once(" params: ").filter(|(method, _)| !method.contains(' ')).map(|(_, why)| why)
    }

    /// Adds the run that failed, and where the error occurred: `gateway` or `local`.
    pub(crate) fn of(mut self, run: &str, origin: &'static str) -> Self {
        self.run = Some(run.to_owned());
        self.origin = Some(origin);
        self
    }
}

impl CliError {
    /// Returns the kind and the exit code of an error of this program or of the crates that it calls; `None` for a
    /// plain failure.
    pub(crate) fn find(error: &anyhow::Error) -> Option<Self> {
        if let Some(error) = error.downcast_ref::<Self>() {
            return Some(error.clone());
        }
        if let Some(error) = error.downcast_ref::<homard_client::Error>() {
            return Some(error.into());
        }
        if let Some(error) = error.downcast_ref::<homard_setup::Error>() {
            return Self::of_setup(error);
        }
        match error.downcast_ref::<homard_transcripts::Error>() {
            Some(homard_transcripts::Error::Key(_)) => return Some(Self::usage(error.to_string())),
            Some(homard_transcripts::Error::Client(client)) => return Some(client.into()),
            Some(
                homard_transcripts::Error::NotRunning(_)
                | homard_transcripts::Error::Locked { .. }
                | homard_transcripts::Error::Store(_),
            )
            | None => {}
        }
        if let Some(error) = error.downcast_ref::<homard_backup::Error>() {
            return Self::of_backup(error);
        }
        if let Some(homard_app::Error::Permissions(text)) = error.downcast_ref() {
            return Some(Self::new("permissions", text));
        }
        if let Some(homard_import::Error::Source(text)) = error.downcast_ref() {
            return Some(Self::usage(text));
        }
        Self::of_settings(error.downcast_ref::<homard_settings::Error>()?)
    }

    fn of_settings(error: &homard_settings::Error) -> Option<Self> {
        match error {
            homard_settings::Error::Unusable(text) => Some(Self::config(text)),
            homard_settings::Error::Environment(_)
            | homard_settings::Error::Port { .. }
            | homard_settings::Error::Path { .. }
            | homard_settings::Error::Model(_) => None,
        }
    }

    fn of_setup(error: &homard_setup::Error) -> Option<Self> {
        Some(match error {
            homard_setup::Error::Usage(text) => Self::usage(text),
            homard_setup::Error::NotFound(text) => Self::not_found(text),
            homard_setup::Error::Config(text) => Self::new("config", text),
            homard_setup::Error::Model(text) => Self::new("model", text),
            homard_setup::Error::Channel(text) => Self::new("channel", text),
            homard_setup::Error::NoModel(text) => Self::new("no_model", text),
            homard_setup::Error::Interrupted(text) => Self { exit: 130, ..Self::new("interrupted", text) },
            homard_setup::Error::Settings(error) => return Self::of_settings(error),
            homard_setup::Error::Input(_)
            | homard_setup::Error::Change(_)
            | homard_setup::Error::App(_)
            | homard_setup::Error::Credentials(_) => return None,
        })
    }
}

impl CliError {
    fn of_backup(error: &homard_backup::Error) -> Option<Self> {
        match error {
            homard_backup::Error::NotFound(text) => Some(Self::not_found(text)),
            homard_backup::Error::Usage(text) => Some(Self::usage(text)),
            homard_backup::Error::Exists(text) => Some(Self::new("exists", text)),
            homard_backup::Error::Locked(text) => Some(Self::new("locked", text)),
            homard_backup::Error::Invalid(text) => Some(Self::new("backup", text)),
            homard_backup::Error::Disk { .. } | homard_backup::Error::Open { .. } | homard_backup::Error::Store(_) => {
                None
            }
        }
    }
}

impl From<RpcError> for CliError {
    fn from(refusal: RpcError) -> Self {
        Self { origin: Some("gateway"), ..Self::new(refusal.code, refusal.message) }
    }
}

impl From<&homard_client::Error> for CliError {
    fn from(error: &homard_client::Error) -> Self {
        match error {
            homard_client::Error::Refused(refusal) => refusal.clone().into(),
            homard_client::Error::Connection(text) => Self::new("connection", text),
            homard_client::Error::Config(text) => Self::new("config", text),
            homard_client::Error::Target(_)
            | homard_client::Error::Socket(_)
            | homard_client::Error::Frame(_)
            | homard_client::Error::Settings(_)
            | homard_client::Error::Credentials(_) => Self::new("failed", error.to_string()),
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

/// Returns true if the output already shows the error.
pub(crate) fn is_reported(error: &anyhow::Error) -> bool {
    CliError::find(error).is_some_and(|cli_error| cli_error.is_reported)
}

/// Returns the exit code of an error.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(CliError::find(error).map_or(1, |cli_error| cli_error.exit))
}

/// Formats an error for programs: `{ok: false, error: {type, message}}`. If the error is that of a run, `runId` names
/// the run, and `origin` is `gateway` or `local`: where the error occurred.
pub(crate) fn document(error: &anyhow::Error) -> Value {
    let cli_error = CliError::find(error);
    let kind = cli_error.as_ref().map_or("failed", |cli_error| &cli_error.kind);
    let mut document = json!({"ok": false, "error": {"type": kind, "message": format!("{error:#}")}});
    if let Some(run) = cli_error.as_ref().and_then(|cli_error| cli_error.run.as_deref()) {
        document["runId"] = run.into();
    }
    if let Some(origin) = cli_error.and_then(|cli_error| cli_error.origin) {
        document["origin"] = origin.into();
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_an_inner_crate_is_printed_once() {
        const TEXT: &str = "the file is not valid";
        let unusable = || homard_settings::Error::Unusable(TEXT.to_owned());
        let settings = || homard_credentials::Error::Settings(unusable());
        let errors: [anyhow::Error; 6] = [
            homard_app::Error::Settings(unusable()).into(),
            homard_app::Error::Credentials(settings()).into(),
            homard_client::Error::Settings(unusable()).into(),
            homard_client::Error::Credentials(settings()).into(),
            homard_chat_link::Error::Settings(unusable()).into(),
            homard_setup::Error::App(homard_app::Error::Credentials(settings())).into(),
        ];
        for error in errors {
            assert_eq!(format!("{error:#}"), TEXT);
        }
        let error =
            homard_chat_link::Error::Process { what: "cannot start", error: std::io::ErrorKind::NotFound.into() };
        assert_eq!(format!("{:#}", anyhow::Error::from(error)), "cannot start: entity not found");
    }

    #[test]
    fn the_error_document_has_kind_run_and_origin() {
        let error = CliError::new("UNAVAILABLE", "no answer").of("r1", "gateway");
        assert_eq!(
            document(&error.into()),
            json!({"ok": false, "error": {"type": "UNAVAILABLE", "message": "no answer"}, "runId": "r1", "origin": "gateway"})
        );
        let plain = anyhow::anyhow!("disk full").context("cannot write");
        let expected = json!({"ok": false, "error": {"type": "failed", "message": "cannot write: disk full"}});
        assert_eq!(document(&plain), expected);
    }
}
