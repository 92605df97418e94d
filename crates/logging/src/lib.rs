//! Logging: to stderr, to a rotated file, and to the in-memory log that clients read. Known secrets are masked in all of
//! them. Start with [`start`]; the lines are bounded and cleaned in `line`, files are rotated in `file`.

mod file;
mod line;

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use homard_app::masks::Masks;
use homard_gateway::LogBuffer;
use homard_runtime::Ambient;
use homard_settings::{
    logging::Logging,
    paths::{self, Paths},
};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::ParseError,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use self::file::{LogFile, RotationLimits};

pub use self::file::rotated_path;

/// Default maximum size of a log file in bytes.
const DEFAULT_MAX_BYTES: u64 = 10 * 1024 * 1024;
/// Default number of rotated files.
const DEFAULT_FILES: usize = 5;
/// Default retention in days.
const DEFAULT_DAYS: u64 = 14;

/// Why logging cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The level of the environment is not valid.
    #[error("HOMARD_LOG is not a level (error, warn, info, debug, trace) or a list such as homard=debug,warn")]
    Level(#[from] ParseError),
    /// The environment cannot be used.
    #[error(transparent)]
    Settings(#[from] homard_settings::Error),
}

/// The log of this process.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// In-memory log for clients.
    pub buffer: LogBuffer,
    /// Values to mask.
    pub masks: Masks,
}

/// Returns the path of a gateway's log file: from the config, else in the state directory.
pub fn log_file(config: &Logging, paths: &Paths) -> PathBuf {
    match &config.file {
        Some(file) => paths::expand(Path::new(file.as_str()), paths::home().as_deref()),
        None => paths.state.join("logs").join("homard.log"),
    }
}

/// Starts logging at the level that `HOMARD_LOG` names, else the config, else `default`; also to a file if one is
/// given.
pub fn start(default: &str, config: &Logging, file: Option<&Path>) -> Result<Log, Error> {
    let env_level = paths::text("LOG")?;
    let config_level = config.level.map_or(default, |level| level.0.0);
    // Errors of MCP servers are logged by their supervisor. The library would log the URL, which may contain a key.
    let default_filter = format!("{config_level},rmcp=off");
    let level = env_level.as_deref().unwrap_or(&default_filter);
    let log = Log::default();
    let terminal = fmt::layer()
        .with_writer(MaskedStderr(log.masks.clone()))
        .with_ansi(io::stderr().is_terminal() && paths::colours_wanted())
        .with_filter(EnvFilter::try_new(level)?);
    // A failure to open the file is logged below, once logging works.
    let opened = file.map(|path| LogFile::open(path, bounds(config), || Ambient::system().now_ms()));
    let (file, open_error) = match opened {
        Some(Ok(opened)) => (Some(opened), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let log = match (&file, config.file.as_ref()) {
        (Some(_), Some(configured)) => Log { buffer: log.buffer.with_location(configured.as_str().to_owned()), ..log },
        (Some(opened), None) => Log { buffer: log.buffer.with_location(opened.path().display().to_string()), ..log },
        (None, _) => log,
    };
    let writer = LogWriter { file: file.map(|file| Arc::new(Mutex::new(file))), log: log.clone() };
    let file_layer = fmt::layer().json().with_writer(writer).with_filter(EnvFilter::try_new(level)?);
    tracing_subscriber::registry().with(terminal).with(file_layer).init();
    match (open_error, &config.file) {
        (Some(error), Some(path)) => {
            tracing::warn!("logging.file is {}, which cannot be written: {error}", path.as_str());
        }
        (Some(error), None) => tracing::warn!("cannot write the log file: {error}"),
        (None, _) => {}
    }
    Ok(log)
}

fn bounds(config: &Logging) -> RotationLimits {
    RotationLimits {
        bytes: config.max_file_bytes.unwrap_or(DEFAULT_MAX_BYTES).max(1),
        files: config.max_files.unwrap_or(DEFAULT_FILES).min(999),
        age: Duration::from_secs(config.max_age_days.unwrap_or(DEFAULT_DAYS).saturating_mul(24 * 60 * 60)),
    }
}

/// Writes each event, sanitized, to the in-memory log and the file.
#[derive(Clone)]
struct LogWriter {
    file: Option<Arc<Mutex<LogFile>>>,
    log: Log,
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for LogWriter {
    /// Writes one event: each call has a complete one.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = line::clean(&String::from_utf8_lossy(bytes), &self.log.masks);
        writeln!(self.log.buffer, "{line}")?;
        if let Some(file) = &self.file {
            file.lock().unwrap_or_else(PoisonError::into_inner).add(&line)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes masked log lines to stderr.
#[derive(Clone)]
struct MaskedStderr(Masks);

impl<'a> MakeWriter<'a> for MaskedStderr {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for MaskedStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        io::stderr().write_all(self.0.mask(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homard_settings::Config;

    #[test]
    fn log_files_are_rotated_by_the_config() {
        let text = "{logging: {maxFileBytes: 100, maxFiles: 2, maxAgeDays: 3}}";
        let bounds = bounds(&Config::parse(text).unwrap().logging);
        assert_eq!((bounds.bytes, bounds.files, bounds.age), (100, 2, Duration::from_secs(3 * 86_400)));
    }
}
