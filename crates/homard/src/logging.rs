//! Log lines: to stderr, to a file that does not grow for ever, and to the book that clients read.

pub(crate) mod file;
mod line;

use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use homard_agent::{Ambient, secrets::Secrets};
use homard_gateway::LogBook;
use tracing_subscriber::{
    EnvFilter, Layer,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use self::file::{Bounds, LogFile};
use crate::{
    config::logging::Logging,
    paths::{self, Paths},
    render,
};

/// How many bytes a log file has, unless the config says otherwise.
const BYTES: u64 = 10 * 1024 * 1024;
/// How many files are kept beside it.
const FILES: usize = 5;
/// How many days they are kept.
const DAYS: u64 = 14;

/// The log of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    /// What clients read.
    pub(crate) book: LogBook,
    /// What is hidden.
    pub(crate) masks: Masks,
}

/// Values that no log line shows. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Masks(Arc<Mutex<Vec<Secrets>>>);

impl Masks {
    /// Hides these from here on, and not those before.
    pub(crate) fn hide_all(&self, secrets: Vec<Secrets>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = secrets;
    }

    fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let secrets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.iter().fold(Cow::Borrowed(text), |text, secrets| match secrets.mask(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(clear) => Cow::Owned(clear),
        })
    }
}

/// Where a gateway logs to, by the config or else in its state directory.
pub(crate) fn place(config: &Logging, paths: &Paths) -> PathBuf {
    match &config.file {
        Some(file) => paths::expand(Path::new(file.as_str()), paths::home().as_deref()),
        None => paths.state.join("logs").join("homard.log"),
    }
}

/// Starts logging, at the level that `HOMARD_LOG` names, or else the config, or else at this one; to a file if there is a place for it.
pub(crate) fn start(default: &str, config: &Logging, file: Option<&Path>) -> Result<Log> {
    let asked = paths::text("LOG")?;
    let said = config.level.map_or(default, |level| level.0.0);
    let filter = |text: &str| {
        EnvFilter::try_new(text)
            .context("HOMARD_LOG is not a level (error, warn, info, debug, trace) or a list such as homard=debug,warn")
    };
    // What goes wrong with an MCP server is logged by its keeper. The library would log the address, which may have a key.
    let usual = format!("{said},rmcp=off");
    let level = asked.as_deref().unwrap_or(&usual);
    let log = Log::default();
    let terminal = fmt::layer()
        .with_writer(Terminal(log.masks.clone()))
        .with_ansi(io::stderr().is_terminal() && render::colours_wanted())
        .with_filter(filter(level)?);
    // A file that cannot be written is told below, when there is somebody to tell it to.
    let opened = file.map(|path| LogFile::open(path, config.bounds(), || Ambient::system().now_ms()));
    let (file, trouble) = match opened {
        Some(Ok(opened)) => (Some(opened), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let log = match (&file, config.file.as_ref()) {
        (Some(_), Some(said)) => Log { book: log.book.at(said.as_str().to_owned()), ..log },
        (Some(opened), None) => Log { book: log.book.at(opened.path().display().to_string()), ..log },
        (None, _) => log,
    };
    let pen = Pen { file: file.map(|file| Arc::new(Mutex::new(file))), log: log.clone() };
    let kept = fmt::layer().json().with_writer(pen).with_filter(filter(level)?);
    tracing_subscriber::registry().with(terminal).with(kept).init();
    match (trouble, &config.file) {
        (Some(error), Some(path)) => {
            tracing::warn!("logging.file is {}, which cannot be written: {error}", path.as_str());
        }
        (Some(error), None) => tracing::warn!("there is no log file, because it cannot be written: {error}"),
        (None, _) => {}
    }
    Ok(log)
}

impl Logging {
    fn bounds(&self) -> Bounds {
        Bounds {
            bytes: self.max_file_bytes.unwrap_or(BYTES).max(1),
            files: self.max_files.unwrap_or(FILES).min(999),
            age: Duration::from_secs(self.max_age_days.unwrap_or(DAYS).saturating_mul(24 * 60 * 60)),
        }
    }
}

/// Writes each event, cleaned, to the book and the file.
#[derive(Clone)]
struct Pen {
    file: Option<Arc<Mutex<LogFile>>>,
    log: Log,
}

impl<'a> MakeWriter<'a> for Pen {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Pen {
    /// An event is written at once and whole.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = line::clean(&String::from_utf8_lossy(bytes), &self.log.masks);
        writeln!(self.log.book, "{line}")?;
        if let Some(file) = &self.file {
            file.lock().unwrap_or_else(PoisonError::into_inner).add(&line)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to stderr what may be seen.
#[derive(Clone)]
struct Terminal(Masks);

impl<'a> MakeWriter<'a> for Terminal {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        io::stderr().write_all(self.0.mask(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
