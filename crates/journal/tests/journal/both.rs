//! Behaviour required of every store, tested against the memory store and the journal.

use homard_proto::CallId;
use homard_store::{
    AbortReason, Attempt, Delivery, DeliveryRow, DeliveryState, Fence, Hold, Outcome, ProcessEnd, Rec, RunQuery,
    RunState, Start, Store, ToolClass, ToolRow, UnfinishedRun, Verdict,
    outbox::due,
    usage::{UsageQuery, day_of},
};

use crate::words::*;

macro_rules! run_on_both_stores {
    ($($behaviour:ident)*) => {
        mod memory {
            use homard_store::{Fence, MemoryStore};
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(&MemoryStore::default(), &Fence::default()).await;
            })*
        }
        mod journal {
            $(#[tokio::test]
            async fn $behaviour() {
                let state = tempfile::tempdir().unwrap();
                let journal = crate::words::open(state.path());
                super::$behaviour(&journal, &journal.fence()).await;
            })*
        }
    };
}

run_on_both_stores! {
    a_new_session_is_listed_found_and_empty
    an_entry_follows_the_previous_entry
    an_entry_goes_to_its_transcript_whatever_the_key_refers_to
    a_patch_of_another_session_is_refused
    a_new_session_id_begins_a_new_transcript
    records_of_a_batch_see_earlier_ones
    a_deleted_session_is_removed_and_its_id_can_be_reused
    a_transcript_is_found_by_its_session_wherever_the_key_points
    a_refused_run_leaves_no_trace
    records_of_an_ended_run_are_skipped
    absorbed_runs_end_with_their_host
    open_runs_are_found_in_order
    recovery_returns_everything_about_an_active_run
    a_channel_event_starts_one_run
    a_run_keeps_its_first_start_time
    deliveries_are_queued_with_the_end_of_their_run_or_not_at_all
    a_restart_finds_the_deliveries_of_an_unfinished_run
    deliveries_to_one_target_are_sent_in_order
    a_delivery_rejects_invalid_transitions
    runs_are_listed_newest_first_and_found_by_external_id
    usage_is_summed_up
    a_held_run_waits_until_it_is_released
}

async fn a_held_run_waits_until_it_is_released(store: &dyn Store, fence: &Fence) {
    let hold = |at| Rec::Hold { run: run("r1"), at };
    let release = |at| Rec::Release { run: run("r1"), at };
    let batch = vec![accept("r1", "x"), hold(NOW), release(NOW)];
    let verdicts = vec![Verdict::Stored, Verdict::Skipped, Verdict::Skipped];
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts), "only a started run is held");
    let batch = vec![
        patch("main", None, record("s1")),
        start("r1", "main", "s1"),
        input("r1", MAIN, &[], &["own"]),
        intent("r1", "c1", ToolClass::Effect),
        hold(NOW + 1),
    ];
    store.commit(fence, batch).await.unwrap();
    let row = store.run(&run("r1")).await.unwrap().unwrap();
    let held = Hold { held_at: NOW + 1, released_at: None, is_reentered: false };
    assert_eq!((row.state, row.hold), (RunState::Held, Some(held)));
    assert_eq!(store.recover().await.unwrap()[0].tools, []);
    store.commit(fence, vec![append(MAIN, "meanwhile"), release(NOW + 2)]).await.unwrap();
    let row = store.run(&run("r1")).await.unwrap().unwrap();
    let released = Hold { released_at: Some(NOW + 2), ..held };
    assert_eq!((row.state, row.hold), (RunState::Accepted, Some(released)));
    assert_eq!(store.recover().await.unwrap()[0].entries, vec![child_entry(Some("own"), "meanwhile")]);
    let batch =
        vec![start("r1", "main", "s1"), input("r1", MAIN, &[], &["again"]), input("r1", MAIN, &[], &["steered"])];
    store.commit(fence, batch).await.unwrap();
    let [open] = &store.recover().await.unwrap()[..] else { panic!("one is open") };
    assert_eq!(open.row.hold, Some(Hold { is_reentered: true, ..released }));
    assert_eq!(open.entries, vec![child_entry(Some("again"), "steered")], "what it did is counted from its new line");
}

async fn runs_are_listed_newest_first_and_found_by_external_id(store: &dyn Store, fence: &Fence) {
    let batch = vec![
        accept("r1", "x"),
        accept_event("r2", "update-7"),
        accept("r3", "z"),
        queue(&delivery("d1", "anna", Some("r3"))),
    ];
    store.commit(fence, batch).await.unwrap();
    let batch = vec![deliver("d1", DeliveryState::Sending), deliver("d1", sent())];
    store.commit(fence, batch).await.unwrap();
    let names = async |query: RunQuery| -> Vec<String> {
        store.runs(&query).await.unwrap().iter().map(|row| row.run.to_string()).collect()
    };
    let query = RunQuery { limit: 2, ..RunQuery::default() };
    assert_eq!(names(query.clone()).await, ["r3", "r2"]);
    assert_eq!(names(RunQuery { before: Some(run("r2")), ..query.clone() }).await, ["r1"]);
    assert_eq!(names(RunQuery { before: Some(run("nobody")), ..query.clone() }).await, [""; 0]);
    assert_eq!(names(RunQuery { key: Some(key("main")), ..query.clone() }).await, ["r3", "r2"]);
    assert_eq!(names(RunQuery { key: Some(key("agent:other:main")), ..query }).await, [""; 0]);
    for (name, found) in [("update-7", Some("r2")), ("d1", Some("r3")), ("17", Some("r3")), ("r1", None)] {
        assert_eq!(store.find_run(name).await, Ok(found.map(run)), "{name}");
    }
    assert_eq!(store.deliveries_of(&run("r3")).await.unwrap().len(), 1);
    assert_eq!(store.deliveries_of(&run("r1")).await, Ok(vec![]));
}

async fn usage_is_summed_up(store: &dyn Store, fence: &Fence) {
    for name in ["r1", "r2"] {
        let batch = vec![accept(name, name), start(name, "main", "s1"), end_with_usage(name, 10)];
        store.commit(fence, batch).await.unwrap();
    }
    // Repeating the same end adds nothing.
    store.commit(fence, vec![end_with_usage("r2", 99)]).await.unwrap();
    let today = day_of(NOW);
    assert_eq!(usage_sum(store, &UsageQuery::Days(today, today)).await, (2, 20));
    assert_eq!(usage_sum(store, &UsageQuery::Session(session("s1"))).await, (2, 20));
    assert_eq!(usage_sum(store, &UsageQuery::Days(0, today - 1)).await, (0, 0));
    assert_eq!(usage_sum(store, &UsageQuery::Session(session("s2"))).await, (0, 0));
}

async fn a_new_session_is_listed_found_and_empty(store: &dyn Store, fence: &Fence) {
    assert_eq!(store.load(&key("main")).await, Ok(None));
    assert_eq!(store.find(&session("s1")).await, Ok(None));
    let batch = vec![patch("main", None, record("s1"))];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![Verdict::Stored]));
    assert_eq!(list_sessions(store).await, Ok(vec![(key("main"), record("s1"))]));
    assert_eq!(store.find(&session("s1")).await, Ok(Some(key("main"))));
    let loaded = store.load(&key("main")).await.unwrap().unwrap();
    assert_eq!((loaded.record, loaded.entries), (record("s1"), vec![]));
}

// Case 86: also for an entry that belongs to no run.
async fn an_entry_follows_the_previous_entry(store: &dyn Store, fence: &Fence) {
    store.commit(fence, vec![patch("main", None, record("s1")), append(MAIN, "a")]).await.unwrap();
    store.commit(fence, vec![append(MAIN, "b"), append(MAIN, "c")]).await.unwrap();
    assert_eq!(
        lines(store, "main").await,
        [child_entry(None, "a"), child_entry(Some("a"), "b"), child_entry(Some("b"), "c")]
    );
}

async fn an_entry_goes_to_its_transcript_whatever_the_key_refers_to(store: &dyn Store, fence: &Fence) {
    assert_eq!(store.commit(fence, vec![append(MAIN, "a")]).await, Ok(vec![Verdict::Stored]));
    assert_eq!(store.load(&key("main")).await, Ok(None));
    store.commit(fence, vec![patch("main", None, record("s2")), append(MAIN, "b")]).await.unwrap();
    assert_eq!(lines(store, "main").await, []);
    store.commit(fence, vec![patch("main", Some("s2"), record("s1"))]).await.unwrap();
    assert_eq!(lines(store, "main").await, [child_entry(None, "a"), child_entry(Some("a"), "b")]);
}

async fn a_patch_of_another_session_is_refused(store: &dyn Store, fence: &Fence) {
    let batch = vec![
        patch("main", Some("s0"), record("s1")),
        patch("main", None, record("s2")),
        patch("main", None, record("s3")),
        patch("main", Some("s1"), record("s4")),
    ];
    let verdicts = vec![Verdict::Conflict, Verdict::Stored, Verdict::Conflict, Verdict::Conflict];
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    assert_eq!(list_sessions(store).await, Ok(vec![(key("main"), record("s2"))]));
}

async fn a_new_session_id_begins_a_new_transcript(store: &dyn Store, fence: &Fence) {
    let labelled = homard_proto::session::Record { label: Some("work".to_owned()), ..record("s1") };
    let batch = vec![patch("main", None, record("s1")), append(MAIN, "a"), patch("main", Some("s1"), labelled)];
    store.commit(fence, batch).await.unwrap();
    assert_eq!(lines(store, "main").await, [child_entry(None, "a")]);
    store.commit(fence, vec![patch("main", Some("s1"), record("s2"))]).await.unwrap();
    assert_eq!(lines(store, "main").await, []);
    store.commit(fence, vec![append(["main", "s2"], "b")]).await.unwrap();
    assert_eq!(lines(store, "main").await, [child_entry(None, "b")]);
}

async fn records_of_a_batch_see_earlier_ones(store: &dyn Store, fence: &Fence) {
    let batch = vec![
        patch("main", None, record("s1")),
        append(MAIN, "old"),
        patch("main", Some("s1"), record("s2")),
        append(["main", "s2"], "new"),
        delete("main", "s1"),
        delete("main", "s2"),
        patch("main", None, record("s3")),
    ];
    let mut verdicts = vec![Verdict::Stored; 7];
    (verdicts[4], verdicts[5]) = (Verdict::Conflict, Verdict::Archived(None));
    assert_eq!(store.commit(fence, batch).await.map(without_archive_paths), Ok(verdicts));
    assert_eq!(list_sessions(store).await, Ok(vec![(key("main"), record("s3"))]));
}

async fn a_deleted_session_is_removed_and_its_id_can_be_reused(store: &dyn Store, fence: &Fence) {
    store.commit(fence, vec![patch("main", None, record("s1")), append(MAIN, "a")]).await.unwrap();
    assert_eq!(store.commit(fence, vec![delete("main", "s0")]).await, Ok(vec![Verdict::Conflict]));
    let batch = vec![append(MAIN, "b"), delete("main", "s1"), append(MAIN, "c")];
    let verdicts = vec![Verdict::Stored, Verdict::Archived(None), Verdict::Stored];
    assert_eq!(store.commit(fence, batch).await.map(without_archive_paths), Ok(verdicts));
    assert_eq!(store.load(&key("main")).await, Ok(None));
    assert_eq!(list_sessions(store).await, Ok(vec![]));
    assert_eq!(store.find(&session("s1")).await, Ok(None));
    store.commit(fence, vec![append(MAIN, "d"), patch("main", None, record("s1"))]).await.unwrap();
    assert_eq!(lines(store, "main").await, [child_entry(None, "c"), child_entry(Some("c"), "d")]);
}

async fn a_transcript_is_found_by_its_session_wherever_the_key_points(store: &dyn Store, fence: &Fence) {
    let transcript = async |id: &str| store.transcript(&key("main"), &session(id)).await.unwrap();
    assert_eq!(transcript("s1").await, None);
    store.commit(fence, vec![patch("main", None, record("s1")), append(MAIN, "a")]).await.unwrap();
    let batch = vec![patch("main", Some("s1"), record("s2")), append(["main", "s2"], "b")];
    store.commit(fence, batch).await.unwrap();
    assert_eq!(transcript("s1").await, Some(vec![child_entry(None, "a")]));
    assert_eq!(transcript("s2").await, Some(vec![child_entry(None, "b")]));
    // A session under any key of the agent can continue a transcript that no deleted session had.
    let live = async |id: &str| store.live_transcript(&key("other"), &session(id)).await.unwrap();
    assert_eq!((live("s1").await, live("s2").await), (vec![child_entry(None, "a")], vec![child_entry(None, "b")]));
    store.commit(fence, vec![delete("main", "s2")]).await.unwrap();
    assert_eq!(transcript("s2").await, Some(vec![child_entry(None, "b")]));
    assert_eq!((live("s1").await, live("s2").await), (vec![child_entry(None, "a")], vec![]));
    store.commit(fence, vec![patch("main", None, record("s2"))]).await.unwrap();
    assert_eq!(transcript("s2").await, Some(vec![child_entry(None, "b")]));
    store.commit(fence, vec![append(["main", "s2"], "c")]).await.unwrap();
    assert_eq!(transcript("s2").await, Some(vec![child_entry(None, "c")]));
    assert_eq!(live("s2").await, [child_entry(None, "c")]);
}

async fn a_refused_run_leaves_no_trace(store: &dyn Store, fence: &Fence) {
    let batch = vec![patch("main", None, record("s1")), accept("r1", "x"), start("r1", "main", "s1")];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![Verdict::Stored; 3]));
    let row = store.run(&run("r1")).await.unwrap().unwrap();
    assert_eq!((&row.state, &row.session), (&RunState::Running, &Some(session("s1"))));
    let batch =
        vec![accept("r1", "x"), start("r1", "main", "s1"), input("r1", MAIN, &[], &["a"]), append_by("r1", MAIN, "b")];
    let verdicts =
        vec![Verdict::Duplicate(Box::new(row.clone())), Verdict::Skipped, Verdict::Skipped, Verdict::Skipped];
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    let batch = vec![accept("r1", "y"), input("r1", MAIN, &[], &["a"])];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![Verdict::Conflict, Verdict::Skipped]));
    assert_eq!(lines(store, "main").await, []);
    assert_eq!(store.run(&run("r1")).await, Ok(Some(row)));
}

// R3: the store's part.
async fn records_of_an_ended_run_are_skipped(store: &dyn Store, fence: &Fence) {
    let batch = vec![
        patch("main", None, record("s1")),
        input("r1", MAIN, &[], &["early"]),
        accept("r1", "x"),
        input("r1", MAIN, &[], &["a"]),
        terminal("r1", Outcome::Aborted(AbortReason::User)),
        terminal("r1", Outcome::Done),
        input("r1", MAIN, &[], &["late"]),
        abort("r1", AbortReason::User),
        append_by("r1", MAIN, "late"),
    ];
    let (stored, skipped) = (Verdict::Stored, Verdict::Skipped);
    let verdicts =
        [&stored, &skipped, &stored, &stored, &stored, &skipped, &skipped, &skipped, &skipped].map(Clone::clone);
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts.to_vec()));
    let batch = vec![input("r1", MAIN, &[], &["later"]), terminal("r1", Outcome::Done)];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![skipped.clone(), skipped]));
    assert_eq!(lines(store, "main").await, [child_entry(None, "a")]);
    let state = store.run(&run("r1")).await.unwrap().unwrap().state;
    assert_eq!(state, RunState::Ended(Box::new(ended(Outcome::Aborted(AbortReason::User)))));
}

async fn absorbed_runs_end_with_their_host(store: &dyn Store, fence: &Fence) {
    let batch = vec![patch("main", None, record("s1")), accept("host", "x"), accept("guest", "y")];
    store.commit(fence, batch).await.unwrap();
    store.commit(fence, vec![input("host", MAIN, &["guest"], &["a", "b"])]).await.unwrap();
    let state = store.run(&run("guest")).await.unwrap().unwrap().state;
    assert_eq!(state, RunState::Absorbed(run("host")));
    let batch = vec![terminal("host", Outcome::Done), input("guest", MAIN, &[], &["late"])];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![Verdict::Stored, Verdict::Skipped]));
    let state = store.run(&run("guest")).await.unwrap().unwrap().state;
    assert_eq!(state, RunState::Ended(Box::new(ended(Outcome::Done))));
    assert_eq!(lines(store, "main").await, [child_entry(None, "a"), child_entry(Some("a"), "b")]);
}

async fn open_runs_are_found_in_order(store: &dyn Store, fence: &Fence) {
    let batch = vec![
        accept("z", "1"),
        accept("b", "2"),
        accept("a", "3"),
        terminal("b", Outcome::Aborted(AbortReason::Timeout)),
    ];
    store.commit(fence, batch).await.unwrap();
    let open = store.recover().await.unwrap();
    let names: Vec<_> = open.iter().map(|open| open.row.run.as_str()).collect();
    assert_eq!(names, ["z", "a"]);
}

async fn recovery_returns_everything_about_an_active_run(store: &dyn Store, fence: &Fence) {
    let batch = vec![
        patch("main", None, record("s1")),
        append(MAIN, "before"),
        accept("r1", "x"),
        start("r1", "main", "s1"),
        input("r1", MAIN, &[], &["model", "own"]),
        append_by("r1", MAIN, "calls"),
        intent("r1", "c1", ToolClass::Effect),
        intent("r1", "c1", ToolClass::Idempotent),
        done("r1", "c1", "one"),
        done("r1", "c2", "two"),
        // The key may refer to another session by now; the run still refers to its own.
        patch("main", Some("s1"), record("s2")),
        append(MAIN, "after"),
        abort("r1", AbortReason::Timeout),
        abort("r1", AbortReason::User),
        start("r1", "main", "s1"),
    ];
    store.commit(fence, batch).await.unwrap();
    let Rec::Accept(accepted) = accept("r1", "x") else { unreachable!() };
    let call = |call: &str, class, result| ToolRow { call: CallId::parse(call).unwrap(), class, result };
    let expected = UnfinishedRun {
        row: store.run(&run("r1")).await.unwrap().unwrap(),
        accept: *accepted,
        attempts: vec![Attempt { started_at: NOW, process: ProcessEnd::Running }; 2],
        aborted: Some(AbortReason::Timeout),
        entries: vec![child_entry(Some("own"), "calls"), child_entry(Some("calls"), "after")],
        tools: vec![
            call("c1", ToolClass::Effect, None),
            call("c1", ToolClass::Idempotent, Some(result("c1", "one"))),
            call("c2", ToolClass::Read, Some(result("c2", "two"))),
        ],
        absorbed: Vec::new(),
        deliveries: Vec::new(),
    };
    assert_eq!(store.recover().await, Ok(vec![expected]));
    // A second restart is recorded in addition to the first.
    let Rec::Start(again) = start("r1", "main", "s1") else { unreachable!() };
    store.commit(fence, vec![Rec::Start(Start { at: NOW + 7, ..again })]).await.unwrap();
    let row = store.run(&run("r1")).await.unwrap().unwrap();
    assert_eq!((row.started_at, row.resumed_at), (Some(NOW), vec![NOW, NOW + 7]));
}

async fn a_channel_event_starts_one_run(store: &dyn Store, fence: &Fence) {
    assert_eq!(store.commit(fence, vec![accept_event("r1", "e1")]).await, Ok(vec![Verdict::Stored]));
    let existing = Box::new(store.run(&run("r1")).await.unwrap().unwrap());
    let batch = vec![
        accept_event("r2", "e1"),
        input("r2", MAIN, &[], &["a"]),
        accept_event("r3", "e2"),
        accept_event("r1", "e3"),
    ];
    let duplicate = Verdict::Duplicate(existing.clone());
    let verdicts = vec![duplicate.clone(), Verdict::Skipped, Verdict::Stored, duplicate];
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    assert_eq!(store.run(&run("r2")).await, Ok(None));
    // Also after the run has ended.
    store.commit(fence, vec![terminal("r1", Outcome::Done)]).await.unwrap();
    let existing = Box::new(store.run(&run("r1")).await.unwrap().unwrap());
    let verdicts = store.commit(fence, vec![accept_event("r4", "e1")]).await;
    assert_eq!(verdicts, Ok(vec![Verdict::Duplicate(existing)]));
    let [open] = &store.recover().await.unwrap()[..] else { panic!("one is open") };
    assert_eq!(Rec::Accept(Box::new(open.accept.clone())), accept_event("r3", "e2"));
}

async fn a_run_keeps_its_first_start_time(store: &dyn Store, fence: &Fence) {
    let start_at = |at| {
        let Rec::Start(start) = start("host", "main", "s1") else { unreachable!() };
        Rec::Start(homard_store::Start { at, ..start })
    };
    let batch = vec![
        accept("host", "x"),
        accept("guest", "y"),
        start_at(NOW + 5),
        input("host", MAIN, &["guest"], &["a", "b"]),
        start_at(NOW + 50),
        terminal("host", Outcome::Done),
    ];
    store.commit(fence, batch).await.unwrap();
    for name in ["host", "guest"] {
        let row = store.run(&run(name)).await.unwrap().unwrap();
        assert_eq!((row.started_at, row.session), (Some(NOW + 5), Some(session("s1"))), "{name}");
    }
}

fn waiting(delivery: &Delivery) -> DeliveryRow {
    DeliveryRow::new(delivery.clone())
}

async fn deliveries_are_queued_with_the_end_of_their_run_or_not_at_all(store: &dyn Store, fence: &Fence) {
    let [first, second, notice] =
        [("d1", Some("r1")), ("d2", Some("r1")), ("d3", None)].map(|(id, name)| delivery(id, "ann", name));
    let batch = vec![accept("r1", "x"), queue(&first), terminal("r1", Outcome::Done), queue(&second), queue(&notice)];
    let (stored, skipped) = (Verdict::Stored, Verdict::Skipped);
    let verdicts = [&stored, &stored, &stored, &skipped, &stored].map(Clone::clone).to_vec();
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    let again = vec![queue(&second), terminal("r1", Outcome::Done), queue(&notice)];
    assert_eq!(store.commit(fence, again).await, Ok(vec![skipped; 3]));
    assert_eq!(store.outbox().await, Ok(vec![waiting(&first), waiting(&notice)]));
}

async fn a_restart_finds_the_deliveries_of_an_unfinished_run(store: &dyn Store, fence: &Fence) {
    let [queued, pending, other] =
        [("d1", Some("r1")), ("d2", Some("r1")), ("d3", Some("r2"))].map(|(id, name)| delivery(id, "ann", name));
    let starts = deliver("d1", DeliveryState::Sending);
    let batch =
        vec![accept("r1", "x"), accept("r2", "y"), queue(&queued), queue(&pending), starts, deliver("d1", sent())];
    store.commit(fence, batch).await.unwrap();
    store.commit(fence, vec![queue(&other), terminal("r2", Outcome::Done)]).await.unwrap();
    let found = store.recover().await.unwrap();
    let deliveries: Vec<_> = found.into_iter().map(|found| found.deliveries).collect();
    assert_eq!(deliveries, [[DeliveryRow { state: sent(), attempts: 1, ..waiting(&queued) }, waiting(&pending)]]);
}

async fn deliveries_to_one_target_are_sent_in_order(store: &dyn Store, fence: &Fence) {
    let [first, second, other] = [("d1", "ann"), ("d2", "ann"), ("d3", "bob")].map(|(id, to)| delivery(id, to, None));
    store.commit(fence, vec![queue(&first), queue(&second), queue(&other)]).await.unwrap();
    let rows = store.outbox().await.unwrap();
    assert_eq!(due(&rows, NOW), [&waiting(&first), &waiting(&other)]);
    let failed = DeliveryState::Failed { retry_at: NOW + 10, reason: "busy".to_owned() };
    let starts = |id| deliver(id, DeliveryState::Sending);
    let batch =
        vec![starts("d2"), starts("d1"), starts("d2"), starts("d3"), deliver("d1", failed.clone()), starts("d2")];
    let (stored, skipped) = (Verdict::Stored, Verdict::Skipped);
    let verdicts = [&skipped, &stored, &skipped, &stored, &stored, &skipped].map(Clone::clone).to_vec();
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    let expected = vec![
        DeliveryRow { state: failed, attempts: 1, ..waiting(&first) },
        waiting(&second),
        DeliveryRow { state: DeliveryState::Sending, attempts: 1, ..waiting(&other) },
    ];
    assert_eq!(store.outbox().await, Ok(expected));
    let batch = vec![starts("d1"), deliver("d1", sent()), starts("d2")];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![stored; 3]));
    let left: Vec<_> = store.outbox().await.unwrap().into_iter().map(|row| row.delivery.id).collect();
    assert_eq!(left, ["d2", "d3"]);
}

async fn a_delivery_rejects_invalid_transitions(store: &dyn Store, fence: &Fence) {
    let delivery_record = delivery("d1", "ann", None);
    let dead = DeliveryState::Dead { reason: "the chat is gone".to_owned() };
    let batch = vec![
        deliver("d1", DeliveryState::Sending),
        queue(&delivery_record),
        deliver("d1", sent()),
        deliver("d1", DeliveryState::Sending),
        deliver("d1", DeliveryState::Unknown { reason: Some("a reset".to_owned()) }),
        deliver("d1", DeliveryState::Sending),
        deliver("d1", dead.clone()),
        deliver("d1", sent()),
    ];
    let (stored, skipped) = (Verdict::Stored, Verdict::Skipped);
    let verdicts =
        [&skipped, &stored, &skipped, &stored, &stored, &skipped, &stored, &skipped].map(Clone::clone).to_vec();
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    assert_eq!(store.outbox().await, Ok(vec![DeliveryRow { state: dead, attempts: 1, ..waiting(&delivery_record) }]));
}
