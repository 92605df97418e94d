//! What is known of a server before it is asked: what the owner wrote.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

/// A server, as the owner set it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSetup {
    /// Its name in the config.
    pub name: String,
    /// Where it is.
    pub reach: Reach,
    /// How long it may take until it is ready.
    pub connect: Duration,
    /// How long a call may take.
    pub call: Duration,
    /// Its tools that are wanted, all if there are none here. A `*` stands for anything.
    pub include: Vec<String>,
    /// Its tools that are not wanted, whatever `include` says.
    pub exclude: Vec<String>,
}

impl ServerSetup {
    /// A server of which nothing special is said: half a minute to be ready, one for a call, all its tools.
    pub fn new(name: impl Into<String>, reach: Reach) -> Self {
        let (connect, call) = (Duration::from_secs(30), Duration::from_secs(60));
        Self { name: name.into(), reach, connect, call, include: Vec::new(), exclude: Vec::new() }
    }

    /// A text without the query and the login of the server's address: both may be secrets.
    pub(super) fn conceal(&self, text: &str) -> String {
        let Reach::Http { url, .. } = &self.reach else { return text.to_owned() };
        let login = url.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next()?.rsplit_once('@'));
        let query = url.split_once('?').map(|(_, query)| query.split('#').next().unwrap_or_default());
        let secrets = login.map(|(login, _)| login).into_iter().chain(query).filter(|secret| !secret.is_empty());
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "[secret]"))
    }

    /// Whether a tool of it is wanted.
    pub(super) fn wants(&self, tool: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|pattern| matches(pattern, tool));
        (self.include.is_empty() || is_in(&self.include)) && !is_in(&self.exclude)
    }
}

/// Where a server is.
#[derive(Clone, PartialEq, Eq)]
pub enum Reach {
    /// A command that speaks over its input and output.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// What it finds in its environment besides a few variables such as PATH.
        env: BTreeMap<String, String>,
        /// Where it starts.
        cwd: Option<PathBuf>,
    },
    /// A place that speaks streamable HTTP.
    Http {
        /// Where.
        url: String,
        /// What every request carries.
        headers: BTreeMap<String, String>,
    },
}

/// Values of variables and headers may be secrets, and so may parts of arguments and URLs: they are not shown.
impl fmt::Debug for Reach {
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

/// Whether a name fits a pattern in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches(rest, &name[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose_tools() {
        let reach = Reach::Http { url: String::new(), headers: BTreeMap::new() };
        let mut setup = ServerSetup::new("x", reach);
        let wanted = |setup: &ServerSetup| -> Vec<&str> {
            ["read", "read_all", "write", "ü"].into_iter().filter(|tool| setup.wants(tool)).collect()
        };
        assert_eq!(wanted(&setup), ["read", "read_all", "write", "ü"]);
        setup.exclude = vec!["w*e".to_owned()];
        assert_eq!(wanted(&setup), ["read", "read_all", "ü"]);
        setup.include = vec!["read*".to_owned(), "write".to_owned()];
        assert_eq!(wanted(&setup), ["read", "read_all"]);
        setup.exclude = vec!["*".to_owned()];
        assert_eq!(wanted(&setup), Vec::<&str>::new());
    }

    #[test]
    fn l2_the_query_and_the_login_of_an_address_are_not_in_errors() {
        let reach = Reach::Http { url: "https://me:pw@h/mcp?key=k1#x".to_owned(), headers: BTreeMap::new() };
        let setup = ServerSetup::new("x", reach);
        let told = setup.conceal("error for url (https://h/mcp?key=k1), was https://me:pw@h/mcp");
        assert_eq!(told, "error for url (https://h/mcp?[secret]), was https://[secret]@h/mcp");
        let plain = Reach::Http { url: "https://h/mcp?".to_owned(), headers: BTreeMap::new() };
        assert_eq!(ServerSetup::new("x", plain).conceal("at https://h/mcp?"), "at https://h/mcp?");
    }

    #[test]
    fn secrets_of_a_setup_are_not_shown() {
        let values = BTreeMap::from([("NAME".to_owned(), "hidden".to_owned())]);
        let args = vec!["--key=hidden".to_owned()];
        let command = Reach::Command { command: "run".to_owned(), args, env: values.clone(), cwd: None };
        let http = Reach::Http { url: "http://x/?key=hidden".to_owned(), headers: values };
        let shown = [ServerSetup::new("a", command), ServerSetup::new("b", http)].map(|setup| format!("{setup:?}"));
        assert!(shown.iter().all(|shown| shown.contains("NAME") && !shown.contains("hidden")), "{shown:?}");
    }
}
