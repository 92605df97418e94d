//! `channels.*`, `send` and `poll`: state of chat platforms, pairing, and sending messages.

mod send;

use std::{collections::BTreeMap, future::Future, time::Duration};

use homard_channel_runtime::{AccountRuntime, ApprovedSender, Channels, Incident, SenderApproval, approve};
use homard_channels::{
    Destination, Outgoing,
    pairing::{Error, MAX_PENDING, PairingRequest, PairingStore, TTL_MS},
};
use homard_config::{edit, path::Path};
use homard_gateway::{Method, MethodRequest, Scope};
use homard_proto::{
    ErrorShape,
    method::channels::{
        LogoutParams, LogsParams, PairingApproveParams, PairingDismissParams, PairingListParams, PairingRevokeParams,
        StatusParams,
    },
};
use homard_runtime::Ambient;
use homard_settings::{
    change::{ChangeAuthor, change},
    channel_kinds::{CHANNEL_KINDS, label},
    channels::DEFAULT_ACCOUNT,
    paths::Paths,
};
use homard_store::{DeliveryRow, DeliveryState, DeliveryTarget};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use self::send::SendResults;
use crate::reload::ConfigReloader;

/// Default timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The objects that the methods need.
#[derive(Clone)]
struct ChannelMethods {
    channels: Channels,
    live: ConfigReloader,
    paths: Paths,
    results: SendResults,
}

/// Returns the methods for channels.
pub fn methods(channels: &Channels, live: &ConfigReloader, paths: &Paths) -> Vec<Method> {
    let context = ChannelMethods {
        channels: channels.clone(),
        live: live.clone(),
        paths: paths.clone(),
        results: SendResults::default(),
    };
    vec![
        method("channels.status", Scope::Read, &context, status),
        method("channels.logs", Scope::Read, &context, logs),
        method("channels.logout", Scope::Admin, &context, logout),
        method("channels.pairing.list", Scope::Pairing, &context, pairing_list),
        method("channels.pairing.approve", Scope::Admin, &context, pairing_approve),
        method("channels.pairing.dismiss", Scope::Pairing, &context, pairing_dismiss),
        method("channels.pairing.revoke", Scope::Admin, &context, pairing_revoke),
        method("send", Scope::Write, &context, send::send),
        method("poll", Scope::Write, &context, send::poll),
    ]
}

fn method<A>(
    name: &'static str,
    scope: Scope,
    context: &ChannelMethods,
    answer: fn(MethodRequest, ChannelMethods) -> A,
) -> Method
where
    A: Future<Output = Result<Value, ErrorShape>> + Send + 'static,
{
    let context = context.clone();
    Method::new(name, scope, move |request| answer(request, context.clone()))
}

async fn status(mut request: MethodRequest, context: ChannelMethods) -> Result<Value, ErrorShape> {
    let StatusParams { probe, timeout_ms } = request.params()?;
    let probe_timeout = timeout_ms.map_or(PROBE_TIMEOUT, Duration::from_millis).min(PROBE_TIMEOUT * 3);
    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let outbox = context.channels.outbox().await.map_err(unavailable)?;
    for ((channel, name), account) in context.channels.all() {
        let mut row = row(&name, &account, probe.then_some(probe_timeout)).await;
        row["outbox"] = undelivered(&outbox, &channel, &name);
        rows.entry(channel).or_default().push(row);
    }
    for ((channel, name), why) in context.channels.unusable() {
        let row = json!({
            "accountId": name, "enabled": true, "configured": false, "running": false, "connected": false, "lastError": why,
        });
        rows.entry(channel).or_default().push(row);
    }
    let order: Vec<_> = CHANNEL_KINDS.iter().map(|(name, _)| *name).filter(|name| rows.contains_key(*name)).collect();
    let labels: Map<String, Value> = order.iter().map(|name| ((*name).to_owned(), label(name).into())).collect();
    let meta: Vec<_> = order
        .iter()
        .map(|name| json!({"id": name, "label": label(name), "detailLabel": label(name), "systemImage": null}))
        .collect();
    let first = |rows: &Vec<Value>| {
        let default_row = rows.iter().find(|row| row["accountId"] == DEFAULT_ACCOUNT).or(rows.first());
        default_row.cloned().unwrap_or_default()
    };
    let default_accounts: Map<_, _> =
        rows.iter().map(|(name, rows)| (name.clone(), first(rows)["accountId"].clone())).collect();
    let channels: Map<_, _> = rows.iter().map(|(name, rows)| (name.clone(), first(rows))).collect();
    Ok(json!({
        "ts": Ambient::system().now_ms(), "channelOrder": order, "channelLabels": labels, "channelDetailLabels": labels,
        "channelSystemImages": {}, "channelMeta": meta, "channels": channels, "channelAccounts": rows,
        "channelDefaultAccountId": default_accounts,
    }))
}

/// Maximum number of failed deliveries of an account that are returned, the newest.
const MAX_FAILED: usize = 20;

/// Returns the undelivered messages of an account, as far as known.
fn undelivered(outbox: &[DeliveryRow], channel: &str, account: &str) -> Value {
    let (mut waiting, mut unknown, mut failed) = (0, Vec::new(), Vec::new());
    for row in outbox {
        let DeliveryTarget { channel: row_channel, account: row_account, to } = &row.delivery.target;
        let is_same_account = row_account == account || (row_account.is_empty() && account == DEFAULT_ACCOUNT);
        if row_channel != channel || !is_same_account {
            continue;
        }
        let mut entry =
            json!({"id": row.delivery.id, "to": to, "queuedAt": row.delivery.at, "runId": row.delivery.run});
        match &row.state {
            DeliveryState::Queued | DeliveryState::Sending | DeliveryState::Failed { .. } => waiting += 1,
            DeliveryState::Unknown { reason } => {
                entry["reason"] = json!(reason);
                unknown.push(entry);
            }
            DeliveryState::Dead { reason } => {
                entry["reason"] = json!(reason);
                failed.push(entry);
            }
            DeliveryState::Sent { .. } => {}
        }
    }
    let failed = failed.split_off(failed.len().saturating_sub(MAX_FAILED));
    json!({"waiting": waiting, "unknown": unknown, "failed": failed})
}

/// Returns the state of one account.
async fn row(name: &str, account: &AccountRuntime, probe: Option<Duration>) -> Value {
    let mut row = json!({"accountId": name, "name": account.config.name, "enabled": true, "configured": true});
    let view = account.view();
    let fields = row.as_object_mut().into_iter().zip(view.as_object());
    fields.for_each(|(row, view)| row.extend(view.clone()));
    if let Some(bytes) = account.host_memory() {
        row["hostMemoryBytes"] = bytes.into();
    }
    if let Some(time_limit) = probe {
        let response = timeout(time_limit, Channels::probe(account)).await;
        let outcome = response.unwrap_or_else(|_| Err(format!("no answer within {} ms", time_limit.as_millis())));
        row["probe"] = match outcome {
            Ok(probe) => json!({
                "ok": true, "bot": {"id": probe.id, "username": probe.username, "name": probe.name}, "hints": probe.hints,
            }),
            Err(why) => json!({"ok": false, "error": why}),
        };
        row["lastProbeAt"] = Ambient::system().now_ms().into();
    }
    row
}

async fn logs(mut request: MethodRequest, context: ChannelMethods) -> Result<Value, ErrorShape> {
    let LogsParams { channel, account_id } = request.params()?;
    let is_selected = |(known, name): &(String, String)| {
        *known == channel.trim().to_lowercase()
            && account_id.as_ref().is_none_or(|wanted| *name == wanted.trim().to_lowercase())
    };
    let accounts: Vec<_> = context.channels.all().into_iter().filter(|(key, _)| is_selected(key)).collect();
    if accounts.is_empty() {
        return Err(ErrorShape::invalid(format!("channel {} is not configured", channel.trim())));
    }
    let mut lines: Vec<(u64, Value)> = Vec::new();
    for ((_, name), account) in accounts {
        let line =
            |Incident { at, text, is_loss }| (at, json!({"ts": at, "accountId": name, "text": text, "loss": is_loss}));
        lines.extend(account.incidents().into_iter().map(line));
    }
    lines.sort_by_key(|(at, _)| *at);
    let lines: Vec<_> = lines.into_iter().map(|(_, line)| line).collect();
    Ok(json!({"channel": channel.trim().to_lowercase(), "lines": lines}))
}

/// Removes the credentials of an account from the config, which disconnects it.
async fn logout(mut request: MethodRequest, context: ChannelMethods) -> Result<Value, ErrorShape> {
    let LogoutParams { channel, account_id } = request.params()?;
    let name = channel.trim().to_lowercase();
    let secrets: &[&str] = match name.as_str() {
        "telegram" => &["botToken", "tokenFile"],
        "discord" => &["token", "tokenFile"],
        "webhook" => &["secret"],
        _ => return Err(ErrorShape::invalid(format!("unsupported channel: {name}"))),
    };
    let account = account_id.as_deref().map_or(DEFAULT_ACCOUNT, str::trim).to_owned();
    let section = Path::root().key("channels").key(&name);
    let mut secret_paths: Vec<_> =
        secrets.iter().map(|secret| section.key("accounts").key(&account).key(secret)).collect();
    if account == DEFAULT_ACCOUNT {
        secret_paths.extend(secrets.iter().map(|secret| section.key(secret)));
    }
    let (live, paths) = (context.live, context.paths);
    let outcome = tokio::task::spawn_blocking(move || {
        let outcome = change(&paths, ChangeAuthor::User, |text| {
            let mut text = text.to_owned();
            for path in &secret_paths {
                text = edit::unset(&text, path)?.0;
            }
            Ok(text)
        });
        live.reload();
        outcome
    });
    let outcome = outcome.await.map_err(unavailable)?.map_err(unavailable)?;
    // The account stays connected if its token comes from the environment.
    let is_logged_in =
        context.channels.all().iter().any(|((channel, known), _)| *channel == name && *known == account.to_lowercase());
    Ok(json!({
        "channel": name, "accountId": account, "cleared": !outcome.changed.is_empty(), "loggedOut": !is_logged_in,
    }))
}

async fn pairing_list(mut request: MethodRequest, context: ChannelMethods) -> Result<Value, ErrorShape> {
    let PairingListParams { channel } = request.params()?;
    let now = Ambient::system().now_ms();
    let names: Vec<String> = match channel {
        Some(channel) => vec![channel.trim().to_lowercase()],
        None => CHANNEL_KINDS.iter().map(|(name, _)| (*name).to_owned()).collect(),
    };
    let keys: Vec<(String, String)> = context.channels.all().into_iter().map(|(key, _)| key).collect();
    pairing_document(context.channels.pairing_store(), &names, &keys, now).map_err(error_shape)
}

/// Builds the list of pairing requests and approvals of these channels. `keys` are the running accounts.
pub fn pairing_document(
    store: &PairingStore,
    names: &[String],
    keys: &[(String, String)],
    now: u64,
) -> Result<Value, Error> {
    let channels: Vec<Value> = names.iter().map(|name| pairing_row(store, name, now)).collect::<Result<_, Error>>()?;
    let mut requests = Vec::new();
    for name in names {
        requests.extend(store.pending(name, now)?.iter().map(|request| pairing_request(name, request)));
    }
    let accounts = keys.iter().filter(|(channel, _)| names.contains(channel)).map(|(channel, account)| {
        json!({"channel": channel, "channelLabel": label(channel), "accountId": account, "notifySupported": true})
    });
    let is_owned = channels.iter().any(|one| one["approved"] != json!([]) || !one["approvedByAccount"].is_null());
    Ok(json!({
        "accounts": accounts.collect::<Vec<_>>(), "requests": requests, "commandOwnerConfigured": is_owned,
        "limits": {"pendingPerAccount": MAX_PENDING, "ttlMs": TTL_MS}, "channels": channels,
    }))
}

/// Returns the requests and approvals of a channel. `approved` has the ids of the default account, `approvedByAccount`
/// those of the others, if there are any.
fn pairing_row(store: &PairingStore, channel: &str, now: u64) -> Result<Value, Error> {
    let (mut approved, mut by_account) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    for (account, id) in store.all_approved(channel)? {
        match account {
            Some(account) => by_account.entry(account).or_default().push(id),
            None => approved.push(id),
        }
    }
    let mut row = json!({"channel": channel, "requests": store.pending(channel, now)?, "approved": approved});
    if !by_account.is_empty() {
        row["approvedByAccount"] = json!(by_account);
    }
    Ok(row)
}

/// Returns a pairing request as the control UI shows it.
fn pairing_request(channel: &str, request: &PairingRequest) -> Value {
    let account = request.account();
    let mut names =
        ["name", "firstName", "username", "tag"].iter().filter_map(|name| request.meta.get(*name)?.as_str());
    let document = json!(request);
    let ttl = i64::try_from(TTL_MS).unwrap_or(i64::MAX);
    let expires = Timestamp::from_millisecond(request.created_at.as_millisecond().saturating_add(ttl));
    json!({
        "requestId": request.code, "channel": channel, "channelLabel": label(channel), "accountId": account,
        "senderId": request.id, "senderLabel": names.next().unwrap_or(&request.id), "createdAt": document["createdAt"],
        "lastSeenAt": document["lastSeenAt"], "notifySupported": true,
        "expiresAt": expires.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
    })
}

async fn pairing_approve(mut method_request: MethodRequest, context: ChannelMethods) -> Result<Value, ErrorShape> {
    let PairingApproveParams { channel, account_id, code, notify, guest } = method_request.params()?;
    if code.trim().is_empty() {
        return Err(ErrorShape::invalid("invalid channels.pairing.approve params: must have required property 'code'"));
    }
    let request = code.trim().to_ascii_uppercase();
    let channel = channel.trim().to_lowercase();
    check_account(context.channels.pairing_store(), &channel, account_id.as_deref(), &code)?;
    let (channels, paths, live, named) = (context.channels.clone(), context.paths, context.live, channel.clone());
    let approval = tokio::task::spawn_blocking(move || {
        let now = Ambient::system().now_ms();
        let approved = approve(
            channels.pairing_store(),
            &paths,
            SenderApproval { channel: &named, code: &code, is_guest: guest },
            now,
        );
        live.reload();
        approved
    });
    let approved = approval.await.map_err(unavailable)?.map_err(ErrorShape::invalid)?;
    let mut notify_error = None;
    if notify {
        let outgoing = Outgoing {
            id: format!("approved-{channel}-{request}"),
            destination: Destination { to: approved.id.clone(), thread: None },
            text: "Access approved. Send a message to start chatting.".to_owned(),
            ..Outgoing::default()
        };
        notify_error = context
            .channels
            .send_now(Some(&channel), Some(&approved.account), outgoing)
            .await
            .err()
            .map(|error| error.to_string());
    }
    Ok(approval_document(&channel, &request, &approved, notify, notify_error.as_deref()))
}

/// Builds the result of an approval. `error` says why the sender was not notified.
pub fn approval_document(
    channel: &str,
    request: &str,
    approved: &ApprovedSender,
    notify: bool,
    error: Option<&str>,
) -> Value {
    let notification = match (notify, error) {
        (false, _) => "not-requested",
        (true, None) => "sent",
        (true, Some(_)) => "failed",
    };
    json!({
        "ok": true, "channel": channel, "accountId": approved.account, "id": approved.id, "owner": approved.is_owner,
        "notified": notify && error.is_none(), "notifyError": error, "requestId": request, "senderId": approved.id,
        "notification": notification,
        "commandOwnerBootstrap": if approved.is_owner { "configured" } else { "not-requested" },
    })
}

/// Rejects a request that belongs to another account than the one that is named.
fn check_account(store: &PairingStore, channel: &str, named: Option<&str>, code: &str) -> Result<(), ErrorShape> {
    let Some(named) = named else { return Ok(()) };
    let pending = store.pending(channel, Ambient::system().now_ms()).map_err(error_shape)?;
    let request = pending.iter().find(|request| request.code.eq_ignore_ascii_case(code.trim()));
    match request.map(PairingRequest::account) {
        Some(account) if account != named => {
            Err(ErrorShape::invalid(format!("request {code} belongs to account {account}, not to account {named}")))
        }
        // Unknown codes are rejected later.
        Some(_) | None => Ok(()),
    }
}

async fn pairing_dismiss(mut method_request: MethodRequest, context: ChannelMethods) -> Result<Value, ErrorShape> {
    let PairingDismissParams { channel, account_id, request_id } = method_request.params()?;
    let channel = channel.trim().to_lowercase();
    check_account(context.channels.pairing_store(), &channel, account_id.as_deref(), &request_id)?;
    let dismissal = tokio::task::spawn_blocking(move || {
        context.channels.pairing_store().dismiss(&channel, &request_id, Ambient::system().now_ms())
    });
    let request = dismissal.await.map_err(unavailable)?.map_err(error_shape)?;
    Ok(json!({"requestId": request.code, "senderId": request.id}))
}

async fn pairing_revoke(mut request: MethodRequest, context: ChannelMethods) -> Result<Value, ErrorShape> {
    let PairingRevokeParams { channel, id } = request.params()?;
    let channel = channel.trim().to_lowercase();
    let was_approved = context.channels.pairing_store().revoke(&channel, id.trim()).map_err(error_shape)?;
    Ok(json!({"ok": true, "channel": channel, "id": id.trim(), "revoked": was_approved}))
}

fn error_shape(error: Error) -> ErrorShape {
    match error {
        Error::Channel(_) | Error::Code(_) => ErrorShape::invalid(error.to_string()),
        Error::Corrupt { .. } | Error::Io { .. } => unavailable(error),
    }
}

fn unavailable(error: impl std::fmt::Display) -> ErrorShape {
    ErrorShape::unavailable(error.to_string())
}
