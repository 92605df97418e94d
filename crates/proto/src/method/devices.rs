//! `device.*`: which devices belong to the owner, and their tokens.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Others, text};

/// What `device.pair.list` takes: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListParams {}

params!(ListParams, "device.pair.list", &[], |_| (json!({}), Others::PassedOver));

/// What `device.pair.approve` and `device.pair.reject` take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecideParams {
    /// Which request.
    pub request_id: String,
}

params!(DecideParams, "device.pair.approve", &["requestId"], |_| (json!({"requestId": text()}), Others::PassedOver));

/// What `device.pair.remove` and `device.pair.rename` take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceParams {
    /// Which device.
    pub device_id: String,
    /// Its new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

params!(DeviceParams, "device.pair.remove", &["deviceId"], |_| {
    (json!({"deviceId": text(), "label": {"type": "string", "minLength": 1, "maxLength": 64}}), Others::PassedOver)
});

/// What `device.token.rotate` and `device.token.revoke` take.
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
    (json!({"deviceId": text(), "role": text(), "scopes": scopes}), Others::PassedOver)
});
