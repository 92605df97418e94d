//! Deliveries under crashes: never sent twice where that matters, never lost, in order.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};

use super::*;

const RETRY: u64 = 10;

/// Outcome of calling the channel.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SendOutcome {
    Answered,
    /// The call times out, though the message may have arrived.
    Silent {
        arrives: bool,
    },
    /// The call never returns: only a crash ends it.
    Hangs {
        arrives: bool,
    },
    TryLater,
    Never,
}

#[derive(Debug, Clone)]
enum Event {
    Queue {
        to: u8,
        is_idempotent: bool,
    },
    /// Sends the next delivery that is due.
    Send(usize, SendOutcome),
    /// Tries to send a delivery that may not be due.
    SendEarly(usize),
    Crash,
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let outcome = prop_oneof![
        4 => Just(SendOutcome::Answered),
        2 => any::<bool>().prop_map(|arrives| SendOutcome::Silent { arrives }),
        2 => any::<bool>().prop_map(|arrives| SendOutcome::Hangs { arrives }),
        2 => Just(SendOutcome::TryLater),
        1 => Just(SendOutcome::Never),
    ];
    prop_oneof![
        4 => (0..2_u8, any::<bool>()).prop_map(|(to, is_idempotent)| Event::Queue { to, is_idempotent }),
        6 => (0..4_usize, outcome).prop_map(|(nth, outcome)| Event::Send(nth, outcome)),
        1 => (0..20_usize).prop_map(Event::SendEarly),
        2 => Just(Event::Crash),
        3 => prop_oneof![9 => 1..RETRY, 1 => Just(TTL_MS)].prop_map(Event::Wait),
    ]
}

/// An outbox, and its effects on the channels.
#[derive(Default)]
struct OutboxSimulation {
    outbox: Outbox,
    now: u64,
    /// Keys that arrived, in order.
    arrived: Vec<String>,
    /// Keys that were refused permanently.
    refused: Vec<String>,
}

impl OutboxSimulation {
    fn queue(&mut self, to: u8, is_idempotent: bool) {
        let id = format!("d{:03}", self.outbox.0.len());
        let (target, key) = (target(to), id.clone());
        let delivery = Delivery {
            id,
            run: None,
            target,
            part: 0,
            key,
            is_idempotent,
            payload: Value::Null,
            at: self.now,
            is_immediate: false,
        };
        assert!(self.outbox.queue(delivery.clone()));
        assert!(!self.outbox.queue(delivery), "an id is queued once");
    }

    fn mark(&mut self, id: &str, state: &DeliveryState) -> bool {
        self.outbox.mark(id, state, self.now)
    }

    fn send(&mut self, nth: usize, outcome: SendOutcome) {
        let rows = self.outbox.undelivered();
        let Some(id) = due(&rows, self.now).get(nth).map(|row| row.delivery.id.clone()) else { return };
        assert!(self.mark(&id, &DeliveryState::Sending), "{id} is due");
        assert!(!self.mark(&id, &DeliveryState::Sending), "{id} cannot be sent twice at a time");
        let reason = String::new();
        let answer = match outcome {
            SendOutcome::Answered => Some(DeliveryState::sent(vec!["p".to_owned()])),
            SendOutcome::Silent { .. } => Some(DeliveryState::Unknown { reason: None }),
            SendOutcome::Hangs { .. } => None,
            SendOutcome::TryLater => Some(DeliveryState::Failed { retry_at: self.now + RETRY, reason }),
            SendOutcome::Never => Some(DeliveryState::Dead { reason }),
        };
        match outcome {
            SendOutcome::Answered | SendOutcome::Silent { arrives: true } | SendOutcome::Hangs { arrives: true } => {
                self.arrived.push(id.clone());
            }
            SendOutcome::Never => self.refused.push(id.clone()),
            SendOutcome::Silent { arrives: false } | SendOutcome::Hangs { arrives: false } | SendOutcome::TryLater => {}
        }
        assert!(answer.is_none_or(|answer| self.mark(&id, &answer)), "{id} is answered");
    }

    /// Sends a delivery if its state allows that, even before its retry time or before earlier deliveries.
    fn send_early(&mut self, nth: usize) {
        let Some(id) = self.outbox.0.get(nth).map(|row| row.delivery.id.clone()) else { return };
        assert!(!self.mark(&id, &DeliveryState::Queued), "{id} cannot be marked as queued again");
        if self.mark(&id, &DeliveryState::Sending) {
            self.arrived.push(id.clone());
            assert!(self.mark(&id, &DeliveryState::sent(Vec::new())));
        }
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Queue { to, is_idempotent } => self.queue(to, is_idempotent),
            Event::Send(nth, outcome) => self.send(nth, outcome),
            Event::SendEarly(nth) => self.send_early(nth),
            Event::Crash => self.outbox.mark_unknown(),
            Event::Wait(time) => self.now += time,
        }
    }

    /// Restarts the process; from then on no call fails.
    fn settle(&mut self) {
        self.outbox.mark_unknown();
        for _ in 0..self.outbox.0.len() {
            self.now += RETRY;
            while !due(&self.outbox.undelivered(), self.now).is_empty() {
                self.send(0, SendOutcome::Answered);
            }
        }
    }

    fn check(&self) {
        let mut order: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for row in &self.outbox.0 {
            let (delivery, id) = (&row.delivery, &row.delivery.id);
            let arrivals = self.arrived.iter().filter(|arrived| *arrived == id).count();
            assert!(arrivals <= 1 || delivery.is_idempotent, "{id} was sent twice");
            match row.state {
                DeliveryState::Sent { .. } => assert!(arrivals > 0, "{id} was lost"),
                DeliveryState::Dead { .. } => assert!(self.refused.contains(id), "{id} was given up"),
                DeliveryState::Unknown { .. } => assert!(!delivery.is_idempotent, "{id} could have been sent again"),
                DeliveryState::Queued | DeliveryState::Failed { .. } => {
                    assert!(row.is_expired(self.now), "{id} was forgotten");
                }
                DeliveryState::Sending => panic!("{id} is still on its way"),
            }
        }
        for arrived in &self.arrived {
            let row = self.outbox.0.iter().find(|row| row.delivery.id == *arrived).unwrap();
            let order = order.entry(&row.delivery.target.to).or_default();
            if !order.contains(&arrived.as_str()) {
                order.push(arrived);
            }
        }
        assert!(order.values().all(|order| order.is_sorted()), "{order:?}");
    }
}

fn target(to: u8) -> DeliveryTarget {
    DeliveryTarget { channel: "telegram".to_owned(), account: "default".to_owned(), to: to.to_string() }
}

proptest! {
    // I8
    #[test]
    fn nothing_is_sent_twice_nor_lost_nor_out_of_order(events in vec(event(), 0..60)) {
        let mut simulation = OutboxSimulation::default();
        events.iter().for_each(|event| simulation.apply(event));
        simulation.settle();
        simulation.check();
    }
}

fn row(state: DeliveryState, is_idempotent: bool) -> DeliveryRow {
    let mut simulation = OutboxSimulation::default();
    simulation.queue(0, is_idempotent);
    DeliveryRow { state, ..simulation.outbox.0.remove(0) }
}

#[test]
fn final_states_stay_and_unknown_ones_wait_for_a_decision() {
    let (queued, sending, unknown) = (DeliveryState::Queued, DeliveryState::Sending, DeliveryState::interrupted());
    let sent = DeliveryState::sent(Vec::new());
    let failed = DeliveryState::Failed { retry_at: 5, reason: "away".to_owned() };
    let dead = DeliveryState::Dead { reason: "blocked".to_owned() };
    let allowed_transitions = |from: &DeliveryState| {
        let row = row(from.clone(), false);
        let mut allowed_transitions = vec![&queued, &sending, &sent, &failed, &unknown, &dead];
        allowed_transitions.retain(|to| row.next(to, 0).is_some());
        allowed_transitions
    };
    assert_eq!(allowed_transitions(&queued), [&sending, &dead]);
    assert_eq!(allowed_transitions(&failed), [&sending, &dead]);
    assert_eq!(allowed_transitions(&sending), [&sent, &failed, &unknown, &dead]);
    assert_eq!(allowed_transitions(&unknown), [&sent, &failed, &dead]);
    assert!(allowed_transitions(&sent).is_empty() && allowed_transitions(&dead).is_empty());
    assert_eq!(row(sending.clone(), true).next(&unknown, 0), Some(row(queued.clone(), true)));
}

#[test]
fn an_expired_delivery_is_not_sent_and_blocks_no_other() {
    let mut simulation = OutboxSimulation::default();
    simulation.queue(0, true);
    simulation.now = TTL_MS;
    simulation.queue(0, true);
    let due_at = |now| {
        let rows = simulation.outbox.undelivered();
        due(&rows, now).into_iter().map(|row| row.delivery.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(due_at(TTL_MS), ["d000"]);
    assert_eq!(due_at(TTL_MS + 1), ["d001"]);
    assert!(simulation.outbox.undelivered()[0].is_expired(TTL_MS + 1));
    assert!(!simulation.outbox.mark("d000", &DeliveryState::Sending, TTL_MS + 1));
    assert!(simulation.outbox.mark("d001", &DeliveryState::Sending, TTL_MS + 1));
}

/// A message that is sent at once neither waits for the replies of its target nor delays them.
#[test]
fn an_immediate_delivery_is_outside_of_the_order() {
    let mut simulation = OutboxSimulation::default();
    simulation.queue(0, false);
    let first = simulation.outbox.0[0].delivery.clone();
    for id in ["now", "later"] {
        let (id, is_immediate) = (id.to_owned(), id == "now");
        assert!(simulation.outbox.queue(Delivery { key: id.clone(), id, is_immediate, ..first.clone() }));
    }
    assert!(simulation.mark("now", &DeliveryState::Sending));
    assert!(!simulation.mark("later", &DeliveryState::Sending), "the first one is before it");
    assert!(simulation.mark("d000", &DeliveryState::Sending));
    assert!(simulation.mark("d000", &DeliveryState::sent(Vec::new())));
    assert!(simulation.mark("later", &DeliveryState::Sending), "the immediate one is no obstacle");
}

/// States as earlier versions wrote them, which earlier versions also read.
#[test]
fn the_stored_states_are_those_of_earlier_versions() {
    let sent = |ids: &[&str]| DeliveryState::sent(ids.iter().map(|id| (*id).to_owned()).collect());
    for (text, state) in [
        (r#""queued""#, DeliveryState::Queued),
        (r#""sending""#, DeliveryState::Sending),
        (r#"{"sent":{"providerId":"17"}}"#, sent(&["17"])),
        (r#"{"sent":{"providerId":null}}"#, sent(&[])),
        (
            r#"{"failed":{"retryAt":5,"reason":"busy"}}"#,
            DeliveryState::Failed { retry_at: 5, reason: "busy".to_owned() },
        ),
        (r#""unknown""#, DeliveryState::Unknown { reason: None }),
        (r#"{"dead":{"reason":"no"}}"#, DeliveryState::Dead { reason: "no".to_owned() }),
    ] {
        assert_eq!(serde_json::from_str::<DeliveryState>(text).unwrap(), state, "{text}");
        assert_eq!(serde_json::to_string(&state).unwrap(), text);
    }
    assert_eq!(serde_json::to_string(&DeliveryState::interrupted()).unwrap(), r#""unknown""#);
    let split = sent(&["15", "16", "17"]);
    assert_eq!(serde_json::to_string(&split).unwrap(), r#"{"sent":{"providerId":"17","otherIds":["15","16"]}}"#);
    assert_eq!(split.message_ids(), ["15", "16", "17"]);
    let delivery = r#"{"id":"d","run":null,"target":{"channel":"c","account":"a","to":"t"},"part":0,"key":"k",
        "is_idempotent":false,"payload":null,"at":1}"#;
    assert!(!serde_json::from_str::<Delivery>(delivery).unwrap().is_immediate);
}
