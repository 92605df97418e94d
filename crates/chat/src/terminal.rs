//! Drives a real terminal: reads keys, draws frames, and carries out effects.

mod files;
mod input;

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use crossterm::{event::EventStream, terminal as raw};
use futures_util::StreamExt;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::{Instant, sleep_until},
};

use crate::{
    link::{Link, LinkEvent},
    screen::{Capabilities, Screen},
    state::{ChatSettings, Effect, Event, State},
    view,
};

/// Minimum time between two frames that no key caused.
const FRAME_INTERVAL: Duration = Duration::from_millis(33);
/// Time in which line breaks after a burst of keys belong to it.
const BURST: Duration = Duration::from_millis(30);
/// Maximum number of events that are processed before a frame.
const MAX_BATCH: usize = 512;
/// Bracketed paste, and keys such as Shift+Enter reported as such where a terminal can.
const ENTER: &str = "\x1b[?2004h\x1b[>1u";
const LEAVE: &str = "\x1b[<1u\x1b[?2004l";

/// Why the chat cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The terminal does not work.
    #[error("the terminal failed")]
    Terminal(#[from] io::Error),
}

/// What the chat needs of the system.
#[derive(Debug)]
pub struct Environment {
    /// What the terminal can show.
    pub capabilities: Capabilities,
    /// File to which inputs are appended.
    pub history_file: Option<PathBuf>,
    /// File with the key of the session that was used last.
    pub session_file: Option<PathBuf>,
    /// Command line of the editor.
    pub editor: String,
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// Directory whose files are completed.
    pub directory: PathBuf,
}

/// How the chat ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatOutcome {
    /// Session that was open.
    pub session: String,
    /// True if it can be continued.
    pub has_messages: bool,
    /// What was typed and not sent.
    pub unsent: Vec<String>,
    /// True if the connection failed for good.
    pub is_failed: bool,
}

/// Restores the terminal, also if the chat panics.
struct RawMode;

impl RawMode {
    fn enter() -> io::Result<Self> {
        raw::enable_raw_mode()?;
        write(ENTER)?;
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Nothing can be done if the terminal is gone.
        write(LEAVE).ok();
        raw::disable_raw_mode().ok();
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Returns the size of the terminal.
pub fn size() -> (u16, u16) {
    raw::size().ok().filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or((80, 24))
}

/// Returns a path with `~` for the home directory.
pub fn short_path(path: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}

/// Runs the chat until the user leaves.
pub async fn run(settings: ChatSettings, environment: Environment, link: Link) -> Result<ChatOutcome, Error> {
    let mut raw_mode = Some(RawMode::enter()?);
    let mut driver = Driver::new(settings, environment, link);
    let outcome = driver.run(&mut raw_mode).await;
    let mut out = String::new();
    driver.screen.draw(&view::last_frame(&mut driver.state), &mut out);
    driver.screen.finish(&mut out);
    let written = write(&out);
    drop(raw_mode);
    outcome?;
    written?;
    Ok(ChatOutcome {
        session: driver.state.session_key().to_owned(),
        has_messages: driver.state.has_messages(),
        unsent: driver.state.unsent(),
        is_failed: driver.is_failed,
    })
}

struct Driver {
    state: State,
    screen: Screen,
    environment: Environment,
    link: Link,
    start: Instant,
    /// Results of work in the background. Unbounded: each follows from a key.
    results: mpsc::UnboundedReceiver<Event>,
    results_sender: mpsc::UnboundedSender<Event>,
    last_burst: Option<Instant>,
    has_quit: bool,
    is_failed: bool,
}

impl Driver {
    fn new(settings: ChatSettings, environment: Environment, link: Link) -> Self {
        let (results_sender, results) = mpsc::unbounded_channel();
        Self {
            screen: Screen::new(environment.capabilities, settings.size.0),
            state: State::new(settings),
            environment,
            link,
            start: Instant::now(),
            results,
            results_sender,
            last_burst: None,
            has_quit: false,
            is_failed: false,
        }
    }

    async fn run(&mut self, raw_mode: &mut Option<RawMode>) -> Result<(), Error> {
        let mut keys = EventStream::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut is_link_open = true;
        let mut drawn_at = self.draw()?;
        let mut draw_at: Option<Instant> = None;
        while !self.has_quit {
            let tick_at = self.state.next_tick().map(|at| self.start + Duration::from_millis(at));
            let wake_at = [draw_at, tick_at].into_iter().flatten().min();
            let mut editor = None;
            tokio::select! {
                biased;
                _ = terminate.recv() => return Ok(()),
                _ = hang_up.recv() => return Ok(()),
                key = keys.next() => {
                    let Some(key) = key else { return Ok(()) };
                    let mut batch = vec![key?];
                    // The stream keeps the waker of its first poll, so it must be the one of this task.
                    while batch.len() < MAX_BATCH {
                        let more = tokio::select! {
                            biased;
                            key = keys.next() => key,
                            () = std::future::ready(()) => break,
                        };
                        let Some(key) = more else { return Ok(()) };
                        batch.push(key?);
                    }
                    let is_in_burst = self.last_burst.is_some_and(|at| at.elapsed() < BURST);
                    let (events, is_burst) = input::coalesce(batch, is_in_burst);
                    if is_burst {
                        self.last_burst = Some(Instant::now());
                    }
                    for event in events {
                        editor = self.process(event)?.or(editor);
                    }
                    draw_at = Some(Instant::now());
                }
                Some(event) = self.results.recv() => {
                    editor = self.process(event)?;
                    draw_at = Some(Instant::now());
                }
                event = self.link.events.recv(), if is_link_open => match event {
                    Some(event) => {
                        self.receive(event)?;
                        for _ in 0..MAX_BATCH {
                            let Ok(event) = self.link.events.try_recv() else { break };
                            self.receive(event)?;
                        }
                        draw_at = draw_at.or(Some(drawn_at + FRAME_INTERVAL));
                    }
                    None => is_link_open = false,
                },
                () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {
                    self.process(Event::Tick)?;
                    draw_at = Some(Instant::now());
                }
            }
            if let Some(text) = editor {
                // The editor owns the terminal while it runs.
                drop(keys);
                *raw_mode = None;
                let edited = self.edit(&text).await;
                *raw_mode = Some(RawMode::enter()?);
                keys = EventStream::new();
                self.screen.redraw();
                self.process(Event::Edited(edited))?;
                draw_at = Some(Instant::now());
            }
            if draw_at.is_some_and(|at| at <= Instant::now()) {
                drawn_at = self.draw()?;
                draw_at = None;
            }
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn draw(&mut self) -> io::Result<Instant> {
        let mut out = String::new();
        self.screen.draw(&view::frame(&mut self.state), &mut out);
        write(&out)?;
        Ok(Instant::now())
    }

    fn receive(&mut self, event: LinkEvent) -> io::Result<()> {
        self.is_failed |= matches!(event, LinkEvent::Failed(_));
        self.process(Event::Link(event))?;
        Ok(())
    }

    /// Updates the state and carries out the effects. Returns the text to edit, if the editor is to be opened.
    fn process(&mut self, event: Event) -> io::Result<Option<String>> {
        if let Event::Resize(columns, _) = event {
            self.screen.resize(columns);
        }
        let mut editor = None;
        for effect in self.state.update(self.now(), event) {
            match effect {
                // Without a receiver the chat is about to end.
                Effect::Call(request) => drop(self.link.requests.send(request)),
                Effect::SaveInput(line) => self.save_input(&line),
                Effect::SaveSession(key) => self.save_session(&key),
                Effect::ListFiles => {
                    let directory = self.environment.directory.clone();
                    self.in_background(move || Event::Files(files::list(&directory)));
                }
                Effect::ReadImage(pasted) => {
                    let (directory, home) = (self.environment.directory.clone(), self.environment.home.clone());
                    self.in_background(move || {
                        let image = files::read_image(&pasted, &directory, home.as_deref());
                        Event::Image { pasted, image }
                    });
                }
                Effect::OpenEditor(text) => editor = Some(text),
                Effect::Redraw => {
                    self.screen.redraw();
                    write("\x1b[2J\x1b[H")?;
                }
                Effect::Bell => write("\x07")?,
                Effect::Quit => self.has_quit = true,
            }
        }
        Ok(editor)
    }

    fn in_background(&self, work: impl FnOnce() -> Event + Send + 'static) {
        let sender = self.results_sender.clone();
        tokio::task::spawn_blocking(move || sender.send(work()).ok());
    }

    /// Appends an input to the history file. The chat works without it.
    fn save_input(&self, line: &str) {
        let Some(path) = &self.environment.history_file else { return };
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path).and_then(|mut file| file.write_all(line.as_bytes())).ok();
    }

    /// Writes the file with the session. Without it, `homard chat -c` finds no session to continue.
    fn save_session(&self, key: &str) {
        if let Some(path) = &self.environment.session_file {
            homard_stdx::file::replace(path, key.as_bytes()).ok();
        }
    }

    /// Edits a text in the external editor.
    async fn edit(&self, text: &str) -> Result<String, String> {
        let failed = |error: io::Error| format!("the editor failed: {error}");
        let file = files::TextFile::create(text).map_err(failed)?;
        // The command line may have arguments.
        let status = tokio::process::Command::new("/bin/sh")
            .args(["-c", &format!("{} \"$1\"", self.environment.editor), "editor"])
            .arg(file.path())
            .stdin(Stdio::inherit())
            .status()
            .await
            .map_err(failed)?;
        if !status.success() {
            return Err(format!("{} ended with {status}; the message is unchanged", self.environment.editor));
        }
        file.read().map_err(failed)
    }
}
