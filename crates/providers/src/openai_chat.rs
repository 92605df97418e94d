//! OpenAI's Chat Completions, the wire that most servers speak.

mod decode;
mod encode;

use std::time::Duration;

use homard_model::{Error, EventStream, Model, Request, Spec};

pub use decode::Decoder;
pub use encode::encode;

use crate::{
    Secret,
    http::{self, Client, Endpoint},
};

/// How long a provider may say nothing before it is given up.
pub const IDLE: Duration = Duration::from_secs(120);

/// Where a model is and what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The provider's name in the config.
    pub provider: String,
    /// The model's name at that provider.
    pub model: String,
    /// What comes before `/chat/completions`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// Sent as a bearer token; a local server often needs none.
    pub api_key: Option<Secret>,
    /// How many tokens fit into its context.
    pub context_window: u64,
    /// How many tokens it may write; zero leaves it to the provider.
    pub max_output: u64,
    /// More headers for every request.
    pub headers: Vec<(String, Secret)>,
    /// How long it may say nothing, heartbeats included; see [`IDLE`].
    pub idle: Duration,
}

/// A model behind an endpoint that speaks Chat Completions.
#[derive(Debug)]
pub struct OpenAiChat {
    spec: Spec,
    settings: Settings,
    endpoint: Endpoint,
}

impl OpenAiChat {
    /// A model that is asked through `client`. Fails where the settings cannot be sent at all: a bad URL or header.
    pub fn new(settings: Settings, client: &Client) -> Result<Self, Error> {
        let endpoint = Endpoint::new(client, &settings, "chat/completions")?;
        let spec = Spec {
            provider: settings.provider.clone(),
            model: settings.model.clone(),
            api: "openai-completions".to_owned(),
            context_window: settings.context_window,
            max_output: settings.max_output,
        };
        Ok(Self { spec, settings, endpoint })
    }
}

impl Model for OpenAiChat {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        http::ask(self.endpoint.clone(), encode(&self.settings, &request), Decoder::default())
    }
}
