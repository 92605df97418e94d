//! The audit log of a state directory: its location, and its anchor in the journal.

mod checkpoints;

use std::sync::{Arc, Weak};

use homard_audit::{Anchor, AnchorState, Audit, AuditRecord, BreakLedger, ChainHead, Evidence, Key};
use homard_journal::Journal;
use homard_runtime::Ambient;
use homard_settings::{audit_log::location, paths::Paths};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Error;

pub use checkpoints::read as read_checkpoints;
pub(crate) use checkpoints::{CheckpointTask, Sinks};

/// Journal key of the log's head.
const HEAD_KEY: &str = "audit";
/// Journal key of the log's recorded breaks.
const BREAKS_KEY: &str = "audit.breaks";

/// Opens the log of a state directory that this process owns. Also returns a receiver for its head. Repairs by the
/// journal are recorded in it, too.
pub fn open(paths: &Paths, journal: &Arc<Journal>) -> (Audit, watch::Receiver<Option<ChainHead>>) {
    let ambient = Ambient::system();
    let (end, chain_heads) = watch::channel(None);
    let anchor = Arc::new(JournalAnchor { journal: Arc::downgrade(journal), end });
    let audit = Audit::open(location(paths), move || ambient.now_ms(), Some(anchor));
    let recorder = audit.clone();
    journal
        .on_repair(move |kind| recorder.note(AuditRecord::new(homard_audit::AuditKind::Repaired).with("kind", kind)));
    // Verified before anything is appended. CLI commands may have written while no gateway was running.
    audit.catch_up();
    (audit, chain_heads)
}

/// Stores the head of the log in the journal. Holds a weak reference: the log must not keep the state directory open.
struct JournalAnchor {
    journal: Weak<Journal>,
    end: watch::Sender<Option<ChainHead>>,
}

impl JournalAnchor {
    fn journal(&self) -> Result<Arc<Journal>, String> {
        self.journal.upgrade().ok_or_else(|| "the journal is closed".to_owned())
    }
}

impl Anchor for JournalAnchor {
    fn load(&self) -> Result<AnchorState, String> {
        let journal = self.journal()?;
        let read = |name| journal.read_note_blocking(name).map_err(|error| error.to_string());
        parse_anchor(read(HEAD_KEY)?.as_deref(), read(BREAKS_KEY)?.as_deref())
    }

    fn store_soon(&self, head: ChainHead) {
        if let Ok(journal) = self.journal() {
            journal.set_note(HEAD_KEY, head.to_string());
        }
        self.end.send_replace(Some(head));
    }

    fn store_now(&self, head: Option<ChainHead>, ledger: &BreakLedger) -> Result<(), String> {
        let breaks = serde_json::to_string(ledger).map_err(|error| error.to_string())?;
        let end = head.map(|head| (HEAD_KEY, head.to_string()));
        let stored = self.journal()?.set_notes(end.into_iter().chain([(BREAKS_KEY, breaks)]));
        if head.is_some() {
            self.end.send_replace(head);
        }
        stored.map_err(|error| error.to_string())
    }
}

/// Parses the journal's notes about a log.
fn parse_anchor(end: Option<&str>, breaks: Option<&str>) -> Result<AnchorState, String> {
    let head = end.map(|text| {
        text.parse().map_err(|()| format!("the journal's record of the end of the audit log is not valid: \"{text}\""))
    });
    let ledger = breaks.map(|text| {
        serde_json::from_str(text)
            .map_err(|error| format!("the journal's record of breaks of the audit log is not valid: {error}"))
    });
    Ok(AnchorState { head: head.transpose()?, ledger: ledger.transpose()? })
}

/// Returns the running gateway's notes about its log, in the form that [`evidence`] reads.
pub async fn anchor_notes(journal: &Journal) -> Result<Value, homard_store::Error> {
    Ok(json!({"end": journal.read_note(HEAD_KEY).await?, "breaks": journal.read_note(BREAKS_KEY).await?}))
}

/// Returns the journal's notes about a log while no process has the state directory open, in the form that [`evidence`]
/// reads.
pub fn stored_anchor_notes(paths: &Paths) -> Result<Value, homard_store::Error> {
    let read = |name| homard_journal::read_note_offline(&paths.state, name);
    Ok(json!({"end": read(HEAD_KEY)?, "breaks": read(BREAKS_KEY)?}))
}

/// Returns what a log is verified against: the key, and the journal's notes.
pub fn evidence(paths: &Paths, described: &Value) -> Result<Evidence, Error> {
    let anchor = parse_anchor(described["end"].as_str(), described["breaks"].as_str()).map_err(Error::Audit)?;
    let key = Key::load(&location(paths).key).map_err(|error| Error::Audit(error.to_string()))?;
    Ok(Evidence { key, stored_head: anchor.head, ledger: anchor.ledger, checkpoints: Vec::new() })
}

/// Maximum length of a reason in bytes, as a row of the log stores no more.
const LONGEST_REASON: usize = 256;

/// Validates the reason of an acknowledgement.
pub fn reason(text: &str) -> Result<&str, String> {
    match text.trim() {
        "" => Err("a reason is required: describe what happened to the audit log".to_owned()),
        long if long.len() > LONGEST_REASON => Err(format!("the reason is longer than {LONGEST_REASON} bytes")),
        reason => Ok(reason),
    }
}
