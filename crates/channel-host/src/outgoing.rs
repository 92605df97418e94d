//! Outbound messages: their parameters, and the host's answers.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use homard_channels::{ChannelAction, ChannelError, Destination, Media, Outgoing, Receipt};
use homard_plugins::{Error, ProgramCallError};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Maximum delay that a package may ask for.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Parameters of `send`, and the files that they name, which exist until it is dropped.
#[derive(Debug)]
pub(crate) struct SendRequest {
    pub(crate) params: Value,
    _files: Option<TempDir>,
}

impl SendRequest {
    /// Writes the attached files below a folder for the package to read.
    pub(crate) fn new(account: &str, outgoing: Outgoing, folder: &Path) -> io::Result<Self> {
        let Outgoing {
            id,
            destination: Destination { to, thread },
            reply_to,
            text,
            media,
            is_silent,
            is_voice,
            poll,
            hides_previews: _,
        } = outgoing;
        let has_files = media.iter().any(|media| matches!(media, Media::Bytes { .. }));
        let files = if has_files {
            fs::create_dir_all(folder)?;
            Some(tempfile::Builder::new().prefix("send-").tempdir_in(folder)?)
        } else {
            None
        };
        let mut items = Vec::new();
        for (at, media) in media.into_iter().enumerate() {
            items.push(match (media, &files) {
                (Media::Bytes { name, mime, bytes }, Some(files)) => {
                    let dir = files.path().join(at.to_string());
                    let path = write_file(&dir, &name, &bytes)?;
                    json!({"path": path, "dir": dir, "name": name, "mime": mime})
                }
                (Media::Bytes { .. }, None) => return Err(io::Error::other("there is no folder for the file")),
                (Media::Url(url), _) => json!({"url": url}),
            });
        }
        let poll = poll
            .map(|poll| json!({"question": poll.question, "options": poll.options, "isMultiple": poll.is_multiple}));
        let params = json!({
            "account": account, "id": id, "to": to, "thread": thread, "replyTo": reply_to, "text": text,
            "media": items, "isSilent": is_silent, "isVoice": is_voice, "poll": poll,
        });
        Ok(Self { params, _files: files })
    }
}

/// Writes a file under its own name, which the recipient sees, without its directories.
fn write_file(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let plain: String = name.chars().filter(|c| !c.is_control() && !matches!(c, '/' | '\\')).take(120).collect();
    let plain = plain.trim().trim_start_matches('.');
    let path = dir.join(if plain.is_empty() { "file" } else { plain });
    fs::create_dir_all(dir)?;
    fs::write(&path, bytes)?;
    Ok(path)
}

/// Returns the parameters of `perform`.
pub(crate) fn action_params(account: &str, channel_action: ChannelAction) -> Value {
    let name = channel_action.name();
    let (destination, message, emoji, text) = match channel_action {
        ChannelAction::Type(destination) => (destination, None, None, None),
        ChannelAction::React { destination, message, emoji } => (destination, Some(message), emoji, None),
        ChannelAction::Edit { destination, message, text, hides_previews: _ } => {
            (destination, Some(message), None, Some(text))
        }
        ChannelAction::Delete { destination, message } => (destination, Some(message), None, None),
    };
    json!({
        "account": account, "action": name, "to": destination.to, "thread": destination.thread, "message": message,
        "emoji": emoji, "text": text,
    })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SendAnswer {
    ok: bool,
    #[serde(default)]
    kind: Option<FailureKind>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    messages: Vec<String>,
    #[serde(default)]
    after_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FailureKind {
    Refused,
    Later,
    Unavailable,
    Unknown,
    Unsupported,
}

/// Reads the answer to `send` or `perform`.
pub(crate) fn read_answer(
    result: Result<Value, ProgramCallError>,
    channel: &'static str,
    action: &'static str,
) -> Result<Receipt, ChannelError> {
    let answer = match result {
        Ok(answer) => SendAnswer::deserialize(answer)
            .map_err(|error| ChannelError::Unknown(format!("the channel host returned an invalid answer: {error}")))?,
        Err(ProgramCallError { error, is_sent: false }) => return Err(ChannelError::Unavailable(error.to_string())),
        Err(ProgramCallError { error: error @ Error::Timeout(_), .. }) => {
            return Err(ChannelError::Unknown(format!("the channel package did not confirm the message: {error}")));
        }
        Err(ProgramCallError { error, .. }) => return Err(ChannelError::Unknown(error.to_string())),
    };
    if answer.ok {
        let details = if answer.messages.len() > 1 { json!({"messageIds": answer.messages}) } else { Value::Null };
        return Ok(Receipt { message: answer.message, details });
    }
    let why = answer.message.unwrap_or_else(|| "the channel package gave no reason".to_owned());
    Err(match answer.kind {
        Some(FailureKind::Refused) => ChannelError::Refused(why),
        Some(FailureKind::Unavailable) => ChannelError::Unavailable(why),
        Some(FailureKind::Unsupported) => ChannelError::Unsupported { channel, action },
        Some(FailureKind::Later) => {
            let after = Duration::from_millis(answer.after_ms.unwrap_or(1000)).min(MAX_RETRY_DELAY);
            ChannelError::RetryAfter { after, why }
        }
        Some(FailureKind::Unknown) | None => ChannelError::Unknown(why),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_under_safe_names_and_removed() {
        let home = tempfile::tempdir().unwrap();
        let media = |name: &str| Media::Bytes { name: name.to_owned(), mime: None, bytes: b"hi".to_vec() };
        let all = vec![media("../../a b.png"), media("..")];
        let outgoing = Outgoing { media: all, ..Outgoing::default() };
        let request = SendRequest::new("default", outgoing, &home.path().join("out")).unwrap();
        let paths: Vec<_> =
            [0, 1].map(|at| PathBuf::from(request.params["media"][at]["path"].as_str().unwrap())).to_vec();
        assert!(paths.iter().all(|path| path.starts_with(home.path()) && fs::read(path).unwrap() == b"hi"));
        assert_eq!(paths.iter().map(|path| path.file_name().unwrap()).collect::<Vec<_>>(), ["a b.png", "file"]);
        drop(request);
        assert!(!paths[0].exists());
    }

    #[test]
    fn answers_are_classified() {
        let read = |answer: Value| read_answer(Ok(answer), "irc", "send");
        let receipt = read(json!({"ok": true, "message": "2", "messages": ["1", "2"]})).unwrap();
        assert_eq!((receipt.message.as_deref(), &receipt.details["messageIds"][0]), (Some("2"), &json!("1")));
        let failed = |kind: &str| read(json!({"ok": false, "kind": kind, "message": "no", "afterMs": 5})).unwrap_err();
        assert_eq!(failed("refused"), ChannelError::Refused("no".to_owned()));
        assert_eq!(failed("unavailable"), ChannelError::Unavailable("no".to_owned()));
        assert_eq!(failed("unknown"), ChannelError::Unknown("no".to_owned()));
        assert_eq!(failed("unsupported"), ChannelError::Unsupported { channel: "irc", action: "send" });
        let after = Duration::from_millis(5);
        assert_eq!(failed("later"), ChannelError::RetryAfter { after, why: "no".to_owned() });
        assert!(matches!(read(json!(5)).unwrap_err(), ChannelError::Unknown(_)));
        let ended = |is_sent| ProgramCallError { error: Error::Unavailable("gone".to_owned()), is_sent };
        assert!(matches!(read_answer(Err(ended(true)), "irc", "send"), Err(ChannelError::Unknown(_))));
        assert!(matches!(read_answer(Err(ended(false)), "irc", "send"), Err(ChannelError::Unavailable(_))));
    }
}
