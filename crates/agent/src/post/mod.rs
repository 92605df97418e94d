//! Outgoing channel messages: their destination (`plan`), their conversion into messages (`line`), and their delivery
//! (`sender`).
//!
//! A run puts its messages into the store's outbox, the final replies in the commit of its end. From then on they are
//! never lost: one task per target delivers them in order. The state `sending` is on disk before the channel is called,
//! so after a crash it is known which messages may have arrived. Those are reported, also to their chat (`notice`), and
//! not sent again, unless the channel deduplicates.

mod arrival;
mod hooks;
mod letter;
pub(crate) mod line;
mod notice;
pub(crate) mod plan;
mod sender;

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use homard_proto::{Route, RunId, SessionKey};
use homard_store::{
    Delivery, DeliveryRow, DeliveryState, Error as StoreError, Post, Rec, Target, Verdict, outbox::TTL_MS,
};
use tokio::sync::Notify;

use crate::{
    courier::{Courier, Manner},
    hub::{Hub, HubEvent, Shared},
    schedule::heartbeat::{self, Pulse},
    writer::Then,
};
pub use arrival::Arrival;
use letter::Letter;
use line::Line;
pub use plan::USUAL_CHANNEL;
use plan::{Plan, Wish};

/// Reason for the unknown state of a message that was being sent when the process ended.
const LOST_TRACK: &str = "the process ended while it was being sent, and the channel cannot tell; look there before you \
                          send it again";

/// Rules for outgoing messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostRules {
    /// Default channel of sessions without a last channel.
    pub usual_channel: String,
    /// Time limit for sending a block, before the rest of the answer is sent at once.
    pub block_limit: Duration,
}

impl Default for PostRules {
    fn default() -> Self {
        Self { usual_channel: USUAL_CHANNEL.to_owned(), block_limit: Duration::from_secs(15) }
    }
}

/// Final state of a delivery, published once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// Run that sent it.
    pub run: Option<RunId>,
    /// Id of the delivery.
    pub id: String,
    /// Recipient.
    pub target: Target,
    /// Sent, dead, or unknown.
    pub state: DeliveryState,
    /// Why it was not delivered, or is not known to be.
    pub why: Option<String>,
    /// True if the delivery was best effort.
    pub is_best_effort: bool,
}

impl Delivered {
    fn new(delivery: &Delivery, state: DeliveryState, why: Option<&str>) -> Self {
        let why = match (&state, why) {
            (DeliveryState::Dead { reason }, None) => Some(reason.clone()),
            (_, why) => why.map(str::to_owned),
        };
        let is_best_effort = Letter::of(delivery).is_best_effort;
        let (run, id, target) = (delivery.run.clone(), delivery.id.clone(), delivery.target.clone());
        Self { run, id, target, state, why, is_best_effort }
    }
}

type Queues = HashMap<Target, VecDeque<Item>>;

/// Queued deliveries and their channel sender.
#[derive(Default)]
pub(crate) struct Mail {
    courier: OnceLock<Arc<dyn Courier>>,
    /// A target is in the map while a task serves it.
    queues: Mutex<Queues>,
    /// Notified when a delivery was withdrawn or tried, and when a target's queue is empty.
    changed: Notify,
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail").field("has_courier", &self.courier.get().is_some()).finish_non_exhaustive()
    }
}

/// A queued delivery.
#[derive(Debug)]
struct Item {
    row: DeliveryRow,
    letter: Letter,
    /// Channel output of its run, if the run is of this process.
    line: Option<Arc<Line>>,
    /// Earliest time to send it, in milliseconds since the epoch. `None` until it is at the head of the queue.
    due: Option<u64>,
    is_sending: bool,
    /// True if its withdrawal is stored.
    is_withdrawn: bool,
}

impl Item {
    fn new(row: DeliveryRow, line: Option<Arc<Line>>) -> Self {
        let due = match row.state {
            DeliveryState::Failed { retry_at, .. } => Some(retry_at),
            DeliveryState::Queued
            | DeliveryState::Sending
            | DeliveryState::Sent { .. }
            | DeliveryState::Unknown
            | DeliveryState::Dead { .. } => None,
        };
        let letter = Letter::of(&row.delivery);
        Self { row, letter, line, due, is_sending: false, is_withdrawn: false }
    }

    /// Returns why it is no longer sent, if its run withdrew it.
    fn taken_back(&self) -> Option<&'static str> {
        self.line.as_ref()?.taken_back(self.letter.block?)
    }
}

impl Mail {
    /// Returns the properties of a channel; `None` if it is not configured.
    pub(crate) fn manner(&self, channel: &str) -> Option<Manner> {
        self.courier.get()?.manner(channel)
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Withdraws queued blocks that a run's output no longer relies on. The records must be stored before the run's
    /// end; the results are published afterwards.
    pub(crate) fn take_back(&self, line: &Arc<Line>, at: u64) -> (Vec<Rec>, Vec<Delivered>) {
        let (mut records, mut told) = (Vec::new(), Vec::new());
        for item in self.lock().get_mut(line.target()).into_iter().flatten() {
            let is_of = item.line.as_ref().is_some_and(|of| Arc::ptr_eq(of, line));
            if !is_of || item.is_sending || item.is_withdrawn {
                continue;
            }
            let Some(why) = item.taken_back() else { continue };
            item.is_withdrawn = true;
            let state = DeliveryState::Dead { reason: why.to_owned() };
            records.push(Rec::Deliver { id: item.row.delivery.id.clone(), state: state.clone(), at });
            told.push(Delivered::new(&item.row.delivery, state, None));
        }
        if !records.is_empty() {
            self.changed.notify_waiters();
        }
        (records, told)
    }
}

/// Builds the records that queue deliveries.
pub(crate) fn queueing(deliveries: &[Delivery]) -> impl Iterator<Item = Rec> {
    deliveries.iter().cloned().map(|delivery| Rec::Queue(Box::new(delivery)))
}

impl Shared {
    /// Stores records and queues their deliveries under one lock: the store requires that deliveries to a target are
    /// sent in the order in which they were stored, so concurrent runs must have the same order in memory and on disk.
    /// A delivery that is not stored is not sent, because the record of its sending follows it.
    pub(crate) fn mail_out(
        self: &Arc<Self>,
        (records, then): (Vec<Rec>, Then),
        deliveries: Vec<Delivery>,
        line: Option<&Arc<Line>>,
    ) {
        let mut queues = self.mail.lock();
        self.writer.send(records, then);
        for delivery in deliveries {
            self.put(&mut queues, Item::new(DeliveryRow::new(delivery), line.cloned()));
        }
    }

    fn put(self: &Arc<Self>, queues: &mut Queues, item: Item) {
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
    pub(crate) fn report(&self, delivered: impl IntoIterator<Item = Delivered>) {
        for told in delivered {
            let (channel, why) = (&told.target.channel, told.why.as_deref().unwrap_or_default());
            match &told.state {
                DeliveryState::Dead { .. } => tracing::warn!(id = told.id, channel, why, "a message was not delivered"),
                DeliveryState::Unknown => {
                    tracing::warn!(id = told.id, channel, why, "it is not known whether a message was delivered");
                }
                DeliveryState::Sent { .. }
                | DeliveryState::Queued
                | DeliveryState::Sending
                | DeliveryState::Failed { .. } => {}
            }
            self.tell(HubEvent::Delivery(Box::new(told)));
        }
    }

    /// Publishes that a run's answer has no destination, if that was known before the run started.
    pub(crate) fn report_trouble(&self, run: &RunId, post: &Post) {
        let Some(why) = &post.trouble else { return };
        self.report([Delivered {
            run: Some(run.clone()),
            id: format!("{run}/0.0"),
            // There is no target; the text names the requested one.
            target: Target { channel: String::new(), account: String::new(), to: String::new() },
            state: DeliveryState::Dead { reason: why.clone() },
            why: Some(why.clone()),
            is_best_effort: post.is_best_effort,
        }]);
    }

    /// Recovers the outbox of the previous process.
    pub(crate) async fn take_up_mail(self: &Arc<Self>) -> Result<(), StoreError> {
        let now = self.ambient.now_ms();
        let (mut waiting, mut records, mut notices) = (Vec::new(), Vec::new(), Vec::new());
        for row in self.store.outbox().await? {
            let (id, is_old) = (row.delivery.id.clone(), now > row.delivery.at.saturating_add(TTL_MS));
            match row.state {
                DeliveryState::Queued | DeliveryState::Failed { .. } => waiting.push(row),
                DeliveryState::Unknown if is_old => {
                    let reason = "nobody found out whether it arrived".to_owned();
                    records.push(Rec::Deliver { id, state: DeliveryState::Dead { reason }, at: now });
                }
                DeliveryState::Unknown => {
                    notices.extend(notice::of(&row.delivery, &row.state, now));
                    self.report([Delivered::new(&row.delivery, DeliveryState::Unknown, Some(LOST_TRACK))]);
                }
                DeliveryState::Sending | DeliveryState::Sent { .. } | DeliveryState::Dead { .. } => {}
            }
        }
        if !records.is_empty() {
            self.writer.commit(records).await?;
        }
        // The store knows the id of a notice that an earlier start queued, and does not queue it again.
        let verdicts = self.writer.judge(queueing(&notices).collect()).await?;
        let stored = notices.into_iter().zip(verdicts).filter(|(_, verdict)| *verdict == Verdict::Stored);
        waiting.extend(stored.map(|(notice, _)| DeliveryRow::new(notice)));
        // In the order of the store, and nothing is sent before all of them are in line.
        let mut queues = self.mail.lock();
        for row in waiting {
            self.put(&mut queues, Item::new(row, None));
        }
        Ok(())
    }
}

impl Hub {
    /// Sets the channel sender. Can be set once; later calls are ignored. Call it before [`recover`](Self::recover),
    /// which resumes undelivered messages.
    pub fn open_post(&self, courier: Arc<dyn Courier>) {
        self.0.mail.courier.get_or_init(|| courier);
    }

    /// Waits until the queues are empty or the process shuts down.
    pub async fn posted(&self) {
        loop {
            let changed = self.0.mail.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.0.mail.lock().is_empty() {
                return;
            }
            tokio::select! {
                biased;
                () = self.0.draining.cancelled() => return,
                () = changed => {}
            }
        }
    }

    /// Returns undelivered messages in the order in which they were queued: queued ones, those with unknown state, and
    /// those given up within the last day.
    pub async fn outbox(&self) -> Result<Vec<DeliveryRow>, StoreError> {
        self.0.store.outbox().await
    }

    /// Returns the properties of a channel; `None` if it is not configured.
    pub fn manner(&self, channel: &str) -> Option<Manner> {
        self.0.mail.manner(channel)
    }

    /// Plans the delivery of a reply to the origin of a message, if that is an external channel that can be written to.
    pub fn post_back(&self, key: &SessionKey, from: &Route) -> Option<Post> {
        plan::origin(from, plan::INTERNAL, |channel| self.manner(channel))?;
        Some(Post { is_origin: true, tells_tools: plan::tells_tools(key.kind()), ..Post::default() })
    }

    /// Plans the delivery of a heartbeat's findings; an error says why there is no chat. Unlike a requested answer, a
    /// finding is not sent to a channel on which the owner has never written.
    pub(crate) async fn plan_heartbeat(&self, key: &SessionKey, pulse: &Pulse) -> Result<(Route, Post), String> {
        let to = (pulse.to.as_deref(), pulse.account.as_deref());
        let channel = match &pulse.target {
            heartbeat::Target::Nowhere => return Err("target-none".to_owned()),
            heartbeat::Target::Last => {
                let record = self.record(key).await.map_err(|error| error.to_string())?;
                let last = record.as_ref().map(plan::last_route).unwrap_or_default();
                last.channel.filter(|channel| channel != plan::INTERNAL).ok_or("no-target")?
            }
            heartbeat::Target::Channel(channel) => channel.clone(),
        };
        let wish = Wish { is_wanted: true, route: Route::new(Some(&channel), to.0, to.1, None) };
        let (route, post) = self.plan_post(key, &wish, false).await?.ok_or("no-target")?;
        Ok((route, Post { tells_tools: false, ..post }))
    }

    /// Plans the delivery of a request's answer; an error says why it cannot be delivered.
    pub(crate) async fn plan_post(
        &self,
        key: &SessionKey,
        wish: &Wish,
        is_best_effort: bool,
    ) -> Result<Option<(Route, Post)>, String> {
        if !wish.is_wanted {
            return Ok(None);
        }
        let record = self.record(key).await.map_err(|error| error.to_string())?;
        let last = record.as_ref().map(plan::last_route).unwrap_or_default();
        let usual = self.rules().post.usual_channel.clone();
        let post = Post { is_best_effort, tells_tools: plan::tells_tools(key.kind()), ..Post::default() };
        match plan::plan(wish, &last, &usual, |channel| self.manner(channel)) {
            Plan::Inside => Ok(None),
            Plan::To(route) => Ok(Some((route, post))),
            Plan::Nowhere(why) if is_best_effort => Ok(Some((Route::default(), Post { trouble: Some(why), ..post }))),
            Plan::Nowhere(why) => Err(why),
        }
    }
}
