//! The HTTP API of the fake Discord.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{BOT, DiscordCall, DiscordFault, DiscordShared, SERVER, TOKEN, state::DiscordState};
use crate::{
    fake_form,
    fake_http::{FakeHttpReply, FakeHttpRequest},
};

pub(super) async fn answer(shared: Arc<DiscordShared>, request: FakeHttpRequest) -> FakeHttpReply {
    let path = request.path.split('?').next().unwrap_or_default().to_owned();
    if let Some(id) = path.strip_prefix("/files/") {
        let file = shared.state().files.get(id).cloned();
        return match file {
            Some(body) => FakeHttpReply::Complete { status: 200, headers: Vec::new(), body },
            None => denied(404, 0, "Not Found"),
        };
    }
    let Some(path) = path.strip_prefix("/api/v10/").map(str::to_owned) else { return denied(404, 0, "Not Found") };
    if request.header("authorization") != Some(&format!("Bot {TOKEN}")) {
        return denied(401, 0, "401: Unauthorized");
    }
    let (body, files) = match fake_form::read(&request) {
        Some((params, files)) => {
            (serde_json::from_str(params["payload_json"].as_str().unwrap_or_default()).unwrap_or_default(), files)
        }
        None => (serde_json::from_slice(&request.body).unwrap_or_default(), Vec::new()),
    };
    let call = DiscordCall { route: route(&request.method, &path), path, body, files };
    let fault = shared.change(|state| state.record_call(&call));
    match &fault {
        Some(DiscordFault::Flood(seconds)) => return flood(*seconds, false),
        Some(DiscordFault::GlobalFlood(seconds)) => return flood(*seconds, true),
        Some(DiscordFault::Denied(status, code, why)) => return denied(*status, *code, why),
        Some(DiscordFault::Page(status)) => return FakeHttpReply::page(*status),
        Some(DiscordFault::Cut) => return FakeHttpReply::Cut,
        Some(DiscordFault::Silence) => return FakeHttpReply::Silence,
        Some(
            DiscordFault::Nothing
            | DiscordFault::AcceptThenDrop
            | DiscordFault::AcceptThenHalf
            | DiscordFault::AcceptThenSilence
            | DiscordFault::Bucket(..),
        )
        | None => {}
    }
    let reply = shared.change(|state| execute(state, &call, &request.path));
    match fault {
        Some(DiscordFault::AcceptThenDrop) => FakeHttpReply::Cut,
        Some(DiscordFault::AcceptThenHalf) => FakeHttpReply::Truncated,
        Some(DiscordFault::AcceptThenSilence) => FakeHttpReply::Silence,
        Some(DiscordFault::Bucket(remaining, resets_after)) => with_bucket(reply, remaining, resets_after),
        _ => reply,
    }
}

/// Returns the method and the path with `*` for each id.
fn route(method: &str, path: &str) -> String {
    let is_id = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts: Vec<&str> = path.split('/').map(|part| if is_id(part) { "*" } else { part }).collect();
    match parts.as_mut_slice() {
        ["interactions", _, token, ..] => *token = "*",
        ["channels", _, "messages", _, "reactions", emoji, ..] => *emoji = "*",
        _ => {}
    }
    format!("{method} {}", parts.join("/"))
}

fn execute(state: &mut DiscordState, call: &DiscordCall, address: &str) -> FakeHttpReply {
    let parts: Vec<&str> = call.path.split('/').collect();
    let number = |at: usize| parts.get(at).and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
    match call.route.as_str() {
        "GET users/@me" => ok(&json!({"id": BOT.to_string(), "username": "fake-bot", "bot": true})),
        "GET applications/@me" => ok(&json!({"id": BOT.to_string(), "flags": 1 << 19})),
        "GET users/@me/guilds" => ok(&json!([{"id": SERVER.to_string()}])),
        "GET gateway/bot" => {
            let limit = json!({"total": 1000, "remaining": 1000, "reset_after": 0, "max_concurrency": 1});
            ok(&json!({"url": state.gateway.address, "shards": 1, "session_start_limit": limit}))
        }
        "POST users/@me/channels" => match call.body["recipient_id"].as_str().and_then(|id| id.parse::<u64>().ok()) {
            Some(user) if user < 500 => {
                ok(&state.channel(super::FakeDiscord::direct_channel(user)).unwrap_or_default())
            }
            _ => denied(400, 50033, "Invalid Recipient(s)"),
        },
        "GET channels/*" => state.channel(number(1)).map_or_else(unknown_channel, |channel| ok(&channel)),
        "GET guilds/*/members/*" => {
            let roles = state.roles.get(&number(3)).cloned().unwrap_or_default();
            ok(&json!({"roles": roles, "user": {"id": parts.get(3)}}))
        }
        "GET channels/*/messages" => {
            let query = |name: &str| {
                let (_, query) = address.split_once('?')?;
                query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?.parse::<u64>().ok()
            };
            let limit = query("limit").unwrap_or(50) as usize;
            ok(&json!(state.messages_after(number(1), query("after").unwrap_or(0), limit)))
        }
        "POST channels/*/messages" => send(state, number(1), call),
        "GET applications/*/commands" => ok(&json!(state.commands.as_array().cloned().unwrap_or_default())),
        "PUT applications/*/commands" => {
            state.commands = call.body.clone();
            ok(&state.commands)
        }
        "POST channels/*/typing" | "POST interactions/*/*/callback" => empty(),
        _ => match parts.as_slice() {
            ["channels", channel, "messages", message, rest @ ..] => {
                let (channel, message, rest) = (*channel, *message, rest.to_vec());
                on_message(state, call, [channel, message], &rest)
            }
            _ => denied(404, 0, "404: Not Found"),
        },
    }
}

fn send(state: &mut DiscordState, channel: u64, call: &DiscordCall) -> FakeHttpReply {
    if state.channel(channel).is_none() {
        return unknown_channel();
    }
    let text = call.body["content"].as_str().unwrap_or_default();
    if text.chars().count() > 2000 {
        return denied(400, 50035, "Invalid Form Body");
    }
    if text.is_empty() && call.files.is_empty() && call.body["poll"].is_null() {
        return denied(400, 50006, "Cannot send an empty message");
    }
    let file = call.files.first().map(|(_, _, bytes)| bytes.clone());
    ok(&state.add_own_message(channel, &call.body, file))
}

fn on_message(state: &mut DiscordState, call: &DiscordCall, place: [&str; 2], rest: &[&str]) -> FakeHttpReply {
    let [channel, id] = place;
    let method = call.route.split(' ').next().unwrap_or_default();
    if method == "DELETE" && rest.is_empty() {
        return if state.remove_message(channel, id) { empty() } else { denied(404, 10008, "Unknown Message") };
    }
    let Some(message) = state.message(channel, id) else { return denied(404, 10008, "Unknown Message") };
    match (method, rest) {
        ("GET", []) => ok(message),
        ("PATCH", []) => {
            for field in ["content", "components"] {
                if let Some(value) = call.body.get(field) {
                    message[field] = value.clone();
                }
            }
            ok(message)
        }
        ("PUT" | "DELETE", ["reactions", emoji, "@me"]) => {
            let emoji = decoded(emoji);
            let mut reactions = message["reactions"].as_array().cloned().unwrap_or_default();
            reactions.retain(|reaction| reaction["emoji"]["name"] != emoji.as_str());
            if method == "PUT" {
                reactions.push(json!({"me": true, "emoji": {"id": null, "name": emoji}}));
            }
            message["reactions"] = json!(reactions);
            empty()
        }
        _ => denied(404, 0, "404: Not Found"),
    }
}

/// Decodes the percent encoding of a path.
fn decoded(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ok(body: &Value) -> FakeHttpReply {
    FakeHttpReply::json(200, body)
}

fn empty() -> FakeHttpReply {
    FakeHttpReply::Complete { status: 204, headers: Vec::new(), body: Vec::new() }
}

fn denied(status: u16, code: u64, why: &str) -> FakeHttpReply {
    FakeHttpReply::json(status, &json!({"code": code, "message": why}))
}

fn unknown_channel() -> FakeHttpReply {
    denied(404, 10003, "Unknown Channel")
}

fn flood(seconds: f64, is_global: bool) -> FakeHttpReply {
    let body = json!({"message": "You are being rate limited.", "retry_after": seconds, "global": is_global});
    FakeHttpReply::json(429, &body)
}

fn with_bucket(reply: FakeHttpReply, remaining: u64, resets_after: f64) -> FakeHttpReply {
    match reply {
        FakeHttpReply::Complete { status, mut headers, body } => {
            let bucket = [
                ("x-ratelimit-bucket", "a-bucket".to_owned()),
                ("x-ratelimit-limit", "5".to_owned()),
                ("x-ratelimit-remaining", remaining.to_string()),
                ("x-ratelimit-reset-after", resets_after.to_string()),
            ];
            headers.extend(bucket.map(|(name, value)| (name.to_owned(), value)));
            FakeHttpReply::Complete { status, headers, body }
        }
        other @ (FakeHttpReply::Cut | FakeHttpReply::Truncated | FakeHttpReply::Silence) => other,
    }
}
