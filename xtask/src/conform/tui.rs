//! Rows of the checklist that use a client's TUI.

use std::{thread, time::Duration};

use anyhow::{Result, ensure};

use super::{client::Home, client::Protocol, puppet::SLOW, rows::Scene, screen::Screen};
use crate::gateway::TOKEN;

/// Time limit for starting a TUI; the newer one loads slowly.
const START: Duration = Duration::from_secs(120);
/// Time limit for anything else.
const SOON: Duration = Duration::from_secs(45);

impl Scene<'_> {
    /// Starts a TUI and waits until it is ready.
    fn tui(&self, name: &str) -> Result<Screen> {
        let home = Home::alone()?;
        let url = format!("ws://127.0.0.1:{}", self.port);
        let screen = Screen::start(self.client, name, home, &["tui", "--url", &url, "--token", TOKEN])?;
        screen.until("`connected | idle`", START, is_idle)?;
        Ok(screen)
    }
}

fn is_idle(text: &str) -> bool {
    text.contains("connected | idle")
}

pub(super) fn start(scene: &Scene<'_>) -> Result<()> {
    let screen = scene.tui("12-tui-start")?;
    let text = screen.until("agent, session and tokens", SOON, |text| {
        text.contains("agent main") && text.contains("session ") && text.contains("tokens ")
    })?;
    healthy(&text)
}

pub(super) fn message(scene: &Scene<'_>) -> Result<()> {
    let screen = scene.tui("13-tui-message")?;
    screen.enter("row thirteen speaks")?;
    let answer = "I have heard: row thirteen speaks";
    let text = screen.until("the answer", SOON, |text| text.contains(answer) && is_idle(text))?;
    let answers = text.matches(answer).count();
    ensure!(answers == 1, "the answer should be there once, but is {answers} times");
    let text = screen.until("the model in the footer", SOON, |text| text.contains("fake-1"))?;
    healthy(&text)
}

pub(super) fn abort(scene: &Scene<'_>) -> Result<()> {
    let screen = scene.tui("14-tui-abort")?;
    screen.enter(SLOW)?;
    screen.until("the first words", SOON, |text| text.contains("word3"))?;
    screen.keys(&["Escape"])?;
    let text = screen.until("that the run was aborted", SOON, |text| {
        text.contains("run aborted") || text.contains("connected | aborted")
    })?;
    healthy(&text)?;
    // A TUI that is still busy cannot send.
    screen.enter("after the abort")?;
    healthy(&screen.until("the next answer", SOON, |text| text.contains("I have heard: after the abort"))?)
}

pub(super) fn new(scene: &Scene<'_>) -> Result<()> {
    let screen = scene.tui("15-tui-new")?;
    screen.enter("before the new one")?;
    screen.until("the answer", SOON, |text| text.contains("I have heard: before the new one") && is_idle(text))?;
    screen.enter("/new")?;
    let text = match scene.client.protocol {
        Protocol::Three => screen.until("a reset session", SOON, |text| text.contains("tokens ?/") && is_idle(text))?,
        Protocol::Four => screen.until("a session `tui-…`", SOON, |text| text.contains("tui-"))?,
    };
    healthy(&text)?;
    screen.enter("in the new one")?;
    screen.until("an answer in the new one", SOON, |text| text.contains("I have heard: in the new one"))?;
    Ok(())
}

pub(super) fn pickers(scene: &Scene<'_>) -> Result<()> {
    let screen = scene.tui("16-tui-pickers")?;
    screen.enter("so that there is a session")?;
    screen.until("the answer", SOON, |text| text.contains("I have heard: so that") && is_idle(text))?;
    screen.enter("/model")?;
    screen.until("the model in a list", SOON, |text| text.contains("fake/fake-1"))?;
    screen.keys(&["Escape"])?;
    thread::sleep(Duration::from_millis(500));
    screen.enter("/sessions")?;
    healthy(
        &screen
            .until("the session in a list", SOON, |text| text.contains("agent:main:") || text.contains("just now"))?,
    )
}

/// Waits two minutes, and checks that the client is still connected.
pub(super) fn idle(scene: &Scene<'_>, time: Duration) -> Result<()> {
    let screen = scene.tui("30-tui-idle")?;
    thread::sleep(time);
    let text = screen.text()?;
    ensure!(is_idle(&text), "after {time:?} it should be connected and idle");
    ensure!(!text.contains("reconnect") && !text.contains("disconnected"), "it should have stayed connected");
    healthy(&text)
}

/// Fails if the screen shows an error.
fn healthy(text: &str) -> Result<()> {
    for bad in ["event gap", "unknown method", "gateway disconnected", "Error:"] {
        let line = text.lines().find(|line| line.contains(bad));
        ensure!(line.is_none(), "the screen says {:?}", line.unwrap_or_default().trim());
    }
    Ok(())
}
