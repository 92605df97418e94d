//! How long a run, a provider and a model may take, with a model that never answers.

use homard_testkit::fake_provider::{FakeProvider, ProviderReply, dialect::WireFormat, fault::ProviderFault};
use serde_json::{Value, json};

use crate::home::{CommandOutput, Home};

/// Asks an agent whose first model never answers and whose second does: what it said, how often each was asked.
async fn asked(run: Option<u64>, provider: Option<u64>, model: Option<u64>) -> (CommandOutput, [usize; 2]) {
    let stall = |_: &_| ProviderReply { fault: Some(ProviderFault::Stall(0)), ..ProviderReply::text("never said") };
    let slow = FakeProvider::start(stall).await.unwrap();
    let good = FakeProvider::start(|_: &_| ProviderReply::text("good day")).await.unwrap();
    let entry = |provider: &FakeProvider, seconds: Option<u64>, of_model: Option<u64>| {
        let mut entry = json!({
            "baseUrl": provider.base_url(WireFormat::Chat), "apiKey": "none", "api": "openai-completions",
            "models": [{"id": "m", "contextWindow": 100_000, "maxTokens": 4_096}],
        });
        let set = |value: &mut Value, seconds: Option<u64>| {
            if let Some(seconds) = seconds {
                value["timeoutSeconds"] = seconds.into();
            }
        };
        set(&mut entry, seconds);
        set(&mut entry["models"][0], of_model);
        entry
    };
    let mut defaults = json!({"model": {"primary": "slow/m", "fallbacks": ["good/m"]}});
    if let Some(run) = run {
        defaults["timeoutSeconds"] = run.into();
    }
    let home = Home::new();
    let providers = json!({"slow": entry(&slow, provider, model), "good": entry(&good, None, None)});
    home.configure(&json!({"agents": {"defaults": defaults}, "models": {"providers": providers}}).to_string());
    let said = home.run(&["agent", "--local", "-m", "hello"]);
    (said, [slow.requests().len(), good.requests().len()])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_says_nothing_for_its_time_is_given_up() {
    let (said, counts) = asked(None, Some(1), None).await;
    assert_eq!((said.stdout.trim(), counts), ("good day", [1, 1]), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_model_counts_more_than_that_of_its_provider() {
    let (said, counts) = asked(None, Some(600), Some(1)).await;
    assert_eq!((said.stdout.trim(), counts), ("good day", [1, 1]), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_when_its_time_is_over_whatever_its_models_may_take() {
    let (said, counts) = asked(Some(1), Some(600), Some(600)).await;
    assert_eq!(counts, [1, 0], "{said:?}");
    assert!(said.code != Some(0) && said.stderr.contains("took longer than its timeout"), "{said:?}");
}
