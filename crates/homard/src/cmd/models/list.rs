//! Lists models.

use anyhow::Result;
use homard_model::catalog::{self, CatalogEntry};
use homard_providers::ListedModel;
use homard_setup::{
    ModelsContext,
    inventory::{self, Selection, ServerList},
};
use serde_json::{Value, json};

use crate::render::{self, Table};

/// Lists the models of one provider, of those with credentials, or of all.
pub(super) fn run(setup: &ModelsContext, selection: Selection<'_>, wants_json: bool) -> Result<()> {
    let inventory = inventory::known_models(setup, selection)?;
    let rows: Vec<_> = inventory.models.iter().map(|(entry, is_usable)| row(entry, *is_usable)).collect();
    let notes = inventory.notes;
    if wants_json {
        return Ok(render::print_json(&json!({
            "count": rows.len(), "source": catalog::source(), "models": rows, "notes": notes,
        }))?);
    }
    if rows.is_empty() && notes.is_empty() {
        let names = inventory.providers.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
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

/// Asks the servers of all usable providers, or of one, for their models, and lists them.
pub(super) async fn run_probe(setup: &ModelsContext, provider: Option<&str>, wants_json: bool) -> Result<()> {
    let answers = inventory::listed_models(setup, provider).await?;
    if wants_json {
        let model = |model: &ListedModel| json!({"model": model.id, "contextWindow": model.context_window, "maxTokens": model.max_output});
        let row = |(name, listed): &ServerList| match listed {
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
