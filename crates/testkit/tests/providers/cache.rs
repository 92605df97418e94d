//! The prompt-cache contract: each request begins with the bytes of the previous one, and the reported usage shows it.

use homard_agent::{RunEvent, TapeEvent};
use homard_proto::message::Usage;
use homard_testkit::{
    FakeProvider,
    fake_provider::{
        FakeAnswer, FakeToolCall, ProviderReply, ReceivedRequest, dialect::WireFormat, fault::ProviderFault,
    },
    rng::SeededRng,
};
use serde_json::json;

use crate::house::{LONG_IDLE, ProviderFixture, candidates};

const SEEDS: u64 = 6;
const MESSAGES: usize = 5;

/// Generates a reply: text, sometimes calls, sometimes a fault after which the request is repeated.
fn reply(dice: &mut SeededRng, asked: &ReceivedRequest, faults: &[ProviderFault]) -> ProviderReply {
    let number = asked.number;
    let call = |place: u64| FakeToolCall {
        id: format!("call_{place}"),
        name: ["look", "snap", "fail"][number % 3].to_owned(),
        arguments: json!({"at": format!("place {number}")}),
    };
    let calls = if dice.percent(50) { 1 + dice.below(2) } else { 0 };
    let text = vec![format!("These are the words of answer number {number}. ")];
    let said = FakeAnswer { thinking: Some("Hm.".to_owned()), text, calls: (0..calls).map(call).collect() };
    ProviderReply { answer: said, fault: dice.percent(20).then(|| *dice.pick(faults)), split: None, gate: None }
}

/// Runs a conversation; returns the requests and the events.
async fn talk(
    seed: u64,
    dialects: &[WireFormat],
    faults: &'static [ProviderFault],
) -> (Vec<ReceivedRequest>, Vec<TapeEvent>) {
    let mut dice = SeededRng::new(seed);
    let fake = FakeProvider::start(move |asked| reply(&mut dice, asked, faults)).await.unwrap();
    let models: Vec<_> = dialects.iter().map(|dialect| (*dialect, LONG_IDLE)).collect();
    let house = ProviderFixture::new(candidates(&fake, &models).0);
    let mut events = Vec::new();
    for message in 0..MESSAGES {
        let text = format!("This is message number {message}, which says a little more than nothing.");
        events.extend(house.say(&format!("r{message}"), &text).await);
    }
    house.hub.shut_down().await;
    assert_eq!(fake.complaints(), Vec::<String>::new());
    (fake.requests(), events)
}

/// Asserts that each request of a model begins with the bytes of its previous one.
fn begins_alike(asked: &[ReceivedRequest], dialect: WireFormat) {
    let prompts: Vec<_> = asked.iter().filter(|asked| asked.dialect == dialect).map(ReceivedRequest::prompt).collect();
    for pair in prompts.windows(2) {
        // The next message may be added to the same list.
        let begin = pair[0].trim_end_matches([']', '}']);
        assert!(pair[1].starts_with(begin), "{dialect:?} was told\n{}\nand then\n{}", pair[0], pair[1]);
    }
}

fn usages(events: &[TapeEvent]) -> Vec<Usage> {
    let said = |event: &TapeEvent| {
        if let RunEvent::Assistant { said, .. } = &event.kind { Some(said.usage.clone()) } else { None }
    };
    events.iter().filter_map(said).filter(|usage| usage.total_tokens > 0).collect()
}

/// Returns the cached share of the prompt.
fn hit_ratio(usage: &Usage) -> f64 {
    usage.cache_read as f64 / (usage.input + usage.cache_read + usage.cache_write) as f64
}

#[tokio::test]
async fn each_request_begins_with_the_bytes_of_the_one_before() {
    for dialect in WireFormat::ALL {
        for seed in 0..SEEDS {
            let (asked, _) = talk(
                seed,
                &[dialect],
                &[ProviderFault::Cut(9), ProviderFault::Refused(500), ProviderFault::Garbage(3)],
            )
            .await;
            assert!(asked.len() > MESSAGES);
            begins_alike(&asked, dialect);
        }
    }
}

#[tokio::test]
async fn another_model_in_between_changes_no_byte_and_is_told() {
    for seed in 0..SEEDS {
        let (asked, events) = talk(seed, &WireFormat::ALL, &[ProviderFault::Refused(401), ProviderFault::Cut(9)]).await;
        WireFormat::ALL.into_iter().for_each(|dialect| begins_alike(&asked, dialect));
        let switches = asked.windows(2).filter(|pair| pair[0].dialect != pair[1].dialect).count();
        let told = events.iter().filter(|event| matches!(event.kind, RunEvent::CandidateFailed { .. })).count();
        assert!(switches <= told, "{switches} times another model was asked, and {told} times somebody was told");
    }
}

#[tokio::test]
async fn usage_tells_how_much_of_a_prompt_was_known() {
    for dialect in WireFormat::ALL {
        let (asked, events) = talk(3, &[dialect], &[ProviderFault::Refused(500)]).await;
        let usages = usages(&events);
        assert!(usages.len() > MESSAGES, "{dialect:?}: {usages:?}");
        let ratios: Vec<_> = usages.iter().map(hit_ratio).collect();
        // All of a prompt but its last message was sent before, so only the new part is uncached.
        assert!(ratios[0] < 0.1 && ratios[MESSAGES..].iter().all(|ratio| *ratio > 0.75), "{dialect:?}: {ratios:?}");
        let last = asked.last().map(|asked| asked.prompt().len() as u64 / 4);
        assert_eq!(usages.last().map(|usage| usage.input + usage.cache_read), last, "{dialect:?}");
    }
}
