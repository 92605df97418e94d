//! Approves a pairing code. The first sender that is approved becomes the owner.

use homard_audit::{AuditKind, AuditRecord};
use homard_channels::pairing::PairingStore;
use homard_config::{edit, path::Path};
use homard_proto::{ChannelAccount, IdIssuer};
use homard_settings::{
    Config, audit_log,
    change::{ChangeAuthor, change},
    channel_kinds::issuer,
    paths::Paths,
};
use serde_json::json;

/// An approved sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedSender {
    /// Sender id at the platform.
    pub id: String,
    /// The account that they wrote to.
    pub account: String,
    /// True if this sender is now the owner.
    pub is_owner: bool,
}

/// Which sender to approve.
#[derive(Debug, Clone, Copy)]
pub struct SenderApproval<'a> {
    /// Channel on which they wrote.
    pub channel: &'a str,
    /// Code that they received.
    pub code: &'a str,
    /// True if they must not become the owner.
    pub is_guest: bool,
}

/// Approves the sender who received this code; an error says why not.
pub fn approve(
    store: &PairingStore,
    paths: &Paths,
    approval: SenderApproval<'_>,
    now: u64,
) -> Result<ApprovedSender, String> {
    let SenderApproval { channel, code, is_guest } = approval;
    let config = Config::choose(paths).map_err(|failure| failure.to_string())?.loaded.config;
    let has_platform_ids = issuer(channel) == IdIssuer::Platform;
    let is_open =
        config.commands.owner_allow_from.is_empty() && has_platform_ids && has_no_senders(&config, store, channel)?;
    if is_open && is_guest {
        return Err(
            "no owner is configured yet, and the first approved sender would become the owner; approve yourself first, \
                    or add yourself to commands.ownerAllowFrom"
                .to_owned(),
        );
    }
    let request = store.approve(channel, code, now).map_err(|error| error.to_string())?;
    let account = request.account().to_owned();
    let sender = ChannelAccount::new(channel, &account, issuer(channel), false).sender(&request.id);
    let record = AuditRecord::new(AuditKind::PairingApproved)
        .actor("operator")
        .with("channel", channel)
        .with("account", &account);
    let record = record.with("sender", &request.id);
    audit_log::note(paths, record.outcome(if is_open { "owner" } else { "guest" }));
    if !is_open {
        return Ok(ApprovedSender { id: request.id, account, is_owner: false });
    }
    let owners = Path::root().key("commands").key("ownerAllowFrom");
    let owner = json!([sender.to_string()]);
    let named = change(paths, ChangeAuthor::User, |text| Ok(edit::set(text, &owners, &owner)?));
    if let Err(refusal) = named {
        // The sender is approved nevertheless, and counts as the owner while they are the only approved sender.
        tracing::warn!(%refusal, "failed to add the owner to commands.ownerAllowFrom");
    }
    Ok(ApprovedSender { id: request.id, account, is_owner: true })
}

/// Returns true if no sender is allowed on a channel yet.
fn has_no_senders(config: &Config, store: &PairingStore, channel: &str) -> Result<bool, String> {
    let approved = store.all_approved(channel).map_err(|error| error.to_string())?;
    let sections = config.channels.iter().filter(|(name, _)| name.trim().eq_ignore_ascii_case(channel));
    let mut accounts = sections.flat_map(|(_, section)| section.resolved_accounts().into_values());
    Ok(approved.is_empty() && accounts.all(|account| account.allow_from.is_none_or(|list| list.is_empty())))
}
