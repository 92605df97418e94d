//! Metrics of the journal: commits, outbox, repairs.

use std::sync::Arc;

use homard_gateway::{MetricsPage, MoreMetrics};
use homard_journal::{Figures, Journal};

/// Returns a function that reads the journal's metrics for each scrape. It holds a weak reference only.
pub(crate) fn of(journal: &Arc<Journal>) -> MoreMetrics {
    let journal = Arc::downgrade(journal);
    Arc::new(move |page| {
        let Some(journal) = journal.upgrade() else { return };
        match journal.figures() {
            Ok(figures) => write(&figures, page),
            Err(error) => tracing::warn!(%error, "the numbers of the journal cannot be told"),
        }
    })
}

fn write(figures: &Figures, page: &mut MetricsPage) {
    let Figures { commits, bytes, took, outbox, repairs } = figures;
    page.counter("homard_journal_commits_total", "Batches that were committed.", [(&[][..], *commits as f64)]);
    page.counter("homard_journal_bytes_total", "Bytes of transcripts in them.", [(&[][..], *bytes as f64)]);
    let seconds = took.as_secs_f64();
    page.counter("homard_journal_commit_seconds_total", "How long they took together.", [(&[][..], seconds)]);
    // Zero counts are written, too, so that alerts have a series to watch.
    let states = ["queued", "sending", "failed", "unknown", "dead"].map(|state| {
        let count = outbox.get(state).copied().unwrap_or_default();
        ([("state", state)], count as f64)
    });
    let rows = states.iter().map(|(labels, count)| (&labels[..], *count));
    page.gauge("homard_outbox_messages", "Messages for channels that have not arrived.", rows);
    let kinds: Vec<_> = repairs.iter().map(|(kind, count)| ([("kind", *kind)], *count as f64)).collect();
    let rows = kinds.iter().map(|(labels, count)| (&labels[..], *count));
    page.counter("homard_repairs_total", "What was found broken and put right.", rows);
}
