//! Access from other machines: networks and TLS; and how much memory an unauthenticated peer can make a gateway use,
//! measured on a real process.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    time::Duration,
};

use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::{
    home::{CommandOutput, Home, RunningGateway},
    scripted_model::{ScriptedHome, call},
    socket,
};

const MIB: u64 = 1024 * 1024;

/// Creates a home with this config.
fn configured(text: &str) -> Home {
    let home = Home::new();
    home.configure(text);
    home
}

/// Returns the fingerprint that a gateway prints after its address.
fn fingerprint(gateway: &mut RunningGateway<'_>) -> String {
    let line = gateway.line();
    line.split("SHA-256 ").nth(1).unwrap_or_else(|| panic!("{line}")).trim().to_owned()
}

#[test]
fn a_tls_gateway_is_reached_by_local_commands_and_clients_with_its_fingerprint() {
    let home = configured("{gateway: {tls: {enabled: true}}}");
    let mut gateway = home.gateway();
    assert!(gateway.greeting().contains("wss://127.0.0.1:"), "{}", gateway.greeting());
    let known = fingerprint(&mut gateway);
    let health = gateway.run(&["health", "--json"]);
    assert_eq!((health.code, &health.json()["ok"]), (Some(0), &json!(true)), "{health:?}");
    let folder = home.state().join("gateway").join("tls");
    for name in ["gateway-cert.pem", "gateway-key.pem"] {
        assert_eq!(fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    // From a home that knows nothing about it.
    let other = Home::new();
    let (url, token) = (format!("wss://127.0.0.1:{}", gateway.port), gateway.token());
    let call = |extra_args: &[&str]| {
        other.run(&[&["gateway", "call", "health", "--url", &url, "--token", &token][..], extra_args].concat())
    };
    assert_eq!(call(&["--tls-fingerprint", &known]).code, Some(0));
    let refused = |output: CommandOutput, expected: &str| {
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains("is not trusted") && output.stderr.contains(expected), "{output:?}");
    };
    refused(call(&["--tls-fingerprint", &"ab".repeat(32)]), "gateway.remote.tlsFingerprint");
    refused(call(&[]), "--tls-fingerprint");
    let remote = |fingerprint: &str| {
        let text = format!(
            "{{gateway: {{mode: 'remote', remote: {{url: '{url}', token: '{token}', tlsFingerprint: '{fingerprint}'}}}}}}"
        );
        configured(&text).run(&["health"])
    };
    assert_eq!(remote(&known).code, Some(0));
    refused(remote(&"cd".repeat(32)), "update gateway.remote.tlsFingerprint");
    assert!(remote("nonsense").stderr.contains("nonsense is not a SHA-256 fingerprint"));
    // The same certificate after a restart.
    drop(gateway);
    assert_eq!(fingerprint(&mut home.gateway()), known);
    // And a certificate whose key is missing.
    fs::remove_file(folder.join("gateway-key.pem")).unwrap();
    let output_without_key = home.run(&["gateway", "run", "--port", "0"]);
    assert_eq!(output_without_key.code, Some(1), "{output_without_key:?}");
    assert!(output_without_key.stderr.contains("gateway-key.pem is missing"), "{output_without_key:?}");
    fs::remove_file(folder.join("gateway-cert.pem")).unwrap();
    home.configure("{gateway: {tls: {enabled: true, autoGenerate: false}}}");
    let none = home.run(&["gateway", "run", "--port", "0"]);
    assert!(none.stderr.contains("does not exist") && none.stderr.contains("autoGenerate"), "{none:?}");
}

#[test]
fn r34_a_gateway_is_not_exposed_by_default() {
    let home = Home::new();
    for (text, args) in [
        ("{}", &["--bind", "lan"][..]),
        ("{gateway: {bind: 'lan'}}", &[]),
        ("{gateway: {bind: 'custom', customBindHost: '192.0.2.1'}}", &[]),
    ] {
        home.configure(text);
        let refused = home.run(&[&["gateway", "run", "--port", "0"][..], args].concat());
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
        for setting in ["gateway.tls.enabled", "gateway.trustedProxies", "gateway.allowInsecure", "gateway.bind"] {
            assert!(refused.stderr.contains(setting), "{refused:?}");
        }
    }
    home.configure("{gateway: {bind: 'custom'}}");
    assert!(home.run(&["gateway"]).stderr.contains("gateway.customBindHost is missing"));
    home.configure("{gateway: {bind: 'lan', allowInsecure: true, auth: {token: 'short'}}}");
    let guessable = home.run(&["gateway", "run", "--port", "0"]);
    assert!(guessable.stderr.contains("a token of 5 characters can be guessed"), "{guessable:?}");
}

#[test]
fn a_deliberately_exposed_gateway_keeps_reporting_it() {
    let home = configured("{gateway: {bind: 'lan', allowInsecure: true}}");
    let mut gateway = home.gateway();
    let network = gateway.line();
    assert!(network.starts_with("network") && network.ends_with("from other machines"), "{network}");
    let status = gateway.run(&["status", "--json"]).json();
    let notice = status["notice"].as_str().unwrap();
    assert!(notice.contains("gateway.allowInsecure is true") && notice.contains("gateway.tls.enabled"), "{notice}");
    // The flag takes precedence over the config, and loopback needs no warning.
    drop(gateway);
    let gateway = home.listening(home.command(&["gateway", "run", "--port", "0", "--bind", "loopback"]));
    assert_eq!(gateway.run(&["status", "--json"]).json().get("notice"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn r31_no_tool_contacts_another_gateway() {
    let other_gateway = TcpListener::bind("127.0.0.1:0").unwrap();
    other_gateway.set_nonblocking(true).unwrap();
    let address = other_gateway.local_addr().unwrap();
    let fixture = ScriptedHome::with(json!({})).await;
    let gateway = fixture.home.gateway();
    for (tool, action) in [("cron", "status"), ("gateway", "config.get")] {
        for url in [format!("ws://{address}"), format!("wss://{address}"), format!(" http://{address}/ ")] {
            let output = call(&gateway, tool, &json!({"action": action, "gatewayUrl": url, "gatewayToken": "x"}));
            assert!(output.contains("omit gatewayUrl"), "{tool} at {url}: {output}");
        }
    }
    assert_eq!(other_gateway.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Returns the memory of a process in bytes: the current size, and the maximum since the last reset.
fn memory(gateway: &RunningGateway<'_>) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.process.0.id())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// Returns how much a gateway's memory grows at most during work that it has done before.
fn growth(gateway: &RunningGateway<'_>, mut work: impl FnMut()) -> u64 {
    work();
    work();
    fs::write(format!("/proc/{}/clear_refs", gateway.process.0.id()), "5").unwrap();
    let (before, _) = memory(gateway);
    work();
    memory(gateway).1.saturating_sub(before)
}

/// Sends bytes on a new connection, and returns what is received until the gateway closes it or nothing more comes.
fn sent(port: u16, parts: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    for part in parts {
        if stream.write_all(part).is_err() {
            break;
        }
    }
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return received,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return received,
            // A signal to the process of the tests.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    }
}

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Returns the head of a masked text frame with this length.
fn head(length: u64) -> Vec<u8> {
    [&[0x81, 0xff], &length.to_be_bytes()[..], &[0; 4]].concat()
}

#[test]
fn r21_a_size_announced_before_authentication_allocates_no_memory() {
    let home = Home::new();
    let gateway = home.dumpable_gateway();
    let message = vec![b' '; 32 * MIB as usize];
    let try_it = |announced: u64, sends: u64| {
        // Everything is sent before anything is read.
        let received = sent(gateway.port, &[UPGRADE, &head(announced), &message[..sends as usize]]);
        let close = [&1009_u16.to_be_bytes()[..], b"message too large: the limit is 65536 bytes"].concat();
        assert!(received.ends_with(&close), "it should be closed with 1009: {received:?}");
    };
    let growth_bytes = growth(&gateway, || {
        std::thread::scope(|scope| {
            for (announced, sends) in [(65_537, 65_537), (1024 * MIB, 65_537), (32 * MIB, 32 * MIB), (1024 * MIB, 0)] {
                scope.spawn(move || try_it(announced, sends));
            }
        });
    });
    assert!(growth_bytes <= MIB, "memory grew by {growth_bytes} bytes");
}

#[test]
fn r23_an_unauthenticated_webhook_body_allocates_no_memory() {
    let home = configured("{hooks: {enabled: true, token: 'a-token-of-webhooks', path: '/hooks'}}");
    let gateway = home.dumpable_gateway();
    let request = |token: &str, length: &str| {
        let head = "POST /hooks/wake HTTP/1.1\r\nHost: localhost\r\nConnection: close";
        format!("{head}\r\nx-openclaw-token: {token}\r\n{length}\r\n\r\n").into_bytes()
    };
    let announced = format!("Content-Length: {}", 100 * MIB);
    let chunk = [format!("{MIB:x}\r\n").into_bytes(), vec![b'x'; MIB as usize], b"\r\n".to_vec()].concat();
    let growth_bytes = growth(&gateway, || {
        for (token, length, status) in [
            ("a-token-of-webhooks", announced.as_str(), "413"),
            ("a-token-of-webhooks", "Transfer-Encoding: chunked", "413"),
        ] {
            let head = request(token, length);
            let body: Vec<&[u8]> = [head.as_slice()].into_iter().chain([chunk.as_slice(); 100]).collect();
            let received = String::from_utf8_lossy(&sent(gateway.port, &body)).into_owned();
            // A client that keeps sending may lose the response with the connection.
            assert!(received.is_empty() || received.starts_with(&format!("HTTP/1.1 {status}")), "{received}");
        }
    });
    assert!(growth_bytes <= 2 * MIB, "memory grew by {growth_bytes} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn r24_a_size_announced_by_a_client_allocates_no_memory() {
    let home = Home::new();
    let gateway = home.dumpable_gateway();
    let token = gateway.token();
    let runtime = tokio::runtime::Handle::current();
    let request = format!(
        "POST /tools/invoke HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: {}\r\n\r\n",
        200 * MIB
    );
    let growth_bytes = tokio::task::block_in_place(|| {
        growth(&gateway, || {
            for _ in 0..5 {
                let received = String::from_utf8_lossy(&sent(gateway.port, &[request.as_bytes()])).into_owned();
                assert!(received.starts_with("HTTP/1.1 413"), "{received}");
                runtime.block_on(async {
                    let mut socket = socket::connect(gateway.port, &token).await;
                    let bytes = [head(200 * MIB), br#"{"type":"req","id":"1","method":"chat.send""#.to_vec()].concat();
                    socket.get_mut().write_all(&bytes).await.unwrap();
                    while socket::next_frame(&mut socket).await.is_some() {}
                });
            }
        })
    });
    assert!(growth_bytes <= MIB, "memory grew by {growth_bytes} bytes");
}
