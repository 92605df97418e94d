//! HTTP beside the WebSocket: addresses, headers, probes, ticks and shutdown.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use homard_gateway::{Error, Outage, Secret, bind};
use homard_store::{Error as StoreError, Rec};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    exchange::{is_end, until},
    support::{BatchCheck, FaultyMemoryStore, TestClient, TestGateway, connect, says, settings},
};

/// Sends a plain HTTP request and returns status and body.
pub(crate) async fn http(address: SocketAddr, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn probes_are_answered_without_a_secret() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let request =
        |line: &'static str| async move { http(gateway.address, &format!("{line} HTTP/1.1\r\nHost: localhost")).await };
    let live = (200, r#"{"ok":true,"status":"live"}"#.to_owned());
    assert_eq!(request("GET /health").await, live);
    assert_eq!(request("GET /healthz").await, live);
    for path in ["GET /ready", "GET /readyz"] {
        let (status, body) = request(path).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["ready"], &body["failing"]), (200, &json!(true), &json!([])));
    }
    assert_eq!(request("POST /health").await, (405, "Method Not Allowed".to_owned()));
    assert_eq!(request("POST /").await, (405, "Method Not Allowed".to_owned()));
    assert_eq!(request("GET /nowhere").await, (404, "Not Found".to_owned()));
    assert_eq!(request("GET /assets/x.js").await.0, 404);
}

/// Status of `/readyz` and the failing components.
async fn readiness(gateway: &TestGateway) -> (u16, Value) {
    let (status, body) = http(gateway.address, "GET /readyz HTTP/1.1\r\nHost: localhost").await;
    let mut body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["ready"], status == 200, "{body}");
    // The probe is unauthenticated, so it reports no names.
    assert_eq!(body.as_object().unwrap().keys().collect::<Vec<_>>(), ["ready", "failing", "uptimeMs"]);
    (status, body["failing"].take())
}

#[tokio::test]
async fn r77_a_gateway_is_ready_as_long_as_its_parts_work() {
    let outages: Arc<Mutex<Vec<Outage>>> = Arc::default();
    let reported = outages.clone();
    let gateway =
        TestGateway::with(|gateway| gateway.with_outages(Arc::new(move || reported.lock().unwrap().clone()))).await;
    assert_eq!(readiness(&gateway).await, (200, json!([])));
    let outage = |part, id: &str| Outage { part, id: id.to_owned(), why: "it is off".to_owned() };
    *outages.lock().unwrap() =
        vec![outage("config", "/x"), outage("model", "main"), outage("model", "ops"), outage("channel", "telegram:a")];
    assert_eq!(readiness(&gateway).await, (503, json!(["config", "model", "channel"])));
    outages.lock().unwrap().clear();
    assert_eq!(readiness(&gateway).await, (200, json!([])));
    // Nothing new is accepted while runs are drained.
    gateway.hub.lifecycle().drain(Duration::ZERO).await;
    assert_eq!(readiness(&gateway).await, (503, json!(["stopping"])));
    assert_eq!(http(gateway.address, "GET /healthz HTTP/1.1\r\nHost: localhost").await.0, 200);
}

#[tokio::test]
async fn r77_a_gateway_whose_journal_does_not_store_is_not_ready() {
    // Commits fail for one session, and block at the last batch while the gate is closed.
    let full: BatchCheck = |batch| match batch
        .iter()
        .any(|rec| matches!(rec, Rec::Accept(accept) if accept.key.as_str().contains("full")))
    {
        true => Err(StoreError::Disk("no space left".to_owned())),
        false => Ok(()),
    };
    let store = FaultyMemoryStore { before: full, ..FaultyMemoryStore::default() };
    let gate = store.gate.clone();
    let gateway = TestGateway::with_store(Arc::new(store), says(&["hi"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    let message = |key: &str, run: &str| json!({"sessionKey": key, "message": "hi", "idempotencyKey": run});
    assert_eq!(readiness(&gateway).await, (200, json!([])));
    assert_eq!(socket.ask("1", "chat.send", message("full", "a")).await["ok"], false);
    assert_eq!(readiness(&gateway).await, (503, json!(["journal"])));
    // A successful commit makes it ready again.
    socket.send("2", "chat.send", message("main", "b")).await;
    until(&mut socket, |frame| is_end(frame, "b")).await;
    assert_eq!(readiness(&gateway).await, (200, json!([])));
    let permits = gate.forget_permits(usize::MAX);
    socket.send("3", "chat.send", message("main", "c")).await;
    while readiness(&gateway).await.0 == 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(readiness(&gateway).await, (503, json!(["journal"])));
    gate.add_permits(permits);
    until(&mut socket, |frame| is_end(frame, "c")).await;
    assert_eq!(readiness(&gateway).await, (200, json!([])));
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_before_the_upgrade() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let try_open =
        |headers: &'static [(&str, &str)]| async { TestClient::open(gateway.address, headers).await.map(|_| ()) };
    assert_eq!(try_open(&[("host", "evil.example")]).await, Err(403));
    assert_eq!(try_open(&[("origin", "https://evil.example")]).await, Err(403));
    assert_eq!(try_open(&[("origin", "null")]).await, Err(403));
    assert_eq!(try_open(&[("x-forwarded-for", "192.0.2.1")]).await, Err(403));
    assert_eq!(try_open(&[("origin", "http://localhost:5173")]).await, Err(403));
    assert_eq!(try_open(&[("via", "1.1 proxy")]).await, Err(403));
    let own = format!("http://localhost:{}", gateway.address.port());
    assert_eq!(TestClient::open(gateway.address, &[("origin", &own)]).await.map(|_| ()), Ok(()));
    assert_eq!(try_open(&[("host", "[::1]:1234")]).await, Ok(()));
    assert_eq!(http(gateway.address, "GET /health HTTP/1.1\r\nHost: evil.example").await.0, 403);
}

#[tokio::test]
async fn unusable_addresses_are_reported_with_a_remedy() {
    let bind_error = |settings| async { bind(settings).await.unwrap_err() };
    let in_use = TestGateway::new(says(&["hi"])).await.address;
    assert_eq!(
        bind_error(settings(in_use)).await.to_string(),
        format!("port {} on 127.0.0.1 is in use; stop the other gateway or choose another with --port", in_use.port())
    );
    let all_interfaces = settings(SocketAddr::from(([0, 0, 0, 0], 0)));
    assert!(matches!(bind_error(all_interfaces).await, Error::Exposed(_)));
    let mut no_address = settings(in_use);
    no_address.bind.clear();
    assert!(matches!(bind_error(no_address).await, Error::NoAddress));
    let mut no_secret = settings(SocketAddr::from(([127, 0, 0, 1], 0)));
    no_secret.secret = Secret::new(None, Some(String::new()));
    assert!(matches!(bind_error(no_secret).await, Error::NoSecret));
}

#[tokio::test]
async fn unauthenticated_connections_cannot_exhaust_the_gateway() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(gateway.address).await.unwrap());
    }
    let mut owner = gateway.client(4, json!({})).await;
    let mut evicted = silent.swap_remove(0);
    assert_eq!(evicted.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert_eq!(owner.ask("1", "health", json!({})).await["ok"], true);
}

#[tokio::test]
async fn every_client_receives_a_tick_every_thirty_seconds() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    for protocol in [3, 4] {
        let mut socket = gateway.client(protocol, json!({})).await;
        tokio::time::pause();
        let started_at = tokio::time::Instant::now();
        for seq in [2, 3, 4] {
            let tick = socket.next().await;
            assert_eq!((&tick["event"], &tick["seq"]), (&json!("tick"), &json!(seq)));
            assert!(tick["payload"]["ts"].is_u64());
        }
        assert_eq!(started_at.elapsed().as_secs_f64().round(), 90.0);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn stopping_notifies_every_client_and_frees_the_port() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut clients = [gateway.client(3, json!({})).await, gateway.client(4, json!({})).await];
    let (mut unauthenticated, _) = gateway.open().await;
    let mut silent = TcpStream::connect(gateway.address).await.unwrap();
    gateway.stop.cancel();
    for client in &mut clients {
        let shutdown = json!({
            "type": "event", "event": "shutdown", "payload": {"reason": "the gateway is stopping"}, "seq": 2,
        });
        assert_eq!(client.read_to_close().await, (vec![shutdown], Some((1012, "service restart".to_owned()))));
    }
    assert_eq!(unauthenticated.read_to_close().await, (Vec::new(), Some((1012, "service restart".to_owned()))));
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
    gateway.serving.await.unwrap();
    assert!(bind(settings(gateway.address)).await.is_ok());
}

// R87.
#[tokio::test]
async fn a_client_can_reconnect_repeatedly() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    for _ in 0..100 {
        let (mut socket, _) = gateway.open().await;
        assert_eq!(socket.ask("1", "connect", connect(4)).await["ok"], true);
    }
}
