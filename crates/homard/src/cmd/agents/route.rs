//! Shows where a message would be routed.

use anyhow::Result;
use homard_policy::routing::{
    Binding, ChannelPeer, DmScope, MessageOrigin, PeerKind, RouteRule, RoutingResult, RoutingTable, route,
};
use homard_proto::ChannelAccount;
use homard_settings::{
    Config,
    channel_kinds::issuer,
    routes::{bindings, routes},
};
use serde_json::json;

use super::describe_binding;
use crate::{
    cli_error::CliError,
    render::{self, Table},
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
    let result = route(&routes, &origin).map_err(|error| CliError::usage(error.to_string()))?;
    let binding_match = matched_binding(config, &routes, &origin, &result);
    let why = agent_reason(&result, binding_match.as_ref());
    let key_reason = session_reason(&routes, &origin);
    let RoutingResult { agent, key, .. } = &result;
    if wants_json {
        let binding = binding_match.map(|(at, _)| at);
        let document = json!({"agentId": agent, "sessionKey": key, "binding": binding, "why": why, "kept": key_reason});
        return Ok(render::print_json(&document)?);
    }
    let rows =
        [["agent", agent.as_str(), &format!("({why})")], ["session", &key.to_string(), &format!("({key_reason})")]];
    let rows = rows.iter().map(|row| row.map(render::strip_controls).to_vec()).collect();
    Ok(render::print_table(&Table::fields(rows))?)
}

/// Builds the origin of a hypothetical message from the command-line arguments.
fn origin(config: &Config, args: &Args) -> Result<MessageOrigin, CliError> {
    let peer = args.peer.split_once(':').and_then(|(kind, id)| {
        Some(ChannelPeer { kind: PeerKind::parse(kind)?, id: Some(id.to_owned()).filter(|id| !id.trim().is_empty())? })
    });
    let usage_error = || {
        let text = format!("invalid --peer {}; expected direct:ID, group:ID or channel:ID", args.peer);
        CliError::usage(text)
    };
    Ok(MessageOrigin {
        at: account(config, args),
        peer: peer.ok_or_else(usage_error)?,
        guild: args.guild.clone(),
        team: args.team.clone(),
        thread: None,
        is_owner: args.owner,
    })
}

fn account(config: &Config, args: &Args) -> ChannelAccount {
    let channel = args.channel.trim().to_lowercase();
    let section = config.channels.iter().find(|(name, _)| name.trim().to_lowercase() == channel);
    let count = section.map_or(0, |(_, section)| section.resolved_accounts().len());
    ChannelAccount::new(&channel, args.account.as_deref().unwrap_or_default(), issuer(&channel), count <= 1)
}

/// Returns the binding that was followed, with its index in the config: the first one that by itself gives the same
/// result.
fn matched_binding(
    config: &Config,
    routes: &RoutingTable,
    origin: &MessageOrigin,
    result: &RoutingResult,
) -> Option<(usize, Binding)> {
    let is_match = |binding: &Binding| {
        let single = RoutingTable { bindings: vec![binding.clone()], ..routes.clone() };
        result.matched != RouteRule::Default && route(&single, origin).as_ref() == Ok(result)
    };
    bindings(config).into_iter().find(|(_, binding)| is_match(binding))
}

/// Says why this agent answers.
fn agent_reason(result: &RoutingResult, binding_match: Option<&(usize, Binding)>) -> String {
    let matched_by = match result.matched {
        RouteRule::Peer => "this conversation",
        RouteRule::ParentPeer => "the parent conversation of this thread",
        RouteRule::Guild => "this server",
        RouteRule::Team => "this team",
        RouteRule::Account => "this account",
        RouteRule::Channel => "the whole channel",
        RouteRule::Default => return "no binding matches, so the default agent is used".to_owned(),
    };
    match binding_match {
        Some((at, binding)) => format!("bindings[{at}] matches {matched_by}: {}", describe_binding(binding)),
        None => format!("a binding matches {matched_by}"),
    }
}

/// Says why the message belongs to this session.
fn session_reason(routes: &RoutingTable, origin: &MessageOrigin) -> &'static str {
    match (origin.peer.kind, routes.dm_scope) {
        (PeerKind::Group, _) => "every group has its own session",
        (PeerKind::Channel, _) => "every channel has its own session",
        (PeerKind::Direct, DmScope::OwnerInMain) if origin.is_owner => "the owner writes to the main session",
        (PeerKind::Direct, DmScope::OwnerInMain) => "every sender other than the owner has a separate session",
        (PeerKind::Direct, DmScope::Main) => "session.dmScope is main: all senders share the main session",
        (PeerKind::Direct, DmScope::PerPeer) => "session.dmScope is per-peer",
        (PeerKind::Direct, DmScope::PerChannelPeer) => "session.dmScope is per-channel-peer",
        (PeerKind::Direct, DmScope::PerAccountChannelPeer) => "session.dmScope is per-account-channel-peer",
    }
}
