//! Restricts the chats that an agent may write to: with `message`, and with cron jobs that announce their result.
//!
//! A message to a chat can exfiltrate data, like a request to a web server. So a run may write to the chat that it
//! answers, to chats that the owner named, and to those on an allowlist; to no other.

use std::{collections::BTreeMap, fmt, sync::Arc};

use homard_agent::{
    channel_sender::{ChannelSender, Recipient, SendError},
    tool::ToolCx,
};
use homard_audit::{AuditKind, AuditRecord};
use homard_proto::{AgentId, Route, identity::DEFAULT_ACCOUNT};

/// The chats that agents may write to. Clones share the lists.
#[derive(Clone, Default)]
pub struct Recipients {
    sender: Option<Arc<dyn ChannelSender>>,
    lists: Arc<Allowlists>,
}

#[derive(Debug, Default)]
struct Allowlists {
    /// `tools.message.allowTo`.
    all: Vec<String>,
    /// `agents.list[].tools.message.allowTo`.
    by_agent: BTreeMap<AgentId, Vec<String>>,
}

impl fmt::Debug for Recipients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recipients").field("lists", &self.lists).finish_non_exhaustive()
    }
}

impl Recipients {
    /// Creates the check from the sender's known recipients and the allowlists: `telegram:7`, `telegram/work:7`,
    /// `telegram:*`, `*`.
    pub fn new(
        sender: Option<Arc<dyn ChannelSender>>,
        all: Vec<String>,
        of_agents: BTreeMap<AgentId, Vec<String>>,
    ) -> Self {
        Self { sender, lists: Arc::new(Allowlists { all, by_agent: of_agents }) }
    }

    /// Checks that a tool call may write to a chat. The error says why not and what would allow it; a refusal is
    /// audited.
    pub fn check(&self, cx: &ToolCx, tool: &str, route: &Route) -> Result<(), String> {
        // Without a channel sender nothing is sent anyway.
        let Some(sender) = &self.sender else { return Ok(()) };
        let found = sender.recipient(route).map_err(|error| error.to_string())?;
        let is_here = || {
            let origin = &cx.origin.route;
            origin.channel.is_some()
                && origin.to.is_some()
                && sender.recipient(origin).is_ok_and(|here| is_same(&here, &found))
        };
        if found.is_known || is_here() || self.lists(cx).any(|entry| matches_entry(entry, &found)) {
            return Ok(());
        }
        note(cx, tool, &found, "refused");
        let Recipient { channel, id, .. } = &found;
        Err(format!(
            "this agent may not write to {id} on {channel}: that is not the current chat, and it is not on an \
             allowlist. The owner can add \"{channel}:{id}\" to tools.message.allowTo or \
             agents.list[].tools.message.allowTo, or to channels.{channel}.allowFrom if this sender may also write to \
             the agent"
        ))
    }

    /// Records in the audit log that a tool call sends something to a chat.
    pub fn audit(&self, cx: &ToolCx, tool: &str, route: &Route, outcome: &str) {
        let found: Option<Result<Recipient, SendError>> = self.sender.as_ref().map(|sender| sender.recipient(route));
        if let Some(Ok(found)) = found {
            note(cx, tool, &found, outcome);
        }
    }

    fn lists(&self, cx: &ToolCx) -> impl Iterator<Item = &String> {
        let agent_list = cx.session.agent().and_then(|agent| self.lists.by_agent.get(agent));
        self.lists.all.iter().chain(agent_list.into_iter().flatten())
    }
}

fn note(cx: &ToolCx, tool: &str, found: &Recipient, outcome: &str) {
    let record = AuditRecord::new(AuditKind::Egress).actor(cx.session.as_str()).with("tool", tool);
    cx.audit().note(record.with("channel", &found.channel).with("to", &found.id).outcome(outcome));
}

fn is_same(recipient: &Recipient, other: &Recipient) -> bool {
    (&recipient.channel, &recipient.account, &recipient.id) == (&other.channel, &other.account, &other.id)
}

/// True if an allowlist entry matches a chat. Without an account it matches the chat on every account.
fn matches_entry(entry: &str, found: &Recipient) -> bool {
    let Some((platform, id)) = entry.trim().split_once(':') else { return entry.trim() == "*" };
    let (channel, account) =
        platform.split_once('/').map_or((platform, None), |(channel, account)| (channel, Some(account)));
    let own_account = if found.account.is_empty() { DEFAULT_ACCOUNT } else { &found.account };
    channel.eq_ignore_ascii_case(&found.channel)
        && account.is_none_or(|account| account.eq_ignore_ascii_case(own_account))
        && (id == "*" || id == found.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_a_chat_by_channel_account_and_id() {
        let found = |account: &str| Recipient {
            channel: "telegram".to_owned(),
            account: account.to_owned(),
            id: "-100".to_owned(),
            is_known: false,
        };
        for (entry, expected) in [
            ("telegram:-100", true),
            (" Telegram:-100 ", true),
            ("telegram:*", true),
            ("*", true),
            ("telegram/work:-100", true),
            ("telegram/work:*", true),
            ("telegram/home:-100", false),
            ("telegram:100", false),
            ("telegram:-1001", false),
            ("webhook:-100", false),
            ("-100", false),
            ("telegram", false),
            ("", false),
        ] {
            assert_eq!(matches_entry(entry, &found("work")), expected, "{entry}");
        }
        assert!(matches_entry("telegram/default:-100", &found("")));
    }
}
