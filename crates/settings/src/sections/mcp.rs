//! `mcp`: MCP servers whose tools agents may use.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use homard_tools::mcp::{ServerSetup, ServerTransport};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};

use super::word::Word;
use crate::{Text, paths};

/// Tools of MCP servers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Mcp {
    /// Servers by name: a `command` to start, or a `url`.
    #[serde(deserialize_with = "super::named_objects")]
    pub servers: BTreeMap<String, Server>,
}

/// Settings of an MCP server.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Server {
    /// Enable the server. Default: true.
    pub enabled: Option<bool>,
    /// Program to start. It runs as you, outside the sandbox.
    pub command: Option<Text>,
    /// Arguments of the program.
    pub args: Vec<Text>,
    /// Environment variables of the program, in addition to a few such as PATH.
    pub env: BTreeMap<String, PlainText>,
    /// Working directory of the program. Default: where the gateway was started.
    pub cwd: Option<Text>,
    /// URL of a server that speaks streamable HTTP.
    pub url: Option<Text>,
    /// Transport: stdio, streamable-http. Default: stdio if `command` is set, else streamable-http.
    pub transport: Option<Word<Transport>>,
    /// HTTP headers sent with every request to the url.
    pub headers: BTreeMap<String, PlainText>,
    /// Connection timeout in milliseconds, until the server is ready. Default: 30000.
    pub connection_timeout_ms: Option<u64>,
    /// Timeout of a tool call in milliseconds. Default: 60000.
    pub request_timeout_ms: Option<u64>,
    /// Tools of the server that are offered to agents.
    #[serde(deserialize_with = "super::object")]
    pub tool_filter: ToolFilter,
    /// Not supported yet: a server that requires a login is skipped.
    pub auth: Option<Text>,
    /// Not supported: certificates are always verified.
    pub ssl_verify: Option<bool>,
    /// Not supported yet: a server that requires a client certificate is skipped.
    pub client_cert: Option<Text>,
    /// Error that makes the server unusable, if it references an environment variable which is not set.
    #[serde(skip)]
    pub fault: Option<String>,
}

/// Tools of a server that are offered to agents.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolFilter {
    /// Names of the tools that are offered; `*` matches anything. Default: all.
    pub include: Vec<String>,
    /// Names of tools that are excluded, even if `include` matches.
    pub exclude: Vec<String>,
}

/// Transport of an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Stdio,
    Sse,
    StreamableHttp,
}

super::word::words! {
    Transport: "stdio" => Self::Stdio, "sse" => Self::Sse, "streamable-http" => Self::StreamableHttp;
}

impl Server {
    /// Returns why the server cannot be used, if so: the key, and what is wrong with it.
    pub fn config_error(&self) -> Option<(&'static str, &'static str)> {
        let transport = self.transport.map(|word| word.0);
        if transport == Some(Transport::Sse) {
            return Some((
                "transport",
                "is sse, which is not supported; many such servers also support streamable-http",
            ));
        }
        if self.auth.is_some() {
            return Some(("auth", "is not supported yet; put a token into headers"));
        }
        if self.client_cert.is_some() {
            return Some(("clientCert", "is not supported yet"));
        }
        match (transport, &self.command, &self.url) {
            (Some(Transport::Stdio), None, _) => Some(("command", "is missing; set it to the program to start")),
            (Some(Transport::StreamableHttp), _, None) => Some(("url", "is missing; set it to the URL of the server")),
            (None, None, None) => Some(("command", "is missing, and so is url; set one of them")),
            (Some(_) | None, _, _) => None,
        }
    }

    /// Returns the settings for connecting; `None` if the server is disabled or [cannot be used](Self::config_error). Relative
    /// paths are resolved against `state`.
    pub fn setup(&self, name: &str, state: &Path) -> Option<ServerSetup> {
        if self.enabled == Some(false) || self.fault.is_some() || self.config_error().is_some() {
            return None;
        }
        let text = |text: &Text| text.as_str().to_owned();
        let expand = |path: &Text| paths::expand(Path::new(path.as_str()), paths::home().as_deref());
        let all = |values: &BTreeMap<String, PlainText>| -> BTreeMap<String, String> {
            values.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect()
        };
        let by_url = self.transport.is_some_and(|word| word.0 == Transport::StreamableHttp);
        let transport = match (&self.command, &self.url) {
            (Some(command), _) if !by_url => ServerTransport::Command {
                command: expand(command).to_string_lossy().into_owned(),
                args: self.args.iter().map(text).collect(),
                env: all(&self.env),
                cwd: self.cwd.as_ref().map(|cwd| -> PathBuf { state.join(expand(cwd)) }),
            },
            (_, url) => ServerTransport::Http { url: text(url.as_ref()?), headers: all(&self.headers) },
        };
        let defaults = ServerSetup::new(name, transport);
        Some(ServerSetup {
            connect_timeout: self.connection_timeout_ms.map_or(defaults.connect_timeout, Duration::from_millis),
            call_timeout: self.request_timeout_ms.map_or(defaults.call_timeout, Duration::from_millis),
            include: self.tool_filter.include.clone(),
            exclude: self.tool_filter.exclude.clone(),
            ..defaults
        })
    }
}

/// A string, number or boolean, stored as text. It may be a secret, so `Debug` omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct PlainText(String);

impl fmt::Debug for PlainText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(…)")
    }
}

impl JsonSchema for PlainText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Plain".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "number", "boolean"]})
    }
}

impl<'de> Deserialize<'de> for PlainText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl Visitor<'_> for Any {
            type Value = PlainText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, true or false")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PlainText, E> {
                Ok(PlainText(text.to_owned()))
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<PlainText, E> {
                Ok(PlainText(value.to_string()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<PlainText, E> {
                Ok(PlainText(number.to_string()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<PlainText, E> {
                Ok(PlainText(number.to_string()))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<PlainText, E> {
                Ok(PlainText(number.to_string()))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn server(text: &str) -> Server {
        let config = Config::parse(&format!("{{mcp: {{servers: {{x: {text}}}}}}}")).unwrap();
        config.mcp.servers["x"].clone()
    }

    fn setup(text: &str) -> Option<ServerSetup> {
        server(text).setup("x", Path::new("/state"))
    }

    #[test]
    fn a_server_has_a_command_or_a_url() {
        let command = ServerTransport::Command {
            command: "npx".to_owned(),
            args: vec!["-y".to_owned(), "files".to_owned()],
            env: BTreeMap::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "true".to_owned())]),
            cwd: Some(PathBuf::from("/state/here")),
        };
        let expected = ServerSetup {
            connect_timeout: Duration::from_millis(5),
            call_timeout: Duration::from_millis(6),
            include: vec!["read_*".to_owned()],
            exclude: vec!["read_all".to_owned()],
            ..ServerSetup::new("x", command)
        };
        let text = "{command: 'npx', args: ['-y', 'files'], env: {A: 1, B: true}, cwd: 'here', connectionTimeoutMs: 5,
                     requestTimeoutMs: 6, toolFilter: {include: ['read_*'], exclude: ['read_all']}}";
        assert_eq!(setup(text), Some(expected));
        let headers = BTreeMap::from([("Authorization".to_owned(), "Bearer t".to_owned())]);
        let transport = ServerTransport::Http { url: "https://x/mcp".to_owned(), headers };
        let text = "{url: 'https://x/mcp', transport: 'streamable-http', headers: {Authorization: 'Bearer t'}}";
        assert_eq!(setup(text), Some(ServerSetup::new("x", transport)));
        assert_eq!(setup("{command: 'npx', enabled: false}"), None);
    }

    #[test]
    fn an_unusable_server_is_skipped_and_names_the_faulty_key() {
        let keys = ["{}", "{url: 'x', transport: 'sse'}", "{url: 'x', auth: 'oauth'}", "{url: 'x', clientCert: 'c'}"]
            .map(|text| (setup(text).is_none(), server(text).config_error().unwrap().0));
        assert_eq!(keys, [(true, "command"), (true, "transport"), (true, "auth"), (true, "clientCert")]);
        let keys = ["{url: 'x', transport: 'stdio'}", "{command: 'x', transport: 'streamable-http'}"]
            .map(|text| server(text).config_error().unwrap().0);
        assert_eq!(keys, ["command", "url"]);
    }
}
