//! Runs a turn in this process.

use std::path::PathBuf;

use anyhow::Result;
use homard_agent::{
    Hub, Subscriber,
    event::{AbortReason, RequestEvent, RunEvent},
    hub::{RecoveryResult, SubmitOutcome},
    intake,
    tape::TapeState,
    wire::{Projection, RunReport},
};
use homard_app::{App, Purpose, approvals};
use homard_approvals::ExecApprovals;
use homard_proto::{ErrorShape, Generation, SessionKey};
use homard_settings::{Chosen, paths::Paths};
use homard_store::Error as StoreError;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{ABORT_WAIT, FLAGS, Turn, TurnOutput, interrupted, time_over, timed_out, working_dir};
use crate::{cli_error::CliError, cmd::query::usage_error, render};

/// The principal of the run: a user who can read the state directory is the owner.
const PRINCIPAL: &str = "owner";

/// Locks the state directory, runs the turn in the current directory, and unlocks it. `hint` is shown if another
/// process holds the state directory.
pub(super) async fn run(chosen: &Chosen, paths: &Paths, turn: &mut Turn, hint: &str) -> Result<TurnOutput> {
    homard_settings::require_variables(&chosen.loaded, &paths.config)?;
    let cwd = turn.directory.path.clone();
    working_dir::check(&cwd, &chosen.loaded.config, paths, turn.work_here)?;
    let (app, _) = App::open(chosen, paths, Purpose::OneTurn).map_err(|error| {
        if let homard_app::Error::Store(StoreError::Locked(holder)) = &error {
            return CliError::new("locked", format!("{holder}\n{hint}")).into();
        }
        anyhow::Error::from(error)
    })?;
    let outages = homard_settings::outages(&chosen.loaded).into_iter().filter(|outage| concerns_turns(outage));
    for remark in app.remark.iter().cloned().chain(outages).chain(app.warnings.iter().cloned()) {
        render::remark(&remark);
    }
    for warning in app.settle(&chosen.loaded).await? {
        render::remark(&warning);
    }
    turn.renderer.working_in(&cwd)?;
    approvals::open(&app.hub, paths).await?;
    let answer = drive(&app.hub, turn, cwd).await;
    approvals::finish(&app, &chosen.loaded.config, paths).await;
    list_pending_approvals(&app.hub);
    // Gives pending deliveries of earlier runs of the session a moment; the gateway sends what remains.
    timeout(ABORT_WAIT, app.hub.deliveries().wait_empty()).await.ok();
    let closed = app.close().await;
    let answer = answer?;
    closed?;
    Ok(answer)
}

/// Returns true if a disabled part is one that turns use. A required provider reports its failure itself.
fn concerns_turns(outage: &str) -> bool {
    ["mcp.", "plugins.", "skills.", "tools."].iter().any(|section| outage.starts_with(section))
}

/// Recovers the runs that earlier processes left unfinished in this session, which come before this turn, and says so.
async fn recover_session(hub: &Hub, key: &SessionKey) -> Result<()> {
    let runs = |count: usize| render::count(count, "unfinished run");
    let RecoveryResult { resumed, held } = hub.lifecycle().recover_session(key).await?;
    if resumed > 0 {
        render::remark(&format!("(finishing {} of this session first)", runs(resumed)));
    }
    if held > 0 {
        render::remark(&format!("({} held after several crashes in a row; list: homard runs held)", runs(held)));
    }
    let others = hub.lifecycle().unfinished().await?;
    if others > 0 {
        render::remark(&format!("({} in other sessions; start the gateway to continue: homard gateway)", runs(others)));
    }
    Ok(())
}

/// Lists the commands that are waiting for approval, and how to approve them with and without a gateway.
fn list_pending_approvals(hub: &Hub) {
    for entry in hub.approvals().into_iter().flat_map(ExecApprovals::pending) {
        let id = &entry.id;
        render::remark(&format!(
            "(a command is waiting for approval: {}; to allow it within 5 minutes: homard agent --local -m \"/approve {id} \
             allow-once\", or with a gateway: homard approvals allow {id})",
            entry.shown()
        ));
    }
}

async fn drive(hub: &Hub, turn: &mut Turn, cwd: PathBuf) -> Result<TurnOutput> {
    let request_error = |error: ErrorShape| {
        let error = CliError::new(json!(error.code).as_str().unwrap_or("failed"), error.message);
        usage_error(error, &FLAGS).of(turn.run(), "local")
    };
    let mut inbound = intake::agent(hub, PRINCIPAL, turn.params.clone()).await.map_err(request_error)?;
    let key = inbound.session.key.clone();
    let agents = hub.agents();
    let agent = agents.get(key.agent().unwrap_or_else(|| agents.default_id()));
    // A sandboxed session works in its own workspace, wherever the command was started.
    let is_sandboxed = agent.is_some_and(|agent| agent.sandboxing.is_sandboxed(&key));
    inbound.options.cwd = (!is_sandboxed).then_some(cwd);
    recover_session(hub, &key).await?;
    let tape = match hub.submit(inbound).await?.outcome {
        SubmitOutcome::New(tape) | SubmitOutcome::InFlight(tape) => tape,
        SubmitOutcome::Finished(report) => return finished(turn, &report, Vec::new()),
    };
    let mut projection = Projection::new(tape.run(), tape.key());
    let mut subscriber = Subscriber::new(tape);
    let mut failed_candidates = Vec::new();
    loop {
        let batch = tokio::select! {
            biased;
            signal = turn.signals.next() => {
                let state = stop(hub, &key, turn, subscriber, AbortReason::User).await;
                return Err(interrupted(signal, &state).of(turn.run(), "local").into());
            }
            limit = time_over(turn.time_limit) => {
                let state = stop(hub, &key, turn, subscriber, AbortReason::Timeout).await;
                return Err(timed_out(limit, &state).of(turn.run(), "local").into());
            }
            batch = subscriber.next() => batch,
            note = turn.wait_notes.next() => {
                turn.renderer.note(&note)?;
                continue;
            }
        };
        turn.wait_notes.heard();
        let Some(events) = batch else { break };
        for event in events {
            if let RunEvent::Model(RequestEvent::CandidateFailed { from, reason, why }) = &event.kind {
                failed_candidates.push(json!({"model": from, "reason": reason, "error": why}));
            }
            for step in projection.push(event) {
                turn.renderer.render_event(&step)?;
            }
        }
        if let Some(step) = projection.flush() {
            turn.renderer.render_event(&step)?;
        }
    }
    match subscriber.tape().state() {
        TapeState::Ended(end) => {
            finished(turn, &RunReport::of(&turn.params.idempotency_key, &key, &end), failed_candidates)
        }
        TapeState::Broken(why) => Err(CliError::new("failed", why).of(turn.run(), "local").into()),
        TapeState::Queued | TapeState::Running | TapeState::Rejected => {
            Err(CliError::new("failed", "the run stopped without a result").of(turn.run(), "local").into())
        }
    }
}

fn finished(turn: &Turn, report: &RunReport, failed_candidates: Vec<Value>) -> Result<TurnOutput> {
    if let Some(why) = report.outcome().error() {
        return Err(CliError::new("UNAVAILABLE", why).of(turn.run(), "local").into());
    }
    let (mut document, _) = report.response(Generation::Four);
    document["result"] = report.result(Generation::Four);
    Ok(TurnOutput::new(document, failed_candidates))
}

/// Aborts the run and waits a moment for its end. Returns its state.
async fn stop(hub: &Hub, key: &SessionKey, turn: &Turn, subscriber: Subscriber, reason: AbortReason) -> String {
    let run = turn.params.idempotency_key.clone();
    let ended = timeout(ABORT_WAIT, async {
        hub.runs().abort(key, Some(run), reason).await;
        subscriber.end().await
    });
    match ended.await {
        Ok(_) => format!("run {} was stopped", turn.run()),
        Err(_) => format!("run {} did not stop in time", turn.run()),
    }
}
