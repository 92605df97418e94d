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
    credentials::{self, NewCredential, check_key, known, store},
    sign_in,
};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

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
    let id = credentials::profile_id(&provider, &add.profile)?;
    let path = credentials_file(&setup.paths, &setup.agent(add.agent.as_deref())?);
    // Checked before the user types anything.
    file::read(&path)?;
    let key = prompt::secret(&format!("The {} for {provider}", if add.token { "token" } else { "API key" }))?;
    let key = key.trim();
    check_key(key)?;
    let credential = if add.token { NewCredential::Token(key.into()) } else { NewCredential::ApiKey(key.into()) };
    let is_new = store(&path, &provider, &id, &credential)?;
    let action = if is_new { "added" } else { "replaced" };
    let note = order_note(setup, &provider, &id);
    print_result(setup, &json!({"ok": true, "profile": id, "did": action, "file": path}), note, wants_json)
}

/// Returns a note if the config lists the credentials of the provider, and this one is not among them.
fn order_note(setup: &ModelsContext, provider: &str, id: &str) -> Option<String> {
    let order = setup.config.auth.order.iter().find(|(name, _)| provider_name(name) == provider);
    let (name, _) = order.filter(|(_, ids)| !ids.iter().any(|listed| listed == id))?;
    Some(format!("auth.order.{name} does not list this profile, so it is not used; add it there"))
}

/// A sign-in.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard models auth login --provider mine
  homard models auth login --provider mine --profile work

The provider needs models.providers.PROVIDER.oauth in the config; see: homard docs models")]
pub(super) struct Login {
    /// Provider whose config has an oauth section
    #[arg(long, value_name = "NAME")]
    provider: String,
    /// Profile name, if the provider has several credentials
    #[arg(long, value_name = "NAME", default_value = "default")]
    profile: String,
    /// Agent that uses it [default: the default agent]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
}

/// Signs in with a code that the user confirms in a browser.
pub(super) async fn login(setup: &ModelsContext, login: &Login, wants_json: bool) -> Result<()> {
    // From here on, Ctrl-C does not end the process.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let pending = sign_in::start(setup, &login.provider, &login.profile, login.agent.as_deref()).await?;
    let (code, provider) = (&pending.code, &pending.provider);
    let mut text = format!("Open {} and enter the code {}", code.verification_uri, code.user_code);
    if let Some(link) = &code.verification_uri_complete {
        text += &format!("\nor open {link}");
    }
    let limit = render::duration(code.lifetime);
    text += &format!("\nWaiting for your confirmation at {provider}, up to {limit}; Ctrl-C ends the sign-in.");
    render::remark(&render::strip_controls(&text));
    let (id, path, provider) = (pending.profile.clone(), pending.file.clone(), provider.clone());
    let is_new = tokio::select! {
        biased;
        _ = interrupt.recv() => {
            let text = format!("nothing was changed; sign in with: homard models auth login --provider {provider}");
            return Err(CliError { exit: 130, ..CliError::new("interrupted", text) }.into());
        }
        finished = pending.finish() => finished?,
    };
    let action = if is_new { "added" } else { "replaced" };
    let note = order_note(setup, &provider, &id);
    print_result(setup, &json!({"ok": true, "profile": id, "did": action, "file": path}), note, wants_json)
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
