//! R84: each fault on each wire format, as the caller of a model sees it.

use std::{collections::HashSet, time::Duration};

use futures_util::{StreamExt, future::join_all};
use homard_model::{Error, ErrorKind, Model, ModelEvent, Request};
use homard_proto::message::{Message, User};
use homard_providers::{HttpClient, RemoteModel};
use homard_testkit::{
    FakeProvider,
    fake_provider::{FakeAnswer, FakeToolCall, ProviderReply, RETRY_DELAY, dialect::WireFormat, fault::ProviderFault},
};
use serde_json::json;

use crate::fixture::{LONG_IDLE, SHORT_IDLE, target};

fn test_answer() -> FakeAnswer {
    let call =
        |id: &str| FakeToolCall { id: id.to_owned(), name: "look".to_owned(), arguments: json!({"at": "wörld 🦞"}) };
    FakeAnswer {
        thinking: Some("Hm.".to_owned()),
        text: (0..12).map(|n| format!("word{n} ")).collect(),
        calls: vec![call("call_a"), call("call_b")],
    }
}

/// Returns the events that a caller receives, without keep-alives.
async fn receive(dialect: WireFormat, fault: Option<ProviderFault>, split: Option<u64>) -> Vec<ModelEvent> {
    let fake =
        FakeProvider::start(move |_| ProviderReply { answer: test_answer(), fault, split, gate: None }).await.unwrap();
    let idle = if matches!(fault, Some(ProviderFault::Stall(_))) { SHORT_IDLE } else { LONG_IDLE };
    let model = RemoteModel::new(target(&fake, dialect, idle), &HttpClient::default()).unwrap();
    let request = Request {
        messages: vec![Message::User(User::text("Hi", 1)).into()],
        max_output: Some(100),
        ..Request::default()
    };
    let events: Vec<_> = model.stream(request).collect().await;
    assert_eq!(fake.complaints(), Vec::<String>::new());
    let ends = events.iter().filter(|event| matches!(event, ModelEvent::Done(_) | ModelEvent::Failed(_))).count();
    let ends_last = matches!(events.last(), Some(ModelEvent::Done(_) | ModelEvent::Failed(_)));
    assert!(ends == 1 && ends_last, "{dialect:?} {fault:?}: {events:?}");
    events.into_iter().filter(|event| *event != ModelEvent::Heartbeat).collect()
}

fn text_of(events: &[ModelEvent]) -> String {
    let text = |event: &ModelEvent| if let ModelEvent::Text(text) = event { Some(text.clone()) } else { None };
    events.iter().filter_map(text).collect()
}

fn failure(events: &[ModelEvent]) -> Option<Error> {
    if let Some(ModelEvent::Failed(error)) = events.last() { Some(error.clone()) } else { None }
}

/// Returns the expected error of a fault; `None` if it need not be noticed.
fn expected(fault: ProviderFault) -> Option<(ErrorKind, Option<u16>, Option<Duration>)> {
    let failed = |kind| Some((kind, None, None));
    let refused = |kind, status| Some((kind, Some(status), None));
    match fault {
        ProviderFault::Stall(_) => failed(ErrorKind::Timeout),
        ProviderFault::Cut(0) => failed(ErrorKind::Connect),
        ProviderFault::Cut(_) => failed(ErrorKind::Truncated),
        ProviderFault::Garbage(_) => failed(ErrorKind::Malformed),
        ProviderFault::InStream(_) => failed(ErrorKind::Overloaded),
        ProviderFault::Twice(_) | ProviderFault::Disorder(_) => None,
        ProviderFault::TooMany(true) => Some((ErrorKind::RateLimit, Some(429), Some(RETRY_DELAY))),
        ProviderFault::TooMany(false) => refused(ErrorKind::RateLimit, 429),
        ProviderFault::TooManyForLong => Some((ErrorKind::RateLimit, Some(429), Some(Duration::from_secs(900)))),
        ProviderFault::Refused(500) => refused(ErrorKind::Server, 500),
        ProviderFault::Refused(401) => refused(ErrorKind::Auth, 401),
        ProviderFault::Refused(402) => refused(ErrorKind::Billing, 402),
        ProviderFault::Refused(413) => refused(ErrorKind::Overflow, 413),
        ProviderFault::Refused(status) => panic!("nobody said what {status} is"),
        ProviderFault::Page => refused(ErrorKind::Misconfigured, 200),
    }
}

#[tokio::test]
async fn an_answer_is_the_same_on_every_wire_however_its_bytes_are_split() {
    for dialect in WireFormat::ALL {
        let whole = receive(dialect, None, None).await;
        assert_eq!((text_of(&whole), failure(&whole)), (test_answer().text.concat(), None), "{dialect:?}");
        for seed in 0..6 {
            assert_eq!(receive(dialect, None, Some(seed)).await, whole, "{dialect:?}, split by {seed}");
        }
    }
}

#[tokio::test]
async fn each_fault_is_classified_on_each_wire_format() {
    for dialect in WireFormat::ALL {
        let whole = receive(dialect, None, None).await;
        for position in [0, 1, 7, 13, 19] {
            let faults = ProviderFault::all(position);
            let streams = faults.iter().map(|fault| receive(dialect, Some(*fault), Some(position)));
            for (fault, events) in faults.iter().zip(join_all(streams).await) {
                let failed = failure(&events);
                // Within a stream the status is not significant.
                let status = |error: &Error| error.status.filter(|_| !matches!(fault, ProviderFault::InStream(_)));
                let actual = failed.as_ref().map(|error| (error.kind, status(error), error.retry_after));
                // If only the end marker is missing, the answer is complete.
                let is_whole = events == whole || text_of(&events) == text_of(&whole) && failed.is_none();
                let is_cut_at_end = is_whole && matches!(fault, ProviderFault::Cut(_));
                let may_pass = matches!(fault, ProviderFault::Disorder(_));
                assert!(actual == expected(*fault) || is_cut_at_end || may_pass, "{dialect:?} {fault:?}: {events:?}");
                if matches!(fault, ProviderFault::Twice(_)) {
                    assert_eq!(events, whole, "{dialect:?} {fault:?}");
                }
                let mut words = HashSet::new();
                assert!(text_of(&events).split_whitespace().all(|word| words.insert(word.to_owned())), "{events:?}");
            }
        }
    }
}
