//! A client of the hub: performs one act of a trace and records the responses.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::{
    Cursor, Hub, Inbound, QueueEvent, RunEvent, Subscriber, Tape,
    delivery::DeliveryResult,
    event::AbortReason,
    hub::{HeldError, SubmitError, SubmitOutcome, WaitResult},
    intake::{self, ChannelMessage},
    tape::TapeState,
    wire::{self, RunReport},
};
use homard_proto::{
    ErrorShape, Generation, RunId, SessionKey,
    method::{
        Params,
        agent::{AgentParams, WaitParams},
        chat::{AbortParams, SendParams},
    },
};
use homard_queue::{Disposition, Slots};
use homard_reply::blocks::BlockRules;
use homard_runtime::task;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

use crate::{
    clock::TraceClock,
    snapshot::format_state,
    trace::{ActKind, PlatformMessage, TraceAct},
};

/// A response as formatted by each protocol version.
#[derive(Debug)]
pub(crate) struct RecordedResponse {
    pub(crate) at: Duration,
    pub(crate) three: String,
    pub(crate) four: String,
}

impl RecordedResponse {
    fn new(at: Duration, format: impl Fn(Generation) -> String) -> Self {
        Self { at, three: format(Generation::Three), four: format(Generation::Four) }
    }
}

/// Acknowledgements that clients received and may rely on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acknowledgements {
    /// These runs were accepted.
    pub(crate) accepted: Vec<RunId>,
    /// These runs were stopped, with the time.
    pub(crate) stopped: Vec<(Duration, RunId)>,
    /// The next run of this session will receive this event.
    pub(crate) events: Vec<(SessionKey, String)>,
}

/// Acknowledgements of all hub lifetimes.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedAcknowledgements(Arc<Mutex<Acknowledgements>>);

impl SharedAcknowledgements {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Acknowledgements> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An act and its responses.
#[derive(Debug)]
pub(crate) struct ClientCall {
    pub(crate) act: TraceAct,
    pub(crate) frames: Vec<RecordedResponse>,
    /// Set until the client got the last response or lost the connection.
    open: Option<(mpsc::UnboundedReceiver<RecordedResponse>, JoinHandle<()>)>,
}

impl ClientCall {
    /// Creates an act without responses.
    pub(crate) fn without_responses(act: TraceAct) -> Self {
        Self { act, frames: Vec::new(), open: None }
    }

    /// Starts an act.
    pub(crate) fn start(
        act: TraceAct,
        hub: &Hub,
        slots: &Slots,
        clock: &TraceClock,
        acknowledgements: &SharedAcknowledgements,
    ) -> Self {
        // Unbounded: an act gets two responses.
        let (responses, receiver) = mpsc::unbounded_channel();
        let (hub, slots, clock, acknowledgements) =
            (hub.clone(), slots.clone(), clock.clone(), acknowledgements.clone());
        let client = TraceClient { hub, slots, clock, acknowledgements, responses };
        let handle = task::spawn("act", client.act(act.kind.clone()));
        Self { open: Some((receiver, handle)), ..Self::without_responses(act) }
    }

    /// Waits until the act has ended and collects its responses. Fails if the act panicked or timed out.
    pub(crate) async fn finish(&mut self, timeout_after: Duration) -> Result<(), String> {
        let Some((responses, handle)) = &mut self.open else { return Ok(()) };
        let finished = match timeout(timeout_after, &mut *handle).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(panic)) => Err(format!("`{}` broke: {panic}", self.act.text)),
            Err(_) => {
                handle.abort();
                Err(format!("`{}` still has no last answer after {timeout_after:?}", self.act.text))
            }
        };
        self.frames.extend(std::iter::from_fn(|| responses.try_recv().ok()));
        self.open = None;
        finished
    }

    /// Closes the connection when the hub is gone.
    pub(crate) fn disconnect(&mut self, at: Duration) {
        let Some((mut responses, handle)) = self.open.take() else { return };
        self.frames.extend(std::iter::from_fn(|| responses.try_recv().ok()));
        if !handle.is_finished() {
            self.frames.push(RecordedResponse::new(at, |_| "connection lost".to_owned()));
        }
    }
}

/// Performs one act of a trace and sends the responses to its `ClientCall`.
struct TraceClient {
    hub: Hub,
    slots: Slots,
    clock: TraceClock,
    acknowledgements: SharedAcknowledgements,
    responses: mpsc::UnboundedSender<RecordedResponse>,
}

impl TraceClient {
    async fn act(self, kind: ActKind) {
        match kind {
            ActKind::Agent { principal, generation, params } => self.agent(&principal, generation, params).await,
            ActKind::Chat { principal, params, blocks, message_id } => {
                self.chat(&principal, params, blocks, message_id).await
            }
            ActKind::PlatformMessage(inbound) => self.inbound_message(*inbound).await,
            ActKind::Wait { generation, params } => self.wait(generation, params).await,
            ActKind::Abort { params } => match AbortParams::decode(Generation::Four, Some(params)) {
                Ok(AbortParams { session_key, agent_id: _, run_id }) => {
                    if let Some(key) = self.key(&session_key) {
                        self.abort(Some(&key), run_id).await;
                    }
                }
                Err(error) => self.refuse(&error),
            },
            ActKind::AbortRun(run) => self.abort(self.hub.runs().session_of(&run).as_ref(), Some(run)).await,
            ActKind::Event { key, text } => self.event(&key, text).await,
            ActKind::Reset { key } => self.reset(&key).await,
            ActKind::Undo { key } => self.undo(&key).await,
            ActKind::Resize(class, size) => self.slots.resize(class, size),
            ActKind::Drain(timeout_after) => {
                self.hub.lifecycle().drain(timeout_after).await;
                self.respond("stopped");
            }
            ActKind::ShutDown => {
                self.hub.lifecycle().shut_down().await;
                self.respond("stopped");
            }
            ActKind::Release(run) => self.respond_to_decision("released", self.hub.runs().release(&run).await),
            ActKind::Drop(run) => self.respond_to_decision("dropped", self.hub.runs().drop_held(&run).await),
            // Not an act of a client.
            ActKind::Restart(_) => {}
        }
    }

    fn respond_to_decision(&self, word: &str, result: Result<(), HeldError>) {
        match result {
            Ok(()) => self.respond(word),
            Err(error) => self.respond(&format!("refused {error}")),
        }
    }

    async fn agent(&self, principal: &str, generation: Generation, params: Value) {
        let params = match AgentParams::decode(generation, Some(params)) {
            Ok(params) => params,
            Err(error) => return self.refuse(&error),
        };
        let inbound = match intake::agent(&self.hub, principal, params).await {
            Ok(inbound) => inbound,
            Err(error) => return self.refuse(&error),
        };
        let accepted = match self.hub.submit(inbound).await {
            Ok(accepted) => accepted,
            Err(refused) => return self.respond(&format_submit_error(&refused)),
        };
        self.acknowledgements.lock().accepted.push(accepted.run.clone());
        self.respond_per_version(|generation| {
            let (payload, error) = wire::accepted(generation, &accepted);
            format_response(&payload, error)
        });
        let tape = match &accepted.outcome {
            SubmitOutcome::New(tape) | SubmitOutcome::InFlight(tape) => tape.clone(),
            SubmitOutcome::Finished(_) => return,
        };
        match Subscriber::new(tape).end().await {
            TapeState::Ended(end) => {
                let report = RunReport::of(&accepted.run, &accepted.key, &end);
                self.respond_per_version(|generation| {
                    let (payload, error) = report.response(generation);
                    format_response(&payload, error)
                });
            }
            TapeState::Broken(why) => self.respond(&format!("broken {why}")),
            state @ (TapeState::Queued | TapeState::Running | TapeState::Rejected) => {
                self.respond(&format!("left while {state:?}"))
            }
        }
    }

    async fn chat(&self, principal: &str, params: Value, blocks: Option<BlockRules>, message_id: Option<String>) {
        let params = match SendParams::decode(Generation::Four, Some(params)) {
            Ok(params) => params,
            Err(error) => return self.refuse(&error),
        };
        let inbound = match intake::chat(&self.hub, principal, params).await {
            Ok(mut inbound) => {
                if let Some(delivery) = &mut inbound.reply.delivery {
                    delivery.reply_to = message_id;
                }
                inbound.reply.blocks = blocks;
                inbound
            }
            Err(error) => return self.refuse(&error),
        };
        self.submit(inbound).await;
    }

    /// Submits a message as a channel does: in an envelope for the model.
    async fn inbound_message(&self, platform_message: PlatformMessage) {
        let Some(key) = self.key(&platform_message.key) else { return };
        let PlatformMessage { principal, sender, origin, route, message_id, text, .. } = platform_message;
        let with_envelope = |body: &str| format!("[{} id:{}] {body}", origin.channel, sender.id);
        let at = self.hub.ambient().now_ms();
        let channel_message = ChannelMessage {
            origin: origin.clone(),
            principal,
            sender: sender.clone(),
            key,
            text,
            pictures: Vec::new(),
            route,
            message: message_id,
            at,
        };
        match intake::channel_message(&self.hub, channel_message, with_envelope) {
            Ok(inbound) => self.submit(inbound).await,
            Err(error) => self.respond(&format!("error {error}")),
        }
    }

    /// Submits a message under the queue's rules and follows its run to the end.
    async fn submit(&self, inbound: Inbound) {
        let accepted = match self.hub.submit(inbound).await {
            Ok(accepted) => accepted,
            Err(refused) => return self.respond(&format_submit_error(&refused)),
        };
        self.acknowledgements.lock().accepted.push(accepted.run.clone());
        let tape = match accepted.outcome {
            SubmitOutcome::New(tape) => {
                self.respond(&format_disposition(tape.disposition()));
                tape
            }
            SubmitOutcome::InFlight(tape) => {
                self.respond(&format!("in flight as {}", tape.run()));
                tape
            }
            SubmitOutcome::Finished(report) => {
                let texts: Vec<_> = report.replies().iter().map(|reply| &reply.text).collect();
                return self.respond(&format!("finished {:?} {}", report.outcome(), json!(texts)));
            }
        };
        let state = Subscriber::new(tape.clone()).end().await;
        let host = host(&tape).map(|host| format!("absorbed by {host}, ")).unwrap_or_default();
        self.respond(&format!("{host}{}", format_state(&state)));
    }

    async fn event(&self, key: &str, text: String) {
        let Some(key) = self.key(key) else { return };
        match self.hub.sessions().note_event(&key, text.clone()).await {
            Ok(()) => {
                self.respond("noted");
                self.acknowledgements.lock().events.push((key, text));
            }
            Err(error) => self.respond(&format!("error {error}")),
        }
    }

    async fn reset(&self, key: &str) {
        let Some(key) = self.key(key) else { return };
        match self.hub.sessions().reset(&key, "reset").await {
            Ok(record) => self.respond(&format!("has {}", record.session_id)),
            Err(error) => self.respond(&format!("error {error}")),
        }
    }

    async fn undo(&self, key: &str) {
        let Some(key) = self.key(key) else { return };
        match self.hub.sessions().undo_compaction(&key, None).await {
            Ok(entry) => self.respond(&format!("undone {entry}")),
            Err(error) => self.respond(&format!("error {error}")),
        }
    }

    /// Parses a session key; reports an error if it is invalid.
    fn key(&self, text: &str) -> Option<SessionKey> {
        let key = SessionKey::parse(text, self.hub.agents().default_id());
        key.map_err(|error| self.respond(&format!("error {error}"))).ok()
    }

    async fn wait(&self, generation: Generation, params: Value) {
        let params = match WaitParams::decode(generation, Some(params)) {
            Ok(params) => params,
            Err(error) => return self.refuse(&error),
        };
        let wait_timeout = Duration::from_millis(params.timeout_ms.unwrap_or(30_000));
        let started_at = tokio::time::Instant::now();
        let waited = match self.hub.runs().wait(&params.run_id, wait_timeout).await {
            Ok(waited) => waited,
            Err(error) => return self.respond(&format!("error {error}")),
        };
        let remaining = wait_timeout.saturating_sub(started_at.elapsed());
        let delivery = match &waited {
            WaitResult::Ended(_) => self.hub.deliveries().result(&params.run_id, remaining).await,
            WaitResult::Queued | WaitResult::Timeout | WaitResult::Broken(_) => Ok(DeliveryResult::Delivered),
        };
        match delivery {
            Ok(delivery) => self.respond_per_version(|generation| {
                let mut response = wire::waited(generation, &params.run_id, &waited);
                wire::add_delivery(&mut response, &delivery);
                format!("ok {response}")
            }),
            Err(error) => self.respond(&format!("error {error}")),
        }
    }

    async fn abort(&self, key: Option<&SessionKey>, run: Option<RunId>) {
        let stopped = match key {
            Some(key) => self.hub.runs().abort(key, run, AbortReason::User).await,
            None => Vec::new(),
        };
        self.respond(&format!("stopped {}", json!(stopped)));
        let at = self.clock.now();
        self.acknowledgements.lock().stopped.extend(stopped.into_iter().map(|run| (at, run)));
    }

    fn refuse(&self, error: &ErrorShape) {
        self.respond(&format!("error {}", json!(error)));
    }

    /// Records a response that is the same in both protocol versions.
    fn respond(&self, text: &str) {
        self.respond_per_version(|_| text.to_owned());
    }

    /// Records a response that is formatted for each protocol version.
    fn respond_per_version(&self, format: impl Fn(Generation) -> String) {
        // The receiver may have given up already.
        self.responses.send(RecordedResponse::new(self.clock.now(), format)).ok();
    }
}

/// Formats what happened to a submitted message.
fn format_disposition(disposition: Disposition) -> String {
    match disposition {
        Disposition::Started => "started".to_owned(),
        Disposition::Steered => "steered".to_owned(),
        Disposition::Queued(position) => format!("queued #{position}"),
        Disposition::Collected(position) => format!("collected #{position}"),
        Disposition::Interrupted => "interrupts".to_owned(),
        Disposition::Summarized => "summarized".to_owned(),
        Disposition::Rejected => "rejected".to_owned(),
    }
}

/// Returns the run that absorbed a run.
fn host(tape: &Tape) -> Option<RunId> {
    let events = tape.read(&mut Cursor::default());
    events.into_iter().find_map(|event| match event.kind {
        RunEvent::Queue(QueueEvent::Absorbed { by }) => Some(by),
        RunEvent::Stored(_)
        | RunEvent::Queue(
            QueueEvent::SlotWaited(_)
            | QueueEvent::DispositionChanged(_)
            | QueueEvent::Busy(_)
            | QueueEvent::Summarized(_),
        )
        | RunEvent::Text { .. }
        | RunEvent::Thinking { .. }
        | RunEvent::Model(_)
        | RunEvent::Tool(_)
        | RunEvent::Compaction(_)
        | RunEvent::Reply(_)
        | RunEvent::HookDecision(_) => None,
    })
}

fn format_submit_error(error: &SubmitError) -> String {
    let kind = match error {
        SubmitError::Conflict(_) => "conflict",
        SubmitError::Blocked => "blocked",
        SubmitError::SessionChanged => "session changed",
        SubmitError::Overloaded => "overloaded",
        SubmitError::Store(_) => "store",
        SubmitError::Stopping => "stopping",
        SubmitError::Held(_) => "held",
    };
    format!("refused ({kind}) {error}")
}

fn format_response(payload: &Value, error: Option<ErrorShape>) -> String {
    match error {
        None => format!("ok {payload}"),
        Some(error) => format!("error {} {payload}", json!(error)),
    }
}
