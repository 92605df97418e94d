//! Behaviour required of every store, tested against the memory store and the journal.

use homard_proto::CallId;
use homard_store::{
    AbortReason, Attempt, Delivery, DeliveryRow, DeliveryState, Fence, Hold, Outcome, ProcessEnd, Rec, RunQuery,
    RunState, Start, Store, ToolClass, ToolRow, UnfinishedRun, Verdict,
    outbox::due,
    usage::{UsageQuery, day_of},
};

use crate::words::*;

macro_rules! asked_of_both {
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

asked_of_both! {
    a_new_session_is_listed_found_and_empty
    a_line_hangs_on_the_line_before
    a_line_goes_to_its_transcript_wherever_the_key_points
    a_patch_of_another_session_is_refused
    a_new_session_id_begins_a_new_transcript
    records_of_a_batch_see_those_before
    a_deleted_session_is_gone_and_its_id_begins_anew
    a_transcript_is_found_by_its_session_wherever_the_key_points
    a_refused_run_leaves_no_trace
    an_ended_run_says_no_more
    absorbed_runs_end_with_their_host
    open_runs_are_found_in_order
    all_is_known_of_a_run_that_was_at_work
    an_event_of_a_channel_leads_to_one_run
    a_run_remembers_when_it_began_first
    what_a_run_says_on_a_channel_is_queued_with_its_end_or_not_at_all
    a_restart_finds_what_an_open_run_has_said_on_channels
    deliveries_to_one_target_go_out_in_order
    a_delivery_cannot_go_where_it_cannot
    runs_are_listed_newest_first_and_found_by_any_name
    what_models_took_is_summed_up
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
    store.commit(fence, vec![said(MAIN, "meanwhile"), release(NOW + 2)]).await.unwrap();
    let row = store.run(&run("r1")).await.unwrap().unwrap();
    let released = Hold { released_at: Some(NOW + 2), ..held };
    assert_eq!((row.state, row.hold), (RunState::Accepted, Some(released)));
    assert_eq!(store.recover().await.unwrap()[0].entries, vec![under(Some("own"), "meanwhile")]);
    let batch =
        vec![start("r1", "main", "s1"), input("r1", MAIN, &[], &["again"]), input("r1", MAIN, &[], &["steered"])];
    store.commit(fence, batch).await.unwrap();
    let [open] = &store.recover().await.unwrap()[..] else { panic!("one is open") };
    assert_eq!(open.row.hold, Some(Hold { is_reentered: true, ..released }));
    assert_eq!(open.entries, vec![under(Some("again"), "steered")], "what it did is counted from its new line");
}

async fn runs_are_listed_newest_first_and_found_by_any_name(store: &dyn Store, fence: &Fence) {
    let batch =
        vec![accept("r1", "x"), heard("r2", "update-7"), accept("r3", "z"), queue(&delivery("d1", "anna", Some("r3")))];
    store.commit(fence, batch).await.unwrap();
    let batch = vec![deliver("d1", DeliveryState::Sending), deliver("d1", sent())];
    store.commit(fence, batch).await.unwrap();
    let names = async |look: RunQuery| -> Vec<String> {
        store.runs(&look).await.unwrap().iter().map(|row| row.run.to_string()).collect()
    };
    let look = RunQuery { limit: 2, ..RunQuery::default() };
    assert_eq!(names(look.clone()).await, ["r3", "r2"]);
    assert_eq!(names(RunQuery { before: Some(run("r2")), ..look.clone() }).await, ["r1"]);
    assert_eq!(names(RunQuery { before: Some(run("nobody")), ..look.clone() }).await, [""; 0]);
    assert_eq!(names(RunQuery { key: Some(key("main")), ..look.clone() }).await, ["r3", "r2"]);
    assert_eq!(names(RunQuery { key: Some(key("agent:other:main")), ..look }).await, [""; 0]);
    for (name, found) in [("update-7", Some("r2")), ("d1", Some("r3")), ("17", Some("r3")), ("r1", None)] {
        assert_eq!(store.find_run(name).await, Ok(found.map(run)), "{name}");
    }
    assert_eq!(store.deliveries_of(&run("r3")).await.unwrap().len(), 1);
    assert_eq!(store.deliveries_of(&run("r1")).await, Ok(vec![]));
}

async fn what_models_took_is_summed_up(store: &dyn Store, fence: &Fence) {
    for name in ["r1", "r2"] {
        let batch = vec![accept(name, name), start(name, "main", "s1"), took(name, 10)];
        store.commit(fence, batch).await.unwrap();
    }
    // Repeating the same end adds nothing.
    store.commit(fence, vec![took("r2", 99)]).await.unwrap();
    let today = day_of(NOW);
    assert_eq!(sum(store, &UsageQuery::Days(today, today)).await, (2, 20));
    assert_eq!(sum(store, &UsageQuery::Session(session("s1"))).await, (2, 20));
    assert_eq!(sum(store, &UsageQuery::Days(0, today - 1)).await, (0, 0));
    assert_eq!(sum(store, &UsageQuery::Session(session("s2"))).await, (0, 0));
}

async fn a_new_session_is_listed_found_and_empty(store: &dyn Store, fence: &Fence) {
    assert_eq!(store.load(&key("main")).await, Ok(None));
    assert_eq!(store.find(&session("s1")).await, Ok(None));
    let batch = vec![patch("main", None, record("s1"))];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![Verdict::Stored]));
    assert_eq!(listed(store).await, Ok(vec![(key("main"), record("s1"))]));
    assert_eq!(store.find(&session("s1")).await, Ok(Some(key("main"))));
    let loaded = store.load(&key("main")).await.unwrap().unwrap();
    assert_eq!((loaded.record, loaded.entries), (record("s1"), vec![]));
}

// Case 86: also for an entry that belongs to no run.
async fn a_line_hangs_on_the_line_before(store: &dyn Store, fence: &Fence) {
    store.commit(fence, vec![patch("main", None, record("s1")), said(MAIN, "a")]).await.unwrap();
    store.commit(fence, vec![said(MAIN, "b"), said(MAIN, "c")]).await.unwrap();
    assert_eq!(lines(store, "main").await, [under(None, "a"), under(Some("a"), "b"), under(Some("b"), "c")]);
}

async fn a_line_goes_to_its_transcript_wherever_the_key_points(store: &dyn Store, fence: &Fence) {
    assert_eq!(store.commit(fence, vec![said(MAIN, "a")]).await, Ok(vec![Verdict::Stored]));
    assert_eq!(store.load(&key("main")).await, Ok(None));
    store.commit(fence, vec![patch("main", None, record("s2")), said(MAIN, "b")]).await.unwrap();
    assert_eq!(lines(store, "main").await, []);
    store.commit(fence, vec![patch("main", Some("s2"), record("s1"))]).await.unwrap();
    assert_eq!(lines(store, "main").await, [under(None, "a"), under(Some("a"), "b")]);
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
    assert_eq!(listed(store).await, Ok(vec![(key("main"), record("s2"))]));
}

async fn a_new_session_id_begins_a_new_transcript(store: &dyn Store, fence: &Fence) {
    let named = homard_proto::session::Record { label: Some("work".to_owned()), ..record("s1") };
    let batch = vec![patch("main", None, record("s1")), said(MAIN, "a"), patch("main", Some("s1"), named)];
    store.commit(fence, batch).await.unwrap();
    assert_eq!(lines(store, "main").await, [under(None, "a")]);
    store.commit(fence, vec![patch("main", Some("s1"), record("s2"))]).await.unwrap();
    assert_eq!(lines(store, "main").await, []);
    store.commit(fence, vec![said(("main", "s2"), "b")]).await.unwrap();
    assert_eq!(lines(store, "main").await, [under(None, "b")]);
}

async fn records_of_a_batch_see_those_before(store: &dyn Store, fence: &Fence) {
    let batch = vec![
        patch("main", None, record("s1")),
        said(MAIN, "old"),
        patch("main", Some("s1"), record("s2")),
        said(("main", "s2"), "new"),
        delete("main", "s1"),
        delete("main", "s2"),
        patch("main", None, record("s3")),
    ];
    let mut verdicts = vec![Verdict::Stored; 7];
    (verdicts[4], verdicts[5]) = (Verdict::Conflict, Verdict::Archived(None));
    assert_eq!(store.commit(fence, batch).await.map(anywhere), Ok(verdicts));
    assert_eq!(listed(store).await, Ok(vec![(key("main"), record("s3"))]));
}

async fn a_deleted_session_is_gone_and_its_id_begins_anew(store: &dyn Store, fence: &Fence) {
    store.commit(fence, vec![patch("main", None, record("s1")), said(MAIN, "a")]).await.unwrap();
    assert_eq!(store.commit(fence, vec![delete("main", "s0")]).await, Ok(vec![Verdict::Conflict]));
    let batch = vec![said(MAIN, "b"), delete("main", "s1"), said(MAIN, "c")];
    let verdicts = vec![Verdict::Stored, Verdict::Archived(None), Verdict::Stored];
    assert_eq!(store.commit(fence, batch).await.map(anywhere), Ok(verdicts));
    assert_eq!(store.load(&key("main")).await, Ok(None));
    assert_eq!(listed(store).await, Ok(vec![]));
    assert_eq!(store.find(&session("s1")).await, Ok(None));
    store.commit(fence, vec![said(MAIN, "d"), patch("main", None, record("s1"))]).await.unwrap();
    assert_eq!(lines(store, "main").await, [under(None, "c"), under(Some("c"), "d")]);
}

async fn a_transcript_is_found_by_its_session_wherever_the_key_points(store: &dyn Store, fence: &Fence) {
    let transcript = async |id: &str| store.transcript(&key("main"), &session(id)).await.unwrap();
    assert_eq!(transcript("s1").await, None);
    store.commit(fence, vec![patch("main", None, record("s1")), said(MAIN, "a")]).await.unwrap();
    let batch = vec![patch("main", Some("s1"), record("s2")), said(("main", "s2"), "b")];
    store.commit(fence, batch).await.unwrap();
    assert_eq!(transcript("s1").await, Some(vec![under(None, "a")]));
    assert_eq!(transcript("s2").await, Some(vec![under(None, "b")]));
    // A session under any key of the agent can continue a transcript that no deleted session had.
    let live = async |id: &str| store.live_transcript(&key("other"), &session(id)).await.unwrap();
    assert_eq!((live("s1").await, live("s2").await), (vec![under(None, "a")], vec![under(None, "b")]));
    store.commit(fence, vec![delete("main", "s2")]).await.unwrap();
    assert_eq!(transcript("s2").await, Some(vec![under(None, "b")]));
    assert_eq!((live("s1").await, live("s2").await), (vec![under(None, "a")], vec![]));
    store.commit(fence, vec![patch("main", None, record("s2"))]).await.unwrap();
    assert_eq!(transcript("s2").await, Some(vec![under(None, "b")]));
    store.commit(fence, vec![said(("main", "s2"), "c")]).await.unwrap();
    assert_eq!(transcript("s2").await, Some(vec![under(None, "c")]));
    assert_eq!(live("s2").await, [under(None, "c")]);
}

async fn a_refused_run_leaves_no_trace(store: &dyn Store, fence: &Fence) {
    let batch = vec![patch("main", None, record("s1")), accept("r1", "x"), start("r1", "main", "s1")];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![Verdict::Stored; 3]));
    let row = store.run(&run("r1")).await.unwrap().unwrap();
    assert_eq!((&row.state, &row.session), (&RunState::Running, &Some(session("s1"))));
    let batch =
        vec![accept("r1", "x"), start("r1", "main", "s1"), input("r1", MAIN, &[], &["a"]), said_by("r1", MAIN, "b")];
    let verdicts =
        vec![Verdict::Duplicate(Box::new(row.clone())), Verdict::Skipped, Verdict::Skipped, Verdict::Skipped];
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    let batch = vec![accept("r1", "y"), input("r1", MAIN, &[], &["a"])];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![Verdict::Conflict, Verdict::Skipped]));
    assert_eq!(lines(store, "main").await, []);
    assert_eq!(store.run(&run("r1")).await, Ok(Some(row)));
}

// R3: the store's part.
async fn an_ended_run_says_no_more(store: &dyn Store, fence: &Fence) {
    let batch = vec![
        patch("main", None, record("s1")),
        input("r1", MAIN, &[], &["early"]),
        accept("r1", "x"),
        input("r1", MAIN, &[], &["a"]),
        terminal("r1", Outcome::Aborted(AbortReason::User)),
        terminal("r1", Outcome::Done),
        input("r1", MAIN, &[], &["late"]),
        abort("r1", AbortReason::User),
        said_by("r1", MAIN, "late"),
    ];
    let (yes, no) = (Verdict::Stored, Verdict::Skipped);
    let verdicts = [&yes, &no, &yes, &yes, &yes, &no, &no, &no, &no].map(Clone::clone);
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts.to_vec()));
    let batch = vec![input("r1", MAIN, &[], &["later"]), terminal("r1", Outcome::Done)];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![no.clone(), no]));
    assert_eq!(lines(store, "main").await, [under(None, "a")]);
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
    assert_eq!(lines(store, "main").await, [under(None, "a"), under(Some("a"), "b")]);
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

async fn all_is_known_of_a_run_that_was_at_work(store: &dyn Store, fence: &Fence) {
    let batch = vec![
        patch("main", None, record("s1")),
        said(MAIN, "before"),
        accept("r1", "x"),
        start("r1", "main", "s1"),
        input("r1", MAIN, &[], &["model", "own"]),
        said_by("r1", MAIN, "calls"),
        intent("r1", "c1", ToolClass::Effect),
        intent("r1", "c1", ToolClass::Idempotent),
        done("r1", "c1", "one"),
        done("r1", "c2", "two"),
        // The key may refer to another session by now; the run still refers to its own.
        patch("main", Some("s1"), record("s2")),
        said(MAIN, "after"),
        abort("r1", AbortReason::Timeout),
        abort("r1", AbortReason::User),
        start("r1", "main", "s1"),
    ];
    store.commit(fence, batch).await.unwrap();
    let Rec::Accept(asked) = accept("r1", "x") else { unreachable!() };
    let call = |call: &str, class, result| ToolRow { call: CallId::parse(call).unwrap(), class, result };
    let expected = UnfinishedRun {
        row: store.run(&run("r1")).await.unwrap().unwrap(),
        accept: *asked,
        attempts: vec![Attempt { started_at: NOW, process: ProcessEnd::Running }; 2],
        aborted: Some(AbortReason::Timeout),
        entries: vec![under(Some("own"), "calls"), under(Some("calls"), "after")],
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

async fn an_event_of_a_channel_leads_to_one_run(store: &dyn Store, fence: &Fence) {
    assert_eq!(store.commit(fence, vec![heard("r1", "e1")]).await, Ok(vec![Verdict::Stored]));
    let known = Box::new(store.run(&run("r1")).await.unwrap().unwrap());
    let batch = vec![heard("r2", "e1"), input("r2", MAIN, &[], &["a"]), heard("r3", "e2"), heard("r1", "e3")];
    let same = Verdict::Duplicate(known.clone());
    let verdicts = vec![same.clone(), Verdict::Skipped, Verdict::Stored, same];
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    assert_eq!(store.run(&run("r2")).await, Ok(None));
    // Also after the run has ended.
    store.commit(fence, vec![terminal("r1", Outcome::Done)]).await.unwrap();
    let known = Box::new(store.run(&run("r1")).await.unwrap().unwrap());
    let verdicts = store.commit(fence, vec![heard("r4", "e1")]).await;
    assert_eq!(verdicts, Ok(vec![Verdict::Duplicate(known)]));
    let [open] = &store.recover().await.unwrap()[..] else { panic!("one is open") };
    assert_eq!(Rec::Accept(Box::new(open.accept.clone())), heard("r3", "e2"));
}

async fn a_run_remembers_when_it_began_first(store: &dyn Store, fence: &Fence) {
    let began = |at| {
        let Rec::Start(start) = start("host", "main", "s1") else { unreachable!() };
        Rec::Start(homard_store::Start { at, ..start })
    };
    let batch = vec![
        accept("host", "x"),
        accept("guest", "y"),
        began(NOW + 5),
        input("host", MAIN, &["guest"], &["a", "b"]),
        began(NOW + 50),
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

async fn what_a_run_says_on_a_channel_is_queued_with_its_end_or_not_at_all(store: &dyn Store, fence: &Fence) {
    let [first, second, notice] =
        [("d1", Some("r1")), ("d2", Some("r1")), ("d3", None)].map(|(id, name)| delivery(id, "ann", name));
    let batch = vec![accept("r1", "x"), queue(&first), terminal("r1", Outcome::Done), queue(&second), queue(&notice)];
    let (yes, no) = (Verdict::Stored, Verdict::Skipped);
    let verdicts = [&yes, &yes, &yes, &no, &yes].map(Clone::clone).to_vec();
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    let again = vec![queue(&second), terminal("r1", Outcome::Done), queue(&notice)];
    assert_eq!(store.commit(fence, again).await, Ok(vec![no; 3]));
    assert_eq!(store.outbox().await, Ok(vec![waiting(&first), waiting(&notice)]));
}

async fn a_restart_finds_what_an_open_run_has_said_on_channels(store: &dyn Store, fence: &Fence) {
    let [said, waits, other] =
        [("d1", Some("r1")), ("d2", Some("r1")), ("d3", Some("r2"))].map(|(id, name)| delivery(id, "ann", name));
    let starts = deliver("d1", DeliveryState::Sending);
    let batch = vec![accept("r1", "x"), accept("r2", "y"), queue(&said), queue(&waits), starts, deliver("d1", sent())];
    store.commit(fence, batch).await.unwrap();
    store.commit(fence, vec![queue(&other), terminal("r2", Outcome::Done)]).await.unwrap();
    let found = store.recover().await.unwrap();
    let posted: Vec<_> = found.into_iter().map(|found| found.deliveries).collect();
    assert_eq!(posted, [[DeliveryRow { state: sent(), attempts: 1, ..waiting(&said) }, waiting(&waits)]]);
}

async fn deliveries_to_one_target_go_out_in_order(store: &dyn Store, fence: &Fence) {
    let [one, two, other] = [("d1", "ann"), ("d2", "ann"), ("d3", "bob")].map(|(id, to)| delivery(id, to, None));
    store.commit(fence, vec![queue(&one), queue(&two), queue(&other)]).await.unwrap();
    let rows = store.outbox().await.unwrap();
    assert_eq!(due(&rows, NOW), [&waiting(&one), &waiting(&other)]);
    let failed = DeliveryState::Failed { retry_at: NOW + 10, reason: "busy".to_owned() };
    let starts = |id| deliver(id, DeliveryState::Sending);
    let batch =
        vec![starts("d2"), starts("d1"), starts("d2"), starts("d3"), deliver("d1", failed.clone()), starts("d2")];
    let (yes, no) = (Verdict::Stored, Verdict::Skipped);
    let verdicts = [&no, &yes, &no, &yes, &yes, &no].map(Clone::clone).to_vec();
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    let expected = vec![
        DeliveryRow { state: failed, attempts: 1, ..waiting(&one) },
        waiting(&two),
        DeliveryRow { state: DeliveryState::Sending, attempts: 1, ..waiting(&other) },
    ];
    assert_eq!(store.outbox().await, Ok(expected));
    let batch = vec![starts("d1"), deliver("d1", sent()), starts("d2")];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![yes; 3]));
    let left: Vec<_> = store.outbox().await.unwrap().into_iter().map(|row| row.delivery.id).collect();
    assert_eq!(left, ["d2", "d3"]);
}

async fn a_delivery_cannot_go_where_it_cannot(store: &dyn Store, fence: &Fence) {
    let one = delivery("d1", "ann", None);
    let dead = DeliveryState::Dead { reason: "the chat is gone".to_owned() };
    let batch = vec![
        deliver("d1", DeliveryState::Sending),
        queue(&one),
        deliver("d1", sent()),
        deliver("d1", DeliveryState::Sending),
        deliver("d1", DeliveryState::Unknown),
        deliver("d1", DeliveryState::Sending),
        deliver("d1", dead.clone()),
        deliver("d1", sent()),
    ];
    let (yes, no) = (Verdict::Stored, Verdict::Skipped);
    let verdicts = [&no, &yes, &no, &yes, &yes, &no, &yes, &no].map(Clone::clone).to_vec();
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    assert_eq!(store.outbox().await, Ok(vec![DeliveryRow { state: dead, attempts: 1, ..waiting(&one) }]));
}
