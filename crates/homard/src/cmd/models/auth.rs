//! Lists, adds and removes API keys. A key is never an argument, which other users of the machine could see, and never
//! printed.

use anyhow::Result;
use homard_app::keys;
use homard_credentials::auth_profiles::{
    credentials_file,
    file::{self, Fields},
};
use homard_journal::lock;
use homard_model::catalog::provider_name;
use homard_setup::{
    ModelsContext,
    credentials::{self, StoredKind, check_key, known, store},
};
use serde_json::{Value, json};

use crate::{
    cli_error::CliError,
    cmd::{
        ids::{self, Candidate},
        prompt,
    },
    render::{self, Table},
};

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
    credentials::remove(&path, id)?;
    print_result(setup, &json!({"ok": true, "profile": id, "did": "removed", "file": path}), None, wants_json)
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
