//! Imports the pairing requests that wait for the owner: the codes that the senders have received stay valid.

use std::{fs, io::ErrorKind, path::Path};

use homard_runtime::Ambient;
use homard_settings::{channel_kinds::CHANNEL_KINDS, channels::DEFAULT_ACCOUNT, paths::Paths};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    copy::{CopyContent, PlannedCopy},
    plan::ImportPlan,
    senders::{self, FOLDER},
    source::{self, OpenclawState},
    transcripts::ImportAction,
};

/// End of the name of a channel's file, there and here.
const SUFFIX: &str = "pairing.json";

/// Lifetime of a request, there and here, in milliseconds.
const TTL_MS: u64 = 60 * 60 * 1000;

/// Folder of the requests that were read from a database.
pub(crate) const EXPORTED: &str = "pairing";

/// Plans the requests of all channels that Homard has.
pub(crate) fn plan_requests(plan: &mut ImportPlan, source: &OpenclawState, paths: &Paths) {
    let exported = plan.exported.as_ref().and_then(|exported| exported.file(EXPORTED));
    let folder = exported.unwrap_or_else(|| source.root.join(FOLDER));
    for (channel, _) in CHANNEL_KINDS {
        let from = folder.join(format!("{channel}-{SUFFIX}"));
        let theirs = match requests(&from) {
            Ok(theirs) if theirs.is_empty() => continue,
            Ok(theirs) => theirs,
            Err(why) => {
                plan.counts.requests.push(ImportAction::Broken);
                plan.warn(&from.display(), &format!("not imported: {why}"));
                continue;
            }
        };
        let to = paths.state.join(FOLDER).join(format!("{channel}-{SUFFIX}"));
        match requests(&to) {
            Ok(ours) => merge(plan, channel, theirs, ours, &to),
            Err(why) => plan.warn(&to.display(), &format!("is kept, so no pairing requests are imported: {why}")),
        }
    }
}

/// Adds the requests of a channel that have not expired to those that Homard has.
fn merge(plan: &mut ImportPlan, channel: &str, theirs: Vec<Value>, mut ours: Vec<Value>, to: &Path) {
    let approved = senders::approved(to.parent().unwrap_or(to), channel);
    let is_approved =
        |id: &str, account: &str| approved.get(account).is_some_and(|ids| ids.iter().any(|known| known == id));
    let (now, known_count, mut expired_count) = (Ambient::system().now_ms(), ours.len(), 0);
    for request in theirs {
        let Some(id) = request["id"].as_str().and_then(|id| senders::sender_id(channel, id)) else {
            plan.counts.requests.push(ImportAction::Broken);
            continue;
        };
        let is_same = |other: &Value| other["id"] == id.as_str() && account(other) == account(&request);
        if ours.iter().any(is_same) || is_approved(&id, account(&request)) {
            plan.counts.requests.push(ImportAction::Same);
        } else if !is_current(&request, now) {
            expired_count += 1;
        } else if let Some(request) = converted(&request, &id) {
            plan.counts.requests.push(ImportAction::New);
            ours.push(request);
        } else {
            plan.counts.requests.push(ImportAction::Broken);
        }
    }
    if expired_count > 0 {
        let why =
            format!("pairing requests that have expired are not imported ({expired_count}); a new message renews them");
        plan.warn(&channel, &why);
    }
    if ours.len() > known_count {
        let text = format!("{:#}\n", json!({"version": 1, "requests": ours}));
        plan.copies.push(PlannedCopy { to: to.to_owned(), what: CopyContent::Text(text), backup: None });
    }
}

/// Reads the requests of a file; none if there is no file.
fn requests(path: &Path) -> Result<Vec<Value>, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(source::object(&text)?.get("requests").and_then(Value::as_array).cloned().unwrap_or_default()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the account that received the message.
fn account(request: &Value) -> &str {
    let account = request["accountId"].as_str().or_else(|| request["meta"]["accountId"].as_str());
    account.unwrap_or(DEFAULT_ACCOUNT)
}

fn is_current(request: &Value, now_ms: u64) -> bool {
    let created_at = request["createdAt"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let created_ms = created_at.and_then(|at| u64::try_from(at.as_millisecond()).ok());
    created_ms.is_some_and(|at| now_ms.saturating_sub(at) < TTL_MS)
}

/// Converts a request; `None` if it is incomplete.
fn converted(request: &Value, id: &str) -> Option<Value> {
    let text = |name: &str| request[name].as_str().filter(|text| !text.is_empty());
    let mut converted = json!({"id": id, "code": text("code")?, "createdAt": text("createdAt")?,
        "lastSeenAt": text("lastSeenAt").or_else(|| text("createdAt"))?});
    if account(request) != DEFAULT_ACCOUNT {
        converted["accountId"] = account(request).into();
    }
    if let Some(meta) = request["meta"].as_object() {
        converted["meta"] = Value::Object(meta.clone());
    }
    Some(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_imported_until_it_expires() {
        let request = json!({"id": "4712", "code": "LMNPQRST", "createdAt": "2026-11-19T18:56:14.000Z",
            "meta": {"username": "ann", "accountId": "default"}});
        let created_ms = 1_795_114_574_000;
        assert!(is_current(&request, created_ms) && is_current(&request, created_ms + 3_599_999));
        assert!(!is_current(&request, created_ms + 3_600_000) && !is_current(&json!({}), created_ms));
        let expected = json!({"id": "4712", "code": "LMNPQRST", "createdAt": "2026-11-19T18:56:14.000Z",
            "lastSeenAt": "2026-11-19T18:56:14.000Z", "meta": {"username": "ann", "accountId": "default"}});
        assert_eq!(converted(&request, "4712"), Some(expected));
        let of_account = json!({"id": "1", "code": "C", "createdAt": "x", "meta": {"accountId": "work"}});
        assert_eq!(converted(&of_account, "1").unwrap()["accountId"], "work");
        assert_eq!(converted(&json!({"id": "1", "createdAt": "x"}), "1"), None);
    }
}
