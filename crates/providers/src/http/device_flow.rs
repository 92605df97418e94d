//! The device authorization grant of OAuth (RFC 8628): the user confirms a code in a browser, on any machine, while the
//! token endpoint is polled.
//!
//! [`HttpClient::start_device_flow`] requests a code, [`DeviceCode::wait`] polls until the user has decided.

use std::time::Duration;

use homard_model::{Error, ErrorKind};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::{HttpClient, oauth::TokenGrant};
use crate::Secret;

/// Time between two polls if the server sets none.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest time between two polls, whatever the server says.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time between two polls.
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// How much the interval grows when the server asks to slow down.
const SLOW_DOWN: Duration = Duration::from_secs(5);
/// Longest time that a code is waited for.
const MAX_LIFETIME: Duration = Duration::from_secs(60 * 60);

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// The endpoints of an authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceEndpoints {
    /// Device authorization endpoint.
    pub authorization: String,
    /// Token endpoint.
    pub token: String,
}

/// A code that the user confirms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCode {
    /// Identifies this sign-in at the token endpoint.
    code: Secret,
    /// What the user types.
    pub user_code: String,
    /// Where the user types it.
    pub verification_uri: String,
    /// The same with the code in it, if the server has such a page.
    pub verification_uri_complete: Option<String>,
    /// How long the code can be confirmed.
    pub lifetime: Duration,
    /// Time between two polls.
    pub interval: Duration,
}

/// The answer of the token endpoint to a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DevicePoll {
    /// The user has not decided yet.
    Pending,
    /// The same, and the server is to be polled less often.
    SlowDown,
    /// The user has agreed.
    Granted(TokenGrant),
}

#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    device_authorization_endpoint: Option<String>,
    token_endpoint: String,
}

#[derive(Deserialize)]
struct CodeAnswer {
    device_code: String,
    user_code: String,
    #[serde(alias = "verification_url")]
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

impl HttpClient {
    /// Returns the endpoints that the metadata of an issuer names (RFC 8414, or OpenID Connect Discovery).
    ///
    /// # Errors
    ///
    /// There is no metadata, it is that of another issuer, or it names no device authorization endpoint.
    pub async fn discover_device_endpoints(&self, issuer: &str) -> Result<DeviceEndpoints, Error> {
        let issuer = issuer.trim_end_matches('/');
        let place = format!("metadata of {issuer}");
        let misconfigured = |why: &str| Error::new(ErrorKind::Misconfigured, format!("{place}: {why}"));
        let mut last = misconfigured("not found");
        for name in ["oauth-authorization-server", "openid-configuration"] {
            let answer = self.get_document(&place, &format!("{issuer}/.well-known/{name}")).await?;
            if !answer.is_success() {
                last = misconfigured(&format!("HTTP {}", answer.status));
                continue;
            }
            let found: Metadata =
                serde_json::from_slice(&answer.body).map_err(|error| misconfigured(&error.to_string()))?;
            // Otherwise one server could obtain the tokens of another.
            if found.issuer.trim_end_matches('/') != issuer {
                return Err(misconfigured("it belongs to another issuer"));
            }
            let Some(authorization) = found.device_authorization_endpoint else {
                return Err(misconfigured("it offers no sign-in with a device code"));
            };
            return Ok(DeviceEndpoints { authorization, token: found.token_endpoint });
        }
        Err(last)
    }

    /// Requests a code for the user.
    pub async fn start_device_flow(
        &self,
        endpoints: &DeviceEndpoints,
        client_id: &str,
        scopes: &[String],
    ) -> Result<DeviceCode, Error> {
        const ENDPOINT: &str = "device authorization endpoint";
        let scope = scopes.join(" ");
        let mut form = vec![("client_id", client_id)];
        form.extend((!scope.is_empty()).then_some(("scope", scope.as_str())));
        let none = Secret::from("");
        let answer = self.post_form(ENDPOINT, &endpoints.authorization, &form, &none).await?;
        if !answer.is_success() {
            return Err(answer.failure(ENDPOINT, &none));
        }
        let code: CodeAnswer = serde_json::from_slice(&answer.body).map_err(|_may_contain_code| {
            Error::new(ErrorKind::Malformed, format!("{ENDPOINT}: the response is not a device code"))
        })?;
        Ok(DeviceCode {
            code: code.device_code.into(),
            user_code: code.user_code,
            verification_uri: code.verification_uri,
            verification_uri_complete: code.verification_uri_complete,
            lifetime: Duration::from_secs(code.expires_in).min(MAX_LIFETIME),
            interval: code.interval.map_or(DEFAULT_INTERVAL, Duration::from_secs).clamp(MIN_INTERVAL, MAX_INTERVAL),
        })
    }

    /// Asks once whether the user has decided.
    pub async fn poll_device_flow(
        &self,
        endpoints: &DeviceEndpoints,
        client_id: &str,
        code: &DeviceCode,
    ) -> Result<DevicePoll, Error> {
        let form = [("grant_type", GRANT_TYPE), ("device_code", code.code.expose()), ("client_id", client_id)];
        let answer = self.post_form("token endpoint", &endpoints.token, &form, &code.code).await?;
        if answer.is_success() {
            return answer.grant().map(DevicePoll::Granted);
        }
        match answer.error().error.as_str() {
            "authorization_pending" => Ok(DevicePoll::Pending),
            "slow_down" => Ok(DevicePoll::SlowDown),
            "access_denied" => Err(Error::new(ErrorKind::Auth, "the sign-in was denied")),
            "expired_token" => Err(expired()),
            _ => Err(answer.failure("token endpoint", &code.code)),
        }
    }
}

impl DeviceCode {
    /// Polls until the user has decided, not more often than the server permits. A server that cannot be reached is asked
    /// again, less often each time.
    ///
    /// # Errors
    ///
    /// The user denied the sign-in, the code has expired, or the server refuses the request.
    pub async fn wait(&self, poll: impl AsyncFn() -> Result<DevicePoll, Error>) -> Result<TokenGrant, Error> {
        let deadline = Instant::now() + self.lifetime;
        let mut interval = self.interval;
        loop {
            if Instant::now() + interval > deadline {
                return Err(expired());
            }
            sleep(interval).await;
            match poll().await {
                Ok(DevicePoll::Granted(grant)) => return Ok(grant),
                Ok(DevicePoll::Pending) => {}
                Ok(DevicePoll::SlowDown) => interval = (interval + SLOW_DOWN).min(MAX_INTERVAL),
                Err(error) if is_transient(error.kind) => interval = (interval * 2).min(MAX_INTERVAL),
                Err(error) => return Err(error),
            }
        }
    }
}

fn expired() -> Error {
    Error::new(ErrorKind::Auth, "the code expired before it was confirmed")
}

fn is_transient(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::RateLimit | ErrorKind::Overloaded | ErrorKind::Server
    )
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque};

    use super::*;

    fn code(lifetime: u64, interval: u64) -> DeviceCode {
        DeviceCode {
            code: "device".into(),
            user_code: "ABCD-EFGH".to_owned(),
            verification_uri: "https://issuer.example/device".to_owned(),
            verification_uri_complete: None,
            lifetime: Duration::from_secs(lifetime),
            interval: Duration::from_secs(interval),
        }
    }

    fn grant() -> TokenGrant {
        TokenGrant { access: "access".into(), refresh: None, lifetime: None }
    }

    /// Waits with these answers. Returns the result, and the seconds after which each poll came.
    async fn waited(
        code: &DeviceCode,
        answers: Vec<Result<DevicePoll, Error>>,
    ) -> (Result<TokenGrant, String>, Vec<u64>) {
        let (answers, start) = (RefCell::new(VecDeque::from(answers)), Instant::now());
        let polls = RefCell::new(Vec::new());
        let result = code.wait(async || {
            polls.borrow_mut().push(start.elapsed().as_secs());
            answers.borrow_mut().pop_front().unwrap_or(Ok(DevicePoll::Pending))
        });
        let result = result.await.map_err(|error| error.message);
        (result, polls.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_sets_the_pace() {
        let unreachable = || Err(Error::new(ErrorKind::Connect, "refused"));
        let answers = vec![
            Ok(DevicePoll::Pending),
            Ok(DevicePoll::SlowDown),
            Ok(DevicePoll::Pending),
            unreachable(),
            Ok(DevicePoll::Granted(grant())),
        ];
        // 2 s, then 2 + 5 s after slow_down, then doubled after the failure.
        assert_eq!(waited(&code(600, 2), answers).await, (Ok(grant()), vec![2, 4, 11, 18, 32]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_denied_and_an_expired_code_end_the_wait() {
        let denied = Error::new(ErrorKind::Auth, "the sign-in was denied");
        let (result, polls) = waited(&code(600, 5), vec![Ok(DevicePoll::Pending), Err(denied)]).await;
        assert_eq!((result.unwrap_err().as_str(), polls), ("the sign-in was denied", vec![5, 10]));
        let (result, polls) = waited(&code(12, 5), Vec::new()).await;
        assert_eq!((result.unwrap_err().as_str(), polls), ("the code expired before it was confirmed", vec![5, 10]));
        let rejected = Error::new(ErrorKind::Rejected, "unknown client");
        assert_eq!(waited(&code(600, 5), vec![Err(rejected)]).await.1, [5]);
    }

    #[tokio::test]
    async fn codes_are_requested_only_over_https() {
        let endpoints = DeviceEndpoints {
            authorization: "http://issuer.example/device".to_owned(),
            token: "http://issuer.example/token".to_owned(),
        };
        let client = HttpClient::default();
        let error = client.start_device_flow(&endpoints, "me", &[]).await.unwrap_err();
        assert_eq!(error.message, "device authorization endpoint: the URL is not https");
        let error = client.poll_device_flow(&endpoints, "me", &code(1, 1)).await.unwrap_err();
        assert_eq!(error.message, "token endpoint: the URL is not https");
        let error = client.discover_device_endpoints("http://issuer.example").await.unwrap_err();
        assert_eq!(error.message, "metadata of http://issuer.example: the URL is not https");
    }
}
