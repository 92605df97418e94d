//! R84: each fault on each wire format, as the sender of a message sees it: an answer or one error, and no word twice.

use futures_util::{StreamExt, stream};
use homard_agent::{Outcome, RequestEvent, RunEvent, TapeEvent};
use homard_testkit::{
    FakeProvider,
    fake_provider::{
        FakeAnswer, ProviderReply, RETRY_DELAY, ReceivedRequest,
        dialect::WireFormat,
        fault::{POSITIONS, ProviderFault},
    },
};

use crate::fixture::{LONG_IDLE, ProviderFixture, SHORT_IDLE, candidates, client_texts, outcome, profile};

/// Number of concurrent runs.
const AT_ONCE: usize = 8;

/// Returns an answer with unique words.
fn answer(request: &ReceivedRequest) -> FakeAnswer {
    let text = (0..12).map(|n| format!("answer{}word{n} ", request.number)).collect();
    FakeAnswer { thinking: Some("Hm.".to_owned()), text, calls: Vec::new() }
}

/// Returns every fault at every position.
fn faults() -> Vec<ProviderFault> {
    let mut all: Vec<_> = (0..POSITIONS).flat_map(ProviderFault::all).collect();
    let mut distinct: Vec<ProviderFault> = Vec::new();
    all.retain(|fault| {
        !distinct.contains(fault) && {
            distinct.push(*fault);
            true
        }
    });
    all
}

fn idle(fault: ProviderFault) -> std::time::Duration {
    if matches!(fault, ProviderFault::Stall(_)) { SHORT_IDLE } else { LONG_IDLE }
}

/// Returns the next wire format, cyclically.
fn other(dialect: WireFormat) -> WireFormat {
    let index = WireFormat::ALL.iter().position(|known| *known == dialect).unwrap();
    WireFormat::ALL[(index + 1) % WireFormat::ALL.len()]
}

/// The first request is faulty; there is a fallback model with another wire format.
async fn check_single_fault(dialect: WireFormat, fault: ProviderFault) {
    let answers = move |request: &ReceivedRequest| ProviderReply {
        answer: answer(request),
        fault: (request.number == 0).then_some(fault),
        split: Some(request.number as u64),
        gate: None,
    };
    let fake = FakeProvider::start(answers).await.unwrap();
    let (model_candidates, health) = candidates(&fake, &[(dialect, idle(fault)), (other(dialect), LONG_IDLE)]);
    let fixture = ProviderFixture::new(model_candidates);
    let events = fixture.send("r1", "Hi").await;
    let requests = fake.requests();
    let texts = client_texts(&events);
    // Context overflow ends the run here, because nothing can be compacted, and events out of order may be noticed.
    match (outcome(&events), fault) {
        (Outcome::Done, _) => {
            // Trailing white space is not shown.
            let expected = answer(requests.last().unwrap()).text.concat().trim_end().to_owned();
            let is_shuffled = matches!(fault, ProviderFault::Disorder(_));
            assert!(is_shuffled || texts == [expected], "{dialect:?} {fault:?}: {texts:?}");
        }
        (Outcome::Failed(_), ProviderFault::Refused(413)) => {}
        (unexpected, _) => panic!("{dialect:?} {fault:?}: {unexpected:?}"),
    }
    assert_eq!(fake.complaints(), Vec::<String>::new(), "{dialect:?} {fault:?}");
    match fault {
        ProviderFault::TooMany(true) => {
            let waited = requests[1].at - requests[0].at;
            assert!(
                requests[1].dialect == dialect && waited >= RETRY_DELAY,
                "{dialect:?} was asked again after {waited:?}"
            );
        }
        ProviderFault::TooManyForLong => {
            assert_eq!(requests[1].dialect, other(dialect));
            let stats = serde_json::to_value(health.snapshot()).unwrap()[profile(dialect)].clone();
            let cooldown_ms = stats["cooldownUntil"].as_u64().unwrap() - stats["lastFailureAt"].as_u64().unwrap();
            assert_eq!(cooldown_ms, 900_000, "{stats}");
        }
        ProviderFault::Stall(_)
        | ProviderFault::Cut(_)
        | ProviderFault::Garbage(_)
        | ProviderFault::InStream(_)
        | ProviderFault::Twice(_)
        | ProviderFault::Disorder(_)
        | ProviderFault::TooMany(false)
        | ProviderFault::Refused(_)
        | ProviderFault::Page => {}
    }
    fixture.hub.lifecycle().shut_down().await;
}

/// Every request is faulty, and there is no fallback.
async fn check_permanent_fault(dialect: WireFormat, fault: ProviderFault) {
    let answers = move |request: &ReceivedRequest| ProviderReply {
        answer: answer(request),
        fault: Some(fault),
        split: None,
        gate: None,
    };
    let fake = FakeProvider::start(answers).await.unwrap();
    let fixture = ProviderFixture::new(candidates(&fake, &[(dialect, idle(fault))]).0);
    let events = fixture.send("r1", "Hi").await;
    client_texts(&events);
    let is_failed = matches!(outcome(&events), Outcome::Failed(_));
    let may_succeed = matches!(fault, ProviderFault::Twice(_) | ProviderFault::Disorder(_));
    assert!(is_failed || may_succeed, "{dialect:?} {fault:?}: {events:#?}");
    assert_eq!(reset_count(&events), retries_after_output(&events), "{dialect:?} {fault:?}: {events:#?}");
    assert_eq!(fake.complaints(), Vec::<String>::new(), "{dialect:?} {fault:?}");
    fixture.hub.lifecycle().shut_down().await;
}

/// Returns how often streamed text was discarded.
fn reset_count(events: &[TapeEvent]) -> usize {
    events.iter().filter(|event| matches!(event.kind, RunEvent::Model(RequestEvent::MessageReset { .. }))).count()
}

/// Returns the number of retried attempts that had already streamed text or reasoning.
fn retries_after_output(events: &[TapeEvent]) -> usize {
    let is_output = |event: &TapeEvent| matches!(event.kind, RunEvent::Text { .. } | RunEvent::Thinking { .. });
    let attempts = events.split(|event| matches!(event.kind, RunEvent::Model(RequestEvent::Retrying { .. })));
    let attempts: Vec<_> = attempts.map(|events| events.iter().any(is_output)).collect();
    attempts[..attempts.len() - 1].iter().filter(|had_output| **had_output).count()
}

#[tokio::test]
async fn a_fault_at_any_position_ends_in_an_answer_without_repetition() {
    let all = faults().into_iter().flat_map(|fault| WireFormat::ALL.map(|dialect| check_single_fault(dialect, fault)));
    stream::iter(all).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

#[tokio::test]
async fn a_permanent_fault_ends_in_one_error() {
    let all = ProviderFault::all(10).into_iter().chain([ProviderFault::Stall(0), ProviderFault::Cut(0)]);
    let all = all.flat_map(|fault| WireFormat::ALL.map(|dialect| check_permanent_fault(dialect, fault)));
    stream::iter(all).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}
