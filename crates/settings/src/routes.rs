//! Builds the rules that route a message to its agent and session.

use homard_policy::routing::{AccountFilter, Binding, ChannelPeer, DmScope, PeerKind, RoutingTable};
use homard_proto::{AgentId, SenderPattern};

use crate::{
    Config,
    bindings::{self, Kind},
    session,
};

/// Builds the routing rules of a config.
pub fn routes(config: &Config) -> RoutingTable {
    let default = config.agents.member(None).map(|agent| agent.id);
    RoutingTable {
        bindings: bindings(config).into_iter().map(|(_, binding)| binding).collect(),
        default_agent: default.unwrap_or_else(AgentId::main),
        dm_scope: match config.session.dm_scope.map(|word| word.0) {
            None => DmScope::OwnerInMain,
            Some(session::DmScope::Main) => DmScope::Main,
            Some(session::DmScope::PerPeer) => DmScope::PerPeer,
            Some(session::DmScope::PerChannelPeer) => DmScope::PerChannelPeer,
            Some(session::DmScope::PerAccountChannelPeer) => DmScope::PerAccountChannelPeer,
        },
        identity_links: config.session.identity_links.iter().map(|(name, ids)| (name.clone(), patterns(ids))).collect(),
    }
}

fn patterns(ids: &[String]) -> Vec<SenderPattern> {
    ids.iter().map(|id| SenderPattern::parse(id)).collect()
}

/// Returns the valid bindings, each with its index in the list.
///
/// A binding for an unknown agent, or with a peer of an unknown kind, is left out: it must not match more than was
/// intended.
pub fn bindings(config: &Config) -> Vec<(usize, Binding)> {
    let known: Vec<_> = config.agents.members().into_iter().map(|agent| agent.id).collect();
    let all = config.bindings.iter().enumerate();
    all.filter_map(|(at, section)| Some((at, binding(section).filter(|binding| known.contains(&binding.agent))?)))
        .collect()
}

fn binding(section: &bindings::Binding) -> Option<Binding> {
    let bindings::Match { channel, account_id, peer, guild_id, team_id } = &section.who;
    let peer = match peer {
        None => None,
        Some(bindings::Peer { kind, id }) => Some(ChannelPeer {
            kind: match kind.as_ref()?.0 {
                Kind::Direct => PeerKind::Direct,
                Kind::Group => PeerKind::Group,
                Kind::Channel => PeerKind::Channel,
            },
            id: id.clone(),
        }),
    };
    Some(Binding {
        // An empty id would be normalized to `main`.
        agent: Some(&section.agent_id).filter(|id| !id.trim().is_empty()).map(|id| AgentId::normalize(id))?,
        channel: channel.clone(),
        account: AccountFilter::parse(account_id.as_deref()),
        peer,
        guild: guild_id.clone(),
        team: team_id.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn bindings_keep_their_order_and_invalid_ones_are_skipped() {
        let text = "{agents: {list: [{id: 'a'}, {id: 'Ops'}]}, session: {dmScope: 'per-peer', identityLinks: {ann: ['irc:1']}},
            bindings: [
                {agentId: 'ops', match: {channel: 'irc', accountId: '*', guildId: 'g', teamId: 't'}},
                {agentId: '', match: {channel: 'irc'}},
                {agentId: 'a', match: {channel: 'irc', peer: {id: '7'}}},
                {agentId: 'OPS', match: {channel: 'slack', accountId: 'work', peer: {kind: 'dm', id: '7'}}},
            ]}";
        // Partly invalid: normally the last good config is used instead, but without one this rule must still hold.
        let config = Config::read(Path::new("homard.json"), text).config;
        let ops = AgentId::normalize("ops");
        let by_channel = Binding {
            agent: ops.clone(),
            channel: "irc".to_owned(),
            account: AccountFilter::Any,
            peer: None,
            guild: Some("g".to_owned()),
            team: Some("t".to_owned()),
        };
        let by_peer = Binding {
            agent: ops,
            channel: "slack".to_owned(),
            account: AccountFilter::Only("work".to_owned()),
            peer: Some(ChannelPeer { kind: PeerKind::Direct, id: "7".to_owned() }),
            guild: None,
            team: None,
        };
        assert_eq!(bindings(&config), [(0, by_channel.clone()), (3, by_peer.clone())]);
        let expected = RoutingTable {
            bindings: vec![by_channel, by_peer],
            default_agent: AgentId::normalize("a"),
            dm_scope: DmScope::PerPeer,
            identity_links: [("ann".to_owned(), vec![SenderPattern::parse("irc:1")])].into(),
        };
        assert_eq!(routes(&config), expected);
    }

    #[test]
    fn by_default_the_owner_uses_the_main_session_of_the_default_agent() {
        let expected = RoutingTable {
            bindings: Vec::new(),
            default_agent: AgentId::main(),
            dm_scope: DmScope::OwnerInMain,
            identity_links: [].into(),
        };
        assert_eq!(routes(&Config::default()), expected);
    }
}
