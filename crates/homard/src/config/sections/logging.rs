//! `logging`: log level and log file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;
use crate::config::Text;

/// Log level, files and redaction.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Logging {
    /// Log level: silent, fatal, error, warn, info, debug, trace. `HOMARD_LOG` takes precedence. Default: info for a gateway.
    pub(crate) level: Option<Word<Level>>,
    /// File to which a gateway appends log lines as JSON, in addition to the terminal. Default: `logs/homard.log` in the state directory.
    pub(crate) file: Option<Text>,
    /// Size in bytes at which a log file is rotated. Default: 10485760.
    pub(crate) max_file_bytes: Option<u64>,
    /// Number of rotated log files that are kept. Default: 5.
    pub(crate) max_files: Option<usize>,
    /// Number of days that rotated log files are kept. Default: 14.
    pub(crate) max_age_days: Option<u64>,
    /// `tools` or `off`. Secrets are redacted either way.
    pub(crate) redact_sensitive: Option<Word<Redact>>,
}

/// Log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level(pub(crate) &'static str);

/// What is redacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redact {
    Tools,
    Off,
}

super::word::words! {
    Level:
        "silent" => Self("off"), "fatal" => Self("error"), "error" => Self("error"), "warn" => Self("warn"),
        "info" => Self("info"), "debug" => Self("debug"), "trace" => Self("trace");
    Redact: "tools" => Self::Tools, "off" => Self::Off;
}
