//! The envelope that shows a model where a message came from, in OpenClaw's format.

use jiff::{Timestamp, tz::TimeZone};

use crate::incoming::{Incoming, PeerKind};

/// Time zone of the date in an envelope.
#[derive(Debug, Clone, PartialEq)]
pub enum EnvelopeClock {
    /// This zone: `2026-11-15 16:41 CET`.
    Zone(TimeZone),
    /// UTC: `2026-11-15T15:41Z`.
    Utc,
    /// No date.
    None,
}

/// Content of the envelope besides the message.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvelopeStamp<'a> {
    /// Display name of the platform, such as `Telegram`.
    pub channel: &'a str,
    /// Time zone of the date.
    pub clock: EnvelopeClock,
    /// Time of the previous message in this session, in milliseconds; `None` omits the elapsed time.
    pub previous_ms: Option<u64>,
}

/// Puts a message into an envelope: `[Telegram Ann id:7 +5m 2026-11-15 16:41 CET] hello`.
///
/// `body` is the text or a substitute for it. Untrusted text, such as a name, can neither end the envelope nor begin a
/// line.
pub fn wrap(incoming: &Incoming, body: &str, stamp: &EnvelopeStamp<'_>) -> String {
    let body = match incoming.peer.kind {
        PeerKind::Direct | PeerKind::Channel => body.to_owned(),
        PeerKind::Group => format!("{}: {body}", sender(incoming)),
    };
    let elapsed = stamp.previous_ms.map(|previous| format_elapsed(incoming.timestamp_ms.saturating_sub(previous)));
    let parts = [Some(stamp.channel.to_owned()), Some(from(incoming)), elapsed, date(incoming, &stamp.clock)];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    format!("[{}] {body}", parts.join(" "))
}

/// Returns the display name of the sender.
pub fn sender(incoming: &Incoming) -> String {
    let sender = &incoming.sender;
    let label = [Some(sender.name.as_str()), sender.username.as_deref(), Some(sender.id.as_str())];
    label.into_iter().flatten().map(sanitise).find(|label| !label.is_empty()).unwrap_or_default()
}

/// Describes the chat: a person by name, a group by title and id.
fn from(incoming: &Incoming) -> String {
    let peer = &incoming.peer;
    match peer.kind {
        PeerKind::Direct => format!("{} id:{}", sender(incoming), sanitise(&incoming.sender.id)),
        PeerKind::Group | PeerKind::Channel => {
            let title = peer.title.as_deref().map(sanitise).filter(|title| !title.is_empty());
            let topic = incoming.thread.as_deref().map(|thread| format!(" topic:{}", sanitise(thread)));
            format!(
                "{} id:{}{}",
                title.unwrap_or_else(|| "group".to_owned()),
                sanitise(&peer.id),
                topic.unwrap_or_default()
            )
        }
    }
}

/// Sanitises untrusted text: one line, no brackets, limited length.
fn sanitise(text: &str) -> String {
    const LONGEST: usize = 80;
    let swapped = text.chars().map(|c| match c {
        '[' => '(',
        ']' => ')',
        c if c.is_control() || c.is_whitespace() => ' ',
        c => c,
    });
    let line: String = swapped.take(LONGEST).collect();
    line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Formats an elapsed time in its largest unit, rounded down.
fn format_elapsed(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("+{seconds}s"),
        60..3600 => format!("+{}m", seconds / 60),
        3600..86_400 => format!("+{}h", seconds / 3600),
        _ => format!("+{}d", seconds / 86_400),
    }
}

fn date(incoming: &Incoming, clock: &EnvelopeClock) -> Option<String> {
    let at = Timestamp::from_millisecond(i64::try_from(incoming.timestamp_ms).ok()?).ok()?;
    match clock {
        EnvelopeClock::Zone(zone) => Some(at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M %Z").to_string()),
        EnvelopeClock::Utc => Some(at.strftime("%Y-%m-%dT%H:%MZ").to_string()),
        EnvelopeClock::None => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz;
    use proptest::prelude::*;

    use super::*;
    use crate::incoming::{MessageSender, Peer};

    const AT: u64 = 1_794_758_460_000;

    fn said(kind: PeerKind, name: &str) -> Incoming {
        Incoming {
            peer: Peer { kind, id: "-100".to_owned(), title: Some("Family".to_owned()) },
            sender: MessageSender { id: "7".to_owned(), name: name.to_owned(), ..MessageSender::default() },
            timestamp_ms: AT,
            ..Incoming::default()
        }
    }

    fn stamp(clock: EnvelopeClock, elapsed: Option<u64>) -> EnvelopeStamp<'static> {
        EnvelopeStamp { channel: "Telegram", clock, previous_ms: elapsed.map(|elapsed| AT - elapsed) }
    }

    #[test]
    fn the_envelope_names_the_origin_of_a_message() {
        let zone = EnvelopeClock::Zone(TimeZone::fixed(tz::offset(2)));
        assert_eq!(
            wrap(&said(PeerKind::Direct, "Ann"), "hello", &stamp(zone, Some(359_999))),
            "[Telegram Ann id:7 +5m 2026-11-15 18:01 +02] hello"
        );
        let mut group = said(PeerKind::Group, "Ann");
        group.thread = Some("4".to_owned());
        assert_eq!(
            wrap(&group, "hello", &stamp(EnvelopeClock::Utc, None)),
            "[Telegram Family id:-100 topic:4 2026-11-15T16:01Z] Ann: hello"
        );
        group.peer.title = None;
        assert_eq!(
            wrap(&group, "hello", &stamp(EnvelopeClock::None, Some(0))),
            "[Telegram group id:-100 topic:4 +0s] Ann: hello"
        );
    }

    #[test]
    fn a_pause_is_shown_in_its_largest_unit() {
        assert_eq!(
            [0, 59_999, 60_000, 3_599_999, 3_600_000, 86_400_000, 864_000_000].map(format_elapsed),
            ["+0s", "+59s", "+1m", "+59m", "+1h", "+1d", "+10d"]
        );
    }

    proptest! {
        /// Whatever the name is: the first `]` ends the envelope, and it is on the first line.
        #[test]
        fn a_name_cannot_close_the_envelope(name in "\\PC{0,20}|[\\]\\[\n\r\u{2028} a]{0,20}") {
            let text = wrap(&said(PeerKind::Direct, &name), "body", &stamp(EnvelopeClock::None, None));
            let (header, body) = text.split_once(']').unwrap();
            prop_assert_eq!(body, " body");
            prop_assert!(!header.contains(['\n', '\r']) && header.ends_with(" id:7"));
        }
    }
}
