//! Background commands: wakes a session once when commands that outlived their tool call have ended.
//!
//! The commands are in their session's record ([`crate::context::background`]). A wake is a run of the session that
//! consumes the pending reports in the commit that starts it. It is submitted only while the session is idle and a
//! report is pending, so commands that end together cause one run, and none if another run consumed the reports first.
//! The stored record decides, so a restart repeats only a wake that did not start.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_proto::{SessionKey, message::User};
use homard_queue::slots::RunClass;
use homard_reply::heartbeat::TOKEN;
use homard_store::{Error as StoreError, ReplyDelivery};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Hub, Inbound, InboundOptions, InboundReply, InboundSender, SubmitError};
use crate::{
    context::background::{self, CommandChange, CommandOrigin},
    lane::mutations::{ChangeError, Mutation},
    tool::RunOrigin,
};

/// Method name of the runs that wake a session because a command ended.
pub(crate) const WAKE_METHOD: &str = "exec-exit";

/// Delay before the wake, so that commands that end close together are reported by one run.
const COALESCE: Duration = Duration::from_millis(250);
/// First retry delay if the session is busy; doubles up to [`MAX_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// Maximum retry delay.
const MAX_RETRY: Duration = Duration::from_secs(60);

/// A command that runs in the background.
#[derive(Debug, Clone)]
pub struct BackgroundCommand {
    /// Id of the command, unique in its session.
    pub id: String,
    /// Shell command line.
    pub command: String,
    /// Principal, route, working directory and authority of the run that started it.
    pub origin: CommandOrigin,
    /// Cancels the command.
    pub stop: CancellationToken,
}

/// Background commands of this process, by session and command id.
#[derive(Debug, Default)]
pub(crate) struct RunningCommands(Mutex<CancelTokens>);

type CancelTokens = HashMap<SessionKey, HashMap<String, CancellationToken>>;

impl RunningCommands {
    fn lock(&self) -> MutexGuard<'_, CancelTokens> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, key: &SessionKey, id: &str) {
        let mut all = self.lock();
        if let Some(commands) = all.get_mut(key) {
            commands.remove(id);
            if commands.is_empty() {
                all.remove(key);
            }
        }
    }

    /// Cancels all commands of a session. Returns how many were running.
    pub(crate) fn stop(&self, key: &SessionKey) -> usize {
        let commands = self.lock().remove(key).unwrap_or_default();
        commands.values().for_each(CancellationToken::cancel);
        commands.len()
    }
}

/// Background commands of a hub's sessions. What [`Hub::background`] returns.
#[derive(Debug, Clone, Copy)]
pub struct HubBackground<'a> {
    pub(super) hub: &'a Hub,
}

impl HubBackground<'_> {
    /// Records that a command runs in the background, before its tool call is answered. Its end is reported only if
    /// `wakes` is true.
    pub async fn started(self, key: &SessionKey, command: BackgroundCommand, wakes: bool) {
        let BackgroundCommand { id, command, origin, stop } = command;
        self.hub.0.background.lock().entry(key.clone()).or_default().insert(id.clone(), stop);
        if wakes {
            self.change_command(key, CommandChange::Add { id, command, origin, report: None }).await;
        }
    }

    /// Records that a background command ended on its own, and wakes its session. Nothing is reported if the agent has
    /// already read the result.
    pub async fn ended(self, key: &SessionKey, id: &str, report: &str) {
        self.hub.0.background.remove(key, id);
        let report = self.hub.agents().of(key.agent()).secrets.mask(report).into_owned();
        if self.change_command(key, CommandChange::Report { id: id.to_owned(), report }).await {
            self.wake_later(key);
        }
    }

    /// Drops the pending report of a background command: the agent read its result, or it was stopped on purpose.
    pub async fn settled(self, key: &SessionKey, id: &str) {
        self.hub.0.background.remove(key, id);
        self.change_command(key, CommandChange::Remove(id.to_owned())).await;
    }

    /// Records the result of something that a run started and did not wait for, and wakes its session. Unlike for
    /// [`Self::ended`], its start need not have been recorded.
    pub(crate) async fn report_result(self, key: &SessionKey, origin: CommandOrigin, id: &str, report: &str) {
        self.hub.0.background.remove(key, id);
        let report = Some(self.hub.agents().of(key.agent()).secrets.mask(report).into_owned());
        let change = CommandChange::Add { id: id.to_owned(), command: String::new(), origin, report };
        if self.change_command(key, change).await {
            self.wake_later(key);
        }
    }

    /// Applies a change to the session's commands. Returns true if the session's record changed.
    async fn change_command(self, key: &SessionKey, change: CommandChange) -> bool {
        match self.hub.sessions().change(key, |reply| Mutation::Command(change, reply)).await {
            Ok(is_changed) => is_changed,
            // The next start finds the command in the record and reports that it was interrupted.
            Err(ChangeError::Stopping) => false,
            Err(error) => {
                tracing::warn!(session = %key, %error, "failed to store the state of a background command");
                false
            }
        }
    }

    /// Marks the commands of the previous process as interrupted, and wakes every session with pending reports.
    pub(super) async fn recover(self) -> Result<(), StoreError> {
        for (key, record) in self.hub.0.store.list().await? {
            if background::has_commands(&record) {
                let hub = self.hub.clone();
                self.hub.0.spawn_until_drained("background-command", async move {
                    hub.background().change_command(&key, CommandChange::Interrupt).await;
                    hub.background().wake(&key).await;
                });
            }
        }
        Ok(())
    }

    fn wake_later(self, key: &SessionKey) {
        let (hub, key) = (self.hub.clone(), key.clone());
        self.hub.0.spawn_until_drained("background-command", async move { hub.background().wake(&key).await });
    }

    /// Wakes a session until no report is pending; each set of reports is submitted once.
    async fn wake(self, key: &SessionKey) {
        // The result of a sub-agent was reported when its run ended; later reports have no reader.
        if key.is_subagent() {
            return;
        }
        tokio::time::sleep(COALESCE).await;
        let (mut submitted, mut retry_delay) = (Vec::new(), FIRST_RETRY);
        loop {
            self.hub.sessions().await_idle(key).await;
            let pending = match self.hub.sessions().get(key).await {
                Ok(record) => record.as_deref().and_then(background::pending_reports),
                Err(error) => {
                    tracing::warn!(session = %key, %error, "failed to read the reports of background commands");
                    None
                }
            };
            let Some((origin, ids)) = pending.filter(|(_, ids)| *ids != submitted) else { return };
            match self.hub.submit(self.wake_message(key, origin, &ids)).await {
                Ok(_) => (submitted, retry_delay) = (ids, FIRST_RETRY),
                // The session does not accept messages; its next run reads the reports.
                Err(SubmitError::Blocked) if !self.hub.runs().has_live(key) => return,
                Err(
                    SubmitError::Conflict(_)
                    | SubmitError::Held(_)
                    | SubmitError::SessionChanged
                    | SubmitError::Stopping,
                ) => return,
                Err(SubmitError::Blocked | SubmitError::Overloaded | SubmitError::Store(_)) => {
                    tokio::time::sleep(retry_delay).await;
                    retry_delay = MAX_RETRY.min(retry_delay * 2);
                }
            }
        }
    }

    /// Builds the wake message, with the authority and the route of the run that started the commands.
    fn wake_message(self, key: &SessionKey, origin: CommandOrigin, ids: &[String]) -> Inbound {
        let cause = if ids.iter().all(|id| id.starts_with(background::APPROVAL)) {
            "Your approval requests were decided; the system events above state the outcome. Do not request them again."
        } else {
            "Commands that you started in the background have ended; the system events above state how."
        };
        let text = format!(
            "{cause} Go on with what depends on them, and tell the user the result. If the user does not need to know, \
             answer {TOKEN} and nothing else."
        );
        let run = self.hub.0.ambient.run_id();
        let mut message = User::text(text, self.hub.0.ambient.now_ms());
        message.extra.insert("idempotencyKey".to_owned(), format!("{run}:user").into());
        let provenance = json!({"kind": "internal_system", "sourceSessionKey": key, "sourceTool": "exec"});
        message.extra.insert("inputProvenance".to_owned(), provenance);
        let RunOrigin { principal, route, cwd, authority } = origin.into();
        // No message was received on this route now, so it does not become the session's last route.
        let delivery = self
            .hub
            .deliveries()
            .reply_delivery(key, &route)
            .map(|delivery| ReplyDelivery { is_origin: false, ..delivery });
        let sender = InboundSender { authority, ..InboundSender::new(&principal, WAKE_METHOD) };
        let options = InboundOptions { cwd, ..InboundOptions::new(RunClass::Heartbeat) };
        let reply = InboundReply::new(route, delivery);
        Inbound { options, reply, ..Inbound::plain(run, sender, key.clone(), message) }
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::AgentId;

    use super::*;

    // Acceptance D17.
    #[test]
    fn a_stop_ends_the_commands_of_its_session_only() {
        let (running, main) = (RunningCommands::default(), AgentId::main().main_session());
        let other = SessionKey::parse("agent:main:other", &AgentId::main()).unwrap();
        let [first, second, ended, elsewhere] = [(); 4].map(|()| CancellationToken::new());
        for (key, id, stop) in
            [(&main, "a", &first), (&main, "b", &second), (&main, "c", &ended), (&other, "a", &elsewhere)]
        {
            running.lock().entry(key.clone()).or_default().insert(id.to_owned(), stop.clone());
        }
        running.remove(&main, "c");
        assert_eq!((running.stop(&main), running.stop(&main)), (2, 0));
        let stopped = [&first, &second, &ended, &elsewhere].map(CancellationToken::is_cancelled);
        assert_eq!(stopped, [true, true, false, false]);
    }
}
