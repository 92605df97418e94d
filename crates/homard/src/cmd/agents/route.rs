//! Shows where a message would be routed.

use anyhow::Result;
use homard_agent::routing::{Binding, DmScope, Origin, Peer, PeerKind, Routed, Routes, Rule, route};
use homard_proto::ChannelAccount;
use serde_json::json;

use super::whom;
use crate::{
    assemble::{
        channels::issuer,
        routes::{bindings, routes},
    },
    config::Config,
    failure::Failure,
    render,
};

/// Where the message comes from.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Channel, such as telegram
    channel: String,
    /// Account that receives the message [default: the only one]
    #[arg(long, value_name = "ID")]
    account: Option<String>,
    /// Sender or chat: direct:ID, group:ID or channel:ID
    #[arg(long, value_name = "KIND:ID", default_value = "direct:someone")]
    peer: String,
    /// Server that the chat belongs to
    #[arg(long, value_name = "ID")]
    guild: Option<String>,
    /// Team that the chat belongs to
    #[arg(long, value_name = "ID")]
    team: Option<String>,
    /// Treat the message as the owner's
    #[arg(long)]
    owner: bool,
}

/// Shows which agent would answer, in which session, and why.
pub(super) fn run(config: &Config, args: &Args, wants_json: bool) -> Result<()> {
    let routes = routes(config);
    let origin = origin(config, args)?;
    let routed = route(&routes, &origin).map_err(|error| Failure::usage(error.to_string()))?;
    let followed = followed(config, &routes, &origin, &routed);
    let why = why(&routed, followed.as_ref());
    let kept = kept(&routes, &origin);
    let Routed { agent, key, .. } = &routed;
    if wants_json {
        let binding = followed.map(|(at, _)| at);
        let told = json!({"agentId": agent, "sessionKey": key, "binding": binding, "why": why, "kept": kept});
        return Ok(render::print_json(&told)?);
    }
    let rows = [["agent", agent.as_str(), &format!("({why})")], ["session", &key.to_string(), &format!("({kept})")]];
    let rows: Vec<_> = rows.iter().map(|row| row.map(render::harmless).to_vec()).collect();
    Ok(render::print(&render::table(&rows))?)
}

fn origin(config: &Config, args: &Args) -> Result<Origin, Failure> {
    let peer = args.peer.split_once(':').and_then(|(kind, id)| {
        Some(Peer { kind: PeerKind::parse(kind)?, id: Some(id.to_owned()).filter(|id| !id.trim().is_empty())? })
    });
    let wrong = || {
        let text = format!("--peer {} is not a peer; write direct:ID, group:ID or channel:ID", args.peer);
        Failure::usage(text)
    };
    Ok(Origin {
        at: account(config, args),
        peer: peer.ok_or_else(wrong)?,
        guild: args.guild.clone(),
        team: args.team.clone(),
        thread: None,
        is_owner: args.owner,
    })
}

fn account(config: &Config, args: &Args) -> ChannelAccount {
    let channel = args.channel.trim().to_lowercase();
    let said = config.channels.iter().find(|(name, _)| name.trim().to_lowercase() == channel);
    let count = said.map_or(0, |(_, said)| said.described().len());
    ChannelAccount::new(&channel, args.account.as_deref().unwrap_or_default(), issuer(&channel), count <= 1)
}

/// Returns the binding that was followed, with its index in the config: the first one that by itself gives the same
/// result.
fn followed(config: &Config, routes: &Routes, origin: &Origin, routed: &Routed) -> Option<(usize, Binding)> {
    let leads_there = |binding: &Binding| {
        let alone = Routes { bindings: vec![binding.clone()], ..routes.clone() };
        routed.matched != Rule::Default && route(&alone, origin).as_ref() == Ok(routed)
    };
    bindings(config).into_iter().find(|(_, binding)| leads_there(binding))
}

/// Says why this agent answers.
fn why(routed: &Routed, followed: Option<&(usize, Binding)>) -> String {
    let fits = match routed.matched {
        Rule::Peer => "this conversation",
        Rule::ParentPeer => "the conversation around this thread",
        Rule::Guild => "this server",
        Rule::Team => "this team",
        Rule::Account => "this account",
        Rule::Channel => "the whole channel",
        Rule::Default => return "no binding fits, so the default agent answers".to_owned(),
    };
    match followed {
        Some((at, binding)) => format!("bindings[{at}] is for {fits}: {}", whom(binding)),
        None => format!("a binding is for {fits}"),
    }
}

/// Says why the message belongs to this session.
fn kept(routes: &Routes, origin: &Origin) -> &'static str {
    match (origin.peer.kind, routes.dm_scope) {
        (PeerKind::Group, _) => "every group has a session of its own",
        (PeerKind::Channel, _) => "every room has a session of its own",
        (PeerKind::Direct, DmScope::OwnerInMain) if origin.is_owner => "the owner writes to the main session",
        (PeerKind::Direct, DmScope::OwnerInMain) => "everybody but the owner has a session of their own",
        (PeerKind::Direct, DmScope::Main) => "session.dmScope is main: everybody shares the main session",
        (PeerKind::Direct, DmScope::PerPeer) => "session.dmScope is per-peer",
        (PeerKind::Direct, DmScope::PerChannelPeer) => "session.dmScope is per-channel-peer",
        (PeerKind::Direct, DmScope::PerAccountChannelPeer) => "session.dmScope is per-account-channel-peer",
    }
}
