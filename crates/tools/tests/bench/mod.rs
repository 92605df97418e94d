//! A workspace for tests of tools, with files beside it that no tool may touch.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "tests may, and each uses a part")]

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use homard_agent::tool::{Lender, Origin, Progress, Tool, ToolCx, ToolResult, Variables};
use homard_proto::{AgentId, CallId, RunId, SessionKey, message::Block};
use homard_tools::{ExecSettings, sandbox::Tier};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Binary for the last step into a sandbox.
pub(crate) const HELPER: &str = env!("CARGO_BIN_EXE_sandbox-exec");

/// Content of the file beside the workspace.
const SECRET: &str = "a secret";

/// True if commands can run in namespaces here. Otherwise reports the test as skipped.
pub(crate) fn has_namespaces(test: &str) -> bool {
    static TIER: OnceLock<Tier> = OnceLock::new();
    let tier = TIER.get_or_init(|| Tier::detect(None, "/usr/local/bin:/usr/bin:/bin"));
    if let Tier::A { .. } = tier {
        return true;
    }
    skip(test, "commands cannot be run in namespaces here (is bubblewrap installed?)");
    false
}

/// True if Node of any version is installed. Otherwise reports the test as skipped.
pub(crate) fn has_node(test: &str) -> bool {
    let has_node = std::process::Command::new("node").arg("--version").output().is_ok_and(|told| told.status.success());
    if !has_node {
        skip(test, "there is no Node");
    }
    has_node
}

/// Reports a test as skipped. `cargo xtask test` collects these lines; written past the capture of the test harness.
pub(crate) fn skip(test: &str, why: &str) {
    std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}

/// A test workspace.
pub(crate) struct Bench {
    outside: TempDir,
    state: TempDir,
    workdir: PathBuf,
    tools: Vec<Arc<dyn Tool>>,
    /// Cancels the calls.
    pub(crate) cancel: CancellationToken,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_env(&[("PATH", "/usr/local/bin:/usr/bin:/bin"), ("TOKEN", SECRET)])
    }

    pub(crate) fn with_env(env: &[(&str, &str)]) -> Self {
        Self::with(env, |_| {})
    }

    /// Creates one with changed exec settings.
    pub(crate) fn with(env: &[(&str, &str)], change: impl FnOnce(&mut ExecSettings)) -> Self {
        Self::below(tempfile::tempdir().unwrap(), env, change)
    }

    /// Creates one in `outside`, beside existing files.
    pub(crate) fn below(outside: TempDir, env: &[(&str, &str)], change: impl FnOnce(&mut ExecSettings)) -> Self {
        let workdir = outside.path().canonicalize().unwrap().join("workspace");
        fs::create_dir(&workdir).unwrap();
        fs::create_dir(outside.path().join("other")).unwrap();
        fs::write(outside.path().join("other/secret.txt"), SECRET).unwrap();
        let env: Vec<_> = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut settings = ExecSettings::from(env);
        settings.helper = Some(HELPER.into());
        // Not in `/tmp`, where commands would see the mount that hides it.
        let state = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        settings.sandbox.state_dir = Some(state.path().to_owned());
        change(&mut settings);
        Self { outside, state, workdir, tools: homard_tools::all_with(settings), cancel: CancellationToken::new() }
    }

    pub(crate) fn workdir(&self) -> &Path {
        &self.workdir
    }

    /// Returns the state directory, unless the test chose another one.
    pub(crate) fn state(&self) -> &Path {
        self.state.path()
    }

    /// Returns the directory beside the workspace.
    pub(crate) fn other(&self) -> PathBuf {
        self.outside.path().join("other")
    }

    /// Returns the directory that contains the workspace.
    pub(crate) fn outside(&self) -> &Path {
        self.outside.path()
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<dyn Tool> {
        self.tools.iter().find(|tool| tool.spec().name == name).expect("a tool of that name").clone()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> ToolResult {
        self.call_from(AgentId::main().main_session(), tool, arguments).await
    }

    /// Calls a tool from another session.
    pub(crate) async fn call_from(&self, session: SessionKey, tool: &str, arguments: Value) -> ToolResult {
        self.tool(tool).call(self.cx(session), arguments).await
    }

    /// Returns the context of a tool call.
    pub(crate) fn cx(&self, session: SessionKey) -> ToolCx {
        ToolCx {
            run: RunId::parse("run").unwrap(),
            session,
            call: CallId::parse("call").unwrap(),
            workdir: self.workdir.clone(),
            sandbox: None,
            cancel: self.cancel.clone(),
            progress: Progress::silent(),
            slot: Lender::default(),
            variables: Variables::default(),
            origin: Origin { principal: "owner".to_owned(), ..Origin::default() },
            hub: None,
        }
    }

    /// Runs `work` while the directory `real`, which contains a file, and a symlink to the outside are swapped
    /// continuously.
    pub(crate) async fn while_swapped(&self, (file, content): (&str, &str), work: impl Future<Output = ()>) {
        let [real, link] = ["real", "link"].map(|name| self.workdir.join(name));
        fs::create_dir(&real).unwrap();
        fs::write(real.join(file), content).unwrap();
        std::os::unix::fs::symlink("../other", &link).unwrap();
        // Dropped even if `work` panics; otherwise the other thread would run forever.
        let going = Arc::new(());
        let watched = Arc::downgrade(&going);
        let swapping = std::thread::spawn(move || {
            while watched.strong_count() > 0 {
                renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        work.await;
        drop(going);
        swapping.join().unwrap();
    }

    pub(crate) fn assert_outside_is_untouched(&self) {
        let names = |path: &Path| {
            let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(self.outside.path()), ["other", "workspace"]);
        assert_eq!(names(&self.other()), ["secret.txt"]);
        assert_eq!(fs::read_to_string(self.other().join("secret.txt")).unwrap(), SECRET);
    }
}

/// Returns the only text of a result, and whether it is an error.
pub(crate) fn said(result: &ToolResult) -> (&str, bool) {
    match result.content.as_slice() {
        [Block::Text(text)] => (&text.text, result.is_error),
        other => panic!("not one text: {other:?}"),
    }
}
