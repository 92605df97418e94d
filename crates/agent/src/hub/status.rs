//! Status of a session, as read from outside the session.

use std::time::Duration;

use homard_command::{Command, OWNER, StatusInput};
use homard_prompt::timestamps::clock_line;
use homard_proto::{Route, SessionKey};
use homard_queue::settings::{QueueOverrides, resolve};
use homard_store::Error as StoreError;
use jiff::tz::TimeZone;

use super::{HubSessions, LiveRunStatus, RunProgress};
use crate::{
    history::SessionHistory,
    lane::{ReportRequest, SessionView, answering, answering_model, context_report},
    tool::RunOrigin,
};

impl HubSessions<'_> {
    /// Returns the `/status` text of a session with the current time; `None` if the session does not exist.
    pub async fn status(self, key: &SessionKey) -> Result<Option<String>, StoreError> {
        let Some(session) = self.hub.0.store.load(key).await? else { return Ok(None) };
        let (record, history) = (session.record, SessionHistory::read(&session.entries));
        let origin = RunOrigin { principal: OWNER.to_owned(), ..RunOrigin::default() };
        let (run, view) = (self.hub.0.ambient.run_id(), SessionView { record: &record, history: &history });
        let request = ReportRequest { run: &run, extra_prompt: None, origin: &origin };
        let report = context_report(&self.hub.0, key, view, request).await;
        let shortened = report.shortening_text();
        let (profile, rules) = (self.hub.agents().of(key.agent()), self.hub.0.config.rules());
        let (channel, config) = rules.queue.of(&Route::default());
        let model = answering_model(&profile, &record);
        let now = self.hub.0.ambient.now_ms();
        let runs: Vec<_> = self.hub.runs().live().into_iter().filter(|run| run.key == *key).collect();
        let is_waiting = |run: &&LiveRunStatus| run.progress == RunProgress::Queued;
        let active = runs.iter().find(|run| !is_waiting(run));
        let input = StatusInput {
            version: env!("CARGO_PKG_VERSION"),
            model: &answering(&profile, &record),
            models: &profile.selectable_models,
            key,
            record: &record,
            tokens: report.tokens.and_then(|tokens| tokens.context),
            shortened: shortened.as_deref(),
            queue: resolve(&QueueOverrides::default(), &QueueOverrides::from(&record), &channel, &config),
            queued: runs.iter().filter(is_waiting).count(),
            active_run: active.map(|run| (&run.run, Duration::from_millis(now.saturating_sub(run.accepted_at)))),
            triggers: &rules.triggers,
            levels: profile.levels(model.spec()),
            has_xhigh: model.spec().thinking.contains(&homard_model::ReasoningLevel::Xhigh),
        };
        let text = Command::Status.change(&input).map(|change| change.reply).unwrap_or_default();
        let zone = profile.prompt.zone.clone().unwrap_or(TimeZone::UTC);
        Ok(Some(format!("{text}\n{}", clock_line(now, &zone))))
    }

    /// Returns the verbosity of tool output (`off`, `on` or `full`) from the session, else from its agent.
    pub async fn verbosity(self, key: &SessionKey) -> Result<String, StoreError> {
        let profile = self.hub.agents().of(key.agent());
        let session_level = self.get(key).await?.and_then(|record| record.verbose_level.clone());
        Ok(session_level.unwrap_or_else(|| profile.levels(profile.spec()).verbose.to_owned()))
    }

    /// True if the session streams the model's reasoning (`/reasoning stream`).
    pub async fn streams_reasoning(self, key: &SessionKey) -> Result<bool, StoreError> {
        let profile = self.hub.agents().of(key.agent());
        let record = self.get(key).await?;
        let session_level = record.as_ref().and_then(|record| record.extra.get("reasoningLevel")?.as_str());
        Ok(session_level.unwrap_or(profile.levels(profile.spec()).reasoning) == "stream")
    }
}
