//! Long polling: the next batch of updates is requested only after the previous one is stored.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{BotIdentity, ConnectionTiming, Telegram, api::ApiCallError, target::params, update};
use crate::{Batch, ChannelError, ConnectionState, Sink, http::RepeatEffect};

/// Maximum number of updates per batch.
const MAX_BATCH: usize = 100;

/// Time added to the long poll's duration for the request timeout.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(15);

/// Passes updates to the sink until the bot is rejected.
///
/// Telegram deletes an update when a later offset is requested, so the next request waits until the sink has stored the
/// batch and its cursor.
pub(super) async fn run(telegram: &Telegram, me: &BotIdentity, cursor: Option<&str>, sink: &dyn Sink) -> ChannelError {
    let timing = telegram.settings.timing;
    let mut offset = cursor.and_then(|cursor| parse(cursor, me));
    let mut backoff = PollBackoff::new(timing);
    let mut is_up = false;
    loop {
        // The first poll after a failure returns at once, so that the recovery is noticed soon.
        let poll_timeout = if is_up { timing.poll_timeout } else { Duration::ZERO };
        let params = Value::Object(params([
            ("offset", json!(offset)),
            ("limit", json!(MAX_BATCH)),
            ("timeout", json!(poll_timeout.as_secs())),
            ("allowed_updates", json!(update::UPDATE_KINDS)),
        ]));
        let response = telegram.api.call_within(poll_timeout + TIMEOUT_MARGIN, "getUpdates", &params).await;
        let batch = response.and_then(|updates| read(updates, telegram, me));
        let error = match batch {
            Ok(None) => None,
            Ok(Some((batch, next))) => match sink.store(batch).await {
                Ok(()) => {
                    offset = Some(next);
                    None
                }
                Err(sink_error) => {
                    is_up = false;
                    backoff.wait(sink, sink_error.to_string()).await;
                    continue;
                }
            },
            Err(error) => Some(error),
        };
        match error {
            None if is_up => {}
            None => {
                is_up = true;
                backoff = PollBackoff::new(timing);
                sink.report_state(ConnectionState::Up);
            }
            Some(error) => {
                is_up = false;
                if let Err(failure) = backoff.report_and_wait(error, "getUpdates", sink).await {
                    return failure;
                }
            }
        }
    }
}

/// Parses a response: the events in order and the next offset; `None` if there are no updates.
fn read(updates: Value, telegram: &Telegram, me: &BotIdentity) -> Result<Option<(Batch, i64)>, ApiCallError> {
    let Value::Array(updates) = updates else { return Err(ApiCallError::InvalidResponse(200)) };
    if updates.is_empty() {
        return Ok(None);
    }
    let numbered = updates.into_iter().filter_map(|update| Some((update::update_id(&update)?, update)));
    let mut numbered: Vec<(i64, Value)> = numbered.collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.dedup_by_key(|(number, _)| *number);
    // Not the highest number ever: after a week of inactivity Telegram may restart with a lower one.
    let next =
        numbered.last().and_then(|(number, _)| number.checked_add(1)).ok_or(ApiCallError::InvalidResponse(200))?;
    let account = &telegram.settings.account;
    let events = numbered.iter().filter_map(|(_, update)| update::read(update, me, account)).collect();
    Ok(Some((Batch { events, cursor: Some(format!("{}:{next}", me.id)) }, next)))
}

/// Returns the offset in a cursor if it belongs to this bot: another bot's would skip updates.
fn parse(cursor: &str, me: &BotIdentity) -> Option<i64> {
    let (bot, number) = cursor.split_once(':')?;
    (bot == me.id.to_string()).then(|| number.parse().ok()).flatten()
}

/// Exponential backoff.
#[derive(Debug)]
pub(super) struct PollBackoff {
    next: Duration,
    max: Duration,
}

impl PollBackoff {
    pub(super) fn new(timing: ConnectionTiming) -> Self {
        Self { next: timing.initial_backoff, max: timing.max_backoff }
    }

    /// Reports an error and waits; returns an error if retrying is pointless.
    pub(super) async fn report_and_wait(
        &mut self,
        error: ApiCallError,
        method: &str,
        sink: &dyn Sink,
    ) -> Result<(), ChannelError> {
        let is_conflict = error.is_error(409, "");
        let is_final = error.is_invalid_token(method);
        let wait = match &error {
            ApiCallError::RateLimited(wait) => Some(*wait),
            ApiCallError::NoResponse(_) | ApiCallError::Denied { .. } | ApiCallError::InvalidResponse(_) => None,
        };
        let failure = error.into_failure(method, RepeatEffect::None);
        if is_final {
            return Err(failure);
        }
        let wait = wait.unwrap_or_else(|| self.next_delay());
        let reason = failure.to_string();
        sink.report_state(if is_conflict {
            ConnectionState::Conflict { why: reason, wait }
        } else {
            ConnectionState::Down { why: reason, wait }
        });
        sleep(wait).await;
        Ok(())
    }

    async fn wait(&mut self, sink: &dyn Sink, reason: String) {
        let wait = self.next_delay();
        sink.report_state(ConnectionState::Down { why: reason, wait });
        sleep(wait).await;
    }

    fn next_delay(&mut self) -> Duration {
        let wait = self.next.min(self.max);
        self.next = (wait * 2).min(self.max);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_doubles_up_to_a_bound() {
        let timing = ConnectionTiming {
            poll_timeout: Duration::ZERO,
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(5),
        };
        let mut backoff = PollBackoff::new(timing);
        assert_eq!([(); 5].map(|()| backoff.next_delay().as_secs()), [1, 2, 4, 5, 5]);
    }

    #[test]
    fn the_cursor_of_another_bot_is_ignored() {
        let me = BotIdentity { id: 7, username: None, name: String::new(), can_read_groups: true };
        assert_eq!(
            ["7:12", "8:12", "12", "7:x", ""].map(|cursor| parse(cursor, &me)),
            [Some(12), None, None, None, None]
        );
    }
}
