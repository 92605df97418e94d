//! The heartbeat task: runs heartbeats at intervals and after events.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use homard_agent::{
    delivery::{DeliveryRequest, INTERNAL},
    event::{HeartbeatAnswer, HeartbeatKind},
    hub::{Hub, InboundReply},
};
use homard_prompt::notes;
use homard_proto::{AgentId, Route, SessionKey};
use homard_queue::slots::RunClass;
use homard_store::ReplyDelivery;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{HeartbeatConfig, HeartbeatFile, HeartbeatTarget, SkipInput, SkipReason, prompt, skip};
use crate::{
    ScheduleEvents,
    run::{self, ScheduledResult, ScheduledRun},
};

/// Retry delay for a wake while the session is busy.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum characters of an answer in events.
const MAX_PREVIEW_CHARS: usize = 200;
/// Effectively never.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Handle of the heartbeats.
#[derive(Debug, Clone)]
pub struct Heartbeats {
    // Unbounded: a wake is a few bytes, and each sender commits an event before it.
    requests: mpsc::UnboundedSender<HeartbeatRequest>,
    last: watch::Receiver<Option<Arc<Value>>>,
    configs: Arc<[HeartbeatConfig]>,
}

#[derive(Debug)]
enum HeartbeatRequest {
    Wake(AgentId, String),
    Enable(bool, oneshot::Sender<()>),
}

impl Heartbeats {
    /// Returns the result of the last heartbeat, as in the `heartbeat` event.
    pub fn last(&self) -> Option<Arc<Value>> {
        self.last.borrow().clone()
    }

    /// Enables or disables all heartbeats until the process ends.
    pub async fn enable(&self, is_enabled: bool) {
        let (done, reply) = oneshot::channel();
        if self.requests.send(HeartbeatRequest::Enable(is_enabled, done)).is_ok() {
            // A dropped sender means that the process is shutting down.
            reply.await.ok();
        }
    }

    /// Returns the heartbeats by agent.
    pub fn configs(&self) -> &[HeartbeatConfig] {
        &self.configs
    }

    /// Triggers an agent's heartbeat now.
    pub(crate) fn wake(&self, agent: AgentId, trigger: String) {
        // If the task is gone, the process is shutting down.
        self.requests.send(HeartbeatRequest::Wake(agent, trigger)).ok();
    }
}

/// State of the heartbeat task.
pub(crate) struct HeartbeatTask {
    hub: Hub,
    zone: TimeZone,
    configs: Arc<[HeartbeatConfig]>,
    file: HeartbeatFile,
    events: ScheduleEvents,
    requests: mpsc::UnboundedReceiver<HeartbeatRequest>,
    last: watch::Sender<Option<Arc<Value>>>,
    is_enabled: bool,
    /// Next heartbeat of each agent.
    due: BTreeMap<AgentId, Instant>,
    /// Pending wakes with their reason and time.
    woken: BTreeMap<AgentId, (String, Instant)>,
    running: FuturesUnordered<BoxFuture<'static, FinishedHeartbeat>>,
}

/// A finished heartbeat.
struct FinishedHeartbeat {
    agent: AgentId,
    trigger: String,
    started_at: Instant,
    /// Destination of a finding, or why there is none.
    chat: Result<Route, String>,
    result: Option<ScheduledResult>,
}

/// Creates the heartbeat task and its handle.
pub(crate) fn prepare(
    hub: &Hub,
    zone: TimeZone,
    configs: Vec<HeartbeatConfig>,
    file: HeartbeatFile,
    events: &ScheduleEvents,
) -> (Heartbeats, HeartbeatTask) {
    let configs: Arc<[HeartbeatConfig]> = configs.into();
    let (request_sender, requests) = mpsc::unbounded_channel();
    let (last, last_receiver) = watch::channel(None);
    let task = HeartbeatTask {
        hub: hub.clone(),
        zone,
        configs: configs.clone(),
        file,
        events: events.clone(),
        requests,
        last,
        is_enabled: true,
        due: BTreeMap::new(),
        woken: BTreeMap::new(),
        running: FuturesUnordered::new(),
    };
    (Heartbeats { requests: request_sender, last: last_receiver, configs }, task)
}

impl HeartbeatTask {
    /// Main loop of the task.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let now = Instant::now();
        for config in self.configs.iter().filter(|config| !config.every.is_zero()) {
            self.due.insert(config.agent.clone(), now + config.every);
        }
        loop {
            let next = self.due.values().chain(self.woken.values().map(|(_, at)| at)).min().copied();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(finished) = self.running.next(), if !self.running.is_empty() => self.finish(finished),
                Some(request) = self.requests.recv() => self.handle(request),
                () = sleep_until(next.unwrap_or(now + NEVER)) => self.run_due().await,
            }
        }
    }

    fn handle(&mut self, request: HeartbeatRequest) {
        match request {
            HeartbeatRequest::Wake(agent, trigger) => {
                self.woken.entry(agent).or_insert((trigger, Instant::now()));
            }
            HeartbeatRequest::Enable(is_enabled, done) => {
                self.is_enabled = is_enabled;
                // The caller may have gone; the result is then dropped.
                done.send(()).ok();
            }
        }
    }

    /// Runs all heartbeats that are due.
    async fn run_due(&mut self) {
        let now = Instant::now();
        for config in self.configs.clone().iter() {
            let is_due = self.due.get_mut(&config.agent).filter(|at| **at <= now).map(|at| *at = now + config.every);
            let woken = self.woken.get(&config.agent).filter(|(_, at)| *at <= now).map(|(trigger, _)| trigger.clone());
            let trigger = match (woken, is_due) {
                (Some(trigger), _) => trigger,
                (None, Some(())) => "interval".to_owned(),
                (None, None) => continue,
            };
            self.run_heartbeat(config, trigger).await;
        }
        // Wakes for agents without a heartbeat are dropped.
        self.woken.retain(|agent, _| self.configs.iter().any(|config| config.agent == *agent));
    }

    async fn run_heartbeat(&mut self, config: &HeartbeatConfig, trigger: String) {
        let (agent, key) = (&config.agent, config.agent.main_session());
        let now = self.hub.ambient().now_ms();
        let file = self.file.read(agent);
        let record = self.hub.sessions().get(&key).await.ok().flatten();
        let input = SkipInput {
            is_enabled: self.is_enabled && !config.every.is_zero(),
            is_in_hours: config.hours.as_ref().is_none_or(|hours| hours.contains(now)),
            is_busy: self.hub.runs().has_live(&key),
            has_event: record.as_deref().is_some_and(notes::has_pending_events),
            file: file.as_deref(),
        };
        match (skip(input), self.woken.get_mut(agent)) {
            // Events are delivered as soon as the session is idle.
            (Some(SkipReason::Busy), Some((_, at))) => *at = Instant::now() + RETRY,
            (Some(skip), _) => {
                self.woken.remove(agent);
                self.publish(json!({"ts": now, "status": "skipped", "reason": skip.reason(), "agentId": agent}));
            }
            (None, _) => {
                self.woken.remove(agent);
                let text = prompt(config, file.as_deref(), now, &self.zone);
                let text = self.hub.agents().of(Some(agent)).secrets.mask(&text).into_owned();
                let authority = record.as_deref().map(notes::authority).unwrap_or_default();
                let (chat, delivery) = match plan_delivery(&self.hub, &key, config).await {
                    Ok((route, delivery)) => (Ok(route), Some(delivery)),
                    Err(error) => (Err(error), None),
                };
                let scheduled =
                    ScheduledRun { run: self.hub.ambient().run_id(), key, class: RunClass::Heartbeat, text };
                let route = chat.clone().unwrap_or_default();
                let mut inbound = scheduled.inbound(now);
                inbound.sender.authority = authority;
                inbound.reply = InboundReply::new(route, delivery);
                let (hub, agent) = (self.hub.clone(), agent.clone());
                let started_at = Instant::now();
                self.running.push(Box::pin(async move {
                    let result = run::run(&hub, inbound).await;
                    FinishedHeartbeat { agent, trigger, started_at, chat, result }
                }));
            }
        }
    }

    /// Publishes the result of a heartbeat.
    fn finish(&mut self, finished: FinishedHeartbeat) {
        let FinishedHeartbeat { agent, trigger, started_at, chat, result } = finished;
        let Some(result) = result else { return };
        let (status, reason, preview) = match (result.reply, result.heartbeat) {
            (Err(error), _) => ("failed", error, None),
            (Ok(_), None) => ("ok-empty", trigger, None),
            (Ok(_), Some(HeartbeatAnswer { kind, text })) => {
                let preview: String = text.chars().take(MAX_PREVIEW_CHARS).collect();
                match kind {
                    HeartbeatKind::Empty => ("ok-empty", trigger, None),
                    HeartbeatKind::Ok => ("ok-token", trigger, None),
                    HeartbeatKind::Duplicate => ("skipped", "duplicate".to_owned(), Some(preview)),
                    HeartbeatKind::Finding { is_queued: true } => ("sent", trigger, Some(preview)),
                    HeartbeatKind::Finding { is_queued: false } => {
                        // A hook or a policy may have removed all content of a message that had a chat.
                        let reason = chat.as_ref().err().cloned().unwrap_or_else(|| "nothing-to-send".to_owned());
                        ("skipped", reason, Some(preview))
                    }
                }
            }
        };
        let mut payload = json!({
            "ts": self.hub.ambient().now_ms(), "status": status, "reason": reason, "agentId": agent,
            "durationMs": started_at.elapsed().as_millis() as u64,
        });
        if let Some(preview) = preview {
            payload["preview"] = preview.into();
        }
        if let (Ok(route), "sent") = (&chat, status) {
            for (name, part) in [("channel", &route.channel), ("to", &route.to), ("accountId", &route.account)] {
                if let Some(part) = part {
                    payload[name] = part.as_str().into();
                }
            }
        }
        self.publish(payload);
    }

    fn publish(&self, payload: Value) {
        self.events.publish("heartbeat", payload.clone());
        self.last.send_replace(Some(Arc::new(payload)));
    }
}

/// Plans the delivery of a heartbeat's findings; an error says why there is no chat. Unlike a requested answer, a
/// finding is not sent to a channel on which the owner has never written.
async fn plan_delivery(
    hub: &Hub,
    key: &SessionKey,
    config: &HeartbeatConfig,
) -> Result<(Route, ReplyDelivery), String> {
    let channel = match &config.target {
        HeartbeatTarget::Nowhere => return Err("target-none".to_owned()),
        HeartbeatTarget::Last => {
            let last = hub.deliveries().last_route(key).await.map_err(|error| error.to_string())?;
            last.channel.filter(|channel| channel != INTERNAL).ok_or("no-target")?
        }
        HeartbeatTarget::Channel(channel) => channel.clone(),
    };
    let route = Route::new(Some(&channel), config.to.as_deref(), config.account.as_deref(), None);
    let request = DeliveryRequest { is_wanted: true, route };
    let (route, delivery) = hub.deliveries().plan(key, &request, false).await?.ok_or("no-target")?;
    Ok((route, ReplyDelivery { reports_tools: false, ..delivery }))
}
