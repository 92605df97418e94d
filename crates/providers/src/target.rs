//! A model at a provider: description, endpoint and credentials.

use homard_model::{ModelSpec, Request};

use crate::{Quirks, Secret, quirks};

/// A model at a provider. Its wire is [`ModelSpec::api`].
#[derive(Debug, Clone, PartialEq)]
pub struct ModelTarget {
    /// Model description.
    pub spec: ModelSpec,
    /// URL prefix of the wire's own path, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// Credential; local servers often need none.
    pub auth: Option<Credentials>,
    /// Additional headers of every request. They override the wire's own.
    pub headers: Vec<(String, Secret)>,
    /// Differences of the server from others of its wire.
    pub quirks: Quirks,
}

/// Credential of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// An API key, sent in the wire's own way.
    Key(Secret),
    /// An OAuth token, always sent as a bearer token.
    Token(Secret),
}

impl Credentials {
    pub(crate) fn secret(&self) -> &Secret {
        match self {
            Self::Key(secret) | Self::Token(secret) => secret,
        }
    }
}

impl ModelTarget {
    /// Creates a target with the default quirks of its provider and no credential.
    pub fn new(spec: ModelSpec, base_url: impl Into<String>) -> Self {
        let base_url = base_url.into();
        let quirks = quirks::of(&spec.provider, &base_url);
        Self { spec, base_url, auth: None, headers: Vec::new(), quirks }
    }

    /// True if the request must forbid tool calls. Without tools this would be rejected.
    pub(crate) fn forbids_calls(&self, request: &Request) -> bool {
        !request.allow_calls && !request.tools.is_empty() && self.quirks.tool_choice
    }
}
