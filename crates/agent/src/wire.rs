//! Responses to requests about runs, for both protocol generations, and the projection of events
//! ([`homard_events::wire`]).

use homard_proto::{ErrorShape, Generation, RunId};
use homard_queue::inbox::Disposition;
use serde_json::{Value, json};

use crate::{
    delivery::DeliveryResult,
    event::{AbortReason, Outcome},
    hub::{AcceptedRun, SubmitOutcome, WaitResult},
};

pub use homard_events::wire::*;

/// Returns the first response to `agent`.
pub fn accepted(generation: Generation, accepted: &AcceptedRun) -> (Value, Option<ErrorShape>) {
    let status = match (&accepted.outcome, generation) {
        (SubmitOutcome::Finished(report), _) => return report.response(generation),
        (SubmitOutcome::New(_), _) | (SubmitOutcome::InFlight(_), Generation::Three) => "accepted",
        (SubmitOutcome::InFlight(_), Generation::Four) => "in_flight",
    };
    let mut answer = json!({"runId": accepted.run, "status": status});
    if status == "accepted" {
        answer["acceptedAt"] = accepted.at.into();
    }
    if generation == Generation::Four {
        answer["sessionKey"] = accepted.key.as_str().into();
        answer["agentId"] = accepted.key.agent().map(ToString::to_string).into();
    }
    (answer, None)
}

/// Returns the first response to `chat.send`.
pub fn sent(generation: Generation, accepted: &AcceptedRun) -> (Value, Option<ErrorShape>) {
    match &accepted.outcome {
        SubmitOutcome::New(tape) if tape.disposition() == Disposition::Rejected => {
            let rejected = Outcome::Aborted(AbortReason::Dropped);
            let why =
                format!("{}; send it again later with a new idempotency key", rejected.error().unwrap_or_default());
            failed(&accepted.run, &why)
        }
        SubmitOutcome::New(tape) => {
            let mut answer = json!({"runId": accepted.run, "status": "started"});
            add_disposition(&mut answer, tape.disposition());
            (answer, None)
        }
        SubmitOutcome::InFlight(_) => (json!({"runId": accepted.run, "status": "in_flight"}), None),
        SubmitOutcome::Finished(report) => report.repeated_response(generation),
    }
}

/// Returns the response to `agent.wait`.
pub fn waited(generation: Generation, run: &RunId, waited: &WaitResult) -> Value {
    match (waited, generation) {
        (WaitResult::Ended(report), _) => report.wait_response(generation),
        (WaitResult::Broken(why), _) => json!({"runId": run, "status": "error", "error": why}),
        (WaitResult::Queued, Generation::Four) => {
            json!({"runId": run, "status": "pending", "timeoutPhase": "queue", "providerStarted": false})
        }
        (WaitResult::Queued, Generation::Three) | (WaitResult::Timeout, _) => {
            json!({"runId": run, "status": "timeout"})
        }
    }
}

/// Adds the delivery result to the response to `agent.wait`. A run whose delivery is not best effort has failed if the
/// delivery was rejected.
pub fn add_delivery(answer: &mut Value, delivery: &DeliveryResult) {
    let (status, error) = match delivery {
        DeliveryResult::Delivered => return,
        DeliveryResult::Waiting(why) => ("pending", why.clone()),
        DeliveryResult::Unknown { recipient: target } => {
            ("unknown", Some(format!("it is not known whether the reply was delivered to {target}; check there")))
        }
        DeliveryResult::Refused { recipient: target, why, is_best_effort } => {
            let why = format!("the reply was not delivered to {target}: {why}");
            if answer["status"] == "ok" && !is_best_effort {
                answer["status"] = "error".into();
                answer["error"] = why.as_str().into();
            }
            ("failed", Some(why))
        }
    };
    answer["delivery"] = json!({"status": status});
    if let Some(error) = error {
        answer["delivery"]["error"] = error.into();
    }
}
