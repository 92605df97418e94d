//! Lists models.

use std::collections::BTreeSet;

use anyhow::Result;
use futures_util::future::join_all;
use homard_app::keys::{CredentialAuth, ProviderKey};
use homard_credentials::auth_profiles::Keyring;
use homard_model::catalog::{self, CatalogEntry, provider_name};
use homard_providers::ListedModel;
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
    let notes = if provider.is_none() { configured_without_models(setup, &keyring, &entries) } else { Vec::new() };
    if wants_json {
        return Ok(render::print_json(&json!({
            "count": rows.len(), "source": catalog::source(), "models": rows, "notes": notes,
        }))?);
    }
    if rows.is_empty() && notes.is_empty() {
        let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Ok(render::print(&format!(
            "no provider is configured yet; add a key with: homard models auth add PROVIDER\nknown providers: {names}\nlist their \
             models with: homard models list --provider PROVIDER"
        ))?);
    }
    if !rows.is_empty() {
        render::print_table(&table(&rows))?;
    }
    notes.iter().try_for_each(|note| render::print(&render::strip_controls(note)))?;
    Ok(())
}

/// Returns a sentence for each configured provider whose models are not in the list: it has no usable key, or the config
/// names none of its models.
fn configured_without_models(setup: &ModelsContext, keyring: &Keyring, entries: &[CatalogEntry]) -> Vec<String> {
    let note = |id: &String| {
        let name = provider_name(id);
        let keys: Vec<_> = setup.models.keys(keyring, &name).into_iter().flat_map(|(_, keys)| keys).collect();
        if let Some(key) = keys.first().filter(|_| keys.iter().all(|key| !key.unusable_reason().is_empty())) {
            return Some(format!("the models of {id} cannot be used: {}", key.unusable_reason()));
        }
        let has_models = entries.iter().any(|entry| provider_name(&entry.spec.provider) == name);
        let how = format!(
            "{id} is configured without models; ask its server with: homard models list --probe --provider {id}"
        );
        (!has_models).then_some(how)
    };
    setup.config.models.providers.keys().filter_map(note).collect()
}

/// Asks the servers of all usable providers, or of one, for their models, and lists them.
pub(super) async fn run_probe(setup: &ModelsContext, provider: Option<&str>, wants_json: bool) -> Result<()> {
    let keyring = setup.keyring(&setup.agent(None)?)?;
    let providers: BTreeSet<String> = match provider {
        Some(name) => [name.to_owned()].into(),
        None => {
            let configured = setup.config.models.providers.keys().cloned();
            let known = catalog::providers().filter(|name| {
                let mut keys = setup.models.keys(&keyring, name).into_iter().flat_map(|(_, keys)| keys);
                keys.any(|key| key.unusable_reason().is_empty())
            });
            configured.chain(known.map(str::to_owned)).collect()
        }
    };
    let ask = |name: String| {
        let keyring = &keyring;
        async move {
            let listed = setup.models.listed_by_server(keyring, &name).await;
            (name, listed)
        }
    };
    let answers = join_all(providers.into_iter().map(ask)).await;
    if let (Some(_), [(_, Err(error))]) = (provider, answers.as_slice()) {
        return Err(CliError::new("model", error.message.clone()).into());
    }
    if wants_json {
        let model = |model: &ListedModel| json!({"model": model.id, "contextWindow": model.context_window, "maxTokens": model.max_output});
        let row = |(name, listed): &(String, Result<Vec<ListedModel>, homard_model::Error>)| match listed {
            Ok(models) => json!({"provider": name, "ok": true, "models": models.iter().map(model).collect::<Vec<_>>()}),
            Err(error) => json!({"provider": name, "ok": false, "error": error.message}),
        };
        return Ok(render::print_json(&json!({"providers": answers.iter().map(row).collect::<Vec<_>>()}))?);
    }
    let titles = ["MODEL", "WINDOW", "OUTPUT"].map(str::to_owned).to_vec();
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let listed = answers.iter().filter_map(|(name, listed)| Some((name, listed.as_ref().ok()?)));
    let line = |name: &str, model: &ListedModel| {
        let name = render::strip_controls(&format!("{name}/{}", model.id));
        vec![name, number(model.context_window), number(model.max_output)]
    };
    let rows: Vec<_> = listed.flat_map(|(name, models)| models.iter().map(move |model| line(name, model))).collect();
    if !rows.is_empty() {
        render::print_table(&Table::list(std::iter::once(titles).chain(rows).collect()))?;
    }
    for (name, listed) in &answers {
        match listed {
            Err(error) => render::print(&render::strip_controls(&format!("{name}: {}", error.message)))?,
            Ok(models) if models.is_empty() => render::print(&format!("{name} lists no models"))?,
            Ok(_) => {}
        }
    }
    if answers.is_empty() {
        render::print("no provider is configured yet; set one up with: homard setup")?;
    }
    Ok(())
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
