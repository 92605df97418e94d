//! Pairing: unknown senders get a code that the owner approves. Stored in OpenClaw's files.
//!
//! The rules are pure; [`PairingStore`] stores the state in `credentials/<channel>-pairing.json` and
//! `<channel>-allowFrom.json`. A file that cannot be read is never overwritten, and admits no sender.

mod store;

use std::collections::BTreeMap;

use homard_proto::{ChannelAccount, Identity, identity::DEFAULT_ACCOUNT};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use store::{Error, PairingApplicant, PairingStore};

/// Maximum number of pending requests per channel. When exceeded, a new one replaces the oldest.
pub const MAX_PENDING: usize = 16;

/// Time during which a request cannot be replaced, in milliseconds.
const PROTECTED_MS: u64 = 2 * 60 * 1000;

/// Lifetime of a request in milliseconds.
pub const TTL_MS: u64 = 60 * 60 * 1000;

/// Letters and digits that are hard to confuse; 32 of them, for five bits each.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// Length of a code in characters.
const CODE_LENGTH: usize = 8;

/// Maximum number of draws to find a code that is not in use.
const MAX_DRAWS: usize = 16;

/// Content of the file of pending requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PairingRequests {
    version: u32,
    #[serde(default)]
    requests: Vec<PairingRequest>,
}

impl Default for PairingRequests {
    fn default() -> Self {
        Self { version: 1, requests: Vec::new() }
    }
}

/// A pairing request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PairingRequest {
    /// Id of the sender on the channel.
    pub id: String,
    /// Account that received the message; absent for the default one, as in OpenClaw's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// Pairing code.
    pub code: String,
    /// Time of the first message.
    #[serde(with = "iso")]
    pub created_at: Timestamp,
    /// Time of the last message.
    #[serde(with = "iso")]
    pub last_seen_at: Timestamp,
    /// Further data about the sender.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub meta: Map<String, Value>,
}

impl PairingRequest {
    /// Returns the account that received the message.
    pub fn account(&self) -> &str {
        self.account_id.as_deref().unwrap_or(DEFAULT_ACCOUNT)
    }

    /// Age of the request in milliseconds.
    fn age_ms(&self, now: Timestamp) -> u64 {
        u64::try_from(now.as_millisecond().saturating_sub(self.created_at.as_millisecond())).unwrap_or(0)
    }
}

/// Serialises timestamps in JavaScript's format.
mod iso {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Result of a pairing request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairingOutcome {
    /// The request is new; the sender is sent this code.
    New(String),
    /// The request is pending already, with this code.
    Waiting(String),
    /// Too many recent requests; nothing is sent.
    Full,
}

impl PairingRequests {
    /// Adds a request. `draw` returns random bytes.
    fn add(
        &mut self,
        sender: &Identity,
        meta: Map<String, Value>,
        now: Timestamp,
        draw: impl FnMut() -> [u8; CODE_LENGTH],
    ) -> PairingOutcome {
        self.expire(now);
        let (account, id) = (sender.account(), sender.id());
        if let Some(request) =
            self.requests.iter_mut().find(|request| (request.account(), request.id.as_str()) == (account, id))
        {
            // Updated at most once a minute, to avoid a write for every message.
            if now.as_second() - request.last_seen_at.as_second() >= 60 {
                request.last_seen_at = now;
            }
            return PairingOutcome::Waiting(request.code.clone());
        }
        if self.requests.len() >= MAX_PENDING && !self.evict_oldest(now) {
            return PairingOutcome::Full;
        }
        let mut codes = std::iter::repeat_with(draw).take(MAX_DRAWS).map(code);
        let is_free = |code: &String| self.requests.iter().all(|request| request.code != *code);
        let Some(code) = codes.find(is_free) else { return PairingOutcome::Full };
        self.requests.push(PairingRequest {
            id: id.to_owned(),
            account_id: Some(account).filter(|account| *account != DEFAULT_ACCOUNT).map(str::to_owned),
            code: code.clone(),
            created_at: now,
            last_seen_at: now,
            meta,
        });
        PairingOutcome::New(code)
    }

    /// Removes and returns the request with a code.
    fn take(&mut self, code: &str, now: Timestamp) -> Option<PairingRequest> {
        self.expire(now);
        let code = code.trim().to_ascii_uppercase();
        let at = self.requests.iter().position(|request| request.code == code)?;
        Some(self.requests.remove(at))
    }

    fn expire(&mut self, now: Timestamp) {
        self.requests.retain(|request| request.age_ms(now) < TTL_MS);
    }

    /// Removes the oldest request; `false` if it is too recent.
    fn evict_oldest(&mut self, now: Timestamp) -> bool {
        let oldest = (0..self.requests.len()).min_by_key(|at| self.requests[*at].created_at);
        match oldest.filter(|at| self.requests[*at].age_ms(now) >= PROTECTED_MS) {
            Some(at) => {
                self.requests.remove(at);
                true
            }
            None => false,
        }
    }
}

fn code(bytes: [u8; CODE_LENGTH]) -> String {
    bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
}

/// Content of the file of approved senders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApprovedSenders {
    version: u32,
    /// Ids for the default account; in older files, ids for all accounts.
    #[serde(default)]
    allow_from: Vec<String>,
    /// Ids for the other accounts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    accounts: BTreeMap<String, Vec<String>>,
}

impl Default for ApprovedSenders {
    fn default() -> Self {
        Self { version: 1, allow_from: Vec::new(), accounts: BTreeMap::new() }
    }
}

impl ApprovedSenders {
    /// Returns the ids of an account for modification.
    fn of_account(&mut self, account: &str) -> &mut Vec<String> {
        if account == DEFAULT_ACCOUNT {
            &mut self.allow_from
        } else {
            self.accounts.entry(account.to_owned()).or_default()
        }
    }

    /// Returns the senders approved for an account.
    fn senders(&self, at: &ChannelAccount) -> Vec<Identity> {
        let unnamed = self.allow_from.iter().filter(|_| at.matches_without_account());
        let of_account = self.accounts.get(at.account()).into_iter().flatten();
        unnamed.chain(of_account).filter(|id| !id.is_empty()).map(|id| at.sender(id)).collect()
    }

    /// Removes an id from all accounts; `false` if none had it.
    fn remove(&mut self, id: &str) -> bool {
        let mut was_in = false;
        for ids in self.accounts.values_mut().chain([&mut self.allow_from]) {
            let before = ids.len();
            ids.retain(|entry| entry != id);
            was_in |= ids.len() < before;
        }
        self.accounts.retain(|_, ids| !ids.is_empty());
        was_in
    }
}

/// Message that is sent to an unknown sender, once.
pub fn pairing_message(channel: &str, id_label: &str, id: &str, code: &str) -> String {
    format!(
        "This assistant does not know you yet.\n\n{id_label}: {id}\nPairing code: {code}\n\nAsk its owner to approve \
         you with:\nhomard pairing approve {channel} {code}"
    )
}

#[cfg(test)]
mod tests {
    use homard_proto::IdIssuer;
    use proptest::prelude::*;

    use super::*;

    fn sender(account: &str, id: &str) -> Identity {
        ChannelAccount::new("telegram", account, IdIssuer::Platform, false).sender(id)
    }

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_794_000_000 + 60 * minutes).unwrap()
    }

    #[test]
    fn an_unknown_sender_gets_one_code_per_hour() {
        let mut requests = PairingRequests::default();
        let request_pairing = |requests: &mut PairingRequests, id: &str, minutes, byte| {
            requests.add(&sender("default", id), Map::new(), at(minutes), || [byte; 8])
        };
        assert_eq!(request_pairing(&mut requests, "7", 0, 0), PairingOutcome::New("AAAAAAAA".to_owned()));
        assert_eq!(request_pairing(&mut requests, "7", 59, 1), PairingOutcome::Waiting("AAAAAAAA".to_owned()));
        assert_eq!(requests.requests[0].last_seen_at, at(59));
        assert_eq!(request_pairing(&mut requests, "7", 60, 31), PairingOutcome::New("99999999".to_owned()));
    }

    #[test]
    fn a_flood_of_requests_does_not_block_pairing_for_long() {
        let mut requests = PairingRequests::default();
        let mut byte = 0;
        let mut request_pairing = |id: &str, minutes| {
            byte += 1;
            requests.add(&sender("default", id), Map::new(), at(minutes), || [byte; 8])
        };
        for n in 0..MAX_PENDING {
            assert!(matches!(request_pairing(&format!("s{n}"), 0), PairingOutcome::New(_)));
        }
        // A request is protected for some time, so that a flood of others does not replace it before it is approved.
        assert_eq!(request_pairing("owner", 1), PairingOutcome::Full);
        assert!(matches!(request_pairing("owner", 2), PairingOutcome::New(_)));
        assert!(matches!(request_pairing("owner", 3), PairingOutcome::Waiting(_)));
        assert!((0..MAX_PENDING - 1).all(|n| matches!(request_pairing(&format!("t{n}"), 3), PairingOutcome::New(_))));
        assert_eq!(request_pairing("one more", 3), PairingOutcome::Full);
        assert!(matches!(request_pairing("owner", 3), PairingOutcome::Waiting(_)));
    }

    #[test]
    fn pending_codes_are_unique() {
        let mut requests = PairingRequests::default();
        let mut bytes = [0, 0, 1].into_iter();
        let mut request_pairing =
            |id: &str| requests.add(&sender("default", id), Map::new(), at(0), || [bytes.next().unwrap_or(9); 8]);
        assert_eq!(request_pairing("1"), PairingOutcome::New("AAAAAAAA".to_owned()));
        assert_eq!(request_pairing("2"), PairingOutcome::New("BBBBBBBB".to_owned()));
        let stuck = PairingRequests::default().add(&sender("default", "1"), Map::new(), at(0), || [0; 8]);
        assert_eq!(stuck, PairingOutcome::New("AAAAAAAA".to_owned()));
    }

    #[test]
    fn a_code_is_valid_once_and_expires() {
        let mut requests = PairingRequests::default();
        requests.add(&sender("default", "7"), Map::new(), at(0), || [1; 8]);
        requests.add(&sender("default", "8"), Map::new(), at(10), || [2; 8]);
        assert_eq!(requests.take("nonsense", at(1)), None);
        assert_eq!(requests.take(" bbbbbbbb\n", at(1)).map(|request| request.id), Some("7".to_owned()));
        assert_eq!(requests.take("BBBBBBBB", at(1)), None);
        assert_eq!(requests.take("CCCCCCCC", at(70)), None);
    }

    #[test]
    fn the_pairing_message_has_id_code_and_command() {
        assert_eq!(
            pairing_message("telegram", "Your Telegram user id", "7", "ABCD2345"),
            "This assistant does not know you yet.\n\nYour Telegram user id: 7\nPairing code: ABCD2345\n\n\
             Ask its owner to approve you with:\nhomard pairing approve telegram ABCD2345"
        );
    }

    proptest! {
        #[test]
        fn codes_are_of_the_alphabet(bytes: [u8; 8]) {
            let code = code(bytes);
            prop_assert_eq!(code.len(), CODE_LENGTH);
            prop_assert!(code.bytes().all(|byte| ALPHABET.contains(&byte)));
        }
    }
}
