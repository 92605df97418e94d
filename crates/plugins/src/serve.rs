//! What else a plugin may be asked: slash commands, gateway methods, HTTP routes, background services.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Error,
    offer::{CommandOffer, MethodOffer, RouteOffer},
    supervisor::{Address, Paper, Question, Up, Worker},
};

/// How long a plugin may take to answer one of these.
const WITHIN: Duration = Duration::from_secs(30);

/// How long the words after a command may be, in characters.
const ARGUMENTS: usize = 4096;

/// Somewhere in a plugin.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) worker: Arc<Worker>,
    pub(crate) address: Address,
}

impl Place {
    async fn ask(&self, method: &str, mut params: Value) -> Result<Value, Error> {
        let question = Question { plugin: &self.address.plugin, method, within: WITHIN, on_progress: None };
        let write = |up: &Up| {
            params["ref"] = up.reference(&self.address)?.clone();
            params["name"] = json!(self.address.name);
            Paper::plain(&params)
        };
        self.worker.ask(question, write).await
    }
}

/// A slash command of a plugin.
#[derive(Debug, Clone)]
pub struct Command {
    pub(crate) place: Place,
    pub(crate) offer: CommandOffer,
}

/// How a slash command was called.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandCx {
    /// Who wrote it.
    pub sender_id: Option<String>,
    /// Where.
    pub channel: String,
    /// Whether they may give orders.
    pub is_authorized_sender: bool,
    /// The words after it.
    pub args: Option<String>,
    /// All of it.
    pub command_body: String,
    /// The session.
    pub session_key: Option<String>,
}

impl Command {
    /// Its name, without the slash.
    pub fn name(&self) -> &str {
        &self.offer.name
    }

    /// What it does.
    pub fn description(&self) -> &str {
        &self.offer.description
    }

    /// The plugin.
    pub fn plugin(&self) -> &str {
        &self.place.address.plugin
    }

    /// Whether only those may use it who may give orders.
    pub fn needs_authority(&self) -> bool {
        self.offer.require_auth.unwrap_or(true)
    }

    /// Whether it is meant by a name with these words after it.
    pub fn matches(&self, name: &str, args: &str) -> bool {
        name == self.name() && (self.offer.accepts_args || args.trim().is_empty())
    }

    /// Runs it, and gives what is to be said: a text, or an object with one.
    pub async fn run(&self, mut cx: CommandCx) -> Result<Value, Error> {
        cx.args = cx
            .args
            .map(|args| args.chars().filter(|c| !c.is_control() || *c == '\n' || *c == '\t').take(ARGUMENTS).collect());
        self.place.ask("command.run", json!({"ctx": cx})).await
    }
}

/// A gateway method of a plugin.
#[derive(Debug, Clone)]
pub struct Method {
    pub(crate) place: Place,
    pub(crate) offer: MethodOffer,
}

/// What a gateway method answered.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct MethodAnswer {
    /// Whether it went well.
    pub ok: bool,
    /// With what.
    pub payload: Value,
    /// Why not.
    pub error: Value,
}

impl Method {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.offer.name
    }

    /// The plugin.
    pub fn plugin(&self) -> &str {
        &self.place.address.plugin
    }

    /// What a client must be allowed to do, if the plugin says.
    pub fn scope(&self) -> Option<&str> {
        self.offer.scope.as_deref()
    }

    /// Calls it for a client.
    pub async fn call(&self, params: Value, client: Value) -> Result<MethodAnswer, Error> {
        let answer = self.place.ask("gatewayMethod.call", json!({"params": params, "client": client})).await?;
        MethodAnswer::deserialize(answer)
            .map_err(|error| Error::Failed(format!("it answered what cannot be read: {error}")))
    }
}

/// An HTTP route of a plugin.
#[derive(Debug, Clone)]
pub struct Route {
    pub(crate) place: Place,
    pub(crate) offer: RouteOffer,
}

/// An HTTP request for a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpAsk {
    /// Such as `POST`.
    pub method: String,
    /// The path and what follows it.
    pub url: String,
    /// The headers; a name may come more than once.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Who asks.
    pub remote_address: Option<String>,
}

/// What a plugin answered over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpAnswer {
    /// Whether the request was meant for it; the rest is of no interest if not.
    pub is_handled: bool,
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

#[derive(Deserialize)]
struct RawAnswer {
    #[serde(default = "yes")]
    handled: bool,
    #[serde(default = "fine")]
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    #[serde(default)]
    body: String,
}

fn yes() -> bool {
    true
}

fn fine() -> u16 {
    200
}

impl Route {
    /// The path.
    pub fn path(&self) -> &str {
        &self.offer.path
    }

    /// The plugin.
    pub fn plugin(&self) -> &str {
        &self.place.address.plugin
    }

    /// Whether the gateway checks who comes, before the plugin hears of it. So it is unless the plugin says that it does
    /// that itself.
    pub fn needs_token(&self) -> bool {
        self.offer.auth.as_deref() != Some("plugin")
    }

    /// Whether it is asked about everything that nobody else answers.
    pub fn is_for_all(&self) -> bool {
        self.offer.matches.as_deref() == Some("any")
    }

    /// Whether a path is its own.
    pub fn matches(&self, path: &str) -> bool {
        let own = self.path();
        match self.offer.matches.as_deref() {
            Some("any") => true,
            Some("prefix") => {
                path == own || path.strip_prefix(own.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
            }
            _ => path == own,
        }
    }

    /// Has the plugin answer a request.
    pub async fn answer(&self, ask: HttpAsk) -> Result<HttpAnswer, Error> {
        let HttpAsk { method, url, headers, body, remote_address } = ask;
        let body = BASE64_STANDARD.encode(body);
        let params =
            json!({"method": method, "url": url, "headers": headers, "body": body, "remoteAddress": remote_address});
        read_http(self.place.ask("http.request", params).await?)
    }
}

fn read_http(answer: Value) -> Result<HttpAnswer, Error> {
    let unread = |what: String| Error::Failed(format!("it answered what cannot be read: {what}"));
    let raw = RawAnswer::deserialize(answer).map_err(|error| unread(error.to_string()))?;
    let body = BASE64_STANDARD.decode(raw.body.trim()).map_err(|error| unread(error.to_string()))?;
    let mut headers = Vec::new();
    for (name, value) in raw.headers {
        match value {
            Value::Array(all) => headers.extend(all.iter().map(|one| (name.clone(), plain(one)))),
            Value::Null => {}
            one @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                headers.push((name, plain(&one)))
            }
        }
    }
    if !(100..=599).contains(&raw.status) {
        return Err(unread(format!("there is no status {}", raw.status)));
    }
    Ok(HttpAnswer { is_handled: raw.handled, status: raw.status, headers, body })
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A background service of a plugin.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) place: Place,
    pub(crate) context: Value,
}

impl Service {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.place.address.name
    }

    /// The plugin.
    pub fn plugin(&self) -> &str {
        &self.place.address.plugin
    }

    /// Starts it. It is started again whenever the plugin's process is.
    pub async fn start(&self) -> Result<(), Error> {
        self.place.worker.begin(&self.place.address, self.context.clone()).await
    }

    /// Stops it.
    pub async fn stop(&self) {
        self.place.worker.finish(&self.place.address).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_over_http_is_read_with_its_headers() {
        let told =
            json!({"status": 201, "headers": {"set-cookie": ["a", "b"], "x-n": 5, "gone": null}, "body": "aGk="});
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = HttpAnswer {
            is_handled: true,
            status: 201,
            headers: vec![header("set-cookie", "a"), header("set-cookie", "b"), header("x-n", "5")],
            body: b"hi".to_vec(),
        };
        assert_eq!(read_http(told), Ok(expected));
        assert!(!read_http(json!({"handled": false})).unwrap().is_handled);
        for bad in [json!({"status": 99}), json!({"body": "%"}), json!(5)] {
            assert!(matches!(read_http(bad), Err(Error::Failed(_))));
        }
    }
}
