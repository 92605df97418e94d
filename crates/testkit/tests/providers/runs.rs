//! R84: each fault on each wire format, as the sender of a message sees it: an answer or one error, and no word twice.

use futures_util::{StreamExt, stream};
use homard_agent::{Outcome, RunEvent, TapeEvent};
use homard_testkit::{
    FakeProvider,
    fake_provider::{
        FakeAnswer, ProviderReply, RETRY_DELAY, ReceivedRequest,
        dialect::WireFormat,
        fault::{POSITIONS, ProviderFault},
    },
};

use crate::house::{LONG_IDLE, ProviderFixture, SHORT_IDLE, candidates, outcome, profile, shown};

/// Number of concurrent runs.
const AT_ONCE: usize = 8;

/// Returns an answer with unique words.
fn answer(asked: &ReceivedRequest) -> FakeAnswer {
    let text = (0..12).map(|n| format!("answer{}word{n} ", asked.number)).collect();
    FakeAnswer { thinking: Some("Hm.".to_owned()), text, calls: Vec::new() }
}

/// Returns every fault at every position.
fn faults() -> Vec<ProviderFault> {
    let mut all: Vec<_> = (0..POSITIONS).flat_map(ProviderFault::all).collect();
    let mut seen: Vec<ProviderFault> = Vec::new();
    all.retain(|fault| {
        !seen.contains(fault) && {
            seen.push(*fault);
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
    let place = WireFormat::ALL.iter().position(|known| *known == dialect).unwrap();
    WireFormat::ALL[(place + 1) % WireFormat::ALL.len()]
}

/// The first request is faulty; there is a fallback model with another wire format.
async fn once(dialect: WireFormat, fault: ProviderFault) {
    let answers = move |asked: &ReceivedRequest| ProviderReply {
        answer: answer(asked),
        fault: (asked.number == 0).then_some(fault),
        split: Some(asked.number as u64),
        gate: None,
    };
    let fake = FakeProvider::start(answers).await.unwrap();
    let (roster, book) = candidates(&fake, &[(dialect, idle(fault)), (other(dialect), LONG_IDLE)]);
    let house = ProviderFixture::new(roster);
    let events = house.say("r1", "Hi").await;
    let asked = fake.requests();
    let shown = shown(&events);
    // Context overflow ends the run here, because nothing can be compacted, and events out of order may be noticed.
    match (outcome(&events), fault) {
        (Outcome::Done, _) => {
            // Trailing white space is not shown.
            let whole = answer(asked.last().unwrap()).text.concat().trim_end().to_owned();
            let is_shuffled = matches!(fault, ProviderFault::Disorder(_));
            assert!(is_shuffled || shown == [whole], "{dialect:?} {fault:?}: {shown:?}");
        }
        (Outcome::Failed(_), ProviderFault::Refused(413)) => {}
        (bad, _) => panic!("{dialect:?} {fault:?}: {bad:?}"),
    }
    assert_eq!(fake.complaints(), Vec::<String>::new(), "{dialect:?} {fault:?}");
    match fault {
        ProviderFault::TooMany(true) => {
            let waited = asked[1].at - asked[0].at;
            assert!(
                asked[1].dialect == dialect && waited >= RETRY_DELAY,
                "{dialect:?} was asked again after {waited:?}"
            );
        }
        ProviderFault::TooManyForLong => {
            assert_eq!(asked[1].dialect, other(dialect));
            let stats = serde_json::to_value(book.snapshot()).unwrap()[profile(dialect)].clone();
            let rests = stats["cooldownUntil"].as_u64().unwrap() - stats["lastFailureAt"].as_u64().unwrap();
            assert_eq!(rests, 900_000, "{stats}");
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
    house.hub.shut_down().await;
}

/// Every request is faulty, and there is no fallback.
async fn always(dialect: WireFormat, fault: ProviderFault) {
    let answers = move |asked: &ReceivedRequest| ProviderReply {
        answer: answer(asked),
        fault: Some(fault),
        split: None,
        gate: None,
    };
    let fake = FakeProvider::start(answers).await.unwrap();
    let house = ProviderFixture::new(candidates(&fake, &[(dialect, idle(fault))]).0);
    let events = house.say("r1", "Hi").await;
    shown(&events);
    let is_bad = matches!(outcome(&events), Outcome::Failed(_));
    let may_be_good = matches!(fault, ProviderFault::Twice(_) | ProviderFault::Disorder(_));
    assert!(is_bad || may_be_good, "{dialect:?} {fault:?}: {events:#?}");
    assert_eq!(rewound(&events), restarts(&events), "{dialect:?} {fault:?}: {events:#?}");
    assert_eq!(fake.complaints(), Vec::<String>::new(), "{dialect:?} {fault:?}");
    house.hub.shut_down().await;
}

/// Returns how often streamed text was discarded.
fn rewound(events: &[TapeEvent]) -> usize {
    events.iter().filter(|event| matches!(event.kind, RunEvent::MessageReset { .. })).count()
}

/// Returns the number of retried attempts that had already streamed text or reasoning.
fn restarts(events: &[TapeEvent]) -> usize {
    let said = |event: &TapeEvent| matches!(event.kind, RunEvent::Text { .. } | RunEvent::Thinking { .. });
    let tries = events.split(|event| matches!(event.kind, RunEvent::Retrying { .. }));
    let tries: Vec<_> = tries.map(|events| events.iter().any(said)).collect();
    tries[..tries.len() - 1].iter().filter(|spoke| **spoke).count()
}

#[tokio::test]
async fn a_fault_anywhere_ends_in_an_answer_without_a_word_twice() {
    let all = faults().into_iter().flat_map(|fault| WireFormat::ALL.map(|dialect| once(dialect, fault)));
    stream::iter(all).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

#[tokio::test]
async fn a_fault_that_stays_ends_in_one_error() {
    let all = ProviderFault::all(10).into_iter().chain([ProviderFault::Stall(0), ProviderFault::Cut(0)]);
    let all = all.flat_map(|fault| WireFormat::ALL.map(|dialect| always(dialect, fault)));
    stream::iter(all).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}
