//! `channels.*`, `send` and `poll`: state of chat platforms, pairing, and sending messages.

mod send;

use std::{collections::BTreeMap, future::Future, time::Duration};

use homard_agent::Ambient;
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
use homard_store::{DeliveryRow, DeliveryState, DeliveryTarget};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use self::send::SendResults;
use crate::{
    assemble::channels::{AccountRuntime, ApprovedSender, CHANNEL_KINDS, Channels, approve, label},
    config::{
        change::{ChangeAuthor, change},
        channels::DEFAULT_ACCOUNT,
    },
    paths::Paths,
    reload::ConfigReloader,
};

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
pub(super) fn methods(channels: &Channels, live: &ConfigReloader, paths: &Paths) -> Vec<Method> {
    let house = ChannelMethods {
        channels: channels.clone(),
        live: live.clone(),
        paths: paths.clone(),
        results: SendResults::default(),
    };
    vec![
        method("channels.status", Scope::Read, &house, status),
        method("channels.logs", Scope::Read, &house, logs),
        method("channels.logout", Scope::Admin, &house, logout),
        method("channels.pairing.list", Scope::Pairing, &house, pairing_list),
        method("channels.pairing.approve", Scope::Admin, &house, pairing_approve),
        method("channels.pairing.dismiss", Scope::Pairing, &house, pairing_dismiss),
        method("channels.pairing.revoke", Scope::Admin, &house, pairing_revoke),
        method("send", Scope::Write, &house, send::send),
        method("poll", Scope::Write, &house, send::poll),
    ]
}

fn method<A>(
    name: &'static str,
    scope: Scope,
    house: &ChannelMethods,
    answer: fn(MethodRequest, ChannelMethods) -> A,
) -> Method
where
    A: Future<Output = Result<Value, ErrorShape>> + Send + 'static,
{
    let house = house.clone();
    Method::new(name, scope, move |asked| answer(asked, house.clone()))
}

async fn status(mut asked: MethodRequest, house: ChannelMethods) -> Result<Value, ErrorShape> {
    let StatusParams { probe, timeout_ms } = asked.params()?;
    let patience = timeout_ms.map_or(PROBE_TIMEOUT, Duration::from_millis).min(PROBE_TIMEOUT * 3);
    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let outbox = house.channels.outbox().await.map_err(unavailable)?;
    for ((channel, name), account) in house.channels.all() {
        let mut row = row(&name, &account, probe.then_some(patience)).await;
        row["outbox"] = undelivered(&outbox, (&channel, &name));
        rows.entry(channel).or_default().push(row);
    }
    for ((channel, name), why) in house.channels.unusable() {
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
        let usual = rows.iter().find(|row| row["accountId"] == DEFAULT_ACCOUNT).or(rows.first());
        usual.cloned().unwrap_or_default()
    };
    let usual: Map<_, _> = rows.iter().map(|(name, rows)| (name.clone(), first(rows)["accountId"].clone())).collect();
    let channels: Map<_, _> = rows.iter().map(|(name, rows)| (name.clone(), first(rows))).collect();
    Ok(json!({
        "ts": Ambient::system().now_ms(), "channelOrder": order, "channelLabels": labels, "channelDetailLabels": labels,
        "channelSystemImages": {}, "channelMeta": meta, "channels": channels, "channelAccounts": rows,
        "channelDefaultAccountId": usual,
    }))
}

/// Returns the undelivered messages of an account, as far as known.
fn undelivered(outbox: &[DeliveryRow], (channel, account): (&str, &str)) -> Value {
    let (mut waiting, mut unknown) = (0, Vec::new());
    for row in outbox {
        let DeliveryTarget { channel: of, account: by, to } = &row.delivery.target;
        let is_by = by == account || (by.is_empty() && account == DEFAULT_ACCOUNT);
        if of != channel || !is_by {
            continue;
        }
        match row.state {
            DeliveryState::Queued | DeliveryState::Sending | DeliveryState::Failed { .. } => waiting += 1,
            DeliveryState::Unknown => {
                unknown.push(json!({"id": row.delivery.id, "to": to, "queuedAt": row.delivery.at}));
            }
            DeliveryState::Sent { .. } | DeliveryState::Dead { .. } => {}
        }
    }
    json!({"waiting": waiting, "unknown": unknown})
}

/// Returns the state of one account.
async fn row(name: &str, account: &AccountRuntime, probe: Option<Duration>) -> Value {
    let mut row = json!({"accountId": name, "name": account.config.name, "enabled": true, "configured": true});
    let standing = account.view();
    let fields = row.as_object_mut().into_iter().zip(standing.as_object());
    fields.for_each(|(row, standing)| row.extend(standing.clone()));
    if let Some(patience) = probe {
        let asked = timeout(patience, Channels::probe(account)).await;
        let told = asked.unwrap_or_else(|_| Err(format!("no answer within {} ms", patience.as_millis())));
        row["probe"] = match told {
            Ok(probe) => json!({
                "ok": true, "bot": {"id": probe.id, "username": probe.username, "name": probe.name}, "hints": probe.hints,
            }),
            Err(why) => json!({"ok": false, "error": why}),
        };
        row["lastProbeAt"] = Ambient::system().now_ms().into();
    }
    row
}

async fn logs(mut asked: MethodRequest, house: ChannelMethods) -> Result<Value, ErrorShape> {
    let LogsParams { channel, account_id } = asked.params()?;
    let of = |(known, name): &(String, String)| {
        *known == channel.trim().to_lowercase()
            && account_id.as_ref().is_none_or(|wanted| *name == wanted.trim().to_lowercase())
    };
    let accounts: Vec<_> = house.channels.all().into_iter().filter(|(key, _)| of(key)).collect();
    if accounts.is_empty() {
        return Err(ErrorShape::invalid(format!("the channel {} is not set up", channel.trim())));
    }
    let mut lines: Vec<(u64, Value)> = Vec::new();
    for ((_, name), account) in accounts {
        let story = account.incidents().into_iter();
        lines.extend(story.map(|(at, text)| (at, json!({"ts": at, "accountId": name, "text": text}))));
    }
    lines.sort_by_key(|(at, _)| *at);
    let lines: Vec<_> = lines.into_iter().map(|(_, line)| line).collect();
    Ok(json!({"channel": channel.trim().to_lowercase(), "lines": lines}))
}

/// Removes the credentials of an account from the config, which disconnects it.
async fn logout(mut asked: MethodRequest, house: ChannelMethods) -> Result<Value, ErrorShape> {
    let LogoutParams { channel, account_id } = asked.params()?;
    let name = channel.trim().to_lowercase();
    let secrets: &[&str] = match name.as_str() {
        "telegram" => &["botToken", "tokenFile"],
        "webhook" => &["secret"],
        _ => return Err(ErrorShape::invalid(format!("unsupported channel: {name}"))),
    };
    let account = account_id.as_deref().map_or(DEFAULT_ACCOUNT, str::trim).to_owned();
    let section = Path::root().key("channels").key(&name);
    let mut places: Vec<_> = secrets.iter().map(|secret| section.key("accounts").key(&account).key(secret)).collect();
    if account == DEFAULT_ACCOUNT {
        places.extend(secrets.iter().map(|secret| section.key(secret)));
    }
    let (live, paths) = (house.live, house.paths);
    let done = tokio::task::spawn_blocking(move || {
        let done = change(&paths, ChangeAuthor::User, |text| {
            let mut text = text.to_owned();
            for place in &places {
                text = edit::unset(&text, place)?.0;
            }
            Ok(text)
        });
        live.reload();
        done
    });
    let done = done.await.map_err(unavailable)?.map_err(unavailable)?;
    // The account stays connected if its token comes from the environment.
    let is_in =
        house.channels.all().iter().any(|((channel, known), _)| *channel == name && *known == account.to_lowercase());
    Ok(json!({"channel": name, "accountId": account, "cleared": !done.changed.is_empty(), "loggedOut": !is_in}))
}

async fn pairing_list(mut asked: MethodRequest, house: ChannelMethods) -> Result<Value, ErrorShape> {
    let PairingListParams { channel } = asked.params()?;
    let now = Ambient::system().now_ms();
    let names: Vec<String> = match channel {
        Some(channel) => vec![channel.trim().to_lowercase()],
        None => CHANNEL_KINDS.iter().map(|(name, _)| (*name).to_owned()).collect(),
    };
    let keys: Vec<(String, String)> = house.channels.all().into_iter().map(|(key, _)| key).collect();
    pairing_document(house.channels.pairing_store(), &names, &keys, now).map_err(refusal)
}

/// Builds the list of pairing requests and approvals of these channels. `keys` are the running accounts.
pub(crate) fn pairing_document(
    book: &PairingStore,
    names: &[String],
    keys: &[(String, String)],
    now: u64,
) -> Result<Value, Error> {
    let channels: Vec<Value> = names.iter().map(|name| pairing_row(book, name, now)).collect::<Result<_, Error>>()?;
    let mut requests = Vec::new();
    for name in names {
        requests.extend(book.pending(name, now)?.iter().map(|request| pairing_request(name, request)));
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
fn pairing_row(book: &PairingStore, channel: &str, now: u64) -> Result<Value, Error> {
    let (mut approved, mut by_account) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    for (account, id) in book.all_approved(channel)? {
        match account {
            Some(account) => by_account.entry(account).or_default().push(id),
            None => approved.push(id),
        }
    }
    let mut row = json!({"channel": channel, "requests": book.pending(channel, now)?, "approved": approved});
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
    let told = json!(request);
    let ttl = i64::try_from(TTL_MS).unwrap_or(i64::MAX);
    let expires = Timestamp::from_millisecond(request.created_at.as_millisecond().saturating_add(ttl));
    json!({
        "requestId": request.code, "channel": channel, "channelLabel": label(channel), "accountId": account,
        "senderId": request.id, "senderLabel": names.next().unwrap_or(&request.id), "createdAt": told["createdAt"],
        "lastSeenAt": told["lastSeenAt"], "notifySupported": true,
        "expiresAt": expires.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
    })
}

async fn pairing_approve(mut asked: MethodRequest, house: ChannelMethods) -> Result<Value, ErrorShape> {
    let PairingApproveParams { channel, account_id, code, notify, guest } = asked.params()?;
    if code.trim().is_empty() {
        return Err(ErrorShape::invalid("invalid channels.pairing.approve params: must have required property 'code'"));
    }
    let request = code.trim().to_ascii_uppercase();
    let channel = channel.trim().to_lowercase();
    check_account(house.channels.pairing_store(), (&channel, account_id.as_deref()), &code)?;
    let (channels, paths, live, named) = (house.channels.clone(), house.paths, house.live, channel.clone());
    let approving = tokio::task::spawn_blocking(move || {
        let now = Ambient::system().now_ms();
        let approved = approve((channels.pairing_store(), &paths), (&named, &code), guest, now);
        live.reload();
        approved
    });
    let approved = approving.await.map_err(unavailable)?.map_err(ErrorShape::invalid)?;
    let mut told = None;
    if notify {
        let outgoing = Outgoing {
            id: format!("approved-{channel}-{request}"),
            destination: Destination { to: approved.id.clone(), thread: None },
            text: "Access approved. Send a message to start chatting.".to_owned(),
            ..Outgoing::default()
        };
        told = house
            .channels
            .send_now((Some(&channel), Some(&approved.account)), outgoing)
            .await
            .err()
            .map(|error| error.to_string());
    }
    Ok(approval_document((&channel, &request), &approved, notify, told.as_deref()))
}

/// Builds the result of an approval. `error` says why the sender was not notified.
pub(crate) fn approval_document(
    (channel, request): (&str, &str),
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
fn check_account(book: &PairingStore, (channel, named): (&str, Option<&str>), code: &str) -> Result<(), ErrorShape> {
    let Some(named) = named else { return Ok(()) };
    let pending = book.pending(channel, Ambient::system().now_ms()).map_err(refusal)?;
    let request = pending.iter().find(|request| request.code.eq_ignore_ascii_case(code.trim()));
    match request.map(PairingRequest::account) {
        Some(account) if account != named => {
            Err(ErrorShape::invalid(format!("request {code} belongs to account {account}, not to account {named}")))
        }
        // Unknown codes are rejected later.
        Some(_) | None => Ok(()),
    }
}

async fn pairing_dismiss(mut asked: MethodRequest, house: ChannelMethods) -> Result<Value, ErrorShape> {
    let PairingDismissParams { channel, account_id, request_id } = asked.params()?;
    let channel = channel.trim().to_lowercase();
    check_account(house.channels.pairing_store(), (&channel, account_id.as_deref()), &request_id)?;
    let dismissing = tokio::task::spawn_blocking(move || {
        house.channels.pairing_store().dismiss(&channel, &request_id, Ambient::system().now_ms())
    });
    let request = dismissing.await.map_err(unavailable)?.map_err(refusal)?;
    Ok(json!({"requestId": request.code, "senderId": request.id}))
}

async fn pairing_revoke(mut asked: MethodRequest, house: ChannelMethods) -> Result<Value, ErrorShape> {
    let PairingRevokeParams { channel, id } = asked.params()?;
    let channel = channel.trim().to_lowercase();
    let was_in = house.channels.pairing_store().revoke(&channel, id.trim()).map_err(refusal)?;
    Ok(json!({"ok": true, "channel": channel, "id": id.trim(), "revoked": was_in}))
}

fn refusal(error: Error) -> ErrorShape {
    match error {
        Error::Channel(_) | Error::Code(_) => ErrorShape::invalid(error.to_string()),
        Error::Corrupt { .. } | Error::Io { .. } => unavailable(error),
    }
}

fn unavailable(error: impl std::fmt::Display) -> ErrorShape {
    ErrorShape::unavailable(error.to_string())
}
