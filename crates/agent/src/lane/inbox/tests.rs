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
    sender: Sender,
    settings: Option<Settings>,
    is_boundary: bool,
}

impl Letter for Note {
    fn run(&self) -> &RunId {
        &self.run
    }

    fn text(&self) -> Cow<'_, str> {
        self.text.as_str().into()
    }

    fn route(&self) -> &Route {
        &self.route
    }

    fn sender(&self) -> Sender {
        self.sender
    }

    fn settings(&self) -> Option<&Settings> {
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
fn by(mode: Mode) -> Settings {
    Settings { mode, debounce: Duration::ZERO, cap: 20, drop: Drop::Summarize }
}

fn waiting_for(debounce: u64, settings: Settings) -> Settings {
    Settings { debounce: Duration::from_millis(debounce), ..settings }
}

fn note(text: &str, settings: Settings) -> Note {
    Note {
        run: RunId::parse(text).unwrap(),
        text: text.to_owned(),
        route: Route::default(),
        sender: Sender::Owner,
        settings: Some(settings),
        is_boundary: false,
    }
}

fn plain(text: &str) -> Note {
    Note { settings: None, ..note(text, Settings::default()) }
}

fn notes<const N: usize>(texts: [&str; N], settings: Settings) -> [Note; N] {
    texts.map(|text| note(text, settings))
}

fn telegram(thread: &str) -> Route {
    Route::new(Some("telegram"), Some("42"), None, Some(thread))
}

fn slack(thread: &str) -> Route {
    Route::new(Some("slack"), Some("C1"), None, Some(thread))
}

/// Pushes messages while a run is active. Returns the queue and the result of each push.
fn busy(notes: impl IntoIterator<Item = Note>) -> (Inbox<Note>, Vec<Pushed<Note>>) {
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

fn at(placed: Placed) -> Pushed<Note> {
    Pushed::In { placed, gone: Vec::new() }
}

fn alone(host: Note) -> Turn<Note> {
    Turn { host, guests: Vec::new(), prompt: None }
}

fn drain(inbox: &mut Inbox<Note>) -> Vec<Turn<Note>> {
    std::iter::from_fn(|| inbox.next(0)).collect()
}

/// Asserts that no turn starts before `until`.
fn assert_held(inbox: &mut Inbox<Note>, now: u64, until: u64) {
    assert_eq!(inbox.ready(now), Ready::Later(until));
    assert_eq!(inbox.next(now), None);
}

fn waiting(inbox: &mut Inbox<Note>) -> Vec<Note> {
    inbox.iter_mut().map(|note| note.clone()).collect()
}

#[test]
fn a_message_to_an_idle_session_starts_at_once_and_as_it_is_in_every_mode() {
    for mode in Mode::ALL {
        let mut inbox = Inbox::default();
        let first = note("a", waiting_for(1_000, by(mode)));
        assert_eq!(inbox.push(first.clone(), false, 5), at(Placed::Started), "{mode:?}");
        assert_eq!(inbox.ready(5), Ready::Now(&first), "{mode:?}");
        assert_eq!(inbox.next(5), Some(alone(first)), "{mode:?}");
        assert_eq!(inbox.ready(5), Ready::Nothing, "{mode:?}");
    }
}

#[test]
fn what_comes_before_the_first_has_a_slot_waits_behind_it() {
    for (mode, placed) in [
        (Mode::Steer, Placed::Queued(2)),
        (Mode::Followup, Placed::Queued(2)),
        (Mode::Collect, Placed::Collected(2)),
        (Mode::SteerBacklog, Placed::Queued(2)),
    ] {
        let mut inbox = Inbox::default();
        let [a, b] = notes(["a", "b"], by(mode));
        assert_eq!(inbox.push(a.clone(), false, 0), at(Placed::Started));
        assert_eq!(inbox.push(b.clone(), false, 0), at(placed));
        assert_eq!(inbox.next(0), Some(alone(a)));
        assert_eq!((inbox.has_offer(), inbox.offer()), (false, None), "it came before the run: {mode:?}");
        assert_eq!(inbox.next(0).unwrap().host, b);
    }
}

#[test]
fn the_first_counts_as_started_and_is_not_dropped_while_it_waits_for_a_slot() {
    let mut inbox = Inbox::default();
    let [a, b, c] = notes(["a", "b", "c"], Settings { cap: 1, drop: Drop::Old, ..by(Mode::Followup) });
    assert_eq!(inbox.push(a.clone(), false, 0), at(Placed::Started));
    assert_eq!(inbox.push(b.clone(), false, 0), at(Placed::Queued(2)));
    assert_eq!(inbox.push(c.clone(), false, 0), Pushed::In { placed: Placed::Queued(2), gone: vec![b] });
    assert_eq!(drain(&mut inbox), [alone(a), alone(c)]);
}

#[test]
fn followups_run_one_by_one_in_order() {
    let three = notes(["a", "b", "c"], by(Mode::Followup));
    let (mut inbox, pushed) = busy(three.clone());
    assert_eq!(pushed, [1, 2, 3].map(|place| at(Placed::Queued(place))));
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    assert_eq!(drain(&mut inbox), three.map(alone));
}

#[test]
fn collect_makes_one_turn_of_what_waits() {
    let [a, b] = notes(["first", "second"], by(Mode::Collect));
    let c = note("third", by(Mode::Collect)).saying("  two\nlines \n");
    let (mut inbox, pushed) = busy([a.clone(), b.clone(), c.clone()]);
    assert_eq!(pushed, [1, 2, 3].map(|place| at(Placed::Collected(place))));
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nfirst\n\n---\nQueued #2\nsecond\n\n\
                  ---\nQueued #3\n  two\nlines";
    assert_eq!(drain(&mut inbox), [Turn { host: c, guests: vec![a, b], prompt: Some(prompt.to_owned()) }]);
}

#[test]
fn a_single_collected_message_is_wrapped_too() {
    let a = note("a", by(Mode::Collect));
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\na".to_owned();
    assert_eq!(drain(&mut left([a.clone()])), [Turn { host: a, guests: Vec::new(), prompt: Some(prompt) }]);
}

#[test]
fn collect_takes_one_by_one_when_routes_differ_until_all_are_gone() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], by(Mode::Collect));
    let (a, b, c, d) = (a.on(telegram("1")), b.on(slack("1")), c.on(slack("1")), d.on(slack("1")));
    let mut inbox = left([a.clone(), b.clone(), c.clone()]);
    assert_eq!(inbox.next(0), Some(alone(a)));
    assert_eq!(inbox.push(d.clone(), true, 0), at(Placed::Collected(3)));
    assert_eq!(drain(&mut inbox), [b, c, d.clone()].map(alone), "the rest of this drain shares a route by now");
    let guests = vec![d.clone()];
    let later = note("e", by(Mode::Collect)).on(slack("1"));
    inbox.push(d, true, 0);
    inbox.push(later.clone(), true, 0);
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nd\n\n---\nQueued #2\ne".to_owned();
    assert_eq!(drain(&mut inbox), [Turn { host: later, guests, prompt: Some(prompt) }]);
}

#[test]
fn a_mixed_batch_that_was_stopped_says_nothing_about_the_next() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], by(Mode::Collect));
    for first in [None, Some(plain("own")), Some(note("now", by(Mode::Interrupt)))] {
        let mut inbox = left([a.clone(), b.clone().on(slack("1"))]);
        assert_eq!(inbox.next(0), Some(alone(a.clone())));
        assert_eq!(inbox.clear(), [b.clone().on(slack("1"))]);
        for note in first.iter().chain([&c, &d]) {
            inbox.push(note.clone(), true, 0);
        }
        let own = first.map(alone);
        assert_eq!(own.as_ref().and_then(|_| inbox.next(0)), own);
        let turn = inbox.next(0).unwrap();
        assert_eq!((turn.host, turn.guests), (d.clone(), vec![c.clone()]));
    }
}

#[test]
fn threads_with_names_are_kept_apart() {
    let [a, b] = notes(["a", "b"], by(Mode::Collect));
    let pair = [a.on(slack("1712.0001")), b.on(slack("1712.0002"))];
    assert_eq!(drain(&mut left(pair.clone())), pair.map(alone));
}

#[test]
fn what_has_a_route_and_what_has_none_are_kept_apart() {
    let [a, b] = notes(["a", "b"], by(Mode::Collect));
    let pair = [a.on(slack("1")), b];
    assert_eq!(drain(&mut left(pair.clone())), pair.map(alone));
}

#[test]
fn a_route_that_leads_nowhere_is_not_collected() {
    let nowhere = || Route::new(Some("slack"), None, None, None);
    let pair = notes(["a", "b"], by(Mode::Collect)).map(|note| note.on(nowhere()));
    assert_eq!(drain(&mut left(pair.clone())), pair.map(alone));
    let one = note("c", by(Mode::Collect)).on(nowhere());
    assert_eq!(drain(&mut left([one.clone()])), [alone(one)]);
}

#[test]
fn m2_messages_of_different_rights_are_never_one_turn() {
    for (one, other) in
        [(Sender::Owner, Sender::Operator), (Sender::Operator, Sender::Owner), (Sender::Owner, Sender::Other)]
    {
        let by_sender = |text: &str, sender, settings| Note { sender, ..note(text, settings).on(slack("1")) };
        let pair = |settings: Settings| [by_sender("a", one, settings), by_sender("b", other, settings)];
        let [a, b] = pair(by(Mode::Collect));
        assert_eq!(drain(&mut left([a.clone(), b.clone()])), [a, b].map(alone));
        // Nor are they summarized together if they exceed the cap.
        let [a, b] = pair(Settings { cap: 1, ..by(Mode::Followup) });
        let c = by_sender("c", other, Settings { cap: 1, ..by(Mode::Followup) });
        let turns = drain(&mut left([a, b, c]));
        assert!(turns.iter().all(|turn| turn.guests.is_empty()), "{turns:?}");
        assert_eq!(turns.iter().map(|turn| turn.host.sender).collect::<Vec<_>>(), [one, other, other]);
    }
}

#[test]
fn it_must_have_been_quiet_for_the_debounce() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], waiting_for(1_000, by(Mode::Followup)));
    let mut inbox = Inbox::default();
    inbox.push(a.clone(), true, 0);
    inbox.push(b.clone(), true, 500);
    inbox.push(c.clone(), true, 900);
    inbox.withdraw_offers();
    assert_held(&mut inbox, 950, 1_900);
    assert_eq!(inbox.push(d.clone(), false, 1_500), at(Placed::Queued(4)), "it does not overtake");
    assert_held(&mut inbox, 1_900, 2_500);
    assert_held(&mut inbox, 2_499, 2_500);
    assert_eq!(inbox.ready(2_500), Ready::Now(&a));
    let turns: Vec<_> = std::iter::from_fn(|| inbox.next(2_500)).collect();
    assert_eq!(turns, [a, b, c, d].map(alone));
}

#[test]
fn without_a_debounce_a_turn_begins_at_once() {
    let a = note("a", by(Mode::Followup));
    let mut inbox = Inbox::default();
    inbox.push(a.clone(), true, 70);
    assert_eq!(inbox.ready(70), Ready::Now(&a));
    assert_eq!(inbox.next(70), Some(alone(a)));
}

#[test]
fn a_full_queue_drops_the_oldest_without_a_word() {
    let [a, b, c] = notes(["a", "b", "c"], Settings { cap: 2, drop: Drop::Old, ..by(Mode::Followup) });
    let (mut inbox, pushed) = busy([a.clone(), b.clone(), c.clone()]);
    let third = Pushed::In { placed: Placed::Queued(2), gone: vec![a] };
    assert_eq!(pushed, [at(Placed::Queued(1)), at(Placed::Queued(2)), third]);
    assert_eq!(drain(&mut inbox), [b, c].map(alone));
}

#[test]
fn a_full_queue_turns_the_newest_away_and_is_as_before() {
    let settings = Settings { cap: 2, drop: Drop::New, ..waiting_for(100, by(Mode::Followup)) };
    let [a, b, c] = notes(["a", "b", "c"], settings);
    let mut inbox = left([a.clone(), b.clone()]);
    assert_eq!(inbox.push(c.clone(), true, 50), Pushed::Full(c));
    assert_held(&mut inbox, 99, 100);
    assert_eq!([inbox.next(100), inbox.next(100), inbox.next(100)], [Some(alone(a)), Some(alone(b)), None]);
}

#[test]
fn a_full_queue_sums_up_what_it_dropped_before_the_rest() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], Settings { cap: 2, ..by(Mode::Followup) });
    let one = "[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- a".to_owned();
    let mut inbox = left([a.clone(), b.clone(), c.clone()]);
    let told = Turn { host: a.clone(), guests: Vec::new(), prompt: Some(one) };
    assert_eq!(drain(&mut inbox), [told, alone(b.clone()), alone(c.clone())]);
    let two = "[Queue overflow] Dropped 2 messages due to cap.\nSummary:\n- a\n- b".to_owned();
    let mut inbox = left([a.clone(), b.clone(), c.clone(), d.clone()]);
    let told = Turn { host: b, guests: vec![a], prompt: Some(two) };
    assert_eq!(drain(&mut inbox), [told, alone(c), alone(d)]);
}

#[test]
fn a_collected_turn_tells_what_was_dropped() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], Settings { cap: 2, ..by(Mode::Collect) });
    let prompt = "[Queued messages while agent was busy]\n\n[Queue overflow] Dropped 2 messages due to cap.\n\
                  Summary:\n- a\n- b\n\n---\nQueued #1\nc\n\n---\nQueued #2\nd";
    let turn = Turn { host: d.clone(), guests: vec![a.clone(), b.clone(), c.clone()], prompt: Some(prompt.to_owned()) };
    assert_eq!(drain(&mut left([a, b, c, d])), [turn]);
}

#[test]
fn dropped_messages_of_another_route_are_not_collected_with_the_rest() {
    let [a, b] = notes(["a", "b"], Settings { cap: 1, ..by(Mode::Collect) });
    let (a, b) = (a.on(telegram("1")), b.on(slack("1")));
    let prompt = "[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- a".to_owned();
    let told = Turn { host: a.clone(), guests: Vec::new(), prompt: Some(prompt) };
    assert_eq!(drain(&mut left([a, b.clone()])), [told, alone(b)]);
}

/// Acceptance D12: the oldest are listed, too.
#[test]
fn a_summary_lists_more_than_the_cap_and_of_too_many_the_oldest_and_the_newest() {
    let all: Vec<_> = (0..25).map(|n| note(&format!("m{n}"), Settings { cap: 4, ..by(Mode::Followup) })).collect();
    let mut inbox = left(all.clone());
    let lines: String = (0..21).map(|n| format!("\n- m{n}")).collect();
    let prompt = format!("[Queue overflow] Dropped 21 messages due to cap.\nSummary:{lines}");
    let told = Turn { host: all[20].clone(), guests: all[..20].to_vec(), prompt: Some(prompt) };
    let rest = all[21..].iter().cloned().map(alone);
    assert_eq!(drain(&mut inbox), std::iter::once(told).chain(rest).collect::<Vec<_>>());
    let many = (0..124).map(|n| note(&format!("m{n}"), Settings { cap: 1, ..by(Mode::Followup) }));
    let prompt = drain(&mut left(many)).remove(0).prompt.unwrap();
    let lines: Vec<_> = prompt.lines().collect();
    assert_eq!(lines[0], "[Queue overflow] Dropped 123 messages due to cap.");
    assert_eq!((lines.len(), lines[2], lines[51]), (2 + SUMMARY_LINES + 1, "- m0", "- m49"));
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
    let slow = waiting_for(1_000, by(Mode::Followup));
    let [a, b] = notes(["a", "b"], slow);
    let c = note("c", waiting_for(10, by(Mode::Collect)));
    let mut inbox = left([a.clone(), b.clone(), c.clone()]);
    assert_eq!(inbox.ready(9), Ready::Later(10));
    let prompt =
        "[Queued messages while agent was busy]\n\n---\nQueued #1\na\n\n---\nQueued #2\nb\n\n---\nQueued #3\nc";
    let turn = Turn { host: c.clone(), guests: vec![a.clone(), b.clone()], prompt: Some(prompt.to_owned()) };
    assert_eq!(inbox.next(10), Some(turn));
    let mut inbox = left([c.clone(), a.clone()]);
    assert_eq!(inbox.ready(10), Ready::Later(1_000));
    assert_eq!([inbox.next(1_000), inbox.next(1_000)], [Some(alone(c.clone())), Some(alone(a.clone()))]);
    let d = note("d", Settings { cap: 1, drop: Drop::Old, ..by(Mode::Followup) });
    let mut inbox = left([a.clone(), b.clone(), c.clone()]);
    assert_eq!(inbox.push(d, true, 0), Pushed::In { placed: Placed::Queued(1), gone: vec![a, b, c] });
}

#[test]
fn a_request_of_its_own_is_never_merged() {
    let [a, b, c] = notes(["a", "b", "c"], by(Mode::Collect));
    let own = plain("own");
    let (mut inbox, pushed) = busy([a.clone(), own.clone(), b.clone(), c.clone()]);
    let places = [Placed::Collected(1), Placed::Queued(2), Placed::Collected(3), Placed::Collected(4)];
    assert_eq!(pushed, places.map(at));
    let first = "[Queued messages while agent was busy]\n\n---\nQueued #1\na".to_owned();
    let last = "[Queued messages while agent was busy]\n\n---\nQueued #1\nb\n\n---\nQueued #2\nc".to_owned();
    let turns = [
        Turn { host: a, guests: Vec::new(), prompt: Some(first) },
        alone(own),
        Turn { host: c, guests: vec![b], prompt: Some(last) },
    ];
    assert_eq!(drain(&mut inbox), turns);
}

#[test]
fn a_request_of_its_own_neither_counts_nor_is_dropped() {
    let [a, b] = notes(["a", "b"], Settings { cap: 1, drop: Drop::Old, ..by(Mode::Followup) });
    let (own, other) = (plain("own"), plain("other"));
    let (mut inbox, pushed) = busy([own.clone(), a.clone(), other.clone(), b.clone()]);
    let fourth = Pushed::In { placed: Placed::Queued(3), gone: vec![a] };
    assert_eq!(pushed, [at(Placed::Queued(1)), at(Placed::Queued(2)), at(Placed::Queued(3)), fourth]);
    assert_eq!(drain(&mut inbox), [own, other, b].map(alone));
}

#[test]
fn a_request_of_its_own_is_not_held_back() {
    let own = plain("own");
    let mut inbox = left([own.clone(), note("a", waiting_for(1_000, by(Mode::Collect)))]);
    assert_eq!(inbox.next(0), Some(alone(own.clone())));
    assert_eq!(inbox.ready(0), Ready::Later(1_000));
    // Nothing can join the messages before it any more, so they are not debounced either.
    let a = note("a", waiting_for(1_000, by(Mode::Followup)));
    let mut inbox = left([a.clone(), own.clone()]);
    assert_eq!([inbox.next(0), inbox.next(0)], [Some(alone(a)), Some(alone(own))]);
}

/// Acceptance D3.
#[test]
fn a_request_of_its_own_is_never_offered_and_does_not_turn_steering_off() {
    let (own, steer, backlog) = (plain("own"), note("s", by(Mode::Steer)), note("b", by(Mode::SteerBacklog)));
    let (mut inbox, pushed) = busy([own.clone(), steer.clone(), backlog.clone()]);
    assert_eq!(pushed, [Placed::Queued(1), Placed::Steered, Placed::Steered].map(at));
    assert!(inbox.has_offer());
    let offers = [Some(Offer::Take(steer)), Some(Offer::Copy("b".to_owned())), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], offers);
    assert_eq!(drain(&mut inbox), [own, backlog].map(alone));
}

#[test]
fn what_comes_after_a_boundary_is_not_offered_to_the_run_before_it() {
    let boundary = Note { is_boundary: true, ..plain("new") };
    let [before, after] = notes(["before", "after"], by(Mode::Steer));
    let (mut inbox, pushed) = busy([before.clone(), boundary.clone(), after.clone()]);
    assert_eq!(pushed, [Placed::Steered, Placed::Queued(1), Placed::Queued(2)].map(at));
    assert_eq!([inbox.offer(), inbox.offer()], [Some(Offer::Take(before)), None]);
    assert_eq!(drain(&mut inbox), [boundary, after].map(alone));
}
#[test]
fn the_run_at_work_is_offered_steers_one_at_a_time_the_oldest_first() {
    let [a, b] = notes(["a", "b"], by(Mode::Steer));
    let (mut inbox, pushed) = busy([a.clone(), b.clone()]);
    assert_eq!(pushed, [at(Placed::Steered), at(Placed::Steered)]);
    assert!(inbox.has_offer());
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], [Some(Offer::Take(a)), Some(Offer::Take(b)), None]);
    assert_eq!((inbox.has_offer(), inbox.next(0)), (false, None), "what was taken does not run again");
}

#[test]
fn a_steer_that_was_not_taken_gets_a_turn_of_its_own_and_no_other_run_sees_it() {
    let [a, b] = notes(["a", "b"], by(Mode::Steer));
    let mut inbox = left([a.clone(), b.clone()]);
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    assert_eq!(drain(&mut inbox), [a, b].map(alone));
}

/// Acceptance D3.
#[test]
fn a_steer_is_offered_although_others_wait() {
    let [s, late] = notes(["s", "late"], by(Mode::Steer));
    let f = note("f", by(Mode::Followup));
    let (mut inbox, pushed) = busy([f.clone(), s.clone()]);
    assert_eq!(pushed, [at(Placed::Queued(1)), at(Placed::Steered)]);
    assert_eq!([inbox.offer(), inbox.offer()], [Some(Offer::Take(s.clone())), None]);
    assert_eq!(drain(&mut inbox), [alone(f.clone())]);
    // A steer message left by an earlier run is offered with it, because it arrived before.
    let mut inbox = left([f.clone(), s.clone()]);
    assert_eq!((inbox.has_offer(), inbox.next(0)), (false, Some(alone(f))));
    assert_eq!(inbox.push(late.clone(), true, 0), at(Placed::Steered));
    let offers = [Some(Offer::Take(s.clone())), Some(Offer::Take(late.clone())), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], offers);
    // Not if it has another route.
    let elsewhere = s.on(slack("1"));
    let mut inbox = left([elsewhere.clone()]);
    assert_eq!(inbox.push(late.clone(), true, 0), at(Placed::Steered));
    assert_eq!([inbox.offer(), inbox.offer()], [Some(Offer::Take(late)), None]);
    assert_eq!(drain(&mut inbox), [alone(elsewhere)]);
}

#[test]
fn a_place_is_that_of_the_moment() {
    let [a, b] = notes(["a", "b"], by(Mode::Steer));
    let (f, c) = (note("f", Settings { cap: 1, ..by(Mode::Followup) }), note("c", by(Mode::Collect)));
    let places = |inbox: &Inbox<Note>| inbox.places().map(|(note, placed)| (note.text.clone(), placed)).collect();
    let told = |told: &[(&str, Placed)]| told.iter().map(|(text, placed)| ((*text).to_owned(), *placed)).collect();
    let (mut inbox, _) = busy([a, plain("own"), b, c]);
    let now: Vec<_> = places(&inbox);
    let expected: Vec<_> = told(&[
        ("a", Placed::Steered),
        ("own", Placed::Queued(1)),
        ("b", Placed::Steered),
        ("c", Placed::Collected(2)),
    ]);
    assert_eq!(now, expected);
    inbox.withdraw_offers();
    inbox.push(f, false, 0);
    let now: Vec<_> = places(&inbox);
    let dropped = ["a", "b", "c"].map(|text| (text, Placed::Summarized));
    let expected: Vec<_> = told(&[&dropped[..], &[("own", Placed::Queued(1)), ("f", Placed::Queued(2))]].concat());
    assert_eq!(now, expected);
}
/// Acceptance D12: every message reported as steered reaches the run, regardless of the cap.
#[test]
fn the_cap_neither_counts_nor_drops_what_is_offered() {
    let all: Vec<_> = (0..40).map(|n| note(&format!("m{n}"), Settings { cap: 2, ..by(Mode::Steer) })).collect();
    let (mut inbox, pushed) = busy(all.clone());
    assert!(pushed.iter().all(|pushed| *pushed == at(Placed::Steered)));
    let f = notes(["f", "g", "h"], Settings { cap: 2, ..by(Mode::Followup) });
    let pushed = f.clone().map(|note| inbox.push(note, true, 0));
    assert_eq!(pushed, [Placed::Queued(1), Placed::Queued(2), Placed::Queued(2)].map(at));
    let offers: Vec<_> = std::iter::from_fn(|| inbox.offer()).collect();
    assert_eq!(offers, all.into_iter().map(Offer::Take).collect::<Vec<_>>());
    let prompt = "[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- f".to_owned();
    let [f, g, h] = f;
    assert_eq!(drain(&mut inbox), [Turn { host: f, guests: Vec::new(), prompt: Some(prompt) }, alone(g), alone(h)]);
}

#[test]
fn a_backlog_message_without_room_to_wait_becomes_a_part_of_the_run() {
    let [a, b] = notes(["a", "b"], Settings { cap: 1, ..by(Mode::SteerBacklog) });
    let (mut inbox, pushed) = busy([a.clone(), b.clone()]);
    assert_eq!(pushed, [at(Placed::Steered), at(Placed::Steered)]);
    assert_eq!([inbox.offer(), inbox.offer()], [Some(Offer::Copy("a".to_owned())), Some(Offer::Take(b))]);
    assert_eq!(drain(&mut inbox), [alone(a)]);
}
#[test]
fn a_backlog_message_is_shown_once_and_runs_as_well() {
    let [a, b] = notes(["a", "b"], by(Mode::SteerBacklog));
    let (mut inbox, pushed) = busy([a.clone(), b.clone()]);
    assert_eq!(pushed, [at(Placed::Steered), at(Placed::Steered)]);
    assert!(inbox.has_offer());
    let copies = [Some(Offer::Copy("a".to_owned())), Some(Offer::Copy("b".to_owned())), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], copies);
    assert!(!inbox.has_offer());
    assert_eq!(drain(&mut inbox), [a, b].map(alone));
}

#[test]
fn a_steer_and_a_backlog_message_are_offered_in_their_order() {
    let (backlog, steer) = (note("b", by(Mode::SteerBacklog)), note("s", by(Mode::Steer)));
    let (copy, take) = (Some(Offer::Copy("b".to_owned())), Some(Offer::Take(steer.clone())));
    let (mut inbox, pushed) = busy([backlog.clone(), steer.clone()]);
    assert_eq!(pushed, [at(Placed::Steered), at(Placed::Steered)]);
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], [copy, take, None]);
    assert_eq!(drain(&mut inbox), [alone(backlog.clone())]);
    let (mut inbox, pushed) = busy([steer.clone(), backlog]);
    assert_eq!(pushed, [at(Placed::Steered), at(Placed::Steered)]);
    let offers = [Some(Offer::Take(steer)), Some(Offer::Copy("b".to_owned()))];
    assert_eq!([inbox.offer(), inbox.offer()], offers);
}
#[test]
fn a_backlog_message_does_not_overtake_one_that_no_run_has_seen() {
    let [host, unseen, late] = notes(["host", "unseen", "late"], by(Mode::SteerBacklog));
    let mut inbox = Inbox::default();
    inbox.push(host.clone(), false, 0);
    inbox.push(unseen.clone(), false, 0);
    assert_eq!(inbox.next(0), Some(alone(host)));
    assert_eq!(inbox.push(late.clone(), true, 0), at(Placed::Steered));
    let offers = ["unseen", "late"].map(|text| Some(Offer::Copy(text.to_owned())));
    assert_eq!([inbox.offer(), inbox.offer()], offers);
    assert_eq!(drain(&mut inbox), [unseen, late].map(alone));
}
#[test]
fn what_is_put_back_keeps_its_place_and_is_not_offered_again() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], by(Mode::Steer));
    let (mut inbox, _) = busy([plain("own"), a.clone(), b.clone(), c.clone()]);
    let taken = [inbox.offer(), inbox.offer()];
    assert_eq!(taken, [Some(Offer::Take(a.clone())), Some(Offer::Take(b.clone()))]);
    inbox.withdraw_offers();
    inbox.put_back([a.clone(), b.clone()]);
    assert_eq!(waiting(&mut inbox), [plain("own"), a.clone(), b.clone(), c.clone()]);
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    assert_eq!(inbox.next(0), Some(alone(plain("own"))));
    // They may have caused that run's failure.
    assert_eq!(inbox.push(d.clone(), true, 0), at(Placed::Steered));
    let offers = [Some(Offer::Take(c)), Some(Offer::Take(d)), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], offers);
    assert_eq!(drain(&mut inbox), [a, b].map(alone));
}
#[test]
fn an_interrupt_takes_the_place_of_everything_and_waits_for_nothing() {
    let [a, b] = notes(["a", "b"], Settings { cap: 1, ..by(Mode::Followup) });
    let now = note("now", waiting_for(1_000, by(Mode::Interrupt)));
    for is_running in [true, false] {
        let mut inbox = left([a.clone(), plain("own"), b.clone()]);
        let gone = vec![a.clone(), plain("own"), b.clone()];
        assert_eq!(inbox.push(now.clone(), is_running, 0), Pushed::In { placed: Placed::Interrupted, gone });
        assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
        assert_eq!(inbox.ready(0), Ready::Now(&now));
        assert_eq!((inbox.next(0), inbox.next(0)), (Some(alone(now.clone())), None));
    }
    let (mut inbox, pushed) = busy([now.clone()]);
    assert_eq!((pushed, inbox.next(0)), (vec![at(Placed::Interrupted)], Some(alone(now))));
}

#[test]
fn the_newest_interrupt_counts() {
    let [a, b] = notes(["a", "b"], by(Mode::Interrupt));
    let (mut inbox, pushed) = busy([a.clone(), b.clone()]);
    let second = Pushed::In { placed: Placed::Interrupted, gone: vec![a] };
    assert_eq!(pushed, [at(Placed::Interrupted), second]);
    assert_eq!(drain(&mut inbox), [alone(b)]);
}

#[test]
fn what_comes_after_an_interrupt_is_not_merged_with_it() {
    let now = note("now", by(Mode::Interrupt));
    let later = note("later", by(Mode::Collect));
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nlater".to_owned();
    let (mut inbox, _) = busy([now.clone(), later.clone()]);
    let turns = [alone(now), Turn { host: later, guests: Vec::new(), prompt: Some(prompt) }];
    assert_eq!(drain(&mut inbox), turns);
}

#[test]
fn exactly_the_message_that_is_meant_is_taken_out() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], Settings { cap: 3, ..by(Mode::Collect) });
    let mut inbox = left([a.clone(), b.clone(), c.clone(), d.clone()]);
    assert_eq!(inbox.take_out(|note| note.text == "none"), []);
    assert_eq!(inbox.take_out(|note| note.text == "c"), std::slice::from_ref(&c));
    assert_eq!(waiting(&mut inbox), [a.clone(), b.clone(), d.clone()]);
    assert_eq!(inbox.take_out(|note| note.text == "a"), [a], "also one that was dropped");
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nb\n\n---\nQueued #2\nd".to_owned();
    assert_eq!(drain(&mut inbox), [Turn { host: d, guests: vec![b], prompt: Some(prompt) }]);
}

#[test]
fn all_are_taken_out_when_all_shall_stop() {
    let [a, b, c] = notes(["a", "b", "c"], Settings { cap: 1, ..by(Mode::Followup) });
    let (mut inbox, _) = busy([a.clone(), plain("own"), b.clone(), c.clone()]);
    assert_eq!((inbox.len(), inbox.is_empty()), (4, false));
    assert_eq!(inbox.clear(), [a, b, plain("own"), c]);
    assert_eq!((inbox.len(), inbox.is_empty(), inbox.next(0)), (0, true, None));
    assert_eq!(inbox.ready(0), Ready::Nothing);
}
#[test]
fn an_inbox_has_a_limit_whatever_its_settings_say() {
    let roomy = |cap, drop| Settings { cap, drop, ..by(Mode::Followup) };
    let (mut inbox, _) = busy((0..LIMIT).map(|n| note(&format!("m{n}"), roomy(usize::MAX, Drop::Summarize))));
    assert_eq!(inbox.len(), LIMIT);
    assert_eq!(inbox.push(plain("own"), true, 0), Pushed::Full(plain("own")));
    for drop in Drop::ALL {
        let late = note("late", roomy(usize::MAX, drop));
        assert_eq!(inbox.push(late.clone(), true, 0), Pushed::Full(late));
    }
    // Dropped messages that are to be summarized count towards the limit as well.
    let (mut inbox, pushed) = busy((0..=LIMIT).map(|n| note(&format!("m{n}"), roomy(1, Drop::Summarize))));
    let full = note(&format!("m{LIMIT}"), roomy(1, Drop::Summarize));
    assert_eq!((inbox.len(), pushed.last()), (LIMIT, Some(&Pushed::Full(full))));
    let now = note("now", by(Mode::Interrupt));
    assert_eq!(waiting(&mut inbox).len(), LIMIT);
    let Pushed::In { placed, gone } = inbox.push(now.clone(), true, 0) else {
        panic!("an interrupt makes its own room")
    };
    assert_eq!((placed, gone.len(), drain(&mut inbox)), (Placed::Interrupted, LIMIT, vec![alone(now)]));
}
