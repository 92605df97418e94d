//! The prompt-cache contract: each request begins with the bytes of the previous one, and the reported usage shows it.

use homard_agent::{RequestEvent, RunEvent, StoredEvent, TapeEvent};
use homard_proto::message::Usage;
use homard_stdx::SeededRng;
use homard_testkit::{
    FakeProvider,
    fake_provider::{
        FakeAnswer, FakeToolCall, ProviderReply, ReceivedRequest, dialect::WireFormat, fault::ProviderFault,
    },
};
use serde_json::json;

use crate::fixture::{LONG_IDLE, ProviderFixture, candidates};

const SEEDS: u64 = 6;
const MESSAGES: usize = 5;

/// Generates a reply: text, sometimes calls, sometimes a fault after which the request is repeated.
fn reply(rng: &mut SeededRng, request: &ReceivedRequest, faults: &[ProviderFault]) -> ProviderReply {
    let number = request.number;
    let call = |index: u64| FakeToolCall {
        id: format!("call_{index}"),
        name: ["look", "snap", "fail"][number % 3].to_owned(),
        arguments: json!({"at": format!("place {number}")}),
    };
    let calls = if rng.percent(50) { 1 + rng.below(2) } else { 0 };
    let text = vec![format!("These are the words of answer number {number}. ")];
    let answer = FakeAnswer { thinking: Some("Hm.".to_owned()), text, calls: (0..calls).map(call).collect() };
    ProviderReply { answer, fault: rng.percent(20).then(|| *rng.pick(faults)), split: None, gate: None }
}

/// Runs a conversation; returns the requests and the events.
async fn run_conversation(
    seed: u64,
    dialects: &[WireFormat],
    faults: &'static [ProviderFault],
) -> (Vec<ReceivedRequest>, Vec<TapeEvent>) {
    let mut rng = SeededRng::new(seed);
    let fake = FakeProvider::start(move |request| reply(&mut rng, request, faults)).await.unwrap();
    let models: Vec<_> = dialects.iter().map(|dialect| (*dialect, LONG_IDLE)).collect();
    let fixture = ProviderFixture::new(candidates(&fake, &models).0);
    let mut events = Vec::new();
    for message in 0..MESSAGES {
        let text = format!("This is message number {message}, which says a little more than nothing.");
        events.extend(fixture.send(&format!("r{message}"), &text).await);
    }
    fixture.hub.lifecycle().shut_down().await;
    assert_eq!(fake.complaints(), Vec::<String>::new());
    (fake.requests(), events)
}

/// Asserts that each request of a model begins with the bytes of its previous one.
fn assert_common_prefix(requests: &[ReceivedRequest], dialect: WireFormat) {
    let prompts: Vec<_> =
        requests.iter().filter(|request| request.dialect == dialect).map(ReceivedRequest::prompt).collect();
    for pair in prompts.windows(2) {
        // The next message may be added to the same list.
        let begin = pair[0].trim_end_matches([']', '}']);
        assert!(pair[1].starts_with(begin), "{dialect:?} was told\n{}\nand then\n{}", pair[0], pair[1]);
    }
}

fn usages(events: &[TapeEvent]) -> Vec<Usage> {
    let usage_of = |event: &TapeEvent| {
        if let RunEvent::Stored(StoredEvent::Assistant { message: answer, .. }) = &event.kind {
            Some(answer.usage.clone())
        } else {
            None
        }
    };
    events.iter().filter_map(usage_of).filter(|usage| usage.total_tokens > 0).collect()
}

/// Returns the cached share of the prompt.
fn hit_ratio(usage: &Usage) -> f64 {
    usage.cache_read as f64 / (usage.input + usage.cache_read + usage.cache_write) as f64
}

#[tokio::test]
async fn each_request_begins_with_the_bytes_of_the_one_before() {
    for dialect in WireFormat::ALL {
        for seed in 0..SEEDS {
            let (requests, _) = run_conversation(
                seed,
                &[dialect],
                &[ProviderFault::Cut(9), ProviderFault::Refused(500), ProviderFault::Garbage(3)],
            )
            .await;
            assert!(requests.len() > MESSAGES);
            assert_common_prefix(&requests, dialect);
        }
    }
}

#[tokio::test]
async fn a_fallback_changes_no_byte_and_is_reported() {
    for seed in 0..SEEDS {
        let (requests, events) =
            run_conversation(seed, &WireFormat::ALL, &[ProviderFault::Refused(401), ProviderFault::Cut(9)]).await;
        WireFormat::ALL.into_iter().for_each(|dialect| assert_common_prefix(&requests, dialect));
        let switches = requests.windows(2).filter(|pair| pair[0].dialect != pair[1].dialect).count();
        let failures = events
            .iter()
            .filter(|event| matches!(event.kind, RunEvent::Model(RequestEvent::CandidateFailed { .. })))
            .count();
        assert!(
            switches <= failures,
            "{switches} times another model was asked, and {failures} times somebody was told"
        );
    }
}

#[tokio::test]
async fn usage_reports_the_cached_share_of_a_prompt() {
    for dialect in WireFormat::ALL {
        let (requests, events) = run_conversation(3, &[dialect], &[ProviderFault::Refused(500)]).await;
        let usages = usages(&events);
        assert!(usages.len() > MESSAGES, "{dialect:?}: {usages:?}");
        let ratios: Vec<_> = usages.iter().map(hit_ratio).collect();
        // All of a prompt but its last message was sent before, so only the new part is uncached.
        assert!(ratios[0] < 0.1 && ratios[MESSAGES..].iter().all(|ratio| *ratio > 0.75), "{dialect:?}: {ratios:?}");
        let last = requests.last().map(|request| request.prompt().len() as u64 / 4);
        assert_eq!(usages.last().map(|usage| usage.input + usage.cache_read), last, "{dialect:?}");
    }
}
