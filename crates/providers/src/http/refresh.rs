//! OAuth token refresh (RFC 6749, section 6).

use std::time::Duration;

use homard_model::{Error, ErrorKind, classify::classify};
use reqwest::{Url, header::CONTENT_TYPE};
use serde::Deserialize;
use tokio::time::timeout;

use super::{HttpClient, cause, header_pairs, is_loopback};
use crate::{Secret, secret::excerpt};

/// Timeout of a token endpoint.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(30);

/// Tokens from a successful refresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshedToken {
    /// Access token.
    pub access: Secret,
    /// New refresh token; absent if the old one stays valid.
    pub refresh: Option<Secret>,
    /// Lifetime of the access token; `None` if the endpoint did not report it.
    pub lifetime: Option<Duration>,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    refresh_token: Option<String>,
    expires_in: Option<u64>,
}

impl HttpClient {
    /// Requests a new token. The endpoint must be `https`, or on this machine.
    pub async fn refresh(
        &self,
        endpoint: &str,
        client_id: Option<&str>,
        refresh: &Secret,
    ) -> Result<RefreshedToken, Error> {
        let failed = |kind, why: &str| Error::new(kind, format!("token endpoint: {}", excerpt(why, [refresh])));
        let url = Url::parse(endpoint).map_err(|error| failed(ErrorKind::Auth, &format!("not a URL ({error})")))?;
        if url.scheme() != "https" && !is_loopback(&url) {
            return Err(failed(ErrorKind::Auth, "the URL is not https"));
        }
        let mut form = url.clone();
        form.set_query(None);
        form.query_pairs_mut()
            .append_pair("grant_type", "refresh_token")
            .append_pair("refresh_token", refresh.expose());
        form.query_pairs_mut().extend_pairs(client_id.map(|id| ("client_id", id)));
        let body = form.query().unwrap_or_default().to_owned();
        let client = (**self.client_for(&url)).clone()?;
        let request = client.post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        let exchange = timeout(REFRESH_TIMEOUT, async {
            let response = request.send().await?;
            let (status, headers) = (response.status(), header_pairs(response.headers()));
            Ok::<_, reqwest::Error>((status, headers, response.bytes().await?))
        });
        let (status, headers, body) = match exchange.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(failed(ErrorKind::Connect, &cause(&error))),
            Err(_) => return Err(failed(ErrorKind::Timeout, &format!("no response within {REFRESH_TIMEOUT:?}"))),
        };
        if !status.is_success() {
            let error = classify(Some(status.as_u16()), &headers, &String::from_utf8_lossy(&body));
            // OAuth responds with 400 to an invalid refresh token.
            let kind = if status.as_u16() == 400 { ErrorKind::Auth } else { error.kind };
            let message = failed(kind, &error.message).message;
            return Err(Error { kind, message, excerpt: excerpt(&error.excerpt, [refresh]), ..error });
        }
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|_may_contain_token| failed(ErrorKind::Malformed, "the response has no access_token"))?;
        Ok(RefreshedToken {
            access: answer.access_token.into(),
            refresh: answer.refresh_token.map(Secret::from),
            lifetime: answer.expires_in.map(Duration::from_secs),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refresh_token_is_sent_only_over_https() {
        let failure = async |endpoint: &str| {
            let refresh = Secret::from("a-refresh-token");
            let error = HttpClient::default().refresh(endpoint, Some("me"), &refresh).await.unwrap_err();
            (error.kind, error.message)
        };
        let not_https = (ErrorKind::Auth, "token endpoint: the URL is not https".to_owned());
        assert_eq!(failure("http://example.com/token").await, not_https);
        assert_eq!(failure("ftp://example.com/token").await, not_https);
        let (kind, message) = failure("a-refresh-token").await;
        assert_eq!((kind, message.contains("a-refresh-token")), (ErrorKind::Auth, false), "{message}");
    }
}
