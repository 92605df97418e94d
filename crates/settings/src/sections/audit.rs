//! `audit`: where checkpoints of the audit log are sent.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{number::at_least_one, object};
use crate::{Text, paths};

/// Settings of the audit log.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Audit {
    /// Checkpoints: the number and the digest of the last row, sent to places that an intruder on this machine cannot change. Disabled unless a destination is set.
    #[serde(deserialize_with = "object")]
    pub checkpoints: Checkpoints,
}

/// Destinations of checkpoints.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Checkpoints {
    /// File to which checkpoints are appended, one JSON document per line; best on another disk.
    pub file: Option<Text>,
    /// Syslog server: `host:port` for UDP, or the path of a local socket such as `/dev/log`.
    pub syslog: Option<Text>,
    /// URL to which checkpoints are sent by HTTP POST, as JSON.
    pub url: Option<Text>,
    /// Bearer token for `url`.
    pub token: Option<Text>,
    /// Minimum interval between two checkpoints in seconds. Default: 60.
    #[serde(deserialize_with = "at_least_one")]
    #[schemars(range(min = 1))]
    pub every_seconds: Option<u64>,
}

/// A destination of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointSink {
    File(PathBuf),
    Socket(PathBuf),
    Udp(String),
    Url { url: reqwest::Url, token: Option<Text> },
}

impl Checkpoints {
    /// Returns all destinations, or the invalid key and the reason.
    pub fn sinks(&self) -> Result<Vec<CheckpointSink>, (&'static str, &'static str)> {
        let mut sinks = Vec::new();
        if let Some(file) = &self.file {
            let path = paths::expand(Path::new(file.as_str()), paths::home().as_deref());
            sinks.push(
                path.is_absolute().then_some(CheckpointSink::File(path)).ok_or(("file", "must be an absolute path"))?,
            );
        }
        if let Some(server) = &self.syslog {
            let syslog_error = ("syslog", "must be host:port, or the path of a socket such as /dev/log");
            sinks.push(syslog(server.as_str()).ok_or(syslog_error)?);
        }
        if let Some(url) = &self.url {
            let url = reqwest::Url::parse(url.as_str()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            let url = url.ok_or(("url", "must be an http or https address"))?;
            sinks.push(CheckpointSink::Url { url, token: self.token.clone() });
        }
        Ok(sinks)
    }
}

fn syslog(server: &str) -> Option<CheckpointSink> {
    if server.starts_with('/') {
        return Some(CheckpointSink::Socket(server.into()));
    }
    let (host, port) = server.rsplit_once(':')?;
    port.parse::<u16>().ok().filter(|_| !host.is_empty()).map(|_| CheckpointSink::Udp(server.to_owned()))
}
