//! Tests of lanes that retire and lanes that panic.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::{StreamExt, future::join_all, stream};
use homard_model::{EventStream, Model, ModelEvent, ModelSpec, Request, candidates::Candidates, stream::AnswerEnd};
use homard_proto::{
    AgentId,
    message::{StopReason, Usage},
};
use homard_store::{Fence, MemoryStore};
use serde_json::json;

use super::*;
use crate::{
    Agents, FencedStore, Hub, HubRules, Outcome, Profile,
    hub::{AcceptedRun, SubmitError, SubmitOutcome, WaitResult},
    intake,
};

/// Longer than an idle lane lives.
const LONG: Duration = Duration::from_secs(60);

/// A model that answers hello, but panics in the lane on the first call of `spec`.
struct Hello {
    spec: ModelSpec,
    panics: AtomicBool,
}

impl Model for Hello {
    fn spec(&self) -> &ModelSpec {
        assert!(!self.panics.swap(false, Ordering::Relaxed), "a bug");
        &self.spec
    }

    fn stream(&self, _: Request) -> EventStream {
        let done = AnswerEnd { stop: StopReason::Stop, usage: Usage::default() };
        stream::iter([ModelEvent::Text("hello".to_owned()), ModelEvent::Done(done)]).boxed()
    }
}

fn hub(panics: bool) -> Hub {
    let spec = ModelSpec { provider: "test".to_owned(), model: "hello".to_owned(), ..ModelSpec::default() };
    let candidates = Candidates::single(Arc::new(Hello { spec, panics: panics.into() }));
    let profile = Profile { timeout: Some(LONG), ..Profile::new(AgentId::main(), candidates) };
    let store = FencedStore::new(Arc::new(MemoryStore::default()), Fence::default());
    Hub::start(Ambient::fixed(0), store, Agents::new(profile, []), Slots::default(), HubRules::default()).0
}

async fn submit(hub: &Hub, session: &str, run: &str) -> Result<AcceptedRun, SubmitError> {
    let params = json!({"message": "hi", "idempotencyKey": run, "sessionKey": session});
    let inbound = intake::agent(hub, "someone", serde_json::from_value(params).unwrap()).await.unwrap();
    hub.submit(inbound).await
}

/// Returns a run's outcome.
async fn end(hub: &Hub, run: &str) -> Outcome {
    match hub.runs().wait(&RunId::parse(run).unwrap(), LONG * 10_000).await {
        Ok(WaitResult::Ended(report)) => report.outcome().clone(),
        other => panic!("{run} did not end: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_sessions_leave_no_lane_behind() {
    let hub = &hub(false);
    let names: Vec<_> = (0..10_000).map(|n| (format!("agent:main:s{n}"), format!("r{n}"))).collect();
    let accepted = join_all(names.iter().map(|(session, run)| submit(hub, session, run))).await;
    let keys: Vec<_> = accepted.into_iter().map(|accepted| accepted.unwrap().key).collect();
    let live_counts = || {
        let live = hub.0.lock();
        let lanes = keys.iter().filter(|key| live.lanes.contains(key)).count();
        (lanes, live.runs.len(), hub.0.tracker.len())
    };
    assert_eq!(live_counts().0, 10_000);
    join_all(names.iter().map(|(_, run)| end(hub, run))).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(live_counts(), (0, 0, 0));
}

// R88.
#[tokio::test(start_paused = true)]
async fn a_lane_that_panics_loses_only_jobs_it_had_read() {
    let hub = &hub(true);
    let (first, second) = tokio::join!(submit(hub, "agent:main:s", "r1"), submit(hub, "agent:main:s", "r2"));
    assert!(matches!(first, Err(SubmitError::Stopping)), "{first:?}");
    assert!(matches!(second, Ok(AcceptedRun { outcome: SubmitOutcome::New(_), .. })), "{second:?}");
    assert_eq!(end(hub, "r2").await, Outcome::Done);
}
