//! A model at a provider whose API the config does not name: the first request probes for it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::{FutureExt as _, StreamExt as _, future::ready, stream};
use homard_credentials::auth_profiles::sign_in::SignIn;
use homard_model::{Error, ErrorKind, EventStream, Model, ModelEvent, ModelSpec, Request};
use homard_providers::{Credentials, HttpClient, ModelTarget, RemoteModel, Wire, probe};
use tokio::sync::Mutex;

use super::known_apis::KnownApis;

/// Probes for the API of a provider, once for all of its models and credentials.
#[derive(Debug)]
pub(super) struct ApiProbe {
    apis: KnownApis,
    provider: String,
    base_url: String,
    /// One-based index in [`Wire::PROBED`] of the API that was found; 0 if none yet.
    found: AtomicUsize,
    /// Held while probing.
    probing: Mutex<()>,
}

impl ApiProbe {
    pub(crate) fn new(apis: &KnownApis, provider: &str, base_url: &str) -> Self {
        let found = AtomicUsize::new(apis.get(provider, base_url).map_or(0, probe_index));
        let (provider, base_url) = (provider.to_owned(), base_url.to_owned());
        Self { apis: apis.clone(), provider, base_url, found, probing: Mutex::new(()) }
    }

    fn found(&self) -> Option<Wire> {
        Wire::PROBED.get(self.found.load(Ordering::Acquire).checked_sub(1)?).copied()
    }

    /// Returns the API: already known, found by another process, or probed for now.
    async fn find(&self, target: &ModelTarget, client: &HttpClient) -> Result<Wire, Error> {
        if let Some(wire) = self.found() {
            return Ok(wire);
        }
        let _guard = self.probing.lock().await;
        if let Some(wire) = self.found().or_else(|| self.apis.get(&self.provider, &self.base_url)) {
            self.found.store(probe_index(wire), Ordering::Release);
            return Ok(wire);
        }
        let wire = probe(target, client).await?;
        let (provider, api, file) = (&self.provider, wire.api(), self.apis.path().display());
        tracing::warn!(
            "models.providers.{provider}.api is not set; a probe detected {api} and saved it in {file}; to set it \
             explicitly: homard config set models.providers.{provider}.api {api}"
        );
        if let Err(error) = self.apis.put(provider, &self.base_url, wire) {
            tracing::warn!(%error, provider, "failed to save the detected API; the next start probes again");
        }
        self.found.store(probe_index(wire), Ordering::Release);
        Ok(wire)
    }

    /// Discards the result if an error shows that it is wrong. The next request probes again.
    fn discard_if_wrong(&self, wire: Wire, error: &Error) {
        let is_wrong = error.kind == ErrorKind::Misconfigured || matches!(error.status, Some(404 | 405 | 501));
        if !is_wrong || self.found() != Some(wire) {
            return;
        }
        self.found.store(0, Ordering::Release);
        tracing::warn!(provider = self.provider, api = wire.api(), "the detected API is wrong; discarding it");
        if let Err(error) = self.apis.remove(&self.provider) {
            tracing::warn!(%error, provider = self.provider, "failed to discard the detected API");
        }
    }
}

/// Returns the one-based index of a wire in [`Wire::PROBED`].
fn probe_index(wire: Wire) -> usize {
    Wire::PROBED.into_iter().position(|probed| probed == wire).map_or(0, |index| index + 1)
}

/// A model whose API is determined by a probe.
pub(super) struct ProbedModel {
    /// The target without an API, then with each API that may be in use.
    targets: [ModelTarget; 4],
    client: HttpClient,
    sign_in: Option<Arc<SignIn>>,
    probe: Arc<ApiProbe>,
}

impl ProbedModel {
    /// Creates a model for this target, authenticated by the target's own credential or by a sign-in. Fails if no
    /// request can be built for the target.
    pub(crate) fn new(
        target: ModelTarget,
        client: &HttpClient,
        sign_in: Option<Arc<SignIn>>,
        finder: Arc<ApiProbe>,
    ) -> Result<Self, Error> {
        let with_wire = |wire: Wire| {
            let mut target = target.clone();
            wire.api().clone_into(&mut target.spec.api);
            target
        };
        let [first, second, third] = Wire::PROBED.map(with_wire);
        RemoteModel::new(first.clone(), client)?;
        Ok(Self { targets: [target, first, second, third], client: client.clone(), sign_in, probe: finder })
    }
}

impl Model for ProbedModel {
    fn spec(&self) -> &ModelSpec {
        &self.targets[self.probe.found().map_or(0, probe_index)].spec
    }

    fn stream(&self, request: Request) -> EventStream {
        let (targets, client) = (self.targets.clone(), self.client.clone());
        let (sign_in, finder) = (self.sign_in.clone(), self.probe.clone());
        let opened = async move {
            let [mut unknown, ..] = targets.clone();
            if let Some(sign_in) = sign_in {
                unknown.auth = Some(Credentials::Token(sign_in.token().await?));
            }
            let wire = finder.find(&unknown, &client).await?;
            let target = ModelTarget { auth: unknown.auth, ..targets[probe_index(wire)].clone() };
            Ok((RemoteModel::new(target, &client)?, wire, finder))
        };
        let opened = opened.map(move |opened: Result<(RemoteModel, Wire, Arc<ApiProbe>), Error>| match opened {
            Ok((remote, wire, finder)) => {
                let observed = remote.stream(request).inspect(move |event| {
                    if let ModelEvent::Failed(error) = event {
                        finder.discard_if_wrong(wire, error);
                    }
                });
                observed.boxed()
            }
            Err(error) => stream::once(ready(ModelEvent::Failed(error))).boxed(),
        });
        stream::once(opened).flatten().boxed()
    }
}
