//! Messages that are rejected instead of truncated. If one fits into no candidate's context window, its run ends before
//! it starts: no transcript entry, no model request.

use std::sync::Arc;

use homard_model::{Error, tokens};
use homard_proto::message::Message;

use super::{
    Lane,
    model_choice::{self, ModelRequirements},
    ticket::ActiveRun,
};
use crate::{
    context::{
        gather::{PromptFiles, PromptInput},
        strict,
    },
    profile::Profile,
    run::RunError,
    tool::RunOrigin,
};

/// Returns why a message that must not be truncated is rejected; `None` if it fits for a candidate.
pub(super) fn too_long(lane: &Lane, active: &ActiveRun, profile: &Arc<Profile>, files: &PromptFiles) -> Option<Error> {
    let inbound = &active.ticket.inbound;
    let asks_model =
        !active.ticket.is_resumed && active.ticket.task().is_none() && active.ticket.fixed_reply().is_none();
    let session = lane.session.as_ref().filter(|_| inbound.options.is_strict && asks_model)?;
    let mut record = session.record.clone();
    let at = lane.hub.ambient.now_ms();
    let failover = model_choice::choose(profile, &mut record, ModelRequirements::from(inbound), at, None).failover;
    let mut history = session.history.clone();
    history.push(lane.hub.ambient.entry_id(), Arc::new(Message::User(active.first_message())));
    let origin = RunOrigin::of(inbound);
    let prompt_input = PromptInput { files: files.clone(), ..active.ticket.prompt_input(profile, &lane.key, &record) };
    let mut refusal: Option<(u64, Error)> = None;
    for candidate in failover.candidates() {
        let spec = candidate.model.spec();
        let tools = prompt_input.tool_specs(spec, &profile.tools_for(&origin, &lane.key, spec));
        let prompt = prompt_input.prompt(spec, failover.level(), &tools);
        let overhead = tokens::estimate(&prompt.text) + tokens::of_tools(&tools);
        let error = strict::refusal(spec, overhead, &history, &profile.compaction)?;
        // Reported for the candidate with the largest window.
        if refusal.as_ref().is_none_or(|(window, _)| *window < spec.context_window) {
            refusal = Some((spec.context_window, error));
        }
    }
    refusal.map(|(_, error)| error)
}

/// Ends a run before it starts.
pub(super) async fn refuse(lane: &mut Lane, mut active: ActiveRun, profile: &Profile, refusal: Error) {
    active.ticket.accept(&lane.hub.writer);
    if !active.ticket.is_admitted().await {
        return lane.drop_rejected(&active.ticket);
    }
    lane.end(active, profile, RunError::Model(refusal).into()).await;
}
