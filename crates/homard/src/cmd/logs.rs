//! `homard logs`: shows the gateway's log; from the gateway if one answers, else from its file.

use std::{
    fs::{self, File},
    io::{self, IsTerminal, Read, Seek, SeekFrom},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result};
use homard_client::{ConnectResult, GatewayClient};
use homard_logging::rotated_path;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::query::CommandContext;
use crate::render;

/// Polling interval with `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The levels, the most severe first.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// Arguments of `homard logs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard logs
  homard logs --follow --level warn
  homard logs -n 1000 --json")]
pub(super) struct Args {
    /// Keep printing new lines until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Number of lines
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=5000))]
    limit: u16,
    /// Minimum level: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "trace", value_parser = LEVELS)]
    level: String,
    /// Print one JSON object per line
    #[arg(long)]
    pub(super) json: bool,
}

/// A log line, from either source.
#[derive(Debug, PartialEq, Eq)]
struct LogLine {
    time: String,
    level: String,
    subsystem: String,
    message: String,
}

/// Shows the newest lines, and then follows if requested.
pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = CommandContext::load()?;
    match GatewayClient::connect(&setup.target, &["operator.read"], &[]).await? {
        ConnectResult::Gateway(client) => from_gateway(args, client).await,
        ConnectResult::NotRunning if setup.target.is_own => {
            from_file(args, &homard_logging::log_file(&setup.loaded.config.logging, &setup.paths)).await
        }
        ConnectResult::NotRunning => Err(setup.not_running().into()),
    }
}

/// Reads from a gateway.
async fn from_gateway(args: &Args, mut client: Box<GatewayClient>) -> Result<()> {
    // More than requested, because some are filtered out by level.
    let mut answer = client.call("logs.tail", json!({"limit": 5000, "maxBytes": 1_000_000})).await?;
    let lines = |answer: &Value| -> Vec<LogLine> {
        let lines = answer["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
        lines.iter().filter_map(Value::as_str).map(LogLine::read).filter(|line| line.is_wanted(&args.level)).collect()
    };
    let newest = lines(&answer);
    show(args, &newest[newest.len().saturating_sub(usize::from(args.limit))..])?;
    if !args.follow {
        return Ok(());
    }
    loop {
        sleep(POLL_INTERVAL).await;
        answer =
            client.call("logs.tail", json!({"cursor": answer["cursor"], "limit": 5000, "maxBytes": 1_000_000})).await?;
        if answer["reset"] == true || answer["truncated"] == true {
            render::remark("some lines were skipped: too many were written at once");
        }
        show(args, &lines(&answer))?;
    }
}

/// Reads from the log file.
async fn from_file(args: &Args, path: &Path) -> Result<()> {
    let (mut offset, mut found) = (0_u64, Vec::new());
    // Oldest rotated files first.
    for times in (0..10).rev() {
        let path = if times == 0 { path.to_owned() } else { rotated_path(path, times) };
        let complete = complete_lines(read(&path, 0)?);
        offset = complete.len() as u64;
        found.extend(parse(&complete, &args.level));
    }
    if found.is_empty() && !args.follow {
        render::remark(&format!("no log lines in {}, and no gateway is running", path.display()));
    }
    show(args, &found[found.len().saturating_sub(usize::from(args.limit))..])?;
    if !args.follow {
        return Ok(());
    }
    loop {
        sleep(POLL_INTERVAL).await;
        if fs::metadata(path).map_or(0, |found| found.len()) < offset {
            // The file was rotated.
            offset = 0;
        }
        let complete = complete_lines(read(path, offset)?);
        offset += complete.len() as u64;
        show(args, &parse(&complete, &args.level))?;
    }
}

/// Returns the newest lines of a log file, without colours; empty if there is none.
pub(super) fn newest(path: &Path, count: usize) -> Result<Vec<String>> {
    let bytes = read(path, 0)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().rev().take(count).map(|line| LogLine::read(line).text(false)).collect();
    Ok(lines.into_iter().rev().collect())
}

/// Reads a file from an offset; empty if there is none.
fn read(path: &Path, from: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// Removes an incomplete last line, which is read again when it is complete.
fn complete_lines(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1));
    bytes
}

/// Parses the lines that have at least this level.
fn parse(bytes: &[u8], level: &str) -> Vec<LogLine> {
    String::from_utf8_lossy(bytes).lines().map(LogLine::read).filter(|line| line.is_wanted(level)).collect()
}

fn show(args: &Args, lines: &[LogLine]) -> Result<()> {
    let colours = io::stdout().is_terminal() && render::colours_wanted();
    for line in lines {
        render::print(&if args.json { line.document().to_string() } else { line.text(colours) })?;
    }
    Ok(())
}

impl LogLine {
    /// Parses a line of the in-memory log or of the file.
    fn read(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        if value.get("fields").is_none() {
            let message = if value.is_object() { field("message") } else { text.to_owned() };
            return Self { time: field("time"), level: field("level"), subsystem: field("subsystem"), message };
        }
        let fields = value["fields"].as_object().into_iter().flatten().filter(|(name, _)| *name != "message");
        let extra_fields: String = fields.map(|(name, value)| format!(" {name}={value}")).collect();
        let message = format!("{}{extra_fields}", value["fields"]["message"].as_str().unwrap_or_default());
        Self { time: field("timestamp"), level: field("level").to_lowercase(), subsystem: field("target"), message }
    }

    fn is_wanted(&self, level: &str) -> bool {
        let severity = |level: &str| LEVELS.iter().position(|known| *known == level);
        // Lines without a level are always shown.
        severity(&self.level).is_none_or(|line_level| severity(level).is_none_or(|max_level| line_level <= max_level))
    }

    fn document(&self) -> Value {
        let Self { time, level, subsystem, message } = self;
        json!({"time": time, "level": level, "subsystem": subsystem, "message": message})
    }

    fn text(&self, colours: bool) -> String {
        let Self { time, level, subsystem, message } = self;
        let colour = match level.as_str() {
            "error" => "31",
            "warn" => "33",
            "info" => "32",
            _ => "2",
        };
        let level = format!("{level:5}");
        let level = if colours { format!("\u{1b}[{colour}m{level}\u{1b}[0m") } else { level };
        format!(
            "{} {level} {} {}",
            render::strip_controls(time),
            render::strip_controls(subsystem),
            render::strip_controls(message).replace('\n', " ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_lines_and_file_lines_parse_alike() {
        let rpc_line = r#"{"0":"gone port=5","time":"T","level":"warn","subsystem":"homard","message":"gone port=5"}"#;
        let file = r#"{"timestamp":"T","level":"WARN","fields":{"message":"gone","port":5},"target":"homard"}"#;
        assert_eq!(LogLine::read(rpc_line), LogLine::read(file));
        assert_eq!(LogLine::read(file).text(false), "T warn  homard gone port=5");
        assert_eq!(LogLine::read("no json").message, "no json");
    }

    #[test]
    fn a_line_is_read_once_it_is_complete_whatever_bytes_it_contains() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, b"one\n\xff\xfe\ntw").unwrap();
        let complete = complete_lines(read(&path, 0).unwrap());
        assert_eq!(complete, b"one\n\xff\xfe\n");
        fs::write(&path, b"one\n\xff\xfe\ntwo\n").unwrap();
        let rest = complete_lines(read(&path, complete.len() as u64).unwrap());
        assert_eq!(parse(&rest, "trace"), [LogLine::read("two")]);
        assert_eq!(read(&folder.path().join("none"), 0).unwrap(), b"");
    }

    #[test]
    fn lines_below_the_level_are_hidden() {
        let is_shown = |line_level: &str, max_level: &str| {
            LogLine {
                time: String::new(),
                level: line_level.to_owned(),
                subsystem: String::new(),
                message: String::new(),
            }
            .is_wanted(max_level)
        };
        assert_eq!(["error", "warn", "info"].map(|line_level| is_shown(line_level, "warn")), [true, true, false]);
        assert!(is_shown("", "error"));
    }
}
