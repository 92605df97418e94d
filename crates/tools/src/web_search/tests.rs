//! Tests of requests, caching, and handling of untrusted results.

use homard_egress::SystemResolver;

use super::*;
use crate::{
    search::{Brave, Searxng},
    test_server::{Server, answer},
};

fn tool(provider: impl SearchProvider + 'static) -> WebSearch {
    // 2027-01-15
    let ambient = Ambient::fixed(1_800_000_000_000);
    WebSearch::new(WebSearchSettings::default(), Some(Arc::new(provider)), Arc::new(SystemResolver), ambient)
}

async fn ask(tool: &WebSearch, arguments: Value) -> Result<ToolResult, String> {
    tool.answer(&CancellationToken::new(), Observer::default(), arguments).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_same_query_is_sent_once() {
    let server = Server::replying(answer("", br#"{"results": []}"#)).await;
    let tool = tool(Searxng::new(&server.url("")).unwrap());
    for (arguments, request_count) in [
        (json!({"query": "a"}), 1),
        (json!({"query": " a "}), 1),
        (json!({"query": "a", "count": 6}), 2),
        (json!({"query": "a", "domain_filter": ["b.example"]}), 3),
        (json!({"query": "a"}), 3),
    ] {
        assert_eq!(
            ask(&tool, arguments.clone()).await.map(|_| server.request_count()),
            Ok(request_count),
            "{arguments}"
        );
    }
}

#[tokio::test]
async fn invalid_arguments_are_not_sent() {
    let server = Server::replying(answer("", b"{}")).await;
    let tool = tool(Brave::new("key", Some(&server.url("/"))).unwrap());
    for arguments in [
        json!({"query": "  "}),
        json!({"query": "a", "country": "Germany & more"}),
        json!({"query": "a", "search_lang": "x"}),
        json!({"query": "a", "freshness": "soon"}),
        json!({"query": "a", "freshness": "pd", "date_after": "2026-01-01"}),
        json!({"query": "a", "date_after": "2026-02-01", "date_before": "2026-01-01"}),
        json!({"query": "a", "date_after": "2027-01-16"}),
        json!({"query": "a", "domain_filter": ["a b"]}),
    ] {
        let error = ask(&tool, arguments.clone()).await.unwrap_err();
        assert!(error.starts_with("invalid arguments: "), "{arguments}: {error}");
    }
    assert_eq!(server.request_count(), 0);
}

#[tokio::test]
async fn a_provider_cannot_redirect_requests() {
    let other = Server::replying(answer("", b"{}")).await;
    let response = format!("HTTP/1.1 302 Found\r\nLocation: {}\r\nConnection: close\r\n\r\n", other.url("/"));
    let server = Server::replying(response).await;
    let result = ask(&tool(Brave::new("key", Some(&server.url("/"))).unwrap()), json!({"query": "a"})).await;
    assert_eq!((result, other.request_count()), (Err("the server redirected more than 0 times".to_owned()), 0));
}

#[test]
fn a_domain_filter_includes_subdomains() {
    let domains = DomainFilter::parse(&["A.example", "b.example", "-c.a.example"].map(str::to_owned)).unwrap();
    assert_eq!(domains.operators(), " (site:a.example OR site:b.example) -site:c.a.example");
    let hosts = ["a.example", "x.a.example", "b.example", "c.a.example", "y.c.a.example", "xa.example", "example"];
    assert_eq!(hosts.map(|host| domains.allow(host)), [true, true, true, false, false, false, false]);
    assert!(DomainFilter::default().allow("anything.example"));
}

#[test]
fn a_provider_says_what_it_cannot_be_made_of() {
    assert!(Brave::new(" ", None).is_err() && Brave::new("a\nb", None).is_err() && Brave::new("a", Some("x")).is_err());
    assert!(Searxng::new("localhost").is_err() && Searxng::new("ftp://box").is_err());
    assert!(!format!("{:?}", Brave::new("a-secret", None)).contains("a-secret"));
}
