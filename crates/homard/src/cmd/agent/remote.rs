//! Runs a turn in a running gateway.
//!
//! The run belongs to the gateway and does not end with the connection: when that breaks, the client connects again,
//! sends the same request (the run id makes it the same run), and shows the rest.

use std::time::Duration;

use anyhow::{Error, Result};
use homard_client::{ConnectResult, GatewayClient, GatewayTarget, ServerFrame};
use homard_proto::event::{AgentEvent, Stream};
use homard_settings::{Chosen, paths::Paths};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{ABORT_WAIT, FLAGS, Turn, TurnOutput, interrupted, time_over, timed_out};
use crate::{cli_error::CliError, cmd::query::usage_error, render, signal::Signal};

/// How long to wait for the first delivery attempt of the reply.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// First and maximum pause between attempts to reconnect.
const FIRST_RECONNECT_DELAY: Duration = Duration::from_millis(100);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(2);
/// Maximum time of one `agent.wait`; it is repeated.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// Prefix of the gateway's message while it is stopping: the run continues when it is back.
const DRAINING_PREFIX: &str = "gateway_draining";
/// The scopes of the turn. A run has the tools that its connection's scopes cover, and the holder of the gateway's
/// token is the owner.
const SCOPES: [&str; 4] = ["operator.admin", "operator.write", "operator.read", "operator.approvals"];

/// The gateway of a turn, and how to find it again.
#[derive(Debug, Clone, Copy)]
pub(super) struct GatewayLink<'a> {
    pub(super) chosen: &'a Chosen,
    pub(super) paths: &'a Paths,
    pub(super) caps: &'a [&'a str],
    /// How long to wait for the gateway to come back.
    pub(super) patience: Duration,
}

impl GatewayLink<'_> {
    /// Returns the gateway's address. A restarted gateway may listen on another port.
    pub(super) fn target(&self) -> Result<GatewayTarget> {
        Ok(GatewayTarget::find(None, None, &self.chosen.loaded, self.paths)?)
    }

    /// Connects with the scopes and capabilities of a turn.
    pub(super) async fn connect(&self, target: &GatewayTarget) -> Result<ConnectResult> {
        Ok(GatewayClient::connect(target, &SCOPES, self.caps).await?)
    }
}

/// What is known about the turn in the gateway.
#[derive(Debug, Default)]
struct TurnRequest {
    /// Id of the `agent` request.
    id: String,
    /// Id of the `agent.wait` request, for a run that was in flight when the request came.
    wait: Option<String>,
    /// The run's session, once the gateway has accepted it.
    session: Option<String>,
    /// Models that failed before one answered.
    failed_candidates: Vec<Value>,
    /// True if anything was received about the run on this connection.
    has_frames: bool,
}

/// A period without a gateway.
#[derive(Debug, Clone, Copy)]
struct ReconnectState {
    until: Instant,
    pause: Duration,
}

/// The meaning of a frame for the turn.
enum FrameEffect {
    /// The run continues.
    Continue,
    /// The run is in flight already: wait for its end.
    InFlight,
    /// The run has ended; its result has to be requested.
    Ended,
    /// The result.
    Answer(TurnOutput),
}

/// Why following a turn stopped.
enum FollowError {
    /// The connection broke, or the gateway is stopping. The run is not affected.
    Lost(String),
    Failed(Error),
}

impl From<Error> for FollowError {
    fn from(error: Error) -> Self {
        match CliError::find(&error) {
            Some(failure) if failure.kind == "connection" || failure.message.starts_with(DRAINING_PREFIX) => {
                Self::Lost(failure.message)
            }
            Some(_) | None => Self::Failed(error),
        }
    }
}

impl From<homard_client::Error> for FollowError {
    fn from(error: homard_client::Error) -> Self {
        Error::from(error).into()
    }
}

/// Sends the turn and follows it to its end.
///
/// Once sent, the gateway may have accepted it, so every later failure names the run.
pub(super) async fn run(mut client: GatewayClient, turn: &mut Turn, link: GatewayLink<'_>) -> Result<TurnOutput> {
    let until = Instant::now() + deadline(turn.timeout);
    let (mut request, mut retry_state) = (TurnRequest::default(), None);
    let mut answer = loop {
        request.has_frames = false;
        match follow(&mut client, turn, &mut request, until).await {
            Ok(answer) => break answer,
            Err(FollowError::Failed(error)) => return Err(error),
            Err(FollowError::Lost(why)) => {
                // A stopping gateway still accepts connections, but nothing else.
                retry_state = retry_state.filter(|_| !request.has_frames);
                client = reconnect(turn, &request, &why, link, &mut retry_state).await?;
            }
        }
    };
    if turn.params.deliver == Some(true) {
        let delivery = wait_delivery(&mut client, turn.run()).await.map_err(|error| delivery_unknown(turn, &error))?;
        answer.document["delivery"] = delivery;
    }
    Ok(answer)
}

/// Sends the request and follows the run on one connection.
async fn follow(
    client: &mut GatewayClient,
    turn: &mut Turn,
    request: &mut TurnRequest,
    until: Instant,
) -> Result<TurnOutput, FollowError> {
    request.wait = None;
    request.id = client.send("agent", json!(turn.params)).await?;
    loop {
        let incoming = tokio::select! {
            biased;
            signal = turn.signals.next() => {
                let state = stop(client, request, turn).await;
                return Err(FollowError::Failed(interrupted(signal, &state).of(turn.run(), "gateway").into()));
            }
            limit = time_over(turn.time_limit) => {
                let state = stop(client, request, turn).await;
                return Err(FollowError::Failed(timed_out(limit, &state).of(turn.run(), "gateway").into()));
            }
            () = sleep_until(until) => {
                let why = format!("the gateway did not report the end of the run within {}", render::duration(deadline(turn.timeout)));
                return Err(FollowError::Failed(end_unknown(turn, request, &why).into()));
            }
            incoming = client.next() => incoming?,
            note = turn.wait_notes.next() => {
                turn.renderer.note(&note).map_err(Error::from)?;
                continue;
            }
        };
        match process_frame(turn, request, incoming)? {
            FrameEffect::Continue => {}
            FrameEffect::InFlight => {
                let wait_ms = until.saturating_duration_since(Instant::now()).min(MAX_WAIT).as_millis();
                let params = json!({"runId": turn.run(), "timeoutMs": u64::try_from(wait_ms).unwrap_or(u64::MAX)});
                request.wait = Some(client.send("agent.wait", params).await?);
            }
            // Repeating the request returns the stored result, or is in flight once more.
            FrameEffect::Ended => {
                request.wait = None;
                request.id = client.send("agent", json!(turn.params)).await?;
            }
            FrameEffect::Answer(answer) => return Ok(answer),
        }
    }
}

/// Reconnects until the gateway is back or the patience ends.
async fn reconnect(
    turn: &mut Turn,
    request: &TurnRequest,
    why: &str,
    link: GatewayLink<'_>,
    retry_state: &mut Option<ReconnectState>,
) -> Result<GatewayClient> {
    let patience_text = render::duration(link.patience);
    if link.patience.is_zero() {
        return Err(end_unknown(turn, request, why).into());
    }
    let is_new = retry_state.is_none();
    let retry_state = retry_state
        .get_or_insert_with(|| ReconnectState { until: Instant::now() + link.patience, pause: FIRST_RECONNECT_DELAY });
    if is_new {
        turn.renderer.note(&format!("(lost the connection to the gateway; reconnecting for up to {patience_text})"))?;
    }
    loop {
        if Instant::now() + retry_state.pause >= retry_state.until {
            let text = format!("{why}\nthe gateway was not reachable again within {patience_text}");
            return Err(end_unknown(turn, request, &text).into());
        }
        let attempt = async {
            sleep(retry_state.pause).await;
            Ok(match link.connect(&link.target()?).await? {
                ConnectResult::Gateway(client) => Some(*client),
                ConnectResult::NotRunning => None,
            })
        };
        let connection = tokio::select! {
            biased;
            signal = turn.signals.next() => return Err(interrupted_offline(signal, turn, request).into()),
            limit = time_over(turn.time_limit) => {
                return Err(timed_out(limit, &run_hint(turn.run(), request)).of(turn.run(), "gateway").into());
            }
            connection = attempt => connection.map_err(|error: Error| FollowError::from(error)),
        };
        retry_state.pause = (retry_state.pause * 2).min(MAX_RECONNECT_DELAY);
        match connection {
            Ok(Some(client)) => return Ok(client),
            // The gateway does not listen yet, or is not ready.
            Ok(None) | Err(FollowError::Lost(_)) => {}
            Err(FollowError::Failed(error)) => return Err(error),
        }
    }
}

/// Returns the failure for an interrupt without a connection: the run cannot be aborted from here.
fn interrupted_offline(signal: Signal, turn: &Turn, request: &TurnRequest) -> CliError {
    interrupted(signal, &run_hint(turn.run(), request)).of(turn.run(), "gateway")
}

/// Returns whether the reply was delivered on its channel, as the gateway reports it: `{status, error?}`.
async fn wait_delivery(client: &mut GatewayClient, run: &str) -> Result<Value> {
    let id = client.send("agent.wait", json!({"runId": run, "timeoutMs": DELIVERY_TIMEOUT.as_millis() as u64})).await?;
    loop {
        match client.next().await? {
            ServerFrame::Response { id: response_id, answer } if response_id == id => {
                let delivery = answer.map_err(CliError::from)?.get("delivery").cloned();
                return Ok(delivery.unwrap_or_else(|| json!({"status": "delivered"})));
            }
            ServerFrame::Response { .. } | ServerFrame::Event { .. } => {}
        }
    }
}

/// Returns the failure for a finished turn whose delivery is unknown.
fn delivery_unknown(turn: &Turn, why: &Error) -> CliError {
    let text = format!("the run finished, but it is not known whether the reply was delivered: {why}");
    CliError::new("connection", text).of(turn.run(), "gateway")
}

/// Returns how long to wait for the gateway's final response: a little longer than the run's timeout. A timeout of zero
/// means no limit.
fn deadline(timeout: Duration) -> Duration {
    let timeout = if timeout.is_zero() { Duration::from_secs(homard_app::MAX_TIMEOUT) } else { timeout };
    timeout + Duration::from_secs(30)
}

/// Processes one frame.
fn process_frame(turn: &mut Turn, request: &mut TurnRequest, incoming: ServerFrame) -> Result<FrameEffect> {
    match incoming {
        ServerFrame::Response { id, answer } if id == request.id => {
            let payload = answer.map_err(|error| usage_error(error.into(), &FLAGS).of(turn.run(), "gateway"))?;
            let text_field = |name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
            request.session = text_field("sessionKey").or_else(|| request.session.take());
            request.has_frames = true;
            match text_field("status").as_deref() {
                Some("accepted") => Ok(FrameEffect::Continue),
                Some("in_flight") => Ok(FrameEffect::InFlight),
                _ => finished(turn, request, payload).map(FrameEffect::Answer),
            }
        }
        ServerFrame::Response { id, answer } if Some(&id) == request.wait.as_ref() => {
            let payload = answer.map_err(|error| CliError::from(error).of(turn.run(), "gateway"))?;
            Ok(match payload.get("status").and_then(Value::as_str) {
                Some("timeout" | "pending") => FrameEffect::InFlight,
                _ => FrameEffect::Ended,
            })
        }
        ServerFrame::Event { event, payload } if event == "agent" => {
            // An event of a newer gateway that cannot be parsed is ignored.
            if let Ok(step) = serde_json::from_value::<AgentEvent>(payload)
                && step.run_id == turn.run()
            {
                turn.wait_notes.heard();
                if step.stream == Stream::Lifecycle && step.data["phase"] == "fallback_step" {
                    let field = |name: &str| step.data[name].clone();
                    let failed = json!({"model": field("model"), "reason": field("reason"), "error": field("error")});
                    request.failed_candidates.push(failed);
                }
                turn.renderer.render_event(&step)?;
            }
            Ok(FrameEffect::Continue)
        }
        ServerFrame::Response { .. } | ServerFrame::Event { .. } => Ok(FrameEffect::Continue),
    }
}

fn finished(turn: &Turn, request: &mut TurnRequest, payload: Value) -> Result<TurnOutput> {
    let text_field = |name: &str| payload.get(name).and_then(Value::as_str);
    match text_field("status") {
        Some("ok") => Ok(TurnOutput::new(payload, std::mem::take(&mut request.failed_candidates))),
        status => {
            let why = text_field("summary").unwrap_or("no reason was given");
            let message = format!("run {} did not finish: {why}", turn.run());
            Err(Error::new(CliError::new(status.unwrap_or("failed"), message).of(turn.run(), "gateway")))
        }
    }
}

/// Aborts the run and waits a moment for its end. Returns its state.
async fn stop(client: &mut GatewayClient, request: &mut TurnRequest, turn: &mut Turn) -> String {
    let ended = timeout(ABORT_WAIT, async {
        // A run that is not accepted yet cannot be aborted; the gateway's first response names its session.
        while request.session.is_none() {
            if let FrameEffect::Answer(_) = process_frame(turn, request, client.next().await?)? {
                return Ok(());
            }
        }
        client.send("chat.abort", json!({"sessionKey": request.session, "runId": turn.run()})).await?;
        while !matches!(
            process_frame(turn, request, client.next().await?)?,
            FrameEffect::Answer(_) | FrameEffect::Ended
        ) {}
        anyhow::Ok(())
    });
    // A response or a failure of that run shows that it ended; silence or a lost connection does not.
    let stopped = match ended.await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            let names_run = CliError::find(&error).is_some_and(|failure| failure.run.is_some());
            names_run && request.session.is_some()
        }
        Err(_) => false,
    };
    if stopped { format!("run {} was stopped", turn.run()) } else { run_hint(turn.run(), request) }
}

/// Returns the failure for a turn whose end is unknown.
fn end_unknown(turn: &Turn, request: &TurnRequest, why: &str) -> CliError {
    let run_state = match request.session {
        // A rejection is a definite answer.
        None if why.starts_with(DRAINING_PREFIX) => format!("run {} was not accepted", turn.run()),
        Some(_) | None => run_hint(turn.run(), request),
    };
    CliError::new("connection", format!("{why}\n{run_state}")).of(turn.run(), "gateway")
}

/// Says what is known about a run whose end was not seen, and how to find out.
fn run_hint(run: &str, request: &TurnRequest) -> String {
    match request.session {
        Some(_) => format!("run {run} was accepted and continues in the gateway; see: homard trace {run}"),
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
