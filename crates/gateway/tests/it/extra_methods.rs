//! Extensions of a gateway: registered methods, broadcast events, and warnings.

use std::{cell::Cell, rc::Rc};

use homard_gateway::{Audience, Broadcaster, Gateway, Method, MethodRequest, MethodScopes, OperatorWarnings, Scope};
use homard_proto::{ErrorShape, Generation, method::config::LookupParams};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{PATIENCE, TestClient, TestGateway, connect};

/// A method that returns its parameters and caller.
fn lookup() -> Method {
    Method::new("config.schema.lookup", Scope::Read, |mut request: MethodRequest| async move {
        let LookupParams { path } = request.params()?;
        let generation = request.generation().number();
        let granted = [Scope::Read, Scope::Write, Scope::Admin].map(|scope| request.has_scope(scope));
        Ok(json!({"path": path, "protocol": generation, "principal": request.principal(), "may": granted}))
    })
}

fn answers(name: &'static str, scopes: impl Into<MethodScopes>) -> Method {
    Method::new(name, scopes, move |_| async move { Ok(json!(name)) })
}

/// Method names in the hello of a new client.
async fn advertised(gateway: &TestGateway) -> Vec<String> {
    let (mut socket, _) = gateway.open().await;
    let hello = socket.ask("hello", "connect", connect(4)).await;
    serde_json::from_value(hello["payload"]["features"]["methods"].clone()).unwrap()
}

#[tokio::test]
async fn an_added_method_is_advertised_and_answered() {
    let plain = advertised(&TestGateway::with(|gateway| gateway).await).await;
    assert!(!plain.contains(&"config.schema.lookup".to_owned()));

    let gateway = TestGateway::with(|gateway| gateway.with_methods(vec![lookup()])).await;
    let mut expected = plain;
    expected.push("config.schema.lookup".to_owned());
    assert_eq!(advertised(&gateway).await, expected);

    let mut old = gateway.client(3, json!({})).await;
    assert_eq!(
        old.ask("1", "config.schema.lookup", json!({"path": "a.b"})).await,
        json!({
            "type": "res", "id": "1", "ok": true,
            "payload": {"path": "a.b", "protocol": 3, "principal": "owner", "may": [true, true, true]},
        })
    );
    let mut new = gateway.client(4, json!({"scopes": ["operator.read"]})).await;
    assert_eq!(
        new.ask("1", "config.schema.lookup", json!({"path": "a"})).await["payload"],
        json!({"path": "a", "protocol": 4, "principal": "owner", "may": [true, false, false]})
    );
    let refused = |message: &str| json!({"code": "INVALID_REQUEST", "message": message});
    assert_eq!(
        new.ask("2", "config.schema.lookup", json!({})).await["error"],
        refused("invalid config.schema.lookup params: must have required property 'path'")
    );
    // A caller without the admin scope does not learn whether a method exists.
    assert_eq!(new.ask("3", "config.get", json!({})).await["error"]["message"], "missing scope: operator.admin");
    let mut owner = gateway.client(4, json!({})).await;
    assert_eq!(owner.ask("3", "config.get", json!({})).await["error"], refused("unknown method: config.get"));
}

#[tokio::test]
async fn an_added_method_needs_its_scope_which_may_differ_by_generation() {
    let scopes = MethodScopes { v3: Scope::Admin, v4: Scope::Read };
    let gateway = TestGateway::with(|gateway| gateway.with_methods(vec![answers("config.get", scopes)])).await;
    let reader = json!({"scopes": ["operator.read"]});
    let mut old = gateway.client(3, reader.clone()).await;
    assert_eq!(
        old.ask("1", "config.get", json!({})).await["error"],
        json!({"code": "INVALID_REQUEST", "message": "missing scope: operator.admin"})
    );
    let mut admin = gateway.client(3, json!({"scopes": ["operator.admin"]})).await;
    assert_eq!(admin.ask("1", "config.get", json!({})).await["payload"], "config.get");
    let mut new = gateway.client(4, reader).await;
    assert_eq!(new.ask("1", "config.get", json!({})).await["payload"], "config.get");
    let mut unprivileged = gateway.client(4, json!({"scopes": []})).await;
    assert_eq!(unprivileged.ask("1", "config.get", json!({})).await["error"]["code"], "FORBIDDEN");
}

#[tokio::test]
async fn an_added_method_that_fails_or_panics_returns_an_error() {
    let fails = Method::new("fails", Scope::Read, |_| async { Err(ErrorShape::unavailable("not now")) });
    let panics = Method::new("breaks", Scope::Read, |_| async { panic!("a bug") });
    // This one panics before it returns a future.
    let panics_early = Method::new("bursts", Scope::Read, |request: MethodRequest| {
        assert_ne!(request.generation(), Generation::Three, "another bug");
        async { Ok(Value::Null) }
    });
    let gateway = TestGateway::with(|gateway| gateway.with_methods(vec![fails, panics, panics_early])).await;
    let mut socket = gateway.client(3, json!({})).await;
    let unavailable = |message: &str| json!({"code": "UNAVAILABLE", "message": message});
    assert_eq!(socket.ask("1", "fails", json!({})).await["error"], unavailable("not now"));
    for name in ["breaks", "bursts"] {
        let message = format!("internal error in {name}; see the gateway's log");
        assert_eq!(socket.ask("2", name, json!({})).await["error"], unavailable(&message));
    }
    assert_eq!(socket.ask("3", "health", json!({})).await["ok"], true);
}

#[tokio::test]
async fn an_added_method_cannot_replace_an_existing_one() {
    let duplicate = Method::new("mine", Scope::Read, |_| async { Ok(json!("another")) });
    let added =
        vec![answers("connect", Scope::Read), answers("health", Scope::Read), answers("mine", Scope::Read), duplicate];
    let gateway = TestGateway::with(|gateway| gateway.with_methods(added)).await;
    let names = advertised(&gateway).await;
    let count = |name: &str| names.iter().filter(|found| *found == name).count();
    assert_eq!(["connect", "health", "mine"].map(count), [0, 1, 1]);
    let mut socket = gateway.client(4, json!({})).await;
    assert_eq!(socket.ask("1", "health", json!({})).await["payload"]["ok"], true);
    assert_eq!(socket.ask("2", "mine", json!({})).await["payload"], "mine");
}

/// Starts a gateway and returns what was taken from it before it served.
async fn with_handle<T>(get_handle: impl FnOnce(&Gateway) -> T) -> (TestGateway, T) {
    let handle = Rc::new(Cell::new(None));
    let handle_setter = handle.clone();
    let gateway = TestGateway::with(|gateway| {
        handle_setter.set(Some(get_handle(&gateway)));
        gateway
    });
    (gateway.await, handle.take().unwrap())
}

/// Connects a client and waits until it is registered for events.
async fn connected_client(gateway: &TestGateway, protocol: u64, scopes: &[&str]) -> TestClient {
    let mut socket = gateway.client(protocol, json!({"scopes": scopes})).await;
    // Any response shows that it is registered.
    socket.ask("joined", "health", json!({})).await;
    socket
}

/// Names and sequence numbers of the events up to `last`.
async fn events_until(socket: &mut TestClient, last: &str) -> Vec<(String, u64)> {
    let mut events = Vec::new();
    while events.last().is_none_or(|(name, _)| name != last) {
        let frame = socket.next().await;
        events.push((frame["event"].as_str().unwrap().to_owned(), frame["seq"].as_u64().unwrap()));
    }
    events
}

#[tokio::test]
async fn broadcasts_reach_clients_with_the_protocol_and_scope() {
    let (gateway, broadcaster): (_, Broadcaster) = with_handle(Gateway::broadcaster).await;
    // No client is connected yet.
    broadcaster.publish("early", &json!({}), Audience { scope: None, min_protocol: Generation::Three });
    let mut old = connected_client(&gateway, 3, &["operator.admin"]).await;
    let mut admin = connected_client(&gateway, 4, &["operator.admin"]).await;
    let mut reader = connected_client(&gateway, 4, &["operator.read"]).await;
    let mut unprivileged = connected_client(&gateway, 4, &[]).await;
    let all = Audience { scope: None, min_protocol: Generation::Three };
    broadcaster.publish(
        "config.changed",
        &json!({"hash": "abc"}),
        Audience { scope: Some(Scope::Read), min_protocol: Generation::Four },
    );
    broadcaster.publish(
        "secret.changed",
        &json!({}),
        Audience { scope: Some(Scope::Admin), min_protocol: Generation::Four },
    );
    broadcaster.publish("done", &json!({}), all);
    let numbered =
        |names: &[&str]| -> Vec<(String, u64)> { names.iter().map(|&name| name.to_owned()).zip(2..).collect() };
    assert_eq!(events_until(&mut old, "done").await, numbered(&["done"]));
    assert_eq!(events_until(&mut unprivileged, "done").await, numbered(&["done"]));
    assert_eq!(events_until(&mut admin, "done").await, numbered(&["config.changed", "secret.changed", "done"]));
    assert_eq!(
        reader.next().await,
        json!({"type": "event", "event": "config.changed", "payload": {"hash": "abc"}, "seq": 2})
    );
    assert_eq!(reader.next().await["event"], "done");
}

#[tokio::test]
async fn a_broadcaster_does_not_keep_a_gateway_from_stopping() {
    let (gateway, broadcaster): (_, Broadcaster) = with_handle(Gateway::broadcaster).await;
    gateway.stop.cancel();
    timeout(PATIENCE, gateway.serving).await.expect("the gateway stops").unwrap();
    // No client is connected any more; this must not fail.
    broadcaster.publish("late", &json!({}), Audience { scope: None, min_protocol: Generation::Three });
}

#[tokio::test]
async fn warnings_are_set_and_cleared_while_the_gateway_runs() {
    let (gateway, warnings): (_, OperatorWarnings) = with_handle(Gateway::warnings).await;
    let mut socket = gateway.client(4, json!({})).await;
    for (topic, text, expected) in [
        ("config", None, None),
        ("config", Some("line 3 is wrong"), Some("line 3 is wrong")),
        ("config", Some("line 4 is wrong"), Some("line 4 is wrong")),
        ("runs", Some("runs are held"), Some("line 4 is wrong; runs are held")),
        ("config", None, Some("runs are held")),
        ("runs", None, None),
    ] {
        warnings.set(topic, text.map(str::to_owned));
        for method in ["health", "status"] {
            let answer = socket.ask("1", method, json!({})).await;
            assert_eq!(answer["payload"].get("notice").and_then(Value::as_str), expected, "{method}");
        }
    }
}

#[tokio::test]
async fn warnings_of_several_topics_are_joined() {
    let gateway = TestGateway::with(|gateway| {
        gateway.warnings().set("config", Some("line 3 is wrong".to_owned()));
        gateway.warnings().set("start", Some("runs are held".to_owned()));
        gateway
    });
    let mut socket = gateway.await.client(3, json!({})).await;
    let health = socket.ask("1", "health", json!({})).await;
    assert_eq!(health["payload"]["notice"], "line 3 is wrong; runs are held");
}
