//! Execution after a decision: runs allowed commands and reports the result to their session.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use homard_proto::{AgentId, SessionKey};

use super::{
    book::{Entry, State},
    desk::Desk,
};
use crate::{Hub, task, tool::Variables};

/// Future of the result text for the session.
type Outcome = Pin<Box<dyn Future<Output = String> + Send>>;

/// Runs an allowed command. It must first consume the approval with [`Desk::take`], and run nothing if that fails.
#[derive(Clone)]
pub struct Later(Arc<dyn Fn(Entry, Variables) -> Outcome + Send + Sync>);

impl Later {
    /// Wraps a function that runs a command with the current environment variables of its agent and returns the result
    /// text.
    pub fn new<F, O>(run: F) -> Self
    where
        F: Fn(Entry, Variables) -> O + Send + Sync + 'static,
        O: Future<Output = String> + Send + 'static,
    {
        Self(Arc::new(move |entry, variables| Box::pin(run(entry, variables))))
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Later")
    }
}

/// Waits for a decision, executes it and reports to the session. If this is dropped, [`resume`] continues it at the
/// next start.
pub async fn follow(desk: &Desk, hub: &Hub, id: &str, later: &Later) {
    let Some(entry) = desk.wait(id).await else { return };
    let Some(session) = entry.bound.as_ref().map(|bound| bound.session.clone()) else { return };
    let Ok(key) = SessionKey::parse(&session, &AgentId::main()) else {
        tracing::warn!(%session, "an approval names no session");
        return;
    };
    let profile = hub.agents().of(key.agent());
    let (id, command) = (entry.id.clone(), entry.shown());
    let text = match entry.state {
        // It would be cancelled at once: the next start runs it.
        State::AllowedOnce | State::AllowedAlways if hub.is_draining() => return,
        State::AllowedOnce | State::AllowedAlways => {
            (later.0)(entry, profile.setting.shelf.kit().variables.clone()).await
        }
        State::Denied => format!("Exec denied (approval {id}): {command}"),
        State::Expired | State::Pending => format!("Exec denied (approval {id}, nobody answered in time): {command}"),
    };
    if let Err(error) = hub.note_event(&key, clipped(&profile.secrets.mask(&text))).await {
        tracing::warn!(%error, session = %key, "nobody could be told what came of an approval");
    }
}

/// Shortens a long text to its beginning, which names the command, and its end, which is the most informative.
fn clipped(text: &str) -> String {
    let (first, last) = (400, 1_400);
    let count = text.chars().count();
    if count <= first + last {
        return text.to_owned();
    }
    let head: String = text.chars().take(first).collect();
    let tail: String = text.chars().skip(count - last).collect();
    format!("{head} … {tail}")
}

/// Resumes requests found at a restart: pending ones, and allowed ones that were not executed. The tasks end by
/// themselves, after at most five minutes, or with the command that they run.
pub fn resume(desk: &Desk, hub: &Hub, later: &Later) -> Vec<tokio::task::JoinHandle<()>> {
    let unfinished = desk.unfinished().into_iter();
    let tasks = unfinished.map(|entry| {
        let (desk, hub, later) = (desk.clone(), hub.clone(), later.clone());
        task::spawn("approved", async move { follow(&desk, &hub, &entry.id, &later).await })
    });
    tasks.collect()
}
