//! Test support: a recording sink, and configured channels.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use homard_channels::{
    Batch, ChannelEvent, ConnectionState, Destination, HttpClients, Incoming, Outgoing, Secret, Sink, SinkError,
    telegram::{self, ConnectionTiming, Telegram},
    webhook::{self, Webhook},
};
use homard_testkit::{FakeTelegram, FakeWebhook, fake_telegram};
use tokio::sync::watch;

/// Shared secret of the webhook tests.
pub(crate) const SECRET: &str = "a secret of the tests";
/// The current time.
pub(crate) const NOW: u64 = 1_700_000_000_000;

/// A sink that records what it receives, and fails on demand.
#[derive(Debug)]
pub(crate) struct RecordingSink {
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    events: Vec<ChannelEvent>,
    cursor: Option<String>,
    notes: Vec<ConnectionState>,
    refusals: usize,
}

impl Default for RecordingSink {
    fn default() -> Self {
        Self { inner: Mutex::default(), changes: watch::channel(0).0 }
    }
}

impl RecordingSink {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(crate) fn refuse(&self, times: usize) {
        self.lock().refusals = times;
    }

    pub(crate) fn cursor(&self) -> Option<String> {
        self.lock().cursor.clone()
    }

    pub(crate) fn notes(&self) -> Vec<ConnectionState> {
        self.lock().notes.clone()
    }

    pub(crate) fn events(&self) -> Vec<ChannelEvent> {
        self.lock().events.clone()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.lock().events.iter().map(|event| event.id().to_owned()).collect()
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.messages().into_iter().map(|incoming| incoming.text).collect()
    }

    pub(crate) fn messages(&self) -> Vec<Incoming> {
        let inner = self.lock();
        let message = |event: &ChannelEvent| match event {
            ChannelEvent::Message(incoming) | ChannelEvent::Edited(incoming) => Some((**incoming).clone()),
            ChannelEvent::Reacted(_) | ChannelEvent::Membership(_) => None,
        };
        inner.events.iter().filter_map(message).collect()
    }

    /// Waits until a condition is true.
    pub(crate) async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let mut changes = self.changes.subscribe();
        while !condition(self) {
            changes.changed().await.unwrap();
        }
    }
}

#[async_trait]
impl Sink for RecordingSink {
    async fn store(&self, batch: Batch) -> Result<(), SinkError> {
        {
            let mut inner = self.lock();
            if inner.refusals > 0 {
                inner.refusals -= 1;
                return Err(SinkError("the disk is full".to_owned()));
            }
            inner.events.extend(batch.events);
            inner.cursor = batch.cursor.or(inner.cursor.take());
        }
        self.changes.send_modify(|version| *version += 1);
        Ok(())
    }

    fn report_state(&self, note: ConnectionState) {
        self.lock().notes.push(note);
        self.changes.send_modify(|version| *version += 1);
    }
}

/// A bot with short delays.
pub(crate) fn telegram_at(root: String) -> telegram::Settings {
    let mut settings = telegram::Settings::new("main", Secret::from(fake_telegram::TOKEN));
    settings.root = root;
    settings.timing = ConnectionTiming {
        poll_timeout: Duration::from_secs(20),
        initial_backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(4),
    };
    settings
}

pub(crate) fn bot(fake: &FakeTelegram) -> Telegram {
    Telegram::new(HttpClients::default(), telegram_at(fake.root())).unwrap()
}

pub(crate) fn webhook_at(url: String) -> Webhook {
    let mut settings = webhook::Settings::new("door", Secret::from(SECRET), Some(url));
    settings.timeout = Duration::from_millis(300);
    Webhook::new(HttpClients::default(), settings, Box::new(|| NOW)).unwrap()
}

pub(crate) fn peer(fake: &FakeWebhook) -> Webhook {
    webhook_at(fake.url())
}

pub(crate) fn text_message(id: &str, to: &str, text: &str) -> Outgoing {
    let destination = Destination { to: to.to_owned(), thread: None };
    Outgoing { id: id.to_owned(), destination, text: text.to_owned(), ..Outgoing::default() }
}
