//! Exec approvals: requests, decisions and their use. A change is on disk before it is returned or published.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use homard_audit::{Audit, AuditKind, AuditRecord};
use homard_proto::AgentId;
use homard_runtime::{Ambient, task};
use homard_store::Error as StoreError;
use serde_json::Value;
use tokio::{
    sync::{Mutex, broadcast, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    fingerprint::CommandFingerprint,
    policy::{ApprovalPolicy, hash},
    state::{Approval, ApprovalDecision, ApprovalParams, ApprovalState, ApprovalTable, Error},
    store::ApprovalStore,
};

/// Number of events kept for a slow subscriber; older ones are lost to it.
const EVENT_BUFFER: usize = 256;

/// Handle of the approvals. Clones are cheap and share the same state.
#[derive(Debug, Clone)]
pub struct ExecApprovals(Arc<ApprovalsInner>);

#[derive(Debug)]
struct ApprovalsInner {
    store: Arc<dyn ApprovalStore>,
    ambient: Ambient,
    /// Locked while a change is stored: changes are serialized, so that one of two decisions is the first.
    writing: Mutex<()>,
    table: watch::Sender<Arc<ApprovalTable>>,
    events: broadcast::Sender<(&'static str, Value)>,
    audit: Audit,
}

/// The approval rules on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRules {
    /// The parsed rules.
    pub policy: ApprovalPolicy,
    /// True if the file exists.
    pub exists: bool,
    /// Hash of the file.
    pub hash: String,
}

/// A change of the approvals in progress: made on a copy of the table, which replaces the table once it is stored.
struct ApprovalChange {
    /// The copy.
    table: ApprovalTable,
    /// Time of the change in milliseconds since the epoch.
    now: u64,
    /// Events to publish once the change is stored.
    events: Vec<(&'static str, Value)>,
    /// Request whose rules are stored before the decision takes effect.
    allowed_always: Option<Approval>,
}

impl ExecApprovals {
    /// Opens the store without an audit log.
    pub async fn open(store: Arc<dyn ApprovalStore>, ambient: Ambient) -> Result<Self, StoreError> {
        Self::open_with(store, ambient, Audit::default()).await
    }

    /// Opens the store and writes requests and decisions to the audit log.
    pub async fn open_with(store: Arc<dyn ApprovalStore>, ambient: Ambient, audit: Audit) -> Result<Self, StoreError> {
        let table = Arc::new(ApprovalTable::read(store.load().await?));
        let (table, events) = (watch::Sender::new(table), broadcast::channel(EVENT_BUFFER).0);
        Ok(Self(Arc::new(ApprovalsInner { store, ambient, writing: Mutex::new(()), table, events, audit })))
    }

    /// Adds a request; does not wait for the decision.
    pub async fn request(&self, params: ApprovalParams) -> Result<Approval, Error> {
        let nonce = self.0.ambient.nonce();
        self.change(move |change| {
            let entry = change.table.add_request(params, nonce, change.now)?;
            // If the queue was full, adding the request has displaced another one.
            let displaced = change.table.expire(change.now);
            change.events.extend(displaced.iter().map(|entry| ("exec.approval.resolved", entry.resolved(change.now))));
            change.events.push(("exec.approval.requested", entry.requested()));
            Ok(entry)
        })
        .await
    }

    /// Decides a request. The first decision counts; `allow-always` takes effect only after its rules are stored.
    pub async fn decide(&self, id: &str, decision: ApprovalDecision, by: &str) -> Result<Approval, Error> {
        let (id, by) = (id.to_owned(), by.to_owned());
        self.change(move |change| {
            let entry = change.table.decide(&id, decision, &by, change.now)?;
            change.events.push(("exec.approval.resolved", entry.resolved(change.now)));
            change.allowed_always = (decision == ApprovalDecision::AllowAlways).then(|| entry.clone());
            Ok(entry)
        })
        .await
    }

    /// Consumes an approval, once; its use is on disk before this returns. An approval whose command has changed is
    /// consumed, too.
    pub async fn consume(&self, id: &str, fingerprint: CommandFingerprint) -> Result<Approval, Error> {
        let id = id.to_owned();
        self.change(move |change| change.table.consume(&id, &fingerprint, change.now)).await
    }

    /// Returns a request.
    pub fn get(&self, id: &str) -> Option<Approval> {
        self.0.table.borrow().0.get(id).cloned()
    }

    /// Returns the pending requests, oldest first.
    pub fn pending(&self) -> Vec<Approval> {
        let now = self.0.ambient.now_ms();
        let table = self.0.table.borrow();
        let mut pending: Vec<_> = table.pending().filter(|entry| now < entry.expires_at_ms).cloned().collect();
        pending.sort_by_key(|entry| entry.created_at_ms);
        pending
    }

    /// Returns the settled requests that are still kept, newest first.
    pub fn settled(&self) -> Vec<Approval> {
        let table = self.0.table.borrow();
        let mut settled: Vec<_> =
            table.0.values().filter(|entry| entry.state != ApprovalState::Pending).cloned().collect();
        settled.sort_by_key(|entry| Reverse(entry.decided_at_ms.unwrap_or(entry.expires_at_ms)));
        settled
    }

    /// Returns requests for commands of agents that are pending, or allowed and not executed: a restart resumes them.
    pub fn unfinished(&self) -> Vec<Approval> {
        let table = self.0.table.borrow();
        let is_unfinished = |entry: &&Approval| {
            entry.fingerprint.is_some() && (entry.state == ApprovalState::Pending || entry.is_open())
        };
        table.0.values().filter(is_unfinished).cloned().collect()
    }

    /// Waits until a request is settled; `None` if it does not exist.
    pub async fn wait(&self, id: &str) -> Option<Approval> {
        let mut changes = self.0.table.subscribe();
        loop {
            let mut entry = changes.borrow_and_update().0.get(id).cloned()?;
            if entry.state != ApprovalState::Pending {
                return Some(entry);
            }
            tokio::select! {
                biased;
                changed = changes.changed() => changed.ok()?,
                () = sleep_until(self.instant(entry.expires_at_ms)) => {
                    // Even if the expiry cannot be stored, the request has expired.
                    if let Err(error) = self.expire().await {
                        tracing::warn!(%error, "failed to store the expiry of an approval");
                        entry.state = ApprovalState::Expired;
                        return Some(entry);
                    }
                }
            }
        }
    }

    /// Expires overdue requests until it is stopped.
    pub async fn run(self, stop: CancellationToken) {
        let mut changes = self.0.table.subscribe();
        loop {
            let next = changes.borrow_and_update().pending().map(|entry| entry.expires_at_ms).min();
            let expiry = async {
                match next {
                    Some(at_ms) => sleep_until(self.instant(at_ms)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
                () = expiry => if let Err(error) = self.expire().await {
                    tracing::warn!(%error, "failed to store the expiry of approvals");
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
    pub fn subscribe(&self) -> broadcast::Receiver<(&'static str, Value)> {
        self.0.events.subscribe()
    }

    /// Returns the location of the rules, for messages.
    pub fn location(&self) -> String {
        self.0.store.location()
    }

    /// Reads the rules from disk. An unreadable file is an error: it allows nothing.
    pub async fn rules(&self) -> Result<ApprovalRules, StoreError> {
        let text = self.0.store.policy().await?;
        let hash = hash(text.as_deref());
        let policy = text.as_deref().map_or_else(|| Ok(ApprovalPolicy::default()), ApprovalPolicy::parse);
        let unreadable = |reason: String| {
            StoreError::Corrupt(format!("{} cannot be read: {reason}; correct it, or move it away", self.location()))
        };
        Ok(ApprovalRules { policy: policy.map_err(unreadable)?, exists: text.is_some(), hash })
    }

    /// Replaces the rules, if their hash is still `base`.
    pub async fn set_rules(&self, policy: ApprovalPolicy, base: Option<&str>) -> Result<ApprovalRules, Error> {
        let _writing = self.0.writing.lock().await;
        let current = self.rules().await?;
        match base {
            None if current.exists => {
                return Err(Error::Invalid(
                    "baseHash is missing; get the file with exec.approvals.get first".to_owned(),
                ));
            }
            Some(base) if base != current.hash => {
                let message = "the file has changed since it was read; get it again with exec.approvals.get";
                return Err(Error::Invalid(message.to_owned()));
            }
            None | Some(_) => {}
        }
        self.0.store.set_policy(policy.with_token_of(&current.policy).text()?).await?;
        self.0.audit.note(AuditRecord::new(AuditKind::PolicyChanged));
        Ok(self.rules().await?)
    }

    async fn store_rules(&self, entry: &Approval, at_ms: u64) -> Result<(), Error> {
        let mut policy = self.rules().await?.policy;
        let before = policy.clone();
        for rule in entry.rules() {
            let agent = AgentId::normalize(&entry.agent);
            let added = rule.entry(&self.0.ambient.nonce(), at_ms, &entry.command);
            policy.add_rule(&agent, &rule, added);
        }
        if policy != before {
            self.0.store.set_policy(policy.text()?).await?;
        }
        Ok(())
    }

    async fn expire(&self) -> Result<(), Error> {
        self.change(|_| Ok(())).await
    }

    /// Applies `change` to a copy of the table, stores the copy and publishes its events, even if the caller is dropped
    /// in the meantime. Overdue requests expire first.
    async fn change<T, F>(&self, change: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut ApprovalChange) -> Result<T, Error> + Send + 'static,
    {
        let approvals = self.clone();
        let handle = task::spawn("approval", async move {
            let _writing = approvals.0.writing.lock().await;
            let now = approvals.0.ambient.now_ms();
            let mut table = ApprovalTable::clone(&approvals.0.table.borrow());
            let expired = table.expire(now);
            let events = expired.iter().map(|entry| ("exec.approval.resolved", entry.resolved(now))).collect();
            let mut pending_change = ApprovalChange { table, now, events, allowed_always: None };
            let result = change(&mut pending_change);
            if let Some(entry) = &pending_change.allowed_always {
                approvals.store_rules(entry, now).await?;
            }
            if pending_change.table != **approvals.0.table.borrow() {
                approvals.0.store.save(pending_change.table.values()?).await?;
                approvals.0.table.send_replace(Arc::new(pending_change.table));
            }
            for (event, payload) in pending_change.events {
                approvals.audit(event, &payload);
                // There may be no subscribers.
                approvals.0.events.send((event, payload)).ok();
            }
            result
        });
        let join_error =
            |error| Error::Store(StoreError::Disk(format!("the task that stores the change failed: {error}")));
        handle.await.map_err(join_error).flatten()
    }

    /// Writes a request or decision to the audit log, without the command.
    fn audit(&self, event: &str, payload: &Value) {
        let kind =
            if event == "exec.approval.requested" { AuditKind::ApprovalRequested } else { AuditKind::ApprovalDecided };
        let id = payload["id"].as_str().unwrap_or_default();
        let entry = self.get(id);
        let mut record = AuditRecord::new(kind).with("approval", id);
        if let Some(entry) = &entry {
            let session = entry.fingerprint.as_ref().map(|fingerprint| fingerprint.session.as_str());
            record = record.with("agent", &entry.agent).with("session", session.unwrap_or_default());
            record = record.digest("command", &entry.command);
        }
        let (actor, outcome) = match (kind, &entry) {
            (AuditKind::ApprovalDecided, Some(entry)) => {
                (entry.decided_by.as_deref().unwrap_or("homard"), entry.state.as_str())
            }
            (_, Some(entry)) => (entry.agent.as_str(), "asked"),
            (_, None) => ("homard", "asked"),
        };
        self.0.audit.note(record.actor(actor).outcome(outcome));
    }

    /// Converts a wall-clock time to an instant.
    fn instant(&self, at_ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(at_ms.saturating_sub(self.0.ambient.now_ms()))
    }
}
