//! Models that fail for a while: every retry is reported, also without a terminal, and the total time of retries is
//! bounded by the config.

use homard_testkit::fake_provider::{FakeProvider, ProviderReply, dialect::WireFormat, fault::ProviderFault};
use serde_json::{Value, json};

use crate::home::{CommandOutput, Home};

/// Starts a model that fails this many times with this status, and then answers.
async fn failing(status: u16, times: usize) -> FakeProvider {
    let reply = move |asked: &homard_testkit::fake_provider::ReceivedRequest| match asked.number < times {
        true => ProviderReply { fault: Some(ProviderFault::Refused(status)), ..ProviderReply::default() },
        false => ProviderReply::text("Aye"),
    };
    FakeProvider::start(reply).await.unwrap()
}

/// Creates a home whose agent tries these in order, and retries at most this long.
fn home_of(providers: &[&FakeProvider], seconds: u64) -> Home {
    let home = Home::new();
    let provider = |provider: &FakeProvider| {
        json!({
            "baseUrl": provider.base_url(WireFormat::Chat), "apiKey": "none", "api": "openai-completions",
            "models": [{"id": "m"}],
        })
    };
    let names: Vec<_> = (0..providers.len()).map(|place| format!("p{place}")).collect();
    let configured: serde_json::Map<_, _> =
        names.iter().cloned().zip(providers.iter().map(|one| provider(one))).collect();
    let models: Vec<_> = names.iter().map(|name| format!("{name}/m")).collect();
    let model = json!({"primary": models[0], "fallbacks": models[1..]});
    let agents = json!({"defaults": {"model": model, "retry": {"maxTotalSeconds": seconds}}});
    home.configure(&json!({"agents": agents, "models": {"providers": configured}}).to_string());
    home
}

/// Returns the lines about models on stderr, without delays and addresses.
fn told(said: &CommandOutput, providers: &[&FakeProvider]) -> Vec<String> {
    let lines = said.stderr.lines().filter(|line| line.starts_with("✗ model "));
    let plain = |line: &str| {
        let hosts = providers.iter().map(|provider| host(provider)).enumerate();
        let line = hosts.fold(line.to_owned(), |line, (place, host)| line.replace(&host, &format!("host{place}")));
        match line.split_once("retrying in ") {
            Some((before, after)) => {
                format!("{before}retrying in {}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
            }
            None => line,
        }
    };
    lines.map(plain).collect()
}

fn host(provider: &FakeProvider) -> String {
    let url = provider.base_url(WireFormat::Chat);
    url.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_learns_of_every_retry_with_and_without_a_gateway() {
    for is_gateway in [false, true] {
        let provider = failing(503, 1).await;
        let home = home_of(&[&provider], 60);
        let gateway = is_gateway.then(|| home.gateway());
        let run = |args: &[&str]| gateway.as_ref().map_or_else(|| home.run(args), |gateway| gateway.run(args));
        let said = run(&["agent", "-m", "hello", "--json"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        for place in ["/result/payloads/0/text", "/payloads/0/text"] {
            assert_eq!(said.json().pointer(place), Some(&json!("Aye")), "{said:?}");
        }
        let lines = told(&said, &[&provider]);
        assert!(matches!(&lines[..], [line] if line.starts_with("✗ model p0/m (host0): HTTP 503: ")), "{said:?}");
        assert!(lines[0].ends_with("; retrying in s (attempt 2 of at most 5)"), "{lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_are_bounded_and_every_candidate_says_why_it_failed() {
    let (first, second) = (failing(503, 99).await, failing(500, 99).await);
    let providers = [&first, &second];
    let home = home_of(&providers, 4);
    let said = home.run(&["agent", "-m", "hello"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{said:?}");
    // The first one is retried once, and then the time is up: the second gets its one attempt.
    assert_eq!((first.requests().len(), second.requests().len()), (2, 1), "{said:?}");
    let lines = told(&said, &providers);
    assert!(matches!(&lines[..], [_, next] if next.ends_with("(overloaded); trying the next model")), "{lines:?}");
    let plain = said.stderr.replace(&host(&first), "host0").replace(&host(&second), "host1");
    let cause = plain.lines().find(|line| line.contains("no model answered: ")).unwrap_or_else(|| panic!("{plain}"));
    assert!(cause.contains("p0/m (host0): HTTP 503: ") && cause.contains("(2 attempts in "), "{cause}");
    assert!(cause.contains(" | p1/m (host1): HTTP 500: "), "{cause}");
    let trace: Value = home.run(&["trace", "last", "--json"]).json();
    assert!(trace["run"]["error"].as_str().unwrap().contains("no model answered: "), "{trace}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_time_for_retries_the_last_error_comes_at_once() {
    let provider = failing(503, 99).await;
    let home = home_of(&[&provider], 0);
    let said = home.run(&["agent", "-m", "hello", "--json"]);
    assert_eq!((said.code, provider.requests().len()), (Some(1), 1), "{said:?}");
    let why = said.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(why.starts_with(&format!("p0 ({}): HTTP 503: ", host(&provider))), "{why}");
    assert_eq!(said.stderr, "");
}
