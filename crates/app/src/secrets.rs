//! Collects every secret of this setup that has to be masked: from the config, the environment, the credentials and the
//! gateway.

use homard_config::{LoadedConfig, redact};
use homard_credentials::{
    auth_profiles::{Keyring, Kind},
    gateway_secret,
};
use homard_secrets::{Secrets, is_secret_name};
use homard_settings::{
    Config,
    paths::{self, Paths},
};

/// Returns all secrets that are known now.
pub fn all(loaded: &LoadedConfig<Config>, paths: &Paths, keyring: &Keyring) -> Secrets {
    let mut values = configured(loaded, paths);
    values.extend(keyring.profiles.iter().flat_map(|profile| match &profile.kind {
        Kind::Key(secret) | Kind::Token(secret) => vec![secret.expose().to_owned()],
        Kind::SignIn(_, sign_in) => sign_in.secrets(),
        Kind::Unusable(_) => Vec::new(),
    }));
    trimmed(values)
}

/// Returns the secrets that are known before credentials are read: from the config, the environment and the gateway.
pub fn of_config(loaded: &LoadedConfig<Config>, paths: &Paths) -> Secrets {
    trimmed(configured(loaded, paths))
}

/// Returns the values of the secrets that are known before credentials are read.
pub(crate) fn known_values(loaded: &LoadedConfig<Config>, paths: &Paths) -> Vec<String> {
    configured(loaded, paths).into_iter().map(|value| value.trim().to_owned()).collect()
}

fn configured(loaded: &LoadedConfig<Config>, paths: &Paths) -> Vec<String> {
    let mut values = redact::known_secrets(&loaded.tree);
    let variables = loaded.variables.clone().into_iter().chain(paths::variables());
    values.extend(variables.filter(|(name, _)| is_secret_name(name)).map(|(_, value)| value));
    values.extend(gateway_secret::stored_token(paths));
    values
}

fn trimmed(values: Vec<String>) -> Secrets {
    Secrets::new(values.into_iter().map(|value| value.trim().to_owned()))
}
