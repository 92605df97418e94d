//! Timestamps of user messages, as sent to a model.
//!
//! They are derived from the message's own timestamp whenever a request is built, and never stored in its text: people
//! see only their own text, and a model reads the same bytes every time.

use std::sync::Arc;

use homard_proto::message::{Block, Content, Message, User};
use jiff::{Timestamp, tz::TimeZone};

/// Formats the timestamp prefix of a message, such as `[Sun 2026-11-15 10:36 CET] `; `None` without a time, or for a
/// time outside the calendar.
pub fn stamp(timestamp: u64, zone: &TimeZone) -> Option<String> {
    let timestamp = i64::try_from(timestamp).ok().filter(|timestamp| *timestamp > 0)?;
    let timestamp = Timestamp::from_millisecond(timestamp).ok()?.to_zoned(zone.clone());
    Some(timestamp.strftime("[%a %Y-%m-%d %H:%M %Z] ").to_string())
}

/// Adds the timestamps. Called before [`insert_notes`](super::notes::insert_notes), so that a timestamp precedes the
/// text written at that time.
pub(crate) fn with_times(messages: Vec<Arc<Message>>, zone: &TimeZone) -> Vec<Arc<Message>> {
    messages.into_iter().map(|message| with_time(&message, zone).map_or(message, Arc::new)).collect()
}

fn with_time(message: &Message, zone: &TimeZone) -> Option<Message> {
    let Message::User(user) = message else { return None };
    let stamp = stamp(user.timestamp, zone)?;
    let content = match &user.content {
        Content::Text(text) => Content::Text(prepend_stamp(&stamp, text)?),
        Content::Blocks(blocks) => {
            let mut blocks = blocks.clone();
            match blocks.iter_mut().find_map(text_mut) {
                Some(text) => *text = prepend_stamp(&stamp, text)?,
                None => blocks.insert(0, Block::text(stamp.trim_end())),
            }
            Content::Blocks(blocks)
        }
    };
    Some(Message::User(User { content, timestamp: user.timestamp, extra: user.extra.clone() }))
}

fn text_mut(block: &mut Block) -> Option<&mut String> {
    match block {
        Block::Text(block) => Some(&mut block.text),
        Block::Image(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
    }
}

/// Prepends the timestamp, unless the text has one.
fn prepend_stamp(stamp: &str, text: &str) -> Option<String> {
    (!has_time(text)).then(|| format!("{stamp}{text}"))
}

/// True if a text begins with an envelope that contains a time: `[… 2026-11-15 10:36 …]`.
fn has_time(text: &str) -> bool {
    let line = text.trim_start().lines().next().unwrap_or_default();
    let Some((envelope, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) else { return false };
    let is_time = |window: &[u8]| {
        window.iter().zip(b"0000-00-00 00:00").all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            _ => byte == shape,
        })
    };
    envelope.as_bytes().windows(16).any(is_time)
}

/// Formats the line with the current time.
pub fn clock_line(now: u64, zone: &TimeZone) -> String {
    let time = i64::try_from(now).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX);
    let zone_name = zone.iana_name().map(|name| format!(" ({name})")).unwrap_or_default();
    format!("Current time: {}{zone_name}", time.to_zoned(zone.clone()).strftime("%A, %Y-%m-%d %H:%M %:z"))
}

#[cfg(test)]
mod tests {
    use homard_proto::message::{Assistant, ImageBlock};
    use proptest::prelude::*;

    use super::*;

    /// Sunday, 15 November 2026, 09:36 UTC.
    const AT: u64 = 1_794_735_360_000;

    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    fn user(content: Content, timestamp: u64) -> Arc<Message> {
        Arc::new(Message::User(User { content, ..User::text("", timestamp) }))
    }

    fn text(content: &str, timestamp: u64) -> Arc<Message> {
        user(Content::Text(content.to_owned()), timestamp)
    }

    #[test]
    fn a_timestamp_uses_the_time_zone_of_the_user() {
        assert_eq!(stamp(AT, &berlin()).as_deref(), Some("[Sun 2026-11-15 10:36 CET] "));
        assert_eq!(stamp(AT, &TimeZone::UTC).as_deref(), Some("[Sun 2026-11-15 09:36 UTC] "));
        let summer = AT - 120 * 24 * 60 * 60 * 1_000;
        assert_eq!(stamp(summer, &berlin()).as_deref(), Some("[Sat 2026-07-18 11:36 CEST] "));
        let unnamed = TimeZone::fixed(jiff::tz::offset(-3));
        assert_eq!(stamp(AT, &unnamed).as_deref(), Some("[Sun 2026-11-15 06:36 -03] "));
    }

    #[test]
    fn there_is_no_timestamp_without_a_time() {
        assert_eq!([0, u64::MAX, i64::MAX as u64].map(|at| stamp(at, &TimeZone::UTC)), [None, None, None]);
    }

    #[test]
    fn user_messages_get_timestamps() {
        let image = || Block::Image(ImageBlock { data: "AA==".to_owned(), ..ImageBlock::default() });
        let assistant = Arc::new(Message::Assistant(Assistant { timestamp: AT, ..Assistant::default() }));
        let stamped = with_times(
            vec![
                text("hi", AT),
                assistant.clone(),
                text("no time", 0),
                user(Content::Blocks(vec![image(), Block::text("look")]), AT),
                user(Content::Blocks(vec![image()]), AT),
            ],
            &berlin(),
        );
        let expected = [
            text("[Sun 2026-11-15 10:36 CET] hi", AT),
            assistant,
            text("no time", 0),
            user(Content::Blocks(vec![image(), Block::text("[Sun 2026-11-15 10:36 CET] look")]), AT),
            user(Content::Blocks(vec![Block::text("[Sun 2026-11-15 10:36 CET]"), image()]), AT),
        ];
        assert_eq!(stamped, expected);
    }

    #[test]
    fn text_with_a_timestamp_gets_no_second_one() {
        for content in
            ["[Sun 2026-11-15 10:36 CET] hi", " [Telegram Ann +5m 2020-01-02 03:04 UTC] hi", "[2020-01-02 03:04]"]
        {
            assert_eq!(with_times(vec![text(content, AT)], &berlin()), [text(content, AT)]);
        }
        for content in [
            "[note] 2020-01-02 03:04",
            "2020-01-02 03:04",
            "[2020-01-02]",
            "[2020-01-02 03:04",
            "[x\n2020-01-02 03:04]",
        ] {
            let expected = text(&format!("[Sun 2026-11-15 10:36 CET] {content}"), AT);
            assert_eq!(with_times(vec![text(content, AT)], &berlin()), [expected]);
        }
    }

    proptest! {
        #[test]
        fn adding_timestamps_is_idempotent(content in "\\PC*", at in any::<u64>()) {
            let once = with_times(vec![text(&content, at)], &berlin());
            prop_assert_eq!(with_times(once.clone(), &berlin()), once);
        }
    }
}
