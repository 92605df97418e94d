//! Every value of this setup that must not be seen: of the config, the environment, the credentials and the gateway.

use homard_agent::secrets::Secrets;
use homard_config::{Loaded, redact};
use serde_json::Value;

use crate::{
    auth::{Keyring, Kind},
    config::Config,
    paths::{self, Paths},
    secret,
};

/// What makes the name of a variable one of a secret.
const MARKS: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];

/// All that is known now.
pub(super) fn all(loaded: &Loaded<Config>, paths: &Paths, keyring: &Keyring) -> Secrets {
    let mut values = Vec::new();
    gather(&loaded.tree, &redact::redact(&loaded.tree), &mut values);
    let is_secret = |name: &str| MARKS.iter().any(|mark| name.to_uppercase().contains(mark));
    let variables = loaded.variables.clone().into_iter().chain(paths::variables());
    values.extend(variables.filter(|(name, _)| is_secret(name)).map(|(_, value)| value));
    values.extend(keyring.profiles.iter().flat_map(|profile| match &profile.kind {
        Kind::Key(secret) | Kind::Token(secret) => vec![secret.expose().to_owned()],
        Kind::SignIn(_, sign_in) => sign_in.secrets(),
        Kind::Unusable(_) => Vec::new(),
    }));
    values.extend(secret::kept(paths));
    Secrets::new(values.into_iter().map(|value| value.trim().to_owned()))
}

/// The texts that are hidden in one of two values and not in the other.
fn gather(open: &Value, hidden: &Value, found: &mut Vec<String>) {
    match (open, hidden) {
        (Value::String(text), Value::String(mask)) if mask == redact::REDACTED && text != mask => {
            found.push(text.clone());
        }
        (Value::Array(open), Value::Array(hidden)) => {
            open.iter().zip(hidden).for_each(|(open, hidden)| gather(open, hidden, found));
        }
        (Value::Object(open), Value::Object(hidden)) => {
            for (key, open) in open {
                if let Some(hidden) = hidden.get(key) {
                    gather(open, hidden, found);
                }
            }
        }
        (
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
            _,
        ) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_hidden_in_the_config_is_found() {
        let open = json!({"a": {"token": "t0ken"}, "list": [{"id": "x", "apiKey": "k3y"}, "plain"], "port": 1});
        let hidden = json!({"a": {"token": redact::REDACTED}, "list": [{"id": "x", "apiKey": redact::REDACTED}, "plain"], "port": 1});
        let mut found = Vec::new();
        gather(&open, &hidden, &mut found);
        assert_eq!(found, ["t0ken", "k3y"]);
    }
}
