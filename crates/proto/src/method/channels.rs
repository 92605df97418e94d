//! `channels.*`, `send` and `poll`: channel status, pairing, and outbound messages.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{UnknownMembers, flag, text};

/// Parameters of `channels.status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusParams {
    /// Whether the platforms are queried.
    pub probe: bool,
    /// Timeout of the queries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

params!(StatusParams, "channels.status", &[], |_| (
    json!({"probe": flag(), "timeoutMs": {"type": "integer", "minimum": 0}}),
    UnknownMembers::Ignored
));

/// Defines the parameter type of a method about one account.
macro_rules! of_account {
    ($($(#[$doc:meta])* $type:ident = $method:literal;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $type {
            /// Channel name.
            pub channel: String,
            /// Account; the default one if absent.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub account_id: Option<String>,
        }

        params!($type, $method, &["channel"], |_| json!({"channel": text(), "accountId": text()}));
    )* };
}

of_account! {
    /// Parameters of `channels.logout`.
    LogoutParams = "channels.logout";
    /// Parameters of `channels.logs`.
    LogsParams = "channels.logs";
}

/// Parameters of `channels.pairing.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PairingListParams {
    /// Channel; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
}

params!(PairingListParams, "channels.pairing.list", &[], |_| (json!({"channel": text()}), UnknownMembers::Ignored));

/// Parameters of `channels.pairing.approve`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PairingApproveParams {
    /// Channel name.
    pub channel: String,
    /// Account that the request must belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// Pairing code. OpenClaw's pages call it `requestId`.
    #[serde(alias = "requestId")]
    pub code: String,
    /// Whether the person is notified of the approval.
    pub notify: bool,
    /// True if the person does not become the owner, even if there is none yet.
    pub guest: bool,
}

params!(PairingApproveParams, "channels.pairing.approve", &["channel"], |_| (
    json!({
        "channel": text(), "accountId": text(), "code": text(), "requestId": text(), "notify": flag(), "guest": flag(),
    }),
    UnknownMembers::Refused
));

/// Parameters of `channels.pairing.dismiss`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PairingDismissParams {
    /// Channel name.
    pub channel: String,
    /// Account that the request must belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// Pairing code.
    pub request_id: String,
}

params!(PairingDismissParams, "channels.pairing.dismiss", &["channel", "requestId"], |_| (
    json!({"channel": text(), "accountId": text(), "requestId": text()}),
    UnknownMembers::Refused
));

/// Parameters of `channels.pairing.revoke`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PairingRevokeParams {
    /// Channel name.
    pub channel: String,
    /// The platform's id of the person.
    pub id: String,
}

params!(PairingRevokeParams, "channels.pairing.revoke", &["channel", "id"], |_| json!({
    "channel": text(), "id": text(),
}));

/// Parameters of `send`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SendParams {
    /// Person or group.
    pub to: String,
    /// Text of the message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// URL of media to attach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_url: Option<String>,
    /// URLs of several media.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media_urls: Vec<String>,
    /// Channel; the only one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Account that sends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// Thread id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Message that is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_id: Option<String>,
    /// True to send without notification sound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
    /// Idempotency key of the request.
    pub idempotency_key: String,
}

params!(SendParams, "send", &["to", "idempotencyKey"], |_| (
    json!({
        "to": text(), "message": {"type": "string"}, "mediaUrl": text(), "mediaUrls": {"type": "array", "items": text()},
        "channel": text(), "accountId": text(), "threadId": text(), "replyToId": text(), "silent": flag(),
        "idempotencyKey": text(),
    }),
    UnknownMembers::Refused
), refused: &[
    ("buffer", MEDIA),
    ("filename", MEDIA),
    ("contentType", MEDIA),
    ("asVoice", MEDIA),
    ("gifPlayback", MEDIA),
    ("forceDocument", MEDIA),
    ("parseMode", "the text is always Markdown"),
    ("agentId", NO_SESSION),
    ("sessionKey", NO_SESSION),
]);

const MEDIA: &str = "pass the address of the media in mediaUrl; its type is detected";
const NO_SESSION: &str = "the message is not part of a session; to send from a session, use agent with deliver";

/// Parameters of `poll`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PollParams {
    /// Person or group.
    pub to: String,
    /// Question.
    pub question: String,
    /// Possible answers.
    pub options: Vec<String>,
    /// Maximum number of selected answers; one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_selections: Option<u64>,
    /// Channel; the only one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Account that sends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// Thread id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Idempotency key of the request.
    pub idempotency_key: String,
}

params!(PollParams, "poll", &["to", "question", "options", "idempotencyKey"], |_| (
    json!({
        "to": text(), "question": text(), "options": {"type": "array", "items": text(), "minItems": 2, "maxItems": 12},
        "maxSelections": {"type": "integer", "minimum": 1, "maximum": 12}, "channel": text(), "accountId": text(),
        "threadId": text(), "idempotencyKey": text(),
    }),
    UnknownMembers::Refused
), refused: &[
    ("durationSeconds", "a poll has no time limit"),
    ("durationHours", "a poll has no time limit"),
    ("silent", "a poll cannot be sent silently"),
    ("isAnonymous", "the platform determines whether a poll is anonymous"),
]);
