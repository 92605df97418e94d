//! Fake chat platforms with scripted behaviour: accept, reject, be busy, hang, or leave the outcome unknown.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use homard_agent::channel_sender::{ChannelSender, ChannelTraits, OutgoingAction, Receipt, Recipient, SendError};
use homard_proto::Route;
use tokio::time::sleep;

use crate::clock::TraceClock;

/// Scripted behaviour of a platform for one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SenderBehaviour {
    /// Delay before the response.
    pub delay: Duration,
    /// The response.
    pub response: SenderResponse,
}

/// Response of a platform.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SenderResponse {
    /// Accepts the message.
    #[default]
    Accepts,
    /// Rejects the message.
    Rejects(String),
    /// Rejects it temporarily, optionally with a retry delay.
    Busy(String, Option<Duration>),
    /// Accepts the message, but the response is lost.
    AcceptsSilently(String),
    /// Does not accept the message, and the response is lost.
    DropsSilently(String),
    /// Panics.
    Panics(String),
}

/// A message that a platform accepted.
#[derive(Debug, Clone)]
pub(crate) struct AcceptedMessage {
    /// Time since the beginning of the trace.
    pub(crate) at: Duration,
    pub(crate) message: OutgoingAction,
}

/// The platforms of one trace, across all hub lifetimes. Calls are counted from 1.
#[derive(Debug)]
pub(crate) struct FakePlatforms {
    capabilities: BTreeMap<String, ChannelTraits>,
    behaviours: BTreeMap<u64, SenderBehaviour>,
    clock: TraceClock,
    inner: Mutex<PlatformsInner>,
}

#[derive(Debug, Default)]
struct PlatformsInner {
    calls: u64,
    accepted: Vec<AcceptedMessage>,
    refused: Vec<AcceptedMessage>,
    known: BTreeSet<String>,
}

impl FakePlatforms {
    pub(crate) fn on(
        clock: TraceClock,
        capabilities: BTreeMap<String, ChannelTraits>,
        behaviours: BTreeMap<u64, SenderBehaviour>,
    ) -> Self {
        Self { capabilities, behaviours, clock, inner: Mutex::default() }
    }

    /// True if there are no platforms.
    pub(crate) fn is_empty(&self) -> bool {
        self.capabilities.is_empty()
    }

    /// Returns the accepted messages, in order.
    pub(crate) fn accepted(&self) -> Vec<AcceptedMessage> {
        self.lock().accepted.clone()
    }

    /// Returns the messages that were refused, in order.
    pub(crate) fn refused(&self) -> Vec<AcceptedMessage> {
        self.lock().refused.clone()
    }

    /// Returns the platforms that deduplicate messages.
    pub(crate) fn idempotent(&self) -> BTreeSet<String> {
        let deduplicating = self.capabilities.iter().filter(|(_, traits)| traits.is_idempotent);
        deduplicating.map(|(channel, _)| channel.clone()).collect()
    }

    /// Reports scripted behaviours whose call never happened.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let calls = self.lock().calls;
        let unmet = self.behaviours.keys().filter(|&&number| number > calls);
        unmet.map(|number| format!("`courier #{number}` was never called")).collect()
    }

    fn call(&self) -> (u64, SenderBehaviour) {
        let mut inner = self.lock();
        inner.calls += 1;
        (inner.calls, self.behaviours.get(&inner.calls).cloned().unwrap_or_default())
    }

    fn accept(&self, message: OutgoingAction, traits: &ChannelTraits) {
        let at = self.clock.now();
        let mut inner = self.lock();
        let is_new = inner.known.insert(message.id.clone());
        if is_new || !traits.is_idempotent {
            inner.accepted.push(AcceptedMessage { at, message });
        }
    }

    fn lock(&self) -> MutexGuard<'_, PlatformsInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ChannelSender for FakePlatforms {
    async fn deliver(&self, outgoing: OutgoingAction) -> Result<Receipt, SendError> {
        let channel = outgoing.channel.clone().unwrap_or_default();
        let Some(traits) = self.capabilities.get(&channel) else { return Err(SendError::NoChannel(channel)) };
        let (number, SenderBehaviour { delay, response: mut reply }) = self.call();
        // A platform that deduplicates accepts a repeated message; it does not reject it.
        if traits.is_idempotent
            && self.lock().known.contains(&outgoing.id)
            && matches!(reply, SenderResponse::Rejects(_))
        {
            reply = SenderResponse::Accepts;
        }
        match delay {
            Duration::MAX => pending().await,
            delay => sleep(delay).await,
        }
        match reply {
            SenderResponse::Accepts => {
                self.accept(outgoing, traits);
                Ok(Receipt { message: Some(format!("p{number}")), channel, ..Receipt::default() })
            }
            SenderResponse::Rejects(why) => {
                let at = self.clock.now();
                self.lock().refused.push(AcceptedMessage { at, message: outgoing });
                Err(SendError::Refused(why))
            }
            SenderResponse::Busy(why, retry_after) => Err(SendError::Unavailable { why, retry_after }),
            SenderResponse::AcceptsSilently(why) => {
                self.accept(outgoing, traits);
                Err(SendError::Unknown(why))
            }
            SenderResponse::DropsSilently(why) => Err(SendError::Unknown(why)),
            // Bypasses the panic hook, so that the test's output stays clean.
            SenderResponse::Panics(text) => std::panic::resume_unwind(Box::new(text)),
        }
    }

    fn traits(&self, channel: &str) -> Option<ChannelTraits> {
        self.capabilities.get(channel).cloned()
    }

    fn recipient(&self, route: &Route) -> Result<Recipient, SendError> {
        let channel = route.channel.clone().unwrap_or_default();
        let (account, id) = (route.account.clone().unwrap_or_default(), route.to.clone().unwrap_or_default());
        match self.capabilities.contains_key(&channel) {
            true => Ok(Recipient { channel, account, id, is_known: true }),
            false => Err(SendError::NoChannel(channel)),
        }
    }
}
