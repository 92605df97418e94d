//! Receives events: keeps a session of the gateway alive across connections, and stores what it delivers.
//!
//! The gateway sends missed events again when a session is resumed, from the last one that was stored. If the session
//! is lost, the messages that were missed are fetched over HTTP, from the last stored message of each channel. A message
//! that arrives twice has the same id, by which the sink recognizes it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use reqwest::Url;
use serde_json::Value;
use tokio::{sync::mpsc, time::sleep};

use super::{
    BotIdentity, ConnectionTiming, Discord,
    api::ApiCallError,
    cursor::Cursor,
    gateway::{self, GatewayEnd, Login, random_fraction},
};
use crate::{
    Batch, ChannelError, ChannelEvent, ConnectionState, Sink,
    http::{RepeatEffect, RequestError},
    socket::MessageSocket,
};

/// Maximum number of events that wait for being stored. If there are more, the connection is closed and the session is
/// resumed later.
const MAX_WAITING: usize = 5000;

/// Time before a new session is started after the gateway ended one, and the random part of it.
const NEW_SESSION_DELAY: Duration = Duration::from_secs(1);
const NEW_SESSION_JITTER: Duration = Duration::from_secs(4);

/// The state of receiving, across connections.
pub(super) struct Receiver<'a> {
    pub(super) discord: &'a Discord,
    pub(super) me: &'a BotIdentity,
    pub(super) sink: &'a dyn Sink,
    pub(super) cursor: Cursor,
    backoff: Backoff,
    /// True if the connection was reported as down.
    is_down: bool,
}

/// Exponential backoff.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    timing: ConnectionTiming,
}

impl Backoff {
    pub(super) fn new(timing: ConnectionTiming) -> Self {
        Self { next: timing.initial_backoff, timing }
    }

    fn reset(&mut self) {
        self.next = self.timing.initial_backoff;
    }

    pub(super) fn next_delay(&mut self) -> Duration {
        let wait = self.next.min(self.timing.max_backoff);
        self.next = (wait * 2).min(self.timing.max_backoff);
        wait
    }
}

/// Receives until the bot is rejected.
pub(super) async fn run(discord: &Discord, cursor: Option<&str>, sink: &dyn Sink) -> ChannelError {
    let mut backoff = Backoff::new(discord.settings.timing);
    let me = loop {
        match discord.me().await {
            Ok(me) => break me,
            Err(error) => {
                if let Err(failure) = report_and_wait(&mut backoff, sink, error, "get the bot").await {
                    return failure;
                }
            }
        }
    };
    let cursor = Cursor::parse(cursor, &me.id);
    for (channel, user) in cursor.direct() {
        discord.directory().add_direct(channel, user);
    }
    let mut receiver = Receiver { discord, me, sink, cursor, backoff, is_down: true };
    loop {
        match receiver.connect().await {
            Ok(GatewayEnd::Final(failure)) | Err(failure) => return failure,
            Ok(GatewayEnd::Resume(why)) => {
                let wait = receiver.backoff.next_delay();
                receiver.wait(why, wait).await;
            }
            Ok(GatewayEnd::NewSession(why)) => {
                receiver.cursor.session = None;
                let jitter = NEW_SESSION_JITTER.mul_f64(random_fraction());
                let longest = discord.settings.timing.max_backoff;
                receiver.wait(why, (NEW_SESSION_DELAY + jitter).min(longest)).await;
            }
        }
    }
}

/// Reports a failed request and waits; returns an error if retrying is pointless.
async fn report_and_wait(
    backoff: &mut Backoff,
    sink: &dyn Sink,
    error: ApiCallError,
    operation: &str,
) -> Result<(), ChannelError> {
    let is_final = error.is_unauthorized();
    let wait = match &error {
        ApiCallError::RateLimited(wait) => Some(*wait),
        ApiCallError::NoResponse(_) | ApiCallError::Denied { .. } | ApiCallError::InvalidResponse(_) => None,
    };
    let failure = error.into_failure(operation, RepeatEffect::None);
    if is_final {
        return Err(failure);
    }
    let wait = wait.unwrap_or_else(|| backoff.next_delay());
    sink.report_state(ConnectionState::Down { why: failure.to_string(), wait });
    sleep(wait).await;
    Ok(())
}

impl Receiver<'_> {
    /// Runs one connection; an error ends receiving.
    async fn connect(&mut self) -> Result<GatewayEnd, ChannelError> {
        let address = match &self.cursor.session {
            Some(session) => session.url.clone(),
            None => match self.gateway_address().await? {
                Some(address) => address,
                None => return Ok(GatewayEnd::Resume("no session can be started now".to_owned())),
            },
        };
        let socket = match socket_url(&address) {
            Some(url) => MessageSocket::connect(self.discord.api.clients(), &url).await,
            None => Err(RequestError::Unsent("the gateway's address is not valid".to_owned())),
        };
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => {
                let why = ApiCallError::NoResponse(error).into_failure("connect to the gateway", RepeatEffect::None);
                // The address of a session may be gone with its server.
                if self.cursor.session.is_some() && self.backoff.next >= self.discord.settings.timing.max_backoff {
                    return Ok(GatewayEnd::NewSession(why.to_string()));
                }
                return Ok(GatewayEnd::Resume(why.to_string()));
            }
        };
        let session = self.cursor.session.clone();
        let stored = AtomicU64::new(session.as_ref().map_or(0, |session| session.sequence));
        let (sender, mut events) = mpsc::channel(MAX_WAITING);
        let discord = self.discord;
        let login = Login { token: discord.api.token(), session: session.as_ref(), stored: &stored };
        let connection = gateway::run(socket, login, sender);
        let storing = async {
            // Ends when the connection has ended and its events are stored.
            while let Some(dispatch) = events.recv().await {
                let sequence = dispatch.sequence;
                if let Err(failure) = self.apply(dispatch).await {
                    return Some(failure);
                }
                stored.store(sequence, Ordering::Relaxed);
            }
            None
        };
        tokio::pin!(connection, storing);
        tokio::select! {
            biased;
            end = &mut connection => match storing.await {
                Some(failure) => Err(failure),
                None => Ok(end),
            },
            failure = &mut storing => match failure {
                Some(failure) => Err(failure),
                None => Ok(connection.await),
            },
        }
    }

    /// Returns the address at which a new session starts; `None` if none may be started now, after a wait.
    async fn gateway_address(&mut self) -> Result<Option<String>, ChannelError> {
        match self.discord.api.get(&["gateway", "bot"], &[]).await {
            Ok(gateway) => {
                let limit = &gateway["session_start_limit"];
                if limit["remaining"] == 0 {
                    let wait = Duration::from_millis(limit["reset_after"].as_u64().unwrap_or(60_000));
                    self.wait("Discord: the daily limit of session starts is reached".to_owned(), wait).await;
                    return Ok(None);
                }
                Ok(Some(gateway["url"].as_str().unwrap_or_default().to_owned()))
            }
            Err(error) => {
                self.is_down = true;
                report_and_wait(&mut self.backoff, self.sink, error, "get the gateway").await?;
                Ok(None)
            }
        }
    }

    async fn wait(&mut self, why: String, wait: Duration) {
        self.is_down = true;
        self.sink.report_state(ConnectionState::Down { why, wait });
        sleep(wait).await;
    }

    pub(super) fn report_up(&mut self) {
        self.backoff.reset();
        if self.is_down {
            self.is_down = false;
            self.sink.report_state(ConnectionState::Up);
        }
    }

    /// Repeats a `GET` request until it is answered; `None` if what it asks for is not accessible. An error ends
    /// receiving.
    pub(super) async fn ask(
        &self,
        operation: &str,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Option<Value>, ChannelError> {
        let mut backoff = Backoff::new(self.discord.settings.timing);
        loop {
            let error = match self.discord.api.get(path, query).await {
                Ok(found) => return Ok(Some(found)),
                Err(error) => error,
            };
            if error.is_inaccessible() {
                tracing::debug!(account = self.discord.settings.account, operation, ?error, "not accessible");
                return Ok(None);
            }
            let is_final = error.is_unauthorized();
            let wait = match &error {
                ApiCallError::RateLimited(wait) => *wait,
                ApiCallError::NoResponse(_) | ApiCallError::Denied { .. } | ApiCallError::InvalidResponse(_) => {
                    backoff.next_delay()
                }
            };
            let failure = error.into_failure(operation, RepeatEffect::None);
            if is_final {
                return Err(failure);
            }
            tracing::warn!(account = self.discord.settings.account, %failure, "a request failed; retrying");
            sleep(wait).await;
        }
    }

    /// Stores an event with the position after it, however long that takes: nothing that follows may be stored before.
    pub(super) async fn store(&mut self, event: Option<ChannelEvent>) {
        let events: Vec<ChannelEvent> = event.into_iter().collect();
        let mut backoff = Backoff::new(self.discord.settings.timing);
        let mut has_failed = false;
        loop {
            let batch = Batch { events: events.clone(), cursor: self.cursor.encode() };
            match self.sink.store(batch).await {
                Ok(()) if has_failed => return self.sink.report_state(ConnectionState::Up),
                Ok(()) => return,
                Err(error) => {
                    let wait = backoff.next_delay();
                    has_failed = true;
                    self.sink.report_state(ConnectionState::Down { why: error.to_string(), wait });
                    sleep(wait).await;
                }
            }
        }
    }
}

/// Returns the address of the gateway with the version and the encoding.
fn socket_url(address: &str) -> Option<Url> {
    let mut url = Url::parse(address).ok()?;
    url.query_pairs_mut().clear().append_pair("v", "10").append_pair("encoding", "json");
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_names_the_version_and_the_encoding() {
        let url = socket_url("wss://gateway.discord.gg/?v=9").unwrap();
        assert_eq!(url.as_str(), "wss://gateway.discord.gg/?v=10&encoding=json");
        assert_eq!(socket_url("gateway"), None);
    }

    #[test]
    fn a_wait_doubles_up_to_a_bound_and_starts_again() {
        let timing = ConnectionTiming { initial_backoff: Duration::from_secs(1), max_backoff: Duration::from_secs(5) };
        let mut backoff = Backoff::new(timing);
        assert_eq!([(); 5].map(|()| backoff.next_delay().as_secs()), [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.next_delay().as_secs(), 1);
    }
}
