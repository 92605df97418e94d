//! A model at a provider: description, endpoint and credentials.

use homard_model::{Request, Spec};

use crate::{Quirks, Secret, quirks};

/// A model at a provider. Its wire is [`Spec::api`].
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Model description.
    pub spec: Spec,
    /// URL prefix of the wire's own path, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// Credential; local servers often need none.
    pub auth: Option<Auth>,
    /// Additional headers of every request. They override the wire's own.
    pub headers: Vec<(String, Secret)>,
    /// Differences of the server from others of its wire.
    pub quirks: Quirks,
}

/// Credential of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// An API key, sent in the wire's own way.
    Key(Secret),
    /// An OAuth token, always sent as a bearer token.
    Token(Secret),
}

impl Auth {
    pub(crate) fn secret(&self) -> &Secret {
        match self {
            Self::Key(secret) | Self::Token(secret) => secret,
        }
    }
}

impl Target {
    /// Creates a target with the default quirks of its provider and no credential.
    pub fn new(spec: Spec, base_url: impl Into<String>) -> Self {
        let base_url = base_url.into();
        let quirks = quirks::of(&spec.provider, &base_url);
        Self { spec, base_url, auth: None, headers: Vec::new(), quirks }
    }

    /// True if the request must forbid tool calls. Without tools this would be rejected.
    pub(crate) fn forbids_calls(&self, request: &Request) -> bool {
        !request.may_call && !request.tools.is_empty() && self.quirks.tool_choice
    }
}
