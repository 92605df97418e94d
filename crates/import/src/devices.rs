//! Imports the paired devices, which then connect without being paired again. Of their tokens only digests are stored.

use std::{fs, io::ErrorKind};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use homard_settings::paths::Paths;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    copy::{CopyContent, PlannedCopy},
    plan::ImportPlan,
    source::{self, OpenclawState},
    transcripts::ImportAction,
};

/// The list of devices, there and here.
const FILE: &str = "devices/paired.json";

/// The only role that Homard has.
const OPERATOR: &str = "operator";

/// Plans the devices that may act as operators, and reports the others.
pub(crate) fn plan_devices(plan: &mut ImportPlan, source: &OpenclawState, paths: &Paths) {
    let (from, to) = (plan.source_file(source, FILE), paths.state.join(FILE));
    let read = match fs::read_to_string(&from) {
        Ok(text) => source::object(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => Err(error.to_string()),
    };
    let theirs = match read {
        Ok(theirs) => theirs,
        Err(why) => {
            plan.counts.devices.push(ImportAction::Broken);
            return plan.warn(&from.display(), &format!("not imported: {why}"));
        }
    };
    let existing = match fs::read_to_string(&to) {
        Ok(text) => source::object(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Map::new()),
        Err(error) => Err(error.to_string()),
    };
    let mut ours = match existing {
        Ok(ours) => ours,
        Err(why) => return plan.warn(&to.display(), &format!("is kept, so no devices are imported: {why}")),
    };
    let (known_count, mut nodes) = (ours.len(), Vec::new());
    for (id, device) in theirs {
        if !is_operator(&device) {
            nodes.push(device["displayName"].as_str().unwrap_or(&id).to_owned());
        } else if ours.contains_key(&id) {
            plan.counts.devices.push(ImportAction::Same);
        } else if let Some(device) = converted(&device) {
            plan.counts.devices.push(ImportAction::New);
            ours.insert(id, device);
        } else {
            plan.counts.devices.push(ImportAction::Broken);
            plan.warn(&format!("device {id}"), "not imported: it has no public key");
        }
    }
    if !nodes.is_empty() {
        let why = format!("devices that are nodes are not imported ({}): Homard has no nodes", nodes.join(", "));
        plan.warn(&FILE, &why);
    }
    if ours.len() > known_count {
        let text = format!("{:#}\n", Value::Object(ours));
        plan.copies.push(PlannedCopy { to, what: CopyContent::Text(text), backup: None });
    }
}

fn is_operator(device: &Value) -> bool {
    let roles = device["roles"].as_array().map(Vec::as_slice).unwrap_or_default();
    device["role"] == OPERATOR || roles.iter().any(|role| role == OPERATOR)
}

/// Converts a device; `None` if it has no key.
fn converted(device: &Value) -> Option<Value> {
    let text = |name: &str| device[name].as_str().filter(|text| !text.is_empty());
    let scopes = device["approvedScopes"].as_array().or_else(|| device["scopes"].as_array());
    let created = device["createdAtMs"].as_u64().unwrap_or_default();
    let approved = device["approvedAtMs"].as_u64().unwrap_or(created);
    let token = |token: &Value| {
        let is_valid = token["revokedAtMs"].is_null();
        let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(token["token"].as_str().filter(|_| is_valid)?));
        let scopes = token["scopes"].as_array().or(scopes);
        Some(
            json!({"digest": digest, "scopes": scopes, "createdAtMs": token["createdAtMs"].as_u64().unwrap_or(created)}),
        )
    };
    let mut converted = json!({
        "publicKey": text("publicKey")?, "platform": text("platform").unwrap_or_default(),
        "clientId": text("clientId").unwrap_or_default(), "clientMode": text("clientMode").unwrap_or_default(),
        "scopes": scopes.cloned().unwrap_or_default(), "createdAtMs": created, "approvedAtMs": approved,
        "lastSeenAtMs": device["lastSeenAtMs"].as_u64().unwrap_or(approved),
        "tokens": token(&device["tokens"][OPERATOR]).into_iter().collect::<Vec<_>>(),
    });
    if let Some(name) = text("displayName") {
        converted["displayName"] = json!(name);
    }
    Some(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_becomes_a_digest_and_a_revoked_one_is_left_out() {
        let device = |token: Value| {
            json!({"publicKey": "key", "role": "operator", "scopes": ["operator.read"], "createdAtMs": 5,
                "tokens": {"operator": token}})
        };
        let valid = converted(&device(json!({"token": "secret", "createdAtMs": 6}))).unwrap();
        let digest = "K7gNU3sdo-OL0wNhqoVWhr3g6s1xYv72ol_pe_Unols";
        assert_eq!(valid["tokens"], json!([{"digest": digest, "scopes": ["operator.read"], "createdAtMs": 6}]));
        assert_eq!((&valid["approvedAtMs"], &valid["lastSeenAtMs"]), (&json!(5), &json!(5)));
        let revoked = converted(&device(json!({"token": "secret", "revokedAtMs": 7}))).unwrap();
        assert_eq!(revoked["tokens"], json!([]));
        assert_eq!(converted(&json!({"role": "operator"})), None);
        assert!(is_operator(&json!({"roles": ["node", "operator"]})) && !is_operator(&json!({"role": "node"})));
    }
}
