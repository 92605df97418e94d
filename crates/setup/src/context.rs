//! The input of a setup: the config, the environment, and the agents' credentials.

use homard_app::models::Models;
use homard_config::{LoadedConfig, edit::EditError};
use homard_credentials::auth_profiles::{Keyring, credentials_file};
use homard_settings::{
    Config,
    agents::ConfiguredAgent,
    change::{ChangeAuthor, ConfigChange, ConfigChangeError, change},
    last_good_warning,
    paths::Paths,
};

use crate::Error;

/// The config, its models, and the paths of the state directory.
#[derive(Debug)]
pub struct ModelsContext {
    pub paths: Paths,
    pub config: Config,
    pub models: Models,
}

impl ModelsContext {
    /// Reads the config and the environment. The second value is a warning, if a copy of the config is used in its place.
    pub fn read(paths: Paths) -> Result<(Self, Option<String>), Error> {
        let chosen = Config::choose_as_client(&paths)?;
        let warning = last_good_warning(&chosen, &paths.config);
        Ok((Self::of(&chosen.loaded, paths), warning))
    }

    /// Builds the models of a config that was read already.
    pub fn of(loaded: &LoadedConfig<Config>, paths: Paths) -> Self {
        let models = Models::new(&loaded.config, homard_app::environment(&loaded.variables), &paths.state);
        Self { models, config: loaded.config.clone(), paths }
    }

    /// Returns an agent by its id; without one, the default agent.
    pub fn agent(&self, id: Option<&str>) -> Result<ConfiguredAgent<'_>, Error> {
        let no_such =
            || Error::Usage(format!("unknown agent \"{}\"; list agents with: homard agents", id.unwrap_or_default()));
        self.config.agents.member(id).ok_or_else(no_such)
    }

    /// Returns the credentials of an agent.
    pub fn keyring(&self, agent: &ConfiguredAgent<'_>) -> Result<Keyring, Error> {
        Ok(Keyring::open(credentials_file(&self.paths, agent), &self.models.client)?.0)
    }
}

/// Changes the config on behalf of the user.
pub fn edit_config(paths: &Paths, edit: impl Fn(&str) -> Result<String, EditError>) -> Result<ConfigChange, Error> {
    change(paths, ChangeAuthor::User, |text| Ok(edit(text)?)).map_err(|error| match error {
        ConfigChangeError::Write(_) => error.into(),
        ConfigChangeError::Stale
        | ConfigChangeError::Unreadable(_)
        | ConfigChangeError::Edit(_)
        | ConfigChangeError::Missing
        | ConfigChangeError::Hidden(_)
        | ConfigChangeError::Invalid(_) => Error::Config(format!("config file {}: {error}", paths.config.display())),
    })
}
