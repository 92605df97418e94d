//! `models`: the providers and what they offer. Nothing is built in but the demo model, so `models.mode` changes nothing.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::config::Text;

/// The section.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Models {
    #[serde(deserialize_with = "super::named_objects")]
    pub(crate) providers: BTreeMap<String, Provider>,
}

/// A server that answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Provider {
    pub(crate) base_url: Option<Text>,
    pub(crate) api_key: Option<Text>,
    /// The wire that it speaks.
    pub(crate) api: Option<String>,
    pub(crate) headers: BTreeMap<String, Text>,
    #[serde(deserialize_with = "super::objects")]
    pub(crate) models: Vec<Offer>,
}

/// A model at a provider.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Offer {
    pub(crate) id: Text,
    #[serde(default)]
    pub(crate) api: Option<String>,
    #[serde(default)]
    pub(crate) context_window: Option<u64>,
    #[serde(default)]
    pub(crate) max_tokens: Option<u64>,
}
