//! Configuration of an MCP server.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

/// Configuration of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSetup {
    /// Name in the config.
    pub name: String,
    /// How it is reached.
    pub transport: ServerTransport,
    /// Time limit until it is ready.
    pub connect_timeout: Duration,
    /// Time limit of a call.
    pub call_timeout: Duration,
    /// Tools to offer; empty means all. `*` is a wildcard.
    pub include: Vec<String>,
    /// Tools not to offer; takes precedence over `include`.
    pub exclude: Vec<String>,
}

impl ServerSetup {
    /// Creates a setup with defaults: 30 seconds to connect, 60 seconds for a call, all tools.
    pub fn new(name: impl Into<String>, transport: ServerTransport) -> Self {
        let (connect, call) = (Duration::from_secs(30), Duration::from_secs(60));
        Self {
            name: name.into(),
            transport,
            connect_timeout: connect,
            call_timeout: call,
            include: Vec::new(),
            exclude: Vec::new(),
        }
    }

    /// Removes the query and the credentials of the server's URL from a text: both may be secrets.
    pub(super) fn redact(&self, text: &str) -> String {
        let ServerTransport::Http { url, .. } = &self.transport else { return text.to_owned() };
        let login = url.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next()?.rsplit_once('@'));
        let query = url.split_once('?').map(|(_, query)| query.split('#').next().unwrap_or_default());
        let secrets = login.map(|(login, _)| login).into_iter().chain(query).filter(|secret| !secret.is_empty());
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "[secret]"))
    }

    /// True if a tool is to be offered.
    pub(super) fn wants(&self, tool: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|pattern| matches(pattern, tool));
        (self.include.is_empty() || is_in(&self.include)) && !is_in(&self.exclude)
    }
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum ServerTransport {
    /// A command that communicates over standard input and output.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Environment variables, besides a few such as PATH.
        env: BTreeMap<String, String>,
        /// Working directory.
        cwd: Option<PathBuf>,
    },
    /// A streamable HTTP endpoint.
    Http {
        /// URL.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, String>,
    },
}

/// Omits values of variables and headers, arguments and URLs, because they may contain secrets.
impl fmt::Debug for ServerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { command, env, cwd, .. } => f
                .debug_struct("Command")
                .field("command", command)
                .field("env", &env.keys().collect::<Vec<_>>())
                .field("cwd", cwd)
                .finish_non_exhaustive(),
            Self::Http { headers, .. } => {
                f.debug_struct("Http").field("headers", &headers.keys().collect::<Vec<_>>()).finish_non_exhaustive()
            }
        }
    }
}

/// True if a name matches a pattern with `*` wildcards.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches(rest, &name[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_select_tools() {
        let transport = ServerTransport::Http { url: String::new(), headers: BTreeMap::new() };
        let mut setup = ServerSetup::new("x", transport);
        let listed_tools = |setup: &ServerSetup| -> Vec<&str> {
            ["read", "read_all", "write", "ü"].into_iter().filter(|tool| setup.wants(tool)).collect()
        };
        assert_eq!(listed_tools(&setup), ["read", "read_all", "write", "ü"]);
        setup.exclude = vec!["w*e".to_owned()];
        assert_eq!(listed_tools(&setup), ["read", "read_all", "ü"]);
        setup.include = vec!["read*".to_owned(), "write".to_owned()];
        assert_eq!(listed_tools(&setup), ["read", "read_all"]);
        setup.exclude = vec!["*".to_owned()];
        assert_eq!(listed_tools(&setup), Vec::<&str>::new());
    }

    #[test]
    fn errors_contain_no_query_or_login_of_a_url() {
        let transport =
            ServerTransport::Http { url: "https://me:pw@h/mcp?key=k1#x".to_owned(), headers: BTreeMap::new() };
        let setup = ServerSetup::new("x", transport);
        let redacted = setup.redact("error for url (https://h/mcp?key=k1), was https://me:pw@h/mcp");
        assert_eq!(redacted, "error for url (https://h/mcp?[secret]), was https://[secret]@h/mcp");
        let without_secrets = ServerTransport::Http { url: "https://h/mcp?".to_owned(), headers: BTreeMap::new() };
        assert_eq!(ServerSetup::new("x", without_secrets).redact("at https://h/mcp?"), "at https://h/mcp?");
    }

    #[test]
    fn secrets_of_a_setup_are_not_shown() {
        let values = BTreeMap::from([("NAME".to_owned(), "hidden".to_owned())]);
        let args = vec!["--key=hidden".to_owned()];
        let command = ServerTransport::Command { command: "run".to_owned(), args, env: values.clone(), cwd: None };
        let http = ServerTransport::Http { url: "http://x/?key=hidden".to_owned(), headers: values };
        let debug_texts =
            [ServerSetup::new("a", command), ServerSetup::new("b", http)].map(|setup| format!("{setup:?}"));
        assert!(
            debug_texts.iter().all(|debug_texts| debug_texts.contains("NAME") && !debug_texts.contains("hidden")),
            "{debug_texts:?}"
        );
    }
}
