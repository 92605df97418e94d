//! `logging`: log level and log file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;
use crate::config::Text;

/// What is written about the work, and where.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Logging {
    /// How much: silent, fatal, error, warn, info, debug, trace. `HOMARD_LOG` comes before it. Default: info for a gateway.
    pub(crate) level: Option<Word<Level>>,
    /// The file that a gateway adds log lines to as JSON, besides those on the terminal. Default: `logs/homard.log` in the state directory.
    pub(crate) file: Option<Text>,
    /// How many bytes a log file has; then another is begun. Default: 10485760.
    pub(crate) max_file_bytes: Option<u64>,
    /// How many older log files are kept. Default: 5.
    pub(crate) max_files: Option<usize>,
    /// How many days they are kept. Default: 14.
    pub(crate) max_age_days: Option<u64>,
    /// `tools` or `off`. Secrets are hidden either way.
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
