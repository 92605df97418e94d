//! Presence: the list, and events when clients connect and disconnect.

use serde_json::{Value, json};

use crate::support::{TestClient, TestGateway, connect, says};

/// Connects with this client description; returns the socket and the snapshot in the hello.
async fn comes(world: &TestGateway, protocol: u64, client: Value, scopes: Value) -> (TestClient, Value) {
    let (mut socket, _) = world.open().await;
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
async fn told(socket: &mut TestClient) -> Value {
    loop {
        let frame = socket.next().await;
        if frame["event"] == "presence" {
            return frame;
        }
    }
}

#[tokio::test]
async fn who_comes_and_goes_is_told_to_those_who_may_look() {
    let reader = json!(["operator.read"]);
    for protocol in [3, 4] {
        let world = TestGateway::new(says(&["hi"])).await;
        let (mut first, snapshot) = comes(&world, protocol, json!({}), reader.clone()).await;
        let [gateway, us] = [("homard", "gateway"), ("gateway-client", "backend")];
        assert_eq!(names(&snapshot["presence"]), [gateway, us]);
        let before = snapshot["stateVersion"]["presence"].as_u64().unwrap();
        let (mut blind, snapshot) = comes(&world, protocol, json!({}), json!(["operator.pairing"])).await;
        assert_eq!(names(&snapshot["presence"]), [gateway]);

        let desk = json!({"displayName": "desk", "mode": "ui", "instanceId": "i-1"});
        let (mut second, snapshot) = comes(&world, protocol, desk, reader.clone()).await;
        let here = [gateway, us, ("desk", "ui")];
        assert_eq!(
            (names(&snapshot["presence"]), &snapshot["stateVersion"]["presence"]),
            (here.to_vec(), &json!(before + 1))
        );
        let event = told(&mut first).await;
        assert_eq!(names(&event["payload"]["presence"]), here);
        assert_eq!(event["stateVersion"], json!({"presence": before + 1, "health": 0}));
        assert_eq!((&event["payload"]["presence"][2]["instanceId"], &event["seq"]), (&json!("i-1"), &json!(2)));
        let asked = first.ask("p", "system-presence", json!({})).await;
        assert_eq!(names(&asked["payload"]), here);

        // Events precede later responses, so these clients received no event.
        second.send("p", "system-presence", json!({})).await;
        blind.send("p", "device.pair.list", json!({})).await;
        for socket in [&mut second, &mut blind] {
            let mut frame = socket.next().await;
            while frame["id"] != "p" {
                assert_eq!(frame["event"], "health");
                frame = socket.next().await;
            }
        }
        drop(second);
        let event = told(&mut first).await;
        assert_eq!(names(&event["payload"]["presence"]), [gateway, us]);
        assert_eq!(event["stateVersion"]["presence"], before + 2);
    }
}

#[tokio::test]
async fn a_crowd_of_one_kind_changes_the_list_once_and_commands_never() {
    let world = TestGateway::new(says(&["hi"])).await;
    let reader = json!(["operator.read"]);
    let (_command, snapshot) = comes(&world, 4, json!({"id": "cli", "mode": "cli"}), reader.clone()).await;
    assert_eq!(snapshot["stateVersion"], json!({"presence": 0, "health": 0}));
    let mut crowd = Vec::new();
    for _ in 0..10 {
        let (socket, snapshot) = comes(&world, 4, json!({}), reader.clone()).await;
        assert_eq!(snapshot["stateVersion"]["presence"], 1);
        assert_eq!(names(&snapshot["presence"]), [("homard", "gateway"), ("gateway-client", "backend")]);
        crowd.push(socket);
    }
}

#[tokio::test]
async fn a_crowd_of_all_kinds_is_told_of_once_a_second_and_not_one_by_one() {
    const CROWD: u64 = 96;
    let world = TestGateway::new(says(&["hi"])).await;
    let reader = json!(["operator.read"]);
    let (mut first, _) = comes(&world, 4, json!({}), reader.clone()).await;
    let begun = tokio::time::Instant::now();
    let mut crowd = Vec::new();
    for number in 0..CROWD {
        crowd.push(comes(&world, 4, json!({"instanceId": format!("i-{number}")}), reader.clone()).await.0);
    }
    let mut count = 0.0;
    loop {
        let event = told(&mut first).await;
        count += 1.0;
        assert!(count <= begun.elapsed().as_secs_f64(), "{count} times in {:?}", begun.elapsed());
        if event["stateVersion"]["presence"] == CROWD + 1 {
            // The gateway and the clients that connected last.
            let rows = event["payload"]["presence"].as_array().unwrap();
            assert_eq!((rows.len(), &rows[1]["instanceId"]), (65, &json!(format!("i-{}", CROWD - 64))));
            return;
        }
    }
}

#[tokio::test]
async fn the_machine_is_told_as_far_as_it_is_known() {
    let world = TestGateway::new(says(&["hi"])).await;
    let mut socket = world.client(4, json!({})).await;
    let told = socket.ask("i", "system.info", json!({})).await["payload"].clone();
    for word in ["machineName", "hostname", "platform", "release", "arch", "osLabel", "nodeVersion"] {
        assert!(told[word].is_string(), "{word}: {told}");
    }
    assert_eq!(told["pid"], std::process::id());
    let (all, free) = (told["memoryTotalBytes"].as_u64().unwrap(), told["memoryFreeBytes"].as_u64().unwrap());
    assert!(free <= all && told["cpuCount"].as_u64().unwrap() >= 1 && told["uptimeMs"].is_u64(), "{told}");
    assert!(told["processMemory"]["rssBytes"].as_u64().is_some_and(|rss| 0 < rss && rss < all), "{told}");
}
