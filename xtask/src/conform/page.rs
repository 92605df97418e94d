//! Rows of the checklist that use a Control UI, in a headless Chromium.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::process;

use super::{client::ProtocolVersion, install, rows::RowContext};
use crate::{gateway::TOKEN, shell};

/// The script that controls the browser.
const SCRIPT: &str = include_str!("page.mjs");

/// Time limit of a row, besides the time that it is meant to wait.
const ROW_TIMEOUT: Duration = Duration::from_secs(240);

/// Locations of the browser on Debian and other systems.
const BROWSERS: [&str; 3] = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/// The browser automation.
#[derive(Debug)]
pub(super) struct BrowserAutomation {
    script: PathBuf,
    chromium: PathBuf,
}

impl BrowserAutomation {
    /// Installs it below `folder`, unless that was done before.
    pub(super) fn install(folder: &Path) -> Result<Self> {
        let home = folder.join("page");
        install::npm(&home, &json!({"private": true, "dependencies": {"playwright-core": "1.65.0"}}))?;
        let script = home.join("page.mjs");
        fs::write(&script, SCRIPT)?;
        Ok(Self { script, chromium: chromium()? })
    }

    /// Executes one step in a page, in a browser of its own.
    fn run_step(&self, context: &RowContext<'_>, step: &str, name: &str, time: Duration) -> Result<()> {
        let generation = match context.client.protocol {
            ProtocolVersion::Three => 3,
            ProtocolVersion::Four => 4,
        };
        let params = json!({
            "step": step, "generation": generation, "url": format!("http://127.0.0.1:{}", context.port), "token": TOKEN,
            "chromium": self.chromium, "name": name, "folder": context.client.logs, "record": context.record,
            "seconds": time.as_secs(),
        });
        let mut command = Command::new(context.node);
        command.arg(&self.script).arg(params.to_string());
        let output = tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            let mut command = process::Command::from(command);
            let output = tokio::time::timeout(ROW_TIMEOUT + time, command.kill_on_drop(true).output()).await;
            output
                .with_context(|| format!("the script did not exit within {:?}", ROW_TIMEOUT + time))?
                .context("cannot start Node")
        })?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let last = stdout.lines().last().unwrap_or_default();
        let Ok(result) = serde_json::from_str::<Value>(last) else {
            bail!("the script failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        };
        ensure!(result["ok"] == true, "{}", result["why"].as_str().unwrap_or("no reason reported"));
        Ok(())
    }
}

/// Returns the path of Chromium; installs the Debian package if it is missing.
fn chromium() -> Result<PathBuf> {
    let found = || BROWSERS.iter().map(PathBuf::from).find(|path| path.is_file());
    if let Some(path) = found() {
        return Ok(path);
    }
    println!("installing chromium (once) …");
    shell::run(Command::new("apt-get").args(["install", "-y", "chromium"]))
        .context("the Control UI checks need Chromium; install it as /usr/bin/chromium")?;
    found().context("Chromium is missing after its installation")
}

macro_rules! steps {
    ($($function:ident = $step:literal, $name:literal;)*) => { $(
        pub(super) fn $function(context: &RowContext<'_>) -> Result<()> {
            context.browser()?.run_step(context, $step, $name, Duration::ZERO)
        }
    )* };
}

steps! {
    load = "load", "17-page-load";
    chat = "chat", "18-page-chat";
    tool = "tool", "19-page-tool";
    stop = "stop", "20-page-stop";
    pages = "pages", "21-page-places";
    reload = "reload", "22-page-reload";
}

/// Makes turn after turn, and checks that nothing is missed.
pub(super) fn long(context: &RowContext<'_>) -> Result<()> {
    context.browser()?.run_step(context, "long", "29-page-long", context.long)
}

/// Waits, and checks that the page is still connected.
pub(super) fn idle(context: &RowContext<'_>, time: Duration) -> Result<()> {
    context.browser()?.run_step(context, "idle", "30-page-idle", time)
}
