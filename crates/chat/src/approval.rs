//! Commands that wait for the user's permission.

use serde_json::Value;

use crate::sanitize;

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    AllowOnce,
    AllowAlways,
    Deny,
}

impl Decision {
    /// Name in the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow-once",
            Self::AllowAlways => "allow-always",
            Self::Deny => "deny",
        }
    }

    /// Decision of a key.
    pub(crate) fn of_key(key: char) -> Option<Self> {
        match key.to_ascii_lowercase() {
            'y' => Some(Self::AllowOnce),
            'a' => Some(Self::AllowAlways),
            'n' => Some(Self::Deny),
            _ => None,
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Approval {
    pub(crate) id: String,
    pub(crate) session: Option<String>,
    pub(crate) command: String,
    pub(crate) cwd: Option<String>,
    /// What `allow-always` would allow, if it is offered.
    pub(crate) always: Option<Vec<String>>,
    /// When the request was first shown.
    pub(crate) shown_at: u64,
    /// The decision that was sent.
    pub(crate) sent: Option<Decision>,
}

impl Approval {
    /// Reads the payload of `exec.approval.requested`.
    pub(crate) fn read(payload: &Value, now: u64) -> Option<Self> {
        let request = &payload["request"];
        let text = |name: &str| request[name].as_str().map(str::to_owned);
        let offers = |name: &str| {
            request["allowedDecisions"].as_array().is_some_and(|offers| offers.iter().any(|offer| offer == name))
        };
        let rules = request["alwaysAllows"].as_array().into_iter().flatten();
        let rules: Vec<_> = rules.filter_map(Value::as_str).map(sanitize::one_line).collect();
        Some(Self {
            id: payload["id"].as_str()?.to_owned(),
            session: text("sessionKey"),
            command: sanitize::clean(&text("command")?),
            cwd: text("cwd").map(|cwd| sanitize::one_line(&cwd)),
            always: offers("allow-always").then_some(rules),
            shown_at: now,
            sent: None,
        })
    }

    /// True if the request offers this decision.
    pub(crate) fn offers(&self, decision: Decision) -> bool {
        decision != Decision::AllowAlways || self.always.is_some()
    }
}
