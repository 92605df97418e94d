//! Renders a run for the terminal, whether it runs in this process or in a gateway.

use std::{
    collections::HashMap,
    fmt,
    io::{self, IsTerminal, Write},
    path::Path,
};

use homard_agent::wire::TRUNCATED_FIELD;
use homard_model::error::failure_of;
use homard_proto::event::{AgentEvent, Stream};
use serde_json::{Value, json};

use super::{colours_wanted, duration_ms, ignore_broken_pipe, strip_controls};

/// Maximum length of a line about a tool.
const MAX_TOOL_LINE: usize = 100;
/// Maximum length of a line about a failed tool call.
const MAX_FAILURE_LINE: usize = 240;
/// Maximum length of other lines.
const MAX_LINE: usize = 600;
/// Shown if a run succeeds without a reply.
const NO_REPLY_REMARK: &str = "(the agent chose not to answer)";

/// What is shown while a run is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderOptions {
    /// The reply text, streamed.
    pub text: bool,
    pub tools: ToolLines,
    pub colours: bool,
    /// One JSON event per line, in place of everything else.
    pub json_lines: bool,
    /// The working directory.
    pub directory: bool,
}

/// The tool calls that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolLines {
    None,
    /// Failed calls.
    Failures,
    All,
}

impl RenderOptions {
    /// Returns the defaults for this process's terminal; `tools` overrides the one for tools.
    pub fn for_terminal(tools: Option<bool>) -> Self {
        let stderr = io::stderr().is_terminal();
        let tools = match tools {
            Some(false) => ToolLines::None,
            None if !stderr => ToolLines::Failures,
            Some(true) | None => ToolLines::All,
        };
        let colours = stderr && colours_wanted();
        Self { text: io::stdout().is_terminal(), tools, colours, json_lines: false, directory: stderr }
    }

    /// Shows nothing until the end.
    pub fn nothing() -> Self {
        Self { text: false, tools: ToolLines::None, colours: false, json_lines: false, directory: false }
    }
}

/// Renders one run.
pub struct RunRenderer {
    options: RenderOptions,
    answer: Box<dyn Write + Send>,
    remarks: Box<dyn Write + Send>,
    /// The part of the current assistant message that was shown.
    shown: String,
    /// Earlier assistant messages that were shown.
    earlier: Vec<String>,
    /// True if the cursor is within a line of the reply.
    mid_line: bool,
    /// True if the truncation warning was shown.
    has_warned: bool,
    /// The last remark about a model that does not answer.
    no_response: String,
    /// The arguments of open tool calls, by call id.
    calls: HashMap<String, String>,
}

impl fmt::Debug for RunRenderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunRenderer").field("shows", &self.options).finish_non_exhaustive()
    }
}

impl RunRenderer {
    /// Writes to this process's stdout and stderr.
    pub fn new(options: RenderOptions) -> Self {
        Self::to(options, Box::new(io::stdout()), Box::new(io::stderr()))
    }

    fn to(options: RenderOptions, answer: Box<dyn Write + Send>, remarks: Box<dyn Write + Send>) -> Self {
        let (shown, earlier) = (String::new(), Vec::new());
        Self {
            options,
            answer,
            remarks,
            shown,
            earlier,
            mid_line: false,
            has_warned: false,
            no_response: String::new(),
            calls: HashMap::new(),
        }
    }

    /// Renders the next event of the run.
    pub fn render_event(&mut self, event: &AgentEvent) -> io::Result<()> {
        if self.options.json_lines {
            ignore_broken_pipe(self.json_line(event))?;
        }
        match event.stream {
            Stream::Assistant if self.options.text => {
                let field = |name: &str| event.data.get(name).and_then(Value::as_str).unwrap_or_default();
                ignore_broken_pipe(self.stream_text(field("text"), field("delta")))
            }
            Stream::Tool if self.options.tools != ToolLines::None => self.tool(&event.data),
            Stream::Lifecycle => self.model_failure(&event.data),
            Stream::Compaction => self.truncated(&event.data[TRUNCATED_FIELD]),
            Stream::Thinking | Stream::Assistant | Stream::Tool | Stream::Other(_) => Ok(()),
        }
    }

    /// Warns once that the message did not fit, with the sizes that the run reports; does nothing without sizes.
    pub fn truncated(&mut self, input: &Value) -> io::Result<()> {
        let size = |name: &str| input.get(name).and_then(Value::as_u64);
        let Some((original, kept)) = size("originalTokens").zip(size("keptTokens")) else { return Ok(()) };
        if std::mem::replace(&mut self.has_warned, true) {
            return Ok(());
        }
        self.line(
            &format!(
                "the message does not fit into the context window: of about {original} tokens the model receives about {kept}, \
                 the beginning and the end; --strict rejects the message instead"
            ),
            MAX_LINE,
        )
    }

    /// Prints the payloads that were not streamed. An empty reply is reported on stderr, so that programs do not take
    /// the report for the reply.
    pub fn finish(&mut self, payloads: &[Value]) -> io::Result<()> {
        if payloads.is_empty() && self.shown.is_empty() {
            self.remark(NO_REPLY_REMARK)?;
        }
        ignore_broken_pipe(self.payloads(payloads))
    }

    /// Names the directory in which the run works.
    pub fn working_in(&mut self, directory: &Path) -> io::Result<()> {
        match self.options.directory {
            true => self.line(&format!("(working in {})", directory.display()), MAX_LINE),
            false => Ok(()),
        }
    }

    /// Prints a note about the run to stderr.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        self.remark(text)
    }

    /// Ends the current line of the reply.
    pub fn break_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.mid_line) {
            ignore_broken_pipe(writeln!(self.answer))?;
        }
        Ok(())
    }

    fn stream_text(&mut self, text: &str, delta: &str) -> io::Result<()> {
        // The first delta of a message equals its whole text.
        if text.len() == delta.len() || !text.starts_with(&self.shown) {
            self.break_line()?;
            self.earlier.push(std::mem::take(&mut self.shown));
        }
        let new = strip_controls(&text[self.shown.len()..]);
        text.clone_into(&mut self.shown);
        self.mid_line = if new.is_empty() { self.mid_line } else { !new.ends_with('\n') };
        write!(self.answer, "{new}")?;
        self.answer.flush()
    }

    fn json_line(&mut self, event: &AgentEvent) -> io::Result<()> {
        let line = json!({
            "type": "event", "runId": event.run_id, "sessionKey": event.session_key, "stream": event.stream,
            "seq": event.seq, "ts": event.ts, "data": event.data,
        });
        writeln!(self.answer, "{line}")?;
        self.answer.flush()
    }

    fn tool(&mut self, data: &Value) -> io::Result<()> {
        let field = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
        match field("phase") {
            "start" => {
                let details = data.get("args").map(tool_arguments).unwrap_or_default();
                let line = format!("· {} {details}", field("name"));
                self.calls.insert(field("toolCallId").to_owned(), details);
                match self.options.tools {
                    ToolLines::All => self.remark(&line),
                    ToolLines::None | ToolLines::Failures => Ok(()),
                }
            }
            "result" => {
                let call = self.calls.remove(field("toolCallId")).unwrap_or_default();
                let Some(failure) = tool_failure(data) else { return Ok(()) };
                let call: String = call.chars().take(MAX_TOOL_LINE).collect();
                let call = format!("{} {call}", field("name"));
                self.line(&format!("✗ {} {failure}", call.trim_end()), MAX_FAILURE_LINE)
            }
            _ => Ok(()),
        }
    }

    /// Shows retries and failovers, even if nothing else is shown: they explain a long wait.
    fn model_failure(&mut self, data: &Value) -> io::Result<()> {
        let field = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
        match field("phase") {
            "retry" => {
                let number = |name: &str| data.get(name).and_then(Value::as_u64).unwrap_or_default();
                let wait = duration_ms(number("afterMs").div_ceil(1000) * 1000);
                let failure = failure_of(field("model"), field("error"));
                let attempts = match (number("attempt"), number("maxAttempts")) {
                    (0, _) | (_, 0) => String::new(),
                    (attempt, max_attempts) => format!(" (attempt {attempt} of at most {max_attempts})"),
                };
                self.line(&format!("✗ model {failure}; retrying in {wait}{attempts}"), MAX_LINE)
            }
            "fallback_step" => {
                let failure = failure_of(field("model"), field("error"));
                self.line(&format!("✗ model {failure} ({}); trying the next model", field("reason")), MAX_LINE)
            }
            // Each of many requests to a slow model would repeat it.
            "no_response" if self.no_response != field("message") => {
                field("message").clone_into(&mut self.no_response);
                self.line(&format!("(model {}: {})", field("model"), field("message")), MAX_LINE)
            }
            _ => Ok(()),
        }
    }

    fn remark(&mut self, text: &str) -> io::Result<()> {
        self.line(text, MAX_TOOL_LINE)
    }

    /// Writes a line to stderr, with a maximum length.
    fn line(&mut self, text: &str, max_chars: usize) -> io::Result<()> {
        self.break_line()?;
        let line: String = text.chars().take(max_chars).collect();
        let line = strip_controls(&line.replace(['\n', '\t'], " "));
        let (dim, plain) = if self.options.colours { ("\u{1b}[2m", "\u{1b}[0m") } else { ("", "") };
        // Remarks are optional: a closed stderr must not end the run.
        writeln!(self.remarks, "{dim}{}{plain}", line.trim_end()).and_then(|()| self.remarks.flush()).ok();
        Ok(())
    }

    fn payloads(&mut self, payloads: &[Value]) -> io::Result<()> {
        let shown = self.shown.trim_end().to_owned();
        for payload in payloads {
            let text = payload.get("text").and_then(Value::as_str).unwrap_or_default().trim_end();
            let is_shown = text == shown || self.earlier.iter().any(|earlier| earlier.trim_end() == text);
            // A footer, or the part of the last message that a broken connection left unshown.
            let rest =
                text.strip_prefix(&self.shown).or_else(|| text.strip_prefix(&shown)).filter(|_| !shown.is_empty());
            match rest {
                _ if text.is_empty() || is_shown => {}
                Some(rest) => {
                    writeln!(self.answer, "{}", strip_controls(rest))?;
                    self.mid_line = false;
                }
                None => {
                    self.break_line()?;
                    let text = if self.options.text { strip_controls(text) } else { text.to_owned() };
                    writeln!(self.answer, "{text}")?;
                }
            }
            let single = payload.get("mediaUrl").and_then(Value::as_str);
            let several = payload.get("mediaUrls").and_then(Value::as_array).into_iter().flatten();
            for url in several.clone().filter_map(Value::as_str).chain(single.filter(|_| several.count() == 0)) {
                self.break_line()?;
                writeln!(self.answer, "MEDIA:{url}")?;
            }
        }
        self.break_line()?;
        self.answer.flush()
    }
}

/// Returns how a tool call failed: its exit code and the first line of the error. Returns `None` if it succeeded.
fn tool_failure(data: &Value) -> Option<String> {
    let details = &data["result"]["details"];
    let code = details["exitCode"].as_i64().filter(|code| *code != 0);
    if data["isError"] != Value::Bool(true) && code.is_none() {
        return None;
    }
    let output = details["aggregated"].as_str().filter(|output| !output.trim().is_empty());
    let content = data["result"]["content"].as_array().and_then(|blocks| blocks.first()?["text"].as_str());
    let first_line = output.or(content).and_then(|text| text.lines().map(str::trim).find(|line| !line.is_empty()));
    let how = match (code, details["signal"].as_i64()) {
        (Some(code), _) => format!("failed (exit code {code})"),
        (None, Some(signal)) => format!("failed (signal {signal})"),
        (None, None) => "failed".to_owned(),
    };
    Some(first_line.map_or_else(|| how.clone(), |line| format!("{how}: {line}")))
}

/// Summarizes the arguments of a tool call.
pub fn tool_arguments(args: &Value) -> String {
    let main_argument = ["command", "path", "file_path"].iter().find_map(|name| args.get(name).and_then(Value::as_str));
    main_argument.map_or_else(|| args.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use homard_proto::Extra;
    use serde_json::json;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn rendered(options: RenderOptions, steps: &[(Stream, Value)], payloads: &[Value]) -> (String, String) {
        let (answer, remarks) = (Page::default(), Page::default());
        let mut renderer = RunRenderer::to(options, Box::new(answer.clone()), Box::new(remarks.clone()));
        for (stream, data) in steps {
            let event = AgentEvent {
                run_id: "r".to_owned(),
                stream: stream.clone(),
                data: data.clone(),
                session_key: None,
                session_id: None,
                agent_id: None,
                seq: None,
                ts: 0,
                extra: Extra::new(),
            };
            renderer.render_event(&event).unwrap();
        }
        renderer.finish(payloads).unwrap();
        (answer.text(), remarks.text())
    }

    fn steps() -> Vec<(Stream, Value)> {
        vec![
            (Stream::Lifecycle, json!({"phase": "start"})),
            (Stream::Assistant, json!({"text": "I ", "delta": "I "})),
            (Stream::Assistant, json!({"text": "I look\u{1b}[2J", "delta": "look\u{1b}[2J"})),
            (Stream::Tool, json!({"phase": "start", "name": "exec", "toolCallId": "c", "args": {"command": "ls\n-l"}})),
            (
                Stream::Tool,
                json!({
                    "phase": "result", "name": "exec", "toolCallId": "c", "isError": true,
                    "result": {
                        "content": [{"type": "text", "text": "x"}],
                        "details": {"exitCode": 2, "aggregated": "\nls: no such file\u{1b}[2J\nmore"},
                    },
                }),
            ),
            (Stream::Assistant, json!({"text": "I lookéd", "delta": "I lookéd"})),
        ]
    }

    fn payload() -> Vec<Value> {
        vec![json!({"text": "I lookéd \n", "mediaUrl": "file:///a.png"})]
    }

    #[test]
    fn a_terminal_shows_streamed_text_once() {
        let options = RenderOptions { text: true, tools: ToolLines::All, colours: true, ..RenderOptions::nothing() };
        let (answer, remarks) = rendered(options, &steps(), &payload());
        assert_eq!(answer, "I look[2J\nI lookéd\nMEDIA:file:///a.png\n");
        assert_eq!(
            remarks,
            "\u{1b}[2m· exec ls -l\u{1b}[0m\n\u{1b}[2m✗ exec ls -l failed (exit code 2): ls: no such file[2J\u{1b}[0m\n"
        );
    }

    #[test]
    fn shown_messages_are_not_repeated_and_a_truncated_one_is_completed() {
        let options = RenderOptions { text: true, ..RenderOptions::nothing() };
        let assistant = |text: &str, delta: &str| (Stream::Assistant, json!({"text": text, "delta": delta}));
        let steps = [assistant("Looking.", "Looking."), assistant("Two fi", "Two fi")];
        let payloads = [json!({"text": "Looking."}), json!({"text": "Two files."})];
        assert_eq!(rendered(options, &steps, &payloads).0, "Looking.\nTwo files.\n");
    }

    #[test]
    fn failed_tool_calls_are_shown_without_a_terminal() {
        let options = RenderOptions { tools: ToolLines::Failures, ..RenderOptions::nothing() };
        let (_, remarks) = rendered(options, &steps(), &payload());
        assert_eq!(remarks, "✗ exec ls -l failed (exit code 2): ls: no such file[2J\n");
    }

    #[test]
    fn a_json_line_is_an_event() {
        let options = RenderOptions { json_lines: true, ..RenderOptions::nothing() };
        let (lines, _) = rendered(options, &steps()[..1], &[]);
        let expected = json!({
            "type": "event", "runId": "r", "sessionKey": null, "stream": "lifecycle", "seq": null, "ts": 0,
            "data": {"phase": "start"},
        });
        assert_eq!(serde_json::from_str::<Value>(lines.trim_end()).unwrap(), expected);
    }

    #[test]
    fn a_pipe_gets_the_payloads_at_the_end() {
        let (answer, remarks) = rendered(RenderOptions::nothing(), &steps(), &payload());
        assert_eq!((answer.as_str(), remarks.as_str()), ("I lookéd\nMEDIA:file:///a.png\n", ""));
    }

    #[test]
    fn a_footer_is_shown_below_streamed_text() {
        let options = RenderOptions { text: true, ..RenderOptions::nothing() };
        let streamed = [(Stream::Assistant, json!({"text": "Hello.", "delta": "Hello."}))];
        let payload = json!({"text": "Hello.\n\nUsage: 3 in / 1 out"});
        assert_eq!(rendered(options, &streamed, std::slice::from_ref(&payload)).0, "Hello.\n\nUsage: 3 in / 1 out\n");
        let ends_its_line = [(Stream::Assistant, json!({"text": "Hello.\n", "delta": "Hello.\n"}))];
        assert_eq!(rendered(options, &ends_its_line, &[payload]).0, "Hello.\n\nUsage: 3 in / 1 out\n");
    }

    #[test]
    fn a_truncated_message_is_reported_once_on_stderr() {
        let input = json!({"originalTokens": 900, "keptTokens": 300, "originalChars": 4_000, "keptChars": 1_200});
        let event = json!({"phase": "end", "completed": true, "inputTruncated": input});
        let steps = [(Stream::Compaction, event.clone()), (Stream::Compaction, event)];
        let (answer, remarks) = rendered(RenderOptions::nothing(), &steps, &payload());
        assert_eq!(answer, "I lookéd\nMEDIA:file:///a.png\n");
        let line = "the message does not fit into the context window: of about 900 tokens the model receives about 300, the \
                    beginning and the end; --strict rejects the message instead\n";
        assert_eq!(remarks, line);
    }

    #[test]
    fn retries_and_fallbacks_are_reported_without_a_terminal() {
        let why = "p (models.example.com): HTTP 503: busy";
        let retry =
            json!({"phase": "retry", "model": "p/m", "attempt": 2, "maxAttempts": 5, "afterMs": 3_400, "error": why});
        let next = json!({"phase": "fallback_step", "model": "p/m", "reason": "overloaded", "error": why});
        let (_, remarks) =
            rendered(RenderOptions::nothing(), &[(Stream::Lifecycle, retry), (Stream::Lifecycle, next)], &payload());
        let expected = "✗ model p/m (models.example.com): HTTP 503: busy; retrying in 4s (attempt 2 of at most 5)\n\
                        ✗ model p/m (models.example.com): HTTP 503: busy (overloaded); trying the next model\n";
        assert_eq!(remarks, expected);
    }

    #[test]
    fn a_model_that_does_not_answer_is_reported_once() {
        let silent = |url: &str| {
            let why = format!("POST {url} (openai-completions) has not answered for 4 s");
            (Stream::Lifecycle, json!({"phase": "no_response", "model": "p/m", "message": why}))
        };
        let steps = [silent("http://a"), silent("http://a"), silent("http://b")];
        let (_, remarks) = rendered(RenderOptions::nothing(), &steps, &payload());
        let expected = "(model p/m: POST http://a (openai-completions) has not answered for 4 s)\n\
                        (model p/m: POST http://b (openai-completions) has not answered for 4 s)\n";
        assert_eq!(remarks, expected);
    }

    #[test]
    fn an_empty_reply_is_reported_on_stderr() {
        let expected = (String::new(), format!("{NO_REPLY_REMARK}\n"));
        assert_eq!(rendered(RenderOptions::nothing(), &[], &[]), expected);
    }
}
