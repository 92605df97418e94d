//! The shared secret of a gateway: given, configured, or generated once and stored in the state directory.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use homard_proto::method::connect::Auth;
use homard_settings::{
    Config, Text,
    gateway::AuthMode,
    paths::{self, Paths},
};

use crate::Error;

/// The shared secret of clients and the gateway.
#[derive(Clone, PartialEq, Eq)]
pub enum GatewaySecret {
    Token(String),
    Password(String),
}

impl fmt::Debug for GatewaySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl GatewaySecret {
    /// Returns the token, else the password, ignoring blank values.
    pub fn either(token: Option<String>, password: Option<String>) -> Option<Self> {
        let non_empty = |text: Option<String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        non_empty(token).map(Self::Token).or_else(|| non_empty(password).map(Self::Password))
    }

    /// Returns the secret as the auth field of a handshake.
    pub fn auth(&self) -> Auth {
        match self {
            Self::Token(token) => Auth { token: Some(token.clone()), ..Auth::default() },
            Self::Password(password) => Auth { password: Some(password.clone()), ..Auth::default() },
        }
    }

    /// Returns the kind of the secret.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Token(_) => "token",
            Self::Password(_) => "password",
        }
    }

    /// Returns the secret text.
    pub fn expose(&self) -> &str {
        match self {
            Self::Token(text) | Self::Password(text) => text,
        }
    }
}

/// Origin of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    Flag,
    Environment,
    Config(PathBuf),
    File(PathBuf),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => write!(f, "as given on the command line"),
            Self::Environment => write!(f, "as in the environment"),
            Self::Config(path) => write!(f, "as in gateway.auth of {}", path.display()),
            Self::File(path) => write!(f, "in {}", path.display()),
        }
    }
}

/// Returns the secret of this state directory's gateway, if there is one: from the flag, else the environment, else the
/// config, else the state directory.
pub fn find(
    flag: Option<GatewaySecret>,
    config: &Config,
    paths: &Paths,
) -> Result<Option<(GatewaySecret, SecretSource)>, Error> {
    if let Some(secret) = flag {
        return Ok(Some((secret, SecretSource::Flag)));
    }
    if let Some(secret) = GatewaySecret::either(paths::text("GATEWAY_TOKEN")?, paths::text("GATEWAY_PASSWORD")?) {
        return Ok(Some((secret, SecretSource::Environment)));
    }
    let auth = &config.gateway.auth;
    let text = |text: &Option<Text>| text.as_ref().map(|text| text.as_str().to_owned());
    let is_password = auth.mode.is_some_and(|mode| mode.0 == AuthMode::Password);
    let token = text(&auth.token).filter(|_| !is_password || auth.password.is_none());
    if let Some(secret) = GatewaySecret::either(token, text(&auth.password)) {
        return Ok(Some((secret, SecretSource::Config(paths.config.clone()))));
    }
    let path = file(paths);
    Ok(read(&path)?.map(|token| (token, SecretSource::File(path))))
}

/// Returns the secret of this state directory's gateway; generates it if there is none.
pub fn find_or_create(
    flag: Option<GatewaySecret>,
    config: &Config,
    paths: &Paths,
) -> Result<(GatewaySecret, SecretSource), Error> {
    if let Some(found) = find(flag, config, paths)? {
        return Ok(found);
    }
    let path = file(paths);
    create_token(&path).map_err(|error| Error::Create { path: path.clone(), error: error.into() })?;
    match read(&path)? {
        Some(token) => Ok((token, SecretSource::File(path))),
        None => Err(Error::Unusable(format!("{} is empty; remove it and start again", path.display()))),
    }
}

/// Returns the token stored in the state directory, if any.
pub fn stored_token(paths: &Paths) -> Option<String> {
    read(&file(paths)).ok().flatten().map(|secret| secret.expose().to_owned())
}

fn file(paths: &Paths) -> PathBuf {
    paths.state.join("gateway-token")
}

fn read(path: &Path) -> Result<Option<GatewaySecret>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(GatewaySecret::either(Some(text), None)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::Read { path: path.to_owned(), error }),
    }
}

fn create_token(path: &Path) -> io::Result<()> {
    let mut bytes = [0u8; 24];
    getrandom::fill(&mut bytes).map_err(io::Error::from)?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    create_private_file(path, &format!("{token}\n"))
}

/// Creates a file that only its owner can read. It is written under another name and then hard-linked into place, so
/// that it is never seen incomplete and never replaces an existing one.
pub(crate) fn create_private_file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let temp_path = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp_path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    let linked = match fs::hard_link(&temp_path, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    };
    fs::remove_file(&temp_path)?;
    linked
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/gateway-token");
        create_token(&path).unwrap();
        let first = read(&path).unwrap().unwrap();
        create_token(&path).unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), first);
        assert_eq!((first.kind(), first.expose().len()), ("token", 48));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let names: Vec<_> =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["gateway-token"]);
    }

    #[test]
    fn blank_is_not_a_secret_and_a_token_comes_before_a_password() {
        let either =
            |token: &str, password: &str| GatewaySecret::either(Some(token.to_owned()), Some(password.to_owned()));
        assert_eq!(either(" ", "p"), Some(GatewaySecret::Password("p".to_owned())));
        assert_eq!(either("t\n", "p"), Some(GatewaySecret::Token("t".to_owned())));
        assert_eq!(either("", ""), None);
    }
}
