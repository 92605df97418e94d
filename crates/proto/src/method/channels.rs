//! `channels.*`, `send` and `poll`: how chat platforms are doing, who is let in there, and saying something.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Others, flag, text};

/// What `channels.status` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusParams {
    /// Whether the platforms are asked.
    pub probe: bool,
    /// How long that may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

params!(StatusParams, "channels.status", &[], |_| (
    json!({"probe": flag(), "timeoutMs": {"type": "integer", "minimum": 0}}),
    Others::PassedOver
));

/// Makes a type for the parameters of a method that is about one account.
macro_rules! of_account {
    ($($(#[$doc:meta])* $type:ident = $method:literal;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $type {
            /// The platform.
            pub channel: String,
            /// The account there; without one, the usual one.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub account_id: Option<String>,
        }

        params!($type, $method, &["channel"], |_| json!({"channel": text(), "accountId": text()}));
    )* };
}

of_account! {
    /// What `channels.logout` takes.
    LogoutParams = "channels.logout";
    /// What `channels.logs` takes.
    LogsParams = "channels.logs";
}

/// What `channels.pairing.list` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PairingListParams {
    /// The platform; without one, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
}

params!(PairingListParams, "channels.pairing.list", &[], |_| (json!({"channel": text()}), Others::PassedOver));

/// What `channels.pairing.approve` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PairingApproveParams {
    /// The platform.
    pub channel: String,
    /// The account that the request must belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// What the person was told. Pages of OpenClaw call it `requestId`.
    #[serde(alias = "requestId")]
    pub code: String,
    /// Whether the person is told that they were let in.
    pub notify: bool,
    /// Whether the person is not the owner, also if nobody else is yet.
    pub guest: bool,
}

params!(PairingApproveParams, "channels.pairing.approve", &["channel"], |_| (
    json!({
        "channel": text(), "accountId": text(), "code": text(), "requestId": text(), "notify": flag(), "guest": flag(),
    }),
    Others::Refused
));

/// What `channels.pairing.dismiss` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PairingDismissParams {
    /// The platform.
    pub channel: String,
    /// The account that the request must belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// What the person was told.
    pub request_id: String,
}

params!(PairingDismissParams, "channels.pairing.dismiss", &["channel", "requestId"], |_| (
    json!({"channel": text(), "accountId": text(), "requestId": text()}),
    Others::Refused
));

/// What `channels.pairing.revoke` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PairingRevokeParams {
    /// The platform.
    pub channel: String,
    /// What the platform calls the person.
    pub id: String,
}

params!(PairingRevokeParams, "channels.pairing.revoke", &["channel", "id"], |_| json!({
    "channel": text(), "id": text(),
}));

/// What `send` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SendParams {
    /// The person or group.
    pub to: String,
    /// What is said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// An address of what goes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_url: Option<String>,
    /// Several of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media_urls: Vec<String>,
    /// The platform; without one, the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The account that speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// The thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The message that is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_id: Option<String>,
    /// Whether nobody's device makes a sound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
    /// Names the request; the same one is done once.
    pub idempotency_key: String,
}

params!(SendParams, "send", &["to", "idempotencyKey"], |_| (
    json!({
        "to": text(), "message": {"type": "string"}, "mediaUrl": text(), "mediaUrls": {"type": "array", "items": text()},
        "channel": text(), "accountId": text(), "threadId": text(), "replyToId": text(), "silent": flag(),
        "idempotencyKey": text(),
    }),
    Others::Refused
), refused: &[
    ("buffer", MEDIA),
    ("filename", MEDIA),
    ("contentType", MEDIA),
    ("asVoice", MEDIA),
    ("gifPlayback", MEDIA),
    ("forceDocument", MEDIA),
    ("parseMode", "a text is Markdown"),
    ("agentId", NO_SESSION),
    ("sessionKey", NO_SESSION),
]);

const MEDIA: &str = "media is named by its address, with mediaUrl, and sent as what it is";
const NO_SESSION: &str = "the message is not part of a session; let an agent send it with agent and deliver";

/// What `poll` takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PollParams {
    /// The person or group.
    pub to: String,
    /// What is asked.
    pub question: String,
    /// What may be answered.
    pub options: Vec<String>,
    /// How many answers may be chosen; without it, one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_selections: Option<u64>,
    /// The platform; without one, the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The account that speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// The thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Names the request; the same one is done once.
    pub idempotency_key: String,
}

params!(PollParams, "poll", &["to", "question", "options", "idempotencyKey"], |_| (
    json!({
        "to": text(), "question": text(), "options": {"type": "array", "items": text(), "minItems": 2, "maxItems": 12},
        "maxSelections": {"type": "integer", "minimum": 1, "maximum": 12}, "channel": text(), "accountId": text(),
        "threadId": text(), "idempotencyKey": text(),
    }),
    Others::Refused
), refused: &[
    ("durationSeconds", "a poll stays open"),
    ("durationHours", "a poll stays open"),
    ("silent", "a poll is announced like any message"),
    ("isAnonymous", "whether a poll is anonymous is up to the platform"),
]);
