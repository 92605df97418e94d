//! Delivery of channel messages (`sender`). `homard_delivery` decides where they go and what they contain.
//!
//! A run puts its messages into the store's outbox, the final replies in the commit of its end. From then on they are
//! never lost: one task per target delivers them in order. The state `sending` is on disk before the channel is called,
//! so after a crash it is known which messages may have arrived. Those are reported, also to their chat (`notice`), and
//! not sent again, unless the channel deduplicates.

mod handle;
mod hooks;
mod immediate;
mod result;
mod sender;

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use homard_delivery::{
    notice,
    payload::OutboxPayload,
    run_output::{OutputStyle, RunOutput},
};
use homard_proto::{RunId, SessionKey};
use homard_store::{
    Delivery, DeliveryRow, DeliveryState, DeliveryTarget, Error as StoreError, Rec, ReplyDelivery, Verdict,
    outbox::TTL_MS,
};
use tokio::sync::Notify;

use crate::{
    channel_sender::{ChannelSender, ChannelTraits},
    hub::{HubEvent, Inbound, Shared},
    profile::Profile,
    tool::RunOrigin,
    writer::WriteRequest,
};

pub use handle::HubDeliveries;
pub use homard_delivery::{DEFAULT_CHANNEL, DeliveryReport, DeliveryRequest, DeliveryResult, INTERNAL, LAST};
pub use immediate::ImmediateResult;

/// Rules for outgoing messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRules {
    /// Default channel of sessions without a last channel.
    pub default_channel: String,
    /// Time limit for sending a block, before the rest of the answer is sent at once.
    pub block_limit: Duration,
}

impl Default for DeliveryRules {
    fn default() -> Self {
        Self { default_channel: DEFAULT_CHANNEL.to_owned(), block_limit: Duration::from_secs(15) }
    }
}

type TargetQueues = HashMap<DeliveryTarget, VecDeque<QueuedDelivery>>;

/// Queued deliveries and their channel sender.
#[derive(Default)]
pub(crate) struct Deliveries {
    sender: OnceLock<Arc<dyn ChannelSender>>,
    /// A target is in the map while a task serves it.
    queues: Mutex<TargetQueues>,
    /// Notified when a delivery was withdrawn or tried, and when a target's queue is empty.
    changed: Notify,
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliveries").field("has_sender", &self.sender.get().is_some()).finish_non_exhaustive()
    }
}

/// A queued delivery.
#[derive(Debug)]
struct QueuedDelivery {
    row: DeliveryRow,
    payload: OutboxPayload,
    /// Channel output of its run, if the run is of this process.
    output: Option<Arc<RunOutput>>,
    /// Earliest time to send it, in milliseconds since the epoch. `None` until it is at the head of the queue.
    due: Option<u64>,
    is_sending: bool,
    /// True if its withdrawal is stored.
    is_withdrawn: bool,
}

impl QueuedDelivery {
    fn new(row: DeliveryRow, output: Option<Arc<RunOutput>>) -> Self {
        let due = match row.state {
            DeliveryState::Failed { retry_at, .. } => Some(retry_at),
            DeliveryState::Queued
            | DeliveryState::Sending
            | DeliveryState::Sent { .. }
            | DeliveryState::Unknown { .. }
            | DeliveryState::Dead { .. } => None,
        };
        let payload = OutboxPayload::of(&row.delivery);
        Self { row, payload, output, due, is_sending: false, is_withdrawn: false }
    }

    /// Returns why it is no longer sent, if its run withdrew it.
    fn withdrawal(&self) -> Option<&'static str> {
        self.output.as_ref()?.withdrawal(self.payload.block?)
    }
}

impl Deliveries {
    /// Returns the properties of a channel; `None` if it is not configured.
    pub(crate) fn traits(&self, channel: &str) -> Option<ChannelTraits> {
        self.sender.get()?.traits(channel)
    }

    fn lock(&self) -> MutexGuard<'_, TargetQueues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Withdraws queued blocks that a run's output no longer relies on. The records must be stored before the run's
    /// end; the results are published afterwards.
    pub(crate) fn withdraw(&self, output: &Arc<RunOutput>, at: u64) -> (Vec<Rec>, Vec<DeliveryReport>) {
        let (mut records, mut reports) = (Vec::new(), Vec::new());
        for item in self.lock().get_mut(output.target()).into_iter().flatten() {
            let is_own = item.output.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, output));
            if !is_own || item.is_sending || item.is_withdrawn {
                continue;
            }
            let Some(reason) = item.withdrawal() else { continue };
            item.is_withdrawn = true;
            let state = DeliveryState::Dead { reason: reason.to_owned() };
            records.push(Rec::Deliver { id: item.row.delivery.id.clone(), state: state.clone(), at });
            reports.push(DeliveryReport::new(&item.row.delivery, state, None));
        }
        if !records.is_empty() {
            self.changed.notify_waiters();
        }
        (records, reports)
    }
}

/// Returns the style of replies to a sender.
pub(crate) fn output_style(profile: &Profile, origin: &RunOrigin, key: &SessionKey) -> OutputStyle {
    let root = profile.may_read_workspace(origin, key).then(|| profile.workdir.clone());
    let is_offline = !profile.may_load_urls(origin, key);
    OutputStyle { delay: profile.delivery.delay, root, is_offline, ..OutputStyle::default() }
}

/// Builds the records that queue deliveries.
pub(crate) fn queue_records(deliveries: &[Delivery]) -> impl Iterator<Item = Rec> {
    deliveries.iter().cloned().map(|delivery| Rec::Queue(Box::new(delivery)))
}

impl Shared {
    /// Stores records and queues their deliveries under one lock: the store requires that deliveries to a target are
    /// sent in the order in which they were stored, so concurrent runs must have the same order in memory and on disk.
    /// A delivery that is not stored is not sent, because the record of its sending follows it.
    pub(crate) fn send_with_deliveries(
        self: &Arc<Self>,
        request: impl Into<WriteRequest>,
        deliveries: Vec<Delivery>,
        output: Option<&Arc<RunOutput>>,
    ) {
        let mut queues = self.deliveries.lock();
        self.writer.send(request);
        for delivery in deliveries {
            self.put(&mut queues, QueuedDelivery::new(DeliveryRow::new(delivery), output.cloned()));
        }
    }

    /// Returns the channel output of a message's run, if its reply goes to a channel.
    pub(crate) fn run_output(&self, inbound: &Inbound, style: OutputStyle) -> Option<Arc<RunOutput>> {
        let delivery = inbound.reply.delivery.clone().filter(|delivery| delivery.undeliverable_reason.is_none())?;
        // A channel that is no longer configured fails when it is written to.
        let traits = inbound.reply.route.channel.as_deref().and_then(|channel| self.deliveries.traits(channel));
        RunOutput::open(&inbound.id.run, &inbound.reply.route, delivery, traits.unwrap_or_default(), style)
    }

    fn put(self: &Arc<Self>, queues: &mut TargetQueues, item: QueuedDelivery) {
        let target = item.row.delivery.target.clone();
        match queues.entry(target.clone()) {
            Entry::Occupied(mut queue) => queue.get_mut().push_back(item),
            Entry::Vacant(queue) => {
                queue.insert(VecDeque::from([item]));
                // The task ends when its target's queue is empty, or at shutdown.
                drop(self.spawn("post", sender::serve(self.clone(), target)));
            }
        }
    }

    /// Logs and publishes final states of deliveries.
    pub(crate) fn report(&self, reports: impl IntoIterator<Item = DeliveryReport>) {
        for report in reports {
            let (channel, why) = (&report.target.channel, report.why.as_deref().unwrap_or_default());
            match &report.state {
                DeliveryState::Dead { .. } => {
                    tracing::warn!(id = report.id, channel, why, "a message was not delivered")
                }
                DeliveryState::Unknown { .. } => {
                    tracing::warn!(id = report.id, channel, why, "it is not known whether a message was delivered");
                }
                DeliveryState::Sent { .. }
                | DeliveryState::Queued
                | DeliveryState::Sending
                | DeliveryState::Failed { .. } => {}
            }
            self.publish(HubEvent::Delivery(Box::new(report)));
        }
    }

    /// Publishes that a run's answer has no destination, if that was known before the run started.
    pub(crate) fn report_undeliverable(&self, run: &RunId, delivery: &ReplyDelivery) {
        let Some(reason) = &delivery.undeliverable_reason else { return };
        self.report([DeliveryReport {
            run: Some(run.clone()),
            id: format!("{run}/0.0"),
            // There is no target; the text names the requested one.
            target: DeliveryTarget { channel: String::new(), account: String::new(), to: String::new() },
            state: DeliveryState::Dead { reason: reason.clone() },
            why: Some(reason.clone()),
            is_best_effort: delivery.is_best_effort,
        }]);
    }

    /// Recovers the outbox of the previous process.
    pub(crate) async fn recover_outbox(self: &Arc<Self>) -> Result<(), StoreError> {
        let now = self.ambient.now_ms();
        let (mut waiting, mut records, mut notices) = (Vec::new(), Vec::new(), Vec::new());
        for row in self.store.outbox().await? {
            let (id, is_old) = (row.delivery.id.clone(), now > row.delivery.at.saturating_add(TTL_MS));
            match row.state {
                DeliveryState::Queued | DeliveryState::Failed { .. } => waiting.push(row),
                DeliveryState::Unknown { .. } if is_old => {
                    let reason = "the delivery was never confirmed".to_owned();
                    records.push(Rec::Deliver { id, state: DeliveryState::Dead { reason }, at: now });
                }
                DeliveryState::Unknown { .. } => {
                    notices.extend(notice::of(&row.delivery, &row.state, now));
                    self.report([DeliveryReport::new(&row.delivery, row.state, None)]);
                }
                DeliveryState::Sending | DeliveryState::Sent { .. } | DeliveryState::Dead { .. } => {}
            }
        }
        if !records.is_empty() {
            self.writer.commit(records).await?;
        }
        // The store knows the id of a notice that an earlier start queued, and does not queue it again.
        let verdicts = self.writer.commit_with_verdicts(queue_records(&notices).collect()).await?;
        let stored = notices.into_iter().zip(verdicts).filter(|(_, verdict)| *verdict == Verdict::Stored);
        waiting.extend(stored.map(|(notice, _)| DeliveryRow::new(notice)));
        // In the order of the store. The lock is held until all are queued, so nothing is sent before.
        let mut queues = self.deliveries.lock();
        for row in waiting {
            self.put(&mut queues, QueuedDelivery::new(row, None));
        }
        Ok(())
    }
}
