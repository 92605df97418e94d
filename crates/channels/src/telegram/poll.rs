//! Long polling: updates are asked for one batch after the other, and a batch is asked away only when it is stored.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    Me, Pace, Telegram,
    api::{Trouble, Twice},
    update,
};
use crate::{Batch, Failure, Note, Sink};

/// How many updates come at once at most.
const BATCH: usize = 100;

/// How much longer than the question is left open we wait for its answer.
const GRACE: Duration = Duration::from_secs(15);

/// Hands updates to the sink until the bot is not wanted any more.
///
/// Telegram forgets an update when one after it is asked for, so the next question waits until the sink has stored the
/// batch and the cursor.
pub(super) async fn run(telegram: &Telegram, me: &Me, cursor: Option<&str>, sink: &dyn Sink) -> Failure {
    let pace = telegram.settings.pace;
    let mut offset = cursor.and_then(|cursor| parse(cursor, me));
    let mut backoff = Backoff::new(pace);
    let mut is_up = false;
    loop {
        // The first answer after a failure comes at once, so that it is known soon whether all is well.
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

/// The events of an answer in the order in which they happened, and the number to ask for next; none if nothing happened.
fn read(updates: Value, telegram: &Telegram, me: &Me) -> Result<Option<(Batch, i64)>, Trouble> {
    let Value::Array(updates) = updates else { return Err(Trouble::Garbled(200)) };
    if updates.is_empty() {
        return Ok(None);
    }
    let numbered = updates.into_iter().filter_map(|update| Some((update::number(&update)?, update)));
    let mut numbered: Vec<(i64, Value)> = numbered.collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.dedup_by_key(|(number, _)| *number);
    // Not the highest number ever: after a week of silence Telegram may begin anew with a lower one.
    let next = numbered.last().and_then(|(number, _)| number.checked_add(1)).ok_or(Trouble::Garbled(200))?;
    let account = &telegram.settings.account;
    let events = numbered.iter().filter_map(|(_, update)| update::read(update, me, account)).collect();
    Ok(Some((Batch { events, cursor: Some(format!("{}:{next}", me.id)) }, next)))
}

/// The number in a cursor, if it is this bot's: the numbers of another would hide updates.
fn parse(cursor: &str, me: &Me) -> Option<i64> {
    let (bot, number) = cursor.split_once(':')?;
    (bot == me.id.to_string()).then(|| number.parse().ok()).flatten()
}

/// Waits longer after each failure.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    most: Duration,
}

impl Backoff {
    pub(super) fn new(pace: Pace) -> Self {
        Self { next: pace.first_wait, most: pace.longest_wait }
    }

    /// Tells of a trouble and waits; an error if waiting does not help.
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
