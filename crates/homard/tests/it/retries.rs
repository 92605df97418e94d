//! Models that fail for a while: every retry is reported, also without a terminal, and the total time of retries is
//! bounded by the config.

use homard_testkit::fake_provider::{FakeProvider, ProviderReply, dialect::WireFormat, fault::ProviderFault};
use serde_json::{Value, json};

use crate::home::{CommandOutput, Home};

/// Starts a model that fails this many times with this status, and then answers.
async fn failing(status: u16, times: usize) -> FakeProvider {
    let reply = move |request: &homard_testkit::fake_provider::ReceivedRequest| match request.number < times {
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
    let names: Vec<_> = (0..providers.len()).map(|index| format!("p{index}")).collect();
    let configured: serde_json::Map<_, _> =
        names.iter().cloned().zip(providers.iter().map(|item| provider(item))).collect();
    let models: Vec<_> = names.iter().map(|name| format!("{name}/m")).collect();
    let model = json!({"primary": models[0], "fallbacks": models[1..]});
    let agents = json!({"defaults": {"model": model, "retry": {"maxTotalSeconds": seconds}}});
    home.configure(&json!({"agents": agents, "models": {"providers": configured}}).to_string());
    home
}

/// Returns the lines about models on stderr, without delays and addresses.
fn normalised_lines(output: &CommandOutput, providers: &[&FakeProvider]) -> Vec<String> {
    let lines = output.stderr.lines().filter(|line| line.starts_with("✗ model "));
    let plain = |line: &str| {
        let hosts = providers.iter().map(|provider| host(provider)).enumerate();
        let line = hosts.fold(line.to_owned(), |line, (index, host)| line.replace(&host, &format!("host{index}")));
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
async fn every_retry_is_printed_to_a_pipe_with_and_without_a_gateway() {
    for is_gateway in [false, true] {
        let provider = failing(503, 1).await;
        let home = home_of(&[&provider], 60);
        let gateway = is_gateway.then(|| home.gateway());
        let run = |args: &[&str]| gateway.as_ref().map_or_else(|| home.run(args), |gateway| gateway.run(args));
        let output = run(&["agent", "-m", "hello", "--json"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        for pointer in ["/result/payloads/0/text", "/payloads/0/text"] {
            assert_eq!(output.json().pointer(pointer), Some(&json!("Aye")), "{output:?}");
        }
        let lines = normalised_lines(&output, &[&provider]);
        assert!(matches!(&lines[..], [line] if line.starts_with("✗ model p0/m (host0): HTTP 503: ")), "{output:?}");
        assert!(lines[0].ends_with("; retrying in s (attempt 2 of at most 5)"), "{lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_are_bounded_and_every_candidates_failure_is_shown() {
    let (first, second) = (failing(503, 99).await, failing(500, 99).await);
    let providers = [&first, &second];
    let home = home_of(&providers, 4);
    let output = home.run(&["agent", "-m", "hello"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""), "{output:?}");
    // The first one is retried once, and then the time is up: the second gets its one attempt.
    assert_eq!((first.requests().len(), second.requests().len()), (2, 1), "{output:?}");
    let lines = normalised_lines(&output, &providers);
    assert!(matches!(&lines[..], [_, next] if next.ends_with("(overloaded); trying the next model")), "{lines:?}");
    let plain = output.stderr.replace(&host(&first), "host0").replace(&host(&second), "host1");
    let cause = plain.lines().find(|line| line.contains("no model answered: ")).unwrap_or_else(|| panic!("{plain}"));
    assert!(cause.contains("p0/m (host0): HTTP 503: ") && cause.contains("(2 attempts in "), "{cause}");
    assert!(cause.contains(" | p1/m (host1): HTTP 500: "), "{cause}");
    let trace: Value = home.run(&["trace", "last", "--json"]).json();
    assert!(trace["run"]["error"].as_str().unwrap().contains("no model answered: "), "{trace}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_time_for_retries_the_last_error_is_returned_at_once() {
    let provider = failing(503, 99).await;
    let home = home_of(&[&provider], 0);
    let output = home.run(&["agent", "-m", "hello", "--json"]);
    assert_eq!((output.code, provider.requests().len()), (Some(1), 1), "{output:?}");
    let reason = output.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(reason.starts_with(&format!("p0 ({}): HTTP 503: ", host(&provider))), "{reason}");
    assert_eq!(output.stderr, "");
}
