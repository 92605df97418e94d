//! `homard status`: shows the configuration, the gateway's state, and recent sessions.

use anyhow::Result;
use homard_agent::{Ambient, row::session_row, shortening};
use homard_proto::Generation;
use serde_json::{Value, json};

use super::{
    ask::{Args, Setup},
    health,
    models::{self, Standing},
    sessions,
};
use crate::{config, render};

/// Maximum number of sessions shown.
const RECENT: usize = 5;

/// Shows the locations, whether the gateway answers, and the newest sessions.
pub(super) async fn run(args: &Args) -> Result<()> {
    let (setup, unusable) = Setup::inspect()?;
    let answer = setup.ask("status").await?;
    let reachable = answer.is_some();
    let mut status = match answer {
        Some(status) => status,
        None => {
            let sessions = setup.sessions().await?;
            let recent: Vec<_> =
                sessions.iter().take(RECENT).map(|(key, record)| session_row(key, record, Generation::Four)).collect();
            json!({"sessions": {"count": sessions.len(), "recent": recent}})
        }
    };
    let paths = &setup.paths;
    status["gateway"] = json!({"url": setup.target.url, "reachable": reachable});
    status["stateDir"] = json!(paths.state);
    status["configPath"] = json!(paths.config);
    let file = paths.config.display();
    if let Some(why) = &unusable {
        // A running gateway does not know yet that it could not start again.
        status["notice"] = format!("{why}; no gateway starts with it; see: homard config validate").into();
    } else if !reachable {
        // A gateway reports on its own config; without one, the file is checked here.
        let warnings = setup.loaded.warnings.iter().map(|warning| format!("config file {file}, {warning}"));
        let outages = config::outages(&setup.loaded);
        let told: Vec<_> = setup.complaint.iter().cloned().chain(outages).chain(warnings).collect();
        if !told.is_empty() {
            status["notice"] = told.join("; ").into();
        }
    }
    let standing = models::standing(&setup.loaded, paths, None);
    let (model, prompt) = match (&unusable, standing) {
        (Some(_), _) => ("none: the config file is not valid".to_owned(), None),
        (None, Ok(standing)) => (standing.first.clone(), shortened(&standing)),
        (None, Err(error)) => (format!("none can be asked: config file {}: {error:#}", paths.config.display()), None),
    };
    status["model"] = model.as_str().into();
    if let Some(prompt) = &prompt {
        status["prompt"] = prompt.as_str().into();
    }
    if args.json {
        return Ok(render::print_json(&status)?);
    }
    let answers = if reachable { "answers" } else { "does not answer; start it with: homard gateway" };
    let missing = if paths.config.exists() { "" } else { " (not there: defaults)" };
    let count = status.pointer("/sessions/count").and_then(Value::as_u64).unwrap_or_default();
    let mut rows = vec![
        ["gateway".to_owned(), format!("{} {answers}", setup.target.url)],
        ["state".to_owned(), paths.state.display().to_string()],
        ["config".to_owned(), format!("{}{missing}", paths.config.display())],
        ["model".to_owned(), model],
        ["sessions".to_owned(), count.to_string()],
    ];
    if let Some(prompt) = prompt {
        rows.insert(4, ["prompt".to_owned(), render::harmless(&prompt)]);
    }
    if let Some(work) = status.get("work") {
        rows.push(["work".to_owned(), in_words(work)]);
    }
    if let Some(notice) = status.get("notice").and_then(Value::as_str) {
        rows.insert(1, ["notice".to_owned(), render::harmless(notice)]);
    }
    for outage in health::outages(&status).into_iter().rev() {
        rows.insert(1, ["down".to_owned(), render::harmless(&outage)]);
    }
    render::print(&render::table(&rows.into_iter().map(Vec::from).collect::<Vec<_>>()))?;
    let recent = status.pointer("/sessions/recent").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !recent.is_empty() {
        let shown = &recent[..recent.len().min(RECENT)];
        render::print(&format!("\n{}", sessions::table(shown, Ambient::system().now_ms())))?;
    }
    Ok(())
}

/// Describes how the prompt for the primary model is shortened, why, and which setting changes that.
fn shortened(standing: &Standing) -> Option<String> {
    let (model, shortened) = standing.shortened.iter().find(|(model, _)| *model == standing.first)?;
    Some(format!("{}; {}", shortening::explain(shortened, model), shortening::remedy(shortened, model)))
}

/// Describes the number of runs by state, and names the slow ones.
fn in_words(work: &Value) -> String {
    let count = |name: &str| work.get(name).and_then(Value::as_u64).unwrap_or_default();
    let slow = ["longRunning", "stalled", "stuck"].map(count).iter().sum::<u64>();
    let mut words = format!("{} at work, {} waiting", count("running") + slow, count("queued"));
    for row in work.get("slow").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| render::harmless(row.get(name).and_then(Value::as_str).unwrap_or_default());
        let minutes = row.get("quietMs").and_then(Value::as_u64).unwrap_or_default() / 60_000;
        words.push_str(&format!("; {} in {} is {} for {minutes} min", text("runId"), text("sessionKey"), text("pace")));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_work_is_counted_and_what_does_not_get_on_is_named() {
        let quiet = json!({"running": 2, "queued": 1, "longRunning": 0, "stalled": 0, "stuck": 0, "slow": []});
        assert_eq!(in_words(&quiet), "2 at work, 1 waiting");
        let row = json!({"runId": "r", "sessionKey": "agent:main:main", "pace": "stalled", "quietMs": 420_000});
        let stalled = json!({"running": 0, "queued": 0, "stalled": 1, "slow": [row]});
        assert_eq!(in_words(&stalled), "1 at work, 0 waiting; r in agent:main:main is stalled for 7 min");
    }
}
