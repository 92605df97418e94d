//! Anthropic Messages API.

mod body;
mod decode;
mod encode;
mod think;

pub(crate) use decode::Decoder;
pub(crate) use encode::encode;

use crate::{
    Credentials, ModelTarget,
    wire::{RequestPath, bearer},
};

/// API version; the only one there is.
const VERSION: &str = "2023-06-01";
/// Arguments are streamed as they are generated, and models may reason between calls.
const BETAS: &str = "fine-grained-tool-streaming-2025-05-14,interleaved-thinking-2025-05-14";
/// Required for OAuth tokens of a user's account.
const OAUTH_BETA: &str = "oauth-2025-04-20";
/// Prefix of OAuth tokens. It also identifies a token that was configured as an API key.
const OAUTH_PREFIX: &str = "sk-ant-oat";

/// Returns the request path. Base URLs are written with and without the version.
pub(crate) fn request_path(target: &ModelTarget) -> RequestPath {
    let is_versioned = target.base_url.trim_end_matches('/').ends_with("/v1");
    RequestPath { path: if is_versioned { "messages" } else { "v1/messages" }.to_owned(), query: None }
}

/// Returns the version, beta and authentication headers. An API key is sent as `x-api-key`, an OAuth token as a bearer
/// token.
pub(crate) fn headers(target: &ModelTarget) -> Vec<(&'static str, String)> {
    let is_token = target.auth.as_ref().is_some_and(|auth| match auth {
        Credentials::Key(key) => key.expose().trim().starts_with(OAUTH_PREFIX),
        Credentials::Token(_) => true,
    });
    let betas = if is_token { format!("{BETAS},{OAUTH_BETA}") } else { BETAS.to_owned() };
    let mut headers = vec![("anthropic-version", VERSION.to_owned()), ("anthropic-beta", betas)];
    if is_token {
        headers.extend(bearer(target));
    } else {
        headers.extend(target.auth.as_ref().map(|auth| ("x-api-key", auth.secret().expose().trim().to_owned())));
    }
    headers
}

#[cfg(test)]
mod tests {
    use homard_model::ModelSpec;

    use super::*;

    fn auth_headers(auth: Option<Credentials>) -> Vec<(&'static str, String)> {
        let target = ModelTarget { auth, ..ModelTarget::new(ModelSpec::default(), "https://api.anthropic.com") };
        headers(&target).split_off(2)
    }

    #[test]
    fn keys_and_tokens_have_their_own_headers() {
        let header = |name, value: &str| vec![(name, value.to_owned())];
        assert_eq!(auth_headers(Some(Credentials::Key("sk-ant-api1\n".into()))), header("x-api-key", "sk-ant-api1"));
        assert_eq!(
            auth_headers(Some(Credentials::Key("sk-ant-oat1".into()))),
            header("authorization", "Bearer sk-ant-oat1")
        );
        assert_eq!(auth_headers(Some(Credentials::Token("t".into()))), header("authorization", "Bearer t"));
        assert_eq!(auth_headers(None), []);
    }

    #[test]
    fn only_tokens_add_the_oauth_beta() {
        let betas = |auth| {
            let target =
                ModelTarget { auth: Some(auth), ..ModelTarget::new(ModelSpec::default(), "https://api.anthropic.com") };
            headers(&target).into_iter().find(|(name, _)| *name == "anthropic-beta").map(|(_, betas)| betas)
        };
        assert_eq!(betas(Credentials::Key("k".into())), Some(BETAS.to_owned()));
        assert_eq!(betas(Credentials::Token("t".into())), Some(format!("{BETAS},{OAUTH_BETA}")));
    }

    #[test]
    fn the_version_is_in_the_path_once() {
        let path = |base_url: &str| request_path(&ModelTarget::new(ModelSpec::default(), base_url)).path;
        assert_eq!(path("https://api.anthropic.com"), "v1/messages");
        assert_eq!(path("https://proxy.example/anthropic/v1/"), "messages");
    }
}
