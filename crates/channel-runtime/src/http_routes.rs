//! HTTP endpoints for platforms: `/channels/telegram` and `/channels/webhook/<account>`.

use async_trait::async_trait;
use homard_channel_host::{ChannelHost, PluginHttpCall};
use homard_channels::{
    Batch, Sink,
    telegram::webhook::SECRET_HEADER,
    webhook::{inbound::Headers, signature},
};
use homard_gateway::{PluginEndpoints, PluginHttpRequest, PluginHttpResponse, RouteAuth, Scope};
use homard_proto::ErrorShape;
use homard_settings::channels::DEFAULT_ACCOUNT;
use serde_json::{Value, json};

use super::{Channels, build::BuiltChannel};

/// Path prefix before the channel's name.
const PATH_PREFIX: &str = "/channels/";

/// HTTP routes and methods that plugins and channels add to the gateway.
#[derive(Debug)]
pub struct HttpRoutes<F> {
    pub plugins: F,
    pub channels: Channels,
}

#[async_trait]
impl<F: PluginEndpoints> PluginEndpoints for HttpRoutes<F> {
    fn methods(&self) -> Vec<String> {
        self.plugins.methods()
    }

    fn required_scope(&self, method: &str) -> Option<Scope> {
        self.plugins.required_scope(method)
    }

    async fn call(&self, method: &str, params: Value, client: Value) -> Result<Value, ErrorShape> {
        self.plugins.call(method, params, client).await
    }

    fn route_auth(&self, path: &str) -> Option<RouteAuth> {
        // The channel authenticates requests with its own secret.
        if parse_path(path).is_some_and(|(channel, account)| self.channels.has_account(channel, account)) {
            Some(RouteAuth::Plugin)
        } else if self.channels.0.hosts.with_route(path).is_some() {
            // So does the package of a hosted channel.
            Some(RouteAuth::Plugin)
        } else {
            self.plugins.route_auth(path)
        }
    }

    fn max_body(&self, path: &str) -> usize {
        if parse_path(path).is_some() {
            homard_channels::webhook::inbound::MAX_REQUEST_BYTES
        } else {
            self.plugins.max_body(path)
        }
    }

    async fn handle(&self, request: PluginHttpRequest) -> Option<PluginHttpResponse> {
        let path = request.url.split('?').next().unwrap_or_default().to_owned();
        match parse_path(&path).filter(|(channel, account)| self.channels.has_account(channel, account)) {
            Some((channel, account)) => Some(self.channels.handle_request(channel, account, &request).await),
            None => match self.channels.0.hosts.with_route(&path) {
                Some(host) => Some(hosted_response(&host, &path, request).await),
                None => self.plugins.handle(request).await,
            },
        }
    }
}

/// Passes a request to the package of a hosted channel, which authenticates it. The package confirms an event to its
/// platform only after the event is on disk.
async fn hosted_response(host: &ChannelHost, path: &str, request: PluginHttpRequest) -> PluginHttpResponse {
    let PluginHttpRequest { method, url, headers, body, from } = request;
    let call = PluginHttpCall { method, url, headers, body, remote_address: Some(from.to_string()) };
    match host.handle_http(path, call).await {
        Ok(reply) if reply.is_handled => {
            PluginHttpResponse { status: reply.status, headers: reply.headers, body: reply.body }
        }
        Ok(_) => answer(404, &json!({"error": "unknown path"})),
        Err(error) => {
            tracing::warn!(path, %error, "a request for a hosted channel failed");
            answer(503, &json!({"error": "the channel is not ready; retry later"}))
        }
    }
}

/// Returns the channel and the account that a path names.
fn parse_path(path: &str) -> Option<(&str, &str)> {
    let address = path.strip_prefix(PATH_PREFIX)?.trim_end_matches('/');
    match address.split_once('/') {
        Some((channel, account)) if !account.contains('/') => Some((channel, account)),
        Some(_) => None,
        None => Some((address, DEFAULT_ACCOUNT)),
    }
}

impl Channels {
    /// Processes a platform's request. It is answered with 200 only after the events are on disk.
    async fn handle_request(&self, channel: &str, name: &str, request: &PluginHttpRequest) -> PluginHttpResponse {
        let header = |name: &str| {
            request.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
        };
        if request.method != "POST" {
            return answer(405, &json!({"error": "method not allowed; use POST"}));
        }
        let Some(account) = self.account(channel, name) else {
            return answer(404, &json!({"error": "unknown channel"}));
        };
        let batch: Result<Batch, (u16, String)> = match &account.built {
            BuiltChannel::Telegram(telegram) => telegram
                .parse_delivery(header(SECRET_HEADER), &request.body)
                .map_err(|rejected| (rejected.status(), "request rejected".to_owned())),
            BuiltChannel::Discord(_) => Err((404, "Discord sends no requests".to_owned())),
            BuiltChannel::Webhook(webhook) => {
                let headers = Headers {
                    timestamp: header(signature::TIMESTAMP_HEADER),
                    signature: header(signature::SIGNATURE_HEADER),
                };
                webhook
                    .parse_request(headers, &request.body)
                    .map_err(|rejected| (rejected.status(), rejected.message()))
            }
            // Its package names its own paths.
            BuiltChannel::Hosted(_) => Err((404, "unknown path".to_owned())),
        };
        let (status, why) = match batch {
            Err(rejected) => rejected,
            Ok(batch) => match account.pipeline() {
                None => (503, "the gateway is not ready; retry later".to_owned()),
                Some(pipeline) => match pipeline.store(batch).await {
                    Ok(()) => return answer(200, &json!({"ok": true})),
                    Err(unstored) => (503, unstored.to_string()),
                },
            },
        };
        tracing::debug!(channel, account = name, status, why, "inbound request rejected");
        answer(status, &json!({"error": why}))
    }
}

fn answer(status: u16, body: &Value) -> PluginHttpResponse {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    PluginHttpResponse { status, headers, body: body.to_string().into_bytes() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_channel_and_an_account() {
        assert_eq!(parse_path("/channels/telegram"), Some(("telegram", "default")));
        assert_eq!(parse_path("/channels/webhook/door/"), Some(("webhook", "door")));
        assert_eq!([parse_path("/channels"), parse_path("/channels/a/b/c"), parse_path("/other/telegram")], [None; 3]);
    }
}
