//! Tests of the queue modes, rule by rule.

mod model;
mod random;

use std::time::Duration;

use super::*;

/// A test message. Its text is also its run id.
#[derive(Debug, Clone, PartialEq)]
struct Note {
    run: RunId,
    text: String,
    route: Route,
    sender: SenderRole,
    settings: Option<QueueSettings>,
    is_boundary: bool,
}

impl QueueItem for Note {
    fn run(&self) -> &RunId {
        &self.run
    }

    fn text(&self) -> Cow<'_, str> {
        self.text.as_str().into()
    }

    fn route(&self) -> &Route {
        &self.route
    }

    fn sender(&self) -> SenderRole {
        self.sender
    }

    fn settings(&self) -> Option<&QueueSettings> {
        self.settings.as_ref()
    }

    fn is_boundary(&self) -> bool {
        self.is_boundary
    }
}

impl Note {
    fn on(self, route: Route) -> Self {
        Self { route, ..self }
    }

    fn saying(self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self }
    }
}

/// Settings of a mode with a large cap and no debounce.
fn by(mode: QueueMode) -> QueueSettings {
    QueueSettings { mode, debounce: Duration::ZERO, cap: 20, drop: DropPolicy::Summarize }
}

fn waiting_for(debounce: u64, settings: QueueSettings) -> QueueSettings {
    QueueSettings { debounce: Duration::from_millis(debounce), ..settings }
}

fn note(text: &str, settings: QueueSettings) -> Note {
    Note {
        run: RunId::parse(text).unwrap(),
        text: text.to_owned(),
        route: Route::default(),
        sender: SenderRole::Owner,
        settings: Some(settings),
        is_boundary: false,
    }
}

fn plain(text: &str) -> Note {
    Note { settings: None, ..note(text, QueueSettings::default()) }
}

fn notes<const N: usize>(texts: [&str; N], settings: QueueSettings) -> [Note; N] {
    texts.map(|text| note(text, settings))
}

fn telegram(thread: &str) -> Route {
    Route::new(Some("telegram"), Some("42"), None, Some(thread))
}

fn slack(thread: &str) -> Route {
    Route::new(Some("slack"), Some("C1"), None, Some(thread))
}

/// Pushes messages while a run is active. Returns the queue and the result of each push.
fn busy(notes: impl IntoIterator<Item = Note>) -> (Inbox<Note>, Vec<PushResult<Note>>) {
    let mut inbox = Inbox::default();
    let pushed = notes.into_iter().map(|note| inbox.push(note, true, 0)).collect();
    (inbox, pushed)
}

/// Returns the queue after the end of a run during which these messages arrived.
fn left(notes: impl IntoIterator<Item = Note>) -> Inbox<Note> {
    let (mut inbox, _) = busy(notes);
    inbox.withdraw_offers();
    inbox
}

fn at(placed: Disposition) -> PushResult<Note> {
    PushResult::In { placed, gone: Vec::new() }
}

fn alone(host: Note) -> QueuedTurn<Note> {
    QueuedTurn { host, absorbed: Vec::new(), prompt: None }
}

fn drain(inbox: &mut Inbox<Note>) -> Vec<QueuedTurn<Note>> {
    std::iter::from_fn(|| inbox.next(0)).collect()
}

/// Asserts that no turn starts before `until`.
fn assert_held(inbox: &mut Inbox<Note>, now: u64, until: u64) {
    assert_eq!(inbox.ready(now), Readiness::Later(until));
    assert_eq!(inbox.next(now), None);
}

fn waiting(inbox: &mut Inbox<Note>) -> Vec<Note> {
    inbox.iter_mut().map(|note| note.clone()).collect()
}

#[test]
fn a_message_to_an_idle_session_starts_at_once_and_as_it_is_in_every_mode() {
    for mode in QueueMode::ALL {
        let mut inbox = Inbox::default();
        let first = note("a", waiting_for(1_000, by(mode)));
        assert_eq!(inbox.push(first.clone(), false, 5), at(Disposition::Started), "{mode:?}");
        assert_eq!(inbox.ready(5), Readiness::Now(&first), "{mode:?}");
        assert_eq!(inbox.next(5), Some(alone(first)), "{mode:?}");
        assert_eq!(inbox.ready(5), Readiness::Nothing, "{mode:?}");
    }
}

#[test]
fn what_comes_before_the_first_has_a_slot_waits_behind_it() {
    for (mode, placed) in [
        (QueueMode::Steer, Disposition::Queued(2)),
        (QueueMode::Followup, Disposition::Queued(2)),
        (QueueMode::Collect, Disposition::Collected(2)),
        (QueueMode::SteerBacklog, Disposition::Queued(2)),
    ] {
        let mut inbox = Inbox::default();
        let [a, b] = notes(["a", "b"], by(mode));
        assert_eq!(inbox.push(a.clone(), false, 0), at(Disposition::Started));
        assert_eq!(inbox.push(b.clone(), false, 0), at(placed));
        assert_eq!(inbox.next(0), Some(alone(a)));
        assert_eq!((inbox.has_offer(), inbox.offer()), (false, None), "it came before the run: {mode:?}");
        assert_eq!(inbox.next(0).unwrap().host, b);
    }
}

#[test]
fn the_first_counts_as_started_and_is_not_dropped_while_it_waits_for_a_slot() {
    let mut inbox = Inbox::default();
    let [a, b, c] = notes(["a", "b", "c"], QueueSettings { cap: 1, drop: DropPolicy::Old, ..by(QueueMode::Followup) });
    assert_eq!(inbox.push(a.clone(), false, 0), at(Disposition::Started));
    assert_eq!(inbox.push(b.clone(), false, 0), at(Disposition::Queued(2)));
    assert_eq!(inbox.push(c.clone(), false, 0), PushResult::In { placed: Disposition::Queued(2), gone: vec![b] });
    assert_eq!(drain(&mut inbox), [alone(a), alone(c)]);
}

#[test]
fn followups_run_one_by_one_in_order() {
    let three = notes(["a", "b", "c"], by(QueueMode::Followup));
    let (mut inbox, pushed) = busy(three.clone());
    assert_eq!(pushed, [1, 2, 3].map(|place| at(Disposition::Queued(place))));
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    assert_eq!(drain(&mut inbox), three.map(alone));
}

#[test]
fn collect_makes_one_turn_of_what_waits() {
    let [a, b] = notes(["first", "second"], by(QueueMode::Collect));
    let c = note("third", by(QueueMode::Collect)).saying("  two\nlines \n");
    let (mut inbox, pushed) = busy([a.clone(), b.clone(), c.clone()]);
    assert_eq!(pushed, [1, 2, 3].map(|place| at(Disposition::Collected(place))));
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nfirst\n\n---\nQueued #2\nsecond\n\n\
                  ---\nQueued #3\n  two\nlines";
    assert_eq!(drain(&mut inbox), [QueuedTurn { host: c, absorbed: vec![a, b], prompt: Some(prompt.to_owned()) }]);
}

#[test]
fn a_single_collected_message_is_wrapped_too() {
    let a = note("a", by(QueueMode::Collect));
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\na".to_owned();
    assert_eq!(drain(&mut left([a.clone()])), [QueuedTurn { host: a, absorbed: Vec::new(), prompt: Some(prompt) }]);
}

#[test]
fn collect_takes_one_by_one_when_routes_differ_until_all_are_gone() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], by(QueueMode::Collect));
    let (a, b, c, d) = (a.on(telegram("1")), b.on(slack("1")), c.on(slack("1")), d.on(slack("1")));
    let mut inbox = left([a.clone(), b.clone(), c.clone()]);
    assert_eq!(inbox.next(0), Some(alone(a)));
    assert_eq!(inbox.push(d.clone(), true, 0), at(Disposition::Collected(3)));
    assert_eq!(drain(&mut inbox), [b, c, d.clone()].map(alone), "the rest of this drain shares a route by now");
    let guests = vec![d.clone()];
    let later = note("e", by(QueueMode::Collect)).on(slack("1"));
    inbox.push(d, true, 0);
    inbox.push(later.clone(), true, 0);
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nd\n\n---\nQueued #2\ne".to_owned();
    assert_eq!(drain(&mut inbox), [QueuedTurn { host: later, absorbed: guests, prompt: Some(prompt) }]);
}

#[test]
fn a_mixed_batch_that_was_stopped_says_nothing_about_the_next() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], by(QueueMode::Collect));
    for first in [None, Some(plain("own")), Some(note("now", by(QueueMode::Interrupt)))] {
        let mut inbox = left([a.clone(), b.clone().on(slack("1"))]);
        assert_eq!(inbox.next(0), Some(alone(a.clone())));
        assert_eq!(inbox.clear(), [b.clone().on(slack("1"))]);
        for note in first.iter().chain([&c, &d]) {
            inbox.push(note.clone(), true, 0);
        }
        let own = first.map(alone);
        assert_eq!(own.as_ref().and_then(|_| inbox.next(0)), own);
        let turn = inbox.next(0).unwrap();
        assert_eq!((turn.host, turn.absorbed), (d.clone(), vec![c.clone()]));
    }
}

#[test]
fn threads_with_names_are_kept_apart() {
    let [a, b] = notes(["a", "b"], by(QueueMode::Collect));
    let pair = [a.on(slack("1712.0001")), b.on(slack("1712.0002"))];
    assert_eq!(drain(&mut left(pair.clone())), pair.map(alone));
}

#[test]
fn what_has_a_route_and_what_has_none_are_kept_apart() {
    let [a, b] = notes(["a", "b"], by(QueueMode::Collect));
    let pair = [a.on(slack("1")), b];
    assert_eq!(drain(&mut left(pair.clone())), pair.map(alone));
}

#[test]
fn a_route_that_leads_nowhere_is_not_collected() {
    let nowhere = || Route::new(Some("slack"), None, None, None);
    let pair = notes(["a", "b"], by(QueueMode::Collect)).map(|note| note.on(nowhere()));
    assert_eq!(drain(&mut left(pair.clone())), pair.map(alone));
    let one = note("c", by(QueueMode::Collect)).on(nowhere());
    assert_eq!(drain(&mut left([one.clone()])), [alone(one)]);
}

#[test]
fn m2_messages_of_different_rights_are_never_one_turn() {
    for (one, other) in [
        (SenderRole::Owner, SenderRole::Operator),
        (SenderRole::Operator, SenderRole::Owner),
        (SenderRole::Owner, SenderRole::Other),
    ] {
        let by_sender = |text: &str, sender, settings| Note { sender, ..note(text, settings).on(slack("1")) };
        let pair = |settings: QueueSettings| [by_sender("a", one, settings), by_sender("b", other, settings)];
        let [a, b] = pair(by(QueueMode::Collect));
        assert_eq!(drain(&mut left([a.clone(), b.clone()])), [a, b].map(alone));
        // Nor are they summarized together if they exceed the cap.
        let [a, b] = pair(QueueSettings { cap: 1, ..by(QueueMode::Followup) });
        let c = by_sender("c", other, QueueSettings { cap: 1, ..by(QueueMode::Followup) });
        let turns = drain(&mut left([a, b, c]));
        assert!(turns.iter().all(|turn| turn.absorbed.is_empty()), "{turns:?}");
        assert_eq!(turns.iter().map(|turn| turn.host.sender).collect::<Vec<_>>(), [one, other, other]);
    }
}

#[test]
fn it_must_have_been_quiet_for_the_debounce() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], waiting_for(1_000, by(QueueMode::Followup)));
    let mut inbox = Inbox::default();
    inbox.push(a.clone(), true, 0);
    inbox.push(b.clone(), true, 500);
    inbox.push(c.clone(), true, 900);
    inbox.withdraw_offers();
    assert_held(&mut inbox, 950, 1_900);
    assert_eq!(inbox.push(d.clone(), false, 1_500), at(Disposition::Queued(4)), "it does not overtake");
    assert_held(&mut inbox, 1_900, 2_500);
    assert_held(&mut inbox, 2_499, 2_500);
    assert_eq!(inbox.ready(2_500), Readiness::Now(&a));
    let turns: Vec<_> = std::iter::from_fn(|| inbox.next(2_500)).collect();
    assert_eq!(turns, [a, b, c, d].map(alone));
}

#[test]
fn without_a_debounce_a_turn_begins_at_once() {
    let a = note("a", by(QueueMode::Followup));
    let mut inbox = Inbox::default();
    inbox.push(a.clone(), true, 70);
    assert_eq!(inbox.ready(70), Readiness::Now(&a));
    assert_eq!(inbox.next(70), Some(alone(a)));
}

#[test]
fn a_full_queue_drops_the_oldest_without_a_word() {
    let [a, b, c] = notes(["a", "b", "c"], QueueSettings { cap: 2, drop: DropPolicy::Old, ..by(QueueMode::Followup) });
    let (mut inbox, pushed) = busy([a.clone(), b.clone(), c.clone()]);
    let third = PushResult::In { placed: Disposition::Queued(2), gone: vec![a] };
    assert_eq!(pushed, [at(Disposition::Queued(1)), at(Disposition::Queued(2)), third]);
    assert_eq!(drain(&mut inbox), [b, c].map(alone));
}

#[test]
fn a_full_queue_turns_the_newest_away_and_is_as_before() {
    let settings = QueueSettings { cap: 2, drop: DropPolicy::New, ..waiting_for(100, by(QueueMode::Followup)) };
    let [a, b, c] = notes(["a", "b", "c"], settings);
    let mut inbox = left([a.clone(), b.clone()]);
    assert_eq!(inbox.push(c.clone(), true, 50), PushResult::Full(c));
    assert_held(&mut inbox, 99, 100);
    assert_eq!([inbox.next(100), inbox.next(100), inbox.next(100)], [Some(alone(a)), Some(alone(b)), None]);
}

#[test]
fn a_full_queue_sums_up_what_it_dropped_before_the_rest() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], QueueSettings { cap: 2, ..by(QueueMode::Followup) });
    let one = "[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- a".to_owned();
    let mut inbox = left([a.clone(), b.clone(), c.clone()]);
    let told = QueuedTurn { host: a.clone(), absorbed: Vec::new(), prompt: Some(one) };
    assert_eq!(drain(&mut inbox), [told, alone(b.clone()), alone(c.clone())]);
    let two = "[Queue overflow] Dropped 2 messages due to cap.\nSummary:\n- a\n- b".to_owned();
    let mut inbox = left([a.clone(), b.clone(), c.clone(), d.clone()]);
    let told = QueuedTurn { host: b, absorbed: vec![a], prompt: Some(two) };
    assert_eq!(drain(&mut inbox), [told, alone(c), alone(d)]);
}

#[test]
fn a_collected_turn_tells_what_was_dropped() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], QueueSettings { cap: 2, ..by(QueueMode::Collect) });
    let prompt = "[Queued messages while agent was busy]\n\n[Queue overflow] Dropped 2 messages due to cap.\n\
                  Summary:\n- a\n- b\n\n---\nQueued #1\nc\n\n---\nQueued #2\nd";
    let turn = QueuedTurn {
        host: d.clone(),
        absorbed: vec![a.clone(), b.clone(), c.clone()],
        prompt: Some(prompt.to_owned()),
    };
    assert_eq!(drain(&mut left([a, b, c, d])), [turn]);
}

#[test]
fn dropped_messages_of_another_route_are_not_collected_with_the_rest() {
    let [a, b] = notes(["a", "b"], QueueSettings { cap: 1, ..by(QueueMode::Collect) });
    let (a, b) = (a.on(telegram("1")), b.on(slack("1")));
    let prompt = "[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- a".to_owned();
    let told = QueuedTurn { host: a.clone(), absorbed: Vec::new(), prompt: Some(prompt) };
    assert_eq!(drain(&mut left([a, b.clone()])), [told, alone(b)]);
}

/// Acceptance D12: the oldest are listed, too.
#[test]
fn a_summary_lists_more_than_the_cap_and_of_too_many_the_oldest_and_the_newest() {
    let all: Vec<_> =
        (0..25).map(|n| note(&format!("m{n}"), QueueSettings { cap: 4, ..by(QueueMode::Followup) })).collect();
    let mut inbox = left(all.clone());
    let lines: String = (0..21).map(|n| format!("\n- m{n}")).collect();
    let prompt = format!("[Queue overflow] Dropped 21 messages due to cap.\nSummary:{lines}");
    let told = QueuedTurn { host: all[20].clone(), absorbed: all[..20].to_vec(), prompt: Some(prompt) };
    let rest = all[21..].iter().cloned().map(alone);
    assert_eq!(drain(&mut inbox), std::iter::once(told).chain(rest).collect::<Vec<_>>());
    let many = (0..124).map(|n| note(&format!("m{n}"), QueueSettings { cap: 1, ..by(QueueMode::Followup) }));
    let prompt = drain(&mut left(many)).remove(0).prompt.unwrap();
    let lines: Vec<_> = prompt.lines().collect();
    assert_eq!(lines[0], "[Queue overflow] Dropped 123 messages due to cap.");
    assert_eq!((lines.len(), lines[2], lines[51]), (2 + MAX_SUMMARY_LINES + 1, "- m0", "- m49"));
    assert_eq!((lines[52], lines[53], lines[102]), ("- … 23 more …", "- m73", "- m122"));
}

#[test]
fn a_line_of_the_summary_is_one_short_line() {
    assert_eq!(summary_line("  a\n\tb   c "), "a b c");
    let fits = "é".repeat(160);
    assert_eq!(summary_line(&fits), fits);
    assert_eq!(summary_line(&"é".repeat(161)), format!("{}…", "é".repeat(159)));
    // The 159th character is a blank, which is not kept before the ellipsis.
    let words = format!("{} tail\nof it", "x".repeat(158));
    assert_eq!(summary_line(&words), format!("{}…", "x".repeat(158)));
}

#[test]
fn the_settings_of_the_newest_hold_for_all_that_wait() {
    let slow = waiting_for(1_000, by(QueueMode::Followup));
    let [a, b] = notes(["a", "b"], slow);
    let c = note("c", waiting_for(10, by(QueueMode::Collect)));
    let mut inbox = left([a.clone(), b.clone(), c.clone()]);
    assert_eq!(inbox.ready(9), Readiness::Later(10));
    let prompt =
        "[Queued messages while agent was busy]\n\n---\nQueued #1\na\n\n---\nQueued #2\nb\n\n---\nQueued #3\nc";
    let turn = QueuedTurn { host: c.clone(), absorbed: vec![a.clone(), b.clone()], prompt: Some(prompt.to_owned()) };
    assert_eq!(inbox.next(10), Some(turn));
    let mut inbox = left([c.clone(), a.clone()]);
    assert_eq!(inbox.ready(10), Readiness::Later(1_000));
    assert_eq!([inbox.next(1_000), inbox.next(1_000)], [Some(alone(c.clone())), Some(alone(a.clone()))]);
    let d = note("d", QueueSettings { cap: 1, drop: DropPolicy::Old, ..by(QueueMode::Followup) });
    let mut inbox = left([a.clone(), b.clone(), c.clone()]);
    assert_eq!(inbox.push(d, true, 0), PushResult::In { placed: Disposition::Queued(1), gone: vec![a, b, c] });
}

#[test]
fn a_request_of_its_own_is_never_merged() {
    let [a, b, c] = notes(["a", "b", "c"], by(QueueMode::Collect));
    let own = plain("own");
    let (mut inbox, pushed) = busy([a.clone(), own.clone(), b.clone(), c.clone()]);
    let places =
        [Disposition::Collected(1), Disposition::Queued(2), Disposition::Collected(3), Disposition::Collected(4)];
    assert_eq!(pushed, places.map(at));
    let first = "[Queued messages while agent was busy]\n\n---\nQueued #1\na".to_owned();
    let last = "[Queued messages while agent was busy]\n\n---\nQueued #1\nb\n\n---\nQueued #2\nc".to_owned();
    let turns = [
        QueuedTurn { host: a, absorbed: Vec::new(), prompt: Some(first) },
        alone(own),
        QueuedTurn { host: c, absorbed: vec![b], prompt: Some(last) },
    ];
    assert_eq!(drain(&mut inbox), turns);
}

#[test]
fn a_request_of_its_own_neither_counts_nor_is_dropped() {
    let [a, b] = notes(["a", "b"], QueueSettings { cap: 1, drop: DropPolicy::Old, ..by(QueueMode::Followup) });
    let (own, other) = (plain("own"), plain("other"));
    let (mut inbox, pushed) = busy([own.clone(), a.clone(), other.clone(), b.clone()]);
    let fourth = PushResult::In { placed: Disposition::Queued(3), gone: vec![a] };
    assert_eq!(pushed, [at(Disposition::Queued(1)), at(Disposition::Queued(2)), at(Disposition::Queued(3)), fourth]);
    assert_eq!(drain(&mut inbox), [own, other, b].map(alone));
}

#[test]
fn a_request_of_its_own_is_not_held_back() {
    let own = plain("own");
    let mut inbox = left([own.clone(), note("a", waiting_for(1_000, by(QueueMode::Collect)))]);
    assert_eq!(inbox.next(0), Some(alone(own.clone())));
    assert_eq!(inbox.ready(0), Readiness::Later(1_000));
    // Nothing can join the messages before it any more, so they are not debounced either.
    let a = note("a", waiting_for(1_000, by(QueueMode::Followup)));
    let mut inbox = left([a.clone(), own.clone()]);
    assert_eq!([inbox.next(0), inbox.next(0)], [Some(alone(a)), Some(alone(own))]);
}

/// Acceptance D3.
#[test]
fn a_request_of_its_own_is_never_offered_and_does_not_turn_steering_off() {
    let (own, steer, backlog) = (plain("own"), note("s", by(QueueMode::Steer)), note("b", by(QueueMode::SteerBacklog)));
    let (mut inbox, pushed) = busy([own.clone(), steer.clone(), backlog.clone()]);
    assert_eq!(pushed, [Disposition::Queued(1), Disposition::Steered, Disposition::Steered].map(at));
    assert!(inbox.has_offer());
    let offers = [Some(SteerOffer::Take(steer)), Some(SteerOffer::Copy("b".to_owned())), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], offers);
    assert_eq!(drain(&mut inbox), [own, backlog].map(alone));
}

#[test]
fn what_comes_after_a_boundary_is_not_offered_to_the_run_before_it() {
    let boundary = Note { is_boundary: true, ..plain("new") };
    let [before, after] = notes(["before", "after"], by(QueueMode::Steer));
    let (mut inbox, pushed) = busy([before.clone(), boundary.clone(), after.clone()]);
    assert_eq!(pushed, [Disposition::Steered, Disposition::Queued(1), Disposition::Queued(2)].map(at));
    assert_eq!([inbox.offer(), inbox.offer()], [Some(SteerOffer::Take(before)), None]);
    assert_eq!(drain(&mut inbox), [boundary, after].map(alone));
}
#[test]
fn the_run_at_work_is_offered_steers_one_at_a_time_the_oldest_first() {
    let [a, b] = notes(["a", "b"], by(QueueMode::Steer));
    let (mut inbox, pushed) = busy([a.clone(), b.clone()]);
    assert_eq!(pushed, [at(Disposition::Steered), at(Disposition::Steered)]);
    assert!(inbox.has_offer());
    assert_eq!(
        [inbox.offer(), inbox.offer(), inbox.offer()],
        [Some(SteerOffer::Take(a)), Some(SteerOffer::Take(b)), None]
    );
    assert_eq!((inbox.has_offer(), inbox.next(0)), (false, None), "what was taken does not run again");
}

#[test]
fn a_steer_that_was_not_taken_gets_a_turn_of_its_own_and_no_other_run_sees_it() {
    let [a, b] = notes(["a", "b"], by(QueueMode::Steer));
    let mut inbox = left([a.clone(), b.clone()]);
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    assert_eq!(drain(&mut inbox), [a, b].map(alone));
}

/// Acceptance D3.
#[test]
fn a_steer_is_offered_although_others_wait() {
    let [s, late] = notes(["s", "late"], by(QueueMode::Steer));
    let f = note("f", by(QueueMode::Followup));
    let (mut inbox, pushed) = busy([f.clone(), s.clone()]);
    assert_eq!(pushed, [at(Disposition::Queued(1)), at(Disposition::Steered)]);
    assert_eq!([inbox.offer(), inbox.offer()], [Some(SteerOffer::Take(s.clone())), None]);
    assert_eq!(drain(&mut inbox), [alone(f.clone())]);
    // A steer message left by an earlier run is offered with it, because it arrived before.
    let mut inbox = left([f.clone(), s.clone()]);
    assert_eq!((inbox.has_offer(), inbox.next(0)), (false, Some(alone(f))));
    assert_eq!(inbox.push(late.clone(), true, 0), at(Disposition::Steered));
    let offers = [Some(SteerOffer::Take(s.clone())), Some(SteerOffer::Take(late.clone())), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], offers);
    // Not if it has another route.
    let elsewhere = s.on(slack("1"));
    let mut inbox = left([elsewhere.clone()]);
    assert_eq!(inbox.push(late.clone(), true, 0), at(Disposition::Steered));
    assert_eq!([inbox.offer(), inbox.offer()], [Some(SteerOffer::Take(late)), None]);
    assert_eq!(drain(&mut inbox), [alone(elsewhere)]);
}

#[test]
fn a_place_is_that_of_the_moment() {
    let [a, b] = notes(["a", "b"], by(QueueMode::Steer));
    let (f, c) = (note("f", QueueSettings { cap: 1, ..by(QueueMode::Followup) }), note("c", by(QueueMode::Collect)));
    let places = |inbox: &Inbox<Note>| inbox.places().map(|(note, placed)| (note.text.clone(), placed)).collect();
    let told = |told: &[(&str, Disposition)]| told.iter().map(|(text, placed)| ((*text).to_owned(), *placed)).collect();
    let (mut inbox, _) = busy([a, plain("own"), b, c]);
    let now: Vec<_> = places(&inbox);
    let expected: Vec<_> = told(&[
        ("a", Disposition::Steered),
        ("own", Disposition::Queued(1)),
        ("b", Disposition::Steered),
        ("c", Disposition::Collected(2)),
    ]);
    assert_eq!(now, expected);
    inbox.withdraw_offers();
    inbox.push(f, false, 0);
    let now: Vec<_> = places(&inbox);
    let dropped = ["a", "b", "c"].map(|text| (text, Disposition::Summarized));
    let expected: Vec<_> =
        told(&[&dropped[..], &[("own", Disposition::Queued(1)), ("f", Disposition::Queued(2))]].concat());
    assert_eq!(now, expected);
}
/// Acceptance D12: every message reported as steered reaches the run, regardless of the cap.
#[test]
fn the_cap_neither_counts_nor_drops_what_is_offered() {
    let all: Vec<_> =
        (0..40).map(|n| note(&format!("m{n}"), QueueSettings { cap: 2, ..by(QueueMode::Steer) })).collect();
    let (mut inbox, pushed) = busy(all.clone());
    assert!(pushed.iter().all(|pushed| *pushed == at(Disposition::Steered)));
    let f = notes(["f", "g", "h"], QueueSettings { cap: 2, ..by(QueueMode::Followup) });
    let pushed = f.clone().map(|note| inbox.push(note, true, 0));
    assert_eq!(pushed, [Disposition::Queued(1), Disposition::Queued(2), Disposition::Queued(2)].map(at));
    let offers: Vec<_> = std::iter::from_fn(|| inbox.offer()).collect();
    assert_eq!(offers, all.into_iter().map(SteerOffer::Take).collect::<Vec<_>>());
    let prompt = "[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- f".to_owned();
    let [f, g, h] = f;
    assert_eq!(
        drain(&mut inbox),
        [QueuedTurn { host: f, absorbed: Vec::new(), prompt: Some(prompt) }, alone(g), alone(h)]
    );
}

#[test]
fn a_backlog_message_without_room_to_wait_becomes_a_part_of_the_run() {
    let [a, b] = notes(["a", "b"], QueueSettings { cap: 1, ..by(QueueMode::SteerBacklog) });
    let (mut inbox, pushed) = busy([a.clone(), b.clone()]);
    assert_eq!(pushed, [at(Disposition::Steered), at(Disposition::Steered)]);
    assert_eq!([inbox.offer(), inbox.offer()], [Some(SteerOffer::Copy("a".to_owned())), Some(SteerOffer::Take(b))]);
    assert_eq!(drain(&mut inbox), [alone(a)]);
}
#[test]
fn a_backlog_message_is_shown_once_and_runs_as_well() {
    let [a, b] = notes(["a", "b"], by(QueueMode::SteerBacklog));
    let (mut inbox, pushed) = busy([a.clone(), b.clone()]);
    assert_eq!(pushed, [at(Disposition::Steered), at(Disposition::Steered)]);
    assert!(inbox.has_offer());
    let copies = [Some(SteerOffer::Copy("a".to_owned())), Some(SteerOffer::Copy("b".to_owned())), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], copies);
    assert!(!inbox.has_offer());
    assert_eq!(drain(&mut inbox), [a, b].map(alone));
}

#[test]
fn a_steer_and_a_backlog_message_are_offered_in_their_order() {
    let (backlog, steer) = (note("b", by(QueueMode::SteerBacklog)), note("s", by(QueueMode::Steer)));
    let (copy, take) = (Some(SteerOffer::Copy("b".to_owned())), Some(SteerOffer::Take(steer.clone())));
    let (mut inbox, pushed) = busy([backlog.clone(), steer.clone()]);
    assert_eq!(pushed, [at(Disposition::Steered), at(Disposition::Steered)]);
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], [copy, take, None]);
    assert_eq!(drain(&mut inbox), [alone(backlog.clone())]);
    let (mut inbox, pushed) = busy([steer.clone(), backlog]);
    assert_eq!(pushed, [at(Disposition::Steered), at(Disposition::Steered)]);
    let offers = [Some(SteerOffer::Take(steer)), Some(SteerOffer::Copy("b".to_owned()))];
    assert_eq!([inbox.offer(), inbox.offer()], offers);
}
#[test]
fn a_backlog_message_does_not_overtake_one_that_no_run_has_seen() {
    let [host, unseen, late] = notes(["host", "unseen", "late"], by(QueueMode::SteerBacklog));
    let mut inbox = Inbox::default();
    inbox.push(host.clone(), false, 0);
    inbox.push(unseen.clone(), false, 0);
    assert_eq!(inbox.next(0), Some(alone(host)));
    assert_eq!(inbox.push(late.clone(), true, 0), at(Disposition::Steered));
    let offers = ["unseen", "late"].map(|text| Some(SteerOffer::Copy(text.to_owned())));
    assert_eq!([inbox.offer(), inbox.offer()], offers);
    assert_eq!(drain(&mut inbox), [unseen, late].map(alone));
}
#[test]
fn what_is_put_back_keeps_its_place_and_is_not_offered_again() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], by(QueueMode::Steer));
    let (mut inbox, _) = busy([plain("own"), a.clone(), b.clone(), c.clone()]);
    let taken = [inbox.offer(), inbox.offer()];
    assert_eq!(taken, [Some(SteerOffer::Take(a.clone())), Some(SteerOffer::Take(b.clone()))]);
    inbox.withdraw_offers();
    inbox.put_back([a.clone(), b.clone()]);
    assert_eq!(waiting(&mut inbox), [plain("own"), a.clone(), b.clone(), c.clone()]);
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    assert_eq!(inbox.next(0), Some(alone(plain("own"))));
    // They may have caused that run's failure.
    assert_eq!(inbox.push(d.clone(), true, 0), at(Disposition::Steered));
    let offers = [Some(SteerOffer::Take(c)), Some(SteerOffer::Take(d)), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], offers);
    assert_eq!(drain(&mut inbox), [a, b].map(alone));
}
#[test]
fn an_interrupt_takes_the_place_of_everything_and_waits_for_nothing() {
    let [a, b] = notes(["a", "b"], QueueSettings { cap: 1, ..by(QueueMode::Followup) });
    let now = note("now", waiting_for(1_000, by(QueueMode::Interrupt)));
    for is_running in [true, false] {
        let mut inbox = left([a.clone(), plain("own"), b.clone()]);
        let gone = vec![a.clone(), plain("own"), b.clone()];
        assert_eq!(inbox.push(now.clone(), is_running, 0), PushResult::In { placed: Disposition::Interrupted, gone });
        assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
        assert_eq!(inbox.ready(0), Readiness::Now(&now));
        assert_eq!((inbox.next(0), inbox.next(0)), (Some(alone(now.clone())), None));
    }
    let (mut inbox, pushed) = busy([now.clone()]);
    assert_eq!((pushed, inbox.next(0)), (vec![at(Disposition::Interrupted)], Some(alone(now))));
}

#[test]
fn the_newest_interrupt_counts() {
    let [a, b] = notes(["a", "b"], by(QueueMode::Interrupt));
    let (mut inbox, pushed) = busy([a.clone(), b.clone()]);
    let second = PushResult::In { placed: Disposition::Interrupted, gone: vec![a] };
    assert_eq!(pushed, [at(Disposition::Interrupted), second]);
    assert_eq!(drain(&mut inbox), [alone(b)]);
}

#[test]
fn what_comes_after_an_interrupt_is_not_merged_with_it() {
    let now = note("now", by(QueueMode::Interrupt));
    let later = note("later", by(QueueMode::Collect));
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nlater".to_owned();
    let (mut inbox, _) = busy([now.clone(), later.clone()]);
    let turns = [alone(now), QueuedTurn { host: later, absorbed: Vec::new(), prompt: Some(prompt) }];
    assert_eq!(drain(&mut inbox), turns);
}

#[test]
fn exactly_the_message_that_is_meant_is_taken_out() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], QueueSettings { cap: 3, ..by(QueueMode::Collect) });
    let mut inbox = left([a.clone(), b.clone(), c.clone(), d.clone()]);
    assert_eq!(inbox.take_out(|note| note.text == "none"), []);
    assert_eq!(inbox.take_out(|note| note.text == "c"), std::slice::from_ref(&c));
    assert_eq!(waiting(&mut inbox), [a.clone(), b.clone(), d.clone()]);
    assert_eq!(inbox.take_out(|note| note.text == "a"), [a], "also one that was dropped");
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nb\n\n---\nQueued #2\nd".to_owned();
    assert_eq!(drain(&mut inbox), [QueuedTurn { host: d, absorbed: vec![b], prompt: Some(prompt) }]);
}

#[test]
fn all_are_taken_out_when_all_shall_stop() {
    let [a, b, c] = notes(["a", "b", "c"], QueueSettings { cap: 1, ..by(QueueMode::Followup) });
    let (mut inbox, _) = busy([a.clone(), plain("own"), b.clone(), c.clone()]);
    assert_eq!((inbox.len(), inbox.is_empty()), (4, false));
    assert_eq!(inbox.clear(), [a, b, plain("own"), c]);
    assert_eq!((inbox.len(), inbox.is_empty(), inbox.next(0)), (0, true, None));
    assert_eq!(inbox.ready(0), Readiness::Nothing);
}
#[test]
fn an_inbox_has_a_limit_whatever_its_settings_say() {
    let roomy = |cap, drop| QueueSettings { cap, drop, ..by(QueueMode::Followup) };
    let (mut inbox, _) =
        busy((0..MAX_QUEUED).map(|n| note(&format!("m{n}"), roomy(usize::MAX, DropPolicy::Summarize))));
    assert_eq!(inbox.len(), MAX_QUEUED);
    assert_eq!(inbox.push(plain("own"), true, 0), PushResult::Full(plain("own")));
    for drop in DropPolicy::ALL {
        let late = note("late", roomy(usize::MAX, drop));
        assert_eq!(inbox.push(late.clone(), true, 0), PushResult::Full(late));
    }
    // Dropped messages that are to be summarized count towards the limit as well.
    let (mut inbox, pushed) = busy((0..=MAX_QUEUED).map(|n| note(&format!("m{n}"), roomy(1, DropPolicy::Summarize))));
    let full = note(&format!("m{MAX_QUEUED}"), roomy(1, DropPolicy::Summarize));
    assert_eq!((inbox.len(), pushed.last()), (MAX_QUEUED, Some(&PushResult::Full(full))));
    let now = note("now", by(QueueMode::Interrupt));
    assert_eq!(waiting(&mut inbox).len(), MAX_QUEUED);
    let PushResult::In { placed, gone } = inbox.push(now.clone(), true, 0) else {
        panic!("an interrupt makes its own room")
    };
    assert_eq!((placed, gone.len(), drain(&mut inbox)), (Disposition::Interrupted, MAX_QUEUED, vec![alone(now)]));
}
