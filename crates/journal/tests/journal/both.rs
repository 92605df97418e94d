//! What every store must do: each behaviour is asked of the memory store and of the journal.

use homard_store::{AbortReason, Fence, Outcome, RunState, Store, Verdict};

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
    a_line_without_a_session_goes_nowhere
    a_patch_of_another_session_is_refused
    a_new_session_id_begins_a_new_transcript
    records_of_a_batch_see_those_before
    a_refused_run_leaves_no_trace
    an_ended_run_says_no_more
    absorbed_runs_end_with_their_host
    open_runs_are_found_in_order
}

async fn a_new_session_is_listed_found_and_empty(store: &dyn Store, fence: &Fence) {
    assert_eq!(store.load(&key("main")).await, Ok(None));
    assert_eq!(store.find(&session("s1")).await, Ok(None));
    let batch = vec![patch("main", None, record("s1"))];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![Verdict::Stored]));
    assert_eq!(store.list().await, Ok(vec![(key("main"), record("s1"))]));
    assert_eq!(store.find(&session("s1")).await, Ok(Some(key("main"))));
    let loaded = store.load(&key("main")).await.unwrap().unwrap();
    assert_eq!((loaded.record, loaded.entries), (record("s1"), vec![]));
}

async fn a_line_hangs_on_the_line_before(store: &dyn Store, fence: &Fence) {
    store.commit(fence, vec![patch("main", None, record("s1")), said("main", "a")]).await.unwrap();
    store.commit(fence, vec![said("main", "b"), said("main", "c")]).await.unwrap();
    assert_eq!(lines(store, "main").await, [under(None, "a"), under(Some("a"), "b"), under(Some("b"), "c")]);
}

async fn a_line_without_a_session_goes_nowhere(store: &dyn Store, fence: &Fence) {
    assert_eq!(store.commit(fence, vec![said("main", "a")]).await, Ok(vec![Verdict::Stored]));
    assert_eq!(store.load(&key("main")).await, Ok(None));
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
    assert_eq!(store.list().await, Ok(vec![(key("main"), record("s2"))]));
}

async fn a_new_session_id_begins_a_new_transcript(store: &dyn Store, fence: &Fence) {
    let named = homard_proto::session::Record { label: Some("work".to_owned()), ..record("s1") };
    let batch = vec![patch("main", None, record("s1")), said("main", "a"), patch("main", Some("s1"), named)];
    store.commit(fence, batch).await.unwrap();
    assert_eq!(lines(store, "main").await, [under(None, "a")]);
    store.commit(fence, vec![patch("main", Some("s1"), record("s2"))]).await.unwrap();
    assert_eq!(lines(store, "main").await, []);
    store.commit(fence, vec![said("main", "b")]).await.unwrap();
    assert_eq!(lines(store, "main").await, [under(None, "b")]);
}

async fn records_of_a_batch_see_those_before(store: &dyn Store, fence: &Fence) {
    let batch = vec![
        said("main", "lost"),
        patch("main", None, record("s1")),
        said("main", "old"),
        patch("main", Some("s1"), record("s2")),
        said("main", "new"),
    ];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![Verdict::Stored; 5]));
    assert_eq!(lines(store, "main").await, [under(None, "new")]);
}

async fn a_refused_run_leaves_no_trace(store: &dyn Store, fence: &Fence) {
    let batch = vec![patch("main", None, record("s1")), accept("r1", "x"), start("r1", "main", "s1")];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![Verdict::Stored; 3]));
    let row = store.run(&run("r1")).await.unwrap().unwrap();
    assert_eq!((&row.state, &row.session), (&RunState::Running, &Some(session("s1"))));
    let batch = vec![accept("r1", "x"), start("r1", "main", "s1"), input("r1", "main", &[], &["a"])];
    let verdicts = vec![Verdict::Duplicate(Box::new(row.clone())), Verdict::Skipped, Verdict::Skipped];
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts));
    let batch = vec![accept("r1", "y"), input("r1", "main", &[], &["a"])];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![Verdict::Conflict, Verdict::Skipped]));
    assert_eq!(lines(store, "main").await, []);
    assert_eq!(store.run(&run("r1")).await, Ok(Some(row)));
}

async fn an_ended_run_says_no_more(store: &dyn Store, fence: &Fence) {
    let batch = vec![
        patch("main", None, record("s1")),
        input("r1", "main", &[], &["early"]),
        accept("r1", "x"),
        input("r1", "main", &[], &["a"]),
        terminal("r1", Outcome::Aborted(AbortReason::User)),
        terminal("r1", Outcome::Done),
        input("r1", "main", &[], &["late"]),
    ];
    let (yes, no) = (Verdict::Stored, Verdict::Skipped);
    let verdicts = [&yes, &no, &yes, &yes, &yes, &no, &no].map(Clone::clone);
    assert_eq!(store.commit(fence, batch).await, Ok(verdicts.to_vec()));
    let batch = vec![input("r1", "main", &[], &["later"]), terminal("r1", Outcome::Done)];
    assert_eq!(store.commit(fence, batch).await, Ok(vec![no.clone(), no]));
    assert_eq!(lines(store, "main").await, [under(None, "a")]);
    let state = store.run(&run("r1")).await.unwrap().unwrap().state;
    assert_eq!(state, RunState::Ended(Box::new(ended(Outcome::Aborted(AbortReason::User)))));
}

async fn absorbed_runs_end_with_their_host(store: &dyn Store, fence: &Fence) {
    let batch = vec![patch("main", None, record("s1")), accept("host", "x"), accept("guest", "y")];
    store.commit(fence, batch).await.unwrap();
    store.commit(fence, vec![input("host", "main", &["guest"], &["a", "b"])]).await.unwrap();
    let state = store.run(&run("guest")).await.unwrap().unwrap().state;
    assert_eq!(state, RunState::Absorbed(run("host")));
    let batch = vec![terminal("host", Outcome::Done), input("guest", "main", &[], &["late"])];
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
