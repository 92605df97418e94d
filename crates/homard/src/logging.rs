//! Log lines: to stderr, and to a file if the config names one.

use std::{
    fs::{self, File},
    io::{self, IsTerminal},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Mutex,
};

use anyhow::{Context, Result};
use homard_gateway::LogBook;
use tracing_subscriber::{EnvFilter, Layer, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{config::logging::Logging, paths, render};

/// Starts logging, also to the book that is given back, at the level that `HOMARD_LOG` names, or else the config, or else at this one.
pub(crate) fn start(default: &str, config: &Logging) -> Result<LogBook> {
    let asked = paths::text("LOG")?;
    let said = config.level.map_or(default, |level| level.0.0);
    let filter = |text: &str| {
        EnvFilter::try_new(text)
            .context("HOMARD_LOG is not a level (error, warn, info, debug, trace) or a list such as homard=debug,warn")
    };
    // A server of somebody else's that speaks out of turn is no news for the owner.
    let usual = format!("{said},rmcp=error");
    let level = asked.as_deref().unwrap_or(&usual);
    let terminal = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && render::colours_wanted())
        .with_filter(filter(level)?);
    // A file that cannot be written is told below, when there is somebody to tell it to.
    let file = config.file.as_ref().map(|file| {
        let path = paths::expand(Path::new(file.as_str()), paths::home().as_deref());
        (open(&path), path)
    });
    let (to_file, trouble) = match file {
        Some((Ok(file), _)) => {
            (Some(fmt::layer().json().with_writer(Mutex::new(file)).with_filter(filter(level)?)), None)
        }
        Some((Err(error), path)) => (None, Some((error, path))),
        None => (None, None),
    };
    let book = match &config.file {
        Some(file) => LogBook::default().at(file.as_str().to_owned()),
        None => LogBook::default(),
    };
    let pen = book.clone();
    let to_book = fmt::layer().json().with_writer(move || pen.clone()).with_filter(filter(level)?);
    tracing_subscriber::registry().with(terminal).with(to_file).with(to_book).init();
    if let Some((error, path)) = trouble {
        tracing::warn!("logging.file is {}, which cannot be written: {error}", path.display());
    }
    Ok(book)
}

/// Opens a log to add to it. It is for its owner only: a log tells whom one talks to.
fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}
