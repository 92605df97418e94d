//! Description of a service: program, owner, directories and secrets.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::Error;

/// Exit codes after which a restart is pointless: invalid usage and an invalid config.
pub(crate) const PERMANENT_FAILURES: [i32; 2] = [2, 78];

/// Name of the service, of its units and of the account of a system service.
pub const NAME: &str = "homard";

/// A gateway that a service manager starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSpec {
    /// The program.
    pub program: PathBuf,
    /// The state directory.
    pub state_dir: PathBuf,
    /// The config file, if it is not at its default place.
    pub config: Option<PathBuf>,
    /// Addresses on which the manager listens for the gateway, so that a restart refuses no connection.
    pub addresses: Vec<SocketAddr>,
    /// Whose service it is.
    pub scope: Scope,
    /// Files that only the service may read, by name.
    pub credentials: Vec<Credential>,
    /// File with environment variables, such as API keys.
    pub environment_file: Option<PathBuf>,
    /// Search path for the programs that agents and plugins start; empty for the manager's default.
    pub search_path: String,
}

/// Whose service it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The service of the current user.
    User,
    /// A service of the machine that runs as this user.
    System(String),
}

/// A secret that the service manager passes to the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Name by which the config refers to it: `${credential:NAME}`.
    pub name: String,
    /// File that contains it.
    pub path: PathBuf,
}

impl Credential {
    /// Parses `NAME=PATH`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, path) = text.split_once('=').ok_or("expected NAME=PATH")?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return Err(format!("{name:?} is not a name of letters, digits, '-', '_' and '.'"));
        }
        if !Path::new(path).is_absolute() {
            return Err(format!("{path:?} is not an absolute path"));
        }
        Ok(Self { name: name.to_owned(), path: path.into() })
    }
}

impl ServiceSpec {
    /// Checks that no text of a unit file or property list contains a control character: a line break would add a
    /// directive.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let paths = [&self.program, &self.state_dir].into_iter().chain(&self.config).chain(&self.environment_file);
        let paths = paths.chain(self.credentials.iter().map(|credential| &credential.path));
        let not_utf8 = || Error::Spec("a path of the service is not valid UTF-8".to_owned());
        let mut texts = paths.map(|path| path.to_str().ok_or_else(not_utf8)).collect::<Result<Vec<_>, _>>()?;
        texts.push(&self.search_path);
        if let Scope::System(user) = &self.scope {
            texts.push(user);
        }
        match texts.into_iter().find(|text| text.contains(char::is_control)) {
            Some(text) => Err(Error::Spec(format!("{text:?} contains a control character"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_has_a_plain_name_and_an_absolute_path() {
        let parsed = Credential::parse("openai-key=/etc/homard/openai").unwrap();
        assert_eq!((parsed.name.as_str(), parsed.path.to_str()), ("openai-key", Some("/etc/homard/openai")));
        for (text, expected) in [
            ("openai", "expected NAME=PATH"),
            ("a b=/x", "\"a b\" is not a name of letters, digits, '-', '_' and '.'"),
            ("=/x", "\"\" is not a name of letters, digits, '-', '_' and '.'"),
            ("a=x", "\"x\" is not an absolute path"),
        ] {
            assert_eq!(Credential::parse(text).unwrap_err(), expected);
        }
    }
}
