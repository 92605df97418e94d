//! Requests to an OAuth authorization server: a form is posted, JSON comes back.

use std::time::Duration;

use homard_model::{Error, ErrorKind, classify::classify};
use reqwest::{Url, header::CONTENT_TYPE};
use serde::Deserialize;
use tokio::time::timeout;

use super::{HttpClient, cause, header_pairs, is_loopback};
use crate::{Secret, secret::excerpt};

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of bytes that are read from an answer.
const MAX_BODY: usize = 256 * 1024;

/// Tokens that an authorization server has granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenGrant {
    /// Access token.
    pub access: Secret,
    /// Refresh token; absent if the server issues none, or if the old one stays valid.
    pub refresh: Option<Secret>,
    /// Lifetime of the access token; `None` if the server did not report it.
    pub lifetime: Option<Duration>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    refresh_token: Option<String>,
    expires_in: Option<u64>,
}

/// The answer of an authorization server.
pub(super) struct OauthAnswer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// The body of an error (RFC 6749, section 5.2).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OauthError {
    pub(super) error: String,
    pub(super) error_description: String,
}

impl OauthAnswer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the code and the description of an error; empty if the body has none.
    pub(super) fn error(&self) -> OauthError {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the granted tokens.
    pub(super) fn grant(&self) -> Result<TokenGrant, Error> {
        let answer: TokenAnswer = serde_json::from_slice(&self.body).map_err(|_may_contain_token| {
            Error::new(ErrorKind::Malformed, "token endpoint: the response has no access_token")
        })?;
        Ok(TokenGrant {
            access: answer.access_token.into(),
            refresh: answer.refresh_token.map(Secret::from),
            lifetime: answer.expires_in.map(Duration::from_secs),
        })
    }

    /// Returns the failure of a request that the server refused.
    pub(super) fn failure(&self, endpoint: &str, secret: &Secret) -> Error {
        let error = classify(Some(self.status), &self.headers, &String::from_utf8_lossy(&self.body));
        // OAuth responds with 400 to an invalid grant.
        let kind = if self.status == 400 { ErrorKind::Auth } else { error.kind };
        let OauthError { error: code, error_description } = self.error();
        let why = [code, error_description].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
        let why = if why.is_empty() { &error.message } else { &why };
        let message = format!("{endpoint}: {}", excerpt(why, [secret]));
        Error { kind, message, excerpt: excerpt(&error.excerpt, [secret]), ..error }
    }
}

impl HttpClient {
    /// Posts a form. The URL must be `https`, or on this machine. Secrets of the form are not part of errors.
    pub(super) async fn post_form(
        &self,
        endpoint: &str,
        url: &str,
        form: &[(&str, &str)],
        secret: &Secret,
    ) -> Result<OauthAnswer, Error> {
        let failed = |kind, why: &str| Error::new(kind, format!("{endpoint}: {}", excerpt(why, [secret])));
        let url = checked_url(url).map_err(|why| failed(ErrorKind::Auth, &why))?;
        let mut encoded = url.clone();
        encoded.set_query(None);
        encoded.query_pairs_mut().extend_pairs(form);
        let body = encoded.query().unwrap_or_default().to_owned();
        let client = (**self.client_for(&url)).clone()?;
        let request = client.post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        self.exchange(request).await.map_err(|(kind, why)| failed(kind, &why))
    }

    /// Requests a JSON document.
    pub(super) async fn get_document(&self, endpoint: &str, url: &str) -> Result<OauthAnswer, Error> {
        let failed = |kind, why: &str| Error::new(kind, format!("{endpoint}: {}", excerpt(why, [])));
        let url = checked_url(url).map_err(|why| failed(ErrorKind::Auth, &why))?;
        let client = (**self.client_for(&url)).clone()?;
        self.exchange(client.get(url)).await.map_err(|(kind, why)| failed(kind, &why))
    }

    async fn exchange(&self, request: reqwest::RequestBuilder) -> Result<OauthAnswer, (ErrorKind, String)> {
        let exchange = timeout(TIMEOUT, async {
            let mut response = request.header("accept", "application/json").send().await?;
            let (status, headers) = (response.status().as_u16(), header_pairs(response.headers()));
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await? {
                body.extend_from_slice(&chunk[..chunk.len().min(MAX_BODY - body.len())]);
                if body.len() == MAX_BODY {
                    break;
                }
            }
            Ok::<_, reqwest::Error>(OauthAnswer { status, headers, body })
        });
        match exchange.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err((ErrorKind::Connect, cause(&error))),
            Err(_) => Err((ErrorKind::Timeout, format!("no response within {TIMEOUT:?}"))),
        }
    }
}

/// Returns a URL to which tokens may be sent.
fn checked_url(url: &str) -> Result<Url, String> {
    let url = Url::parse(url).map_err(|error| format!("not a URL ({error})"))?;
    match url.scheme() == "https" || is_loopback(&url) {
        true => Ok(url),
        false => Err("the URL is not https".to_owned()),
    }
}
