//! Writes `docs/benchmarks.md`: results, method, machine, date and diagrams. The text below the marker at its end is
//! written by hand and kept.

use std::{fmt::Write as _, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    MeasuredCell, PeerResults,
    line::{LINES, TableLine},
    plot::{self, LineChart},
};
use crate::{bench::report::BenchTarget, shell};

/// Marker; what follows it is written by hand.
const MARK: &str = "<!-- What follows is written by hand, and kept. -->";
const OURS: &str = "Homard";
const FLOOR: &str = "floor";
const NEWEST: &str = "OpenClaw 2026.9.6";

/// Comparisons with the newest OpenClaw: the line, and the factor by which Homard must be better.
const REQUIRED_FACTORS: [(&str, f64); 4] =
    [("start", 100.0), ("idle-rss", 20.0), ("cpu", 100.0), ("overhead-50", 50.0)];
/// Lines whose value for Homard must be at most ten times that of the minimal gateway.
const NEAR_BASELINE: [&str; 7] = ["start", "idle-rss", "rss-after", "overhead-50", "cpu", "stream", "once"];
/// Lines with a diagram.
const DIAGRAM_LINES: [&str; 6] = ["start", "idle-rss", "overhead-50", "cpu", "stream", "once"];

/// Formats a value with three significant digits.
pub(in crate::bench) fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size < 0.1 => 3,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && digit.is_ascii_digit() && (whole.len() - index) % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

fn format_target(line: &TableLine) -> String {
    match line.target {
        BenchTarget::AtMost(max) => format!("≤ {max}"),
        BenchTarget::AtLeast(min) => format!("≥ {min}"),
        BenchTarget::None => String::new(),
    }
}

/// Formats the table, and why some cells are empty.
pub(super) fn table(results: &PeerResults) -> String {
    let mut text = String::from("| | | ");
    let mut notes: Vec<&str> = Vec::new();
    for peer in &results.peers {
        text += &format!("{peer} | ");
        if peer == FLOOR {
            text += "ZeroClaw 0.8.4 (quoted) | ";
        }
    }
    let columns = results.peers.len() + 4 + usize::from(results.peers.iter().any(|peer| peer == FLOOR));
    text += &format!("target | |\n|{}\n", "---|".repeat(columns));
    for line in LINES.iter().filter(|line| results.cells.contains_key(line.key)) {
        let mut row = format!("| {} | {} |", line.title, line.unit);
        for peer in &results.peers {
            match results.get(line.key, peer) {
                Some(MeasuredCell::Value(value)) if peer == OURS => row += &format!(" **{}** |", number(*value)),
                Some(MeasuredCell::Value(value)) => row += &format!(" {} |", number(*value)),
                Some(MeasuredCell::Missing(why)) => row += &format!(" – [{}] |", note(&mut notes, why)),
                None => row += " |",
            }
            if peer == FLOOR {
                row += &format!(" {} |", line.zeroclaw.map_or("–", |(quoted, _)| quoted));
            }
        }
        let verdict = match results.value(line.key, OURS).and_then(|value| line.target.is_met(value)) {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "",
        };
        text += &format!("{row} {} | {verdict} |\n", format_target(line));
    }
    for (index, why) in notes.iter().enumerate() {
        text += &format!("\n[{}] {}\n", index + 1, why.lines().next().unwrap_or_default());
    }
    text
}

/// Returns the number of the footnote with this text, which is added if it is missing.
fn note<'a>(notes: &mut Vec<&'a str>, why: &'a str) -> usize {
    if let Some(index) = notes.iter().position(|note| *note == why) {
        return index + 1;
    }
    notes.push(why);
    notes.len()
}

/// Writes the page, the diagrams and the values.
pub(super) fn write(results: &PeerResults, elapsed: Duration) -> Result<()> {
    let docs = shell::root().join("docs");
    let folder = docs.join("benchmarks");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("figures.json"), format!("{:#}\n", results.to_json()))?;
    let path = docs.join("benchmarks.md");
    let before = fs::read_to_string(&path).unwrap_or_default();
    let by_hand = before.split_once(MARK).map_or("\n", |(_, by_hand)| by_hand);
    let page = format!(
        "{}{}\n{}\n{}\n{}\n{}\n{MARK}{by_hand}",
        head(elapsed)?,
        table(results),
        comparisons(results),
        diagrams(results, &folder)?,
        soak(&folder),
        METHOD,
    );
    fs::write(&path, page)?;
    println!("written: docs/benchmarks.md");
    Ok(())
}

fn head(elapsed: Duration) -> Result<String> {
    let output_of = |command: &str, args: &[&str]| -> Result<String> {
        Ok(String::from_utf8_lossy(&shell::output(Command::new(command).args(args))?).trim().to_owned())
    };
    let field_of = |file: &str, name: &str| -> Option<String> {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let kilobytes = field_of("/proc/meminfo", "MemTotal").and_then(|size| size.split(' ').next()?.parse::<u64>().ok());
    let cores = std::thread::available_parallelism()?;
    Ok(format!(
        "# Benchmarks\n\n\
         Resource usage and speed of a running gateway: Homard compared with two versions of OpenClaw and with a \
         *floor*, a gateway that only\nforwards. This page is generated by `cargo xtask bench --peers`; the figures \
         alone are in [figures.json](benchmarks/figures.json).\n\n\
         - Date: {}. Duration: {:.0} minutes.\n\
         - Machine: {} ({cores} cores), {} GB of memory, Linux {}.\n\
         - Homard {}, built with the profile `dist`.\n\n",
        output_of("date", &["-u", "+%Y-%m-%d"])?,
        elapsed.as_secs_f64() / 60.0,
        field_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "an unknown processor".to_owned()),
        kilobytes.map_or_else(|| "?".to_owned(), |kilobytes| (kilobytes >> 20).to_string()),
        output_of("uname", &["-r"])?,
        env!("CARGO_PKG_VERSION"),
    ))
}

/// Compares with the newest OpenClaw, the minimal gateway, and the published values of ZeroClaw.
fn comparisons(results: &PeerResults) -> String {
    let mut text = String::from("## Comparisons\n\n");
    let title = |key: &str| LINES.iter().find(|line| line.key == key).map_or("", |line| line.title);
    let verdict = |is_met: bool| if is_met { "met" } else { "**missed**" };
    text += "| compared with OpenClaw 2026.9.6 | times lower | target | |\n|---|---|---|---|\n";
    for (key, min) in REQUIRED_FACTORS {
        if let (Some(ours), Some(theirs)) = (results.value(key, OURS), results.value(key, NEWEST)) {
            let times = theirs / ours;
            let (factor, met) = (number(times), verdict(times >= min));
            text += &format!("| {} | {factor} | ≥ {min} | {met} |\n", title(key));
        }
    }
    text += "\n| compared with the floor | times higher | target | |\n|---|---|---|---|\n";
    for key in NEAR_BASELINE {
        if let (Some(ours), Some(theirs)) = (results.value(key, OURS), results.value(key, FLOOR)) {
            let times = ours / theirs;
            text += &format!("| {} | {} | ≤ 10 | {} |\n", title(key), number(times), verdict(times <= 10.0));
        }
    }
    text += "\n| compared with ZeroClaw, as quoted | Homard | ZeroClaw | |\n|---|---|---|---|\n";
    for line in LINES {
        let (Some((quoted, value)), Some(ours)) = (line.zeroclaw, results.value(line.key, OURS)) else { continue };
        let is_ahead = match line.target {
            BenchTarget::AtLeast(_) => ours > value,
            BenchTarget::AtMost(_) | BenchTarget::None => ours < value,
        };
        let (value_text, unit) = (number(ours), line.unit);
        text += &format!(
            "| {} | {value_text} {unit} | {quoted} {unit} | {} |\n",
            line.title,
            if is_ahead { "ahead" } else { "**behind**" }
        );
    }
    text
}

/// Draws the diagrams and returns their links.
fn diagrams(results: &PeerResults, folder: &Path) -> Result<String> {
    let mut text = String::from("## Charts\n\n");
    for key in DIAGRAM_LINES {
        let Some(line) = LINES.iter().find(|line| line.key == key) else { continue };
        let values = results.peers.iter().filter_map(|peer| Some((peer.clone(), results.value(key, peer)?)));
        let values: Vec<(String, f64)> = values.collect();
        fs::write(folder.join(format!("{key}.svg")), plot::bars(line.title, line.unit, &values))?;
        writeln!(text, "![{}](benchmarks/{key}.svg)\n", line.title)?;
    }
    let loads = [(1.0, "load-1"), (10.0, "load-10"), (100.0, "load-100"), (1e3, "load-1000")];
    let rates = |peer: &String| {
        let points = loads.iter().filter_map(|(sessions, key)| Some((*sessions, results.value(key, peer)?)));
        (peer.clone(), points.filter(|(_, rate)| *rate > 0.0).collect())
    };
    let lines = results.peers.iter().map(rates).collect();
    let chart = LineChart { title: "Runs a second", axes: ["sessions at once", "/s"], is_logarithmic: true, lines };
    fs::write(folder.join("load.svg"), chart.to_svg())?;
    text += "![Runs a second, by sessions at once](benchmarks/load.svg)\n";
    Ok(text)
}

/// Returns the section about the last soak test, if there was one.
fn soak(folder: &Path) -> String {
    let stored =
        fs::read_to_string(folder.join("soak.json")).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let sentence = stored.as_ref().and_then(|stored| stored["sentence"].as_str());
    let Some(sentence) = sentence else { return String::new() };
    format!("## Soak\n\n{sentence}\n\n![Memory during the soak](benchmarks/soak.svg)\n")
}

/// Replaces the section about the soak test in the page; adds it if there is none.
pub(in crate::bench) fn replace_soak() -> Result<()> {
    let docs = shell::root().join("docs");
    let path = docs.join("benchmarks.md");
    let Ok(page) = fs::read_to_string(&path) else { return Ok(()) };
    let (above, method) = page.split_once("## Method").context("docs/benchmarks.md has no method")?;
    let above = above.split_once("## Soak").map_or(above, |(above, _)| above).trim_end();
    fs::write(&path, format!("{above}\n\n{}\n## Method{method}", soak(&docs.join("benchmarks"))))?;
    Ok(())
}

const METHOD: &str = "## Method

One program is the load generator and the model server for all gateways. The model server implements OpenAI chat completions on
loopback and answers at full speed: a plain run is a stream of 20 chunks, written at once. All gateways are configured to use
this model server and are otherwise as installed. Homard and the floor are called with protocol 4, OpenClaw 2026.2.9 with
protocol 3 and 2026.9.6 with protocol 4, all with the method `agent`. A process is measured with all of its child processes.

- **install**: the binary; for OpenClaw what npm installs, without Node.
- **cold start**: from the start of the process to an accepted handshake, in a home directory that was used before; median of 15, for
  OpenClaw of 3. **Memory, idle**: ten seconds later.
- **overhead of a run**: from the request to the last response, minus the same stream read directly from the model server,
  alternating, at the same percentile; warm, in ten sessions, up to 1,000 runs, for slow gateways as many as fit in 15 s. The files
  are in memory, so that this is the cost *without the commits* to disk; the rows *with the commits* are measured with the files on
  the disk, and the single sync is an append of 1 KB and `fdatasync` on that disk. **Processor time** is that of the runs with files
  in memory.
- **runs a second**: for 12 s each of the sessions executes one run after the other, on the disk; a session gets 20 turns, then a new
  one replaces it. Each number of sessions has a fresh gateway.
- **memory after load**: two seconds after at least 10,000 runs, ten at once, for slow gateways as many as fit in a minute. Here, too, a
  session gets 20 turns, then a new one replaces it.
- **4,000-chunk stream**: processor time of the gateway, files in memory.
- **50 messages**: sent at once to one session; the model takes 20 ms for each. The time until the last reply; the order is checked.
- **history**: a transcript of 5,000 messages of 1 KB that all go to the model. The additional time of a warm turn compared to a new
  session, minus the additional time that the model server needs to read it.
- **fan-out**: a stream of two seconds that many sockets follow; processor time per delivered frame.
- **writes**: calls of the `write` family on files below the home directory, as recorded by `strace`.
- **one question**: `homard agent --local`, `openclaw agent --local`: the whole process, including the model.
- **idle session**: memory of 4,000 additional sessions, each half a minute after one run. **Idle socket**: memory of 2,000
  additional sockets, for OpenClaw 200.

The floor is [a gateway of 170 lines](../xtask/examples/floor.rs): a WebSocket in, the model's stream out, no auth, tools,
history or durability. The quoted figures of ZeroClaw were measured on another day on a machine of the same kind.

<!-- test: skip: half an hour of work, and for developers -->
```sh
cargo xtask bench --peers
cargo xtask bench --peers --row load
cargo xtask bench --peers --row runs --peer homard
cargo xtask bench --soak 30
```
";
