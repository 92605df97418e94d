//! Fake chat platforms with scripted behaviour: accept, reject, be busy, hang, or leave the outcome unknown.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use homard_agent::courier::{Courier, CourierError, Manner, Outgoing, Receipt, Recipient};
use homard_proto::Route;
use tokio::time::sleep;

use crate::clock::Clock;

/// Scripted behaviour of a platform for one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conduct {
    /// Delay before the response.
    pub takes: Duration,
    /// The response.
    pub answer: Answer,
}

/// Response of a platform.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Answer {
    /// Accepts the message.
    #[default]
    Hears,
    /// Rejects the message.
    Refuses(String),
    /// Rejects it temporarily, optionally with a retry delay.
    Busy(String, Option<Duration>),
    /// Accepts the message, but the response is lost.
    Loses(String),
    /// Does not accept the message, and the response is lost.
    Drops(String),
    /// Panics.
    Panics(String),
}

/// A message that a platform accepted.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    /// Time since the beginning of the trace.
    pub(crate) at: Duration,
    pub(crate) said: Outgoing,
}

/// The platforms of one trace, across all hub lifetimes. Calls are counted from 1.
#[derive(Debug)]
pub(crate) struct Platforms {
    manners: BTreeMap<String, Manner>,
    conducts: BTreeMap<u64, Conduct>,
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    calls: u64,
    heard: Vec<Heard>,
    refused: Vec<Heard>,
    known: BTreeSet<String>,
}

impl Platforms {
    pub(crate) fn on(clock: Clock, manners: BTreeMap<String, Manner>, conducts: BTreeMap<u64, Conduct>) -> Self {
        Self { manners, conducts, clock, inner: Mutex::default() }
    }

    /// True if there are no platforms.
    pub(crate) fn is_empty(&self) -> bool {
        self.manners.is_empty()
    }

    /// Returns the accepted messages, in order.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.lock().heard.clone()
    }

    /// Returns the messages that were refused, in order.
    pub(crate) fn refused(&self) -> Vec<Heard> {
        self.lock().refused.clone()
    }

    /// Returns the platforms that deduplicate messages.
    pub(crate) fn idempotent(&self) -> BTreeSet<String> {
        let dropping = self.manners.iter().filter(|(_, manner)| manner.is_idempotent);
        dropping.map(|(channel, _)| channel.clone()).collect()
    }

    /// Reports scripted behaviours whose call never happened.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let calls = self.lock().calls;
        let unmet = self.conducts.keys().filter(|&&number| number > calls);
        unmet.map(|number| format!("`courier #{number}` was never called")).collect()
    }

    fn call(&self) -> (u64, Conduct) {
        let mut inner = self.lock();
        inner.calls += 1;
        (inner.calls, self.conducts.get(&inner.calls).cloned().unwrap_or_default())
    }

    fn hear(&self, said: Outgoing, manner: &Manner) {
        let at = self.clock.now();
        let mut inner = self.lock();
        let is_new = inner.known.insert(said.id.clone());
        if is_new || !manner.is_idempotent {
            inner.heard.push(Heard { at, said });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Courier for Platforms {
    async fn deliver(&self, outgoing: Outgoing) -> Result<Receipt, CourierError> {
        let channel = outgoing.channel.clone().unwrap_or_default();
        let Some(manner) = self.manners.get(&channel) else { return Err(CourierError::NoChannel(channel)) };
        let (number, Conduct { takes, mut answer }) = self.call();
        // One that drops what it has heard before does not refuse it.
        if manner.is_idempotent && self.lock().known.contains(&outgoing.id) && matches!(answer, Answer::Refuses(_)) {
            answer = Answer::Hears;
        }
        match takes {
            Duration::MAX => pending().await,
            takes => sleep(takes).await,
        }
        match answer {
            Answer::Hears => {
                self.hear(outgoing, manner);
                Ok(Receipt { message: Some(format!("p{number}")), channel, ..Receipt::default() })
            }
            Answer::Refuses(why) => {
                let at = self.clock.now();
                self.lock().refused.push(Heard { at, said: outgoing });
                Err(CourierError::Refused(why))
            }
            Answer::Busy(why, retry_after) => Err(CourierError::Unavailable { why, retry_after }),
            Answer::Loses(why) => {
                self.hear(outgoing, manner);
                Err(CourierError::Unknown(why))
            }
            Answer::Drops(why) => Err(CourierError::Unknown(why)),
            // Bypasses the panic hook, so that the test's output stays clean.
            Answer::Panics(text) => std::panic::resume_unwind(Box::new(text)),
        }
    }

    fn manner(&self, channel: &str) -> Option<Manner> {
        self.manners.get(channel).cloned()
    }

    fn recipient(&self, route: &Route) -> Result<Recipient, CourierError> {
        let channel = route.channel.clone().unwrap_or_default();
        let (account, id) = (route.account.clone().unwrap_or_default(), route.to.clone().unwrap_or_default());
        match self.manners.contains_key(&channel) {
            true => Ok(Recipient { channel, account, id, is_known: true }),
            false => Err(CourierError::NoChannel(channel)),
        }
    }
}
