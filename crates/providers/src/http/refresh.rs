//! OAuth token refresh (RFC 6749, section 6).

use homard_model::Error;

use super::{HttpClient, oauth::TokenGrant};
use crate::Secret;

impl HttpClient {
    /// Requests a new token. The endpoint must be `https`, or on this machine.
    pub async fn refresh(
        &self,
        endpoint: &str,
        client_id: Option<&str>,
        refresh: &Secret,
    ) -> Result<TokenGrant, Error> {
        let mut form = vec![("grant_type", "refresh_token"), ("refresh_token", refresh.expose())];
        form.extend(client_id.map(|id| ("client_id", id)));
        let answer = self.post_form("token endpoint", endpoint, &form, refresh).await?;
        match answer.is_success() {
            true => answer.grant(),
            false => Err(answer.failure("token endpoint", refresh)),
        }
    }
}

#[cfg(test)]
mod tests {
    use homard_model::ErrorKind;

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
