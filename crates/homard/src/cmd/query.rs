//! Common code of read-only commands: they query the gateway if it runs, else the state directory itself.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use homard_client::{ConnectResult, GatewayClient, GatewayTarget};
use homard_config::LoadedConfig;
use homard_journal::Journal;
use homard_proto::{SessionKey, session::Record};
use homard_runtime::Ambient;
use homard_settings::{Config, paths::Paths};
use homard_store::StoreReader;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::cli_error::CliError;

/// Timeout for the gateway's response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A call of a gateway method.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) scopes: &'a [&'a str],
    pub(super) method: &'a str,
    pub(super) params: Value,
    /// Timeout for the gateway's response.
    pub(super) timeout: Duration,
    /// Names of parameters in the gateway's errors, and the flags that set them.
    pub(super) flags: &'a [(&'a str, &'a str)],
}

impl<'a> Call<'a> {
    pub(super) fn new(scopes: &'a [&'a str], method: &'a str, params: Value) -> Self {
        Self { scopes, method, params, timeout: TIMEOUT, flags: &[] }
    }

    /// Calls an administrative method.
    pub(super) fn admin(method: &'a str, params: Value) -> Self {
        Self::new(&["operator.admin"], method, params)
    }
}

/// Turns the gateway's error about a parameter into a usage error that names the flag. Other errors are not changed.
pub(super) fn usage_error(error: CliError, flags: &[(&str, &str)]) -> CliError {
    let Some(why) = error.invalid_params() else { return error };
    let why = match why.strip_prefix("unknown agent id ") {
        Some(agent) => format!("unknown agent {agent}; list agents with: homard agents"),
        None => flags.iter().fold(why.to_owned(), |text, (name, flag)| text.replace(name, flag)),
    };
    CliError { run: error.run, origin: error.origin, ..CliError::usage(why) }
}

/// The flags of a command that only looks.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Environment of a command: paths, config and gateway.
#[derive(Debug)]
pub(super) struct CommandContext {
    pub(super) paths: Paths,
    pub(super) loaded: LoadedConfig<Config>,
    /// What is wrong with the config file, if anything.
    pub(super) config_warning: Option<String>,
    pub(super) target: GatewayTarget,
}

impl CommandContext {
    /// Reads the environment and the config. Fails if there is no valid config.
    pub(super) fn load() -> Result<Self> {
        Self::of(Paths::find()?)
    }

    /// Same as `load`, for this state directory and config.
    pub(super) fn of(paths: Paths) -> Result<Self> {
        let chosen = Config::choose_as_client(&paths)?;
        let config_warning = homard_settings::last_good_warning(&chosen, &paths.config);
        let loaded = chosen.loaded;
        let target = GatewayTarget::find(None, None, &loaded, &paths)?;
        Ok(Self { paths, loaded, config_warning, target })
    }

    /// Same as `load`, also without a valid config: then [`CommandContext::loaded`] is the readable part of the file, good only
    /// for locating the gateway, and the second value says why nothing can be run.
    pub(super) fn inspect() -> Result<(Self, Option<String>)> {
        let paths = Paths::find()?;
        let (loaded, config_warning, unusable) = match Config::inspect(&paths) {
            Ok(chosen) => {
                let warning = homard_settings::last_good_warning(&chosen, &paths.config);
                (chosen.loaded, warning, None)
            }
            Err(loaded) => {
                let unusable = homard_settings::unusable(&loaded, &paths.config);
                (*loaded, None, Some(unusable))
            }
        };
        let target = GatewayTarget::find(None, None, &loaded, &paths)?;
        Ok((Self { paths, loaded, config_warning, target }, unusable))
    }

    /// Calls a read method of the gateway; `None` if no gateway listens.
    pub(super) async fn query(&self, method: &str) -> Result<Option<Value>> {
        self.query_with(method, json!({})).await
    }

    /// Calls a read method with parameters; `None` if no gateway listens.
    pub(super) async fn query_with(&self, method: &str, params: Value) -> Result<Option<Value>> {
        self.call(Call::new(&["operator.read"], method, params)).await
    }

    /// Calls a method of the gateway; `None` if no gateway listens. A rejected parameter is a usage error.
    pub(super) async fn call(&self, call: Call<'_>) -> Result<Option<Value>> {
        let ConnectResult::Gateway(mut client) = GatewayClient::connect(&self.target, call.scopes, &[]).await? else {
            return Ok(None);
        };
        let timed_out = |_| CliError::new("connection", format!("the gateway at {} does not answer", self.target.url));
        let answer = timeout(call.timeout, client.call(call.method, call.params)).await.map_err(timed_out)?;
        Ok(Some(answer.map_err(|error| usage_error(CliError::from(&error), call.flags))?))
    }

    /// Same as `call`, and fails if no gateway listens.
    pub(super) async fn require(&self, call: Call<'_>) -> Result<Value> {
        Ok(self.call(call).await?.ok_or_else(|| self.not_running())?)
    }

    /// Calls a method that changes something; `None` if no gateway listens.
    pub(super) async fn mutate(&self, method: &str, params: Value) -> Result<Option<Value>> {
        self.call(Call::new(&["operator.read", "operator.write"], method, params)).await
    }

    /// Calls an administrative method; `None` if no gateway listens.
    pub(super) async fn administer(&self, method: &str, params: Value) -> Result<Option<Value>> {
        self.call(Call::admin(method, params)).await
    }

    /// Returns the failure of a command that needs the gateway.
    pub(super) fn not_running(&self) -> CliError {
        let url = &self.target.url;
        let hint = if self.target.is_own { "start one with: homard gateway" } else { "check gateway.remote.url" };
        CliError::new("connection", format!("no gateway answers at {url}\n{hint}"))
    }

    /// Reads the state directory; `None` if there is none. Fails for a remote gateway, whose state is not on this
    /// machine.
    pub(super) async fn read_state<T>(&self, read: impl AsyncFnOnce(&Journal) -> Result<T>) -> Result<Option<T>> {
        if !self.target.is_own {
            return Err(self.not_running().into());
        }
        // Reading must not create the directory.
        if !self.paths.state.exists() {
            return Ok(None);
        }
        let opened = Journal::open(&self.paths.state, || Ambient::system().now_ms());
        let journal = opened.with_context(|| {
            format!("no gateway answers at {}, and the state directory cannot be read directly", self.target.url)
        })?;
        let found = read(&journal).await;
        // Without a flush, this would count as a crash.
        journal.flush().await?;
        found.map(Some)
    }

    /// Returns the sessions in the state directory, newest first.
    pub(super) async fn sessions(&self) -> Result<Vec<(SessionKey, Arc<Record>)>> {
        let mut sessions = self.read_state(async |journal| Ok(journal.list().await?)).await?.unwrap_or_default();
        sessions.sort_by(|(a_key, a), (b_key, b)| b.updated_at.cmp(&a.updated_at).then_with(|| a_key.cmp(b_key)));
        Ok(sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_parameter_is_a_usage_error() {
        let flags = [("schedule.at", "--at")];
        let converted = |code: &str, message: &str| {
            let error = CliError { origin: Some("gateway"), ..CliError::new(code, message) };
            let error = usage_error(error, &flags);
            assert_eq!(error.origin, Some("gateway"));
            (error.kind, error.message, error.exit)
        };
        let usage = |message: &str| ("usage".to_owned(), message.to_owned(), 2);
        let rejection = "invalid cron.add params: schedule.at \"never\" is not a time";
        assert_eq!(converted("INVALID_REQUEST", rejection), usage("--at \"never\" is not a time"));
        assert_eq!(
            converted("INVALID_REQUEST", "invalid agent params: unknown agent id \"ghost\""),
            usage("unknown agent \"ghost\"; list agents with: homard agents")
        );
        for (code, message) in [("INVALID_REQUEST", "unknown method: x"), ("UNAVAILABLE", "invalid x params: y")] {
            assert_eq!(converted(code, message), (code.to_owned(), message.to_owned(), 1));
        }
    }
}
