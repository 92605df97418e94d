//! A call of a tool: one line with its arguments, exit code and duration, and the part of its output that matters.

use serde_json::{Value, json};

use super::item::{Detail, ItemLayout, duration};
use crate::{
    highlight::diff_style,
    sanitize,
    spinner::spinner,
    style::{Color, Line, TextStyle, prefixed},
};

/// Lines of output that are shown of a call.
const MAX_OUTPUT_LINES: usize = 5;
/// Lines of a diff that are shown of a call.
const MAX_DIFF_LINES: usize = 40;
/// Lines that the pager shows.
const MAX_FULL_LINES: usize = 2_000;
/// Arguments that identify a call, in order of preference.
const MAIN_ARGUMENTS: [&str; 9] = ["command", "path", "file_path", "pattern", "query", "url", "name", "action", "id"];

/// State of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CallState {
    Running,
    Done {
        is_error: bool,
        ended_at: u64,
    },
    /// Its run ended, and its result is unknown.
    Interrupted,
}

/// A call of a tool.
#[derive(Debug, Clone)]
pub(crate) struct ToolCall {
    /// Id of the call.
    pub(crate) call: String,
    name: String,
    summary: String,
    /// A patch among the arguments.
    patch: Option<String>,
    started_at: u64,
    state: CallState,
    output: String,
    diff: Option<String>,
    outcome: CallOutcome,
    /// True if the user wants to see the output.
    pub(super) is_expanded: bool,
}

/// What a result says beside its output.
#[derive(Debug, Clone, Default)]
struct CallOutcome {
    exit_code: Option<i64>,
    /// Signal, or the reason why it was stopped.
    stopped: Option<String>,
    duration: Option<u64>,
    /// Id of the request for approval that the call waits for.
    approval: Option<String>,
}

impl CallOutcome {
    /// Reads the details of a result. What they do not have stays as it is.
    fn read(&mut self, details: &Value) {
        self.exit_code = details["exitCode"].as_i64().or(self.exit_code);
        self.duration = details["durationMs"].as_u64().or(self.duration);
        self.approval = details["approvalId"].as_str().map(sanitize::one_line).or(self.approval.take());
        let stopped = ["stopped", "signal"].iter().find_map(|name| match &details[name] {
            Value::String(text) => Some(sanitize::one_line(text)),
            Value::Number(number) => Some(format!("signal {number}")),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        });
        self.stopped = stopped.or(self.stopped.take());
    }
}

/// How much of a call is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// One line, and a few of what matters. The key shows more.
    Compact {
        key: &'static str,
    },
    /// As much as fits into this number of rows.
    Expanded(usize),
    Full,
}

impl ToolCall {
    /// A call that has started.
    pub(crate) fn started(call: &str, name: &str, args: &Value, at: u64) -> Self {
        let patch = patch(name, args);
        Self {
            call: call.to_owned(),
            name: sanitize::one_line(name),
            summary: patch.as_deref().map_or_else(|| summary(args), patched_files),
            patch,
            started_at: at,
            state: CallState::Running,
            output: String::new(),
            diff: None,
            outcome: CallOutcome::default(),
            is_expanded: false,
        }
    }

    /// A command that ran after it was allowed, with its output. `error` says how it failed.
    pub(crate) fn approved(command: &str, output: &str, error: Option<&str>) -> Self {
        let mut call = Self::started("", "exec", &json!({"command": command}), 0);
        let exit_code = error.is_none().then_some(0);
        let details = json!({"exitCode": exit_code, "stopped": error});
        call.finish(&json!({"content": [{"type": "text", "text": output}], "details": details}), error.is_some(), 0);
        call
    }

    /// Id of the request for approval that the call waits for.
    pub(crate) fn approval(&self) -> Option<&str> {
        self.outcome.approval.as_deref()
    }

    /// The argument that identifies the call.
    pub(crate) fn summary(&self) -> &str {
        &self.summary
    }

    /// Sets the output so far.
    pub(crate) fn progress(&mut self, partial: &Value) {
        if self.state == CallState::Running {
            self.read_result(partial);
        }
    }

    /// Sets the result. A second one is ignored.
    pub(crate) fn finish(&mut self, result: &Value, is_error: bool, at: u64) {
        if !matches!(self.state, CallState::Done { .. }) {
            self.read_result(result);
            self.state = CallState::Done { is_error, ended_at: at };
        }
    }

    /// The call runs, although it was taken for interrupted.
    pub(crate) fn restart(&mut self, at: u64) {
        if self.state == CallState::Interrupted {
            (self.state, self.started_at) = (CallState::Running, at);
        }
    }

    /// Ends a call whose result is unknown.
    pub(crate) fn interrupt(&mut self) {
        if self.state == CallState::Running {
            self.state = CallState::Interrupted;
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.state != CallState::Running
    }

    /// Name of the tool.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn read_result(&mut self, result: &Value) {
        let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let texts: Vec<_> = blocks.iter().filter_map(block_text).collect();
        if !texts.is_empty() {
            self.output = sanitize::clean_output(&texts.join("\n"));
        }
        let details = &result["details"];
        self.outcome.read(details);
        self.diff = details["diff"].as_str().map(sanitize::clean).or(self.diff.take());
    }

    /// Renders the call.
    pub(super) fn lines(&self, layout: ItemLayout) -> Vec<Line> {
        let ItemLayout { columns, rows, now, detail } = layout;
        let extent = match detail {
            Detail::Full => Extent::Full,
            Detail::Compact | Detail::Last if self.is_expanded => Extent::Expanded(rows),
            Detail::Compact => Extent::Compact { key: "Ctrl+O" },
            Detail::Last => Extent::Compact { key: "Ctrl+T" },
        };
        let mut lines = match extent {
            Extent::Compact { .. } => vec![self.heading(now, &one_line_summary(&self.summary)).truncate(columns)],
            Extent::Expanded(_) | Extent::Full => {
                let mut rest = self.summary.split('\n');
                let first = self.heading(now, rest.next().unwrap_or_default()).wrap(columns);
                let indent = Line::plain("    ");
                let rest = rest.flat_map(|line| Line::plain(line).split(columns.saturating_sub(4).max(1)));
                first.into_iter().chain(prefixed(rest.collect(), &indent, &indent)).collect()
            }
        };
        let extent = match extent {
            Extent::Expanded(rows) => {
                // A long command leaves room for the end of its output.
                lines.truncate((rows / 2).max(1));
                Extent::Expanded(rows.saturating_sub(lines.len()).max(1))
            }
            Extent::Compact { .. } | Extent::Full => extent,
        };
        lines.extend(self.body(columns, extent));
        lines
    }

    fn heading(&self, now: u64, summary: &str) -> Line {
        let (mark, style) = match self.state {
            CallState::Running => (spinner(now.saturating_sub(self.started_at)), TextStyle::of(Color::Cyan)),
            CallState::Done { is_error: false, .. } => ("✓", TextStyle::of(Color::Green)),
            CallState::Done { is_error: true, .. } => ("✗", TextStyle::of(Color::Red)),
            CallState::Interrupted => ("■", TextStyle::of(Color::Yellow)),
        };
        let mut line = Line::of(mark, style).with(" ", TextStyle::PLAIN).with(self.name.clone(), TextStyle::BOLD);
        let facts = self.facts(now);
        if !facts.is_empty() {
            line.push(format!(" ({facts})"), TextStyle::DIM);
        }
        if !summary.is_empty() {
            line.push(format!(" {summary}"), TextStyle::PLAIN);
        }
        line
    }

    /// Exit code, duration, and whether the result is known.
    fn facts(&self, now: u64) -> String {
        let took = match self.state {
            CallState::Running => Some(now.saturating_sub(self.started_at)).filter(|elapsed| *elapsed >= 1_000),
            CallState::Done { ended_at, .. } => {
                // Calls of the history have no times of their own.
                let elapsed = ended_at.saturating_sub(self.started_at);
                self.outcome.duration.or(Some(elapsed).filter(|_| self.started_at > 0))
            }
            CallState::Interrupted => None,
        };
        if self.outcome.approval.is_some() {
            return "needs approval".to_owned();
        }
        let interrupted = (self.state == CallState::Interrupted).then(|| "interrupted".to_owned());
        let exit = self.outcome.exit_code.map(|code| format!("exit {code}"));
        [self.outcome.stopped.clone(), interrupted, exit, took.map(duration)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn body(&self, columns: usize, extent: Extent) -> Vec<Line> {
        let is_failed = matches!(self.state, CallState::Done { is_error: true, .. });
        let columns = columns.saturating_sub(4).max(1);
        let patch = self.diff.as_ref().or(self.patch.as_ref()).filter(|_| !is_failed);
        let lines = match patch {
            Some(patch) => diff_lines(patch, columns, extent),
            None => self.output_lines(columns, extent, is_failed),
        };
        let indent = Line::of("  │ ", TextStyle::DIM);
        prefixed(lines, &indent, &indent)
    }

    fn output_lines(&self, columns: usize, extent: Extent, is_failed: bool) -> Vec<Line> {
        let output = self.output.trim_matches('\n');
        // What a model reads of files is of no interest unless it is asked for.
        let is_command = self.outcome.exit_code.is_some() || self.state == CallState::Running;
        if output.trim().is_empty() {
            let note = Line::of("no output", TextStyle::DIM);
            return if matches!(extent, Extent::Expanded(_)) { vec![note] } else { Vec::new() };
        }
        let style =
            if is_failed && self.outcome.exit_code.is_none() { TextStyle::of(Color::Red) } else { TextStyle::DIM };
        let all: Vec<_> = output.split('\n').collect();
        match extent {
            Extent::Full => {
                let lines = all.iter().take(MAX_FULL_LINES).flat_map(|line| Line::of(*line, style).split(columns));
                lines.collect()
            }
            Extent::Expanded(rows) => {
                let lines: Vec<_> = all.iter().flat_map(|line| Line::of(*line, style).split(columns)).collect();
                if is_command { last_lines(lines, rows, "Ctrl+O") } else { first_lines(lines, rows, "Ctrl+O") }
            }
            Extent::Compact { key } if is_failed || is_command => {
                let hidden = all.len().saturating_sub(MAX_OUTPUT_LINES);
                let note = (hidden > 0).then(|| more(hidden, key));
                let last = all[hidden..].iter().flat_map(|line| match is_failed {
                    true => Line::of(*line, style).wrap(columns),
                    false => vec![Line::of(*line, style).truncate(columns)],
                });
                note.into_iter().chain(last).collect()
            }
            Extent::Compact { .. } => Vec::new(),
        }
    }
}

/// The note about lines that are not shown.
fn more(hidden: usize, key: &str) -> Line {
    Line::of(format!("… {hidden} more lines ({key})"), TextStyle::DIM)
}

/// Shortens lines to a number of rows: their end is kept.
fn last_lines(mut lines: Vec<Line>, rows: usize, key: &str) -> Vec<Line> {
    if lines.len() > rows {
        let hidden = (lines.len() - rows + 1).min(lines.len());
        lines.splice(..hidden, [more(hidden, key)]);
    }
    lines
}

/// Shortens lines to a number of rows: their beginning is kept.
fn first_lines(mut lines: Vec<Line>, rows: usize, key: &str) -> Vec<Line> {
    if lines.len() > rows {
        let shown = rows.saturating_sub(1);
        let note = more(lines.len() - shown, key);
        lines.truncate(shown);
        lines.push(note);
    }
    lines
}

fn diff_lines(patch: &str, columns: usize, extent: Extent) -> Vec<Line> {
    // The first line of the call names the file.
    let all: Vec<_> = patch.trim_end_matches('\n').split('\n').collect();
    let is_header = |line: &&str| line.starts_with("--- ") || line.starts_with("+++ ");
    let start = if extent == Extent::Full { 0 } else { all.iter().take_while(|line| is_header(line)).count() };
    let lines = all[start..].iter().map(|line| Line::of(*line, diff_style(line)).truncate(columns)).collect();
    match extent {
        Extent::Compact { key } => first_lines(lines, MAX_DIFF_LINES + 1, key),
        Extent::Expanded(rows) => first_lines(lines, rows, "Ctrl+O"),
        Extent::Full => first_lines(lines, MAX_FULL_LINES, "Ctrl+O"),
    }
}

fn block_text(block: &Value) -> Option<String> {
    match block["type"].as_str() {
        Some("text") => block["text"].as_str().map(str::to_owned),
        Some("image") => Some("[image]".to_owned()),
        Some(_) | None => None,
    }
}

/// Returns the argument that identifies a call.
fn summary(args: &Value) -> String {
    let main = MAIN_ARGUMENTS.iter().find_map(|name| args[name].as_str());
    match main {
        Some(text) => sanitize::clean(text.trim()),
        None if args.as_object().is_none_or(serde_json::Map::is_empty) => String::new(),
        None => sanitize::one_line(&args.to_string()),
    }
}

fn one_line_summary(summary: &str) -> String {
    match summary.split_once('\n') {
        Some((first, rest)) => format!("{first} … (+{} lines)", rest.split('\n').count()),
        None => summary.to_owned(),
    }
}

/// Returns the files that a patch changes.
fn patched_files(patch: &str) -> String {
    let file = |line: &str| {
        let change = line.strip_prefix("*** ")?;
        let (verb, path) = change.split_once(" File: ")?;
        ["Add", "Update", "Delete"].contains(&verb).then(|| sanitize::one_line(path))
    };
    patch.lines().filter_map(file).collect::<Vec<_>>().join(", ")
}

fn patch(name: &str, args: &Value) -> Option<String> {
    let patch = ["input", "patch"].iter().find_map(|member| args[member].as_str());
    patch.filter(|_| name == "apply_patch").map(sanitize::clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tool: &ToolCall, detail: Detail) -> Vec<String> {
        let layout = ItemLayout { columns: 50, rows: 6, now: 3_000, detail };
        tool.lines(layout).iter().map(Line::text).collect()
    }

    fn output(text: &str, details: &Value) -> Value {
        json!({"content": [{"type": "text", "text": text}], "details": details})
    }

    #[test]
    fn a_command_shows_its_exit_code_duration_and_the_end_of_its_output() {
        let mut tool = ToolCall::started("c", "exec", &json!({"command": "make\nmake test"}), 1_000);
        assert_eq!(texts(&tool, Detail::Compact), ["⠋ exec (2.0s) make … (+1 lines)"]);
        tool.progress(&output("a\nb", &json!({"status": "running"})));
        assert_eq!(texts(&tool, Detail::Compact), ["⠋ exec (2.0s) make … (+1 lines)", "  │ a", "  │ b"]);
        let all: Vec<_> = (0..7).map(|line| format!("{line}")).collect();
        tool.finish(&output(&all.join("\n"), &json!({"exitCode": 2, "durationMs": 1_234})), true, 4_000);
        let mut expected = vec!["✗ exec (exit 2, 1.2s) make … (+1 lines)", "  │ … 2 more lines (Ctrl+O)"];
        expected.extend(["  │ 2", "  │ 3", "  │ 4", "  │ 5", "  │ 6"]);
        assert_eq!(texts(&tool, Detail::Compact), expected);
        assert_eq!(texts(&tool, Detail::Full).len(), 2 + 7);
        assert_eq!(texts(&tool, Detail::Last)[1], "  │ … 2 more lines (Ctrl+T)");
        tool.is_expanded = true;
        let mut expected = vec!["✗ exec (exit 2, 1.2s) make", "    make test", "  │ … 4 more lines (Ctrl+O)"];
        expected.extend(["  │ 4", "  │ 5", "  │ 6"]);
        assert_eq!(texts(&tool, Detail::Last), expected);
    }

    #[test]
    fn an_edit_shows_its_diff() {
        let mut tool = ToolCall::started("c", "edit", &json!({"path": "a.txt", "oldText": "x"}), 1_000);
        let diff = "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-x\n+y\n";
        tool.finish(&output("Edited a.txt", &json!({"diff": diff})), false, 1_100);
        assert_eq!(texts(&tool, Detail::Compact), ["✓ edit (0.1s) a.txt", "  │ @@ -1 +1 @@", "  │ -x", "  │ +y"]);
    }

    #[test]
    fn what_was_read_is_shown_on_request_only() {
        let mut tool = ToolCall::started("c", "read", &json!({"path": "a.txt"}), 1_000);
        tool.finish(&output("content", &Value::Null), false, 1_100);
        assert_eq!(texts(&tool, Detail::Compact), ["✓ read (0.1s) a.txt"]);
        assert_eq!(texts(&tool, Detail::Full), ["✓ read (0.1s) a.txt", "  │ content"]);
        tool.is_expanded = true;
        assert_eq!(texts(&tool, Detail::Last), ["✓ read (0.1s) a.txt", "  │ content"]);
        let mut failed = ToolCall::started("c", "read", &json!({"path": "b"}), 1_000);
        failed.finish(&output("no such file", &Value::Null), true, 1_100);
        assert_eq!(texts(&failed, Detail::Compact), ["✗ read (0.1s) b", "  │ no such file"]);
    }
}
