//! Tests of caching and cancellation.

use homard_egress::SystemResolver;
use homard_runtime::ambient::Ambient;
use tokio::time::advance;

use super::*;
use crate::test_server::{Server, answer};

fn tool() -> WebFetch {
    let limits = EgressLimits { allow: vec!["127.0.0.1".parse().unwrap()], ..EgressLimits::default() };
    let settings = WebFetchSettings { bounds: limits, ..WebFetchSettings::default() };
    WebFetch::new(settings, Arc::new(SystemResolver), Ambient::fixed(0))
}

async fn details(tool: &WebFetch, arguments: Value) -> Value {
    tool.answer(&CancellationToken::new(), Observer::default(), arguments).await.unwrap().details.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_page_is_fetched_once_in_a_quarter_of_an_hour() {
    let server = Server::replying(answer("Content-Type: text/plain\r\n", "é".repeat(150).as_bytes())).await;
    let tool = tool();
    let first = details(&tool, json!({"url": server.url("/")})).await;
    advance(Duration::from_secs(15 * 60 - 1)).await;
    let again = details(&tool, json!({"url": server.url("/"), "maxChars": 120})).await;
    assert_eq!(server.request_count(), 1);
    assert_eq!((&first["cached"], &first["length"], &first["truncated"]), (&json!(null), &json!(150), &json!(false)));
    assert_eq!((&again["cached"], &again["length"], &again["truncated"]), (&json!(true), &json!(120), &json!(true)));
    assert_eq!(again["fetchedAt"], first["fetchedAt"]);
    advance(Duration::from_secs(1)).await;
    assert_eq!(
        (details(&tool, json!({"url": server.url("/")})).await["cached"].clone(), server.request_count()),
        (json!(null), 2)
    );
}

#[tokio::test]
async fn another_page_or_another_mode_is_another_fetch() {
    let server = Server::replying(answer("Content-Type: text/html\r\n", b"<p>a <b>b</b></p>")).await;
    let tool = tool();
    let texts = [
        details(&tool, json!({"url": server.url("/")})).await,
        details(&tool, json!({"url": server.url("/"), "extractMode": "text"})).await,
        details(&tool, json!({"url": server.url("/?x")})).await,
    ];
    assert_eq!(
        (texts.map(|details| details["text"].clone()), server.request_count()),
        (["a **b**", "a b", "a **b**"].map(|text| json!(text)), 3)
    );
}

#[tokio::test]
async fn a_failure_is_not_cached() {
    let server = Server::replying("HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\nno").await;
    let tool = tool();
    for _ in 0..2 {
        assert_eq!(details(&tool, json!({"url": server.url("/")})).await["status"], 500);
    }
    assert_eq!(server.request_count(), 2);
}

#[tokio::test]
async fn a_stopped_run_does_not_wait() {
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let server = Server::at("127.0.0.1", move |stream, _| {
        // Cancels when the request has arrived at a server that never answers.
        stop.cancel();
        async move {
            std::future::pending::<()>().await;
            drop(stream);
        }
    });
    let server = server.await;
    let result = tool().answer(&cancel, Observer::default(), json!({"url": server.url("/")})).await;
    assert_eq!((result, server.request_count()), (Err(Error::Stopped), 1));
}

#[test]
fn the_limit_counts_characters() {
    assert_eq!([head("äöü", 2), head("äöü", 3), head("", 3)], [("äö", 3), ("äöü", 3), ("", 0)]);
}
