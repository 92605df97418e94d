//! The sign-in at a provider with OAuth, as `models.providers.<provider>.oauth` configures it: the user confirms a code in
//! a browser, and the tokens are stored as a credential that is renewed.

use std::path::PathBuf;

use homard_credentials::auth_profiles::{credentials_file, file};
use homard_model::catalog::provider_name;
use homard_providers::{DeviceCode, DeviceEndpoints, HttpClient, TokenGrant};
use homard_runtime::Ambient;
use homard_stdx::time::millis;

use crate::{
    Error, ModelsContext,
    credentials::{self, NewCredential, profile_id},
};

/// A sign-in that waits for the user.
#[derive(Debug)]
pub struct PendingSignIn {
    /// Canonical name of the provider.
    pub provider: String,
    /// Id of the credential that will be stored.
    pub profile: String,
    /// What the user has to confirm, and where.
    pub code: DeviceCode,
    /// The file in which the credential will be stored.
    pub file: PathBuf,
    endpoints: DeviceEndpoints,
    client_id: String,
    client: HttpClient,
}

/// Requests a code from the issuer of a provider.
///
/// # Errors
///
/// The config does not say how to sign in at this provider, the file of the credentials cannot be edited, or the issuer
/// refuses.
pub async fn start(
    setup: &ModelsContext,
    provider: &str,
    profile: &str,
    agent: Option<&str>,
) -> Result<PendingSignIn, Error> {
    let provider = credentials::known(setup, provider)?;
    let profile = profile_id(&provider, profile)?;
    let mut configured = setup.config.models.providers.iter();
    let oauth = configured.find(|(id, _)| provider_name(id) == provider).and_then(|(_, found)| found.oauth.as_ref());
    let Some(oauth) = oauth else {
        return Err(Error::Usage(format!(
            "models.providers.{provider}.oauth is not set, which says how to sign in; see: homard docs models\n\
             to use an API key instead, run: homard models auth add {provider}"
        )));
    };
    if let Some(fault) = oauth.fault() {
        return Err(Error::Config(format!("models.providers.{provider}.oauth {fault}")));
    }
    let file = credentials_file(&setup.paths, &setup.agent(agent)?);
    // Checked before the user confirms anything.
    file::read(&file)?;
    let client = setup.models.client.clone();
    let model_error = |error: homard_model::Error| Error::Model(error.message);
    let named = oauth.device_authorization_endpoint.clone().zip(oauth.token_endpoint.clone());
    let endpoints = match (named, &oauth.issuer) {
        (Some((authorization, token)), _) => DeviceEndpoints { authorization, token },
        (None, Some(issuer)) => client.discover_device_endpoints(issuer.trim()).await.map_err(model_error)?,
        (None, None) => return Err(Error::Config(format!("models.providers.{provider}.oauth has no issuer"))),
    };
    let client_id = oauth.client_id.trim().to_owned();
    let code = client.start_device_flow(&endpoints, &client_id, &oauth.scopes).await.map_err(model_error)?;
    Ok(PendingSignIn { provider, profile, code, file, endpoints, client_id, client })
}

impl PendingSignIn {
    /// Waits until the user has decided, and stores the tokens. Returns true if the credential is new. Nothing is stored if
    /// the future is dropped.
    ///
    /// # Errors
    ///
    /// The user denied the sign-in, the code has expired, or the tokens cannot be stored.
    pub async fn finish(self) -> Result<bool, Error> {
        let poll = async || self.client.poll_device_flow(&self.endpoints, &self.client_id, &self.code).await;
        let waited = self.code.wait(poll).await;
        let TokenGrant { access, refresh, lifetime } = waited.map_err(|error| {
            let again = format!("try again with: homard models auth login --provider {}", self.provider);
            Error::Model(format!("{}; {again}", error.message))
        })?;
        let now = Ambient::system().now_ms();
        let credential = NewCredential::SignIn {
            access,
            refresh,
            expires: lifetime.map(|lifetime| now.saturating_add(millis(lifetime))),
            token_endpoint: self.endpoints.token.clone(),
            client_id: self.client_id.clone(),
        };
        credentials::store(&self.file, &self.provider, &self.profile, &credential)
    }
}
