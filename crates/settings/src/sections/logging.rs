//! `logging`: log level and log file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;
use crate::Text;

/// Log level and files.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Logging {
    /// Log level: silent, fatal, error, warn, info, debug, trace. `HOMARD_LOG` takes precedence. Default: info for a gateway.
    pub level: Option<Word<Level>>,
    /// File to which a gateway appends log lines as JSON, in addition to the terminal. Default: `logs/homard.log` in the state directory.
    pub file: Option<Text>,
    /// Size in bytes at which a log file is rotated. Default: 10485760.
    pub max_file_bytes: Option<u64>,
    /// Number of rotated log files that are kept. Default: 5.
    pub max_files: Option<usize>,
    /// Number of days that rotated log files are kept. Default: 14.
    pub max_age_days: Option<u64>,
}

/// Log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level(pub &'static str);

super::word::words! {
    Level:
        "silent" => Self("off"), "fatal" => Self("error"), "error" => Self("error"), "warn" => Self("warn"),
        "info" => Self("info"), "debug" => Self("debug"), "trace" => Self("trace");
}
