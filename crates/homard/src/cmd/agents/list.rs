//! Lists the agents.

use anyhow::Result;
use homard_app::{model_chain::ModelChain, models::Models};
use homard_config::LoadedConfig;
use homard_credentials::auth_profiles::{self, Keyring};
use homard_settings::{Config, agent_directories::workspace, agents::ConfiguredAgent, paths::Paths, routes};
use homard_workspace::{AgentPersona, Audience, BootstrapLimits, BootstrapReader};
use serde_json::{Value, json};

use super::describe_binding;
use crate::render::{self, Table};

/// Lists the agents in the order of the config.
pub(super) fn run(loaded: &LoadedConfig<Config>, paths: &Paths, wants_bindings: bool, wants_json: bool) -> Result<()> {
    let config = &loaded.config;
    let models = Models::new(config, homard_app::environment(&loaded.variables), &paths.state);
    let bindings = routes::bindings(config);
    let row = |agent: &ConfiguredAgent<'_>| {
        let agent_bindings = bindings.iter().filter(|(_, binding)| binding.agent == agent.id);
        let rules: Vec<_> = agent_bindings.map(|(_, binding)| describe_binding(binding)).collect();
        row(config, paths, agent, &models, &rules)
    };
    let rows: Vec<_> = config.agents.members().iter().map(row).collect();
    if wants_json {
        return Ok(render::print_json(&rows.into())?);
    }
    render::print_table(&table(&rows))?;
    if wants_bindings {
        render::print("")?;
        render::print_table(&bindings_table(&rows))?;
    }
    let errors = rows.iter().filter_map(|row| row["modelError"].as_str());
    for error in errors {
        render::print(&render::strip_controls(error))?;
    }
    Ok(())
}

/// Returns an agent as JSON, with OpenClaw's field names where it has them.
fn row(config: &Config, paths: &Paths, agent: &ConfiguredAgent<'_>, models: &Models, rules: &[String]) -> Value {
    let workspace = workspace(config, paths, agent);
    let identity = &agent.config.identity;
    let read =
        AgentPersona::of(&BootstrapReader::default().pages(&workspace, Audience::Main, &BootstrapLimits::default()));
    let non_empty = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let source =
        match (non_empty(&identity.name).or(non_empty(&identity.emoji)), read.name.as_ref().or(read.emoji.as_ref())) {
            (Some(_), _) => Some("config"),
            (None, Some(_)) => Some("identity"),
            (None, None) => None,
        };
    let mut row = json!({
        "id": agent.id, "isDefault": agent.is_default, "workspace": workspace, "bindings": rules.len(),
        "bindingDetails": rules, "skills": agent.config.skills.as_ref().or(config.agents.defaults.skills.as_ref()),
    });
    let optional = [
        ("name", non_empty(&agent.config.name)),
        ("identityName", non_empty(&identity.name).or(read.name)),
        ("identityEmoji", non_empty(&identity.emoji).or(read.emoji)),
        ("identitySource", source.map(str::to_owned)),
    ];
    for (key, text) in optional {
        if let Some(text) = text {
            row[key] = text.into();
        }
    }
    let keyring = Keyring::open(auth_profiles::credentials_file(paths, agent), &models.client);
    let chain = keyring
        .map_err(homard_app::Error::from)
        .and_then(|(keyring, _)| ModelChain::of(config, agent.config, models, &keyring));
    match chain {
        Ok(chain) => row["model"] = chain.primary().into(),
        Err(error) => row["modelError"] = format!("agent {}: {error:#}", agent.id).into(),
    }
    row
}

/// Formats the agents as a table.
fn table(rows: &[Value]) -> Table {
    let titles = ["AGENT", "NAME", "MODEL", "SKILLS", "BINDINGS", "WORKSPACE"].map(str::to_owned).to_vec();
    let line = |row: &Value| {
        let text = |name: &str| row[name].as_str();
        let id = text("id").unwrap_or("-");
        let called = text("identityName").or(text("name"));
        let name: Vec<_> = text("identityEmoji").into_iter().chain(called).collect();
        let skills = match row["skills"].as_array().map(Vec::as_slice) {
            None => "all".to_owned(),
            Some([]) => "none".to_owned(),
            Some(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        };
        let cells = [
            if row["isDefault"] == true { format!("{id} (default)") } else { id.to_owned() },
            if name.is_empty() { "-".to_owned() } else { name.join(" ") },
            text("model").unwrap_or("-").to_owned(),
            skills,
            row["bindings"].to_string(),
            text("workspace").unwrap_or("-").to_owned(),
        ];
        cells.map(|cell| render::strip_controls(&cell)).to_vec()
    };
    Table::list(std::iter::once(titles).chain(rows.iter().map(line)).collect())
}

/// Formats the bindings as a table.
fn bindings_table(rows: &[Value]) -> Table {
    let line = |row: &Value, binding: &str| {
        vec![render::strip_controls(binding), row["id"].as_str().unwrap_or("-").to_owned()]
    };
    let mut lines = vec![vec!["MESSAGES FROM".to_owned(), "GO TO".to_owned()]];
    for row in rows {
        let details = row["bindingDetails"].as_array().into_iter().flatten().filter_map(Value::as_str);
        lines.extend(details.map(|details| line(row, details)));
    }
    lines.extend(rows.iter().filter(|row| row["isDefault"] == true).map(|row| line(row, "anywhere else")));
    Table::list(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_and_bindings_are_listed_in_a_table() {
        let rows = [
            json!({"id": "main", "isDefault": true, "workspace": "/w", "bindings": 0, "bindingDetails": [], "skills": null,
                   "model": "homard/demo"}),
            json!({"id": "ops", "isDefault": false, "name": "Ops", "identityName": "Olga", "identityEmoji": "*",
                   "workspace": "/o", "bindings": 1, "bindingDetails": ["irc, any account"], "skills": ["a", "b"]}),
            json!({"id": "mute", "isDefault": false, "name": "M\u{1b}", "workspace": "/m", "bindings": 0,
                   "bindingDetails": [], "skills": [], "model": "p/m"}),
        ];
        assert_eq!(
            table(&rows).to_string(),
            "AGENT           NAME    MODEL        SKILLS  BINDINGS  WORKSPACE\n\
             main (default)  -       homard/demo  all     0         /w\n\
             ops             * Olga  -            a, b    1         /o\n\
             mute            M       p/m          none    0         /m"
        );
        assert_eq!(
            super::bindings_table(&rows).to_string(),
            "MESSAGES FROM     GO TO\nirc, any account  ops\nanywhere else     main"
        );
    }
}
