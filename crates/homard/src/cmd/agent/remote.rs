//! Runs a turn in a running gateway.
//!
//! The run belongs to the gateway and does not end with the connection: when that breaks, the client connects again,
//! sends the same request (the run id makes it the same run), and shows the rest.

use std::time::Duration;

use anyhow::{Error, Result};
use homard_proto::event::Agent;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Answer, LEAVING, Turn, interrupted};
use crate::{
    assemble,
    client::{Client, Incoming, Reached, Target},
    config::Chosen,
    failure::Failure,
    paths::Paths,
    signal::Signal,
};

/// How long to wait for the first delivery attempt of the reply.
const DELIVERY: Duration = Duration::from_secs(60);
/// First and maximum pause between attempts to reconnect.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Maximum time of one `agent.wait`; it is repeated.
const WAIT: Duration = Duration::from_secs(600);
/// Prefix of the gateway's message while it is stopping: the run continues when it is back.
const DRAINING: &str = "gateway_draining";
/// The scopes of the turn. A run has the tools that its connection's scopes cover, and the holder of the gateway's
/// token is the owner.
const SCOPES: [&str; 4] = ["operator.admin", "operator.write", "operator.read", "operator.approvals"];

/// The gateway of a turn, and how to find it again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link<'a> {
    pub(super) chosen: &'a Chosen,
    pub(super) paths: &'a Paths,
    pub(super) caps: &'a [&'a str],
    /// How long to wait for the gateway to come back.
    pub(super) patience: Duration,
}

impl Link<'_> {
    /// Returns the gateway's address. A restarted gateway may listen on another port.
    pub(super) fn target(&self) -> Result<Target> {
        Target::find(None, None, &self.chosen.loaded, self.paths)
    }

    /// Connects with the scopes and capabilities of a turn.
    pub(super) async fn connect(&self, target: &Target) -> Result<Reached> {
        Client::connect(target, &SCOPES, self.caps).await
    }
}

/// What is known about the turn in the gateway.
#[derive(Debug, Default)]
struct Asked {
    /// Id of the `agent` request.
    id: String,
    /// Id of the `agent.wait` request, for a run that was in flight when the request came.
    wait: Option<String>,
    /// The run's session, once the gateway has accepted it.
    session: Option<String>,
    /// True if anything was received about the run on this connection.
    is_heard: bool,
}

/// A period without a gateway.
#[derive(Debug, Clone, Copy)]
struct Outage {
    until: Instant,
    pause: Duration,
}

/// The meaning of a frame for the turn.
enum Step {
    /// The run continues.
    Nothing,
    /// The run is in flight already: wait for its end.
    InFlight,
    /// The run has ended; its result has to be requested.
    Ended,
    /// The result.
    Answer(Answer),
}

/// Why following a turn stopped.
enum Stop {
    /// The connection broke, or the gateway is stopping. The run is not affected.
    Lost(String),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error.downcast_ref::<Failure>() {
            Some(failure) if failure.kind == "connection" || failure.message.starts_with(DRAINING) => {
                Self::Lost(failure.message.clone())
            }
            Some(_) | None => Self::Failed(error),
        }
    }
}

/// Sends the turn and follows it to its end.
///
/// Once sent, the gateway may have accepted it, so every later failure names the run.
pub(super) async fn run(mut client: Client, turn: &mut Turn, link: Link<'_>) -> Result<Answer> {
    let until = Instant::now() + deadline(turn.timeout);
    let (mut asked, mut outage) = (Asked::default(), None);
    let mut answer = loop {
        asked.is_heard = false;
        match follow(&mut client, turn, &mut asked, until).await {
            Ok(answer) => break answer,
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Lost(why)) => {
                // A stopping gateway still accepts connections, but nothing else.
                outage = outage.filter(|_| !asked.is_heard);
                client = reconnect(turn, (&asked, &why), link, &mut outage).await?;
            }
        }
    };
    if turn.params.deliver == Some(true) {
        let delivery = delivered(&mut client, turn.run()).await.map_err(|error| unsure(turn, &error))?;
        answer.document["delivery"] = delivery;
    }
    Ok(answer)
}

/// Sends the request and follows the run on one connection.
async fn follow(client: &mut Client, turn: &mut Turn, asked: &mut Asked, until: Instant) -> Result<Answer, Stop> {
    asked.wait = None;
    asked.id = client.send("agent", json!(turn.params)).await?;
    loop {
        let incoming = tokio::select! {
            biased;
            signal = turn.signals.next() => {
                return Err(Stop::Failed(stop(client, asked, turn, signal).await.into()));
            }
            () = sleep_until(until) => {
                let why = format!("the gateway reported no end within {} s", deadline(turn.timeout).as_secs());
                return Err(Stop::Failed(unknown(turn, asked, &why).into()));
            }
            incoming = client.next() => incoming?,
        };
        match take(turn, asked, incoming)? {
            Step::Nothing => {}
            Step::InFlight => {
                let patience = until.saturating_duration_since(Instant::now()).min(WAIT).as_millis();
                let params = json!({"runId": turn.run(), "timeoutMs": u64::try_from(patience).unwrap_or(u64::MAX)});
                asked.wait = Some(client.send("agent.wait", params).await?);
            }
            // Repeating the request returns the stored result, or is in flight once more.
            Step::Ended => {
                asked.wait = None;
                asked.id = client.send("agent", json!(turn.params)).await?;
            }
            Step::Answer(answer) => return Ok(answer),
        }
    }
}

/// Reconnects until the gateway is back or the patience ends.
async fn reconnect(
    turn: &mut Turn,
    (asked, why): (&Asked, &str),
    link: Link<'_>,
    outage: &mut Option<Outage>,
) -> Result<Client> {
    let seconds = link.patience.as_secs();
    if link.patience.is_zero() {
        return Err(unknown(turn, asked, why).into());
    }
    let is_new = outage.is_none();
    let outage = outage.get_or_insert_with(|| Outage { until: Instant::now() + link.patience, pause: FIRST_PAUSE });
    if is_new {
        turn.story.note(&format!("(lost the connection to the gateway; reconnecting for up to {seconds} s)"))?;
    }
    loop {
        if Instant::now() + outage.pause >= outage.until {
            let text = format!("{why}\nthe gateway did not come back within {seconds} s");
            return Err(unknown(turn, asked, &text).into());
        }
        let attempt = async {
            sleep(outage.pause).await;
            Ok(match link.connect(&link.target()?).await? {
                Reached::Gateway(client) => Some(*client),
                Reached::Nobody => None,
            })
        };
        let reached = tokio::select! {
            biased;
            signal = turn.signals.next() => return Err(left(signal, turn, asked).into()),
            reached = attempt => reached.map_err(|error: Error| Stop::from(error)),
        };
        outage.pause = (outage.pause * 2).min(LONGEST_PAUSE);
        match reached {
            Ok(Some(client)) => return Ok(client),
            // The gateway does not listen yet, or is not ready.
            Ok(None) | Err(Stop::Lost(_)) => {}
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
}

/// Returns the failure for an interrupt without a connection: the run cannot be aborted from here.
fn left(signal: Signal, turn: &Turn, asked: &Asked) -> Failure {
    interrupted(signal, &fate(turn.run(), asked)).of(turn.run(), "gateway")
}

/// Returns whether the reply was delivered on its channel, as the gateway reports it: `{status, error?}`.
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

/// Returns the failure for a finished turn whose delivery is unknown.
fn unsure(turn: &Turn, why: &Error) -> Failure {
    let text = format!("the answer is there, but it is not known whether it was delivered: {why}");
    Failure::new("connection", text).of(turn.run(), "gateway")
}

/// Returns how long to wait for the gateway's final response: a little longer than the run's timeout. A timeout of zero
/// means no limit.
fn deadline(timeout: Duration) -> Duration {
    let timeout = if timeout.is_zero() { Duration::from_secs(assemble::MAX_TIMEOUT) } else { timeout };
    timeout + Duration::from_secs(30)
}

/// Processes one frame.
fn take(turn: &mut Turn, asked: &mut Asked, incoming: Incoming) -> Result<Step> {
    match incoming {
        Incoming::Answer { id, answer } if id == asked.id => {
            let payload = answer.map_err(|refusal| {
                let failure = Failure::from(refusal);
                if asked.session.is_some() { failure.of(turn.run(), "gateway") } else { failure }
            })?;
            let word = |name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
            asked.session = word("sessionKey").or_else(|| asked.session.take());
            asked.is_heard = true;
            match word("status").as_deref() {
                Some("accepted") => Ok(Step::Nothing),
                Some("in_flight") => Ok(Step::InFlight),
                _ => finished(turn, payload).map(Step::Answer),
            }
        }
        Incoming::Answer { id, answer } if Some(&id) == asked.wait.as_ref() => {
            let payload = answer.map_err(|refusal| Failure::from(refusal).of(turn.run(), "gateway"))?;
            Ok(match payload.get("status").and_then(Value::as_str) {
                Some("timeout" | "pending") => Step::InFlight,
                _ => Step::Ended,
            })
        }
        Incoming::News { event, payload } if event == "agent" => {
            // An event of a newer gateway that cannot be parsed is ignored.
            if let Ok(step) = serde_json::from_value::<Agent>(payload)
                && step.run_id == turn.run()
            {
                turn.story.tell(&step)?;
            }
            Ok(Step::Nothing)
        }
        Incoming::Answer { .. } | Incoming::News { .. } => Ok(Step::Nothing),
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

/// Aborts the run and waits a moment for its end.
async fn stop(client: &mut Client, asked: &mut Asked, turn: &mut Turn, signal: Signal) -> Failure {
    let ended = timeout(LEAVING, async {
        // A run that is not accepted yet cannot be aborted; the gateway's first response names its session.
        while asked.session.is_none() {
            if let Step::Answer(_) = take(turn, asked, client.next().await?)? {
                return Ok(());
            }
        }
        client.send("chat.abort", json!({"sessionKey": asked.session, "runId": turn.run()})).await?;
        while !matches!(take(turn, asked, client.next().await?)?, Step::Answer(_) | Step::Ended) {}
        anyhow::Ok(())
    });
    // A response or a failure of that run shows that it ended; silence or a lost connection does not.
    let stopped = match ended.await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => error.downcast_ref::<Failure>().is_some_and(|failure| failure.run.is_some()),
        Err(_) => false,
    };
    let state = if stopped { format!("run {} was stopped", turn.run()) } else { fate(turn.run(), asked) };
    interrupted(signal, &state).of(turn.run(), "gateway")
}

/// Returns the failure for a turn whose end is unknown.
fn unknown(turn: &Turn, asked: &Asked, why: &str) -> Failure {
    let fate = match asked.session {
        // A rejection is a definite answer.
        None if why.starts_with(DRAINING) => format!("run {} was not accepted", turn.run()),
        Some(_) | None => fate(turn.run(), asked),
    };
    Failure::new("connection", format!("{why}\n{fate}")).of(turn.run(), "gateway")
}

/// Says what is known about a run whose end was not seen, and how to find out.
fn fate(run: &str, asked: &Asked) -> String {
    match asked.session {
        Some(_) => format!("run {run} was accepted and goes on in the gateway; see: homard trace {run}"),
        None => format!("it is not known whether run {run} was accepted; see: homard trace {run}"),
    }
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
