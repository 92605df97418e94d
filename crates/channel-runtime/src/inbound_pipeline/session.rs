//! The session of a message. A session key names one peer; sessions that earlier versions stored under keys that
//! several peers could share are used only if no other peer is known to have written there.

use std::sync::Arc;

use homard_agent::Patch;
use homard_channels::{Incoming, PeerKind};
use homard_command::OWNER;
use homard_policy::routing::{self, ChannelPeer, MessageOrigin, RoutingResult, ThreadId, route, route_spelled};
use homard_proto::{Extra, IdIssuer, Identity, SessionKey, session::Record};
use homard_store::{RunQuery, RunRow};
use serde_json::{Value, json};

use super::InboundPipeline;
use crate::policy::{ChannelPolicy, principal};

/// Field of a session's record that names its peer.
const PEER_FIELD: &str = "channelPeer";

/// Maximum number of a session's runs that are examined.
const MAX_RUNS: usize = 1000;

/// Maximum number of alternative spellings of a peer's id that are tried.
const MAX_SPELLINGS: usize = 16;

/// The owner of an existing session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionOwner {
    /// The peer in question.
    Peer,
    /// No peer of a channel wrote there.
    Unowned,
    /// Another peer wrote there, too.
    Other,
}

/// A peer of the account: a person or a group, and the thread.
#[derive(Debug, Clone)]
struct SessionPeer<'a> {
    identity: Identity,
    issuer: IdIssuer,
    is_direct: bool,
    thread: Option<&'a str>,
}

/// A session key in one of its spellings.
struct KeySpelling {
    routed: RoutingResult,
    forced: usize,
    /// True if the peer has a session under this key.
    is_owned: bool,
}

impl InboundPipeline {
    /// Returns the agent and the session for a message; an error says why there is none.
    pub(super) async fn route_message(
        &self,
        policy: &ChannelPolicy,
        incoming: &Incoming,
        is_owner: bool,
    ) -> Result<RoutingResult, String> {
        let origin = self.origin(policy, incoming, is_owner);
        let routed = route(&policy.routes, &origin).map_err(|error| error.to_string())?;
        let peer = SessionPeer {
            identity: policy.account.sender(&incoming.peer.id),
            issuer: policy.account.issuer(),
            is_direct: incoming.peer.kind == PeerKind::Direct,
            thread: incoming.thread.as_deref(),
        };
        let fresh = if routed.is_contestable {
            // A thread starts with the history of its parent, so the parent must belong to this peer, too.
            let parent = match &origin.thread {
                Some(_) => {
                    let parent = MessageOrigin { thread: None, ..origin.clone() };
                    self.find_spelling(policy, &parent, &SessionPeer { thread: None, ..peer.clone() }, 0).await?.forced
                }
                None => 0,
            };
            let KeySpelling { routed, is_owned, .. } = self.find_spelling(policy, &origin, &peer, parent).await?;
            if is_owned {
                return Ok(routed);
            }
            routed
        } else if routed.old_key.is_none() || self.record(&routed.key).await?.is_some() {
            return Ok(routed);
        } else {
            routed
        };
        match &fresh.old_key {
            Some(old) if self.session_owner(old, &peer).await? == Some(SessionOwner::Peer) => {
                Ok(RoutingResult { key: old.clone(), ..fresh })
            }
            Some(_) | None => Ok(fresh),
        }
    }

    /// Returns the first spelling of a key, starting with `from`, whose session belongs to the peer or does not exist.
    async fn find_spelling(
        &self,
        policy: &ChannelPolicy,
        origin: &MessageOrigin,
        peer: &SessionPeer<'_>,
        from: usize,
    ) -> Result<KeySpelling, String> {
        for forced in from..from + MAX_SPELLINGS {
            let routed = route_spelled(&policy.routes, origin, forced).map_err(|error| error.to_string())?;
            let is_owned = match self.session_owner(&routed.key, peer).await? {
                None => false,
                Some(SessionOwner::Peer) => true,
                Some(SessionOwner::Unowned) if forced == from => true,
                Some(SessionOwner::Unowned | SessionOwner::Other) => continue,
            };
            return Ok(KeySpelling { routed, forced, is_owned });
        }
        Err("every variant of the session key is in use by other senders".to_owned())
    }

    fn origin(&self, policy: &ChannelPolicy, incoming: &Incoming, is_owner: bool) -> MessageOrigin {
        let kind = match incoming.peer.kind {
            PeerKind::Direct => routing::PeerKind::Direct,
            // The chats of a server are channels, also in the session keys of OpenClaw.
            PeerKind::Group if incoming.server.is_some() => routing::PeerKind::Channel,
            PeerKind::Group => routing::PeerKind::Group,
            PeerKind::Channel => routing::PeerKind::Channel,
        };
        let thread = incoming.thread.clone().map(|thread| match self.account_key.0.as_str() {
            "telegram" => ThreadId::Topic(thread),
            _ => ThreadId::Thread(thread),
        });
        MessageOrigin {
            at: policy.account.clone(),
            peer: ChannelPeer { kind, id: incoming.peer.id.clone() },
            guild: incoming.server.clone(),
            team: None,
            thread,
            is_owner,
        }
    }

    /// Returns the owner of a session; `None` if there is no session. Stores the result in the session's record.
    async fn session_owner(&self, key: &SessionKey, peer: &SessionPeer<'_>) -> Result<Option<SessionOwner>, String> {
        let Some(record) = self.record(key).await? else { return Ok(None) };
        let peer_value = peer.record_value();
        match record.extra.get(PEER_FIELD) {
            Some(noted) if *noted == peer_value => return Ok(Some(SessionOwner::Peer)),
            Some(_) => return Ok(Some(SessionOwner::Other)),
            None => {}
        }
        let query = RunQuery { key: Some(key.clone()), limit: MAX_RUNS, ..RunQuery::default() };
        let runs = self.hub.runs().list(&query).await.map_err(|error| error.to_string())?;
        let owner = peer.owner_of(&record, &runs);
        if owner == SessionOwner::Peer {
            let patch = Patch {
                expected: Some(record.session_id.clone()),
                changes: Extra::from_iter([(PEER_FIELD.to_owned(), peer_value)]),
            };
            if let Err(error) = self.hub.sessions().patch(key, patch).await {
                // It is determined again with the next message.
                tracing::warn!(channel = self.account_key.0, %key, %error, "failed to store the sender of a session");
            }
        }
        Ok(Some(owner))
    }

    async fn record(&self, key: &SessionKey) -> Result<Option<Arc<Record>>, String> {
        self.hub.sessions().get(key).await.map_err(|error| error.to_string())
    }
}

impl SessionPeer<'_> {
    fn record_value(&self) -> Value {
        let (channel, account) = (self.identity.channel(), self.identity.account());
        json!({"channel": channel, "account": account, "id": self.identity.id(), "thread": self.thread})
    }

    /// Strips the channel prefix of an address. OpenClaw writes `telegram:7`; where the peer chooses the ids, such a
    /// prefix is part of the id.
    fn strip_channel<'b>(&self, to: &'b str) -> &'b str {
        let rest = to.strip_prefix(self.identity.channel()).and_then(|rest| rest.strip_prefix(':'));
        rest.filter(|_| self.issuer == IdIssuer::Platform).unwrap_or(to)
    }

    /// Determines the owner of a session from its last route and from its stored runs.
    fn owner_of(&self, record: &Record, runs: &[RunRow]) -> SessionOwner {
        let last = |name: &str| record.extra.get(name).and_then(Value::as_str);
        let (channel, account) = (self.identity.channel(), self.identity.account());
        let route = (last("lastChannel") == Some(channel)).then(|| {
            let is_same = last("lastAccountId").unwrap_or(account) == account
                && last("lastTo").map(|to| self.strip_channel(to)) == Some(self.identity.id())
                && last("lastThreadId") == self.thread;
            if is_same { SessionOwner::Peer } else { SessionOwner::Other }
        });
        // Earlier versions did not distinguish accounts in principals.
        let principals = [principal(&self.identity, false), format!("channel:{channel}:{}", self.identity.id())];
        let mut found = route.unwrap_or(SessionOwner::Unowned);
        for row in runs {
            let Some(origin) = &row.origin else { continue };
            let is_known_principal = !self.is_direct || row.principal == OWNER || principals.contains(&row.principal);
            let is_same_account = (origin.channel.as_str(), origin.account.as_str()) == (channel, account);
            match (is_same_account && is_known_principal, found) {
                (true, SessionOwner::Peer | SessionOwner::Unowned) => found = SessionOwner::Peer,
                (true, SessionOwner::Other) | (false, _) => return SessionOwner::Other,
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{AgentId, ChannelAccount, RunId, SessionId};
    use homard_store::{Origin as Came, RunState};

    use super::*;

    fn row(principal: &str, account: Option<&str>) -> RunRow {
        let (channel, event) = ("webhook".to_owned(), "m1".to_owned());
        RunRow {
            run: RunId::parse("r").unwrap(),
            principal: principal.to_owned(),
            method: "channel".to_owned(),
            fingerprint: String::new(),
            origin: account.map(|account| Came { channel, account: account.to_owned(), event, message: None }),
            key: AgentId::main().main_session(),
            session: None,
            accepted_at: 0,
            started_at: None,
            resumed_at: Vec::new(),
            host: None,
            hold: None,
            state: RunState::Accepted,
        }
    }

    /// Determines the owner for the peer `Ann` of the account `shop`.
    fn session_owner_of(extra: &Value, runs: &[RunRow]) -> SessionOwner {
        let at = ChannelAccount::new("webhook", "shop", IdIssuer::Peer, false);
        let peer = SessionPeer { identity: at.sender("Ann"), issuer: at.issuer(), is_direct: true, thread: None };
        let mut record = Record::new(SessionId::parse("s").unwrap(), 0);
        record.extra = extra.as_object().cloned().unwrap();
        peer.owner_of(&record, runs)
    }

    #[test]
    fn a_session_belongs_to_a_peer_unless_another_peer_wrote_there() {
        let last = |account: &str, to: &str| json!({"lastChannel": "webhook", "lastAccountId": account, "lastTo": to});
        let (ann, old_ann) = (row("channel:webhook/shop:Ann", Some("shop")), row("channel:webhook:Ann", Some("shop")));
        let (folded, bank) = (row("channel:webhook:ann", Some("shop")), row("channel:webhook:Ann", Some("bank")));
        let operator = row("owner", None);
        let same_peer = || last("shop", "Ann");
        assert_eq!(session_owner_of(&same_peer(), &[]), SessionOwner::Peer);
        assert_eq!(session_owner_of(&same_peer(), &[ann.clone(), old_ann, operator.clone()]), SessionOwner::Peer);
        assert_eq!(session_owner_of(&json!({}), std::slice::from_ref(&ann)), SessionOwner::Peer);
        assert_eq!(session_owner_of(&json!({}), &[operator]), SessionOwner::Unowned);
        assert_eq!(session_owner_of(&json!({"lastChannel": "webchat"}), &[]), SessionOwner::Unowned);
        for (route, runs) in [
            (last("shop", "ann"), vec![]),
            (last("shop", "webhook:Ann"), vec![]),
            (last("bank", "Ann"), vec![]),
            (last("shop", "ann"), vec![ann.clone()]),
            (same_peer(), vec![ann.clone(), folded.clone()]),
            (same_peer(), vec![bank]),
            (json!({}), vec![folded, ann]),
        ] {
            assert_eq!(session_owner_of(&route, &runs), SessionOwner::Other, "{route} {runs:?}");
        }
    }
}
