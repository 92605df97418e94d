//! Rows of the checklist that use a client's TUI.

use std::{process::Command, thread, time::Duration};

use anyhow::{Result, ensure};

use super::{
    client::ClientHome,
    client::ProtocolVersion,
    model_rule::{PACED, PACED_WORDS, SLOW},
    rows::RowContext,
    screen::Screen,
};
use crate::{gateway::TOKEN, shell};

/// Time limit for starting a TUI; the newer one loads slowly.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for anything else.
const STEP_TIMEOUT: Duration = Duration::from_secs(45);

/// Number of hand-overs that a TUI sees.
const HANDOVERS: usize = 3;

impl RowContext<'_> {
    /// Starts a TUI and waits until it is ready.
    fn tui(&self, name: &str) -> Result<Screen> {
        let home = ClientHome::without_gateway()?;
        let url = format!("ws://127.0.0.1:{}", self.port);
        let screen = Screen::start(self.client, name, home, &["tui", "--url", &url, "--token", TOKEN])?;
        screen.until("`connected | idle`", START_TIMEOUT, is_idle)?;
        Ok(screen)
    }
}

fn is_idle(text: &str) -> bool {
    text.contains("connected | idle")
}

/// Checks that the TUI starts and shows agent, session and tokens.
pub(super) fn start(context: &RowContext<'_>) -> Result<()> {
    let screen = context.tui("12-tui-start")?;
    let text = screen.until("agent, session and tokens", STEP_TIMEOUT, |text| {
        text.contains("agent main") && text.contains("session ") && text.contains("tokens ")
    })?;
    require_no_errors(&text)
}

pub(super) fn message(context: &RowContext<'_>) -> Result<()> {
    let screen = context.tui("13-tui-message")?;
    screen.enter("row thirteen speaks")?;
    let answer = "I have heard: row thirteen speaks";
    let text = screen.until("the answer", STEP_TIMEOUT, |text| text.contains(answer) && is_idle(text))?;
    let answers = text.matches(answer).count();
    ensure!(answers == 1, "the answer should be shown once, but is shown {answers} times");
    let text = screen.until("the model in the footer", STEP_TIMEOUT, |text| text.contains("fake-1"))?;
    require_no_errors(&text)
}

pub(super) fn abort(context: &RowContext<'_>) -> Result<()> {
    let screen = context.tui("14-tui-abort")?;
    screen.enter(SLOW)?;
    screen.until("the first words of the answer", STEP_TIMEOUT, |text| text.contains("word3"))?;
    screen.keys(&["Escape"])?;
    let text = screen.until("that the run was aborted", STEP_TIMEOUT, |text| {
        text.contains("run aborted") || text.contains("connected | aborted")
    })?;
    require_no_errors(&text)?;
    // A TUI that is still busy cannot send.
    screen.enter("after the abort")?;
    require_no_errors(
        &screen.until("the next answer", STEP_TIMEOUT, |text| text.contains("I have heard: after the abort"))?,
    )
}

pub(super) fn new(context: &RowContext<'_>) -> Result<()> {
    let screen = context.tui("15-tui-new")?;
    screen.enter("before the new one")?;
    screen
        .until("the answer", STEP_TIMEOUT, |text| text.contains("I have heard: before the new one") && is_idle(text))?;
    screen.enter("/new")?;
    let text = match context.client.protocol {
        ProtocolVersion::Three => {
            screen.until("a reset session", STEP_TIMEOUT, |text| text.contains("tokens ?/") && is_idle(text))?
        }
        ProtocolVersion::Four => screen.until("a session `tui-…`", STEP_TIMEOUT, |text| text.contains("tui-"))?,
    };
    require_no_errors(&text)?;
    screen.enter("in the new one")?;
    screen.until("an answer in the new one", STEP_TIMEOUT, |text| text.contains("I have heard: in the new one"))?;
    Ok(())
}

/// Checks the lists of `/model` and `/sessions`.
pub(super) fn pickers(context: &RowContext<'_>) -> Result<()> {
    let screen = context.tui("16-tui-pickers")?;
    screen.enter("so that there is a session")?;
    screen.until("the answer", STEP_TIMEOUT, |text| text.contains("I have heard: so that") && is_idle(text))?;
    screen.enter("/model")?;
    screen.until("the model in a list", STEP_TIMEOUT, |text| text.contains("fake/fake-1"))?;
    screen.keys(&["Escape"])?;
    // Gives the TUI time to close the list before the next input.
    thread::sleep(Duration::from_millis(500));
    screen.enter("/sessions")?;
    require_no_errors(&screen.until("the session in a list", STEP_TIMEOUT, |text| {
        text.contains("agent:main:") || text.contains("just now")
    })?)
}

/// Replaces the gateway while answers stream: the TUI connects again by itself, and shows each answer, of the run that
/// the new process resumed, completely and once.
pub(super) fn hand_overs(context: &RowContext<'_>) -> Result<()> {
    let screen = context.tui("31-tui-handover")?;
    for number in 1..=HANDOVERS {
        let tag = format!("h{number}x");
        screen.enter(&format!("{PACED} {tag}"))?;
        let first = format!("{tag}3");
        screen.until("the first words of the answer", STEP_TIMEOUT, |text| text.contains(&first))?;
        let mut restart = Command::new(context.binary);
        restart.args(["gateway", "restart", "--wait", "0"]).env_clear().env("HOMARD_STATE_DIR", context.state);
        restart.env("HOMARD_GATEWAY_PORT", context.port.to_string()).env("HOMARD_GATEWAY_TOKEN", TOKEN);
        restart.env("HOME", context.state);
        shell::output(&mut restart)?;
        let last = format!("{tag}{PACED_WORDS}");
        let text = screen.until("the end of the answer", STEP_TIMEOUT, |text| text.contains(&last) && is_idle(text))?;
        let answers = text.matches(&last).count();
        ensure!(answers == 1, "answer {number} should be shown once, but is shown {answers} times");
    }
    Ok(())
}

/// Waits two minutes, and checks that the client is still connected.
pub(super) fn idle(context: &RowContext<'_>, time: Duration) -> Result<()> {
    let screen = context.tui("30-tui-idle")?;
    thread::sleep(time);
    let text = screen.text()?;
    ensure!(is_idle(&text), "after {time:?} the TUI should be connected and idle");
    ensure!(!text.contains("reconnect") && !text.contains("disconnected"), "the TUI should have stayed connected");
    require_no_errors(&text)
}

/// Fails if the screen shows an error.
fn require_no_errors(text: &str) -> Result<()> {
    for bad in ["event gap", "unknown method", "gateway disconnected", "Error:"] {
        let line = text.lines().find(|line| line.contains(bad));
        ensure!(line.is_none(), "the screen shows {:?}", line.unwrap_or_default().trim());
    }
    Ok(())
}
