//! Messages that are rejected instead of truncated. If one fits into no candidate's context window, its run ends before
//! it starts: no transcript entry, no model request.

use std::sync::Arc;

use homard_model::{Error, tokens};
use homard_proto::message::Message;

use super::{
    Lane, Queued,
    answerer::{self, Question},
    is_admitted,
};
use crate::{
    context::{
        brief::{Brief, Found},
        strict,
    },
    profile::Profile,
    run::RunError,
    tool::Origin,
};

impl Lane {
    /// Returns why a message that must not be truncated is rejected; `None` if it fits for a candidate.
    pub(super) fn too_long(&self, queued: &Queued, profile: &Arc<Profile>, found: &Found) -> Option<Error> {
        let inbound = &queued.inbound;
        let is_asked = !queued.is_resumed && queued.wish().is_none() && queued.answer().is_none();
        let session = self.session.as_ref().filter(|_| inbound.is_strict && is_asked)?;
        let mut record = session.record.clone();
        let at = self.hub.ambient.now_ms();
        let failover = answerer::choose(profile, &mut record, Question::from(inbound), (at, None)).failover;
        let mut conversation = session.history.clone();
        conversation.push(self.hub.ambient.entry_id(), Arc::new(Message::User(queued.first_message())));
        let origin = Origin::of(inbound);
        let brief = Brief { found: found.clone(), ..Brief::new(profile, &self.key, &record, queued.told_by()) };
        let mut refusal: Option<(u64, Error)> = None;
        for candidate in failover.candidates() {
            let spec = candidate.model.spec();
            let tools = brief.told(spec, &profile.tools_for((&origin, &self.key), spec));
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
    pub(super) async fn refuse(&mut self, mut queued: Queued, profile: &Profile, refusal: Error) {
        queued.accept(&self.hub.writer);
        if !is_admitted(&queued).await {
            return self.never_was(&queued);
        }
        self.end(queued, profile, RunError::Model(refusal).into()).await;
    }
}
