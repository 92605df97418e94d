//! Lists models.

use std::collections::BTreeSet;

use anyhow::Result;
use homard_app::keys::{CredentialAuth, ProviderKey};
use homard_model::catalog::{self, CatalogEntry, provider_name};
use serde_json::{Value, json};

use super::ModelsContext;
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// Lists the models of one provider, of those with credentials, or of all.
pub(super) fn run(setup: &ModelsContext, provider: Option<&str>, all: bool, wants_json: bool) -> Result<()> {
    let keyring = setup.keyring(&setup.agent(None)?)?;
    let known = catalog::providers().flat_map(catalog::provider).collect();
    let entries = catalog::extend(known, &setup.models.names.configured, setup.models.names.mode);
    let names: BTreeSet<_> = entries.iter().map(|entry| provider_name(&entry.spec.provider)).collect();
    let is_usable = |name: &String| {
        let is_open = |key: &ProviderKey| !matches!(key.auth, CredentialAuth::Unusable(_));
        setup.models.keys(&keyring, name).iter().flat_map(|(_, keys)| keys).any(is_open)
    };
    let usable: BTreeSet<_> = names.iter().filter(|name| is_usable(name)).cloned().collect();
    let shown: BTreeSet<_> = match provider.map(provider_name) {
        Some(provider) if names.contains(&provider) => [provider].into(),
        Some(provider) => {
            let known = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(CliError::usage(format!(
                "no models of \"{provider}\" are known; providers with known models: {known}"
            ))
            .into());
        }
        None if all => names.clone(),
        None => usable.clone(),
    };
    let shown = entries.iter().filter(|entry| shown.contains(&provider_name(&entry.spec.provider)));
    let row = |entry: &CatalogEntry| row(entry, usable.contains(&provider_name(&entry.spec.provider)));
    let rows: Vec<_> = shown.map(row).collect();
    if wants_json {
        return Ok(render::print_json(&json!({"count": rows.len(), "source": catalog::source(), "models": rows}))?);
    }
    if rows.is_empty() {
        let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Ok(render::print(&format!(
            "no provider is configured yet; add a key with: homard models auth add PROVIDER\nknown providers: {names}\nlist their \
             models with: homard models list --provider PROVIDER"
        ))?);
    }
    Ok(render::print_table(&table(&rows))?)
}

fn row(entry: &CatalogEntry, is_usable: bool) -> Value {
    let spec = &entry.spec;
    json!({
        "provider": spec.provider, "model": spec.model, "api": spec.api, "contextWindow": spec.context_window,
        "maxTokens": spec.max_output, "thinking": spec.thinking.iter().map(|level| level.as_str()).collect::<Vec<_>>(),
        "images": spec.accepts_images, "cost": {"input": spec.prices.input, "output": spec.prices.output}, "usable": is_usable,
    })
}

fn table(rows: &[Value]) -> Table {
    let titles =
        ["MODEL", "WINDOW", "OUTPUT", "REASONING", "IMAGES", "$/M IN", "$/M OUT", "KEY"].map(str::to_owned).to_vec();
    let yes = |is: bool| if is { "yes" } else { "-" }.to_owned();
    let line = |row: &Value| {
        let text = |name: &str| row[name].as_str().unwrap_or("-");
        let thinks = row["thinking"].as_array().is_some_and(|levels| !levels.is_empty());
        let cells = [
            format!("{}/{}", text("provider"), text("model")),
            row["contextWindow"].to_string(),
            row["maxTokens"].to_string(),
            yes(thinks),
            yes(row["images"] == true),
            row["cost"]["input"].to_string(),
            row["cost"]["output"].to_string(),
            yes(row["usable"] == true),
        ];
        cells.map(|cell| render::strip_controls(&cell)).to_vec()
    };
    Table::list(std::iter::once(titles).chain(rows.iter().map(line)).collect())
}
