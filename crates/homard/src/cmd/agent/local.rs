//! Runs a turn in this process.

use std::{env, path::PathBuf};

use anyhow::{Context, Result};
use homard_agent::{
    Follower, Hub, Inbound,
    approval::Desk,
    event::{AbortReason, RunEvent},
    hub::{Disposition, Recovered},
    intake,
    tape::State,
    wire::{Projection, Reported},
};
use homard_proto::{ErrorShape, Generation, SessionKey};
use homard_store::Error as StoreError;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Answer, LEAVING, Turn, interrupted, workplace};
use crate::{
    assemble::{House, Purpose, approvals},
    config::{self, Chosen},
    failure::Failure,
    paths::Paths,
    render,
    signal::Signal,
};

/// The principal of the run: a user who can read the state directory is the owner.
const PRINCIPAL: &str = "owner";

/// Locks the state directory, runs the turn in the current directory, and unlocks it. `way_out` is shown if another
/// process holds the state directory.
pub(super) async fn run(chosen: &Chosen, paths: &Paths, turn: &mut Turn, way_out: &str) -> Result<Answer> {
    config::has_all(&chosen.loaded, &paths.config)?;
    let here = env::current_dir().context("the current directory is gone")?;
    workplace::check(&here, &chosen.loaded.config, paths, turn.work_here)?;
    let (house, _) = House::open(chosen, paths, Purpose::OneTurn).map_err(|error| match error.downcast_ref() {
        Some(StoreError::Locked(who)) => Failure::new("locked", format!("{who}\n{way_out}")).into(),
        Some(StoreError::Disk(_) | StoreError::Corrupt(_)) | None => error,
    })?;
    let outages = config::outages(&chosen.loaded).into_iter().filter(|outage| concerns_turns(outage));
    for remark in house.remark.iter().cloned().chain(outages).chain(house.troubles.iter().cloned()) {
        render::remark(&remark);
    }
    for trouble in house.settle(&chosen.loaded).await? {
        render::remark(&trouble);
    }
    approvals::open(&house.hub, paths).await?;
    let answer = drive(&house.hub, turn, here).await;
    approvals::finish(&house, &chosen.loaded.config, paths).await;
    tell_of_waiting(&house.hub);
    // Gives pending deliveries of earlier runs of the session a moment; the gateway sends what remains.
    timeout(LEAVING, house.hub.posted()).await.ok();
    let closed = house.close().await;
    let answer = answer?;
    closed.map(|()| answer)
}

/// Returns true if a disabled part is one that turns use. A required provider reports its failure itself.
fn concerns_turns(outage: &str) -> bool {
    ["mcp.", "plugins.", "skills.", "tools."].iter().any(|section| outage.starts_with(section))
}

/// Recovers the runs that earlier processes left unfinished in this session, which come before this turn, and says so.
async fn take_up_earlier(hub: &Hub, key: &SessionKey) -> Result<()> {
    let runs =
        |count: usize| if count == 1 { "1 unfinished run".to_owned() } else { format!("{count} unfinished runs") };
    let Recovered { resumed, held } = hub.recover_session(key).await?;
    if resumed > 0 {
        render::remark(&format!("(finishing {} of this session first)", runs(resumed)));
    }
    if held > 0 {
        render::remark(&format!("({} held after several crashes in a row; list: homard runs held)", runs(held)));
    }
    let others = hub.unfinished().await?;
    if others > 0 {
        render::remark(&format!("({} in other sessions; start the gateway to continue: homard gateway)", runs(others)));
    }
    Ok(())
}

/// Lists the commands that are waiting for approval, and how to approve them with and without a gateway.
fn tell_of_waiting(hub: &Hub) {
    for entry in hub.desk().into_iter().flat_map(Desk::pending) {
        let id = &entry.id;
        render::remark(&format!(
            "(a command waits until it is allowed: {}; to allow it within 5 minutes: homard agent --local -m \"/approve {id} \
             allow-once\", or with a gateway: homard approvals allow {id})",
            entry.shown()
        ));
    }
}

async fn drive(hub: &Hub, turn: &mut Turn, here: PathBuf) -> Result<Answer> {
    let refused = |error: ErrorShape| Failure::new(json!(error.code).as_str().unwrap_or("failed"), error.message);
    let inbound = intake::agent(hub, PRINCIPAL, turn.params.clone()).await.map_err(refused)?;
    let key = inbound.key.clone();
    let agents = hub.agents();
    let agent = agents.get(key.agent().unwrap_or_else(|| agents.default_id()));
    // A sandboxed session works in its own workspace, wherever the command was started.
    let is_sandboxed = agent.is_some_and(|agent| agent.sandboxing.holds(&key));
    let inbound = Inbound { cwd: (!is_sandboxed).then_some(here), ..inbound };
    take_up_earlier(hub, &key).await?;
    let tape = match hub.submit(inbound).await?.disposition {
        Disposition::New(tape) | Disposition::InFlight(tape) => tape,
        Disposition::Finished(report) => return finished(turn, &report),
    };
    let mut projection = Projection::new(&tape);
    let mut follower = Follower::new(tape);
    let mut passed_over = Vec::new();
    loop {
        let news = tokio::select! {
            biased;
            signal = turn.signals.next() => return Err(stop(hub, &key, turn, follower, signal).await.into()),
            news = follower.next() => news,
        };
        let Some(events) = news else { break };
        for event in events {
            if let RunEvent::Switched { from, reason, why } = &event.kind {
                passed_over.push(json!({"model": from, "reason": reason, "error": why}));
            }
            for step in projection.push(event) {
                turn.story.tell(&step)?;
            }
        }
        if let Some(step) = projection.flush() {
            turn.story.tell(&step)?;
        }
    }
    match follower.tape().state() {
        State::Ended(end) => {
            let mut answer = finished(turn, &Reported::of(&turn.params.idempotency_key, &key, &end))?;
            if !passed_over.is_empty() {
                answer.document["meta"]["fallbackAttempts"] = Value::Array(passed_over);
            }
            Ok(answer)
        }
        State::Broken(why) => Err(Failure::new("failed", why).of(turn.run(), "local").into()),
        State::Queued | State::Running | State::Refused => {
            Err(Failure::new("failed", "the run has no end").of(turn.run(), "local").into())
        }
    }
}

fn finished(turn: &Turn, report: &Reported) -> Result<Answer> {
    if let Some(why) = report.outcome().error() {
        return Err(Failure::new("UNAVAILABLE", why).of(turn.run(), "local").into());
    }
    let result = report.result(Generation::Four);
    let mut document = result.clone();
    document["runId"] = turn.run().into();
    Ok(Answer { document, result })
}

/// Aborts the run and waits a moment for its end.
async fn stop(hub: &Hub, key: &SessionKey, turn: &Turn, follower: Follower, signal: Signal) -> Failure {
    let run = turn.params.idempotency_key.clone();
    let ended = timeout(LEAVING, async {
        hub.abort(key, Some(run), AbortReason::User).await;
        follower.end().await
    });
    let state = match ended.await {
        Ok(_) => format!("run {} was stopped", turn.run()),
        Err(_) => format!("run {} did not stop in time", turn.run()),
    };
    interrupted(signal, &state).of(turn.run(), "local")
}
