//! After a question was answered: what was allowed is run, and its session hears what came of it.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use homard_proto::{AgentId, SessionKey};

use super::{
    book::{Entry, State},
    desk::Desk,
};
use crate::{Hub, task, tool::Variables};

/// What a command came to, for its session.
type Outcome = Pin<Box<dyn Future<Output = String> + Send>>;

/// Runs what was allowed. It has to use the answer with [`Desk::take`] first, and to run nothing if that fails.
#[derive(Clone)]
pub struct Later(Arc<dyn Fn(Entry, Variables) -> Outcome + Send + Sync>);

impl Later {
    /// Runs what was allowed like this, with what commands of its agent find in their environment now, and says what
    /// came of it.
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

/// Waits for an answer, does what it says and tells the session. One that is dropped is taken up by [`resume`] at the
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
        // It would be ended as soon as it has begun: the next start takes it up.
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

/// What a session is told of a long text: which command it was, and the end, which says most.
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

/// Takes up what a restart found: what waits for an answer, and what was allowed and has not run. The tasks end by
/// themselves, five minutes later at most, or with the command that they run.
pub fn resume(desk: &Desk, hub: &Hub, later: &Later) -> Vec<tokio::task::JoinHandle<()>> {
    let unfinished = desk.unfinished().into_iter();
    let tasks = unfinished.map(|entry| {
        let (desk, hub, later) = (desk.clone(), hub.clone(), later.clone());
        task::spawn("approved", async move { follow(&desk, &hub, &entry.id, &later).await })
    });
    tasks.collect()
}
