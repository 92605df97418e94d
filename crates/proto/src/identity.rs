//! Identity of a sender: a channel, an account of ours there, and the sender's id.
//!
//! [`Identity`] compares with [`Identity`] only. A text from the config is parsed into a [`SenderPattern`] and resolved
//! for one account; an entry that names another channel or account resolves to nothing there, so it cannot match a
//! sender whose id happens to look like it.

use std::fmt;

/// Account of a channel without named accounts.
pub const DEFAULT_ACCOUNT: &str = "default";

/// Short names of channels in the config.
const SHORT_NAMES: [(&str, &str); 1] = [("tg", "telegram")];

/// Who chooses the ids of a channel's senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdIssuer {
    /// The platform. An id names the same sender on every account, and the sender cannot choose it.
    Platform,
    /// The program that is connected to the account. An id has a meaning within that account only, and may be what an
    /// outsider typed.
    Peer,
}

/// One of our accounts on a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelAccount {
    channel: String,
    account: String,
    issuer: IdIssuer,
    is_only: bool,
}

impl ChannelAccount {
    /// Creates an account of a channel. `is_only` means that the channel has no other account.
    pub fn new(channel: &str, account: &str, issuer: IdIssuer, is_only: bool) -> Self {
        let account = Some(account.trim()).filter(|account| !account.is_empty()).unwrap_or(DEFAULT_ACCOUNT);
        Self { channel: channel.trim().to_lowercase(), account: account.to_lowercase(), issuer, is_only }
    }

    /// Name of the channel.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// Name of the account.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Who chooses the ids of its senders.
    pub fn issuer(&self) -> IdIssuer {
        self.issuer
    }

    /// True if the config needs no name for this account.
    pub fn is_default(&self) -> bool {
        self.account == DEFAULT_ACCOUNT
    }

    /// True if an entry that names the channel and no account refers to this account: always if the platform issues the
    /// ids; else for the default account, and for the only one.
    pub fn matches_without_account(&self) -> bool {
        self.issuer == IdIssuer::Platform || self.is_only || self.is_default()
    }

    /// Returns the identity of the sender with this id. The id is used unchanged.
    pub fn sender(&self, id: &str) -> Identity {
        Identity { channel: self.channel.clone(), account: self.account.clone(), id: id.to_owned() }
    }
}

/// A sender: channel, account, and the id there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    channel: String,
    account: String,
    id: String,
}

impl Identity {
    /// Name of the channel.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// Name of the account.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Id on the channel.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// Formatted as in the config: `telegram:7`, or `telegram/work:7` on an account that is not the default one.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { channel, account, id } = self;
        if account == DEFAULT_ACCOUNT { write!(f, "{channel}:{id}") } else { write!(f, "{channel}/{account}:{id}") }
    }
}

/// An entry of a list of senders in the config: `*`, `7`, `telegram:7` or `telegram/work:7`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderPattern {
    /// `*`
    Anyone,
    /// One sender.
    One {
        /// Channel, if the entry names one.
        channel: Option<String>,
        /// Account, if the entry names one.
        account: Option<String>,
        /// Sender id.
        id: String,
    },
}

impl SenderPattern {
    /// Parses an entry. The part before the first colon is a channel if it is a valid channel name.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        if text == "*" {
            return Self::Anyone;
        }
        let bare = || Self::One { channel: None, account: None, id: text.to_owned() };
        let Some((prefix, id)) = text.split_once(':') else { return bare() };
        let (channel, account) = match prefix.split_once('/') {
            Some((channel, account)) => (channel, Some(account.trim().to_lowercase())),
            None => (prefix, None),
        };
        let is_name = channel.starts_with(|c: char| c.is_ascii_alphabetic())
            && channel.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        if !is_name || account.as_ref().is_some_and(String::is_empty) {
            return bare();
        }
        let channel = channel.to_lowercase();
        let full_name =
            SHORT_NAMES.iter().find(|(short, _)| *short == channel).map(|(_, full_name)| (*full_name).to_owned());
        Self::One { channel: Some(full_name.unwrap_or(channel)), account, id: id.trim().to_owned() }
    }

    /// Resolves an entry of an account's own list, such as `channels.telegram.allowFrom`: an id without a channel
    /// belongs to this account. `None` for `*` and for an entry of another channel or account.
    pub fn in_own_list(&self, receiver: &ChannelAccount) -> Option<Identity> {
        let Self::One { channel, account, id } = self else { return None };
        let matches_account = channel.as_ref().is_none_or(|channel| *channel == receiver.channel)
            && account.as_ref().is_none_or(|account| *account == receiver.account);
        (matches_account && !id.is_empty()).then(|| receiver.sender(id))
    }

    /// Resolves an entry of a list for all channels, such as `commands.ownerAllowFrom`, for one account. An entry
    /// without a channel applies only if the platform issues the ids. An entry with a channel and without an account
    /// applies if [`ChannelAccount::matches_without_account`] is true.
    pub fn in_global_list(&self, receiver: &ChannelAccount) -> Option<Identity> {
        let Self::One { channel, account, .. } = self else { return None };
        let is_allowed = match (channel, account) {
            (None, _) => receiver.issuer == IdIssuer::Platform,
            (Some(_), None) => receiver.matches_without_account(),
            (Some(_), Some(_)) => true,
        };
        self.in_own_list(receiver).filter(|_| is_allowed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn telegram(account: &str) -> ChannelAccount {
        ChannelAccount::new("telegram", account, IdIssuer::Platform, false)
    }

    fn webhook(account: &str, is_only: bool) -> ChannelAccount {
        ChannelAccount::new("webhook", account, IdIssuer::Peer, is_only)
    }

    /// Resolves an entry of an account's own list.
    fn own(entry: &str, at: &ChannelAccount) -> Option<String> {
        SenderPattern::parse(entry).in_own_list(at).map(|identity| identity.id)
    }

    /// Resolves an entry of a list for all channels.
    fn global(entry: &str, at: &ChannelAccount) -> Option<String> {
        SenderPattern::parse(entry).in_global_list(at).map(|identity| identity.id)
    }

    #[test]
    fn an_entry_of_another_channel_matches_no_sender() {
        // The sender ids of a webhook are chosen by its peer, so one may look like an entry of another channel.
        let (tg, hook) = (telegram("default"), webhook("default", true));
        for entry in ["telegram:1", "tg:1", "Telegram:1", "telegram/default:1", "discord:1", "shop:ann"] {
            assert_eq!((own(entry, &hook), global(entry, &hook)), (None, None), "{entry}");
        }
        for entry in ["webhook:1", "webhook/default:1", "Webhook:1"] {
            assert_eq!((own(entry, &tg), global(entry, &tg)), (None, None), "{entry}");
            assert_eq!((own(entry, &hook), global(entry, &hook)), (Some("1".to_owned()), Some("1".to_owned())));
        }
        // `*` and an empty id name no sender.
        assert_eq!(
            [own("*", &hook), own("", &hook), own("webhook:", &hook), global("*", &tg)],
            [None, None, None, None]
        );
    }

    #[test]
    fn a_bare_entry_matches_its_own_channel_and_globally_only_platform_ids() {
        for entry in ["7", " 7 ", "@ann:example.org", "+49:1"] {
            let id = Some(entry.trim().to_owned());
            assert_eq!((own(entry, &telegram("work")), global(entry, &telegram("work"))), (id.clone(), id.clone()));
            assert_eq!((own(entry, &webhook("shop", false)), global(entry, &webhook("shop", true))), (id, None));
        }
    }

    #[test]
    fn an_entry_without_an_account_matches_one_account_of_a_program() {
        let ann = Some("ann".to_owned());
        assert_eq!(global("webhook:ann", &webhook("default", false)), ann);
        assert_eq!(global("webhook:ann", &webhook("door", true)), ann);
        assert_eq!(global("webhook:ann", &webhook("door", false)), None);
        assert_eq!(global("webhook/door:ann", &webhook("door", false)), ann);
        assert_eq!(global("webhook/Door:ann", &webhook("bank", false)), None);
        assert_eq!(global("telegram:7", &telegram("work")), Some("7".to_owned()), "the platform knows one 7");
        assert_eq!(global("telegram/home:7", &telegram("work")), None);
    }

    proptest! {
        /// The entry that `pairing approve` writes into the config matches the approved sender and no other.
        #[test]
        fn the_name_of_an_identity_matches_only_that_identity(
            account in "[a-z0-9_-]{1,8}", other in "[a-z0-9_-]{1,8}", id in "[!-~]{1,12}", other_id in "\\PC{0,12}",
        ) {
            let account_ref = webhook(&account, false);
            let identity = account_ref.sender(&id);
            let pattern = SenderPattern::parse(&identity.to_string());
            prop_assert_eq!(pattern.in_global_list(&account_ref), Some(identity));
            prop_assert_eq!(pattern.in_global_list(&account_ref) == Some(account_ref.sender(&other_id)), id == other_id);
            let other_account = webhook(&other, false);
            prop_assert_eq!(pattern.in_global_list(&other_account).is_some(), account == other);
            prop_assert_eq!(pattern.in_global_list(&telegram(&account)), None);
        }

        #[test]
        fn arbitrary_entries_match_only_their_account(entry in "\\PC{0,30}") {
            for at in [telegram("default"), webhook("shop", false)] {
                let matched = SenderPattern::parse(&entry).in_global_list(&at);
                prop_assert!(matched.is_none_or(|identity| identity.channel == at.channel && identity.account == at.account));
            }
        }
    }
}
