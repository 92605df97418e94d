//! `channels.*`, `send` and `poll`: state of chat platforms, pairing, and sending messages.

mod say;

use std::{collections::BTreeMap, future::Future, time::Duration};

use homard_agent::Ambient;
use homard_channels::{
    Outgoing, Place,
    pairing::{Book, Error, PENDING, Request, TTL_MS},
};
use homard_config::{edit, path::Path};
use homard_gateway::{Asked, Method, Scope};
use homard_proto::{
    ErrorShape,
    method::channels::{
        LogoutParams, LogsParams, PairingApproveParams, PairingDismissParams, PairingListParams, PairingRevokeParams,
        StatusParams,
    },
};
use homard_store::{DeliveryRow, DeliveryState, Target};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use self::say::Said;
use crate::{
    assemble::channels::{Account, Channels, KINDS, approve, label},
    config::{
        change::{By, change},
        channels::DEFAULT_ACCOUNT,
    },
    live::Live,
    paths::Paths,
};

/// Default timeout of a probe.
const PROBE: Duration = Duration::from_secs(10);

/// The objects that the methods need.
#[derive(Clone)]
struct House {
    channels: Channels,
    live: Live,
    paths: Paths,
    said: Said,
}

/// Returns the methods for channels.
pub(super) fn methods(channels: &Channels, live: &Live, paths: &Paths) -> Vec<Method> {
    let house = House { channels: channels.clone(), live: live.clone(), paths: paths.clone(), said: Said::default() };
    vec![
        method("channels.status", Scope::Read, &house, status),
        method("channels.logs", Scope::Read, &house, logs),
        method("channels.logout", Scope::Admin, &house, logout),
        method("channels.pairing.list", Scope::Pairing, &house, pairing_list),
        method("channels.pairing.approve", Scope::Admin, &house, pairing_approve),
        method("channels.pairing.dismiss", Scope::Pairing, &house, pairing_dismiss),
        method("channels.pairing.revoke", Scope::Admin, &house, pairing_revoke),
        method("send", Scope::Write, &house, say::send),
        method("poll", Scope::Write, &house, say::poll),
    ]
}

fn method<A>(name: &'static str, scope: Scope, house: &House, answer: fn(Asked, House) -> A) -> Method
where
    A: Future<Output = Result<Value, ErrorShape>> + Send + 'static,
{
    let house = house.clone();
    Method::new(name, scope, move |asked| answer(asked, house.clone()))
}

async fn status(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
    let StatusParams { probe, timeout_ms } = asked.params()?;
    let patience = timeout_ms.map_or(PROBE, Duration::from_millis).min(PROBE * 3);
    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let outbox = house.channels.outbox().await.map_err(unavailable)?;
    for ((channel, name), account) in house.channels.all() {
        let mut row = row(&name, &account, probe.then_some(patience)).await;
        row["outbox"] = unsent(&outbox, (&channel, &name));
        rows.entry(channel).or_default().push(row);
    }
    for ((channel, name), why) in house.channels.broken() {
        let row = json!({
            "accountId": name, "enabled": true, "configured": false, "running": false, "connected": false, "lastError": why,
        });
        rows.entry(channel).or_default().push(row);
    }
    let order: Vec<_> = KINDS.iter().map(|(name, _)| *name).filter(|name| rows.contains_key(*name)).collect();
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
fn unsent(outbox: &[DeliveryRow], (channel, account): (&str, &str)) -> Value {
    let (mut waiting, mut unknown) = (0, Vec::new());
    for row in outbox {
        let Target { channel: of, account: by, to } = &row.delivery.target;
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
async fn row(name: &str, account: &Account, probe: Option<Duration>) -> Value {
    let mut row = json!({"accountId": name, "name": account.said.name, "enabled": true, "configured": true});
    let standing = account.view();
    let fields = row.as_object_mut().into_iter().zip(standing.as_object());
    fields.for_each(|(row, standing)| row.extend(standing.clone()));
    if let Some(patience) = probe {
        let asked = timeout(patience, Channels::probe(account)).await;
        let told = asked.unwrap_or_else(|_| Err(format!("it did not answer within {} ms", patience.as_millis())));
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

async fn logs(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
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
        let story = account.story().into_iter();
        lines.extend(story.map(|(at, text)| (at, json!({"ts": at, "accountId": name, "text": text}))));
    }
    lines.sort_by_key(|(at, _)| *at);
    let lines: Vec<_> = lines.into_iter().map(|(_, line)| line).collect();
    Ok(json!({"channel": channel.trim().to_lowercase(), "lines": lines}))
}

/// Removes the credentials of an account from the config, which disconnects it.
async fn logout(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
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
        let done = change(&paths, By::Person, |text| {
            let mut text = text.to_owned();
            for place in &places {
                text = edit::unset(&text, place)?.0;
            }
            Ok(text)
        });
        live.look();
        done
    });
    let done = done.await.map_err(unavailable)?.map_err(unavailable)?;
    // The account stays connected if its token comes from the environment.
    let is_in =
        house.channels.all().iter().any(|((channel, known), _)| *channel == name && *known == account.to_lowercase());
    Ok(json!({"channel": name, "accountId": account, "cleared": !done.changed.is_empty(), "loggedOut": !is_in}))
}

async fn pairing_list(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
    let PairingListParams { channel } = asked.params()?;
    let now = Ambient::system().now_ms();
    let names: Vec<String> = match channel {
        Some(channel) => vec![channel.trim().to_lowercase()],
        None => KINDS.iter().map(|(name, _)| (*name).to_owned()).collect(),
    };
    let list = |name: &String| -> Result<Value, Error> { pairing_row(house.channels.book(), name, now) };
    let channels: Vec<Value> = names.iter().map(list).collect::<Result<_, Error>>().map_err(refusal)?;
    let keys: Vec<(String, String)> = house.channels.all().into_iter().map(|(key, _)| key).collect();
    let mut requests = Vec::new();
    for name in &names {
        let pending = house.channels.book().pending(name, now).map_err(refusal)?;
        requests.extend(pending.iter().map(|request| waiting(name, request)));
    }
    let accounts = keys.iter().filter(|(channel, _)| names.contains(channel)).map(|(channel, account)| {
        json!({"channel": channel, "channelLabel": label(channel), "accountId": account, "notifySupported": true})
    });
    let is_owned = channels.iter().any(|one| one["approved"] != json!([]) || !one["approvedByAccount"].is_null());
    Ok(json!({
        "accounts": accounts.collect::<Vec<_>>(), "requests": requests, "commandOwnerConfigured": is_owned,
        "limits": {"pendingPerAccount": PENDING, "ttlMs": TTL_MS}, "channels": channels,
    }))
}

/// Returns the requests and approvals of a channel. `approved` has the ids of the default account, `approvedByAccount`
/// those of the others, if there are any.
pub(crate) fn pairing_row(book: &Book, channel: &str, now: u64) -> Result<Value, Error> {
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
fn waiting(channel: &str, request: &Request) -> Value {
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

async fn pairing_approve(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
    let PairingApproveParams { channel, account_id, code, notify, guest } = asked.params()?;
    if code.trim().is_empty() {
        return Err(ErrorShape::invalid("invalid channels.pairing.approve params: must have required property 'code'"));
    }
    let request = code.trim().to_ascii_uppercase();
    let channel = channel.trim().to_lowercase();
    check_account(house.channels.book(), (&channel, account_id.as_deref()), &code)?;
    let (channels, paths, live, named) = (house.channels.clone(), house.paths, house.live, channel.clone());
    let approving = tokio::task::spawn_blocking(move || {
        let now = Ambient::system().now_ms();
        let approved = approve((channels.book(), &paths), (&named, &code), guest, now);
        live.look();
        approved
    });
    let approved = approving.await.map_err(unavailable)?.map_err(ErrorShape::invalid)?;
    let mut told = None;
    if notify {
        let outgoing = Outgoing {
            id: format!("approved-{channel}-{request}"),
            place: Place { to: approved.id.clone(), thread: None },
            text: "You are let in. Say something.".to_owned(),
            ..Outgoing::default()
        };
        told = house
            .channels
            .say((Some(&channel), Some(&approved.account)), outgoing)
            .await
            .err()
            .map(|error| error.to_string());
    }
    let notification = match (notify, &told) {
        (false, _) => "not-requested",
        (true, None) => "sent",
        (true, Some(_)) => "failed",
    };
    Ok(json!({
        "ok": true, "channel": channel, "accountId": approved.account, "id": approved.id, "owner": approved.is_owner, "notified": notify && told.is_none(),
        "notifyError": told, "requestId": request, "senderId": approved.id, "notification": notification,
        "commandOwnerBootstrap": if approved.is_owner { "configured" } else { "not-requested" },
    }))
}

/// Rejects a request that belongs to another account than the one that is named.
fn check_account(book: &Book, (channel, named): (&str, Option<&str>), code: &str) -> Result<(), ErrorShape> {
    let Some(named) = named else { return Ok(()) };
    let pending = book.pending(channel, Ambient::system().now_ms()).map_err(refusal)?;
    let request = pending.iter().find(|request| request.code.eq_ignore_ascii_case(code.trim()));
    match request.map(Request::account) {
        Some(account) if account != named => {
            Err(ErrorShape::invalid(format!("request {code} is of account {account}, not of account {named}")))
        }
        // Unknown codes are rejected later.
        Some(_) | None => Ok(()),
    }
}

async fn pairing_dismiss(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
    let PairingDismissParams { channel, account_id, request_id } = asked.params()?;
    let channel = channel.trim().to_lowercase();
    check_account(house.channels.book(), (&channel, account_id.as_deref()), &request_id)?;
    let dismissing = tokio::task::spawn_blocking(move || {
        house.channels.book().dismiss(&channel, &request_id, Ambient::system().now_ms())
    });
    let request = dismissing.await.map_err(unavailable)?.map_err(refusal)?;
    Ok(json!({"requestId": request.code, "senderId": request.id}))
}

async fn pairing_revoke(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
    let PairingRevokeParams { channel, id } = asked.params()?;
    let channel = channel.trim().to_lowercase();
    let was_in = house.channels.book().revoke(&channel, id.trim()).map_err(refusal)?;
    Ok(json!({"ok": true, "channel": channel, "id": id.trim(), "revoked": was_in}))
}

fn refusal(error: Error) -> ErrorShape {
    match error {
        Error::Channel(_) | Error::Code(_) => ErrorShape::invalid(error.to_string()),
        Error::Garbled { .. } | Error::Disk { .. } => unavailable(error),
    }
}

fn unavailable(error: impl std::fmt::Display) -> ErrorShape {
    ErrorShape::unavailable(error.to_string())
}
