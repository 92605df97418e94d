//! A chat with a terminal emulator for its screen, and a gateway that answers as the test says.
#![expect(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "a test")]

use std::{num::NonZeroU16, time::Duration};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use homard_chat::{
    input_history::InputHistory,
    link::{LinkEvent, Place, RpcError, RpcRequest},
    screen::{Capabilities, Screen},
    state::{ChatSettings, Effect, Event, IdSource, State},
    view,
};
use serde_json::{Value, json};

/// Session of the tests.
pub(crate) const SESSION: &str = "agent:main:chat-1";
/// Lines of scrollback that the emulator keeps.
const SCROLLBACK: usize = 20_000;

/// A terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
    pub(crate) capabilities: Capabilities,
}

impl Terminal {
    pub(crate) const WIDE: Self = Self {
        columns: 80,
        rows: 24,
        capabilities: Capabilities { has_colors: true, has_unicode: true, reflows: false },
    };

    pub(crate) const fn sized(columns: u16, rows: u16) -> Self {
        Self { columns, rows, ..Self::WIDE }
    }
}

pub(crate) struct Chat {
    pub(crate) state: State,
    screen: Screen,
    emulator: vt100::Parser,
    now: u64,
    /// Requests without a response.
    pub(crate) calls: Vec<RpcRequest>,
    pub(crate) effects: Vec<Effect>,
    /// Sequence number of the last event of the run.
    seq: u64,
    /// Uptime that the gateway reports, as the time of its start.
    started_at: i64,
    pub(crate) bytes: usize,
}

impl Chat {
    pub(crate) fn new(terminal: Terminal) -> Self {
        let mut count = 0;
        let ids = IdSource::new(move || {
            count += 1;
            format!("run-{count}")
        });
        let history = InputHistory::parse("\"what is a monad?\"\n\"run the tests\\nand fix them\"\n");
        let settings = ChatSettings {
            session: SESSION.to_owned(),
            history,
            ids,
            size: (terminal.columns, terminal.rows),
            directory: Some("~/project".to_owned()),
            working_directory: Some("/home/me/project".to_owned()),
            sandbox: Some("sandbox".to_owned()),
        };
        let mut chat = Self {
            state: State::new(settings),
            screen: Screen::new(terminal.capabilities, terminal.columns),
            emulator: vt100::Parser::new(nonzero(terminal.rows), nonzero(terminal.columns), SCROLLBACK),
            now: 0,
            calls: Vec::new(),
            effects: Vec::new(),
            seq: 0,
            started_at: -60_000,
            bytes: 0,
        };
        // The shell before the chat.
        chat.emulator.process(b"$ homard\r\n");
        chat.draw();
        chat
    }

    /// A chat that is connected to a gateway without messages.
    pub(crate) fn connected(terminal: Terminal) -> Self {
        let mut chat = Self::new(terminal);
        chat.connect();
        chat.answer_all();
        chat
    }

    pub(crate) fn connect(&mut self) {
        self.calls.clear();
        let uptime = self.now.cast_signed() - self.started_at;
        let hello = json!({"type": "hello-ok", "protocol": 4, "snapshot": {"uptimeMs": uptime}});
        self.link(LinkEvent::Connected { hello, place: Place::Gateway });
    }

    /// The gateway was killed.
    pub(crate) fn lose(&mut self) {
        self.calls.clear();
        let why = "closed by the gateway".to_owned();
        self.link(LinkEvent::Lost { why, retry_in: Duration::from_secs(2) });
    }

    /// Another process serves from now on.
    pub(crate) fn restart_gateway(&mut self) {
        self.started_at = self.now.cast_signed();
    }

    pub(crate) fn update(&mut self, event: Event) {
        if let Event::Resize(columns, rows) = event {
            self.screen.resize(columns);
            self.emulator.screen_mut().set_size(nonzero(rows), nonzero(columns));
        }
        for effect in self.state.update(self.now, event) {
            match effect {
                Effect::Call(request) => self.calls.push(request),
                Effect::Redraw => {
                    self.screen.redraw();
                    self.emulator.process(b"\x1b[2J\x1b[H");
                }
                other @ (Effect::SaveInput(_)
                | Effect::SaveSession(_)
                | Effect::ListFiles
                | Effect::ReadImage(_)
                | Effect::OpenEditor(_)
                | Effect::Bell
                | Effect::Quit) => self.effects.push(other),
            }
        }
        self.draw();
    }

    fn draw(&mut self) {
        let mut out = String::new();
        self.screen.draw(&view::frame(&mut self.state), &mut out);
        self.bytes += out.len();
        self.emulator.process(out.as_bytes());
    }

    pub(crate) fn leave(&mut self) {
        let mut out = String::new();
        self.screen.draw(&view::last_frame(&mut self.state), &mut out);
        self.screen.finish(&mut out);
        self.emulator.process(out.as_bytes());
        self.emulator.process(b"$ ");
    }

    pub(crate) fn link(&mut self, event: LinkEvent) {
        self.update(Event::Link(event));
    }

    pub(crate) fn event(&mut self, name: &str, payload: Value) {
        self.link(LinkEvent::Event { name: name.to_owned(), payload });
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now += ms;
        self.update(Event::Tick);
    }

    pub(crate) fn key(&mut self, code: KeyCode) {
        self.update(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    pub(crate) fn ctrl(&mut self, char: char) {
        self.update(Event::Key(KeyEvent::new(KeyCode::Char(char), KeyModifiers::CONTROL)));
    }

    pub(crate) fn typed(&mut self, text: &str) {
        for char in text.chars() {
            self.key(KeyCode::Char(char));
        }
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.typed(text);
        self.key(KeyCode::Enter);
    }

    pub(crate) fn paste(&mut self, text: &str) {
        self.update(Event::Paste(text.to_owned()));
    }

    /// Answers the oldest request of a method. Returns its parameters.
    pub(crate) fn answer(&mut self, method: &str, payload: Value) -> Value {
        self.respond(method, Ok(payload))
    }

    pub(crate) fn refuse(&mut self, method: &str, message: &str) -> Value {
        self.respond(method, Err(RpcError { code: "INVALID_REQUEST".to_owned(), message: message.to_owned() }))
    }

    fn respond(&mut self, method: &str, result: Result<Value, RpcError>) -> Value {
        let methods: Vec<_> = self.calls.iter().map(|call| call.method).collect();
        let index = methods.iter().position(|called| *called == method);
        let index = index.unwrap_or_else(|| panic!("no request of {method} among {methods:?}"));
        let request = self.calls.remove(index);
        self.link(LinkEvent::Response { id: request.id, result });
        request.params
    }

    /// Answers everything as a gateway without messages does.
    pub(crate) fn answer_all(&mut self) {
        while let Some(method) = self.calls.first().map(|call| call.method) {
            let payload = match method {
                "chat.history" => json!({
                    "messages": [], "hasMore": false, "defaults": {"modelProvider": "acme", "model": "large"},
                }),
                "chat.resume" => json!({"runs": []}),
                "exec.approval.list" => json!([]),
                "commands.list" => json!({"commands": [
                    {"textAliases": ["/compact"], "description": "Summarize the conversation"},
                    {"textAliases": ["/queue"], "description": "Set what happens to messages during a run"},
                ]}),
                "sessions.describe" => json!({"session": {
                    "key": self.state.session_key(), "modelProvider": "acme", "model": "large", "totalTokens": 24_000,
                    "contextTokens": 200_000,
                }}),
                "sessions.usage.timeseries" => json!({"points": [{"cumulativeCost": 0.0312}]}),
                "chat.abort" => json!({"ok": true, "aborted": true}),
                _ => json!({"ok": true}),
            };
            self.answer(method, payload);
        }
    }

    /// Sends a message and starts its run.
    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.say(text);
        let params = self.answer("chat.send", json!({"status": "started", "disposition": "started"}));
        let run = params["idempotencyKey"].as_str().unwrap().to_owned();
        self.start(&run);
        run
    }

    pub(crate) fn start(&mut self, run: &str) {
        self.seq = 0;
        self.agent(run, "lifecycle", json!({"phase": "start", "startedAt": 1}));
    }

    pub(crate) fn agent_payload(&mut self, run: &str, stream: &str, data: Value) -> Value {
        self.seq += 1;
        json!({"runId": run, "sessionKey": SESSION, "seq": self.seq, "ts": 1_000, "stream": stream, "data": data})
    }

    pub(crate) fn agent(&mut self, run: &str, stream: &str, data: Value) {
        let payload = self.agent_payload(run, stream, data);
        self.event("agent", payload);
    }

    /// Streams a message in pieces.
    pub(crate) fn stream(&mut self, run: &str, text: &str, piece: usize) {
        self.stream_more(run, "", text, piece);
    }

    /// Streams the rest of a message after what was sent of it.
    pub(crate) fn stream_more(&mut self, run: &str, sent: &str, text: &str, piece: usize) {
        let mut sent = sent.to_owned();
        let chars: Vec<_> = text.chars().collect();
        for piece in chars.chunks(piece) {
            let delta: String = piece.iter().collect();
            sent.push_str(&delta);
            self.now += 10;
            self.agent(run, "assistant", json!({"text": sent, "delta": delta}));
        }
    }

    pub(crate) fn tool(&mut self, run: &str, call: &str, name: &str, args: Value) {
        self.agent(run, "tool", json!({"phase": "start", "toolCallId": call, "name": name, "args": args}));
    }

    pub(crate) fn result(&mut self, run: &str, call: &str, text: &str, details: Value) {
        let is_error = details["exitCode"].as_i64().is_some_and(|code| code != 0) || details == "error";
        let result = json!({"content": [{"type": "text", "text": text}], "details": details});
        let data =
            json!({"phase": "result", "toolCallId": call, "name": "exec", "isError": is_error, "result": result});
        self.agent(run, "tool", data);
    }

    pub(crate) fn finish(&mut self, run: &str, text: &str) {
        let mut payload = json!({"runId": run, "sessionKey": SESSION, "seq": self.seq, "state": "final"});
        if !text.is_empty() {
            payload["message"] = json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
        }
        self.event("chat", payload);
        self.answer_all();
    }

    fn size(&self) -> (u16, u16) {
        let (rows, columns) = self.emulator.screen().size();
        (rows.get(), columns.get())
    }

    /// Returns the visible rows.
    pub(crate) fn rows(&self) -> Vec<String> {
        let (_, columns) = self.size();
        let mut rows: Vec<_> = self.emulator.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect();
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }

    /// Returns everything that was printed: the scrollback and the screen.
    pub(crate) fn everything(&mut self) -> Vec<String> {
        let (height, columns) = self.size();
        self.emulator.screen_mut().set_scrollback(usize::MAX);
        let mut hidden = self.emulator.screen().scrollback();
        let mut lines = Vec::new();
        while hidden > 0 {
            self.emulator.screen_mut().set_scrollback(hidden);
            let count = hidden.min(usize::from(height));
            lines.extend(self.emulator.screen().rows(0, columns).take(count).map(|row| row.trim_end().to_owned()));
            hidden -= count;
        }
        self.emulator.screen_mut().set_scrollback(0);
        lines.extend(self.rows());
        lines
    }

    /// Returns the screen as text: the scrollback if there is any, the rows, and where the cursor is.
    pub(crate) fn picture(&mut self) -> String {
        let rows = self.rows();
        let everything = self.everything();
        let scrollback = &everything[..everything.len() - rows.len()];
        let mut lines = scrollback.to_vec();
        if !scrollback.is_empty() {
            lines.push("~~~~~~~~ above: scrollback".to_owned());
        }
        lines.extend(rows);
        let (row, column) = self.emulator.screen().cursor_position();
        let cursor = if self.emulator.screen().hide_cursor() { "hidden".to_owned() } else { format!("{row},{column}") };
        lines.push(format!("~~~~~~~~ cursor: {cursor}"));
        lines.join("\n")
    }

    /// Returns the styled pieces of the screen.
    pub(crate) fn styles(&self) -> String {
        let screen = self.emulator.screen();
        let (rows, columns) = self.size();
        let mut lines = Vec::new();
        for row in 0..rows {
            let mut pieces: Vec<(String, String)> = Vec::new();
            for column in 0..columns {
                let Some(cell) = screen.cell(row, column) else { continue };
                let color = match cell.fgcolor() {
                    vt100::Color::Default => String::new(),
                    vt100::Color::Idx(index) => {
                        let names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan"];
                        names[usize::from(index)].to_owned()
                    }
                    vt100::Color::Rgb(..) => "rgb".to_owned(),
                };
                let flags = [
                    (cell.bold(), "bold"),
                    (cell.dim(), "dim"),
                    (cell.italic(), "italic"),
                    (cell.underline(), "underline"),
                    (cell.inverse(), "reverse"),
                ];
                let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name.to_owned());
                let style: Vec<_> = flags.chain([color]).filter(|part| !part.is_empty()).collect();
                let (style, text) = (style.join(" "), cell.contents());
                match pieces.last_mut() {
                    Some((last, contents)) if *last == style => contents.push_str(text),
                    Some(_) | None => pieces.push((style, text.to_owned())),
                }
            }
            let styled = pieces.into_iter().filter(|(style, text)| !style.is_empty() && !text.trim().is_empty());
            lines.extend(styled.map(|(style, text)| format!("{row}: {style}: {}", text.trim_end())));
        }
        lines.join("\n")
    }
}

fn nonzero(size: u16) -> NonZeroU16 {
    NonZeroU16::new(size).unwrap()
}
