//! R12: whatever fails and whenever a run is aborted, no request has a call without its result.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use homard_agent::AbortReason;
use homard_testkit::{
    FakeProvider,
    fake_provider::{
        FakeAnswer, FakeToolCall, ProviderReply, ReceivedRequest, dialect::WireFormat, fault::ProviderFault,
    },
    rng::SeededRng,
};
use serde_json::{Value, json};

use crate::house::{LONG_IDLE, ProviderFixture, SHORT_IDLE, candidates, outcome, shown};

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
fn reply(dice: &mut SeededRng, asked: &ReceivedRequest) -> ProviderReply {
    let text = (0..dice.below(4)).map(|n| format!("answer{}word{n} ", asked.number)).collect();
    let thinking = dice.percent(40).then(|| "Hm.".to_owned());
    let calls = if asked.number < CALLING && dice.percent(60) { 1 + dice.below(3) } else { 0 };
    let mut said = FakeAnswer { thinking, text, calls: (0..calls).map(|_| call(dice)).collect() };
    if said.calls.is_empty() && said.text.is_empty() {
        said.text.push(format!("answer{} ", asked.number));
    }
    ProviderReply {
        answer: said,
        fault: dice.percent(30).then(|| fault(dice)),
        split: dice.percent(50).then(|| dice.next_u64()),
        gate: None,
    }
}

/// Generates a fault; slow ones are rare.
fn fault(dice: &mut SeededRng) -> ProviderFault {
    let fault = ProviderFault::any(dice);
    if let ProviderFault::Stall(place) = fault
        && dice.percent(80)
    {
        return ProviderFault::Cut(place);
    }
    // A fault that ends the run proves nothing about pairs.
    if fault == ProviderFault::Refused(413) { ProviderFault::Refused(500) } else { fault }
}

/// Generates a call with an arbitrary id, often a repeated one.
fn call(dice: &mut SeededRng) -> FakeToolCall {
    let number = dice.below(5);
    let id = match dice.below(5) {
        0 => format!("call_{number}"),
        1 => format!("toolu_{number}"),
        2 => format!("call_{number}|fc_{number}"),
        3 => format!("functions.look:{number} {}", "x".repeat(60)),
        _ => format!("{:024x}", dice.next_u64()),
    };
    let name = (*dice.pick(&["look", "look", "snap", "fail", "fly"])).to_owned();
    let arguments = dice.pick(&[json!({"at": "there"}), json!({}), json!({"at": 7}), Value::Null]).clone();
    FakeToolCall { id, name, arguments }
}

/// Runs a seed; returns the number of requests.
async fn play(seed: u64) -> usize {
    let mut answering = SeededRng::new(seed);
    let fake = FakeProvider::start(move |asked| reply(&mut answering, asked)).await.unwrap();
    let mut dice = SeededRng::new(!seed);
    let mut models = WireFormat::ALL.map(|dialect| (dialect, SHORT_IDLE));
    models.rotate_left(dice.below(4) as usize);
    models[3].1 = LONG_IDLE;
    let house = ProviderFixture::new(candidates(&fake, &models).0);
    for message in 0..MESSAGES {
        let mut follower = house.begin(&format!("r{message}"), &format!("message {message}")).await;
        let stops_after = dice.percent(40).then(|| dice.below(12));
        let (mut events, mut news) = (Vec::new(), 0);
        while let Some(more) = follower.next().await {
            events.extend(more);
            if stops_after == Some(news) {
                house.hub.abort(&house.key, None, AbortReason::User).await;
            }
            news += 1;
        }
        outcome(&events);
        if stops_after.is_none() {
            shown(&events);
        }
    }
    house.hub.shut_down().await;
    assert_eq!(fake.complaints(), Vec::<String>::new(), "seed {seed}: {:#?}", fake.requests().last());
    fake.requests().len()
}

#[tokio::test]
async fn no_request_has_a_call_without_its_result() {
    let seeds = seeds();
    let playing = (0..seeds).map(|seed| async move {
        let played = tokio::time::timeout(Duration::from_secs(120), play(seed)).await;
        played.unwrap_or_else(|_| panic!("seed {seed} does not end"))
    });
    let mut playing = stream::iter(playing).buffer_unordered(AT_ONCE).enumerate();
    let mut requests = 0;
    while let Some((count, asked)) = playing.next().await {
        requests += asked;
        if count % 500 == 499 {
            println!("{} seeds, {requests} requests", count + 1);
        }
    }
    println!("{requests} requests of {seeds} seeds, none of them invalid");
    assert!(requests as u64 > seeds * MESSAGES as u64, "only {requests} requests");
}
