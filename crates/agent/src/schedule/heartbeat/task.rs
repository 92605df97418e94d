//! The heartbeat task: runs heartbeats at intervals and after events.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use homard_proto::{AgentId, Route};
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{HeartbeatConfig, HeartbeatFile, SkipInput, SkipReason, prompt, skip};
use crate::{
    context::notes,
    event::{HeartbeatAnswer, HeartbeatKind},
    hub::{Hub, Inbound},
    lane::slots::RunClass,
    schedule::{
        ScheduleEvents,
        run::{self, ScheduledResult, ScheduledRun},
    },
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
    wishes: mpsc::UnboundedSender<HeartbeatRequest>,
    last: watch::Receiver<Option<Arc<Value>>>,
    pulses: Arc<[HeartbeatConfig]>,
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
        let (tell, told) = oneshot::channel();
        if self.wishes.send(HeartbeatRequest::Enable(is_enabled, tell)).is_ok() {
            // A dropped sender means that the process is shutting down.
            told.await.ok();
        }
    }

    /// Returns the heartbeats by agent.
    pub fn configs(&self) -> &[HeartbeatConfig] {
        &self.pulses
    }

    /// Triggers an agent's heartbeat now.
    pub(in crate::schedule) fn wake(&self, agent: AgentId, why: String) {
        // If the task is gone, the process is shutting down.
        self.wishes.send(HeartbeatRequest::Wake(agent, why)).ok();
    }
}

/// State of the heartbeat task.
pub(in crate::schedule) struct HeartbeatTask {
    hub: Hub,
    zone: TimeZone,
    pulses: Arc<[HeartbeatConfig]>,
    file: HeartbeatFile,
    news: ScheduleEvents,
    wishes: mpsc::UnboundedReceiver<HeartbeatRequest>,
    last: watch::Sender<Option<Arc<Value>>>,
    is_enabled: bool,
    /// Next heartbeat of each agent.
    due: BTreeMap<AgentId, Instant>,
    /// Pending wakes with their reason and time.
    woken: BTreeMap<AgentId, (String, Instant)>,
    beats: FuturesUnordered<BoxFuture<'static, FinishedHeartbeat>>,
}

/// A finished heartbeat.
struct FinishedHeartbeat {
    agent: AgentId,
    why: String,
    began: Instant,
    /// Destination of a finding, or why there is none.
    chat: Result<Route, String>,
    came: Option<ScheduledResult>,
}

/// Creates the heartbeat task and its handle.
pub(in crate::schedule) fn prepare(
    (hub, zone): (&Hub, TimeZone),
    pulses: Vec<HeartbeatConfig>,
    file: HeartbeatFile,
    news: &ScheduleEvents,
) -> (Heartbeats, HeartbeatTask) {
    let pulses: Arc<[HeartbeatConfig]> = pulses.into();
    let (wish, wishes) = mpsc::unbounded_channel();
    let (last, see) = watch::channel(None);
    let beating = HeartbeatTask {
        hub: hub.clone(),
        zone,
        pulses: pulses.clone(),
        file,
        news: news.clone(),
        wishes,
        last,
        is_enabled: true,
        due: BTreeMap::new(),
        woken: BTreeMap::new(),
        beats: FuturesUnordered::new(),
    };
    (Heartbeats { wishes: wish, last: see, pulses }, beating)
}

impl HeartbeatTask {
    /// Main loop of the task.
    pub(in crate::schedule) async fn run(mut self, stop: CancellationToken) {
        let now = Instant::now();
        for pulse in self.pulses.iter().filter(|pulse| !pulse.every.is_zero()) {
            self.due.insert(pulse.agent.clone(), now + pulse.every);
        }
        loop {
            let next = self.due.values().chain(self.woken.values().map(|(_, at)| at)).min().copied();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(beat) = self.beats.next(), if !self.beats.is_empty() => self.finish(beat),
                Some(wish) = self.wishes.recv() => self.handle(wish),
                () = sleep_until(next.unwrap_or(now + NEVER)) => self.run_due().await,
            }
        }
    }

    fn handle(&mut self, wish: HeartbeatRequest) {
        match wish {
            HeartbeatRequest::Wake(agent, why) => {
                self.woken.entry(agent).or_insert((why, Instant::now()));
            }
            HeartbeatRequest::Enable(is_enabled, tell) => {
                self.is_enabled = is_enabled;
                // The caller may have gone; the result is then dropped.
                tell.send(()).ok();
            }
        }
    }

    /// Runs all heartbeats that are due.
    async fn run_due(&mut self) {
        let now = Instant::now();
        for pulse in self.pulses.clone().iter() {
            let is_due = self.due.get_mut(&pulse.agent).filter(|at| **at <= now).map(|at| *at = now + pulse.every);
            let woken = self.woken.get(&pulse.agent).filter(|(_, at)| *at <= now).map(|(why, _)| why.clone());
            let why = match (woken, is_due) {
                (Some(why), _) => why,
                (None, Some(())) => "interval".to_owned(),
                (None, None) => continue,
            };
            self.run_heartbeat(pulse, why).await;
        }
        // Wakes for agents without a heartbeat are dropped.
        self.woken.retain(|agent, _| self.pulses.iter().any(|pulse| pulse.agent == *agent));
    }

    async fn run_heartbeat(&mut self, pulse: &HeartbeatConfig, why: String) {
        let (agent, key) = (&pulse.agent, pulse.agent.main_session());
        let now = self.hub.ambient().now_ms();
        let file = self.file.read(agent);
        let record = self.hub.session(&key).await.ok().flatten();
        let facts = SkipInput {
            is_enabled: self.is_enabled && !pulse.every.is_zero(),
            is_in_hours: pulse.hours.as_ref().is_none_or(|hours| hours.contains(now)),
            is_busy: self.hub.has_live_run(&key),
            has_event: record.as_deref().is_some_and(notes::has_pending_events),
            file: file.as_deref(),
        };
        match (skip(facts), self.woken.get_mut(agent)) {
            // Events are delivered as soon as the session is idle.
            (Some(SkipReason::Busy), Some((_, at))) => *at = Instant::now() + RETRY,
            (Some(skip), _) => {
                self.woken.remove(agent);
                self.publish(json!({"ts": now, "status": "skipped", "reason": skip.reason(), "agentId": agent}));
            }
            (None, _) => {
                self.woken.remove(agent);
                let text = prompt(pulse, file.as_deref(), (now, &self.zone));
                let text = self.hub.agents().of(Some(agent)).secrets.mask(&text).into_owned();
                let authority = record.as_deref().map(notes::authority).unwrap_or_default();
                let (chat, post) = match self.hub.plan_heartbeat(&key, pulse).await {
                    Ok((route, post)) => (Ok(route), Some(post)),
                    Err(why) => (Err(why), None),
                };
                let ask = ScheduledRun { run: self.hub.ambient().run_id(), key, class: RunClass::Heartbeat, text };
                let route = chat.clone().unwrap_or_default();
                let inbound = Inbound { authority, route, delivery: post, ..ask.inbound(now) };
                let (hub, agent) = (self.hub.clone(), agent.clone());
                let began = Instant::now();
                self.beats.push(Box::pin(async move {
                    let came = run::run(&hub, inbound).await;
                    FinishedHeartbeat { agent, why, began, chat, came }
                }));
            }
        }
    }

    /// Publishes the result of a heartbeat.
    fn finish(&mut self, beat: FinishedHeartbeat) {
        let FinishedHeartbeat { agent, why, began, chat, came } = beat;
        let Some(came) = came else { return };
        let (status, reason, preview) = match (came.reply, came.heartbeat) {
            (Err(error), _) => ("failed", error, None),
            (Ok(_), None) => ("ok-empty", why, None),
            (Ok(_), Some(HeartbeatAnswer { kind, text })) => {
                let preview: String = text.chars().take(MAX_PREVIEW_CHARS).collect();
                match kind {
                    HeartbeatKind::Empty => ("ok-empty", why, None),
                    HeartbeatKind::Ok => ("ok-token", why, None),
                    HeartbeatKind::Duplicate => ("skipped", "duplicate".to_owned(), Some(preview)),
                    HeartbeatKind::Finding { is_queued: true } => ("sent", why, Some(preview)),
                    HeartbeatKind::Finding { is_queued: false } => {
                        // A hook or a policy may have removed all content of a message that had a chat.
                        let reason = chat.as_ref().err().cloned().unwrap_or_else(|| "nothing-to-send".to_owned());
                        ("skipped", reason, Some(preview))
                    }
                }
            }
        };
        let mut told = json!({
            "ts": self.hub.ambient().now_ms(), "status": status, "reason": reason, "agentId": agent,
            "durationMs": began.elapsed().as_millis() as u64,
        });
        if let Some(preview) = preview {
            told["preview"] = preview.into();
        }
        if let (Ok(route), "sent") = (&chat, status) {
            for (name, part) in [("channel", &route.channel), ("to", &route.to), ("accountId", &route.account)] {
                if let Some(part) = part {
                    told[name] = part.as_str().into();
                }
            }
        }
        self.publish(told);
    }

    fn publish(&self, payload: Value) {
        self.news.publish("heartbeat", payload.clone());
        self.last.send_replace(Some(Arc::new(payload)));
    }
}
