//! `channels.*`, `send` and `poll`: how chat platforms are doing, who is let in there, and saying something.

mod say;

use std::{collections::BTreeMap, future::Future, time::Duration};

use homard_agent::Ambient;
use homard_channels::{Outgoing, Place, pairing::Error};
use homard_config::{edit, path::Path};
use homard_gateway::{Asked, Method, Scope};
use homard_proto::{
    ErrorShape,
    method::channels::{
        LogoutParams, LogsParams, PairingApproveParams, PairingListParams, PairingRevokeParams, StatusParams,
    },
};
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

/// How long a platform may take to say who we are.
const PROBE: Duration = Duration::from_secs(10);

/// What the methods work with.
#[derive(Clone)]
struct House {
    channels: Channels,
    live: Live,
    paths: Paths,
    said: Said,
}

/// The methods, answered by the channels.
pub(super) fn methods(channels: &Channels, live: &Live, paths: &Paths) -> Vec<Method> {
    let house = House { channels: channels.clone(), live: live.clone(), paths: paths.clone(), said: Said::default() };
    vec![
        method("channels.status", Scope::Read, &house, status),
        method("channels.logs", Scope::Read, &house, logs),
        method("channels.logout", Scope::Admin, &house, logout),
        method("channels.pairing.list", Scope::Pairing, &house, pairing_list),
        method("channels.pairing.approve", Scope::Admin, &house, pairing_approve),
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
    for ((channel, name), account) in house.channels.all() {
        let row = row(&name, &account, probe.then_some(patience)).await;
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

/// How one account is doing.
async fn row(name: &str, account: &Account, probe: Option<Duration>) -> Value {
    let mut row = json!({"accountId": name, "name": account.said.name, "enabled": true, "configured": true});
    let standing = account.view();
    let fields = row.as_object_mut().into_iter().zip(standing.as_object());
    fields.for_each(|(row, standing)| row.extend(standing.clone()));
    if let Some(patience) = probe {
        let asked = timeout(patience, Channels::probe(account)).await;
        let told = asked.unwrap_or_else(|_| Err(format!("it did not answer within {} s", patience.as_secs())));
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

/// Takes the secret of an account out of the config, so that it is not connected any more.
async fn logout(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
    let LogoutParams { channel, account_id } = asked.params()?;
    let name = channel.trim().to_lowercase();
    let secret = match name.as_str() {
        "telegram" => "botToken",
        "webhook" => "secret",
        _ => return Err(ErrorShape::invalid(format!("unsupported channel: {name}"))),
    };
    let account = account_id.as_deref().map_or(DEFAULT_ACCOUNT, str::trim).to_owned();
    let section = Path::root().key("channels").key(&name);
    let own = section.key("accounts").key(&account).key(secret);
    let places = if account == DEFAULT_ACCOUNT { vec![own, section.key(secret)] } else { vec![own] };
    let (live, paths) = (house.live, house.paths);
    let done = tokio::task::spawn_blocking(move || {
        let done = change(&paths.config, By::Person, |text| {
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
    let is_out = !done.changed.is_empty();
    Ok(json!({"channel": name, "accountId": account, "cleared": is_out, "loggedOut": is_out}))
}

async fn pairing_list(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
    let PairingListParams { channel } = asked.params()?;
    let now = Ambient::system().now_ms();
    let names: Vec<String> = match channel {
        Some(channel) => vec![channel.trim().to_lowercase()],
        None => KINDS.iter().map(|(name, _)| (*name).to_owned()).collect(),
    };
    let list = |name: &String| -> Result<Value, Error> {
        let book = house.channels.book();
        Ok(json!({"channel": name, "requests": book.pending(name, now)?, "approved": book.approved(name)?}))
    };
    let channels: Result<Vec<Value>, Error> = names.iter().map(list).collect();
    Ok(json!({"channels": channels.map_err(refusal)?}))
}

async fn pairing_approve(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
    let PairingApproveParams { channel, code, notify, guest } = asked.params()?;
    let channel = channel.trim().to_lowercase();
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
            id: format!("approved-{channel}-{}", approved.id),
            place: Place { to: approved.id.clone(), thread: None },
            text: "You are let in. Say something.".to_owned(),
            ..Outgoing::default()
        };
        told = house.channels.say((Some(&channel), None), outgoing).await.err().map(|error| error.to_string());
    }
    Ok(json!({
        "ok": true, "channel": channel, "id": approved.id, "owner": approved.is_owner, "notified": notify && told.is_none(),
        "notifyError": told,
    }))
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
