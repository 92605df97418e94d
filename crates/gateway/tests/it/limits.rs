//! The numbered requirements on limits: how much an unauthenticated peer can make a gateway buffer. Memory use is
//! measured on a real process, in the tests of the binary.

use std::{net::Ipv4Addr, time::Duration};

use homard_gateway::Webhooks;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout},
};

use crate::support::{PATIENCE, TOKEN, TestGateway, says};

/// A WebSocket on a raw TCP stream, so that arbitrary bytes can be sent.
async fn raw(gateway: &TestGateway) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 101");
    stream
}

/// Reads until the other side closes.
pub(crate) async fn read_to_close(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset also counts as closed.
    timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("it was not closed").ok();
    bytes
}

/// Connects from another address of this machine.
async fn connect_from(address: Ipv4Addr, gateway: &TestGateway) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    socket.connect(gateway.address).await.unwrap()
}

fn is_open(stream: &TcpStream) -> bool {
    matches!(stream.try_read(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn r21_unauthenticated_frames_are_limited_to_64_kib() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let (mut socket, _) = gateway.open().await;
    let message = format!("\"{}\"", "x".repeat(65_535));
    assert_eq!(message.len(), 65_537);
    socket.send_text(&message).await;
    let close = (1009, "message too large: the limit is 65536 bytes".to_owned());
    assert_eq!(socket.read_to_close().await, (Vec::new(), Some(close)));
    for _ in 0..20 {
        let mut stream = raw(&gateway).await;
        // A masked text frame that announces 1 GiB.
        stream.write_all(&[0x81, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 2, 3, 4]).await.unwrap();
        let bytes = read_to_close(stream).await;
        assert!(bytes.windows(2).any(|pair| pair == 1009_u16.to_be_bytes()), "it should be closed with 1009");
    }
}

#[tokio::test]
async fn r22_unauthenticated_connections_are_limited_in_number_and_time() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    // Unauthenticated connections of another prefix, which must not be evicted.
    let mut other_prefix = Vec::new();
    for _ in 0..10 {
        other_prefix.push(connect_from(Ipv4Addr::new(127, 0, 0, 5), &gateway).await);
    }
    let mut silent = Vec::new();
    for _ in 0..2000 {
        silent.push(TcpStream::connect(gateway.address).await.unwrap());
    }
    let mut owner = gateway.client(4, json!({})).await;
    assert_eq!(owner.ask("1", "health", json!({})).await["ok"], true);
    let open = silent.iter().filter(|stream| is_open(stream)).count();
    assert!(open <= 32, "{open} strangers are held");
    assert_eq!(other_prefix.iter().filter(|stream| is_open(stream)).count(), 10);
    // From here on time advances as soon as all tasks are idle.
    tokio::time::pause();
    let started_at = Instant::now();
    for mut stream in silent.into_iter().chain(other_prefix) {
        assert_eq!(timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
    }
    assert!(started_at.elapsed() <= Duration::from_secs(11), "they were held for {:?}", started_at.elapsed());
}

/// Slow loris: a request that arrives byte by byte blocks no other and is timed out.
#[tokio::test]
async fn r22_sending_slowly_does_not_extend_the_timeout() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut slow = TcpStream::connect(gateway.address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ").await.unwrap();
    tokio::time::pause();
    let started_at = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    let mut byte = [0; 1];
    loop {
        tokio::select! {
            _ = ticks.tick() => if slow.write_all(b"a").await.is_err() { break },
            read = slow.read(&mut byte) => if read.unwrap_or(0) == 0 { break },
        }
        assert!(started_at.elapsed() < Duration::from_secs(12), "it is still there");
    }
}

async fn with_webhooks() -> TestGateway {
    TestGateway::with(|gateway| gateway.with_webhooks(Webhooks::new("the-hook-token", "/hooks").unwrap())).await
}

#[tokio::test]
async fn r23_webhook_bodies_are_limited_with_and_without_token() {
    let gateway = with_webhooks().await;
    let head = |token: &str, length: &str| {
        format!("POST /hooks/wake HTTP/1.1\r\nHost: localhost\r\nx-openclaw-token: {token}\r\n{length}\r\n\r\n")
    };
    let announced = format!("Content-Length: {}", 100 * 1024 * 1024);
    for (token, length, status) in [
        ("the-hook-token", announced.as_str(), "HTTP/1.1 413"),
        ("guess", &announced, "HTTP/1.1 401"),
        ("the-hook-token", "Transfer-Encoding: chunked", "HTTP/1.1 413"),
    ] {
        let (mut reader, mut writer) = TcpStream::connect(gateway.address).await.unwrap().into_split();
        writer.write_all(head(token, length).as_bytes()).await.unwrap();
        let chunk = format!("{:x}\r\n{}\r\n", 1024 * 1024, "x".repeat(1024 * 1024));
        let send = async {
            for _ in 0..100 {
                if writer.write_all(chunk.as_bytes()).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let mut answer = [0; 12];
        tokio::select! {
            () = send => {}
            read = timeout(PATIENCE, reader.read_exact(&mut answer)) => { read.expect("no answer came").unwrap(); }
        }
        assert_eq!(std::str::from_utf8(&answer), Ok(status), "{token}, {length}");
    }
}

/// One byte a second: the response comes after five.
#[tokio::test]
async fn r23_a_slow_body_times_out() {
    let gateway = with_webhooks().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head =
        "POST /hooks/wake HTTP/1.1\r\nHost: localhost\r\nx-openclaw-token: the-hook-token\r\nContent-Length: 1000";
    stream.write_all(format!("{head}\r\n\r\n{{").as_bytes()).await.unwrap();
    tokio::time::pause();
    let started_at = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let mut answer = [0; 12];
    let (mut reader, mut writer) = stream.split();
    let mut reading = std::pin::pin!(reader.read_exact(&mut answer));
    loop {
        tokio::select! {
            _ = ticks.tick() => writer.write_all(b" ").await.unwrap(),
            read = &mut reading => { read.unwrap(); break }
        }
        assert!(started_at.elapsed() < Duration::from_secs(7), "it is still waited for");
    }
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert!(started_at.elapsed() <= Duration::from_secs(6), "{:?}", started_at.elapsed());
}

/// If it were decoded first, the error would be about base64.
#[tokio::test]
async fn r24_an_attachment_is_measured_before_it_is_decoded() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut owner = gateway.client(4, json!({})).await;
    let send_attachment = async |owner: &mut crate::support::TestClient, content: String| {
        let attachment = json!({"fileName": "a.png", "mimeType": "image/png", "content": content});
        let params =
            json!({"sessionKey": "main", "message": "look", "idempotencyKey": "r24", "attachments": [attachment]});
        owner.ask("1", "chat.send", params).await["error"].clone()
    };
    let large = send_attachment(&mut owner, "!".repeat(20_000_000)).await;
    assert_eq!(large["code"], "INVALID_REQUEST", "{large}");
    let invalid = send_attachment(&mut owner, "!".repeat(2_000)).await;
    assert_eq!(invalid["code"], "INVALID_REQUEST", "{invalid}");
    assert_ne!(large["message"], invalid["message"]);
    assert!(large["message"].as_str().unwrap().contains("5000000"), "{large}");
    // A body that is announced and never sent is not awaited.
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = format!("POST /tools/invoke HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}");
    let length = format!("Content-Length: {}", 200 * 1024 * 1024);
    stream.write_all(format!("{head}\r\n{length}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("no answer came").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[tokio::test]
async fn r25_deep_and_wide_json_is_rejected_with_an_error() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut owner = gateway.client(4, json!({})).await;
    let depths: Vec<_> = (65..=256).chain([1000, 10_000, 100_000, 1_000_000]).collect();
    let deep = json!({"code": "INVALID_REQUEST", "message": "invalid request frame: nested more than 64 levels deep"});
    for depth in &depths {
        let (open, close) = ("[".repeat(*depth), "]".repeat(*depth));
        owner.send_text(&format!(r#"{{"type":"req","id":"d","method":"health","params":{open}{close}}}"#)).await;
        assert_eq!(owner.next().await, json!({"type": "res", "id": "d", "ok": false, "error": deep}));
        owner.send_text(&open).await;
        assert_eq!(owner.next().await, json!({"type": "res", "id": "invalid", "ok": false, "error": deep}));
        let objects = (r#"{"a":"#.repeat(*depth), "}".repeat(*depth));
        owner
            .send_text(&format!(r#"{{"type":"req","id":"d","method":"health","params":{}1{}}}"#, objects.0, objects.1))
            .await;
        assert_eq!(owner.next().await, json!({"type": "res", "id": "d", "ok": false, "error": deep}));
    }
    let keys: Vec<_> = (0..1_000_000).map(|at| format!(r#""k{at}":1"#)).collect();
    owner
        .send_text(&format!(r#"{{"type":"req","id":"w","method":"sessions.list","params":{{{}}}}}"#, keys.join(",")))
        .await;
    let wide = owner.next().await;
    assert_eq!((&wide["id"], &wide["error"]["code"]), (&json!("w"), &json!("INVALID_REQUEST")));
    assert!(wide.to_string().len() < 100_000, "the refusal has {} bytes", wide.to_string().len());
    assert_eq!(owner.ask("1", "health", json!({})).await["ok"], true);
    // The same over HTTP.
    for depth in depths {
        let body = format!(r#"{{"tool":"echo","args":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        let head = format!("POST /tools/invoke HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}");
        let request = format!("{head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = String::from_utf8(read_to_close(stream).await).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400") || head.starts_with("HTTP/1.1 413"), "{depth}: {head}");
        assert!(serde_json::from_str::<Value>(body).unwrap()["error"].is_object(), "{depth}: {body}");
    }
}
