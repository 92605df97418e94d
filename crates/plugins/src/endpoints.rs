//! Other registrations of plugins: chat commands, gateway methods, HTTP routes, background services.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Error,
    registrations::{CommandRegistration, MethodRegistration, RouteRegistration},
    supervisor::{CallParams, Delivery, PluginCall, ProcessSupervisor, RegistrationAddress, RunningProcess},
};

/// Timeout of such a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of a command's arguments in characters.
const MAX_ARGUMENT_CHARS: usize = 4096;

/// A registration in a plugin process.
#[derive(Debug, Clone)]
pub(crate) struct PluginTarget {
    pub(crate) worker: Arc<ProcessSupervisor>,
    pub(crate) address: RegistrationAddress,
}

impl PluginTarget {
    async fn call(&self, method: &str, mut params: Value) -> Result<Value, Error> {
        let call = PluginCall {
            plugin: &self.address.plugin,
            method,
            timeout: CALL_TIMEOUT,
            delivery: Delivery::AtMostOnce,
            on_progress: None,
        };
        let write = |process: &RunningProcess| {
            params["ref"] = process.handle(&self.address)?.clone();
            params["name"] = json!(self.address.name);
            CallParams::plain(&params)
        };
        self.worker.call(call, write).await
    }
}

/// A chat command of a plugin.
#[derive(Debug, Clone)]
pub struct PluginCommand {
    pub(crate) target: PluginTarget,
    pub(crate) registration: CommandRegistration,
}

/// Invocation of a chat command.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandInvocation {
    /// Id of the sender.
    pub sender_id: Option<String>,
    /// Channel it was sent on.
    pub channel: String,
    /// True if the sender is authorised.
    pub is_authorized_sender: bool,
    /// Arguments.
    pub args: Option<String>,
    /// The whole message.
    pub command_body: String,
    /// Session key.
    pub session_key: Option<String>,
}

impl PluginCommand {
    /// Returns its name, without the slash.
    pub fn name(&self) -> &str {
        &self.registration.name
    }

    /// Returns its description.
    pub fn description(&self) -> &str {
        &self.registration.description
    }

    /// Returns the plugin id.
    pub fn plugin(&self) -> &str {
        &self.target.address.plugin
    }

    /// Returns true if this name with these arguments invokes it.
    pub fn matches(&self, name: &str, args: &str) -> bool {
        name == self.name() && (self.registration.accepts_args || args.trim().is_empty())
    }

    /// Executes it; returns the reply: a string, or an object with one.
    pub async fn run(&self, mut cx: CommandInvocation) -> Result<Value, Error> {
        cx.args = cx.args.map(|args| {
            args.chars().filter(|c| !c.is_control() || *c == '\n' || *c == '\t').take(MAX_ARGUMENT_CHARS).collect()
        });
        self.target.call("command.run", json!({"ctx": cx})).await
    }
}

/// A gateway method of a plugin.
#[derive(Debug, Clone)]
pub struct PluginMethod {
    pub(crate) target: PluginTarget,
    pub(crate) registration: MethodRegistration,
}

/// Response of a gateway method.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct MethodResponse {
    /// True if it succeeded.
    pub ok: bool,
    /// Result.
    pub payload: Value,
    /// Error.
    pub error: Value,
}

impl PluginMethod {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.registration.name
    }

    /// Returns the plugin id.
    pub fn plugin(&self) -> &str {
        &self.target.address.plugin
    }

    /// Returns the scope that a client needs, if the plugin sets one.
    pub fn scope(&self) -> Option<&str> {
        self.registration.scope.as_deref()
    }

    /// Calls it for a client.
    pub async fn call(&self, params: Value, client: Value) -> Result<MethodResponse, Error> {
        let answer = self.target.call("gatewayMethod.call", json!({"params": params, "client": client})).await?;
        MethodResponse::deserialize(answer)
            .map_err(|error| Error::Failed(format!("the plugin returned an invalid response: {error}")))
    }
}

/// An HTTP route of a plugin.
#[derive(Debug, Clone)]
pub struct PluginRoute {
    pub(crate) target: PluginTarget,
    pub(crate) registration: RouteRegistration,
}

/// An HTTP request for a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginHttpCall {
    /// HTTP method, such as `POST`.
    pub method: String,
    /// Path and query.
    pub url: String,
    /// Headers; a name may occur more than once.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// Address of the client.
    pub remote_address: Option<String>,
}

impl PluginHttpCall {
    /// Returns the parameters of `http.request`, without the route.
    pub fn into_params(self) -> Value {
        let Self { method, url, headers, body, remote_address } = self;
        let body = BASE64_STANDARD.encode(body);
        json!({"method": method, "url": url, "headers": headers, "body": body, "remoteAddress": remote_address})
    }
}

/// A plugin's HTTP response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginHttpReply {
    /// True if the plugin handled the request; otherwise the rest is ignored.
    pub is_handled: bool,
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

#[derive(Deserialize)]
struct RawHttpReply {
    #[serde(default = "default_handled")]
    handled: bool,
    #[serde(default = "default_status")]
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    #[serde(default)]
    body: String,
}

fn default_handled() -> bool {
    true
}

fn default_status() -> u16 {
    200
}

impl PluginRoute {
    /// Returns the path.
    pub fn path(&self) -> &str {
        &self.registration.path
    }

    /// Returns the plugin id.
    pub fn plugin(&self) -> &str {
        &self.target.address.plugin
    }

    /// Returns true if the gateway authenticates requests. The default, unless the plugin does so itself.
    pub fn needs_token(&self) -> bool {
        self.registration.auth.as_deref() != Some("plugin")
    }

    /// Returns true for a catch-all route.
    pub fn is_catch_all(&self) -> bool {
        self.registration.matches.as_deref() == Some("any")
    }

    /// Returns true if a path matches.
    pub fn matches(&self, path: &str) -> bool {
        let own = self.path();
        match self.registration.matches.as_deref() {
            Some("any") => true,
            Some("prefix") => {
                path == own || path.strip_prefix(own.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
            }
            _ => path == own,
        }
    }

    /// Handles a request.
    pub async fn handle(&self, call: PluginHttpCall) -> Result<PluginHttpReply, Error> {
        read_http(self.target.call("http.request", call.into_params()).await?)
    }
}

/// Parses the answer of a Node host to `http.request`.
pub fn read_http(answer: Value) -> Result<PluginHttpReply, Error> {
    let invalid = |reason: String| Error::Failed(format!("the plugin returned an invalid response: {reason}"));
    let raw = RawHttpReply::deserialize(answer).map_err(|error| invalid(error.to_string()))?;
    let body = BASE64_STANDARD.decode(raw.body.trim()).map_err(|error| invalid(error.to_string()))?;
    let mut headers = Vec::new();
    for (name, value) in raw.headers {
        match value {
            Value::Array(values) => headers.extend(values.iter().map(|single| (name.clone(), header_text(single)))),
            Value::Null => {}
            single @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                headers.push((name, header_text(&single)))
            }
        }
    }
    if !(100..=599).contains(&raw.status) {
        return Err(invalid(format!("invalid status {}", raw.status)));
    }
    Ok(PluginHttpReply { is_handled: raw.handled, status: raw.status, headers, body })
}

fn header_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A background service of a plugin.
#[derive(Debug, Clone)]
pub struct PluginService {
    pub(crate) target: PluginTarget,
    pub(crate) context: Value,
}

impl PluginService {
    /// Returns its id.
    pub fn id(&self) -> &str {
        &self.target.address.name
    }

    /// Returns the plugin id.
    pub fn plugin(&self) -> &str {
        &self.target.address.plugin
    }

    /// Starts it. It is started again whenever the plugin's process is restarted.
    pub async fn start(&self) -> Result<(), Error> {
        self.target.worker.start_service(&self.target.address, self.context.clone()).await
    }

    /// Stops it.
    pub async fn stop(&self) {
        self.target.worker.stop_service(&self.target.address).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http_reply_is_parsed_with_its_headers() {
        let reply =
            json!({"status": 201, "headers": {"set-cookie": ["a", "b"], "x-n": 5, "gone": null}, "body": "aGk="});
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = PluginHttpReply {
            is_handled: true,
            status: 201,
            headers: vec![header("set-cookie", "a"), header("set-cookie", "b"), header("x-n", "5")],
            body: b"hi".to_vec(),
        };
        assert_eq!(read_http(reply), Ok(expected));
        assert!(!read_http(json!({"handled": false})).unwrap().is_handled);
        for invalid in [json!({"status": 99}), json!({"body": "%"}), json!(5)] {
            assert!(matches!(read_http(invalid), Err(Error::Failed(_))));
        }
    }
}
