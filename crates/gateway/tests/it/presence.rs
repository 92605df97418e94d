//! Presence: the list, and events when clients connect and disconnect.

use serde_json::{Value, json};

use crate::support::{TestClient, TestGateway, connect, says};

/// Connects with this client description; returns the socket and the snapshot in the hello.
async fn connect_as(gateway: &TestGateway, protocol: u64, client: Value, scopes: Value) -> (TestClient, Value) {
    let (mut socket, _) = gateway.open().await;
    let mut params = connect(protocol);
    for (name, value) in client.as_object().unwrap() {
        params["client"][name] = value.clone();
    }
    params["scopes"] = scopes;
    let hello = socket.ask("c", "connect", params).await;
    (socket, hello["payload"]["snapshot"].clone())
}

/// Host and mode of each row.
fn names(rows: &Value) -> Vec<(&str, &str)> {
    let rows = rows.as_array().unwrap();
    assert!(rows.iter().all(|row| row["ts"].is_u64() && row["text"].is_string()), "{rows:?}");
    rows.iter().map(|row| (row["host"].as_str().unwrap(), row["mode"].as_str().unwrap())).collect()
}

/// Payload of the next presence event.
async fn next_presence(socket: &mut TestClient) -> Value {
    loop {
        let frame = socket.next().await;
        if frame["event"] == "presence" {
            return frame;
        }
    }
}

#[tokio::test]
async fn presence_changes_are_published_to_readers() {
    let reader = json!(["operator.read"]);
    for protocol in [3, 4] {
        let gateway = TestGateway::new(says(&["hi"])).await;
        let (mut first, snapshot) = connect_as(&gateway, protocol, json!({}), reader.clone()).await;
        let [gateway_row, client_row] = [("homard", "gateway"), ("gateway-client", "backend")];
        assert_eq!(names(&snapshot["presence"]), [gateway_row, client_row]);
        let before = snapshot["stateVersion"]["presence"].as_u64().unwrap();
        let (mut unprivileged, snapshot) = connect_as(&gateway, protocol, json!({}), json!(["operator.pairing"])).await;
        assert_eq!(names(&snapshot["presence"]), [gateway_row]);

        let desk = json!({"displayName": "desk", "mode": "ui", "instanceId": "i-1"});
        let (mut second, snapshot) = connect_as(&gateway, protocol, desk, reader.clone()).await;
        let rows = [gateway_row, client_row, ("desk", "ui")];
        assert_eq!(
            (names(&snapshot["presence"]), &snapshot["stateVersion"]["presence"]),
            (rows.to_vec(), &json!(before + 1))
        );
        let event = next_presence(&mut first).await;
        assert_eq!(names(&event["payload"]["presence"]), rows);
        assert_eq!(event["stateVersion"], json!({"presence": before + 1, "health": 0}));
        assert_eq!((&event["payload"]["presence"][2]["instanceId"], &event["seq"]), (&json!("i-1"), &json!(2)));
        let listed = first.ask("p", "system-presence", json!({})).await;
        assert_eq!(names(&listed["payload"]), rows);

        // Events precede later responses, so these clients received no event.
        second.send("p", "system-presence", json!({})).await;
        unprivileged.send("p", "device.pair.list", json!({})).await;
        for socket in [&mut second, &mut unprivileged] {
            let mut frame = socket.next().await;
            while frame["id"] != "p" {
                assert_eq!(frame["event"], "health");
                frame = socket.next().await;
            }
        }
        drop(second);
        let event = next_presence(&mut first).await;
        assert_eq!(names(&event["payload"]["presence"]), [gateway_row, client_row]);
        assert_eq!(event["stateVersion"]["presence"], before + 2);
    }
}

#[tokio::test]
async fn equal_clients_change_presence_once_and_cli_clients_never() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let reader = json!(["operator.read"]);
    let (_command, snapshot) = connect_as(&gateway, 4, json!({"id": "cli", "mode": "cli"}), reader.clone()).await;
    assert_eq!(snapshot["stateVersion"], json!({"presence": 0, "health": 0}));
    let mut clients = Vec::new();
    for _ in 0..10 {
        let (socket, snapshot) = connect_as(&gateway, 4, json!({}), reader.clone()).await;
        assert_eq!(snapshot["stateVersion"]["presence"], 1);
        assert_eq!(names(&snapshot["presence"]), [("homard", "gateway"), ("gateway-client", "backend")]);
        clients.push(socket);
    }
}

#[tokio::test]
async fn presence_updates_of_many_clients_are_throttled() {
    const CLIENTS: u64 = 96;
    let gateway = TestGateway::new(says(&["hi"])).await;
    let reader = json!(["operator.read"]);
    let (mut first, _) = connect_as(&gateway, 4, json!({}), reader.clone()).await;
    let started_at = tokio::time::Instant::now();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        clients.push(connect_as(&gateway, 4, json!({"instanceId": format!("i-{number}")}), reader.clone()).await.0);
    }
    let mut count = 0.0;
    loop {
        let event = next_presence(&mut first).await;
        count += 1.0;
        assert!(count <= started_at.elapsed().as_secs_f64(), "{count} times in {:?}", started_at.elapsed());
        if event["stateVersion"]["presence"] == CLIENTS + 1 {
            // The gateway and the clients that connected last.
            let rows = event["payload"]["presence"].as_array().unwrap();
            assert_eq!((rows.len(), &rows[1]["instanceId"]), (65, &json!(format!("i-{}", CLIENTS - 64))));
            return;
        }
    }
}

#[tokio::test]
async fn system_info_describes_the_machine() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    let info = socket.ask("i", "system.info", json!({})).await["payload"].clone();
    for field in ["machineName", "hostname", "platform", "release", "arch", "osLabel", "nodeVersion"] {
        assert!(info[field].is_string(), "{field}: {info}");
    }
    assert_eq!(info["pid"], std::process::id());
    let (all, free) = (info["memoryTotalBytes"].as_u64().unwrap(), info["memoryFreeBytes"].as_u64().unwrap());
    assert!(free <= all && info["cpuCount"].as_u64().unwrap() >= 1 && info["uptimeMs"].is_u64(), "{info}");
    assert!(info["processMemory"]["rssBytes"].as_u64().is_some_and(|rss| 0 < rss && rss < all), "{info}");
}
