//! `homard channels add` and `remove` for the channels of OpenClaw's packages.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    process::Command,
};

use anyhow::Result;
use homard_channel_host::{
    HostSettings, HostedPackage, NODE_VERSION, NodeVersion, ProgramCommand,
    install::{self, InstalledPackage, Progress},
    package,
};
use homard_config::{
    edit,
    path::{self, Path},
};
use homard_import::OpenclawState;
use homard_settings::{
    Config,
    channel_kinds::label,
    channels::DEFAULT_ACCOUNT,
    paths::{self, Paths},
};
use homard_setup::edit_config;
use serde_json::{Value, json};

use crate::{cli_error::CliError, cmd::prompt, render};

/// Installs the package of a channel and writes its section.
pub(super) async fn add(
    paths: &Paths,
    channel: &str,
    section: &Path,
    values: &[String],
    wants_json: bool,
) -> Result<()> {
    let package = known(channel)?;
    let mut settings = values.iter().map(|value| setting(value)).collect::<Result<BTreeMap<_, _>, CliError>>()?;
    ask_for_missing(paths, package, section, &mut settings)?;
    let installed = install::install(package, &paths.state.join("channels"), &environment(), report).await;
    let installed = installed.map_err(|error| CliError::new("install", error.to_string()))?;
    let host = HostSettings::new(*package, &paths.state.join("channels"), environment());
    if package.is_linked {
        adopt(&host, DEFAULT_ACCOUNT)?;
    }
    let change = edit_config(paths, |text| {
        let at = |key: &str| key.split('.').fold(section.clone(), |path, key| path.key(key));
        let text = settings.iter().try_fold(text.to_owned(), |text, (key, value)| edit::set(&text, &at(key), value))?;
        edit::set(&text, &section.key("enabled"), &json!(true))
    })?;
    let InstalledPackage { openclaw, version, node, bytes } = installed;
    if wants_json {
        return Ok(render::print_json(&json!({
            "ok": true, "channel": channel, "changed": change.changed, "path": paths.config,
            "openclaw": openclaw, "version": version, "node": node, "bytes": bytes,
        }))?);
    }
    let megabytes = bytes / 1_000_000;
    render::print(&format!("installed {} {version} and openclaw {openclaw} ({megabytes} MB)", package.package))?;
    render::print(&format!("configured {} in {}", label(channel), paths.config.display()))?;
    render::print("a running gateway connects automatically; start one with: homard gateway run")?;
    if package.is_linked && !host.linked_account(DEFAULT_ACCOUNT).exists() {
        render::print(&format!("next: link an account by a QR code with: homard channels login {channel}"))?;
    }
    Ok(render::print(
        "next: write to the agent, and check the state with: homard channels status; see: homard docs hosted",
    )?)
}

/// Links an account in the terminal, such as by a QR code.
pub(super) async fn login(channel: &str, account: &str) -> Result<()> {
    let paths = Paths::find()?;
    let source = Config::read_file(&paths.config).tree;
    let settings = HostSettings::new(*known(channel)?, &paths.state.join("channels"), environment());
    let command = settings.login_command(account, &source["channels"][channel]).await;
    let ProgramCommand { run, dir, env } = command.map_err(|why| CliError::new("install", why))?;
    let [program, arguments @ ..] = run.as_slice() else {
        return Err(CliError::new("install", "there is no program to run".to_owned()).into());
    };
    let status = Command::new(program).args(arguments).current_dir(dir).env_clear().envs(env).status()?;
    if status.success() {
        return Ok(render::print(&format!(
            "{} ({account}) is linked; a running gateway connects within two minutes",
            label(channel)
        ))?);
    }
    Err(CliError::new("channel", format!("{} ({account}) was not linked", label(channel))).into())
}

/// Takes over an account that OpenClaw linked. Only one of the two programs may use it.
fn adopt(settings: &HostSettings, account: &str) -> Result<()> {
    let Ok(openclaw) = OpenclawState::find(None) else { return Ok(()) };
    let from = openclaw.root.join("credentials").join(settings.package.name).join(account);
    if install::adopt_linked_account(&from, &settings.linked_account(account))? {
        render::remark(&format!(
            "took over the linked account in {}; do not run OpenClaw with it any more",
            from.display()
        ));
    }
    Ok(())
}

/// Removes the package of a channel, and its files.
pub(super) async fn remove(paths: &Paths, channel: &str) -> Result<()> {
    let removed = install::uninstall(known(channel)?, &paths.state.join("channels"), &environment()).await;
    Ok(removed.map_err(|error| CliError::new("install", error.to_string()))?)
}

fn known(channel: &str) -> Result<&'static HostedPackage, CliError> {
    package(channel).ok_or_else(|| CliError::usage(format!("unknown channel \"{channel}\"")))
}

fn environment() -> BTreeMap<String, String> {
    paths::variables().collect()
}

/// Parses `KEY=VALUE`; a value that is JSON keeps its type.
fn setting(text: &str) -> Result<(String, Value), CliError> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && key.split('.').all(|part| !part.is_empty()) => {
            let parsed = serde_json::from_str::<Value>(value).ok().filter(|value| !value.is_number());
            Ok((key.to_owned(), parsed.unwrap_or_else(|| number_or_text(value))))
        }
        _ => Err(CliError::usage(format!("invalid --set {text:?}: write KEY=VALUE, such as host=irc.libera.chat"))),
    }
}

/// Whole numbers of up to five digits, such as ports, are numbers; longer ones are ids.
fn number_or_text(value: &str) -> Value {
    let is_small = value.len() <= 5 && !value.starts_with('0') && value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse::<u32>().ok().filter(|_| is_small).map_or_else(|| json!(value), |number| json!(number))
}

/// Asks on a terminal for the keys that are missing; without one they are an error.
fn ask_for_missing(
    paths: &Paths,
    package: &HostedPackage,
    section: &Path,
    settings: &mut BTreeMap<String, Value>,
) -> Result<()> {
    let source = Config::read_file(&paths.config).source;
    for needed in package.needs {
        let at = needed.key.split('.').fold(section.clone(), |path, key| path.key(key));
        if settings.contains_key(needed.key) || path::get(&source, &at).is_some() {
            continue;
        }
        if !io::stdin().is_terminal() {
            let message =
                format!("{} is missing: {}; pass it with --set {}=VALUE", needed.key, needed.question, needed.key);
            return Err(CliError::usage(message).into());
        }
        let entered = if needed.is_secret { prompt::secret(needed.question)? } else { prompt::text(needed.question)? };
        if entered.trim().is_empty() {
            return Err(CliError::usage(format!("{} must not be empty", needed.key)).into());
        }
        settings.insert(needed.key.to_owned(), json!(entered.trim()));
    }
    if package.name == "signal" && settings.contains_key("transport.url") {
        settings.entry("transport.kind".to_owned()).or_insert_with(|| json!("external-native"));
    }
    Ok(())
}

/// Shows the progress of an installation.
fn report(progress: Progress) {
    match progress {
        Progress::InstallsNode(why) => {
            render::remark(&format!(
                "{why}; Node {NODE_VERSION} is installed beside the packages ({} or newer is needed)",
                NodeVersion::MIN
            ));
        }
        Progress::Starts(names) => {
            render::remark(&format!(
                "installing {} with npm, without their scripts (about 700 MB the first time)",
                names.join(", ")
            ));
        }
        Progress::Downloaded(bytes) => render::remark(&format!("{} MB installed", bytes / 1_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_types() {
        for (text, key, value) in [
            ("host=irc.libera.chat", "host", json!("irc.libera.chat")),
            ("tls=false", "tls", json!(false)),
            ("port=6697", "port", json!(6697)),
            ("account=15550001234", "account", json!("15550001234")),
            ("pin=0123", "pin", json!("0123")),
            ("channels=[\"#a\"]", "channels", json!(["#a"])),
            ("token=a=b", "token", json!("a=b")),
        ] {
            assert_eq!(setting(text).unwrap(), (key.to_owned(), value), "{text}");
        }
        for invalid in ["host", "=x", "a..b=x"] {
            assert!(setting(invalid).is_err(), "{invalid}");
        }
    }
}
