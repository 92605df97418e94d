//! Sessions as the hub shows them: records, transcripts and changes.

use std::sync::Arc;

use homard_command::{CommandInfo, all_commands};
use homard_proto::{AgentId, EntryId, SessionId, SessionKey, message::Message, session};
use homard_store::{Authority, Error as StoreError, branch};
use tokio::sync::oneshot;

use super::{Hub, shared::LiveRun};
use crate::{
    lane::{
        LaneJob,
        mutations::{ChangeError, DeletedSession, Deletion, InjectedMessage, Mutation, Patch},
    },
    row::newest_first,
    tape::Subscriber,
};

/// Messages with the ids of their transcript entries.
pub type HistoryEntries = Vec<(EntryId, Arc<Message>)>;

/// Sessions of a hub. What [`Hub::sessions`] returns.
#[derive(Debug, Clone, Copy)]
pub struct HubSessions<'a> {
    pub(super) hub: &'a Hub,
}

impl HubSessions<'_> {
    /// Returns the commands that the owner may write in a chat.
    pub fn commands(self) -> Vec<CommandInfo> {
        all_commands(&self.hub.0.config.rules().triggers)
    }

    /// Records an event for the session's next run. The text may quote command output, so secrets in it are masked.
    pub async fn note_event(self, key: &SessionKey, text: String) -> Result<(), ChangeError> {
        self.note_event_of(key, text, Authority::Full).await
    }

    /// Like [`Self::note_event`], for an event caused by a request with this authority.
    pub async fn note_event_of(self, key: &SessionKey, text: String, authority: Authority) -> Result<(), ChangeError> {
        let text = self.hub.agents().of(key.agent()).secrets.mask(&text).into_owned();
        self.change(key, |reply| Mutation::Event((text, authority), reply)).await
    }

    /// Appends a message that no model wrote, once the session has no active or queued runs.
    pub async fn inject(self, key: &SessionKey, text: String) -> Result<InjectedMessage, ChangeError> {
        loop {
            match self.change(key, |reply| Mutation::Note(text.clone(), reply)).await {
                Err(ChangeError::Busy) => self.await_idle(key).await,
                result => return result,
            }
        }
    }

    /// Waits for the end of all current runs of a session.
    pub(super) async fn await_idle(self, key: &SessionKey) {
        let is_in_session = |run: &&LiveRun| run.tape.key() == key;
        let runs: Vec<_> = self.hub.0.lock().runs.values().filter(is_in_session).map(|run| run.tape.clone()).collect();
        for tape in runs {
            Subscriber::new(tape).end().await;
        }
    }

    /// Changes a session's record; creates the session if it does not exist. Returns the stored record.
    pub async fn patch(self, key: &SessionKey, patch: Patch) -> Result<session::Record, ChangeError> {
        self.change(key, |reply| Mutation::Patch(patch, reply)).await
    }

    /// Gives a session a new transcript; creates the session if it does not exist. Its settings are kept.
    ///
    /// An active run finishes in the old transcript; queued messages run in the new one. `reason` is passed to hooks:
    /// `new` or `reset`.
    pub async fn reset(self, key: &SessionKey, reason: &'static str) -> Result<session::Record, ChangeError> {
        self.change(key, |reply| Mutation::Reset(reason, reply)).await
    }

    /// Runs the hooks of `/new` because another session replaces this one. The session itself does not change.
    pub async fn succeeded(self, key: &SessionKey) -> Result<(), ChangeError> {
        self.change(key, Mutation::Succeeded).await
    }

    /// Deletes a session after stopping its runs and archives its transcript. Returns what was deleted, if it existed.
    pub async fn delete(
        self,
        key: &SessionKey,
        expected: Option<SessionId>,
    ) -> Result<Option<DeletedSession>, ChangeError> {
        if *key == self.hub.agents().default_id().main_session() {
            return Err(ChangeError::Main(key.clone()));
        }
        self.change(key, |reply| Mutation::Delete(Deletion { expected, reply })).await
    }

    /// Passes a change to the session's lane and waits for the result.
    pub(super) async fn change<T>(
        self,
        key: &SessionKey,
        mutation: impl FnOnce(oneshot::Sender<Result<T, ChangeError>>) -> Mutation,
    ) -> Result<T, ChangeError> {
        if self.hub.0.stopping.is_cancelled() {
            return Err(ChangeError::Stopping);
        }
        self.hub.lifecycle().recover_session(key).await?;
        let (reply, result) = oneshot::channel();
        self.hub.0.send(&mut self.hub.0.lock(), key, LaneJob::Change(Box::new(mutation(reply))));
        // A dropped sender means that the lane ended before it read the job.
        result.await.unwrap_or(Err(ChangeError::Stopping))
    }

    /// Returns a session's record.
    pub async fn get(self, key: &SessionKey) -> Result<Option<Arc<session::Record>>, StoreError> {
        self.hub.0.store.record(key).await
    }

    /// Returns all sessions' records, unordered.
    pub async fn unsorted(self) -> Result<Vec<(SessionKey, Arc<session::Record>)>, StoreError> {
        self.hub.0.store.list().await
    }

    /// Returns all sessions' records, newest first.
    pub async fn list(self) -> Result<Vec<(SessionKey, Arc<session::Record>)>, StoreError> {
        let mut sessions = self.unsorted().await?;
        sessions.sort_by(|(a_key, a), (b_key, b)| newest_first(a_key, a, b_key, b));
        Ok(sessions)
    }

    /// Returns the key of the session with this id.
    pub async fn find(self, id: &SessionId) -> Result<Option<SessionKey>, StoreError> {
        self.hub.0.store.find(id).await
    }

    /// Returns the agent with a transcript of this id that belongs to no session any more (for example after a reset).
    pub async fn find_transcript(self, id: &SessionId) -> Result<Option<AgentId>, StoreError> {
        let agents = self.hub.agents();
        let default = agents.default_id().clone();
        let others = agents.iter().map(|profile| profile.id.clone()).filter(|agent| *agent != default);
        for agent in std::iter::once(default.clone()).chain(others) {
            let key = SessionKey::explicit(&agent, id);
            if !self.hub.0.store.live_transcript(&key, id).await?.is_empty() {
                return Ok(Some(agent));
            }
        }
        Ok(None)
    }

    /// Returns a session's record and its messages, oldest first.
    pub async fn history(self, key: &SessionKey) -> Result<Option<(session::Record, Vec<Arc<Message>>)>, StoreError> {
        let loaded = self.hub.0.store.load(key).await?;
        Ok(loaded.map(|session| (session.record, branch::all_messages(&session.entries))))
    }

    /// Like [`Self::history`], with the ids of the transcript entries.
    pub async fn history_entries(
        self,
        key: &SessionKey,
    ) -> Result<Option<(session::Record, HistoryEntries)>, StoreError> {
        let loaded = self.hub.0.store.load(key).await?;
        Ok(loaded.map(|session| (session.record, branch::all_message_entries(&session.entries))))
    }

    /// Returns the messages of one transcript of a session with their entry ids, oldest first, also of a transcript the
    /// session no longer uses. `None` if it does not exist.
    pub async fn transcript_entries(
        self,
        key: &SessionKey,
        session: &SessionId,
    ) -> Result<Option<HistoryEntries>, StoreError> {
        let entries = self.hub.0.store.transcript(key, session).await?;
        Ok(entries.map(|entries| branch::all_message_entries(&entries)))
    }
}
