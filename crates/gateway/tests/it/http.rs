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
    let world = TestGateway::new(says(&["hi"])).await;
    let ask =
        |line: &'static str| async move { http(world.address, &format!("{line} HTTP/1.1\r\nHost: localhost")).await };
    let live = (200, r#"{"ok":true,"status":"live"}"#.to_owned());
    assert_eq!(ask("GET /health").await, live);
    assert_eq!(ask("GET /healthz").await, live);
    for path in ["GET /ready", "GET /readyz"] {
        let (status, body) = ask(path).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["ready"], &body["failing"]), (200, &json!(true), &json!([])));
    }
    assert_eq!(ask("POST /health").await, (405, "Method Not Allowed".to_owned()));
    assert_eq!(ask("POST /").await, (405, "Method Not Allowed".to_owned()));
    assert_eq!(ask("GET /nowhere").await, (404, "Not Found".to_owned()));
    assert_eq!(ask("GET /assets/x.js").await.0, 404);
}

/// Status of `/readyz` and the failing components.
async fn readiness(world: &TestGateway) -> (u16, Value) {
    let (status, body) = http(world.address, "GET /readyz HTTP/1.1\r\nHost: localhost").await;
    let mut body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["ready"], status == 200, "{body}");
    // The probe is unauthenticated, so it reports no names.
    assert_eq!(body.as_object().unwrap().keys().collect::<Vec<_>>(), ["ready", "failing", "uptimeMs"]);
    (status, body["failing"].take())
}

#[tokio::test]
async fn l11_r77_a_gateway_is_ready_as_long_as_its_parts_work() {
    let down: Arc<Mutex<Vec<Outage>>> = Arc::default();
    let seen = down.clone();
    let world = TestGateway::with(|gateway| gateway.with_outages(Arc::new(move || seen.lock().unwrap().clone()))).await;
    assert_eq!(readiness(&world).await, (200, json!([])));
    let outage = |part, id: &str| Outage { part, id: id.to_owned(), why: "it is off".to_owned() };
    *down.lock().unwrap() =
        vec![outage("config", "/x"), outage("model", "main"), outage("model", "ops"), outage("channel", "telegram:a")];
    assert_eq!(readiness(&world).await, (503, json!(["config", "model", "channel"])));
    down.lock().unwrap().clear();
    assert_eq!(readiness(&world).await, (200, json!([])));
    // Nothing new is accepted while runs are drained.
    world.hub.drain(Duration::ZERO).await;
    assert_eq!(readiness(&world).await, (503, json!(["stopping"])));
    assert_eq!(http(world.address, "GET /healthz HTTP/1.1\r\nHost: localhost").await.0, 200);
}

#[tokio::test]
async fn l11_r77_a_gateway_whose_journal_does_not_store_is_not_ready() {
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
    let world = TestGateway::over(Arc::new(store), says(&["hi"])).await;
    let mut socket = world.client(4, json!({})).await;
    let message = |key: &str, run: &str| json!({"sessionKey": key, "message": "hi", "idempotencyKey": run});
    assert_eq!(readiness(&world).await, (200, json!([])));
    assert_eq!(socket.ask("1", "chat.send", message("full", "a")).await["ok"], false);
    assert_eq!(readiness(&world).await, (503, json!(["journal"])));
    // A successful commit makes it ready again.
    socket.send("2", "chat.send", message("main", "b")).await;
    until(&mut socket, |frame| is_end(frame, "b")).await;
    assert_eq!(readiness(&world).await, (200, json!([])));
    let permits = gate.forget_permits(usize::MAX);
    socket.send("3", "chat.send", message("main", "c")).await;
    while readiness(&world).await.0 == 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(readiness(&world).await, (503, json!(["journal"])));
    gate.add_permits(permits);
    until(&mut socket, |frame| is_end(frame, "c")).await;
    assert_eq!(readiness(&world).await, (200, json!([])));
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_before_the_upgrade() {
    let world = TestGateway::new(says(&["hi"])).await;
    let tried = |headers: &'static [(&str, &str)]| async { TestClient::open(world.address, headers).await.map(|_| ()) };
    assert_eq!(tried(&[("host", "evil.example")]).await, Err(403));
    assert_eq!(tried(&[("origin", "https://evil.example")]).await, Err(403));
    assert_eq!(tried(&[("origin", "null")]).await, Err(403));
    assert_eq!(tried(&[("x-forwarded-for", "192.0.2.1")]).await, Err(403));
    assert_eq!(tried(&[("origin", "http://localhost:5173")]).await, Err(403));
    assert_eq!(tried(&[("via", "1.1 proxy")]).await, Err(403));
    let own = format!("http://localhost:{}", world.address.port());
    assert_eq!(TestClient::open(world.address, &[("origin", &own)]).await.map(|_| ()), Ok(()));
    assert_eq!(tried(&[("host", "[::1]:1234")]).await, Ok(()));
    assert_eq!(http(world.address, "GET /health HTTP/1.1\r\nHost: evil.example").await.0, 403);
}

#[tokio::test]
async fn addresses_that_cannot_be_served_are_named_with_the_way_out() {
    let refused = |settings| async { bind(settings).await.unwrap_err() };
    let taken = TestGateway::new(says(&["hi"])).await.address;
    assert_eq!(
        refused(settings(taken)).await.to_string(),
        format!("port {} on 127.0.0.1 is in use; stop the other gateway or choose another with --port", taken.port())
    );
    let everywhere = settings(SocketAddr::from(([0, 0, 0, 0], 0)));
    assert!(matches!(refused(everywhere).await, Error::Exposed(_)));
    let mut nowhere = settings(taken);
    nowhere.bind.clear();
    assert!(matches!(refused(nowhere).await, Error::NoAddress));
    let mut open = settings(SocketAddr::from(([127, 0, 0, 1], 0)));
    open.secret = Secret::new(None, Some(String::new()));
    assert!(matches!(refused(open).await, Error::NoSecret));
}

#[tokio::test]
async fn strangers_cannot_fill_the_room() {
    let world = TestGateway::new(says(&["hi"])).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
    }
    let mut owner = world.client(4, json!({})).await;
    let mut gone = silent.swap_remove(0);
    assert_eq!(gone.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert_eq!(owner.ask("1", "health", json!({})).await["ok"], true);
}

#[tokio::test]
async fn every_client_hears_a_tick_every_thirty_seconds() {
    let world = TestGateway::new(says(&["hi"])).await;
    for protocol in [3, 4] {
        let mut socket = world.client(protocol, json!({})).await;
        tokio::time::pause();
        let before = tokio::time::Instant::now();
        for seq in [2, 3, 4] {
            let tick = socket.next().await;
            assert_eq!((&tick["event"], &tick["seq"]), (&json!("tick"), &json!(seq)));
            assert!(tick["payload"]["ts"].is_u64());
        }
        assert_eq!(before.elapsed().as_secs_f64().round(), 90.0);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn stopping_tells_every_client_and_frees_the_port() {
    let world = TestGateway::new(says(&["hi"])).await;
    let mut clients = [world.client(3, json!({})).await, world.client(4, json!({})).await];
    let (mut stranger, _) = world.open().await;
    let mut silent = TcpStream::connect(world.address).await.unwrap();
    world.stop.cancel();
    for client in &mut clients {
        let shutdown = json!({
            "type": "event", "event": "shutdown", "payload": {"reason": "the gateway is stopping"}, "seq": 2,
        });
        assert_eq!(client.rest().await, (vec![shutdown], Some((1012, "service restart".to_owned()))));
    }
    assert_eq!(stranger.rest().await, (Vec::new(), Some((1012, "service restart".to_owned()))));
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
    world.serving.await.unwrap();
    assert!(bind(settings(world.address)).await.is_ok());
}

#[tokio::test]
async fn a_client_that_leaves_and_comes_back_is_welcome() {
    let world = TestGateway::new(says(&["hi"])).await;
    for _ in 0..100 {
        let (mut socket, _) = world.open().await;
        assert_eq!(socket.ask("1", "connect", connect(4)).await["ok"], true);
    }
}
