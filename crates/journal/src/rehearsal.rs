//! What the ledger is going to say to a batch, asked before the disk has taken it.
//!
//! A ledger cannot unlearn, so it must not hear of a batch that may still fail. Its rule is not told here a second
//! time: a small ledger that knows just the runs of the batch answers instead.

use std::collections::BTreeSet;

use homard_proto::{
    RunId,
    message::{Message, User},
};
use homard_store::{
    Accept, Input, Rec, RunRow, RunState, Verdict,
    ledger::{Ledger, Refused},
};

/// Whether each record of a batch is going to be stored, as far as runs have a say in it.
pub(crate) fn stored(ledger: &Ledger, batch: &[Rec]) -> Vec<bool> {
    let mut small = excerpt(ledger, batch);
    let mut refused = Refused::default();
    batch.iter().map(|rec| small.judge(rec, &mut refused) == Verdict::Stored).collect()
}

/// A ledger of the runs that a batch speaks of.
fn excerpt(ledger: &Ledger, batch: &[Rec]) -> Ledger {
    let mut runs: BTreeSet<&RunId> = batch.iter().filter_map(Rec::run).collect();
    for rec in batch {
        if let Rec::Input(input) = rec {
            runs.extend(&input.absorbs);
        }
    }
    let rows: Vec<RunRow> = runs.into_iter().filter_map(|run| ledger.row(run)).collect();
    let accepts = rows.iter().map(|row| Rec::Accept(Box::new(accept(row))));
    let states = rows.iter().filter_map(|row| match &row.state {
        RunState::Absorbed(host) => Some(Rec::Input(Input {
            run: host.clone(),
            key: row.key.clone(),
            absorbs: vec![row.run.clone()],
            entries: Vec::new(),
        })),
        RunState::Ended(ended) => Some(Rec::Terminal { run: row.run.clone(), ended: ended.clone() }),
        RunState::Accepted | RunState::Running => None,
    });
    let mut small = Ledger::default();
    for rec in accepts.chain(states) {
        small.judge(&rec, &mut Refused::default());
    }
    small
}

fn accept(row: &RunRow) -> Accept {
    Accept {
        run: row.run.clone(),
        principal: row.principal.clone(),
        method: row.method.clone(),
        fingerprint: row.fingerprint.clone(),
        key: row.key.clone(),
        // Verdicts do not depend on it.
        message: Message::User(User::text("", 0)),
        at: row.accepted_at,
    }
}
