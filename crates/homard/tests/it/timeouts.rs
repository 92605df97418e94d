//! How long a run, a provider and a model may take, with a model that never answers.

use homard_testkit::fake_provider::{FakeProvider, ProviderReply, dialect::WireFormat, fault::ProviderFault};
use serde_json::{Value, json};

use crate::home::{CommandOutput, Home};

/// Asks an agent whose first model never answers and whose second does: what it said, how often each was asked.
async fn output_and_requests(
    run: Option<u64>,
    provider: Option<u64>,
    model: Option<u64>,
) -> (CommandOutput, [usize; 2]) {
    let stall = |_: &_| ProviderReply { fault: Some(ProviderFault::Stall(0)), ..ProviderReply::text("never said") };
    let slow = FakeProvider::start(stall).await.unwrap();
    let working = FakeProvider::start(|_: &_| ProviderReply::text("good day")).await.unwrap();
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
    let providers = json!({"slow": entry(&slow, provider, model), "good": entry(&working, None, None)});
    home.configure(&json!({"agents": {"defaults": defaults}, "models": {"providers": providers}}).to_string());
    let output = home.run(&["agent", "--local", "-m", "hello"]);
    (output, [slow.requests().len(), working.requests().len()])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_provider_times_out() {
    let (output, counts) = output_and_requests(None, Some(1), None).await;
    assert_eq!((output.stdout.trim(), counts), ("good day", [1, 1]), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_models_timeout_overrides_its_providers() {
    let (output, counts) = output_and_requests(None, Some(600), Some(1)).await;
    assert_eq!((output.stdout.trim(), counts), ("good day", [1, 1]), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_timeout_applies_regardless_of_model_timeouts() {
    let (output, counts) = output_and_requests(Some(1), Some(600), Some(600)).await;
    assert_eq!(counts, [1, 0], "{output:?}");
    assert!(output.code != Some(0) && output.stderr.contains("took longer than its timeout"), "{output:?}");
}
