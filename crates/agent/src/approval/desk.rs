//! Exec approvals: requests, decisions and their use. Everything it reports is on disk.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use homard_audit::{Audit, Fact, What};
use homard_proto::AgentId;
use homard_store::Error as StoreError;
use serde_json::Value;
use tokio::{
    sync::{Mutex, broadcast, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    book::{Book, Entry, Error, State, Ticket, Verdict},
    bound::Bound,
    policy::{Policy, hash},
    shelf::Shelf,
};
use crate::{Ambient, task};

/// Number of events kept for a slow subscriber; older ones are lost to it.
const NEWS: usize = 256;

/// Handle of the approvals. Clones are cheap and share the same state.
#[derive(Debug, Clone)]
pub struct Desk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shelf: Arc<dyn Shelf>,
    ambient: Ambient,
    /// Locked while a change is stored: changes are serialized, so that one of two decisions is the first.
    writing: Mutex<()>,
    book: watch::Sender<Arc<Book>>,
    news: broadcast::Sender<(&'static str, Value)>,
    audit: Audit,
}

/// The approval rules on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// The parsed rules.
    pub policy: Policy,
    /// True if the file exists.
    pub exists: bool,
    /// Hash of the file.
    pub hash: String,
}

/// A change in progress.
struct Draft {
    book: Book,
    now: u64,
    /// Events to publish once it is stored.
    news: Vec<(&'static str, Value)>,
    /// Request whose rules are stored before the decision takes effect.
    remembered: Option<Entry>,
}

impl Desk {
    /// Opens the store without an audit log.
    pub async fn open(shelf: Arc<dyn Shelf>, ambient: Ambient) -> Result<Self, StoreError> {
        Self::open_with(shelf, ambient, Audit::default()).await
    }

    /// Opens the store and writes requests and decisions to the audit log.
    pub async fn open_with(shelf: Arc<dyn Shelf>, ambient: Ambient, audit: Audit) -> Result<Self, StoreError> {
        let book = Arc::new(Book::read(shelf.load().await?));
        let (book, news) = (watch::Sender::new(book), broadcast::channel(NEWS).0);
        Ok(Self(Arc::new(Inner { shelf, ambient, writing: Mutex::new(()), book, news, audit })))
    }

    /// Adds a request; does not wait for the decision.
    pub async fn ask(&self, ticket: Ticket) -> Result<Entry, Error> {
        let nonce = self.0.ambient.nonce();
        self.change(move |draft| {
            let entry = draft.book.ask(ticket, nonce, draft.now)?;
            // A request that was displaced.
            let displaced = draft.book.tidy(draft.now);
            draft.news.extend(displaced.iter().map(|entry| ("exec.approval.resolved", entry.resolved(draft.now))));
            draft.news.push(("exec.approval.requested", entry.requested()));
            Ok(entry)
        })
        .await
    }

    /// Decides a request. The first decision counts; `allow-always` takes effect only after its rules are stored.
    pub async fn decide(&self, id: &str, verdict: Verdict, by: &str) -> Result<Entry, Error> {
        let (id, by) = (id.to_owned(), by.to_owned());
        self.change(move |draft| {
            let entry = draft.book.decide(&id, verdict, &by, draft.now)?;
            draft.news.push(("exec.approval.resolved", entry.resolved(draft.now)));
            draft.remembered = (verdict == Verdict::AllowAlways).then(|| entry.clone());
            Ok(entry)
        })
        .await
    }

    /// Consumes an approval, once; its use is on disk before this returns. An approval whose command has changed is
    /// consumed, too.
    pub async fn take(&self, id: &str, bound: Bound) -> Result<Entry, Error> {
        let id = id.to_owned();
        self.change(move |draft| draft.book.take(&id, &bound, draft.now)).await
    }

    /// Returns a request.
    pub fn get(&self, id: &str) -> Option<Entry> {
        self.0.book.borrow().0.get(id).cloned()
    }

    /// Returns the pending requests, oldest first.
    pub fn pending(&self) -> Vec<Entry> {
        let now = self.0.ambient.now_ms();
        let book = self.0.book.borrow();
        let mut pending: Vec<_> = book.pending().filter(|entry| now < entry.expires_at_ms).cloned().collect();
        pending.sort_by_key(|entry| entry.created_at_ms);
        pending
    }

    /// Returns the settled requests that are still kept, newest first.
    pub fn settled(&self) -> Vec<Entry> {
        let book = self.0.book.borrow();
        let mut settled: Vec<_> = book.0.values().filter(|entry| entry.state != State::Pending).cloned().collect();
        settled.sort_by_key(|entry| Reverse(entry.decided_at_ms.unwrap_or(entry.expires_at_ms)));
        settled
    }

    /// Returns requests for our own commands that are pending, or allowed and not executed: a restart resumes them.
    pub fn unfinished(&self) -> Vec<Entry> {
        let book = self.0.book.borrow();
        let is_ours = |entry: &&Entry| entry.bound.is_some() && (entry.state == State::Pending || entry.is_open());
        book.0.values().filter(is_ours).cloned().collect()
    }

    /// Waits until a request is settled; `None` if it does not exist.
    pub async fn wait(&self, id: &str) -> Option<Entry> {
        let mut seen = self.0.book.subscribe();
        loop {
            let mut entry = seen.borrow_and_update().0.get(id).cloned()?;
            if entry.state != State::Pending {
                return Some(entry);
            }
            tokio::select! {
                biased;
                changed = seen.changed() => changed.ok()?,
                () = sleep_until(self.instant(entry.expires_at_ms)) => {
                    // Even if the expiry cannot be stored, the request has expired.
                    if let Err(error) = self.tidy().await {
                        tracing::warn!(%error, "an approval could not be ended");
                        entry.state = State::Expired;
                        return Some(entry);
                    }
                }
            }
        }
    }

    /// Expires overdue requests until it is stopped.
    pub async fn run(self, stop: CancellationToken) {
        let mut seen = self.0.book.subscribe();
        loop {
            let next = seen.borrow_and_update().pending().map(|entry| entry.expires_at_ms).min();
            let late = async {
                match next {
                    Some(at) => sleep_until(self.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = seen.changed() => if changed.is_err() { return },
                () = late => if let Err(error) = self.tidy().await {
                    tracing::warn!(%error, "approvals could not be ended");
                    // Delay before the retry: a full disk stays full for a while.
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(Duration::from_secs(10)) => {}
                    }
                },
            }
        }
    }

    /// Subscribes to `exec.approval.requested` and `exec.approval.resolved`.
    pub fn listen(&self) -> broadcast::Receiver<(&'static str, Value)> {
        self.0.news.subscribe()
    }

    /// Returns the location of the rules, for messages.
    pub fn place(&self) -> String {
        self.0.shelf.place()
    }

    /// Reads the rules from disk. An unreadable file is an error: it allows nothing.
    pub async fn rules(&self) -> Result<Rules, StoreError> {
        let text = self.0.shelf.policy().await?;
        let hash = hash(text.as_deref());
        let policy = text.as_deref().map_or_else(|| Ok(Policy::default()), Policy::parse);
        let unread = |why: String| {
            StoreError::Corrupt(format!("{} cannot be read: {why}; correct it, or move it away", self.place()))
        };
        Ok(Rules { policy: policy.map_err(unread)?, exists: text.is_some(), hash })
    }

    /// Replaces the rules, if their hash is still `base`.
    pub async fn set_rules(&self, policy: Policy, base: Option<&str>) -> Result<Rules, Error> {
        let _writing = self.0.writing.lock().await;
        let now = self.rules().await?;
        match base {
            None if now.exists => {
                return Err(Error::Invalid(
                    "baseHash is missing; get the file with exec.approvals.get first".to_owned(),
                ));
            }
            Some(base) if base != now.hash => {
                let why = "the file has changed since it was read; get it again with exec.approvals.get";
                return Err(Error::Invalid(why.to_owned()));
            }
            None | Some(_) => {}
        }
        self.0.shelf.set_policy(policy.with_token_of(&now.policy).text()?).await?;
        self.0.audit.note(Fact::new(What::ApprovalRules));
        Ok(self.rules().await?)
    }

    async fn remember(&self, entry: &Entry, at: u64) -> Result<(), Error> {
        let mut policy = self.rules().await?.policy;
        let before = policy.clone();
        for rule in entry.rules() {
            let agent = AgentId::normalize(&entry.agent);
            policy.remember(&agent, &rule, &self.0.ambient.nonce(), (at, &entry.command));
        }
        if policy != before {
            self.0.shelf.set_policy(policy.text()?).await?;
        }
        Ok(())
    }

    async fn tidy(&self) -> Result<(), Error> {
        self.change(|_| Ok(())).await
    }

    /// Makes and stores a change, even if the caller is dropped in the meantime.
    async fn change<T, F>(&self, change: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut Draft) -> Result<T, Error> + Send + 'static,
    {
        let desk = self.clone();
        let made = task::spawn("approval", async move {
            let _writing = desk.0.writing.lock().await;
            let now = desk.0.ambient.now_ms();
            let mut book = Book::clone(&desk.0.book.borrow());
            let ended = book.tidy(now);
            let news = ended.iter().map(|entry| ("exec.approval.resolved", entry.resolved(now))).collect();
            let mut draft = Draft { book, now, news, remembered: None };
            let made = change(&mut draft);
            if let Some(entry) = &draft.remembered {
                desk.remember(entry, now).await?;
            }
            if draft.book != **desk.0.book.borrow() {
                desk.0.shelf.save(draft.book.values()?).await?;
                desk.0.book.send_replace(Arc::new(draft.book));
            }
            for (event, payload) in draft.news {
                desk.note(event, &payload);
                // There may be no subscribers.
                desk.0.news.send((event, payload)).ok();
            }
            made
        });
        let broke = |error| Error::Store(StoreError::Disk(format!("it was left in the middle: {error}")));
        made.await.map_err(broke).flatten()
    }

    /// Writes a request or decision to the audit log, without the command.
    fn note(&self, event: &str, payload: &Value) {
        let what = if event == "exec.approval.requested" { What::ApprovalAsked } else { What::ApprovalDecided };
        let id = payload["id"].as_str().unwrap_or_default();
        let entry = self.get(id);
        let mut fact = Fact::new(what).with("approval", id);
        if let Some(entry) = &entry {
            let session = entry.bound.as_ref().map(|bound| bound.session.as_str());
            fact = fact.with("agent", &entry.agent).with("session", session.unwrap_or_default());
            fact = fact.digest("command", &entry.command);
        }
        let (who, outcome) = match (what, &entry) {
            (What::ApprovalDecided, Some(entry)) => {
                (entry.decided_by.as_deref().unwrap_or("house"), entry.state.as_str())
            }
            (_, Some(entry)) => (entry.agent.as_str(), "asked"),
            (_, None) => ("house", "asked"),
        };
        self.0.audit.note(fact.by(who).ended(outcome));
    }

    /// Converts a wall-clock time to an instant.
    fn instant(&self, at_ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(at_ms.saturating_sub(self.0.ambient.now_ms()))
    }
}
