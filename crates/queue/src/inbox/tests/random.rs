//! Property test: under any sequence of events no message is lost and none comes out twice.
//!
//! `PROPTEST_CASES=100000` makes a long run of it.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, sample::select};

use super::{model::InboxModel, *};

/// An event in the life of a session.
#[derive(Debug, Clone)]
enum Move {
    /// Pushes a message. Without settings, it is a plain request, which always gets a run of its own.
    Push(Option<QueueSettings>, Route),
    /// Pushes a command that changes the transcript.
    Boundary,
    /// Starts the next run, if no run is active.
    Start,
    /// Ends the active run.
    End,
    /// The active run asks for a message and does this with it.
    Offer(Then),
    /// Aborts the queued message at this index, modulo the length of the queue.
    Abort(usize),
    /// Aborts everything.
    Stop,
    /// Lets this many milliseconds pass.
    Pass(u64),
}

/// What the active run does with a message that it was offered.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// The message is absorbed by the run.
    Commits,
    /// The run has ended before it could receive the message.
    IsGone,
    /// The run ends without having stored it.
    Fails,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let settings = (
        select(QueueMode::ALL.to_vec()),
        select(vec![0, 0, 40, 100]).prop_map(Duration::from_millis),
        1..5_usize,
        select(DropPolicy::ALL.to_vec()),
    );
    let settings = settings.prop_map(|(mode, debounce, cap, drop)| QueueSettings { mode, debounce, cap, drop });
    let incomplete = Route::new(None, Some("C1"), None, None);
    let routes = vec![Route::default(), slack("1"), slack("1"), slack("1"), slack("2"), telegram("1"), incomplete];
    let then = select(vec![Then::Commits, Then::Commits, Then::IsGone, Then::Fails]);
    // Few kinds of settings in one sequence, so that queues grow before something clears them.
    vec(prop_oneof![1 => Just(None), 5 => settings.prop_map(Some)], 1..5).prop_flat_map(move |settings| {
        let action = prop_oneof![
            12 => (select(settings), select(routes.clone())).prop_map(|(settings, route)| Move::Push(settings, route)),
            1 => Just(Move::Boundary),
            4 => Just(Move::Start),
            2 => Just(Move::End),
            4 => then.clone().prop_map(Move::Offer),
            1 => (0..8_usize).prop_map(Move::Abort),
            1 => prop_oneof![9 => Just(Move::Pass(0)), 1 => Just(Move::Stop)],
            4 => (0..60_u64).prop_map(Move::Pass),
        ];
        vec(action, 1..60)
    })
}

/// How a message left the queue for good.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    /// Not accepted, because the queue was full.
    Rejected,
    /// Removed by a later message: dropped from the full queue, or replaced by an interrupt.
    GivenBack,
    /// Aborted, or absorbed by a run that was stopped before it stored the message.
    Stopped,
    /// In the prompt of a run, or absorbed by the active run.
    Answered,
    /// Dropped from the full queue, and listed in the summary of a later run.
    SummedUp,
}

/// The active run, and the messages that it took without having stored them.
#[derive(Debug, Default)]
struct Run {
    unstored: Vec<Note>,
    is_stopped: bool,
    is_over: bool,
}

#[derive(Default)]
struct InboxSimulation {
    inbox: Inbox<Note>,
    model: InboxModel,
    now: u64,
    run: Option<Run>,
    pushed: usize,
    /// How each message left the queue, by the number that is also its text and run id.
    fates: BTreeMap<usize, Fate>,
    /// Texts of the messages that were offered as a copy.
    shown: Vec<String>,
    /// Number of the newest message that a run answered.
    last_turn: Option<usize>,
    /// Last message of each route that a run took.
    last_taken: BTreeMap<String, usize>,
    /// The last accepted message with settings, and its arrival time.
    newest: Option<(QueueSettings, u64)>,
}

impl InboxSimulation {
    fn apply(&mut self, action: Move) {
        match action {
            Move::Push(settings, route) => self.push(settings, route, false),
            Move::Boundary => self.push(None, Route::default(), true),
            Move::Start => self.start(),
            Move::End => self.end(),
            Move::Offer(then) => self.offer(then),
            Move::Abort(index) => self.abort(index),
            Move::Stop => self.stop(),
            Move::Pass(time) => self.now += time,
        }
        self.compare_with_model();
    }

    /// Pushes a message to the inbox and to the model, and checks the result against the model and the rules.
    fn push(&mut self, settings: Option<QueueSettings>, route: Route, is_boundary: bool) {
        let number = self.pushed;
        self.pushed += 1;
        let note = Note { settings, is_boundary, ..plain(&number.to_string()) }.on(route);
        let (is_running, was_empty) = (self.run.is_some(), self.inbox.is_empty());
        let result = self.inbox.push(note.clone(), is_running, self.now);
        assert_eq!(result, self.model.push(note.clone(), is_running, self.now));
        let (disposition, removed) = match result {
            PushResult::In { disposition, removed } => (disposition, removed),
            PushResult::Full(rejected) => {
                assert_eq!((&rejected, settings.map(|settings| settings.drop)), (&note, Some(DropPolicy::New)));
                return self.settle(&[rejected], Fate::Rejected);
            }
        };
        assert_eq!(disposition == Disposition::Started, !is_running && was_empty);
        let is_interrupt = disposition == Disposition::Interrupted;
        assert!(
            removed.iter().all(|removed| is_interrupt || removed.settings.is_some()),
            "a plain request was dropped"
        );
        self.settle(&removed, Fate::GivenBack);
        if let (true, Some(run)) = (is_interrupt, &mut self.run) {
            run.is_stopped = true;
        }
        if let Some(settings) = settings {
            self.newest = Some((settings, self.now));
            let queued = self.model.queue.iter().filter(|waiting| waiting.is_counted()).count();
            assert!(queued <= settings.cap || disposition == Disposition::Steered, "{queued} wait");
        }
    }

    fn start(&mut self) {
        if self.run.is_some() {
            return;
        }
        let dropped = self.model.dropped.clone();
        let has_plain = self.model.queue.iter().any(|waiting| waiting.note.settings.is_none());
        let front_is_queued = self.model.queue.first().is_none_or(super::model::Waiting::is_queued);
        let run = self.inbox.next(self.now);
        assert_eq!(run, self.model.next(self.now));
        let Some(QueuedRun { host, absorbed, prompt }) = run else { return };
        self.run = Some(Run::default());
        if let (true, false, Some((settings, at))) = (front_is_queued, has_plain, self.newest) {
            assert!(Duration::from_millis(self.now - at) >= settings.debounce, "it was not quiet for long enough");
        }
        let all: Vec<_> = absorbed.into_iter().chain([host.clone()]).collect();
        assert!(all.len() == 1 || all.iter().all(|note| note.settings.is_some()), "a plain request was merged");
        if prompt.is_some() {
            assert!(all.iter().all(|note| note.route == host.route), "routes were merged");
        }
        let (summarized, answered): (Vec<_>, Vec<_>) = all.into_iter().partition(|note| dropped.contains(note));
        let dropped: Vec<_> = dropped.into_iter().filter(|note| note.route == host.route).collect();
        assert!(summarized.is_empty() || summarized == dropped, "a summary tells of all that was dropped on its route");
        self.settle(&summarized, Fate::SummedUp);
        self.answer(&answered);
    }

    fn offer(&mut self, then: Then) {
        let Some(run) = self.run.as_mut().filter(|run| !run.is_over) else { return };
        let offered = self.inbox.offer();
        assert_eq!(offered, self.model.offer());
        match offered {
            None => {}
            Some(SteerOffer::Copy(text)) => {
                assert!(!self.shown.contains(&text), "{text} was shown twice");
                self.shown.push(text);
            }
            Some(SteerOffer::Take(note)) => match then {
                Then::Commits => self.take(note),
                Then::IsGone => {
                    run.is_over = true;
                    self.model.put_back(std::slice::from_ref(&note));
                    self.inbox.put_back([note]);
                }
                Then::Fails => {
                    run.is_over = true;
                    run.unstored.push(note);
                }
            },
        }
    }

    fn end(&mut self) {
        let Some(run) = self.run.take() else { return };
        self.inbox.withdraw_offers();
        self.model.withdraw_offers();
        if run.is_stopped {
            self.settle(&run.unstored, Fate::Stopped);
        } else {
            self.model.put_back(&run.unstored);
            self.inbox.put_back(run.unstored);
        }
    }

    fn abort(&mut self, index: usize) {
        let all = self.model.all();
        if all.is_empty() {
            return;
        }
        let target = all[index % all.len()].clone();
        let removed = self.inbox.take_out(|note| note.run == target.run);
        assert_eq!(removed, std::slice::from_ref(&target));
        self.model.take_out(|note| note.run == target.run);
        self.settle(&removed, Fate::Stopped);
    }

    fn stop(&mut self) {
        let removed = self.inbox.clear();
        assert_eq!(removed, self.model.take_out(|_| true));
        self.settle(&removed, Fate::Stopped);
        if let Some(run) = &mut self.run {
            run.is_stopped = true;
        }
    }

    fn answer(&mut self, notes: &[Note]) {
        for note in notes {
            let number = Some(number(note));
            assert!(self.last_turn < number, "{number:?} was overtaken by {:?}", self.last_turn);
            self.last_turn = number;
        }
        self.settle(notes, Fate::Answered);
    }

    /// Records that the active run took an offered message.
    fn take(&mut self, note: Note) {
        let is_steering = |settings: QueueSettings| matches!(settings.mode, QueueMode::Steer | QueueMode::SteerBacklog);
        assert!(note.settings.is_some_and(is_steering), "{note:?} does not steer");
        let before = self.last_taken.insert(format!("{:?}", note.route), number(&note));
        assert!(before < Some(number(&note)), "{note:?} was overtaken by {before:?}");
        self.settle(&[note], Fate::Answered);
    }

    /// Records how messages left the queue. Panics if one of them has left it before.
    fn settle(&mut self, notes: &[Note], fate: Fate) {
        for note in notes {
            assert_eq!(self.fates.insert(number(note), fate), None, "{note:?} came out twice, now as {fate:?}");
        }
    }

    /// Compares the inbox with the model.
    fn compare_with_model(&mut self) {
        assert_eq!(queued_notes(&mut self.inbox), self.model.all());
        assert_eq!(self.inbox.has_offer(), self.model.offered().is_some());
        let listed: Vec<_> = self.inbox.dispositions().map(|(note, _)| note.clone()).collect();
        let expected_order = self.model.all().into_iter().filter(|note| listed.contains(note));
        assert_eq!(listed, expected_order.collect::<Vec<_>>());
        let all = self.model.all();
        let expected = match self.model.ready_at(self.now) {
            None => Readiness::Nothing,
            Some(at) if at > self.now => Readiness::Later(at),
            Some(_) => {
                let front = self.model.queue.first().filter(|first| !first.is_queued());
                Readiness::Now(front.map_or(&all[0], |front| &front.note))
            }
        };
        assert_eq!(self.inbox.ready(self.now), expected);
    }

    /// Executes runs until the queue is empty; then every message must have come out.
    fn finish(&mut self) {
        self.apply(Move::End);
        for _ in 0..=self.pushed {
            [Move::Pass(100), Move::Start, Move::End].into_iter().for_each(|action| self.apply(action));
        }
        assert_eq!(self.fates.keys().copied().collect::<Vec<_>>(), (0..self.pushed).collect::<Vec<_>>());
    }
}

fn number(note: &Note) -> usize {
    note.text.parse().unwrap()
}

fn config() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    ProptestConfig { cases: config.cases.max(1_000), ..config }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_message_comes_out_once_in_order_and_by_the_rules(moves in moves()) {
        let mut simulation = InboxSimulation::default();
        moves.into_iter().for_each(|action| simulation.apply(action));
        simulation.finish();
    }
}
