//! Messages that are rejected instead of truncated. If one fits into no candidate's context window, its run ends before
//! it starts: no transcript entry, no model request.

use std::sync::Arc;

use homard_model::{Error, tokens};
use homard_proto::message::Message;

use super::{
    Lane, Ticket, is_admitted,
    model_choice::{self, ModelRequirements},
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

impl Lane {
    /// Returns why a message that must not be truncated is rejected; `None` if it fits for a candidate.
    pub(super) fn too_long(&self, queued: &Ticket, profile: &Arc<Profile>, found: &PromptFiles) -> Option<Error> {
        let inbound = &queued.inbound;
        let is_asked = !queued.is_resumed && queued.task().is_none() && queued.fixed_reply().is_none();
        let session = self.session.as_ref().filter(|_| inbound.is_strict && is_asked)?;
        let mut record = session.record.clone();
        let at = self.hub.ambient.now_ms();
        let failover =
            model_choice::choose(profile, &mut record, ModelRequirements::from(inbound), (at, None)).failover;
        let mut conversation = session.history.clone();
        conversation.push(self.hub.ambient.entry_id(), Arc::new(Message::User(queued.first_message())));
        let origin = RunOrigin::of(inbound);
        let brief = PromptInput {
            files: found.clone(),
            ..PromptInput::new(profile, &self.key, &record, queued.prompt_source())
        };
        let mut refusal: Option<(u64, Error)> = None;
        for candidate in failover.candidates() {
            let spec = candidate.model.spec();
            let tools = brief.tool_specs(spec, &profile.tools_for((&origin, &self.key), spec));
            let prompt = brief.prompt(spec, failover.level(), &tools);
            let overhead = tokens::estimate(&prompt.text) + tokens::of_tools(&tools);
            let error = strict::refusal(spec, overhead, (&conversation, &profile.compaction))?;
            // Reported for the candidate with the largest window.
            if refusal.as_ref().is_none_or(|(window, _)| *window < spec.context_window) {
                refusal = Some((spec.context_window, error));
            }
        }
        refusal.map(|(_, error)| error)
    }

    /// Ends a run before it starts.
    pub(super) async fn refuse(&mut self, mut queued: Ticket, profile: &Profile, refusal: Error) {
        queued.accept(&self.hub.writer);
        if !is_admitted(&queued).await {
            return self.drop_rejected(&queued);
        }
        self.end(queued, profile, RunError::Model(refusal).into()).await;
    }
}
