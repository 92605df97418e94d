//! `device.*`: which devices belong to the owner, and their tokens.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Others, text};

/// What `device.pair.list` takes: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListParams {}

params!(ListParams, "device.pair.list", &[], |_| (json!({}), Others::Refused));

/// What `device.pair.approve` and `device.pair.reject` take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecideParams {
    /// Which request.
    pub request_id: String,
}

params!(DecideParams, "device.pair.approve", &["requestId"], |_| (json!({"requestId": text()}), Others::Refused));

/// What `device.pair.remove` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoveParams {
    /// Which device.
    pub device_id: String,
}

params!(RemoveParams, "device.pair.remove", &["deviceId"], |_| (json!({"deviceId": text()}), Others::Refused));

/// What `device.pair.rename` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenameParams {
    /// Which device.
    pub device_id: String,
    /// Its new name.
    pub label: String,
}

params!(RenameParams, "device.pair.rename", &["deviceId", "label"], |_| {
    (json!({"deviceId": text(), "label": {"type": "string", "minLength": 1, "maxLength": 64}}), Others::Refused)
});

/// What `device.token.revoke` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RevokeParams {
    /// Which device.
    pub device_id: String,
    /// In which role.
    pub role: String,
}

params!(RevokeParams, "device.token.revoke", &["deviceId", "role"], |_| {
    (json!({"deviceId": text(), "role": text()}), Others::Refused)
});

/// What `device.token.rotate` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenParams {
    /// Which device.
    pub device_id: String,
    /// In which role.
    pub role: String,
    /// What the new token may do; without it, what the device may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
}

params!(TokenParams, "device.token.rotate", &["deviceId", "role"], |_| {
    let scopes = json!({"type": "array", "items": text()});
    (json!({"deviceId": text(), "role": text(), "scopes": scopes}), Others::Refused)
});
