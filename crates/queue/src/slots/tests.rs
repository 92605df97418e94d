//! Tests of the slot pools.

use futures_util::{FutureExt, future::BoxFuture};
use homard_proto::AgentId;
use proptest::{collection::vec, prelude::*};

use super::*;

/// Returns a waiter that is already queued for a slot.
fn waiter(slots: &Slots) -> BoxFuture<'static, Slot> {
    let slots = slots.clone();
    let mut waiter = async move { slots.take(RunClass::Main).await }.boxed();
    assert!((&mut waiter).now_or_never().is_none(), "there is a free slot");
    waiter
}

#[test]
fn the_class_is_named_by_the_request_or_implied_by_the_session() {
    let classes = [RunClass::Main, RunClass::Subagent, RunClass::Cron, RunClass::Nested, RunClass::Heartbeat];
    let key = SessionKey::parse("agent:main:cron:job", &AgentId::main()).unwrap();
    assert_eq!(classes.map(|class| RunClass::choose(Some(class.name()), &key)), classes);
    assert_eq!([None, Some(""), Some("else")].map(|requested| RunClass::choose(requested, &key)), [RunClass::Cron; 3]);
}

#[test]
fn each_pool_has_its_own_slots() {
    let slots = Slots::new(2, 3, 0);
    let classes = [RunClass::Main, RunClass::Subagent, RunClass::Cron, RunClass::Nested, RunClass::Heartbeat];
    let taken = classes.map(|class| std::iter::from_fn(|| slots.try_take(class)).collect::<Vec<_>>());
    assert_eq!(taken.map(|taken| taken.len()), [2, 3, 1, 1, 1]);
}

#[test]
fn growing_a_pool_grants_slots_to_waiters_at_once() {
    let slots = Slots::new(1, 1, 1);
    let _running = slots.try_take(RunClass::Main).unwrap();
    let waiters = [waiter(&slots), waiter(&slots), waiter(&slots)];
    slots.resize(RunClass::Main, 3);
    let started = waiters.map(FutureExt::now_or_never);
    assert_eq!(started.each_ref().map(Option::is_some), [true, true, false]);
}

#[test]
fn shrinking_a_pool_stops_no_run_and_grants_no_slot_until_one_is_free() {
    let slots = Slots::new(3, 1, 1);
    let mut running: Vec<_> = std::iter::from_fn(|| slots.try_take(RunClass::Main)).collect();
    let mut waiter = waiter(&slots);
    slots.resize(RunClass::Main, 0);
    let started = [(); 3].map(|()| {
        drop(running.pop());
        (&mut waiter).now_or_never().is_some()
    });
    assert_eq!(started, [false, false, true]);
}

#[test]
fn a_slot_for_a_dropped_waiter_goes_to_the_next_one() {
    let slots = Slots::new(1, 1, 1);
    let running = slots.try_take(RunClass::Main).unwrap();
    // Many, so that skipping them by recursion would overflow the stack.
    let dropped_before: Vec<_> = (0..100_000).map(|_| waiter(&slots)).collect();
    let (dropped_after, remaining) = (waiter(&slots), waiter(&slots));
    drop(dropped_before);
    drop(running);
    drop(dropped_after);
    assert!(remaining.now_or_never().is_some());
    assert!(slots.try_take(RunClass::Main).is_some());
}

#[test]
fn another_run_can_use_a_lent_slot() {
    let slots = Slots::new(1, 1, 1);
    let lender = Lender::from(slots.try_take(RunClass::Main).unwrap());
    let (answer, wait) = oneshot::channel();
    let mut lending = async { lender.lend(wait).await }.boxed();
    assert_eq!((&mut lending).now_or_never(), None);
    let child = slots.try_take(RunClass::Main).unwrap();
    answer.send("done").unwrap();
    assert_eq!((&mut lending).now_or_never(), None);
    drop(child);
    assert_eq!(lending.now_or_never(), Some(Ok("done")));
    assert!(slots.try_take(RunClass::Main).is_none());
    drop(lender);
    assert!(slots.try_take(RunClass::Main).is_some());
}

#[test]
fn a_slot_is_taken_again_when_the_last_waiting_tool_has_finished() {
    let slots = Slots::new(1, 1, 1);
    let lender = Lender::from(slots.try_take(RunClass::Main).unwrap());
    let start_wait = || {
        let (answer, wait) = oneshot::channel();
        let (lender, wait) = (lender.clone(), wait);
        (answer, async move { lender.lend(wait).await }.boxed())
    };
    let ((first_answer, mut first_wait), (second_answer, mut second_wait)) = (start_wait(), start_wait());
    assert_eq!(((&mut first_wait).now_or_never(), (&mut second_wait).now_or_never()), (None, None));
    first_answer.send("a").unwrap();
    assert_eq!(first_wait.now_or_never(), Some(Ok("a")));
    assert!(slots.try_take(RunClass::Main).is_some());
    second_answer.send("b").unwrap();
    assert_eq!(second_wait.now_or_never(), Some(Ok("b")));
    assert!(slots.try_take(RunClass::Main).is_none());
}

#[test]
fn a_run_that_stops_while_its_slot_is_lent_returns_it_once() {
    let slots = Slots::new(1, 1, 1);
    let lender = Lender::from(slots.try_take(RunClass::Main).unwrap());
    assert_eq!(lender.lend(std::future::pending::<()>()).now_or_never(), None);
    let other = slots.try_take(RunClass::Main).unwrap();
    assert_eq!(lender.lend(std::future::ready(())).now_or_never(), None);
    drop(lender);
    assert!(slots.try_take(RunClass::Main).is_none());
    drop(other);
    assert!(slots.try_take(RunClass::Main).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_two_seconds_is_reported() {
    let slots = Slots::new(1, 1, 1);
    let reported_wait = async |wait: u64| {
        let running = slots.take(RunClass::Main).await;
        let holder = async move {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            drop(running);
        };
        tokio::join!(slots.take(RunClass::Main), holder).0.long_wait()
    };
    assert_eq!([reported_wait(1_999).await, reported_wait(2_000).await], [None, Some(LONG_WAIT)]);
}

/// An event in the life of a pool. The numbers select which run or waiter it affects.
#[derive(Debug, Clone, Copy)]
enum Move {
    Arrive,
    Leave(usize),
    End(usize),
    Lend(usize),
    Return(usize),
    Resize(usize),
    /// Polls all waiters.
    Look,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let index = 0_usize..64;
    let action = prop_oneof![
        4 => Just(Move::Arrive),
        1 => index.clone().prop_map(Move::Leave),
        3 => index.clone().prop_map(Move::End),
        1 => index.clone().prop_map(Move::Lend),
        1 => index.prop_map(Move::Return),
        1 => (0_usize..6).prop_map(Move::Resize),
        3 => Just(Move::Look),
    ];
    vec(action, 1..80)
}

/// Reference model: who holds a slot, and who waits in which order.
#[derive(Debug)]
struct SlotModel {
    size: usize,
    holders: Vec<u32>,
    queue: VecDeque<u32>,
}

impl SlotModel {
    fn forget(&mut self, id: u32) {
        self.holders.retain(|&other| other != id);
        self.queue.retain(|&other| other != id);
    }

    fn settle(&mut self) {
        while self.holders.len() < self.size
            && let Some(id) = self.queue.pop_front()
        {
            self.holders.push(id);
        }
    }
}

/// The pool under test.
struct SlotSimulation {
    slots: Slots,
    waiting: Vec<(u32, BoxFuture<'static, Slot>)>,
    running: Vec<(u32, Slot)>,
    lending: Vec<(u32, oneshot::Sender<()>, BoxFuture<'static, Slot>)>,
    model: SlotModel,
    arrived: u32,
}

fn chosen<T>(from: &mut Vec<T>, number: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.remove(number % from.len()))
}

impl SlotSimulation {
    fn new() -> Self {
        let model = SlotModel { size: 2, holders: Vec::new(), queue: VecDeque::new() };
        let (slots, waiting, running) = (Slots::new(2, 1, 1), Vec::new(), Vec::new());
        Self { slots, waiting, running, lending: Vec::new(), model, arrived: 0 }
    }

    fn apply(&mut self, action: Move) {
        match action {
            Move::Arrive => {
                let slots = self.slots.clone();
                self.arrived += 1;
                self.enqueue(self.arrived, async move { slots.take(RunClass::Main).await }.boxed());
            }
            Move::Leave(number) => {
                let removed = chosen(&mut self.waiting, number);
                removed.iter().for_each(|(id, _)| self.model.forget(*id));
            }
            Move::End(number) => {
                let ended = chosen(&mut self.running, number);
                ended.iter().for_each(|(id, _)| self.model.forget(*id));
            }
            Move::Lend(number) => {
                if let Some((id, mut slot)) = chosen(&mut self.running, number) {
                    let (finish, wait) = oneshot::channel();
                    let lend = async move {
                        slot.release();
                        wait.await.unwrap();
                        slot.pool.take().await
                    };
                    let mut lend = lend.boxed();
                    assert!((&mut lend).now_or_never().is_none());
                    self.lending.push((id, finish, lend));
                    self.model.forget(id);
                }
            }
            Move::Return(number) => {
                if let Some((id, finish, lend)) = chosen(&mut self.lending, number) {
                    finish.send(()).unwrap();
                    self.enqueue(id, lend);
                }
            }
            Move::Resize(size) => {
                self.slots.resize(RunClass::Main, size);
                self.model.size = size.max(1);
            }
            Move::Look => self.compare_with_model(),
        }
        self.model.settle();
    }

    fn enqueue(&mut self, id: u32, mut wait: BoxFuture<'static, Slot>) {
        self.model.queue.push_back(id);
        match (&mut wait).now_or_never() {
            Some(slot) => self.running.push((id, slot)),
            None => self.waiting.push((id, wait)),
        }
    }

    /// Compares the pool with the model.
    fn compare_with_model(&mut self) {
        // In reverse, because the order of polling must not matter.
        for (id, mut wait) in std::mem::take(&mut self.waiting).into_iter().rev() {
            match (&mut wait).now_or_never() {
                Some(slot) => self.running.push((id, slot)),
                None => self.waiting.insert(0, (id, wait)),
            }
        }
        let mut running: Vec<_> = self.running.iter().map(|(id, _)| *id).collect();
        let mut expected = self.model.holders.clone();
        running.sort_unstable();
        expected.sort_unstable();
        assert_eq!(running, expected, "who has a slot: {:?}", self.model);
    }
}

proptest! {
    /// At most as many slots are in use as exist, no waiter is overtaken, and no slot is lost, under any sequence.
    #[test]
    fn slots_are_granted_to_waiters_in_order(moves in moves()) {
        let mut simulation = SlotSimulation::new();
        moves.into_iter().for_each(|action| simulation.apply(action));
        simulation.compare_with_model();
        // Every waiter gets a slot in the end, as long as runs end.
        while !simulation.waiting.is_empty() {
            simulation.apply(Move::End(0));
            simulation.compare_with_model();
        }
        simulation.running.clear();
        simulation.lending.clear();
        let free = std::iter::from_fn(|| simulation.slots.try_take(RunClass::Main)).collect::<Vec<_>>();
        prop_assert_eq!(free.len(), simulation.model.size);
    }
}

#[test]
fn a_paused_pool_starts_nothing_until_its_runs_have_ended() {
    let slots = Slots::new(2, 1, 1);
    let running = slots.try_take(RunClass::Main).unwrap();
    slots.pause();
    let mut idle = slots.idle().boxed();
    assert!(slots.try_take(RunClass::Main).is_none() && slots.try_take(RunClass::Cron).is_none());
    let mut queued = waiter(&slots);
    // The active run may wait for these.
    assert!(slots.try_take(RunClass::Subagent).is_some() && slots.try_take(RunClass::Nested).is_some());
    assert!((&mut idle).now_or_never().is_none());
    drop(running);
    assert!((&mut idle).now_or_never().is_some() && (&mut queued).now_or_never().is_none());
}

#[test]
fn a_run_gets_its_lent_slot_back_while_its_pool_is_paused() {
    let slots = Slots::new(1, 1, 1);
    let lender = Lender::from(slots.try_take(RunClass::Main).unwrap());
    let pausing = lender.lend(async { slots.pause() });
    assert!(pausing.boxed().now_or_never().is_some());
    assert_eq!(slots.taken(), 1);
}
