//! A turn in a running gateway.

use std::time::Duration;

use anyhow::{Error, Result};
use homard_proto::event::Agent;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{Answer, LEAVING, Turn, interrupted};
use crate::{
    assemble,
    client::{Client, Incoming, is_final},
    failure::Failure,
    signal::Signal,
};

/// How long it is waited for that the answer is sent on its channel once.
const DELIVERY: Duration = Duration::from_secs(60);

/// What is known of the turn in the gateway.
struct Asked {
    /// The request.
    id: String,
    /// The run's session, once the gateway took it in.
    session: Option<String>,
}

/// Sends the turn and follows it to its end.
///
/// From the moment of sending the gateway may have it, so whatever goes wrong from here on names the run.
pub(super) async fn run(mut client: Client, turn: &mut Turn) -> Result<Answer> {
    let id = client.send("agent", json!(turn.params)).await.map_err(|error| unknown(turn, &error.to_string()))?;
    let mut asked = Asked { id, session: None };
    let patience = deadline(turn.timeout);
    let too_long = sleep(patience);
    tokio::pin!(too_long);
    loop {
        let incoming = tokio::select! {
            biased;
            signal = turn.signals.next() => return Err(stop(&mut client, &mut asked, turn, signal).await.into()),
            () = &mut too_long => {
                return Err(unknown(turn, &format!("the gateway told no end within {} s", patience.as_secs())).into());
            }
            incoming = client.next() => incoming.map_err(|error| unknown(turn, &error.to_string()))?,
        };
        if let Some(mut answer) = take(turn, &mut asked, incoming)? {
            if turn.params.deliver == Some(true) {
                let delivery = delivered(&mut client, turn.run()).await.map_err(|error| unsure(turn, &error))?;
                answer.document["delivery"] = delivery;
            }
            return Ok(answer);
        }
    }
}

/// Whether the answer arrived on its channel, as the gateway says it: `{status, error?}`.
async fn delivered(client: &mut Client, run: &str) -> Result<Value> {
    let id = client.send("agent.wait", json!({"runId": run, "timeoutMs": DELIVERY.as_millis() as u64})).await?;
    loop {
        match client.next().await? {
            Incoming::Answer { id: of, answer } if of == id => {
                let delivery = answer.map_err(Failure::from)?.get("delivery").cloned();
                return Ok(delivery.unwrap_or_else(|| json!({"status": "delivered"})));
            }
            Incoming::Answer { .. } | Incoming::News { .. } => {}
        }
    }
}

/// The turn is over, and nobody knows whether its answer arrived.
fn unsure(turn: &Turn, why: &Error) -> Failure {
    let text = format!("the answer is there, but it is not known whether it was delivered: {why}");
    Failure::new("connection", text).of(turn.run(), "gateway")
}

/// How long the gateway's last answer is waited for: a little longer than the run may take, where zero is as long as it
/// takes.
fn deadline(timeout: Duration) -> Duration {
    let timeout = if timeout.is_zero() { Duration::from_secs(assemble::MAX_TIMEOUT) } else { timeout };
    timeout + Duration::from_secs(30)
}

/// Takes one frame in; `Some` when it was the last answer.
fn take(turn: &mut Turn, asked: &mut Asked, incoming: Incoming) -> Result<Option<Answer>> {
    match incoming {
        Incoming::Answer { id, answer } if id == asked.id => match answer {
            Ok(payload) if is_final(&payload) => finished(turn, payload).map(Some),
            Ok(payload) => {
                asked.session = payload.get("sessionKey").and_then(Value::as_str).map(str::to_owned);
                Ok(None)
            }
            Err(refusal) if asked.session.is_some() => Err(Failure::from(refusal).of(turn.run(), "gateway").into()),
            Err(refusal) => Err(Failure::from(refusal).into()),
        },
        Incoming::News { event, payload } if event == "agent" => {
            // An event of a newer gateway that this one cannot read is not worth a failure.
            if let Ok(step) = serde_json::from_value::<Agent>(payload)
                && step.run_id == turn.run()
            {
                turn.story.tell(&step)?;
            }
            Ok(None)
        }
        Incoming::Answer { .. } | Incoming::News { .. } => Ok(None),
    }
}

fn finished(turn: &Turn, payload: Value) -> Result<Answer> {
    let word = |name: &str| payload.get(name).and_then(Value::as_str);
    match word("status") {
        Some("ok") => {
            let result = payload.get("result").cloned().unwrap_or_default();
            Ok(Answer { document: payload, result })
        }
        status => {
            let why = word("summary").unwrap_or("no reason was given");
            let message = format!("run {} did not finish: {why}", turn.run());
            Err(Error::new(Failure::new(status.unwrap_or("failed"), message).of(turn.run(), "gateway")))
        }
    }
}

/// Stops the run, and waits a moment for its end.
async fn stop(client: &mut Client, asked: &mut Asked, turn: &mut Turn, signal: Signal) -> Failure {
    let ended = timeout(LEAVING, async {
        // A run that was not taken in yet cannot be stopped; the gateway's first answer names its session.
        while asked.session.is_none() {
            if take(turn, asked, client.next().await?)?.is_some() {
                return Ok(());
            }
        }
        client.send("chat.abort", json!({"sessionKey": asked.session, "runId": turn.run()})).await?;
        while take(turn, asked, client.next().await?)?.is_none() {}
        anyhow::Ok(())
    });
    // The run's end may come as an answer or as a failure of that run; only silence and a lost connection are not one.
    let stopped = match ended.await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => error.downcast_ref::<Failure>().is_some_and(|failure| failure.run.is_some()),
        Err(_) => false,
    };
    let state = if stopped { format!("run {} was stopped", turn.run()) } else { still(turn.run()) };
    interrupted(signal, &state).of(turn.run(), "gateway")
}

/// Nobody knows what became of the turn.
fn unknown(turn: &Turn, why: &str) -> Failure {
    Failure::new("connection", format!("{why}\n{}", still(turn.run()))).of(turn.run(), "gateway")
}

fn still(run: &str) -> String {
    let params = json!({"runId": run});
    format!("run {run} may still be at work; look with: homard gateway call agent.wait --params '{params}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Case 38.
    #[test]
    fn the_gateway_gets_thirty_seconds_more_than_the_run() {
        let seconds = |timeout| deadline(Duration::from_secs(timeout)).as_secs();
        assert_eq!((seconds(5), seconds(600)), (35, 630));
    }
}
