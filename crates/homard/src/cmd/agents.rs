//! `homard agents`: lists agents and shows how messages are routed. Only files are read, so it works with and without a
//! gateway.

mod list;
mod route;

use anyhow::Result;
use clap::Subcommand;
use homard_policy::routing::{AccountFilter, Binding};
use homard_settings::{Chosen, paths::Paths};

/// Arguments of `homard agents`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard agents                                      list agents
  homard agents list --bindings                      also show the bindings
  homard agents route telegram --peer direct:12345   show the agent and session of a sender")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Show the bindings: which messages go to which agent
    #[arg(long)]
    bindings: bool,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List agents (the default)
    List {
        /// Show the bindings: which messages go to which agent
        #[arg(long)]
        bindings: bool,
    },
    /// Show which agent would answer a message, in which session, and why
    Route(route::Args),
}

pub(super) fn run(args: &Args) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let Chosen { loaded, .. } = chosen;
    match &args.command {
        None => list::run(&loaded, &paths, args.bindings, args.json),
        Some(Command::List { bindings }) => list::run(&loaded, &paths, args.bindings || *bindings, args.json),
        Some(Command::Route(route)) => route::run(&loaded.config, route, args.json),
    }
}

/// Describes which messages a binding matches.
fn describe_binding(binding: &Binding) -> String {
    let Binding { agent: _, channel, account, peer, guild, team } = binding;
    let peer = peer.as_ref().map(|peer| format!("{} {}", peer.kind.name(), peer.id));
    let account = match account {
        AccountFilter::Default => "the default account".to_owned(),
        AccountFilter::Only(name) => format!("account {name}"),
        AccountFilter::Any => "any account".to_owned(),
    };
    let labelled = |label: &str, id: &Option<String>| id.as_ref().map(|id| format!("{label} {id}"));
    let parts = [Some(channel.clone()), Some(account), labelled("server", guild), labelled("team", team), peer];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use homard_policy::routing::{ChannelPeer, PeerKind};
    use homard_proto::AgentId;

    use super::*;

    #[test]
    fn a_binding_is_described_in_plain_text() {
        let mut binding = Binding {
            agent: AgentId::main(),
            channel: "discord".to_owned(),
            account: AccountFilter::Any,
            peer: Some(ChannelPeer { kind: PeerKind::Channel, id: "7".to_owned() }),
            guild: Some("g".to_owned()),
            team: Some("t".to_owned()),
        };
        assert_eq!(describe_binding(&binding), "discord, any account, server g, team t, channel 7");
        binding = Binding { account: AccountFilter::Default, peer: None, guild: None, team: None, ..binding };
        assert_eq!(describe_binding(&binding), "discord, the default account");
        binding.account = AccountFilter::Only("work".to_owned());
        assert_eq!(describe_binding(&binding), "discord, account work");
    }
}
