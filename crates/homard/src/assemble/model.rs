//! From `"provider/model"` to something that answers.

use std::{collections::HashMap, net::IpAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use homard_model::{Model, demo::Demo};
use homard_providers::{Client, OpenAiChat, Settings, openai_chat::IDLE};
use tokio_tungstenite::tungstenite::http::Uri;

use crate::config::{
    Config,
    agents::Agent,
    models::{Offer, Provider},
};

/// The model of a setup that names none.
pub(crate) const DEMO: &str = "homard/demo";
/// The wire that is spoken.
const API: &str = "openai-completions";
/// What is assumed of a model that says nothing about itself.
const CONTEXT_WINDOW: u64 = 200_000;
const MAX_OUTPUT: u64 = 8_192;
/// A machine of one's own may think for a long time before it says a word.
const SELF_HOSTED_IDLE: Duration = Duration::from_secs(300);

/// The model of the default agent, by name.
pub(crate) fn model_name(config: &Config) -> &str {
    let listed = &config.agents.list;
    named(config, listed.iter().find(|agent| agent.default).or(listed.first())).1
}

/// The model of an agent: the key that names it, and its name.
fn named<'a>(config: &'a Config, agent: Option<&'a Agent>) -> (&'static str, &'a str) {
    let own = agent.and_then(|agent| agent.model.as_ref()).and_then(|choice| choice.primary.as_ref());
    let shared = config.agents.defaults.model.as_ref().and_then(|choice| choice.primary.as_ref());
    match (own, shared) {
        (Some(own), _) => ("agents.list[].model", own.as_str()),
        (None, Some(shared)) => ("agents.defaults.model", shared.as_str()),
        (None, None) => ("agents.defaults.model", DEMO),
    }
}

/// The models of a config, each made once.
pub(super) struct Models<'a> {
    config: &'a Config,
    file: &'a Path,
    client: Client,
    made: HashMap<String, Arc<dyn Model>>,
}

impl<'a> Models<'a> {
    pub(super) fn new(config: &'a Config, file: &'a Path) -> Self {
        Self { config, file, client: Client::default(), made: HashMap::new() }
    }

    /// The model of an agent.
    pub(super) fn get(&mut self, agent: Option<&Agent>) -> Result<Arc<dyn Model>> {
        let (key, name) = named(self.config, agent);
        if let Some(model) = self.made.get(name) {
            return Ok(model.clone());
        }
        let file = self.file.display();
        let model = self.make(name).with_context(|| format!("{key} is \"{name}\" in {file}"))?;
        self.made.insert(name.to_owned(), model.clone());
        Ok(model)
    }

    fn make(&self, name: &str) -> Result<Arc<dyn Model>> {
        if name == DEMO {
            return Ok(Arc::new(Demo::default()));
        }
        let Some((provider_id, model)) = name.split_once('/') else {
            bail!("a model is named provider/model, such as {DEMO}");
        };
        let providers = &self.config.models.providers;
        let Some(provider) = providers.get(provider_id) else {
            bail!("there is no provider \"{provider_id}\" in models.providers; see docs/models.md");
        };
        let settings = settings(provider_id, provider, model)?;
        let model =
            OpenAiChat::new(settings, &self.client).with_context(|| format!("models.providers.{provider_id}"))?;
        Ok(Arc::new(model))
    }
}

fn settings(id: &str, provider: &Provider, model: &str) -> Result<Settings> {
    let offer = provider.models.iter().find(|offer| offer.id.as_str() == model);
    let api = offer.and_then(|offer| offer.api.as_deref()).or(provider.api.as_deref()).unwrap_or(API);
    if api != API {
        bail!("models.providers.{id}.api is \"{api}\"; only \"{API}\" is supported so far");
    }
    let Some(base_url) = &provider.base_url else {
        bail!("models.providers.{id}.baseUrl is missing, such as \"http://127.0.0.1:11434/v1\"");
    };
    let context_window = offer.and_then(|offer| offer.context_window).unwrap_or(CONTEXT_WINDOW);
    let idle = if is_self_hosted(base_url.as_str()) { SELF_HOSTED_IDLE } else { IDLE };
    Ok(Settings {
        provider: id.to_owned(),
        model: model.to_owned(),
        base_url: base_url.as_str().to_owned(),
        api_key: provider.api_key.as_ref().map(|key| key.as_str().into()),
        context_window,
        max_output: max_output(offer, context_window),
        headers: provider.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect(),
        idle,
    })
}

/// What the config says; for a model that it does not list, the provider knows best.
fn max_output(offer: Option<&Offer>, context_window: u64) -> u64 {
    offer.map_or(0, |offer| offer.max_tokens.unwrap_or(MAX_OUTPUT.min(context_window)))
}

/// Whether a URL leads to this machine or its network.
fn is_self_hosted(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_private() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        Err(_) => host == "localhost" || host.ends_with(".local") || !host.contains('.'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<(String, u64, u64), String> {
        let config = Config::parse(text).unwrap();
        let made = Models::new(&config, Path::new("/c.json")).get(None);
        let model = made.map_err(|error| format!("{error:#}"))?;
        let spec = model.spec();
        Ok((format!("{}/{}", spec.provider, spec.model), spec.context_window, spec.max_output))
    }

    #[test]
    fn models_are_found_by_provider_and_name() {
        let config = |model: &str| {
            let offers = "models: [{id: 'm', contextWindow: 4000}, {id: 'a/b', maxTokens: 5}]";
            let provider = format!("{{baseUrl: 'http://127.0.0.1:9/v1', {offers}}}");
            spec(&format!("{{agents: {{defaults: {{model: {model}}}}}, models: {{providers: {{p: {provider}}}}}}}"))
        };
        assert_eq!(config("'p/m'"), Ok(("p/m".to_owned(), 4000, 4000)));
        assert_eq!(config("{primary: 'p/a/b'}"), Ok(("p/a/b".to_owned(), 200_000, 5)));
        assert_eq!(config("'p/unlisted'"), Ok(("p/unlisted".to_owned(), 200_000, 0)));
        assert_eq!(spec("{}").unwrap().0, DEMO);
        assert_eq!(config("'homard/demo'").unwrap().0, DEMO);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let refused = |model: &str, provider: &str| {
            spec(&format!("{{agents: {{defaults: {{model: '{model}'}}}}, models: {{providers: {{p: {provider}}}}}}}"))
                .unwrap_err()
        };
        assert_eq!(
            refused("x/y", "{}"),
            "agents.defaults.model is \"x/y\" in /c.json: there is no provider \"x\" in models.providers; see docs/models.md"
        );
        assert_eq!(
            refused("y", "{}"),
            "agents.defaults.model is \"y\" in /c.json: a model is named provider/model, such as homard/demo"
        );
        assert_eq!(
            refused("p/y", "{api: 'anthropic-messages'}"),
            "agents.defaults.model is \"p/y\" in /c.json: models.providers.p.api is \"anthropic-messages\"; only \
             \"openai-completions\" is supported so far"
        );
        assert_eq!(
            refused("p/y", "{}"),
            "agents.defaults.model is \"p/y\" in /c.json: models.providers.p.baseUrl is missing, such as \
             \"http://127.0.0.1:11434/v1\""
        );
    }

    #[test]
    fn a_machine_of_ones_own_is_known_by_its_address() {
        let own =
            ["http://localhost:1/v1", "http://127.0.0.1/v1", "http://[::1]:1", "http://192.168.1.2/v1", "http://box:1"];
        assert_eq!(own.map(is_self_hosted), [true; 5]);
        assert_eq!(["https://api.openai.com/v1", "https://8.8.8.8"].map(is_self_hosted), [false; 2]);
    }
}
