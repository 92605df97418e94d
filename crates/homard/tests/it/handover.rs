//! `homard gateway restart`: a new process takes over the sockets, the state directory and the runs.

mod clients;
mod load;
mod paced_model;
mod programs;

use std::{
    io::Write as _,
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    process::{Command, Stdio},
    time::Duration,
};

use homard_runtime::task;
use homard_testkit::fake_provider::{AnswerGate, ProviderReply, ReceivedRequest};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{
    chaos::gateway::{GatewayUnderTest, messages_of, run, transcripts},
    home::{Home, Process, until},
    scripted_model::ScriptedHome,
    socket::{connect_as, next_frame, send_frame, try_connect_as},
};

const ADMIN: &[&str] = &["operator.admin", "operator.read", "operator.write"];

/// Timeout of everything that these tests wait for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway with a model whose first answer waits in the middle for a gate.
struct Fixture {
    scripted: ScriptedHome,
    gate: AnswerGate,
}

impl Fixture {
    async fn new() -> Self {
        let gate = AnswerGate::default();
        let first_gate = gate.clone();
        let reply = move |request: &ReceivedRequest| {
            let mut reply = ProviderReply::text(format!("answer {}", request.number));
            if request.number == 0 {
                reply.answer.text.push(" and the rest".to_owned());
                reply.gate = Some(first_gate.clone());
            }
            reply
        };
        Self { scripted: ScriptedHome::answering(json!({}), reply).await, gate }
    }

    fn home(&self) -> &Home {
        &self.scripted.home
    }

    /// Starts a gateway and a run that waits in the middle of its answer.
    async fn busy_gateway(&self) -> GatewayUnderTest {
        let mut gateway = GatewayUnderTest::begin_with(self.home(), &[]).await;
        gateway.accept(&run("first", "one", "hello")).await;
        until("the model is asked", || !self.scripted.provider.requests().is_empty());
        gateway
    }
}

/// Returns what the gateway says about its process.
async fn process(gateway: &mut GatewayUnderTest) -> Value {
    let id = gateway.ask("homard.gateway.status", &json!({})).await;
    gateway.answer(&id).await["payload"].clone()
}

/// Same as `process`; `None` if the gateway ends before it answers.
async fn try_process(gateway: &mut GatewayUnderTest) -> Option<Value> {
    let id = gateway.try_ask("homard.gateway.status", &json!({})).await?;
    Some(gateway.first_answer(&id).await?["payload"].clone())
}

/// Requests a restart; returns the response.
async fn restart(gateway: &mut GatewayUnderTest, params: &Value) -> Value {
    let id = gateway.ask("homard.gateway.restart", params).await;
    gateway.answer(&id).await
}

/// Waits until the gateway has closed this client's connection, and connects again.
async fn reconnect(gateway: &mut GatewayUnderTest, token: &str) {
    timeout(PATIENCE, async { while next_frame(&mut gateway.socket).await.is_some() {} }).await.unwrap();
    gateway.socket = timeout(PATIENCE, connect_as(gateway.port, token, 4, ADMIN, &[])).await.unwrap();
}

fn token(home: &Home) -> String {
    std::fs::read_to_string(home.state().join("gateway-token")).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_takes_over_the_sockets_and_resumes_what_did_not_end() {
    let fixture = Fixture::new().await;
    let mut gateway = fixture.busy_gateway().await;
    let before = process(&mut gateway).await;
    let answer = restart(&mut gateway, &json!({"waitMs": 0})).await;
    assert_eq!(answer["payload"], json!({"ok": true, "waitsFor": 1, "waitMs": 0}), "{answer}");
    reconnect(&mut gateway, &token(fixture.home())).await;
    // A client that counted the events of the old process gets all of the new one.
    let id = gateway.ask("chat.resume", &json!({"sessionKey": "one", "runId": "first", "afterSeq": 1000})).await;
    let resumed = gateway.answer(&id).await;
    assert_eq!(resumed["payload"]["runs"][0]["runId"], "first", "{resumed}");
    let end = gateway.wait("first").await;
    assert_eq!(end["status"], "ok", "{end}");
    let after = process(&mut gateway).await;
    assert_eq!((&after["pid"], &after["listeners"]), (&before["pid"], &before["listeners"]));
    assert!(after["startedAtMs"].as_u64() > before["startedAtMs"].as_u64());
    assert_eq!(gateway.end(Signal::TERM), Some(0));
    let messages = transcripts(fixture.home()).concat();
    assert_eq!(messages_of("user", &messages).len(), 1);
    let answers = messages_of("assistant", &messages);
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(answers[0].to_string().contains("answer 1"), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_accepted_while_a_restart_waits_and_answered_after_it() {
    let fixture = Fixture::new().await;
    let mut gateway = fixture.busy_gateway().await;
    restart(&mut gateway, &json!({"waitMs": 60_000})).await;
    // Accepted by the old process, which starts no further run.
    gateway.accept(&run("second", "two", "hello")).await;
    assert_eq!(fixture.scripted.provider.requests().len(), 1);
    let first = gateway.ask("agent.wait", &json!({"runId": "first", "timeoutMs": 60_000})).await;
    fixture.gate.open();
    // The connection may be closed before the response is sent; the result is stored then.
    gateway.first_answer(&first).await;
    reconnect(&mut gateway, &token(fixture.home())).await;
    assert_eq!(gateway.wait("first").await["status"], "ok");
    assert_eq!(gateway.wait("second").await["status"], "ok");
    assert_eq!(fixture.scripted.provider.requests().len(), 2);
    let messages = transcripts(fixture.home()).concat();
    assert_eq!((messages_of("user", &messages).len(), messages_of("assistant", &messages).len()), (2, 2));
    gateway.end(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_connection_is_refused_during_restarts() {
    let home = Home::new();
    let mut gateway = GatewayUnderTest::begin_with(&home, &[]).await;
    let (port, token) = (gateway.port, token(&home));
    let connecting = task::spawn("test", async move {
        loop {
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            // The process that accepted it may end before it answers.
            stream.write_all(b"GET /healthz HTTP/1.0\r\nhost: localhost\r\n\r\n").await.ok();
            stream.read_to_end(&mut Vec::new()).await.ok();
        }
    });
    for _ in 0..3 {
        let answer = restart(&mut gateway, &json!({})).await;
        assert_eq!(answer["ok"], true, "{answer}");
        reconnect(&mut gateway, &token).await;
    }
    assert!(!connecting.is_finished(), "a connection was refused");
    connecting.abort();
    gateway.end(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_refused_if_the_new_process_could_not_start() {
    let home = Home::new();
    home.configure("{}");
    let mut gateway = GatewayUnderTest::begin_with(&home, &[]).await;
    let before = process(&mut gateway).await;
    // Also the last valid copy would be used; without it there is nothing to start with.
    home.configure("{gateway: {port: 'x'}}");
    std::fs::remove_file(home.state().join("config.last-good.json")).ok();
    let answer = restart(&mut gateway, &json!({})).await;
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.contains("cannot take over: config file") && why.contains("gateway.port"), "{why}");
    assert_eq!(process(&mut gateway).await["startedAtMs"], before["startedAtMs"]);
    gateway.end(Signal::TERM);
}

#[test]
fn the_program_that_takes_over_must_read_the_format_of_the_state() {
    let home = Home::new();
    let check = |format: &str| home.run(&["gateway", "check", "--state-format", format]);
    assert_eq!(check("1").code, Some(0));
    let refused = check("99");
    assert_eq!(refused.code, Some(1));
    let expected =
        format!("state directory {} has format 99, which a newer version of Homard wrote", home.state().display());
    assert!(
        refused.stderr.contains(&expected) && refused.stderr.contains("homard restore DIRECTORY"),
        "{}",
        refused.stderr
    );
}

/// Returns the next notification that begins with this text; others are skipped.
fn notified(manager: &UnixDatagram, text: &str) -> String {
    let mut buffer = [0; 512];
    loop {
        let length = manager.recv(&mut buffer).unwrap_or_else(|error| panic!("no {text}: {error}"));
        let received = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if received.starts_with(text) {
            return received;
        }
    }
}

#[test]
fn a_service_manager_is_told_how_the_gateway_is() {
    let home = Home::new();
    let path = home.work().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = home.command(&["gateway", "run", "--port", "0"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000").stderr(Stdio::null());
    let gateway = home.listening(command);
    let ready = notified(&manager, "READY=1");
    assert!(ready.contains(&format!("STATUS=serving on 127.0.0.1:{}", gateway.port)), "{ready}");
    notified(&manager, "WATCHDOG=1");
    gateway.process.signal(Signal::USR2);
    notified(&manager, "RELOADING=1\nMONOTONIC_USEC=");
    notified(&manager, "READY=1");
    notified(&manager, "WATCHDOG=1");
    gateway.process.signal(Signal::TERM);
    notified(&manager, "STOPPING=1");
    assert_eq!(gateway.end().0, Some(0));
}

/// Starts a gateway with a listener as systemd passes it.
fn activated(home: &Home, listener: &std::net::TcpListener) -> Process {
    let port = listener.local_addr().unwrap().port().to_string();
    let plain = home.command(&["gateway", "run", "--port", &port]);
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg("exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\"");
    command.arg(plain.get_program()).args(plain.get_args()).env_clear().current_dir(home.work());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
        .stdin(Stdio::from(OwnedFd::from(listener.try_clone().unwrap())))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process(command.spawn().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sockets_of_a_service_manager_outlive_the_gateway() {
    let home = Home::new();
    home.configure("{gateway: {auth: {token: 'a token of the tests'}}}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for signal in [Signal::KILL, Signal::TERM] {
        // The client is first; the gateway that answers it starts afterwards.
        let client = task::spawn("test", async move { connect_as(port, "a token of the tests", 4, ADMIN, &[]).await });
        let gateway = activated(&home, &listener);
        let mut socket = timeout(PATIENCE, client).await.unwrap().unwrap();
        send_frame(&mut socket, &json!({"type": "req", "id": "1", "method": "homard.gateway.restart", "params": {}}))
            .await;
        while next_frame(&mut socket).await.is_some() {}
        // Also across a hand-over.
        let connected = async {
            // A connection that the old process accepted last may be cut off.
            loop {
                let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                if try_connect_as(stream, "a token of the tests", 4, ADMIN).await.is_some() {
                    return;
                }
            }
        };
        timeout(PATIENCE, connected).await.unwrap();
        gateway.signal(signal);
        drop(gateway);
    }
}

/// Sends a line to stderr that the test runner shows.
fn report(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}
