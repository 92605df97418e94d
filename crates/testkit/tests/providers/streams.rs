//! R84: each fault on each wire format, as the caller of a model sees it.

use std::{collections::HashSet, time::Duration};

use futures_util::{StreamExt, future::join_all};
use homard_model::{Error, ErrorKind, Event, Model, Request};
use homard_proto::message::{Message, User};
use homard_providers::{Client, Remote};
use homard_testkit::{
    FakeProvider,
    fake_provider::{Call, Reply, Said, WAIT, dialect::Dialect, fault::Fault},
};
use serde_json::json;

use crate::house::{HASTY, PATIENT, target};

fn said() -> Said {
    let call = |id: &str| Call { id: id.to_owned(), name: "look".to_owned(), arguments: json!({"at": "wörld 🦞"}) };
    Said {
        thinking: Some("Hm.".to_owned()),
        text: (0..12).map(|n| format!("word{n} ")).collect(),
        calls: vec![call("call_a"), call("call_b")],
    }
}

/// Returns the events that a caller receives, without keep-alives.
async fn hear(dialect: Dialect, fault: Option<Fault>, split: Option<u64>) -> Vec<Event> {
    let fake = FakeProvider::start(move |_| Reply { said: said(), fault, split, gate: None }).await.unwrap();
    let idle = if matches!(fault, Some(Fault::Stall(_))) { HASTY } else { PATIENT };
    let model = Remote::new(target(&fake, dialect, idle), &Client::default()).unwrap();
    let request = Request {
        messages: vec![Message::User(User::text("Hi", 1)).into()],
        max_output: Some(100),
        ..Request::default()
    };
    let events: Vec<_> = model.stream(request).collect().await;
    assert_eq!(fake.complaints(), Vec::<String>::new());
    let ends = events.iter().filter(|event| matches!(event, Event::Done(_) | Event::Failed(_))).count();
    let ends_last = matches!(events.last(), Some(Event::Done(_) | Event::Failed(_)));
    assert!(ends == 1 && ends_last, "{dialect:?} {fault:?}: {events:?}");
    events.into_iter().filter(|event| *event != Event::Alive).collect()
}

fn words(events: &[Event]) -> String {
    let text = |event: &Event| if let Event::Text(text) = event { Some(text.clone()) } else { None };
    events.iter().filter_map(text).collect()
}

fn failure(events: &[Event]) -> Option<Error> {
    if let Some(Event::Failed(error)) = events.last() { Some(error.clone()) } else { None }
}

/// Returns the expected error of a fault; `None` if it need not be noticed.
fn expected(fault: Fault) -> Option<(ErrorKind, Option<u16>, Option<Duration>)> {
    let told = |kind| Some((kind, None, None));
    let refused = |kind, status| Some((kind, Some(status), None));
    match fault {
        Fault::Stall(_) => told(ErrorKind::Timeout),
        Fault::Cut(0) => told(ErrorKind::Connect),
        Fault::Cut(_) => told(ErrorKind::Truncated),
        Fault::Garbage(_) => told(ErrorKind::Malformed),
        Fault::InStream(_) => told(ErrorKind::Overloaded),
        Fault::Twice(_) | Fault::Disorder(_) => None,
        Fault::TooMany(true) => Some((ErrorKind::RateLimit, Some(429), Some(WAIT))),
        Fault::TooMany(false) => refused(ErrorKind::RateLimit, 429),
        Fault::TooManyForLong => Some((ErrorKind::RateLimit, Some(429), Some(Duration::from_secs(900)))),
        Fault::Refused(500) => refused(ErrorKind::Server, 500),
        Fault::Refused(401) => refused(ErrorKind::Auth, 401),
        Fault::Refused(402) => refused(ErrorKind::Billing, 402),
        Fault::Refused(413) => refused(ErrorKind::Overflow, 413),
        Fault::Refused(status) => panic!("nobody said what {status} is"),
        Fault::Page => refused(ErrorKind::Misconfigured, 200),
    }
}

#[tokio::test]
async fn an_answer_is_the_same_on_every_wire_however_its_bytes_are_split() {
    for dialect in Dialect::ALL {
        let whole = hear(dialect, None, None).await;
        assert_eq!((words(&whole), failure(&whole)), (said().text.concat(), None), "{dialect:?}");
        for seed in 0..6 {
            assert_eq!(hear(dialect, None, Some(seed)).await, whole, "{dialect:?}, split by {seed}");
        }
    }
}

#[tokio::test]
async fn each_fault_is_told_as_what_it_is_on_each_wire() {
    for dialect in Dialect::ALL {
        let whole = hear(dialect, None, None).await;
        for place in [0, 1, 7, 13, 19] {
            let faults = Fault::all(place);
            let heard = faults.iter().map(|fault| hear(dialect, Some(*fault), Some(place)));
            for (fault, events) in faults.iter().zip(join_all(heard).await) {
                let failed = failure(&events);
                // Within a stream the status is not significant.
                let status = |error: &Error| error.status.filter(|_| !matches!(fault, Fault::InStream(_)));
                let told = failed.as_ref().map(|error| (error.kind, status(error), error.retry_after));
                // If only the end marker is missing, the answer is complete.
                let is_whole = events == whole || words(&events) == words(&whole) && failed.is_none();
                let is_late = is_whole && matches!(fault, Fault::Cut(_));
                let may_pass = matches!(fault, Fault::Disorder(_));
                assert!(told == expected(*fault) || is_late || may_pass, "{dialect:?} {fault:?}: {events:?}");
                if matches!(fault, Fault::Twice(_)) {
                    assert_eq!(events, whole, "{dialect:?} {fault:?}");
                }
                let mut seen = HashSet::new();
                assert!(words(&events).split_whitespace().all(|word| seen.insert(word.to_owned())), "{events:?}");
            }
        }
    }
}
