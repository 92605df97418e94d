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
fn with_mode(mode: QueueMode) -> QueueSettings {
    QueueSettings { mode, debounce: Duration::ZERO, cap: 20, drop: DropPolicy::Summarize }
}

fn with_debounce(debounce: u64, settings: QueueSettings) -> QueueSettings {
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

/// A request without queue settings, which always gets a run of its own.
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
fn push_during_run(notes: impl IntoIterator<Item = Note>) -> (Inbox<Note>, Vec<PushResult<Note>>) {
    let mut inbox = Inbox::default();
    let results = notes.into_iter().map(|note| inbox.push(note, true, 0)).collect();
    (inbox, results)
}

/// Returns the queue after the end of a run during which these messages arrived.
fn inbox_after_run(notes: impl IntoIterator<Item = Note>) -> Inbox<Note> {
    let (mut inbox, _) = push_during_run(notes);
    inbox.withdraw_offers();
    inbox
}

fn accepted_as(disposition: Disposition) -> PushResult<Note> {
    PushResult::In { disposition, removed: Vec::new() }
}

fn single_run(host: Note) -> QueuedRun<Note> {
    QueuedRun { host, absorbed: Vec::new(), prompt: None }
}

fn drain(inbox: &mut Inbox<Note>) -> Vec<QueuedRun<Note>> {
    std::iter::from_fn(|| inbox.next(0)).collect()
}

/// Asserts that no run starts before `until`.
fn assert_held(inbox: &mut Inbox<Note>, now: u64, until: u64) {
    assert_eq!(inbox.ready(now), Readiness::Later(until));
    assert_eq!(inbox.next(now), None);
}

fn queued_notes(inbox: &mut Inbox<Note>) -> Vec<Note> {
    inbox.iter_mut().map(|note| note.clone()).collect()
}

#[test]
fn a_message_to_an_idle_session_starts_at_once_unchanged_in_every_mode() {
    for mode in QueueMode::ALL {
        let mut inbox = Inbox::default();
        let first = note("a", with_debounce(1_000, with_mode(mode)));
        assert_eq!(inbox.push(first.clone(), false, 5), accepted_as(Disposition::Started), "{mode:?}");
        assert_eq!(inbox.ready(5), Readiness::Now(&first), "{mode:?}");
        assert_eq!(inbox.next(5), Some(single_run(first)), "{mode:?}");
        assert_eq!(inbox.ready(5), Readiness::Nothing, "{mode:?}");
    }
}

#[test]
fn messages_that_arrive_before_the_first_has_a_slot_wait_behind_it() {
    for (mode, disposition) in [
        (QueueMode::Steer, Disposition::Queued(2)),
        (QueueMode::Followup, Disposition::Queued(2)),
        (QueueMode::Collect, Disposition::Collected(2)),
        (QueueMode::SteerBacklog, Disposition::Queued(2)),
    ] {
        let mut inbox = Inbox::default();
        let [a, b] = notes(["a", "b"], with_mode(mode));
        assert_eq!(inbox.push(a.clone(), false, 0), accepted_as(Disposition::Started));
        assert_eq!(inbox.push(b.clone(), false, 0), accepted_as(disposition));
        assert_eq!(inbox.next(0), Some(single_run(a)));
        assert_eq!((inbox.has_offer(), inbox.offer()), (false, None), "it came before the run: {mode:?}");
        assert_eq!(inbox.next(0).unwrap().host, b);
    }
}

#[test]
fn the_first_message_is_not_dropped_while_it_waits_for_a_slot() {
    let mut inbox = Inbox::default();
    let [a, b, c] =
        notes(["a", "b", "c"], QueueSettings { cap: 1, drop: DropPolicy::Old, ..with_mode(QueueMode::Followup) });
    assert_eq!(inbox.push(a.clone(), false, 0), accepted_as(Disposition::Started));
    assert_eq!(inbox.push(b.clone(), false, 0), accepted_as(Disposition::Queued(2)));
    assert_eq!(
        inbox.push(c.clone(), false, 0),
        PushResult::In { disposition: Disposition::Queued(2), removed: vec![b] }
    );
    assert_eq!(drain(&mut inbox), [single_run(a), single_run(c)]);
}

#[test]
fn followups_run_one_by_one_in_order() {
    let three = notes(["a", "b", "c"], with_mode(QueueMode::Followup));
    let (mut inbox, pushed) = push_during_run(three.clone());
    assert_eq!(pushed, [1, 2, 3].map(|position| accepted_as(Disposition::Queued(position))));
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    assert_eq!(drain(&mut inbox), three.map(single_run));
}

#[test]
fn collect_merges_queued_messages_into_one_turn() {
    let [a, b] = notes(["first", "second"], with_mode(QueueMode::Collect));
    let c = note("third", with_mode(QueueMode::Collect)).saying("  two\nlines \n");
    let (mut inbox, pushed) = push_during_run([a.clone(), b.clone(), c.clone()]);
    assert_eq!(pushed, [1, 2, 3].map(|position| accepted_as(Disposition::Collected(position))));
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nfirst\n\n---\nQueued #2\nsecond\n\n\
                  ---\nQueued #3\n  two\nlines";
    assert_eq!(drain(&mut inbox), [QueuedRun { host: c, absorbed: vec![a, b], prompt: Some(prompt.to_owned()) }]);
}

#[test]
fn a_single_collected_message_is_wrapped_too() {
    let a = note("a", with_mode(QueueMode::Collect));
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\na".to_owned();
    assert_eq!(
        drain(&mut inbox_after_run([a.clone()])),
        [QueuedRun { host: a, absorbed: Vec::new(), prompt: Some(prompt) }]
    );
}

#[test]
fn collect_takes_messages_one_by_one_if_routes_differ() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], with_mode(QueueMode::Collect));
    let (a, b, c, d) = (a.on(telegram("1")), b.on(slack("1")), c.on(slack("1")), d.on(slack("1")));
    let mut inbox = inbox_after_run([a.clone(), b.clone(), c.clone()]);
    assert_eq!(inbox.next(0), Some(single_run(a)));
    assert_eq!(inbox.push(d.clone(), true, 0), accepted_as(Disposition::Collected(3)));
    assert_eq!(drain(&mut inbox), [b, c, d.clone()].map(single_run), "the rest of this drain shares a route by now");
    let absorbed = vec![d.clone()];
    let later = note("e", with_mode(QueueMode::Collect)).on(slack("1"));
    inbox.push(d, true, 0);
    inbox.push(later.clone(), true, 0);
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nd\n\n---\nQueued #2\ne".to_owned();
    assert_eq!(drain(&mut inbox), [QueuedRun { host: later, absorbed, prompt: Some(prompt) }]);
}

#[test]
fn a_cleared_mixed_batch_does_not_affect_the_next_batch() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], with_mode(QueueMode::Collect));
    for first in [None, Some(plain("own")), Some(note("now", with_mode(QueueMode::Interrupt)))] {
        let mut inbox = inbox_after_run([a.clone(), b.clone().on(slack("1"))]);
        assert_eq!(inbox.next(0), Some(single_run(a.clone())));
        assert_eq!(inbox.clear(), [b.clone().on(slack("1"))]);
        for note in first.iter().chain([&c, &d]) {
            inbox.push(note.clone(), true, 0);
        }
        let own = first.map(single_run);
        assert_eq!(own.as_ref().and_then(|_| inbox.next(0)), own);
        let run = inbox.next(0).unwrap();
        assert_eq!((run.host, run.absorbed), (d.clone(), vec![c.clone()]));
    }
}

#[test]
fn messages_of_different_threads_are_not_merged() {
    let [a, b] = notes(["a", "b"], with_mode(QueueMode::Collect));
    let pair = [a.on(slack("1712.0001")), b.on(slack("1712.0002"))];
    assert_eq!(drain(&mut inbox_after_run(pair.clone())), pair.map(single_run));
}

#[test]
fn messages_with_and_without_a_route_are_not_merged() {
    let [a, b] = notes(["a", "b"], with_mode(QueueMode::Collect));
    let pair = [a.on(slack("1")), b];
    assert_eq!(drain(&mut inbox_after_run(pair.clone())), pair.map(single_run));
}

#[test]
fn messages_with_an_incomplete_route_are_not_merged() {
    let nowhere = || Route::new(Some("slack"), None, None, None);
    let pair = notes(["a", "b"], with_mode(QueueMode::Collect)).map(|note| note.on(nowhere()));
    assert_eq!(drain(&mut inbox_after_run(pair.clone())), pair.map(single_run));
    let one = note("c", with_mode(QueueMode::Collect)).on(nowhere());
    assert_eq!(drain(&mut inbox_after_run([one.clone()])), [single_run(one)]);
}

#[test]
fn messages_with_different_authority_are_never_merged() {
    for (one, other) in [
        (SenderRole::Owner, SenderRole::Operator),
        (SenderRole::Operator, SenderRole::Owner),
        (SenderRole::Owner, SenderRole::Other),
    ] {
        let by_sender = |text: &str, sender, settings| Note { sender, ..note(text, settings).on(slack("1")) };
        let pair = |settings: QueueSettings| [by_sender("a", one, settings), by_sender("b", other, settings)];
        let [a, b] = pair(with_mode(QueueMode::Collect));
        assert_eq!(drain(&mut inbox_after_run([a.clone(), b.clone()])), [a, b].map(single_run));
        // Nor are they summarized together if they exceed the cap.
        let [a, b] = pair(QueueSettings { cap: 1, ..with_mode(QueueMode::Followup) });
        let c = by_sender("c", other, QueueSettings { cap: 1, ..with_mode(QueueMode::Followup) });
        let runs = drain(&mut inbox_after_run([a, b, c]));
        assert!(runs.iter().all(|run| run.absorbed.is_empty()), "{runs:?}");
        assert_eq!(runs.iter().map(|run| run.host.sender).collect::<Vec<_>>(), [one, other, other]);
    }
}

#[test]
fn a_turn_starts_after_the_debounce_of_the_newest_message() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], with_debounce(1_000, with_mode(QueueMode::Followup)));
    let mut inbox = Inbox::default();
    inbox.push(a.clone(), true, 0);
    inbox.push(b.clone(), true, 500);
    inbox.push(c.clone(), true, 900);
    inbox.withdraw_offers();
    assert_held(&mut inbox, 950, 1_900);
    assert_eq!(inbox.push(d.clone(), false, 1_500), accepted_as(Disposition::Queued(4)), "it does not overtake");
    assert_held(&mut inbox, 1_900, 2_500);
    assert_held(&mut inbox, 2_499, 2_500);
    assert_eq!(inbox.ready(2_500), Readiness::Now(&a));
    let runs: Vec<_> = std::iter::from_fn(|| inbox.next(2_500)).collect();
    assert_eq!(runs, [a, b, c, d].map(single_run));
}

#[test]
fn without_a_debounce_a_turn_starts_at_once() {
    let a = note("a", with_mode(QueueMode::Followup));
    let mut inbox = Inbox::default();
    inbox.push(a.clone(), true, 70);
    assert_eq!(inbox.ready(70), Readiness::Now(&a));
    assert_eq!(inbox.next(70), Some(single_run(a)));
}

#[test]
fn a_full_queue_drops_the_oldest_message() {
    let [a, b, c] =
        notes(["a", "b", "c"], QueueSettings { cap: 2, drop: DropPolicy::Old, ..with_mode(QueueMode::Followup) });
    let (mut inbox, pushed) = push_during_run([a.clone(), b.clone(), c.clone()]);
    let third = PushResult::In { disposition: Disposition::Queued(2), removed: vec![a] };
    assert_eq!(pushed, [accepted_as(Disposition::Queued(1)), accepted_as(Disposition::Queued(2)), third]);
    assert_eq!(drain(&mut inbox), [b, c].map(single_run));
}

#[test]
fn a_full_queue_rejects_the_newest_message_and_stays_unchanged() {
    let settings =
        QueueSettings { cap: 2, drop: DropPolicy::New, ..with_debounce(100, with_mode(QueueMode::Followup)) };
    let [a, b, c] = notes(["a", "b", "c"], settings);
    let mut inbox = inbox_after_run([a.clone(), b.clone()]);
    assert_eq!(inbox.push(c.clone(), true, 50), PushResult::Full(c));
    assert_held(&mut inbox, 99, 100);
    assert_eq!([inbox.next(100), inbox.next(100), inbox.next(100)], [Some(single_run(a)), Some(single_run(b)), None]);
}

#[test]
fn a_full_queue_summarizes_dropped_messages_in_the_first_turn() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], QueueSettings { cap: 2, ..with_mode(QueueMode::Followup) });
    let one_dropped = "[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- a".to_owned();
    let mut inbox = inbox_after_run([a.clone(), b.clone(), c.clone()]);
    let summary_run = QueuedRun { host: a.clone(), absorbed: Vec::new(), prompt: Some(one_dropped) };
    assert_eq!(drain(&mut inbox), [summary_run, single_run(b.clone()), single_run(c.clone())]);
    let two_dropped = "[Queue overflow] Dropped 2 messages due to cap.\nSummary:\n- a\n- b".to_owned();
    let mut inbox = inbox_after_run([a.clone(), b.clone(), c.clone(), d.clone()]);
    let summary_run = QueuedRun { host: b, absorbed: vec![a], prompt: Some(two_dropped) };
    assert_eq!(drain(&mut inbox), [summary_run, single_run(c), single_run(d)]);
}

#[test]
fn a_collected_turn_contains_the_summary_of_dropped_messages() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], QueueSettings { cap: 2, ..with_mode(QueueMode::Collect) });
    let prompt = "[Queued messages while agent was busy]\n\n[Queue overflow] Dropped 2 messages due to cap.\n\
                  Summary:\n- a\n- b\n\n---\nQueued #1\nc\n\n---\nQueued #2\nd";
    let run =
        QueuedRun { host: d.clone(), absorbed: vec![a.clone(), b.clone(), c.clone()], prompt: Some(prompt.to_owned()) };
    assert_eq!(drain(&mut inbox_after_run([a, b, c, d])), [run]);
}

#[test]
fn dropped_messages_of_another_route_are_not_collected_with_the_rest() {
    let [a, b] = notes(["a", "b"], QueueSettings { cap: 1, ..with_mode(QueueMode::Collect) });
    let (a, b) = (a.on(telegram("1")), b.on(slack("1")));
    let prompt = "[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- a".to_owned();
    let summary_run = QueuedRun { host: a.clone(), absorbed: Vec::new(), prompt: Some(prompt) };
    assert_eq!(drain(&mut inbox_after_run([a, b.clone()])), [summary_run, single_run(b)]);
}

/// Acceptance D12: the oldest are listed, too.
#[test]
fn a_long_summary_lists_the_oldest_and_the_newest_dropped_messages() {
    let all: Vec<_> =
        (0..25).map(|n| note(&format!("m{n}"), QueueSettings { cap: 4, ..with_mode(QueueMode::Followup) })).collect();
    let mut inbox = inbox_after_run(all.clone());
    let lines: String = (0..21).map(|n| format!("\n- m{n}")).collect();
    let prompt = format!("[Queue overflow] Dropped 21 messages due to cap.\nSummary:{lines}");
    let summary_run = QueuedRun { host: all[20].clone(), absorbed: all[..20].to_vec(), prompt: Some(prompt) };
    let rest = all[21..].iter().cloned().map(single_run);
    assert_eq!(drain(&mut inbox), std::iter::once(summary_run).chain(rest).collect::<Vec<_>>());
    let many = (0..124).map(|n| note(&format!("m{n}"), QueueSettings { cap: 1, ..with_mode(QueueMode::Followup) }));
    let prompt = drain(&mut inbox_after_run(many)).remove(0).prompt.unwrap();
    let lines: Vec<_> = prompt.lines().collect();
    assert_eq!(lines[0], "[Queue overflow] Dropped 123 messages due to cap.");
    assert_eq!((lines.len(), lines[2], lines[51]), (2 + MAX_SUMMARY_LINES + 1, "- m0", "- m49"));
    assert_eq!((lines[52], lines[53], lines[102]), ("- … 23 more …", "- m73", "- m122"));
}

#[test]
fn a_summary_line_is_collapsed_and_truncated() {
    assert_eq!(summary_line("  a\n\tb   c "), "a b c");
    let fits = "é".repeat(160);
    assert_eq!(summary_line(&fits), fits);
    assert_eq!(summary_line(&"é".repeat(161)), format!("{}…", "é".repeat(159)));
    // The 159th character is a blank, which is not kept before the ellipsis.
    let text = format!("{} tail\nof it", "x".repeat(158));
    assert_eq!(summary_line(&text), format!("{}…", "x".repeat(158)));
}

#[test]
fn the_settings_of_the_newest_message_apply_to_all_queued_ones() {
    let slow = with_debounce(1_000, with_mode(QueueMode::Followup));
    let [a, b] = notes(["a", "b"], slow);
    let c = note("c", with_debounce(10, with_mode(QueueMode::Collect)));
    let mut inbox = inbox_after_run([a.clone(), b.clone(), c.clone()]);
    assert_eq!(inbox.ready(9), Readiness::Later(10));
    let prompt =
        "[Queued messages while agent was busy]\n\n---\nQueued #1\na\n\n---\nQueued #2\nb\n\n---\nQueued #3\nc";
    let run = QueuedRun { host: c.clone(), absorbed: vec![a.clone(), b.clone()], prompt: Some(prompt.to_owned()) };
    assert_eq!(inbox.next(10), Some(run));
    let mut inbox = inbox_after_run([c.clone(), a.clone()]);
    assert_eq!(inbox.ready(10), Readiness::Later(1_000));
    assert_eq!([inbox.next(1_000), inbox.next(1_000)], [Some(single_run(c.clone())), Some(single_run(a.clone()))]);
    let d = note("d", QueueSettings { cap: 1, drop: DropPolicy::Old, ..with_mode(QueueMode::Followup) });
    let mut inbox = inbox_after_run([a.clone(), b.clone(), c.clone()]);
    assert_eq!(inbox.push(d, true, 0), PushResult::In { disposition: Disposition::Queued(1), removed: vec![a, b, c] });
}

#[test]
fn a_request_without_queue_settings_is_never_merged() {
    let [a, b, c] = notes(["a", "b", "c"], with_mode(QueueMode::Collect));
    let own = plain("own");
    let (mut inbox, pushed) = push_during_run([a.clone(), own.clone(), b.clone(), c.clone()]);
    let dispositions =
        [Disposition::Collected(1), Disposition::Queued(2), Disposition::Collected(3), Disposition::Collected(4)];
    assert_eq!(pushed, dispositions.map(accepted_as));
    let first = "[Queued messages while agent was busy]\n\n---\nQueued #1\na".to_owned();
    let last = "[Queued messages while agent was busy]\n\n---\nQueued #1\nb\n\n---\nQueued #2\nc".to_owned();
    let runs = [
        QueuedRun { host: a, absorbed: Vec::new(), prompt: Some(first) },
        single_run(own),
        QueuedRun { host: c, absorbed: vec![b], prompt: Some(last) },
    ];
    assert_eq!(drain(&mut inbox), runs);
}

#[test]
fn a_request_without_queue_settings_is_neither_counted_nor_dropped() {
    let [a, b] = notes(["a", "b"], QueueSettings { cap: 1, drop: DropPolicy::Old, ..with_mode(QueueMode::Followup) });
    let (own, other) = (plain("own"), plain("other"));
    let (mut inbox, pushed) = push_during_run([own.clone(), a.clone(), other.clone(), b.clone()]);
    let fourth = PushResult::In { disposition: Disposition::Queued(3), removed: vec![a] };
    assert_eq!(
        pushed,
        [
            accepted_as(Disposition::Queued(1)),
            accepted_as(Disposition::Queued(2)),
            accepted_as(Disposition::Queued(3)),
            fourth
        ]
    );
    assert_eq!(drain(&mut inbox), [own, other, b].map(single_run));
}

#[test]
fn a_request_without_queue_settings_is_not_debounced() {
    let own = plain("own");
    let mut inbox = inbox_after_run([own.clone(), note("a", with_debounce(1_000, with_mode(QueueMode::Collect)))]);
    assert_eq!(inbox.next(0), Some(single_run(own.clone())));
    assert_eq!(inbox.ready(0), Readiness::Later(1_000));
    // Nothing can join the messages before it any more, so they are not debounced either.
    let a = note("a", with_debounce(1_000, with_mode(QueueMode::Followup)));
    let mut inbox = inbox_after_run([a.clone(), own.clone()]);
    assert_eq!([inbox.next(0), inbox.next(0)], [Some(single_run(a)), Some(single_run(own))]);
}

/// Acceptance D3.
#[test]
fn a_request_without_queue_settings_is_never_offered_and_does_not_block_steering() {
    let (own, steer, backlog) =
        (plain("own"), note("s", with_mode(QueueMode::Steer)), note("b", with_mode(QueueMode::SteerBacklog)));
    let (mut inbox, pushed) = push_during_run([own.clone(), steer.clone(), backlog.clone()]);
    assert_eq!(pushed, [Disposition::Queued(1), Disposition::Steered, Disposition::Steered].map(accepted_as));
    assert!(inbox.has_offer());
    let offers = [Some(SteerOffer::Take(steer)), Some(SteerOffer::Copy("b".to_owned())), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], offers);
    assert_eq!(drain(&mut inbox), [own, backlog].map(single_run));
}

#[test]
fn messages_after_a_boundary_are_not_offered_to_the_run_before_it() {
    let boundary = Note { is_boundary: true, ..plain("new") };
    let [before, after] = notes(["before", "after"], with_mode(QueueMode::Steer));
    let (mut inbox, pushed) = push_during_run([before.clone(), boundary.clone(), after.clone()]);
    assert_eq!(pushed, [Disposition::Steered, Disposition::Queued(1), Disposition::Queued(2)].map(accepted_as));
    assert_eq!([inbox.offer(), inbox.offer()], [Some(SteerOffer::Take(before)), None]);
    assert_eq!(drain(&mut inbox), [boundary, after].map(single_run));
}
#[test]
fn the_active_run_is_offered_steer_messages_oldest_first() {
    let [a, b] = notes(["a", "b"], with_mode(QueueMode::Steer));
    let (mut inbox, pushed) = push_during_run([a.clone(), b.clone()]);
    assert_eq!(pushed, [accepted_as(Disposition::Steered), accepted_as(Disposition::Steered)]);
    assert!(inbox.has_offer());
    assert_eq!(
        [inbox.offer(), inbox.offer(), inbox.offer()],
        [Some(SteerOffer::Take(a)), Some(SteerOffer::Take(b)), None]
    );
    assert_eq!((inbox.has_offer(), inbox.next(0)), (false, None), "what was taken does not run again");
}

#[test]
fn a_steer_message_that_was_not_taken_gets_its_own_turn() {
    let [a, b] = notes(["a", "b"], with_mode(QueueMode::Steer));
    let mut inbox = inbox_after_run([a.clone(), b.clone()]);
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    assert_eq!(drain(&mut inbox), [a, b].map(single_run));
}

/// Acceptance D3.
#[test]
fn a_steer_message_is_offered_although_others_are_queued() {
    let [s, late] = notes(["s", "late"], with_mode(QueueMode::Steer));
    let f = note("f", with_mode(QueueMode::Followup));
    let (mut inbox, pushed) = push_during_run([f.clone(), s.clone()]);
    assert_eq!(pushed, [accepted_as(Disposition::Queued(1)), accepted_as(Disposition::Steered)]);
    assert_eq!([inbox.offer(), inbox.offer()], [Some(SteerOffer::Take(s.clone())), None]);
    assert_eq!(drain(&mut inbox), [single_run(f.clone())]);
    // A steer message left by an earlier run is offered with it, because it arrived before.
    let mut inbox = inbox_after_run([f.clone(), s.clone()]);
    assert_eq!((inbox.has_offer(), inbox.next(0)), (false, Some(single_run(f))));
    assert_eq!(inbox.push(late.clone(), true, 0), accepted_as(Disposition::Steered));
    let offers = [Some(SteerOffer::Take(s.clone())), Some(SteerOffer::Take(late.clone())), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], offers);
    // Not if it has another route.
    let elsewhere = s.on(slack("1"));
    let mut inbox = inbox_after_run([elsewhere.clone()]);
    assert_eq!(inbox.push(late.clone(), true, 0), accepted_as(Disposition::Steered));
    assert_eq!([inbox.offer(), inbox.offer()], [Some(SteerOffer::Take(late)), None]);
    assert_eq!(drain(&mut inbox), [single_run(elsewhere)]);
}

#[test]
fn dispositions_reflect_the_current_queue() {
    let [a, b] = notes(["a", "b"], with_mode(QueueMode::Steer));
    let (f, c) = (
        note("f", QueueSettings { cap: 1, ..with_mode(QueueMode::Followup) }),
        note("c", with_mode(QueueMode::Collect)),
    );
    let dispositions = |inbox: &Inbox<Note>| {
        inbox.dispositions().map(|(note, disposition)| (note.text.clone(), disposition)).collect()
    };
    let owned = |owned: &[(&str, Disposition)]| {
        owned.iter().map(|(text, disposition)| ((*text).to_owned(), *disposition)).collect()
    };
    let (mut inbox, _) = push_during_run([a, plain("own"), b, c]);
    let actual: Vec<_> = dispositions(&inbox);
    let expected: Vec<_> = owned(&[
        ("a", Disposition::Steered),
        ("own", Disposition::Queued(1)),
        ("b", Disposition::Steered),
        ("c", Disposition::Collected(2)),
    ]);
    assert_eq!(actual, expected);
    inbox.withdraw_offers();
    inbox.push(f, false, 0);
    let actual: Vec<_> = dispositions(&inbox);
    let dropped = ["a", "b", "c"].map(|text| (text, Disposition::Summarized));
    let expected: Vec<_> =
        owned(&[&dropped[..], &[("own", Disposition::Queued(1)), ("f", Disposition::Queued(2))]].concat());
    assert_eq!(actual, expected);
}
/// Acceptance D12: every message reported as steered reaches the run, regardless of the cap.
#[test]
fn the_cap_neither_counts_nor_drops_offered_messages() {
    let all: Vec<_> =
        (0..40).map(|n| note(&format!("m{n}"), QueueSettings { cap: 2, ..with_mode(QueueMode::Steer) })).collect();
    let (mut inbox, pushed) = push_during_run(all.clone());
    assert!(pushed.iter().all(|pushed| *pushed == accepted_as(Disposition::Steered)));
    let f = notes(["f", "g", "h"], QueueSettings { cap: 2, ..with_mode(QueueMode::Followup) });
    let pushed = f.clone().map(|note| inbox.push(note, true, 0));
    assert_eq!(pushed, [Disposition::Queued(1), Disposition::Queued(2), Disposition::Queued(2)].map(accepted_as));
    let offers: Vec<_> = std::iter::from_fn(|| inbox.offer()).collect();
    assert_eq!(offers, all.into_iter().map(SteerOffer::Take).collect::<Vec<_>>());
    let prompt = "[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- f".to_owned();
    let [f, g, h] = f;
    assert_eq!(
        drain(&mut inbox),
        [QueuedRun { host: f, absorbed: Vec::new(), prompt: Some(prompt) }, single_run(g), single_run(h)]
    );
}

#[test]
fn a_backlog_message_beyond_the_cap_is_absorbed_by_the_run() {
    let [a, b] = notes(["a", "b"], QueueSettings { cap: 1, ..with_mode(QueueMode::SteerBacklog) });
    let (mut inbox, pushed) = push_during_run([a.clone(), b.clone()]);
    assert_eq!(pushed, [accepted_as(Disposition::Steered), accepted_as(Disposition::Steered)]);
    assert_eq!([inbox.offer(), inbox.offer()], [Some(SteerOffer::Copy("a".to_owned())), Some(SteerOffer::Take(b))]);
    assert_eq!(drain(&mut inbox), [single_run(a)]);
}
#[test]
fn a_backlog_message_is_offered_once_and_also_gets_its_own_turn() {
    let [a, b] = notes(["a", "b"], with_mode(QueueMode::SteerBacklog));
    let (mut inbox, pushed) = push_during_run([a.clone(), b.clone()]);
    assert_eq!(pushed, [accepted_as(Disposition::Steered), accepted_as(Disposition::Steered)]);
    assert!(inbox.has_offer());
    let copies = [Some(SteerOffer::Copy("a".to_owned())), Some(SteerOffer::Copy("b".to_owned())), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], copies);
    assert!(!inbox.has_offer());
    assert_eq!(drain(&mut inbox), [a, b].map(single_run));
}

#[test]
fn steer_and_backlog_messages_are_offered_in_order_of_arrival() {
    let (backlog, steer) = (note("b", with_mode(QueueMode::SteerBacklog)), note("s", with_mode(QueueMode::Steer)));
    let (copy, take) = (Some(SteerOffer::Copy("b".to_owned())), Some(SteerOffer::Take(steer.clone())));
    let (mut inbox, pushed) = push_during_run([backlog.clone(), steer.clone()]);
    assert_eq!(pushed, [accepted_as(Disposition::Steered), accepted_as(Disposition::Steered)]);
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], [copy, take, None]);
    assert_eq!(drain(&mut inbox), [single_run(backlog.clone())]);
    let (mut inbox, pushed) = push_during_run([steer.clone(), backlog]);
    assert_eq!(pushed, [accepted_as(Disposition::Steered), accepted_as(Disposition::Steered)]);
    let offers = [Some(SteerOffer::Take(steer)), Some(SteerOffer::Copy("b".to_owned()))];
    assert_eq!([inbox.offer(), inbox.offer()], offers);
}
#[test]
fn a_backlog_message_does_not_overtake_one_that_no_run_has_seen() {
    let [host, unseen, late] = notes(["host", "unseen", "late"], with_mode(QueueMode::SteerBacklog));
    let mut inbox = Inbox::default();
    inbox.push(host.clone(), false, 0);
    inbox.push(unseen.clone(), false, 0);
    assert_eq!(inbox.next(0), Some(single_run(host)));
    assert_eq!(inbox.push(late.clone(), true, 0), accepted_as(Disposition::Steered));
    let offers = ["unseen", "late"].map(|text| Some(SteerOffer::Copy(text.to_owned())));
    assert_eq!([inbox.offer(), inbox.offer()], offers);
    assert_eq!(drain(&mut inbox), [unseen, late].map(single_run));
}
#[test]
fn a_message_that_is_put_back_keeps_its_position_and_is_not_offered_again() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], with_mode(QueueMode::Steer));
    let (mut inbox, _) = push_during_run([plain("own"), a.clone(), b.clone(), c.clone()]);
    let taken = [inbox.offer(), inbox.offer()];
    assert_eq!(taken, [Some(SteerOffer::Take(a.clone())), Some(SteerOffer::Take(b.clone()))]);
    inbox.withdraw_offers();
    inbox.put_back([a.clone(), b.clone()]);
    assert_eq!(queued_notes(&mut inbox), [plain("own"), a.clone(), b.clone(), c.clone()]);
    assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
    assert_eq!(inbox.next(0), Some(single_run(plain("own"))));
    // They may have caused that run's failure.
    assert_eq!(inbox.push(d.clone(), true, 0), accepted_as(Disposition::Steered));
    let offers = [Some(SteerOffer::Take(c)), Some(SteerOffer::Take(d)), None];
    assert_eq!([inbox.offer(), inbox.offer(), inbox.offer()], offers);
    assert_eq!(drain(&mut inbox), [a, b].map(single_run));
}
#[test]
fn an_interrupt_replaces_the_queue_and_is_not_debounced() {
    let [a, b] = notes(["a", "b"], QueueSettings { cap: 1, ..with_mode(QueueMode::Followup) });
    let now = note("now", with_debounce(1_000, with_mode(QueueMode::Interrupt)));
    for is_running in [true, false] {
        let mut inbox = inbox_after_run([a.clone(), plain("own"), b.clone()]);
        let removed = vec![a.clone(), plain("own"), b.clone()];
        assert_eq!(
            inbox.push(now.clone(), is_running, 0),
            PushResult::In { disposition: Disposition::Interrupted, removed }
        );
        assert_eq!((inbox.has_offer(), inbox.offer()), (false, None));
        assert_eq!(inbox.ready(0), Readiness::Now(&now));
        assert_eq!((inbox.next(0), inbox.next(0)), (Some(single_run(now.clone())), None));
    }
    let (mut inbox, pushed) = push_during_run([now.clone()]);
    assert_eq!((pushed, inbox.next(0)), (vec![accepted_as(Disposition::Interrupted)], Some(single_run(now))));
}

#[test]
fn a_newer_interrupt_replaces_an_older_one() {
    let [a, b] = notes(["a", "b"], with_mode(QueueMode::Interrupt));
    let (mut inbox, pushed) = push_during_run([a.clone(), b.clone()]);
    let second = PushResult::In { disposition: Disposition::Interrupted, removed: vec![a] };
    assert_eq!(pushed, [accepted_as(Disposition::Interrupted), second]);
    assert_eq!(drain(&mut inbox), [single_run(b)]);
}

#[test]
fn messages_after_an_interrupt_are_not_merged_with_it() {
    let now = note("now", with_mode(QueueMode::Interrupt));
    let later = note("later", with_mode(QueueMode::Collect));
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nlater".to_owned();
    let (mut inbox, _) = push_during_run([now.clone(), later.clone()]);
    let runs = [single_run(now), QueuedRun { host: later, absorbed: Vec::new(), prompt: Some(prompt) }];
    assert_eq!(drain(&mut inbox), runs);
}

#[test]
fn take_out_removes_only_matching_messages() {
    let [a, b, c, d] = notes(["a", "b", "c", "d"], QueueSettings { cap: 3, ..with_mode(QueueMode::Collect) });
    let mut inbox = inbox_after_run([a.clone(), b.clone(), c.clone(), d.clone()]);
    assert_eq!(inbox.take_out(|note| note.text == "none"), []);
    assert_eq!(inbox.take_out(|note| note.text == "c"), std::slice::from_ref(&c));
    assert_eq!(queued_notes(&mut inbox), [a.clone(), b.clone(), d.clone()]);
    assert_eq!(inbox.take_out(|note| note.text == "a"), [a], "also one that was dropped");
    let prompt = "[Queued messages while agent was busy]\n\n---\nQueued #1\nb\n\n---\nQueued #2\nd".to_owned();
    assert_eq!(drain(&mut inbox), [QueuedRun { host: d, absorbed: vec![b], prompt: Some(prompt) }]);
}

#[test]
fn clear_removes_all_messages() {
    let [a, b, c] = notes(["a", "b", "c"], QueueSettings { cap: 1, ..with_mode(QueueMode::Followup) });
    let (mut inbox, _) = push_during_run([a.clone(), plain("own"), b.clone(), c.clone()]);
    assert_eq!((inbox.len(), inbox.is_empty()), (4, false));
    assert_eq!(inbox.clear(), [a, b, plain("own"), c]);
    assert_eq!((inbox.len(), inbox.is_empty(), inbox.next(0)), (0, true, None));
    assert_eq!(inbox.ready(0), Readiness::Nothing);
}
#[test]
fn the_inbox_is_bounded_regardless_of_its_settings() {
    let followup = |cap, drop| QueueSettings { cap, drop, ..with_mode(QueueMode::Followup) };
    let (mut inbox, _) =
        push_during_run((0..MAX_QUEUED).map(|n| note(&format!("m{n}"), followup(usize::MAX, DropPolicy::Summarize))));
    assert_eq!(inbox.len(), MAX_QUEUED);
    assert_eq!(inbox.push(plain("own"), true, 0), PushResult::Full(plain("own")));
    for drop in DropPolicy::ALL {
        let late = note("late", followup(usize::MAX, drop));
        assert_eq!(inbox.push(late.clone(), true, 0), PushResult::Full(late));
    }
    // Dropped messages that are to be summarized count towards the limit as well.
    let (mut inbox, pushed) =
        push_during_run((0..=MAX_QUEUED).map(|n| note(&format!("m{n}"), followup(1, DropPolicy::Summarize))));
    let full = note(&format!("m{MAX_QUEUED}"), followup(1, DropPolicy::Summarize));
    assert_eq!((inbox.len(), pushed.last()), (MAX_QUEUED, Some(&PushResult::Full(full))));
    let now = note("now", with_mode(QueueMode::Interrupt));
    assert_eq!(queued_notes(&mut inbox).len(), MAX_QUEUED);
    let PushResult::In { disposition, removed } = inbox.push(now.clone(), true, 0) else {
        panic!("an interrupt makes its own room")
    };
    assert_eq!(
        (disposition, removed.len(), drain(&mut inbox)),
        (Disposition::Interrupted, MAX_QUEUED, vec![single_run(now)])
    );
}
