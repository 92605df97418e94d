//! Long polling: the next batch of updates is requested only after the previous one is stored.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    Me, Pace, Telegram,
    api::{Trouble, Twice},
    update,
};
use crate::{Batch, Failure, Note, Sink};

/// Maximum number of updates per batch.
const BATCH: usize = 100;

/// Time added to the long poll's duration for the request timeout.
const GRACE: Duration = Duration::from_secs(15);

/// Passes updates to the sink until the bot is rejected.
///
/// Telegram deletes an update when a later offset is requested, so the next request waits until the sink has stored the
/// batch and its cursor.
pub(super) async fn run(telegram: &Telegram, me: &Me, cursor: Option<&str>, sink: &dyn Sink) -> Failure {
    let pace = telegram.settings.pace;
    let mut offset = cursor.and_then(|cursor| parse(cursor, me));
    let mut backoff = Backoff::new(pace);
    let mut is_up = false;
    loop {
        // The first poll after a failure returns at once, so that the recovery is noticed soon.
        let hold = if is_up { pace.hold } else { Duration::ZERO };
        let params = json!({
            "offset": offset,
            "limit": BATCH,
            "timeout": hold.as_secs(),
            "allowed_updates": update::KINDS,
        });
        let asked = telegram.api.call_within(hold + GRACE, "getUpdates", &params).await;
        let batch = asked.and_then(|updates| read(updates, telegram, me));
        let trouble = match batch {
            Ok(None) => None,
            Ok(Some((batch, next))) => match sink.take(batch).await {
                Ok(()) => {
                    offset = Some(next);
                    None
                }
                Err(unstored) => {
                    is_up = false;
                    backoff.wait(sink, unstored.to_string()).await;
                    continue;
                }
            },
            Err(trouble) => Some(trouble),
        };
        match trouble {
            None if is_up => {}
            None => {
                is_up = true;
                backoff = Backoff::new(pace);
                sink.note(Note::Up);
            }
            Some(trouble) => {
                is_up = false;
                if let Err(failure) = backoff.bear(trouble, "getUpdates", sink).await {
                    return failure;
                }
            }
        }
    }
}

/// Parses a response: the events in order and the next offset; `None` if there are no updates.
fn read(updates: Value, telegram: &Telegram, me: &Me) -> Result<Option<(Batch, i64)>, Trouble> {
    let Value::Array(updates) = updates else { return Err(Trouble::Garbled(200)) };
    if updates.is_empty() {
        return Ok(None);
    }
    let numbered = updates.into_iter().filter_map(|update| Some((update::number(&update)?, update)));
    let mut numbered: Vec<(i64, Value)> = numbered.collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.dedup_by_key(|(number, _)| *number);
    // Not the highest number ever: after a week of inactivity Telegram may restart with a lower one.
    let next = numbered.last().and_then(|(number, _)| number.checked_add(1)).ok_or(Trouble::Garbled(200))?;
    let account = &telegram.settings.account;
    let events = numbered.iter().filter_map(|(_, update)| update::read(update, me, account)).collect();
    Ok(Some((Batch { events, cursor: Some(format!("{}:{next}", me.id)) }, next)))
}

/// Returns the offset in a cursor if it belongs to this bot: another bot's would skip updates.
fn parse(cursor: &str, me: &Me) -> Option<i64> {
    let (bot, number) = cursor.split_once(':')?;
    (bot == me.id.to_string()).then(|| number.parse().ok()).flatten()
}

/// Exponential backoff.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    most: Duration,
}

impl Backoff {
    pub(super) fn new(pace: Pace) -> Self {
        Self { next: pace.first_wait, most: pace.longest_wait }
    }

    /// Reports an error and waits; returns an error if retrying is pointless.
    pub(super) async fn bear(&mut self, trouble: Trouble, method: &str, sink: &dyn Sink) -> Result<(), Failure> {
        let is_rivalled = trouble.denied(409, "");
        let is_final = trouble.denied(401, "") || trouble.denied(404, "");
        let wait = match &trouble {
            Trouble::Flood(wait) => Some(*wait),
            Trouble::Lost(_) | Trouble::Denied { .. } | Trouble::Garbled(_) => None,
        };
        let failure = trouble.into_failure(method, Twice::Harmless);
        if is_final {
            return Err(failure);
        }
        let wait = wait.unwrap_or_else(|| self.longer());
        let why = failure.to_string();
        sink.note(if is_rivalled { Note::Rivalled { why, wait } } else { Note::Down { why, wait } });
        sleep(wait).await;
        Ok(())
    }

    async fn wait(&mut self, sink: &dyn Sink, why: String) {
        let wait = self.longer();
        sink.note(Note::Down { why, wait });
        sleep(wait).await;
    }

    fn longer(&mut self) -> Duration {
        let wait = self.next.min(self.most);
        self.next = (wait * 2).min(self.most);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_doubles_up_to_a_bound() {
        let pace =
            Pace { hold: Duration::ZERO, first_wait: Duration::from_secs(1), longest_wait: Duration::from_secs(5) };
        let mut backoff = Backoff::new(pace);
        assert_eq!([(); 5].map(|()| backoff.longer().as_secs()), [1, 2, 4, 5, 5]);
    }

    #[test]
    fn the_cursor_of_another_bot_is_worth_nothing() {
        let me = Me { id: 7, username: None, name: String::new(), reads_groups: true };
        assert_eq!(
            ["7:12", "8:12", "12", "7:x", ""].map(|cursor| parse(cursor, &me)),
            [Some(12), None, None, None, None]
        );
    }
}
