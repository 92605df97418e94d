//! R12: whatever fails and whenever a run is aborted, no request has a call without its result.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use homard_agent::AbortReason;
use homard_stdx::SeededRng;
use homard_testkit::{
    FakeProvider,
    fake_provider::{
        FakeAnswer, FakeToolCall, ProviderReply, ReceivedRequest, dialect::WireFormat, fault::ProviderFault,
    },
};
use serde_json::{Value, json};

use crate::fixture::{LONG_IDLE, ProviderFixture, SHORT_IDLE, candidates, client_texts, outcome};

/// Default number of seeds; `PROVIDER_SEEDS` overrides it.
const SEEDS: u64 = 60;
/// Number of concurrent seeds.
const AT_ONCE: usize = 12;
/// Messages per seed.
const MESSAGES: usize = 5;
/// Number of requests after which the model makes no more calls.
const CALLING: usize = 24;

#[allow(clippy::disallowed_methods, reason = "a switch for whoever runs the tests")]
fn seeds() -> u64 {
    std::env::var("PROVIDER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS)
}

/// Generates an arbitrary answer.
fn reply(rng: &mut SeededRng, request: &ReceivedRequest) -> ProviderReply {
    let text = (0..rng.below(4)).map(|n| format!("answer{}word{n} ", request.number)).collect();
    let thinking = rng.percent(40).then(|| "Hm.".to_owned());
    let calls = if request.number < CALLING && rng.percent(60) { 1 + rng.below(3) } else { 0 };
    let mut answer = FakeAnswer { thinking, text, calls: (0..calls).map(|_| call(rng)).collect() };
    if answer.calls.is_empty() && answer.text.is_empty() {
        answer.text.push(format!("answer{} ", request.number));
    }
    ProviderReply {
        answer,
        fault: rng.percent(30).then(|| fault(rng)),
        split: rng.percent(50).then(|| rng.next_u64()),
        gate: None,
    }
}

/// Generates a fault; slow ones are rare.
fn fault(rng: &mut SeededRng) -> ProviderFault {
    let fault = ProviderFault::any(rng);
    if let ProviderFault::Stall(position) = fault
        && rng.percent(80)
    {
        return ProviderFault::Cut(position);
    }
    // A fault that ends the run proves nothing about pairs.
    if fault == ProviderFault::Refused(413) { ProviderFault::Refused(500) } else { fault }
}

/// Generates a call with an arbitrary id, often a repeated one.
fn call(rng: &mut SeededRng) -> FakeToolCall {
    let number = rng.below(5);
    let id = match rng.below(5) {
        0 => format!("call_{number}"),
        1 => format!("toolu_{number}"),
        2 => format!("call_{number}|fc_{number}"),
        3 => format!("functions.look:{number} {}", "x".repeat(60)),
        _ => format!("{:024x}", rng.next_u64()),
    };
    let name = (*rng.pick(&["look", "look", "snap", "fail", "fly"])).to_owned();
    let arguments = rng.pick(&[json!({"at": "there"}), json!({}), json!({"at": 7}), Value::Null]).clone();
    FakeToolCall { id, name, arguments }
}

/// Runs a seed; returns the number of requests.
async fn play(seed: u64) -> usize {
    let mut reply_rng = SeededRng::new(seed);
    let fake = FakeProvider::start(move |request| reply(&mut reply_rng, request)).await.unwrap();
    let mut rng = SeededRng::new(!seed);
    let mut models = WireFormat::ALL.map(|dialect| (dialect, SHORT_IDLE));
    models.rotate_left(rng.below(4) as usize);
    models[3].1 = LONG_IDLE;
    let fixture = ProviderFixture::new(candidates(&fake, &models).0);
    for message in 0..MESSAGES {
        let mut subscriber = fixture.submit(&format!("r{message}"), &format!("message {message}")).await;
        let abort_after = rng.percent(40).then(|| rng.below(12));
        let (mut events, mut batches) = (Vec::new(), 0);
        while let Some(batch) = subscriber.next().await {
            events.extend(batch);
            if abort_after == Some(batches) {
                fixture.hub.runs().abort(&fixture.key, None, AbortReason::User).await;
            }
            batches += 1;
        }
        outcome(&events);
        if abort_after.is_none() {
            client_texts(&events);
        }
    }
    fixture.hub.lifecycle().shut_down().await;
    assert_eq!(fake.complaints(), Vec::<String>::new(), "seed {seed}: {:#?}", fake.requests().last());
    fake.requests().len()
}

#[tokio::test]
async fn no_request_has_a_call_without_its_result() {
    let seeds = seeds();
    let plays = (0..seeds).map(|seed| async move {
        let result = tokio::time::timeout(Duration::from_secs(120), play(seed)).await;
        result.unwrap_or_else(|_| panic!("seed {seed} does not end"))
    });
    let mut plays = stream::iter(plays).buffer_unordered(AT_ONCE).enumerate();
    let mut requests = 0;
    while let Some((count, request_count)) = plays.next().await {
        requests += request_count;
        if count % 500 == 499 {
            println!("{} seeds, {requests} requests", count + 1);
        }
    }
    println!("{requests} requests of {seeds} seeds, none of them invalid");
    assert!(requests as u64 > seeds * MESSAGES as u64, "only {requests} requests");
}
