//! One connection to Discord's gateway: the handshake, heartbeats, and the events that it delivers.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{Sender, error::TrySendError},
    time::{Instant, sleep_until, timeout},
};

use super::cursor::GatewaySession;
use crate::{
    ChannelError, Secret,
    socket::{MessageSocket, SocketEvent},
};

/// Time within which the gateway sends its first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);

/// Bounds of the time between two heartbeats.
const MIN_HEARTBEAT: Duration = Duration::from_millis(10);
const MAX_HEARTBEAT: Duration = Duration::from_secs(300);

/// Events that are requested: servers, messages and reactions there, direct messages and reactions there, and the text
/// of messages, which is a privileged intent.
pub(super) const INTENTS: u64 = 1 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 13 | MESSAGE_CONTENT;

/// The privileged intent for the text of messages.
const MESSAGE_CONTENT: u64 = 1 << 15;

/// Close code with which the session stays alive for being resumed. Normal codes would end it.
const KEEP_SESSION: u16 = 4000;

/// Operation codes.
mod op {
    pub(super) const DISPATCH: u64 = 0;
    pub(super) const HEARTBEAT: u64 = 1;
    pub(super) const IDENTIFY: u64 = 2;
    pub(super) const RESUME: u64 = 6;
    pub(super) const RECONNECT: u64 = 7;
    pub(super) const INVALID_SESSION: u64 = 9;
    pub(super) const HELLO: u64 = 10;
    pub(super) const HEARTBEAT_ACK: u64 = 11;
}

/// An event.
#[derive(Debug)]
pub(super) struct Dispatch {
    /// Its number in the session.
    pub(super) sequence: u64,
    /// Its name.
    pub(super) name: String,
    /// Its content.
    pub(super) data: Value,
}

/// Why a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GatewayEnd {
    /// The session can be resumed.
    Resume(String),
    /// A new session is needed.
    NewSession(String),
    /// Connecting again is pointless until the configuration is changed.
    Final(ChannelError),
}

/// How a connection starts.
#[derive(Debug)]
pub(super) struct Login<'a> {
    pub(super) token: &'a Secret,
    /// The session to resume.
    pub(super) session: Option<&'a GatewaySession>,
    /// Number of the last event that was stored.
    pub(super) stored: &'a AtomicU64,
}

/// Passes events on until the connection ends.
pub(super) async fn run(mut socket: MessageSocket, login: Login<'_>, events: Sender<Dispatch>) -> GatewayEnd {
    let interval = match timeout(HELLO_TIMEOUT, socket.next()).await {
        Ok(SocketEvent::Text(text)) => match heartbeat_interval(&text) {
            Some(interval) => interval,
            None => return GatewayEnd::Resume("the gateway's first message is not a hello".to_owned()),
        },
        Ok(SocketEvent::Closed { code, why }) => return closed(code, &why),
        Err(_elapsed) => return GatewayEnd::Resume("the gateway sent nothing".to_owned()),
    };
    if let Err(why) = socket.send(login.message().to_string()).await {
        return GatewayEnd::Resume(why);
    }
    let end = exchange(&mut socket, &login, interval, &events).await;
    if !matches!(end, GatewayEnd::Final(_)) {
        socket.close(KEEP_SESSION).await;
    }
    end
}

/// Sends heartbeats and receives events until the connection ends.
async fn exchange(
    socket: &mut MessageSocket,
    login: &Login<'_>,
    interval: Duration,
    events: &Sender<Dispatch>,
) -> GatewayEnd {
    // At a random time within the first interval, so that many clients do not send at once.
    let mut next_beat = Instant::now() + interval.mul_f64(random_fraction());
    let mut is_acknowledged = true;
    loop {
        let received = tokio::select! {
            biased;
            () = sleep_until(next_beat) => {
                if !is_acknowledged {
                    return GatewayEnd::Resume("the gateway did not acknowledge a heartbeat".to_owned());
                }
                if let Err(why) = socket.send(login.heartbeat()).await {
                    return GatewayEnd::Resume(why);
                }
                (is_acknowledged, next_beat) = (false, Instant::now() + interval);
                continue;
            }
            received = socket.next() => received,
        };
        let text = match received {
            SocketEvent::Text(text) => text,
            SocketEvent::Closed { code, why } => return closed(code, &why),
        };
        let Ok(mut message) = serde_json::from_str::<Value>(&text) else {
            return GatewayEnd::Resume("the gateway sent something that is not JSON".to_owned());
        };
        match message["op"].as_u64() {
            Some(op::DISPATCH) => {
                let (Some(sequence), Some(name)) = (message["s"].as_u64(), message["t"].as_str()) else { continue };
                let (name, data) = (name.to_owned(), message["d"].take());
                match events.try_send(Dispatch { sequence, name, data }) {
                    Ok(()) => {}
                    // They are sent again when the session is resumed.
                    Err(TrySendError::Full(_)) => {
                        return GatewayEnd::Resume("events arrive faster than they can be stored".to_owned());
                    }
                    Err(TrySendError::Closed(_)) => return GatewayEnd::Resume("receiving has ended".to_owned()),
                }
            }
            Some(op::HEARTBEAT) => {
                if let Err(why) = socket.send(login.heartbeat()).await {
                    return GatewayEnd::Resume(why);
                }
            }
            Some(op::HEARTBEAT_ACK) => is_acknowledged = true,
            Some(op::RECONNECT) => return GatewayEnd::Resume("the gateway asked to reconnect".to_owned()),
            Some(op::INVALID_SESSION) if message["d"] == true => {
                return GatewayEnd::Resume("the gateway asked to resume the session again".to_owned());
            }
            Some(op::INVALID_SESSION) => {
                return GatewayEnd::NewSession("the gateway ended the session".to_owned());
            }
            Some(_) | None => {}
        }
    }
}

impl Login<'_> {
    /// Returns the message that starts or resumes a session.
    fn message(&self) -> Value {
        match self.session {
            Some(session) => json!({
                "op": op::RESUME,
                "d": {"token": self.token.expose(), "session_id": session.id, "seq": session.sequence},
            }),
            None => json!({
                "op": op::IDENTIFY,
                "d": {
                    "token": self.token.expose(),
                    "intents": INTENTS,
                    "properties": {"os": std::env::consts::OS, "browser": "homard", "device": "homard"},
                },
            }),
        }
    }

    /// Returns a heartbeat. It names the last event that was stored, not the last one that was received, so that the
    /// gateway keeps the others for a resumed session.
    fn heartbeat(&self) -> String {
        let stored = self.stored.load(Ordering::Relaxed);
        json!({"op": op::HEARTBEAT, "d": (stored > 0).then_some(stored)}).to_string()
    }
}

fn heartbeat_interval(text: &str) -> Option<Duration> {
    let hello: Value = serde_json::from_str(text).ok()?;
    let interval = hello["d"]["heartbeat_interval"].as_f64().filter(|_| hello["op"] == op::HELLO)?;
    let interval = Duration::try_from_secs_f64(interval / 1000.0).ok()?;
    Some(interval.clamp(MIN_HEARTBEAT, MAX_HEARTBEAT))
}

/// Returns what follows from the close of a connection.
fn closed(code: Option<u16>, why: &str) -> GatewayEnd {
    let refused = |why: &str| GatewayEnd::Final(ChannelError::Refused(format!("Discord: {why}")));
    let text = match code {
        Some(code) => format!("the gateway closed the connection: {why} ({code})"),
        None => format!("the connection to the gateway ended: {why}"),
    };
    match code {
        Some(4004) => refused(
            "the bot token is not valid: reset it on the page Bot of the Discord Developer Portal and set \
             channels.discord.token",
        ),
        Some(4010 | 4011) => refused("the bot is in too many servers for one connection; sharding is not supported"),
        Some(4012) => refused("the gateway does not support version 10 of the API any more; update Homard"),
        Some(4013) => refused("the gateway rejected the requested intents; update Homard"),
        Some(4014) => refused(
            "enable the Message Content Intent: in the Discord Developer Portal, on the page Bot of your application, \
             below Privileged Gateway Intents; then restart the gateway or wait five minutes",
        ),
        // Not authenticated, invalid sequence, session timed out.
        Some(4003 | 4007 | 4009) => GatewayEnd::NewSession(text),
        Some(_) | None => GatewayEnd::Resume(text),
    }
}

/// Returns a number from 0 to below 1, different in each call.
pub(super) fn random_fraction() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_code_says_how_to_continue() {
        for code in [None, Some(1000), Some(1006), Some(4000), Some(4001), Some(4008)] {
            assert!(matches!(closed(code, "x"), GatewayEnd::Resume(_)), "{code:?}");
        }
        for code in [4003, 4007, 4009] {
            assert!(matches!(closed(Some(code), "x"), GatewayEnd::NewSession(_)), "{code}");
        }
        for (code, remedy) in [
            (4004, "channels.discord.token"),
            (4014, "enable the Message Content Intent"),
            (4013, "update"),
            (4011, "sharding"),
        ] {
            let GatewayEnd::Final(ChannelError::Refused(why)) = closed(Some(code), "x") else { panic!("{code}") };
            assert!(why.contains(remedy), "{why}");
        }
    }

    #[test]
    fn a_heartbeat_names_the_last_stored_event() {
        let (token, stored) = (Secret::from("t"), AtomicU64::new(0));
        let login = Login { token: &token, session: None, stored: &stored };
        let heartbeat = || serde_json::from_str::<Value>(&login.heartbeat()).unwrap();
        assert_eq!(heartbeat(), json!({"op": 1, "d": null}));
        stored.store(7, Ordering::Relaxed);
        assert_eq!(heartbeat(), json!({"op": 1, "d": 7}));
        assert_eq!(login.message()["op"], 2);
        let session = GatewaySession { id: "s".to_owned(), url: String::new(), sequence: 7 };
        let login = Login { session: Some(&session), ..login };
        assert_eq!(login.message(), json!({"op": 6, "d": {"token": "t", "session_id": "s", "seq": 7}}));
    }

    #[test]
    fn a_first_message_that_is_no_hello_is_rejected() {
        let interval = |text| heartbeat_interval(text).map(|interval| interval.as_millis());
        assert_eq!(interval(r#"{"op": 10, "d": {"heartbeat_interval": 41250}}"#), Some(41250));
        assert_eq!(interval(r#"{"op": 10, "d": {"heartbeat_interval": 0}}"#), Some(10));
        for text in ["", "{}", r#"{"op": 1}"#, r#"{"op": 10, "d": {"heartbeat_interval": -1}}"#] {
            assert_eq!(interval(text), None, "{text}");
        }
        assert!((0..100).map(|_| random_fraction()).all(|fraction| (0.0..1.0).contains(&fraction)));
    }
}
