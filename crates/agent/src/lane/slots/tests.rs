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
fn a_request_names_its_pool_or_its_session_does() {
    let classes = [RunClass::Main, RunClass::Subagent, RunClass::Cron, RunClass::Nested, RunClass::Heartbeat];
    let key = SessionKey::parse("agent:main:cron:job", &AgentId::main()).unwrap();
    assert_eq!(classes.map(|class| RunClass::choose(Some(class.name()), &key)), classes);
    assert_eq!([None, Some(""), Some("else")].map(|named| RunClass::choose(named, &key)), [RunClass::Cron; 3]);
}

#[test]
fn each_pool_has_its_own_slots() {
    let slots = Slots::new(2, 3, 0);
    let classes = [RunClass::Main, RunClass::Subagent, RunClass::Cron, RunClass::Nested, RunClass::Heartbeat];
    let taken = classes.map(|class| std::iter::from_fn(|| slots.try_take(class)).collect::<Vec<_>>());
    assert_eq!(taken.map(|taken| taken.len()), [2, 3, 1, 1, 1]);
}

#[test]
fn raising_a_pool_starts_those_who_wait_at_once() {
    let slots = Slots::new(1, 1, 1);
    let _running = slots.try_take(RunClass::Main).unwrap();
    let waiters = [waiter(&slots), waiter(&slots), waiter(&slots)];
    slots.resize(RunClass::Main, 3);
    let started = waiters.map(FutureExt::now_or_never);
    assert_eq!(started.each_ref().map(Option::is_some), [true, true, false]);
}

#[test]
fn lowering_a_pool_stops_nobody_and_starts_nobody_before_it_has_room() {
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
fn a_slot_for_somebody_who_has_gone_is_the_next_ones() {
    let slots = Slots::new(1, 1, 1);
    let running = slots.try_take(RunClass::Main).unwrap();
    // Many, so that skipping them by recursion would overflow the stack.
    let gone_before: Vec<_> = (0..100_000).map(|_| waiter(&slots)).collect();
    let (goes_after, stays) = (waiter(&slots), waiter(&slots));
    drop(gone_before);
    drop(running);
    drop(goes_after);
    assert!(stays.now_or_never().is_some());
    assert!(slots.try_take(RunClass::Main).is_some());
}

#[test]
fn a_slot_that_its_run_lends_is_anothers_meanwhile() {
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
fn a_slot_is_taken_again_when_the_last_tool_of_its_run_has_waited() {
    let slots = Slots::new(1, 1, 1);
    let lender = Lender::from(slots.try_take(RunClass::Main).unwrap());
    let waits = || {
        let (answer, wait) = oneshot::channel();
        let (lender, wait) = (lender.clone(), wait);
        (answer, async move { lender.lend(wait).await }.boxed())
    };
    let ((first, mut one), (second, mut two)) = (waits(), waits());
    assert_eq!(((&mut one).now_or_never(), (&mut two).now_or_never()), (None, None));
    first.send("a").unwrap();
    assert_eq!(one.now_or_never(), Some(Ok("a")));
    assert!(slots.try_take(RunClass::Main).is_some());
    second.send("b").unwrap();
    assert_eq!(two.now_or_never(), Some(Ok("b")));
    assert!(slots.try_take(RunClass::Main).is_none());
}

#[test]
fn a_run_that_stops_while_its_slot_is_lent_gives_it_back_once() {
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
async fn a_wait_of_two_seconds_is_worth_telling() {
    let slots = Slots::new(1, 1, 1);
    let told = async |wait: u64| {
        let running = slots.take(RunClass::Main).await;
        let held = async move {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            drop(running);
        };
        tokio::join!(slots.take(RunClass::Main), held).0.long_wait()
    };
    assert_eq!([told(1_999).await, told(2_000).await], [None, Some(LONG_WAIT)]);
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
    let any = 0_usize..64;
    let one = prop_oneof![
        4 => Just(Move::Arrive),
        1 => any.clone().prop_map(Move::Leave),
        3 => any.clone().prop_map(Move::End),
        1 => any.clone().prop_map(Move::Lend),
        1 => any.prop_map(Move::Return),
        1 => (0_usize..6).prop_map(Move::Resize),
        3 => Just(Move::Look),
    ];
    vec(one, 1..80)
}

/// Reference model: who holds a slot, and who waits in which order.
#[derive(Debug)]
struct SlotModel {
    size: usize,
    have: Vec<u32>,
    line: VecDeque<u32>,
}

impl SlotModel {
    fn forget(&mut self, id: u32) {
        self.have.retain(|&other| other != id);
        self.line.retain(|&other| other != id);
    }

    fn settle(&mut self) {
        while self.have.len() < self.size
            && let Some(id) = self.line.pop_front()
        {
            self.have.push(id);
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
        let model = SlotModel { size: 2, have: Vec::new(), line: VecDeque::new() };
        let (slots, waiting, running) = (Slots::new(2, 1, 1), Vec::new(), Vec::new());
        Self { slots, waiting, running, lending: Vec::new(), model, arrived: 0 }
    }

    fn apply(&mut self, happens: Move) {
        match happens {
            Move::Arrive => {
                let slots = self.slots.clone();
                self.arrived += 1;
                self.line_up(self.arrived, async move { slots.take(RunClass::Main).await }.boxed());
            }
            Move::Leave(number) => {
                let gone = chosen(&mut self.waiting, number);
                gone.iter().for_each(|(id, _)| self.model.forget(*id));
            }
            Move::End(number) => {
                let ended = chosen(&mut self.running, number);
                ended.iter().for_each(|(id, _)| self.model.forget(*id));
            }
            Move::Lend(number) => {
                if let Some((id, mut slot)) = chosen(&mut self.running, number) {
                    let (back, wait) = oneshot::channel();
                    let lend = async move {
                        slot.release();
                        wait.await.unwrap();
                        slot.pool.take().await
                    };
                    let mut lend = lend.boxed();
                    assert!((&mut lend).now_or_never().is_none());
                    self.lending.push((id, back, lend));
                    self.model.forget(id);
                }
            }
            Move::Return(number) => {
                if let Some((id, back, lend)) = chosen(&mut self.lending, number) {
                    back.send(()).unwrap();
                    self.line_up(id, lend);
                }
            }
            Move::Resize(size) => {
                self.slots.resize(RunClass::Main, size);
                self.model.size = size.max(1);
            }
            Move::Look => self.look(),
        }
        self.model.settle();
    }

    fn line_up(&mut self, id: u32, mut wait: BoxFuture<'static, Slot>) {
        self.model.line.push_back(id);
        match (&mut wait).now_or_never() {
            Some(slot) => self.running.push((id, slot)),
            None => self.waiting.push((id, wait)),
        }
    }

    /// Compares the pool with the model.
    fn look(&mut self) {
        // In reverse, because the order of polling must not matter.
        for (id, mut wait) in std::mem::take(&mut self.waiting).into_iter().rev() {
            match (&mut wait).now_or_never() {
                Some(slot) => self.running.push((id, slot)),
                None => self.waiting.insert(0, (id, wait)),
            }
        }
        let mut running: Vec<_> = self.running.iter().map(|(id, _)| *id).collect();
        let mut expected = self.model.have.clone();
        running.sort_unstable();
        expected.sort_unstable();
        assert_eq!(running, expected, "who has a slot: {:?}", self.model);
    }
}

proptest! {
    /// At most as many slots are in use as exist, no waiter is overtaken, and no slot is lost, under any sequence.
    #[test]
    fn slots_go_to_those_who_wait_in_their_order_and_to_nobody_else(moves in moves()) {
        let mut world = SlotSimulation::new();
        moves.into_iter().for_each(|happens| world.apply(happens));
        world.look();
        // Every waiter gets a slot in the end, as long as runs end.
        while !world.waiting.is_empty() {
            world.apply(Move::End(0));
            world.look();
        }
        world.running.clear();
        world.lending.clear();
        let free = std::iter::from_fn(|| world.slots.try_take(RunClass::Main)).collect::<Vec<_>>();
        prop_assert_eq!(free.len(), world.model.size);
    }
}
