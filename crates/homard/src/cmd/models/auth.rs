//! Lists, adds and removes API keys. A key is never an argument, which other users of the machine could see, and never
//! printed.

use std::path::Path;

use anyhow::Result;
use homard_app::keys;
use homard_credentials::auth_profiles::{
    credentials_file,
    file::{self, Fields},
};
use homard_journal::lock;
use homard_model::catalog::{self, provider_name};
use homard_providers::quirks;
use serde_json::{Value, json};

use super::ModelsContext;
use crate::{
    cli_error::CliError,
    cmd::{
        ids::{self, Candidate},
        prompt,
    },
    render::{self, Table},
};

/// Maximum length of a key.
const MAX_KEY: usize = 16 * 1024;

/// A new key.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard models auth add anthropic
  printf %s \"$MY_KEY\" | homard models auth add openai --profile work
  homard models auth add anthropic --token     for an account token instead of an API key")]
pub(super) struct Add {
    /// Provider, such as anthropic, openai or google
    provider: String,
    /// Profile name, if the provider has several credentials
    #[arg(long, value_name = "NAME", default_value = "default")]
    profile: String,
    /// Store an account token instead of an API key
    #[arg(long)]
    token: bool,
    /// Agent that uses it [default: the default agent]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
}

/// Adds or replaces a key.
pub(super) fn add(setup: &ModelsContext, add: &Add, wants_json: bool) -> Result<()> {
    let provider = known(setup, &add.provider)?;
    let name = add.profile.trim();
    if name.is_empty() || name.contains(|c: char| c == ':' || c.is_whitespace() || c.is_control()) {
        return Err(CliError::usage("--profile must be a name without spaces and colons, such as work").into());
    }
    let path = credentials_file(&setup.paths, &setup.agent(add.agent.as_deref())?);
    // Checked before the user types anything.
    file::read(&path)?;
    let key = prompt::secret(&format!("The {} for {provider}", if add.token { "token" } else { "API key" }))?;
    let key = key.trim();
    check_key(key)?;
    let id = format!("{provider}:{name}");
    let kind = if add.token { StoredKind::Token } else { StoredKind::ApiKey };
    let is_new = store(&path, &provider, &id, kind, key)?;
    let action = if is_new { "added" } else { "replaced" };
    let order = setup.config.auth.order.iter().find(|(name, _)| provider_name(name) == provider);
    let order_note = order.filter(|(_, ids)| !ids.contains(&id));
    let order_note = order_note
        .map(|(name, _)| format!("auth.order.{name} does not list this profile, so it is not used; add it there"));
    print_result(setup, &json!({"ok": true, "profile": id, "did": action, "file": path}), order_note, wants_json)
}

/// Checks that a text can be a key.
pub(in crate::cmd) fn check_key(key: &str) -> Result<(), CliError> {
    if key.is_empty() || key.len() > MAX_KEY || key.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(CliError::usage("invalid key: it must be one word on one line, and not empty"));
    }
    Ok(())
}

/// The kind of a stored credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cmd) enum StoredKind {
    ApiKey,
    Token,
}

/// Stores a credential under a profile id. Returns true if it is new.
pub(in crate::cmd) fn store(path: &Path, provider: &str, id: &str, kind: StoredKind, key: &str) -> Result<bool> {
    let profile = match kind {
        StoredKind::Token => json!({"type": "token", "provider": provider, "token": key}),
        StoredKind::ApiKey => json!({"type": "api_key", "provider": provider, "key": key}),
    };
    file::edit(path, |fields| {
        let mut profiles = fields.object("profiles", path)?;
        let is_new = profiles.get(id).is_none();
        profiles.set(id, &profile, 2);
        fields.put("profiles", &profiles, 1);
        // Cooldowns of the old key do not apply to the new one.
        forget(fields, path, id)?;
        let mut order = fields.object("order", path)?;
        if let Some(mut ids) = order.get(provider).and_then(|ids| serde_json::from_str::<Vec<String>>(ids).ok())
            && !ids.iter().any(|listed| listed == id)
        {
            ids.push(id.to_owned());
            order.set(provider, &json!(ids), 2);
            fields.put("order", &order, 1);
        }
        anyhow::Ok(is_new)
    })
}

/// Lists the keys of an agent, without their secrets.
pub(super) fn list(setup: &ModelsContext, agent: Option<&str>, wants_json: bool) -> Result<()> {
    let agent = setup.agent(agent)?;
    let path = credentials_file(&setup.paths, &agent);
    let profiles = file::read(&path)?.unwrap_or_default().object("profiles", &path)?;
    let keyring = setup.keyring(&agent)?;
    let row = |(id, profile): (&str, &str)| {
        let profile: Value = serde_json::from_str(profile).unwrap_or_default();
        let known = keyring.profiles.iter().find(|known| known.id == id);
        let unusable = known.and_then(keys::unusable_reason);
        json!({"id": id, "provider": profile["provider"], "type": profile["type"], "unusable": unusable})
    };
    let rows: Vec<Value> = profiles.iter().map(row).collect();
    if wants_json {
        return Ok(render::print_json(&json!({"profiles": rows, "file": path}))?);
    }
    if rows.is_empty() {
        let text = format!("no credentials in {}; add one with: homard models auth add PROVIDER", path.display());
        return Ok(render::print(&text)?);
    }
    let titles = ["PROFILE", "PROVIDER", "TYPE", "STATE"].map(str::to_owned).to_vec();
    let line = |row: &Value| {
        let column = |name: &str| render::strip_controls(row[name].as_str().unwrap_or("-"));
        let state = row["unusable"].as_str().map_or_else(|| "ok".to_owned(), |_| column("unusable"));
        vec![column("id"), column("provider"), column("type"), state]
    };
    Ok(render::print_table(&Table::list(std::iter::once(titles).chain(rows.iter().map(line)).collect()))?)
}

/// Removes a key with its health record.
pub(super) fn remove(setup: &ModelsContext, input: &str, agent: Option<&str>, wants_json: bool) -> Result<()> {
    let path = credentials_file(&setup.paths, &setup.agent(agent)?);
    let unknown = |profiles: &Fields| {
        let ids = profiles.iter().map(|(id, _)| id).collect::<Vec<_>>().join(", ");
        let known_ids = if ids.is_empty() {
            "the file contains no profiles".to_owned()
        } else {
            format!("existing profiles: {ids}")
        };
        CliError::not_found(format!("profile {input} not found in {}; {known_ids}", path.display()))
    };
    let Some(fields) = file::read(&path)? else { return Err(unknown(&Fields::default()).into()) };
    let profiles = fields.object("profiles", &path)?;
    let all: Vec<_> = profiles.iter().map(|(id, _)| Candidate { id, name: None }).collect();
    let id = ids::resolve("profile", input, &all)?.ok_or_else(|| unknown(&profiles))?;
    file::edit(&path, |fields| {
        let mut profiles = fields.object("profiles", &path)?;
        profiles.remove(id);
        fields.put("profiles", &profiles, 1);
        forget(fields, &path, id)?;
        let stored_order = fields.object("order", &path)?;
        let mut order = stored_order.clone();
        for (provider, ids) in stored_order.iter() {
            if let Ok(mut ids) = serde_json::from_str::<Vec<String>>(ids)
                && ids.iter().any(|known| known == id)
            {
                ids.retain(|known| known != id);
                order.set(provider, &json!(ids), 2);
                fields.put("order", &order, 1);
            }
        }
        let mut last_good = fields.object("lastGood", &path)?;
        let quoted = json!(id).to_string();
        let stale: Vec<_> = last_good
            .iter()
            .filter(|(_, last_good)| *last_good == quoted)
            .map(|(provider, _)| provider.to_owned())
            .collect();
        for provider in stale {
            last_good.remove(&provider);
            fields.put("lastGood", &last_good, 1);
        }
        anyhow::Ok(())
    })?;
    print_result(setup, &json!({"ok": true, "profile": id, "did": "removed", "file": path}), None, wants_json)
}

fn forget(fields: &mut Fields, path: &Path, id: &str) -> Result<()> {
    let mut stats = fields.object("usageStats", path)?;
    if stats.remove(id) {
        fields.put("usageStats", &stats, 1);
    }
    Ok(())
}

/// Returns the canonical name of a known or configured provider: a mistyped one would store an unused key.
fn known(setup: &ModelsContext, provider: &str) -> Result<String, CliError> {
    let name = provider_name(provider);
    let configured =
        setup.models.names.configured.iter().any(|configured_provider| provider_name(&configured_provider.id) == name);
    if configured || catalog::provider(&name).next().is_some() || quirks::provider(&name).is_some() {
        return Ok(name);
    }
    let all = catalog::providers().collect::<Vec<_>>().join(", ");
    Err(CliError::usage(format!(
        "unknown provider \"{provider}\"; known providers are {all}, and those in models.providers"
    )))
}

fn print_result(setup: &ModelsContext, result: &Value, note: Option<String>, wants_json: bool) -> Result<()> {
    let text = |name: &str| result[name].as_str().unwrap_or_default();
    if wants_json {
        render::print_json(result)?;
    } else {
        render::print(&format!("{} {} ({})", text("did"), text("profile"), text("file")))?;
    }
    if let Some(note) = note {
        render::remark(&note);
    }
    if lock::holder(&setup.paths.state).is_some() {
        render::remark("a gateway is running; restart it to apply the change");
    }
    Ok(())
}
