//! A model at a provider: what it is, where it is, and how one is let in.

use homard_model::{Request, Spec};

use crate::{Quirks, Secret, quirks};

/// A model at a provider. Its wire is [`Spec::api`].
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// What it is.
    pub spec: Spec,
    /// What comes before the wire's own path, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// How one is let in; a local server often asks for nothing.
    pub auth: Option<Auth>,
    /// More headers for every request. They win over the wire's own.
    pub headers: Vec<(String, Secret)>,
    /// How the server differs from others of its wire.
    pub quirks: Quirks,
}

/// How one is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// An API key, sent as the wire sends keys.
    Key(Secret),
    /// A token of a person's account, always sent as a bearer.
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
    /// A model with the usual quirks of its provider, and no way in.
    pub fn new(spec: Spec, base_url: impl Into<String>) -> Self {
        let base_url = base_url.into();
        let quirks = quirks::of(&spec.provider, &base_url);
        Self { spec, base_url, auth: None, headers: Vec::new(), quirks }
    }

    /// Whether the model is to be told that it may not call its tools. Without tools that would be refused.
    pub(crate) fn forbids_calls(&self, request: &Request) -> bool {
        !request.may_call && !request.tools.is_empty() && self.quirks.tool_choice
    }
}
