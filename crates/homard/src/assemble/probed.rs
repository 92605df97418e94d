//! A model at a provider whose API the config does not name: the first request probes for it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::{FutureExt as _, StreamExt as _, future::ready, stream};
use homard_model::{Error, ErrorKind, Event, EventStream, Model, Request, Spec};
use homard_providers::{Auth, Client, Remote, Target, Wire, probe};
use tokio::sync::Mutex;

use super::known_apis::KnownApis;
use crate::auth::sign_in::SignIn;

/// Probes for the API of a provider, once for all of its models and credentials.
#[derive(Debug)]
pub(super) struct ApiFinder {
    apis: KnownApis,
    provider: String,
    base_url: String,
    /// One-based index in [`Wire::PROBED`] of the API that was found; 0 if none yet.
    found: AtomicUsize,
    /// Held while probing.
    probing: Mutex<()>,
}

impl ApiFinder {
    pub(super) fn new(apis: &KnownApis, provider: &str, base_url: &str) -> Self {
        let found = AtomicUsize::new(apis.get(provider, base_url).map_or(0, place));
        let (provider, base_url) = (provider.to_owned(), base_url.to_owned());
        Self { apis: apis.clone(), provider, base_url, found, probing: Mutex::new(()) }
    }

    fn found(&self) -> Option<Wire> {
        Wire::PROBED.get(self.found.load(Ordering::Acquire).checked_sub(1)?).copied()
    }

    /// Returns the API: already known, found by another process, or probed for now.
    async fn find(&self, target: &Target, client: &Client) -> Result<Wire, Error> {
        if let Some(wire) = self.found() {
            return Ok(wire);
        }
        let _probing = self.probing.lock().await;
        if let Some(wire) = self.found().or_else(|| self.apis.get(&self.provider, &self.base_url)) {
            self.found.store(place(wire), Ordering::Release);
            return Ok(wire);
        }
        let wire = probe(target, client).await?;
        let (provider, api, file) = (&self.provider, wire.api(), self.apis.path().display());
        tracing::warn!(
            "models.providers.{provider}.api is not set; a probe found {api}, which is remembered in {file}; to say it \
             yourself: homard config set models.providers.{provider}.api {api}"
        );
        if let Err(error) = self.apis.put(provider, &self.base_url, wire) {
            tracing::warn!(%error, provider, "the API of the provider cannot be remembered, so the next start probes again");
        }
        self.found.store(place(wire), Ordering::Release);
        Ok(wire)
    }

    /// Discards the result if an error shows that it is wrong. The next request probes again.
    fn learn(&self, wire: Wire, error: &Error) {
        let is_wrong = error.kind == ErrorKind::Misconfigured || matches!(error.status, Some(404 | 405 | 501));
        if !is_wrong || self.found() != Some(wire) {
            return;
        }
        self.found.store(0, Ordering::Release);
        tracing::warn!(
            provider = self.provider,
            api = wire.api(),
            "the API that a probe found is wrong; it is forgotten"
        );
        if let Err(error) = self.apis.remove(&self.provider) {
            tracing::warn!(%error, provider = self.provider, "the API of the provider cannot be forgotten");
        }
    }
}

/// Returns the one-based index of a wire in [`Wire::PROBED`].
fn place(wire: Wire) -> usize {
    Wire::PROBED.into_iter().position(|probed| probed == wire).map_or(0, |place| place + 1)
}

/// A model whose API is determined by a probe.
pub(super) struct Probed {
    /// The target without an API, then with each API that may be in use.
    targets: [Target; 4],
    client: Client,
    sign_in: Option<Arc<SignIn>>,
    finder: Arc<ApiFinder>,
}

impl Probed {
    /// Creates a model for this target, authenticated by the target's own credential or by a sign-in. Fails if no
    /// request can be built for the target.
    pub(super) fn new(
        target: Target,
        client: &Client,
        sign_in: Option<Arc<SignIn>>,
        finder: Arc<ApiFinder>,
    ) -> Result<Self, Error> {
        let speaking = |wire: Wire| {
            let mut target = target.clone();
            wire.api().clone_into(&mut target.spec.api);
            target
        };
        let [one, two, three] = Wire::PROBED.map(speaking);
        Remote::new(one.clone(), client)?;
        Ok(Self { targets: [target, one, two, three], client: client.clone(), sign_in, finder })
    }
}

impl Model for Probed {
    fn spec(&self) -> &Spec {
        &self.targets[self.finder.found().map_or(0, place)].spec
    }

    fn stream(&self, request: Request) -> EventStream {
        let (targets, client) = (self.targets.clone(), self.client.clone());
        let (sign_in, finder) = (self.sign_in.clone(), self.finder.clone());
        let opened = async move {
            let [mut unknown, ..] = targets.clone();
            if let Some(sign_in) = sign_in {
                unknown.auth = Some(Auth::Token(sign_in.token().await?));
            }
            let wire = finder.find(&unknown, &client).await?;
            let target = Target { auth: unknown.auth, ..targets[place(wire)].clone() };
            Ok((Remote::new(target, &client)?, wire, finder))
        };
        let opened = opened.map(move |opened: Result<(Remote, Wire, Arc<ApiFinder>), Error>| match opened {
            Ok((remote, wire, finder)) => {
                let learning = remote.stream(request).inspect(move |event| {
                    if let Event::Failed(error) = event {
                        finder.learn(wire, error);
                    }
                });
                learning.boxed()
            }
            Err(error) => stream::once(ready(Event::Failed(error))).boxed(),
        });
        stream::once(opened).flatten().boxed()
    }
}
