//! `device.*`: paired devices and their tokens.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{UnknownMembers, text};

/// Parameters of `device.pair.list`: none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListParams {}

params!(ListParams, "device.pair.list", &[], |_| (json!({}), UnknownMembers::Refused));

/// Parameters of `device.loginCode.create`: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginCodeParams {}

params!(LoginCodeParams, "device.loginCode.create", &[], |_| (json!({}), UnknownMembers::Refused));

/// Parameters of `device.pair.approve` and `device.pair.reject`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecideParams {
    /// Request id.
    pub request_id: String,
}

params!(DecideParams, "device.pair.approve", &["requestId"], |_| (
    json!({"requestId": text()}),
    UnknownMembers::Refused
));

/// Parameters of `device.pair.remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoveParams {
    /// Device id.
    pub device_id: String,
}

params!(RemoveParams, "device.pair.remove", &["deviceId"], |_| (json!({"deviceId": text()}), UnknownMembers::Refused));

/// Parameters of `device.pair.rename`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenameParams {
    /// Device id.
    pub device_id: String,
    /// New label.
    pub label: String,
}

params!(RenameParams, "device.pair.rename", &["deviceId", "label"], |_| {
    (json!({"deviceId": text(), "label": {"type": "string", "minLength": 1, "maxLength": 64}}), UnknownMembers::Refused)
});

/// Parameters of `device.token.revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RevokeParams {
    /// Device id.
    pub device_id: String,
    /// Role of the token.
    pub role: String,
}

params!(RevokeParams, "device.token.revoke", &["deviceId", "role"], |_| {
    (json!({"deviceId": text(), "role": text()}), UnknownMembers::Refused)
});

/// Parameters of `device.token.rotate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenParams {
    /// Device id.
    pub device_id: String,
    /// Role of the token.
    pub role: String,
    /// Scopes of the new token; defaults to those of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
}

params!(TokenParams, "device.token.rotate", &["deviceId", "role"], |_| {
    let scopes = json!({"type": "array", "items": text()});
    (json!({"deviceId": text(), "role": text(), "scopes": scopes}), UnknownMembers::Refused)
});
