//! `models`: providers and what they offer, beside the built-in catalogue or in its place.

use std::collections::BTreeMap;

use homard_model::{
    Prices,
    catalog::{Configured, Mode, Offer as Known},
};
use serde::Deserialize;

use crate::config::Text;

/// The section.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Models {
    mode: Option<Word>,
    #[serde(deserialize_with = "super::named_objects")]
    pub(crate) providers: BTreeMap<String, Provider>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Merge,
    Replace,
}

/// A server that answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Provider {
    pub(crate) base_url: Option<Text>,
    pub(crate) api_key: Option<Text>,
    /// What the key is: `token` and `oauth` are sent as a bearer.
    pub(crate) auth: Option<String>,
    /// Whether the key is sent as a bearer, too, where the wire has another header for it.
    pub(crate) auth_header: bool,
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
    id: Text,
    #[serde(default)]
    api: Option<String>,
    #[serde(default)]
    context_window: Option<u64>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    reasoning: Option<bool>,
    /// `text`, `image`.
    #[serde(default)]
    input: Option<Vec<String>>,
    #[serde(default, deserialize_with = "super::maybe_object")]
    cost: Option<Cost>,
}

/// US dollars for a million tokens.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Cost {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

impl Models {
    /// What becomes of the known models that are not listed here.
    pub(crate) fn mode(&self) -> Mode {
        match self.mode {
            Some(Word::Replace) => Mode::Replace,
            Some(Word::Merge) | None => Mode::Merge,
        }
    }

    /// The providers as the catalogue takes them.
    pub(crate) fn configured(&self) -> Vec<Configured> {
        let text = |text: &Option<Text>| text.as_ref().map(|text| text.as_str().to_owned());
        let one = |(id, provider): (&String, &Provider)| Configured {
            id: id.clone(),
            base_url: text(&provider.base_url),
            api: provider.api.clone(),
            models: provider.models.iter().map(Offer::known).collect(),
        };
        self.providers.iter().map(one).collect()
    }
}

impl Offer {
    fn known(&self) -> Known {
        let prices = |cost: &Cost| Prices {
            input: cost.input,
            output: cost.output,
            cache_read: cost.cache_read,
            cache_write: cost.cache_write,
        };
        Known {
            id: self.id.as_str().to_owned(),
            api: self.api.clone(),
            context_window: self.context_window,
            max_output: self.max_tokens,
            reasons: self.reasoning,
            sees: self.input.as_ref().map(|input| input.iter().any(|kind| kind == "image")),
            prices: self.cost.as_ref().map(prices),
        }
    }
}
