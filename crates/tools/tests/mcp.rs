//! MCP servers as real processes: listing, calls, lost connections and shutdown.
#![allow(clippy::unwrap_used, reason = "tests may")]

mod fixture;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use homard_agent::tool::{Tool, ToolClass, ToolResult};
use homard_proto::{AgentId, message::Block};
use homard_tools::mcp::{McpServers, ServerSetup, ServerState, ServerStatus, ServerTransport};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use fixture::{ToolFixture, has_node, only_text};

/// Longer than any test takes on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn script(name: &str) -> String {
    format!("{}/tests/mcp/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn stdio(name: &str, mode: Option<&str>) -> ServerSetup {
    let args = std::iter::once(script("server.mjs")).chain(mode.map(str::to_owned)).collect();
    let env = BTreeMap::from([("KEY".to_owned(), "value".to_owned())]);
    let cwd = Some(PathBuf::from("/"));
    ServerSetup::new(name, ServerTransport::Command { command: "node".to_owned(), args, env, cwd })
}

fn servers(setups: Vec<ServerSetup>) -> McpServers {
    let path = std::env::vars().find(|(name, _)| name == "PATH").unwrap();
    McpServers::new(setups, vec![path, ("TOKEN".to_owned(), "a secret".to_owned())])
}

async fn ready(setups: Vec<ServerSetup>) -> McpServers {
    let servers = servers(setups);
    servers.settled(TEST_TIMEOUT).await;
    servers
}

fn names(servers: &McpServers) -> Vec<String> {
    servers.tools().iter().map(|tool| tool.spec().name).collect()
}

fn tool(servers: &McpServers, name: &str) -> Arc<dyn Tool> {
    servers.tools().into_iter().find(|tool| tool.spec().name == name).unwrap()
}

async fn call(servers: &McpServers, name: &str, arguments: Value) -> ToolResult {
    let fixture = ToolFixture::new();
    tool(servers, name).call(fixture.cx(AgentId::main().main_session()), arguments).await
}

/// True if a process is alive and not a zombie.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

#[tokio::test]
async fn the_tools_of_a_server_are_listed_by_its_name() {
    if !has_node("the tools of a server are listed by its name") {
        return;
    }
    let servers = ready(vec![stdio("my fake", None)]).await;
    let tool_names = ["crash", "echo", "environment", "fail", "grow", "hang", "picture", "refuse", "spawn"];
    assert_eq!(names(&servers), tool_names.map(|name| format!("my-fake__{name}")));
    let echo = tool(&servers, "my-fake__echo");
    assert_eq!(echo.class(), ToolClass::Effect);
    assert_eq!(echo.spec().description, "Says it again.");
    assert_eq!(
        echo.spec().parameters,
        json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
    );
    assert_eq!(tool(&servers, "my-fake__fail").spec().description, "fail of the MCP server my fake");
    let status = ServerStatus {
        name: "my fake".to_owned(),
        state: ServerState::Ready,
        server: Some("fake 1".to_owned()),
        tools: tool_names.map(str::to_owned).to_vec(),
        error: None,
        cooldown: None,
    };
    assert_eq!(servers.status(), [status]);
    servers.close().await;
}

#[tokio::test]
async fn only_selected_tools_are_listed() {
    if !has_node("only tools that are wanted are listed") {
        return;
    }
    let mut setup = stdio("a", None);
    setup.include = vec!["e*".to_owned(), "fail".to_owned()];
    setup.exclude = vec!["env*".to_owned()];
    let servers = ready(vec![setup]).await;
    assert_eq!(names(&servers), ["a__echo", "a__fail"]);
    servers.close().await;
}

#[tokio::test]
async fn answers_are_returned_unchanged() {
    if !has_node("answers are told as they are") {
        return;
    }
    let servers = ready(vec![stdio("a", None)]).await;
    let echoed = call(&servers, "a__echo", json!({"text": "grüß 日本\n\u{1f600}"})).await;
    assert_eq!(only_text(&echoed), ("grüß 日本\n\u{1f600}", false));
    assert_eq!(echoed.details, Some(json!({"server": "a", "tool": "echo"})));
    assert_eq!(only_text(&call(&servers, "a__fail", json!({})).await), ("it did not work", true));
    let refused = call(&servers, "a__refuse", json!({})).await;
    assert_eq!(
        only_text(&refused),
        ("call to MCP server a failed: the server returned an error: not like this (-32602)", true)
    );
    let picture = call(&servers, "a__picture", json!({})).await;
    assert!(matches!(picture.content.as_slice(), [Block::Image(image)] if image.mime_type == "image/gif"));
    servers.close().await;
}

#[tokio::test]
async fn a_server_sees_only_the_environment_that_it_is_given() {
    if !has_node("a server sees only the environment that it is given") {
        return;
    }
    let servers = ready(vec![stdio("a", None)]).await;
    let result = call(&servers, "a__environment", json!({})).await;
    assert_eq!(only_text(&result), ("HOMARD_EXEC KEY PATH in /", false));
    servers.close().await;
}

#[tokio::test]
async fn a_server_that_exited_is_restarted_at_the_next_call() {
    if !has_node("a server that went away is started again at the next call") {
        return;
    }
    let servers = ready(vec![stdio("a", None)]).await;
    let crashed = call(&servers, "a__crash", json!({})).await;
    assert_eq!(
        only_text(&crashed),
        (
            "call to MCP server a failed: connection lost: the connection was closed. Last output of the server: out of \
             luck. It is unknown whether the call was carried out",
            true
        )
    );
    assert_eq!(servers.status()[0].state, ServerState::Down);
    assert_eq!(only_text(&call(&servers, "a__echo", json!({"text": "again"})).await), ("again", false));
    assert_eq!(servers.status()[0].state, ServerState::Ready);
    servers.close().await;
}

#[tokio::test]
async fn a_server_that_keeps_exiting_is_put_in_cooldown() {
    if !has_node("a server that goes away again and again is left alone") {
        return;
    }
    let servers = ready(vec![stdio("a", None)]).await;
    for _ in 0..5 {
        call(&servers, "a__crash", json!({})).await;
    }
    let in_cooldown = call(&servers, "a__echo", json!({"text": "x"})).await;
    let (text, is_error) = only_text(&in_cooldown);
    assert!(is_error && text.contains("in cooldown for another"), "{text}");
    assert!(servers.status()[0].cooldown.is_some());
    servers.close().await;
}

#[tokio::test]
async fn a_call_ends_at_its_timeout_and_when_the_run_is_stopped() {
    if !has_node("a call ends at its timeout and when the run is stopped") {
        return;
    }
    let mut setup = stdio("a", None);
    setup.call_timeout = Duration::from_millis(200);
    let servers = ready(vec![setup]).await;
    let timed_out = call(&servers, "a__hang", json!({})).await;
    assert_eq!(
        only_text(&timed_out),
        (
            "call to MCP server a failed: no response within 200ms. It is unknown whether the call was \
             carried out",
            true
        )
    );
    servers.close().await;

    let servers = ready(vec![stdio("a", None)]).await;
    let fixture = ToolFixture::new();
    fixture.cancel.cancel();
    let stopped = tool(&servers, "a__hang").call(fixture.cx(AgentId::main().main_session()), json!({})).await;
    assert_eq!(only_text(&stopped), ("the run was stopped before the MCP server answered", true));
    servers.close().await;
}

#[tokio::test]
async fn an_unresponsive_server_is_restarted() {
    if !has_node("a server that does not answer any more is started again") {
        return;
    }
    let mut setup = stdio("a", None);
    setup.call_timeout = Duration::from_secs(1);
    let servers = ready(vec![setup]).await;
    let states = async || {
        call(&servers, "a__hang", json!({})).await;
        servers.status()[0].state
    };
    assert_eq!(
        [states().await, states().await, states().await],
        [ServerState::Ready, ServerState::Ready, ServerState::Down]
    );
    assert_eq!(only_text(&call(&servers, "a__echo", json!({"text": "again"})).await), ("again", false));
    servers.close().await;
}

#[tokio::test]
async fn closing_leaves_no_server_process() {
    if !has_node("nothing is left of a server") {
        return;
    }
    let servers = ready(vec![stdio("a", None)]).await;
    let spawned = call(&servers, "a__spawn", json!({})).await;
    let pid = only_text(&spawned).0.to_owned();
    assert!(is_alive(&pid), "it is no test without a process");
    servers.close().await;
    assert!(!is_alive(&pid));
    let after_close = call(&servers, "a__echo", json!({"text": "x"})).await;
    assert!(after_close.is_error, "{after_close:?}");
}

#[tokio::test]
async fn a_server_that_is_late_adds_its_tools() {
    if !has_node("a server that is late adds its tools") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    mknodat(CWD, &gate, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let servers = servers(vec![stdio("late", gate.to_str()), stdio("early", None)]);
    let mut watch = servers.watch();
    tokio::time::timeout(TEST_TIMEOUT, watch.changed()).await.unwrap().unwrap();
    assert!(names(&servers).iter().all(|name| name.starts_with("early__")));
    assert_eq!(servers.status()[0].state, ServerState::Starting);
    tokio::task::spawn_blocking(move || {
        fs::OpenOptions::new().write(true).open(gate).unwrap().write_all(b"go").unwrap()
    })
    .await
    .unwrap();
    tokio::time::timeout(TEST_TIMEOUT, watch.changed()).await.unwrap().unwrap();
    assert!(names(&servers).contains(&"late__echo".to_owned()));
    servers.close().await;
}

#[tokio::test]
async fn a_server_that_never_answers_is_ended_at_its_timeout() {
    if !has_node("a server that never answers is ended at its timeout") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    mknodat(CWD, &gate, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let mut setup = stdio("a", gate.to_str());
    setup.connect_timeout = Duration::from_millis(300);
    let servers = ready(vec![setup]).await;
    assert_eq!(servers.status()[0].error.as_deref(), Some("no response within 300ms"));
    servers.close().await;
    let is_server = |pid: &String| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(gate.to_str().unwrap()))
    };
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(processes.filter(is_server).collect::<Vec<_>>(), Vec::<String>::new());
}

#[tokio::test]
async fn a_changed_tool_list_is_published() {
    if !has_node("a list that grows is told") {
        return;
    }
    let servers = ready(vec![stdio("a", None)]).await;
    let mut watch = servers.watch();
    watch.mark_unchanged();
    call(&servers, "a__grow", json!({})).await;
    tokio::time::timeout(TEST_TIMEOUT, watch.changed()).await.unwrap().unwrap();
    assert!(names(&servers).contains(&"a__grown".to_owned()));
    servers.close().await;
}

#[tokio::test]
async fn unusable_servers_are_reported_and_do_not_block_others() {
    if !has_node("servers that cannot be used are told and hold nobody up") {
        return;
    }
    let missing =
        ServerTransport::Command { command: "/no/such".to_owned(), args: vec![], env: BTreeMap::new(), cwd: None };
    let mut mute = stdio("mute", Some("mute"));
    mute.connect_timeout = Duration::from_millis(300);
    let broken = vec![stdio("broken", Some("broken")), ServerSetup::new("missing", missing), mute, stdio("good", None)];
    let servers = ready(broken).await;
    assert!(names(&servers).iter().all(|name| name.starts_with("good__")) && !names(&servers).is_empty());
    let errors: Vec<Option<String>> = servers.status().into_iter().map(|status| status.error).collect();
    assert_eq!(
        errors[1..],
        [
            Some("cannot start or reach the server: /no/such: No such file or directory (os error 2)".to_owned()),
            Some("no response within 300ms".to_owned()),
            None,
        ]
    );
    assert!(errors[0].as_ref().unwrap().ends_with("Last output of the server: no config file"), "{errors:?}");
    servers.close().await;
}

/// An HTTP server, killed on drop.
struct HttpServerProcess(Child, u16);

impl HttpServerProcess {
    fn start() -> Self {
        let mut child =
            Command::new("node").arg(script("http.mjs")).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self(child, port.trim().parse().unwrap())
    }

    fn setup(&self, path: &str, key: &str) -> ServerSetup {
        let headers = BTreeMap::from([("X-Key".to_owned(), key.to_owned())]);
        ServerSetup::new("web", ServerTransport::Http { url: format!("http://127.0.0.1:{}{path}", self.1), headers })
    }
}

impl Drop for HttpServerProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn an_http_server_is_called_like_any_other() {
    if !has_node("a server on the web is called like any other") {
        return;
    }
    let web = HttpServerProcess::start();
    let servers = ready(vec![web.setup("/mcp", "open")]).await;
    assert_eq!(names(&servers), ["web__json", "web__stream", "web__where"]);
    assert_eq!(only_text(&call(&servers, "web__json", json!({"a": 1})).await), ("json said {\"a\":1}", false));
    assert_eq!(only_text(&call(&servers, "web__stream", json!({})).await), ("stream said {}", false));
    servers.close().await;
}

#[tokio::test]
async fn an_http_server_that_refuses_or_redirects_is_down() {
    if !has_node("a server on the web that refuses or sends on is down") {
        return;
    }
    let web = HttpServerProcess::start();
    let servers = ready(vec![web.setup("/mcp", "wrong-key"), web.setup("/moved", "open")]).await;
    let status = servers.status();
    assert!(status.iter().all(|status| status.state == ServerState::Down), "{status:?}");
    let status_text = format!("{status:?}");
    assert!(!status_text.contains("wrong-key"), "{status_text}");
    servers.close().await;
}

#[tokio::test]
async fn a_new_setup_for_one_server_does_not_affect_the_others() {
    if !has_node("another setup for one server leaves the others alone") {
        return;
    }
    let servers = ready(vec![stdio("a", None), stdio("b", None), stdio("c", None)]).await;
    let [a, b, c] = ["a__spawn", "b__spawn", "c__spawn"].map(|name| (tool(&servers, name), name));
    let mut pids = Vec::new();
    for (_, name) in [&a, &b, &c] {
        pids.push(only_text(&call(&servers, name, json!({})).await).0.to_owned());
    }
    let mut other = stdio("b", None);
    other.include = vec!["echo".to_owned()];
    servers.set(vec![stdio("a", None), other]);
    servers.settled(TEST_TIMEOUT).await;
    let other_names: Vec<_> = names(&servers).into_iter().filter(|name| !name.starts_with("a__")).collect();
    assert_eq!(other_names, ["b__echo"]);
    assert_eq!(only_text(&call(&servers, "a__echo", json!({"text": "still here"})).await), ("still here", false));
    // Their child processes are killed with them.
    let removed = async {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while is_alive(&pids[1]) || is_alive(&pids[2]) {
            tick.tick().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, removed).await.unwrap();
    assert!(is_alive(&pids[0]), "a stays as it was");
    let late_call = b.0.call(ToolFixture::new().cx(AgentId::main().main_session()), json!({})).await;
    let expected = "call to MCP server b failed: cannot start or reach the server: the server was removed, or the gateway is stopping";
    assert_eq!(only_text(&late_call), (expected, true));
    servers.close().await;
}

#[tokio::test]
async fn outages_and_recoveries_of_a_server_are_published() {
    if !has_node("a server that goes away and comes back is news") {
        return;
    }
    let servers = ready(vec![stdio("a", None)]).await;
    let mut watch = servers.watch();
    watch.mark_unchanged();
    call(&servers, "a__crash", json!({})).await;
    tokio::time::timeout(TEST_TIMEOUT, watch.changed()).await.unwrap().unwrap();
    assert_eq!(servers.status()[0].state, ServerState::Down);
    call(&servers, "a__echo", json!({"text": "x"})).await;
    tokio::time::timeout(TEST_TIMEOUT, watch.changed()).await.unwrap().unwrap();
    assert_eq!(servers.status()[0].state, ServerState::Ready);
    servers.close().await;
}
