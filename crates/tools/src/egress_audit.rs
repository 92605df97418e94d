//! The audit log's rows of requests that tools send.

use homard_agent::tool::ToolCx;
use homard_audit::{AuditKind, AuditRecord};
use homard_egress::Observer;

/// Returns an observer that adds a row for each hop of a request of this tool call.
pub(crate) fn observer(cx: &ToolCx) -> Observer {
    let (audit, session) = (cx.audit(), cx.session.to_string());
    Observer::new(move |hop| {
        let record =
            AuditRecord::new(AuditKind::Egress).actor(&session).with("host", &hop.host).outcome(hop.outcome.name());
        let port = hop.port.map(u64::from);
        audit.note(port.into_iter().fold(record, |record, port| record.count("port", port)));
    })
}
