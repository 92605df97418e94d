//! Where approvals are asked for, given and used. What it says has happened is on disk.

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

/// How much news is kept for a listener that is behind; what is older is lost to it.
const NEWS: usize = 256;

/// A handle on the desk. Clones are cheap and are the same desk.
#[derive(Debug, Clone)]
pub struct Desk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shelf: Arc<dyn Shelf>,
    ambient: Ambient,
    /// Held while something is stored: one change after the other, so that of two answers one is the first.
    writing: Mutex<()>,
    book: watch::Sender<Arc<Book>>,
    news: broadcast::Sender<(&'static str, Value)>,
    audit: Audit,
}

/// The rules as they are on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// What they say.
    pub policy: Policy,
    /// Whether there is a file.
    pub exists: bool,
    /// The fingerprint of the file.
    pub hash: String,
}

/// A change in the making.
struct Draft {
    book: Book,
    now: u64,
    /// What everybody is told once it is stored.
    news: Vec<(&'static str, Value)>,
    /// Whose rules are remembered before it counts.
    remembered: Option<Entry>,
}

impl Desk {
    /// Takes up what waits on the shelf.
    pub async fn open(shelf: Arc<dyn Shelf>, ambient: Ambient) -> Result<Self, StoreError> {
        Self::open_with(shelf, ambient, Audit::default()).await
    }

    /// The same, and notes what is asked and decided.
    pub async fn open_with(shelf: Arc<dyn Shelf>, ambient: Ambient, audit: Audit) -> Result<Self, StoreError> {
        let book = Arc::new(Book::read(shelf.load().await?));
        let (book, news) = (watch::Sender::new(book), broadcast::channel(NEWS).0);
        Ok(Self(Arc::new(Inner { shelf, ambient, writing: Mutex::new(()), book, news, audit })))
    }

    /// Asks; the answer is waited for elsewhere.
    pub async fn ask(&self, ticket: Ticket) -> Result<Entry, Error> {
        let nonce = self.0.ambient.nonce();
        self.change(move |draft| {
            let entry = draft.book.ask(ticket, nonce, draft.now)?;
            // One that had to make room.
            let displaced = draft.book.tidy(draft.now);
            draft.news.extend(displaced.iter().map(|entry| ("exec.approval.resolved", entry.resolved(draft.now))));
            draft.news.push(("exec.approval.requested", entry.requested()));
            Ok(entry)
        })
        .await
    }

    /// Answers. The first answer counts; what is allowed for good is remembered before it counts.
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

    /// Uses an answer, once; it is on disk that it was used before this returns. One that is not about this any more
    /// is used up, too.
    pub async fn take(&self, id: &str, bound: Bound) -> Result<Entry, Error> {
        let id = id.to_owned();
        self.change(move |draft| draft.book.take(&id, &bound, draft.now)).await
    }

    /// One of them, as it stands.
    pub fn get(&self, id: &str) -> Option<Entry> {
        self.0.book.borrow().0.get(id).cloned()
    }

    /// Those that wait for an answer, oldest first.
    pub fn pending(&self) -> Vec<Entry> {
        let now = self.0.ambient.now_ms();
        let book = self.0.book.borrow();
        let mut pending: Vec<_> = book.pending().filter(|entry| now < entry.expires_at_ms).cloned().collect();
        pending.sort_by_key(|entry| entry.created_at_ms);
        pending
    }

    /// Those that are settled and still known, newest first.
    pub fn settled(&self) -> Vec<Entry> {
        let book = self.0.book.borrow();
        let mut settled: Vec<_> = book.0.values().filter(|entry| entry.state != State::Pending).cloned().collect();
        settled.sort_by_key(|entry| Reverse(entry.decided_at_ms.unwrap_or(entry.expires_at_ms)));
        settled
    }

    /// Those that we run and have not: a restart takes them up.
    pub fn unfinished(&self) -> Vec<Entry> {
        let book = self.0.book.borrow();
        let is_ours = |entry: &&Entry| entry.bound.is_some() && (entry.state == State::Pending || entry.is_open());
        book.0.values().filter(is_ours).cloned().collect()
    }

    /// Waits until one is settled; `None` if there is none of that name.
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
                    // If it cannot be stored, it is late all the same.
                    if let Err(error) = self.tidy().await {
                        tracing::warn!(%error, "an approval could not be ended");
                        entry.state = State::Expired;
                        return Some(entry);
                    }
                }
            }
        }
    }

    /// Ends what nobody answers in time, until it is told to stop.
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
                    // Not again at once: a full disk stays full for a while.
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(Duration::from_secs(10)) => {}
                    }
                },
            }
        }
    }

    /// Hears of every `exec.approval.requested` and `exec.approval.resolved` from here on.
    pub fn listen(&self) -> broadcast::Receiver<(&'static str, Value)> {
        self.0.news.subscribe()
    }

    /// Where the rules are.
    pub fn place(&self) -> String {
        self.0.shelf.place()
    }

    /// The rules as they are on disk now. What cannot be read is an error: nothing is allowed by it.
    pub async fn rules(&self) -> Result<Rules, StoreError> {
        let text = self.0.shelf.policy().await?;
        let hash = hash(text.as_deref());
        let policy = text.as_deref().map_or_else(|| Ok(Policy::default()), Policy::parse);
        let unread = |why: String| {
            StoreError::Corrupt(format!("{} cannot be read: {why}; correct it, or move it away", self.place()))
        };
        Ok(Rules { policy: policy.map_err(unread)?, exists: text.is_some(), hash })
    }

    /// Replaces the rules, if they are still those that `base` is the fingerprint of.
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

    /// Makes a change and stores it, also when whoever asked for it is gone meanwhile.
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
                // Nobody may listen, and that is fine.
                desk.0.news.send((event, payload)).ok();
            }
            made
        });
        let broke = |error| Error::Store(StoreError::Disk(format!("it was left in the middle: {error}")));
        made.await.map_err(broke).flatten()
    }

    /// Notes a question or what came of it, without what it is about.
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

    /// When it will be this late.
    fn instant(&self, at_ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(at_ms.saturating_sub(self.0.ambient.now_ms()))
    }
}
