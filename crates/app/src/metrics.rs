//! Metrics of the journal: commits, outbox, repairs.

use std::sync::Arc;

use homard_gateway::{MetricsPage, MetricsSource};
use homard_journal::{Journal, JournalMetrics};

/// Returns a function that reads the journal's metrics for each scrape. It holds a weak reference only.
pub fn of(journal: &Arc<Journal>) -> MetricsSource {
    let journal = Arc::downgrade(journal);
    Arc::new(move |page| {
        let Some(journal) = journal.upgrade() else { return };
        match journal.metrics() {
            Ok(metrics) => write(&metrics, page),
            Err(error) => tracing::warn!(%error, "failed to read the journal metrics"),
        }
    })
}

fn write(metrics: &JournalMetrics, page: &mut MetricsPage) {
    let JournalMetrics { commits, bytes, duration, outbox, repairs } = metrics;
    page.counter("homard_journal_commits_total", "Committed journal batches.", [(&[][..], *commits as f64)]);
    page.counter("homard_journal_bytes_total", "Transcript bytes in committed batches.", [(&[][..], *bytes as f64)]);
    let seconds = duration.as_secs_f64();
    page.counter("homard_journal_commit_seconds_total", "Total duration of commits.", [(&[][..], seconds)]);
    // Zero counts are written, too, so that alerts have a series to watch.
    let states = ["queued", "sending", "failed", "unknown", "dead"].map(|state| {
        let count = outbox.get(state).copied().unwrap_or_default();
        ([("state", state)], count as f64)
    });
    let rows = states.iter().map(|(labels, count)| (&labels[..], *count));
    page.gauge("homard_outbox_messages", "Unconfirmed deliveries, by state.", rows);
    let by_kind: Vec<_> = repairs.iter().map(|(kind, count)| ([("kind", *kind)], *count as f64)).collect();
    let rows = by_kind.iter().map(|(labels, count)| (&labels[..], *count));
    page.counter("homard_repairs_total", "Repairs of damaged data, by kind.", rows);
}
