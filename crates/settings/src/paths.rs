//! The process environment: variables, and the locations of the state directory and the config.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::Error;

/// Default port of a gateway.
pub const PORT: u16 = 18789;

/// Locations of the state and the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The state directory.
    pub state: PathBuf,
    /// The config file; it may not exist.
    pub config: PathBuf,
}

impl Paths {
    /// Determines the locations from the environment.
    pub fn find() -> Result<Self, Error> {
        let paths = Self::choose(setting, home().as_deref())?;
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| Error::Path { path: path.to_owned(), error });
        let paths = Self { state: absolute(&paths.state)?, config: absolute(&paths.config)? };
        if setting("CONFIG_PATH").is_some() && !paths.config.exists() {
            // With a mistyped path the defaults would be used silently.
            let text = format!("HOMARD_CONFIG_PATH names {}, which does not exist", paths.config.display());
            return Err(Error::Environment(text));
        }
        Ok(paths)
    }

    fn choose(setting: impl Fn(&str) -> Option<OsString>, home: Option<&Path>) -> Result<Self, Error> {
        let expanded = |text: OsString| expand(Path::new(&text), home);
        let state = match (setting("STATE_DIR").map(expanded), home) {
            (Some(state), _) => state,
            (None, Some(home)) => home.join(".homard"),
            (None, None) => {
                let text = "HOME is not set; set HOMARD_STATE_DIR to the state directory";
                return Err(Error::Environment(text.to_owned()));
            }
        };
        let config = setting("CONFIG_PATH").map(expanded).unwrap_or_else(|| {
            let (homard, openclaw) = (state.join("homard.json"), state.join("openclaw.json"));
            if !homard.exists() && openclaw.exists() { openclaw } else { homard }
        });
        Ok(Self { state, config })
    }
}

impl Paths {
    /// Returns the file in which the gateway records its port.
    pub fn port_file(&self) -> PathBuf {
        self.state.join("gateway-port")
    }
}

/// Expands a leading `~`.
pub fn expand(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

/// Returns the user's home directory, if known.
pub fn home() -> Option<PathBuf> {
    env("HOME").map(PathBuf::from)
}

/// Returns the variable `HOMARD_<name>`, else `OPENCLAW_<name>`.
pub fn setting(name: &str) -> Option<OsString> {
    env(&format!("HOMARD_{name}")).or_else(|| env(&format!("OPENCLAW_{name}")))
}

/// Returns a setting that must be UTF-8.
pub fn text(name: &str) -> Result<Option<String>, Error> {
    let not_utf8 = |_: OsString| Error::Environment(format!("HOMARD_{name} is not valid UTF-8"));
    setting(name).map(|value| value.into_string().map_err(not_utf8)).transpose()
}

/// Returns the port from the environment.
pub fn port() -> Result<Option<u16>, Error> {
    let Some(text) = text("GATEWAY_PORT")? else { return Ok(None) };
    let port = text.trim().parse();
    port.map(Some).map_err(|error| Error::Port { text, error })
}

/// Returns all environment variables that are valid UTF-8.
pub fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Returns an environment variable; an empty one counts as unset.
pub fn env(name: &str) -> Option<OsString> {
    #[allow(clippy::disallowed_methods, reason = "the only place that reads the environment")]
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns true if colours are not disabled by `NO_COLOR`.
pub fn colours_wanted() -> bool {
    env("NO_COLOR").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(settings: &[(&str, &str)], home: Option<&str>) -> Result<Paths, Error> {
        let setting = |name: &str| settings.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        Paths::choose(setting, home.map(Path::new))
    }

    fn paths(state: &str, config: &str) -> Paths {
        Paths { state: state.into(), config: config.into() }
    }

    #[test]
    fn state_and_config_are_in_the_home_directory_by_default() {
        let paths_for = |settings| choose(settings, Some("/home/me")).unwrap();
        assert_eq!(paths_for(&[]), paths("/home/me/.homard", "/home/me/.homard/homard.json"));
        assert_eq!(paths_for(&[("STATE_DIR", "/s")]), paths("/s", "/s/homard.json"));
        assert_eq!(paths_for(&[("STATE_DIR", "~/s")]), paths("/home/me/s", "/home/me/s/homard.json"));
        assert_eq!(paths_for(&[("CONFIG_PATH", "/c.json")]), paths("/home/me/.homard", "/c.json"));
    }

    #[test]
    fn an_openclaw_config_is_used_if_there_is_no_homard_config() {
        let state = tempfile::tempdir().unwrap();
        let config = || choose(&[("STATE_DIR", state.path().to_str().unwrap())], None).unwrap().config;
        std::fs::write(state.path().join("openclaw.json"), "{}").unwrap();
        assert_eq!(config(), state.path().join("openclaw.json"));
        std::fs::write(state.path().join("homard.json"), "{}").unwrap();
        assert_eq!(config(), state.path().join("homard.json"));
    }

    #[test]
    fn without_a_home_directory_the_error_names_the_variable() {
        let error = choose(&[], None).unwrap_err();
        assert_eq!(error.to_string(), "HOME is not set; set HOMARD_STATE_DIR to the state directory");
    }
}
