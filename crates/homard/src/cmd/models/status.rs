//! Shows the candidates in order, with their credentials and cooldowns.

use std::time::Duration;

use anyhow::{Context, Result};
use homard_app::{
    keys::CredentialSource,
    model_chain::{ModelChain, SelectionReason},
    model_check::ModelTest,
};
use homard_credentials::auth_profiles::Keyring;
use homard_model::candidates::{Candidate, PreferredCredential};
use homard_runtime::Ambient;
use homard_setup::{
    ModelsContext,
    status::{ModelStatus, distinct, unusable_credentials},
    wizard::failure,
};
use serde_json::{Value, json};

use super::test;
use crate::render::{self, Table};

/// Time limit of a request to a candidate.
const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// Shows the candidates of an agent.
pub(super) async fn run(setup: &ModelsContext, agent: Option<&str>, probes: bool, wants_json: bool) -> Result<()> {
    let agent = setup.agent(agent)?;
    let keyring = setup.keyring(&agent)?;
    let chain = ModelChain::of(&setup.config, agent.config, &setup.models, &keyring)
        .with_context(|| format!("config file {}", setup.paths.config.display()))?;
    let candidates = setup.models.candidates(&keyring, &chain.models)?;
    let now = Ambient::system().now_ms();
    let order = candidates.order(now, &PreferredCredential::Any);
    let rows: Vec<_> = order.iter().map(|candidate| row(candidate, &keyring, now)).collect();
    let mut tests = Vec::new();
    for named in chain.models.iter().filter(|_| probes) {
        tests.push(setup.models.test(&keyring, named, PROBE_LIMIT, &mut test::print_notice).await?);
    }
    let status = ModelStatus::of(setup, &chain, &keyring, &order);
    if wants_json {
        let unusable: Vec<_> =
            unusable_credentials(&keyring).map(|(id, why)| json!({"profile": id, "why": why})).collect();
        let chosen_by = match &chain.reason {
            SelectionReason::Configured => json!({"by": "config"}),
            SelectionReason::Credential { from, others } => json!({"by": "key", "from": from, "others": others}),
            SelectionReason::DemoModel => json!({"by": "nothing"}),
        };
        let probed: Vec<_> = tests.iter().map(probe_document).collect();
        let left_out: Vec<_> = chain.skipped.iter().map(|left_out| &left_out.name).collect();
        let mut document = json!({
            "agent": agent.id, "model": chain.primary(), "chosen": chosen_by, "candidates": rows, "leftOut": left_out,
            "unusable": unusable, "missing": status.missing, "authFile": keyring.path, "configPath": setup.paths.config,
        });
        if probes {
            document["probes"] = probed.into();
        }
        return Ok(render::print_json(&document)?);
    }
    render::print_table(&table(&rows, now))?;
    let mut notes: Vec<String> = Vec::new();
    notes.extend(chain.remark(&setup.paths.config));
    if chain.reason == SelectionReason::DemoModel {
        notes.push(demo_note(setup));
    }
    let missing = distinct(&status.missing).map(str::to_owned);
    notes.extend(status.skipped_fallbacks.into_iter().chain(status.unusable).chain(missing));
    for note in notes {
        render::print(&render::strip_controls(&note))?;
    }
    for test in &tests {
        let text = match &test.outcome {
            Ok(answer) => format!("{} answered in {}", test.model, render::duration(answer.duration)),
            Err(_) => failure(test),
        };
        render::print(&render::strip_controls(&text))?;
    }
    Ok(())
}

/// Returns why the demo model is used, and how to use another one.
fn demo_note(setup: &ModelsContext) -> String {
    let configured = setup.models.names.configured.iter();
    let model =
        configured.filter_map(|provider| Some(format!("{}/{}", provider.id, provider.models.first()?.id))).next();
    match model {
        Some(model) => format!(
            "(no model is set, so the demo model is used; use a configured one with: homard models set {model})"
        ),
        None => {
            "(no API key and no model is configured, so the demo model is used; set one up with: homard setup, or add \
                 a key with: homard models auth add PROVIDER)"
                .to_owned()
        }
    }
}

/// Returns the result of a request to a candidate as JSON.
fn probe_document(result: &ModelTest) -> Value {
    match &result.outcome {
        Ok(answer) => test::document(result, answer),
        Err(error) => {
            json!({"ok": false, "model": result.model, "api": result.api, "url": result.url, "error": error.message})
        }
    }
}

/// Returns a candidate as JSON.
fn row(candidate: &Candidate, keyring: &Keyring, now: u64) -> Value {
    let spec = candidate.model.spec();
    let health = keyring.health.snapshot();
    let cooldown = health.cooldown(&candidate.profile, &spec.model, now);
    let source = CredentialSource::of(&candidate.profile);
    let state = match (&source, &cooldown) {
        (CredentialSource::Missing, _) => "missing",
        (_, Some(_)) => "resting",
        (_, None) => "ready",
    };
    let from = match source {
        CredentialSource::Profile => "auth profile".to_owned(),
        CredentialSource::Environment(name) => format!("environment: {name}"),
        CredentialSource::Config(key) => format!("config: {key}"),
        CredentialSource::None => "no key needed".to_owned(),
        CredentialSource::Missing => "no key".to_owned(),
    };
    let mut row = json!({
        "provider": spec.provider, "model": spec.model, "api": spec.api, "profile": &*candidate.profile, "from": from,
        "state": state,
    });
    if let Some(cooldown) = cooldown.filter(|_| state == "resting") {
        row["reason"] = cooldown.reason.into();
        row["until"] = cooldown.until.into();
    }
    row
}

/// Formats the candidates as a table.
fn table(rows: &[Value], now: u64) -> Table {
    let titles = ["", "MODEL", "KEY", "FROM", "STATE"].map(str::to_owned).to_vec();
    let line = |(index, row): (usize, &Value)| {
        let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or("-");
        let state = match row.get("until").and_then(Value::as_u64) {
            Some(until) => format!("in cooldown for {} ({})", remaining(until.saturating_sub(now)), text("reason")),
            None => text("state").to_owned(),
        };
        let key = match text("from") {
            "auth profile" => text("profile"),
            _ => "-",
        };
        let cells = [
            (index + 1).to_string(),
            format!("{}/{}", text("provider"), text("model")),
            key.to_owned(),
            text("from").to_owned(),
            state,
        ];
        cells.map(|cell| render::strip_controls(&cell)).to_vec()
    };
    Table::list(std::iter::once(titles).chain(rows.iter().enumerate().map(line)).collect())
}

/// Formats a remaining time in whole seconds, rounded up.
fn remaining(ms: u64) -> String {
    render::duration_ms(ms.div_ceil(1000) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_listed_in_a_table() {
        let rows = [
            json!({"provider": "openai", "model": "gpt", "profile": "openai:work", "from": "auth profile", "state": "ready"}),
            json!({"provider": "p", "model": "m\u{1b}", "profile": "env:P_KEY", "from": "environment: P_KEY", "state": "resting",
                   "reason": "rate_limit", "until": 301_000}),
        ];
        assert_eq!(
            table(&rows, 1000).to_string(),
            "   MODEL       KEY          FROM                STATE\n\
             1  openai/gpt  openai:work  auth profile        ready\n\
             2  p/m         -            environment: P_KEY  in cooldown for 5m (rate_limit)"
        );
    }
}
