//! Shows the candidates in order, with their credentials and cooldowns.

use anyhow::{Context, Result};
use homard_agent::Ambient;
use homard_model::roster::{Candidate, Preferred};
use homard_store::timeline::Shortened;
use serde_json::{Value, json};

use super::Setup;
use crate::{
    assemble::{
        chain::{Chain, Why},
        keys::{self, Source},
        office,
    },
    auth::Keyring,
    config::Named,
    render,
};

/// Shows the candidates of an agent.
pub(super) fn run(setup: &Setup, agent: Option<&str>, wants_json: bool) -> Result<()> {
    let agent = setup.agent(agent)?;
    let keyring = setup.keyring(&agent)?;
    let chain = Chain::of(&setup.config, agent.said, &setup.models, &keyring)
        .with_context(|| format!("config file {}", setup.paths.config.display()))?;
    let roster = setup.models.roster(&keyring, &chain.models)?;
    let now = Ambient::system().now_ms();
    let order = roster.order(now, &Preferred::Any);
    let rows: Vec<_> = order.iter().map(|candidate| row(candidate, &keyring, now)).collect();
    let standing = Standing::of(setup, &chain, &keyring, &order);
    if wants_json {
        let troubles: Vec<_> = troubles(&keyring).map(|(id, why)| json!({"profile": id, "why": why})).collect();
        let chosen_by = match &chain.why {
            Why::Named => json!({"by": "config"}),
            Why::Key { from, others } => json!({"by": "key", "from": from, "others": others}),
            Why::Nothing => json!({"by": "nothing"}),
        };
        let left_out: Vec<_> = chain.left_out.iter().map(|left_out| &left_out.name).collect();
        return Ok(render::print_json(&json!({
            "agent": agent.id, "model": chain.first(), "chosen": chosen_by, "candidates": rows, "leftOut": left_out,
            "unusable": troubles, "missing": standing.missing, "authFile": keyring.path, "configPath": setup.paths.config,
        }))?);
    }
    render::print(&table(&rows, now))?;
    let mut notes: Vec<String> = Vec::new();
    notes.extend(chain.remark(&setup.paths.config));
    if chain.why == Why::Nothing {
        notes.push(
            "(there is no key and no model is set, so the demo model answers; add a key with: homard models auth add PROVIDER)"
                .to_owned(),
        );
    }
    notes.extend(standing.left_out.into_iter().chain(standing.unusable).chain(standing.missing));
    for note in notes {
        render::print(&render::harmless(&note))?;
    }
    Ok(())
}

/// Model status of an agent: its primary model, and problems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cmd) struct Standing {
    /// The first candidate's model.
    pub(in crate::cmd) first: String,
    /// True if that is the demo model because there is no other.
    pub(in crate::cmd) is_demo: bool,
    /// Number of candidates.
    pub(in crate::cmd) asked: usize,
    /// Candidates without a key, each with the remedy.
    pub(in crate::cmd) missing: Vec<String>,
    /// Credentials that cannot be used.
    pub(in crate::cmd) unusable: Vec<String>,
    /// Fallbacks that are not used.
    pub(in crate::cmd) left_out: Vec<String>,
    /// Models whose prompt is shortened, and how.
    pub(in crate::cmd) shortened: Vec<(String, Shortened)>,
    /// Why no candidate is usable now, if so.
    pub(in crate::cmd) outage: Option<String>,
}

impl Standing {
    /// Returns the status of the agent with this id; without one, of the default agent.
    pub(super) fn find(setup: &Setup, agent: Option<&str>) -> Result<Self> {
        let agent = setup.agent(agent)?;
        let keyring = setup.keyring(&agent)?;
        let chain = Chain::of(&setup.config, agent.said, &setup.models, &keyring)?;
        let roster = setup.models.roster(&keyring, &chain.models)?;
        let now = Ambient::system().now_ms();
        let order = roster.order(now, &Preferred::Any);
        let shortened =
            |model: &Named| Some((model.name(), office::shortened(&setup.config, &setup.paths, &agent, model)?));
        let shortened = chain.models.iter().filter_map(shortened).collect();
        Ok(Self { shortened, outage: roster.outage(now), ..Self::of(setup, &chain, &keyring, &order) })
    }

    fn of(setup: &Setup, chain: &Chain, keyring: &Keyring, order: &[Candidate]) -> Self {
        let missing = order.iter().filter(|candidate| Source::of(&candidate.profile) == Source::Missing);
        let missing = missing.map(|candidate| {
            let keys = setup.models.keys(keyring, &candidate.model.spec().provider);
            keys.iter().flat_map(|(_, keys)| keys).map(keys::Key::closed).collect::<String>()
        });
        Self {
            first: chain.first(),
            is_demo: chain.why == Why::Nothing,
            asked: order.len(),
            missing: missing.collect(),
            unusable: troubles(keyring).map(|(id, why)| format!("{id} cannot be used: {why}")).collect(),
            left_out: chain.left_out.iter().map(|left_out| left_out.reason.clone()).collect(),
            shortened: Vec::new(),
            outage: None,
        }
    }
}

/// Returns the credentials that cannot be used, and why.
fn troubles(keyring: &Keyring) -> impl Iterator<Item = (&str, String)> {
    keyring.profiles.iter().filter_map(|profile| Some((&*profile.id, keys::trouble(profile)?)))
}

/// Returns a candidate as JSON.
fn row(candidate: &Candidate, keyring: &Keyring, now: u64) -> Value {
    let spec = candidate.model.spec();
    let standing = keyring.book.standing();
    let rest = standing.rest(&candidate.profile, &spec.model, now);
    let source = Source::of(&candidate.profile);
    let state = match (&source, &rest) {
        (Source::Missing, _) => "missing",
        (_, Some(_)) => "resting",
        (_, None) => "ready",
    };
    let from = match source {
        Source::Profile => "auth profile".to_owned(),
        Source::Environment(name) => format!("environment: {name}"),
        Source::Config(key) => format!("config: {key}"),
        Source::None => "no key needed".to_owned(),
        Source::Missing => "no key".to_owned(),
    };
    let mut row = json!({
        "provider": spec.provider, "model": spec.model, "api": spec.api, "profile": &*candidate.profile, "from": from,
        "state": state,
    });
    if let Some(rest) = rest.filter(|_| state == "resting") {
        row["reason"] = rest.reason.into();
        row["until"] = rest.until.into();
    }
    row
}

/// Formats the candidates as a table.
fn table(rows: &[Value], now: u64) -> String {
    let titles = ["", "MODEL", "KEY", "FROM", "STATE"].map(str::to_owned).to_vec();
    let line = |(place, row): (usize, &Value)| {
        let word = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or("-");
        let state = match row.get("until").and_then(Value::as_u64) {
            Some(until) => format!("rests for {} ({})", left(until.saturating_sub(now)), word("reason")),
            None => word("state").to_owned(),
        };
        let key = match word("from") {
            "auth profile" => word("profile"),
            _ => "-",
        };
        let cells = [
            (place + 1).to_string(),
            format!("{}/{}", word("provider"), word("model")),
            key.to_owned(),
            word("from").to_owned(),
            state,
        ];
        cells.map(|cell| render::harmless(&cell)).to_vec()
    };
    render::table(&std::iter::once(titles).chain(rows.iter().enumerate().map(line)).collect::<Vec<_>>())
}

fn left(ms: u64) -> String {
    match ms.div_ceil(1000) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_shown_in_few_words() {
        let rows = [
            json!({"provider": "openai", "model": "gpt", "profile": "openai:work", "from": "auth profile", "state": "ready"}),
            json!({"provider": "p", "model": "m\u{1b}", "profile": "env:P_KEY", "from": "environment: P_KEY", "state": "resting",
                   "reason": "rate_limit", "until": 301_000}),
        ];
        assert_eq!(
            table(&rows, 1000),
            "   MODEL       KEY          FROM                STATE\n\
             1  openai/gpt  openai:work  auth profile        ready\n\
             2  p/m         -            environment: P_KEY  rests for 5m (rate_limit)"
        );
    }
}
