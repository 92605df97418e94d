//! Requests that check a setup: which models and API a server has, and whether a model answers.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use homard_credentials::auth_profiles::Keyring;
use homard_model::{
    Error, ErrorKind, ModelEvent, ModelSpec, Request,
    candidates::PreferredCredential,
    catalog::{self, provider_name},
};
use homard_proto::message::{Message, User};
use homard_providers::{Credentials, HttpClient, ListedModel, ModelTarget, RemoteModel, Wire, list_models, probe};
use homard_runtime::Ambient;
use homard_settings::NamedModel;
use tokio::time::{Instant, timeout};

use super::{keys::CredentialAuth, models::Models};

/// The message of a test.
const TEST_MESSAGE: &str = "Say hello in one short sentence.";

/// Output limit of a test: enough for a sentence of a model that reasons first.
const TEST_OUTPUT: u64 = 1024;

/// A server, and what it offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReport {
    /// The base URL that works: the given one, or with `/v1` appended.
    pub base_url: String,
    /// The API that it speaks.
    pub wire: Wire,
    /// Its models; empty if it does not list them.
    pub models: Vec<ListedModel>,
}

/// What is known about a server before it is examined.
#[derive(Debug, Clone)]
pub struct ServerAddress {
    /// Name of the provider.
    pub provider: String,
    pub base_url: String,
    pub auth: Option<Credentials>,
    /// The API, if the user names it; otherwise it is detected.
    pub wire: Option<Wire>,
    /// A model that is there. Without one, the first listed one is used.
    pub model: Option<String>,
}

impl ServerAddress {
    fn target(&self, base_url: &str, model: &str) -> ModelTarget {
        let spec = ModelSpec {
            provider: self.provider.clone(),
            model: model.to_owned(),
            api: self.wire.map(|wire| wire.api().to_owned()).unwrap_or_default(),
            ..ModelSpec::default()
        };
        ModelTarget { auth: self.auth.clone(), ..ModelTarget::new(spec, base_url) }
    }

    /// Asks the server for its models and detects its API.
    ///
    /// # Errors
    ///
    /// It lists no models and none was named, or no API was detected.
    pub async fn examine(&self, client: &HttpClient) -> Result<ServerReport, Error> {
        let given = self.base_url.trim_end_matches('/').to_owned();
        let named = self.model.as_deref();
        let mut base_url = given.clone();
        let mut listed = list_models(&self.target(&given, named.unwrap_or_default()), client).await;
        // Most servers have their API below /v1, and people leave that out.
        if !given.contains("/v1") && matches!(&listed, Err(error) if error.kind == ErrorKind::Misconfigured) {
            let versioned = format!("{given}/v1");
            if let Ok(models) = list_models(&self.target(&versioned, named.unwrap_or_default()), client).await {
                base_url = versioned;
                listed = Ok(models);
            }
        }
        let models = match (listed, named) {
            (Ok(models), _) => models,
            // Some servers list no models, but answer for one that is named. An unusable key or address stays an error.
            (Err(error), Some(_)) if error.kind == ErrorKind::Misconfigured => Vec::new(),
            (Err(error), _) => return Err(error),
        };
        let Some(model) = named.or_else(|| models.first().map(|model| model.id.as_str())) else {
            let message = format!("{}: {base_url} lists no models; name one that it has", self.provider);
            return Err(Error::new(ErrorKind::Misconfigured, message));
        };
        let wire = match self.wire {
            Some(wire) => wire,
            None => probe(&self.target(&base_url, model), client).await?,
        };
        Ok(ServerReport { base_url, wire, models })
    }
}

/// The answer of a model to a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestAnswer {
    pub text: String,
    /// Time until the end of the answer.
    pub duration: Duration,
}

/// The test of a model: where it was sent, and what came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelTest {
    /// Full name of the model.
    pub model: String,
    /// The API that was spoken; empty if none was detected.
    pub api: String,
    /// The URL of the request; absent for the built-in model, and if no API was detected.
    pub url: Option<String>,
    /// Id of the credential.
    pub credential: String,
    pub outcome: Result<TestAnswer, Error>,
}

impl Models {
    /// Sends one small request to a model, with its first credential and without retries or fallbacks. `notice` receives
    /// what to check, if the model does not answer soon; the request continues.
    ///
    /// # Errors
    ///
    /// No request can be built. A failure of the request is part of the result.
    pub async fn test(
        &self,
        keyring: &Keyring,
        named: &NamedModel,
        limit: Duration,
        notice: &mut dyn FnMut(&str),
    ) -> Result<ModelTest, crate::Error> {
        let candidates = self.candidates(keyring, std::slice::from_ref(named))?;
        let order = candidates.order(Ambient::system().now_ms(), &PreferredCredential::Any);
        let Some(candidate) = order.first() else {
            return Err(crate::Error::Config("no model candidate is available".to_owned()));
        };
        let started = Instant::now();
        let answered = timeout(limit, answer_of(candidate.model.stream(test_request()), notice)).await;
        let outcome = answered.unwrap_or_else(|_| {
            let message = format!("{} did not answer within {} s", named.name(), limit.as_secs());
            Err(Error::new(ErrorKind::Timeout, message))
        });
        let duration = started.elapsed();
        let spec = candidate.model.spec();
        let url = match named {
            NamedModel::Demo => None,
            NamedModel::Entry(entry) => {
                let target = ModelTarget::new(spec.clone(), entry.base_url.clone());
                RemoteModel::new(target, &self.client).ok().map(|remote| remote.url())
            }
        };
        Ok(ModelTest {
            model: named.name(),
            api: spec.api.clone(),
            url,
            credential: candidate.profile.to_string(),
            outcome: outcome.map(|text| TestAnswer { text, duration }),
        })
    }

    /// Asks the server of a provider for its models, with the provider's first usable credential.
    ///
    /// # Errors
    ///
    /// The provider is unknown or has no usable credential, or its server does not list its models.
    pub async fn listed_by_server(&self, keyring: &Keyring, provider: &str) -> Result<Vec<ListedModel>, Error> {
        let name = provider_name(provider);
        let unusable = |why: String| Error::new(ErrorKind::Misconfigured, why);
        let Some(entry) = catalog::resolve(&self.names.configured, self.names.mode, provider, "") else {
            return Err(unusable(format!("unknown provider \"{provider}\"")));
        };
        let mut target = ModelTarget::new(entry.spec, entry.base_url);
        target.headers = self.headers(&name);
        let mut keys = self.keys(keyring, &name).into_iter().flat_map(|(_, keys)| keys);
        target.auth = match keys.next().map(|key| key.auth) {
            Some(CredentialAuth::Static(auth)) => Some(auth),
            Some(CredentialAuth::SignIn(sign_in)) => Some(Credentials::Token(sign_in.token().await?)),
            Some(CredentialAuth::Keyless) | None => None,
            Some(CredentialAuth::Unusable(why)) => return Err(Error::new(ErrorKind::Auth, why)),
        };
        list_models(&target, &self.client).await
    }
}

fn test_request() -> Request {
    let timestamp = Ambient::system().now_ms();
    let message = Message::User(User::text(TEST_MESSAGE, timestamp));
    Request { messages: vec![Arc::new(message)], max_output: Some(TEST_OUTPUT), ..Request::default() }
}

/// Returns the text of an answer.
async fn answer_of(mut events: homard_model::EventStream, notice: &mut dyn FnMut(&str)) -> Result<String, Error> {
    let mut text = String::new();
    while let Some(event) = events.next().await {
        match event {
            ModelEvent::Text(part) => text.push_str(&part),
            ModelEvent::Done(_) => return Ok(text),
            ModelEvent::Failed(error) => return Err(error),
            ModelEvent::NoResponse(why) => notice(&why),
            ModelEvent::Thinking(_) | ModelEvent::Call(_) | ModelEvent::Signature(_) | ModelEvent::Heartbeat => {}
        }
    }
    Err(Error::new(ErrorKind::Truncated, "the answer ended prematurely"))
}
