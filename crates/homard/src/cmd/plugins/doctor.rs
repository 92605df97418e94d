//! `homard plugins doctor`: examines each enabled plugin and starts it briefly. Every finding says what to do.

mod findings;
mod trial;

use anyhow::Result;
use futures_util::{StreamExt as _, stream};
use homard_plugins::{DiscoveredPlugin, PluginStatus};
use serde_json::{Value, json};

use self::trial::StartTrial;
pub(in crate::cmd) use self::trial::node;
use super::{
    PluginList,
    format::{one_line, table_of},
};
use crate::{cli_error::CliError, render};

/// Number of plugins that are tried concurrently.
const CONCURRENCY: usize = 4;

/// A problem or a note.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PluginFinding {
    /// True if it makes a plugin unusable.
    is_severe: bool,
    message: String,
    remedy: String,
}

impl PluginFinding {
    fn severe(what: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { is_severe: true, message: what.into(), remedy: to_do.into() }
    }

    fn note(what: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { is_severe: false, ..Self::severe(what, to_do) }
    }

    fn document(&self) -> Value {
        let level = if self.is_severe { "error" } else { "warning" };
        json!({"level": level, "message": one_line(&self.message), "toDo": one_line(&self.remedy)})
    }

    fn rows(&self) -> [(&'static str, String); 2] {
        [(if self.is_severe { "  wrong" } else { "  note" }, self.message.clone()), ("  to do", self.remedy.clone())]
    }
}

/// The result for one plugin.
struct PluginCheck {
    id: String,
    trial: Option<StartTrial>,
    findings: Vec<PluginFinding>,
}

impl PluginCheck {
    fn is_usable(&self) -> bool {
        !self.findings.iter().any(|finding| finding.is_severe)
    }

    fn document(&self) -> Value {
        let findings: Vec<Value> = self.findings.iter().map(PluginFinding::document).collect();
        json!({
            "id": self.id, "ok": self.is_usable(), "findings": findings,
            "startMs": self.trial.as_ref().map(|trial| trial.took.as_millis() as u64),
            "registered": self.trial.as_ref().map(|trial| &trial.registered),
            "denied": self.trial.as_ref().map(|trial| &trial.denied),
        })
    }

    fn text(&self) -> String {
        let took = self.trial.as_ref().map(|trial| render::duration(trial.took));
        let state = match (self.is_usable(), took) {
            (true, Some(took)) => format!("works, ready after {took}"),
            (true, None) => "was not started".to_owned(),
            (false, _) => "cannot be used".to_owned(),
        };
        let mut rows = Vec::new();
        if let Some(trial) = self.trial.as_ref().filter(|_| self.is_usable()) {
            let none = trial.registered.is_empty().then(|| "nothing".to_owned());
            let all = none.into_iter().chain(trial.registered.iter().cloned());
            rows.extend(all.enumerate().map(|(at, what)| (if at == 0 { "  registers" } else { "" }, what)));
        }
        rows.extend(self.findings.iter().flat_map(PluginFinding::rows));
        let head = one_line(&format!("{}: {state}", self.id));
        if rows.is_empty() { head } else { format!("{head}\n{}", table_of(rows).fit(render::width())) }
    }
}

/// The result for all plugins.
struct PluginChecks {
    /// Number of enabled plugins.
    on: usize,
    /// The Node that runs OpenClaw plugins, if one of them is enabled.
    node: Option<Result<String, String>>,
    checkups: Vec<PluginCheck>,
    /// Findings that do not concern an enabled plugin.
    other_findings: Vec<PluginFinding>,
}

/// Findings about plugins, for `homard doctor`.
pub(in crate::cmd) struct PluginSummary {
    pub(in crate::cmd) summary: String,
    /// Whether it is severe, what it is, and what to do.
    pub(in crate::cmd) findings: Vec<(bool, String, String)>,
}

/// Examines and starts all enabled plugins, and summarizes the findings.
pub(super) async fn summary(shown: &PluginList) -> PluginSummary {
    let exam = examine(shown).await;
    let mut summary = format!("plugins: {}, enabled: {}", shown.plugins.len(), exam.on);
    if let Some(Ok(node)) = &exam.node {
        summary.push_str(&format!(", Node: {node}"));
    }
    let told = |id: &str, finding: PluginFinding| {
        (finding.is_severe, one_line(&format!("{id}{}", finding.message)), one_line(&finding.remedy))
    };
    let mut findings = Vec::new();
    for checkup in exam.checkups {
        let id = format!("{}: ", checkup.id);
        findings.extend(checkup.findings.into_iter().map(|finding| told(&id, finding)));
    }
    findings.extend(exam.other_findings.into_iter().map(|finding| told("", finding)));
    PluginSummary { summary, findings }
}

async fn examine(shown: &PluginList) -> PluginChecks {
    let on: Vec<&(DiscoveredPlugin, PluginStatus)> =
        shown.plugins.iter().filter(|(_, status)| status.verdict.is_enabled).collect();
    let needs_node = on.iter().any(|(candidate, _)| candidate.manifest.run.is_none());
    let node = if needs_node { Some(node(&shown.setup).await) } else { None };
    let checkups = stream::iter(&on).map(|plugin| check_plugin(shown, plugin, node.as_ref())).buffered(CONCURRENCY);
    let mut checkups: Vec<PluginCheck> = checkups.collect().await;
    findings::duplicates(&mut checkups);
    let elsewhere = findings::missing(shown).into_iter().chain(findings::files(shown)).collect();
    PluginChecks { on: on.len(), node, checkups, other_findings: elsewhere }
}

/// Examines and starts all enabled plugins. Fails if one of them is unusable.
pub(super) async fn run(shown: &PluginList, wants_json: bool) -> Result<()> {
    let PluginChecks { on, node, checkups, other_findings: elsewhere } = examine(shown).await;
    if wants_json {
        render::print_json(&json!({
            "total": shown.plugins.len(), "on": on,
            "node": node.as_ref().map(|node| match node {
                Ok(node) => json!({"ok": true, "found": node, "needed": "22 or newer"}),
                Err(why) => json!({"ok": false, "message": why, "needed": "22 or newer"}),
            }),
            "plugins": checkups.iter().map(PluginCheck::document).collect::<Vec<_>>(),
            "findings": elsewhere.iter().map(PluginFinding::document).collect::<Vec<_>>(),
        }))?;
    } else {
        let mut parts = vec![format!("plugins: {}, enabled: {on}", shown.plugins.len())];
        if let Some(Ok(node)) = &node {
            parts[0].push_str(&one_line(&format!(", Node: {node} (22 or newer is required)")));
        }
        if on == 0 {
            parts.push("no plugin is enabled; enable one with: homard plugins enable ID".to_owned());
        }
        parts.extend(checkups.iter().map(PluginCheck::text));
        if !elsewhere.is_empty() {
            let rows = elsewhere.iter().flat_map(PluginFinding::rows).collect();
            parts.push(format!("other findings:\n{}", table_of(rows).fit(render::width())));
        }
        render::print(&parts.join("\n\n"))?;
    }
    let all = checkups.iter().flat_map(|checkup| &checkup.findings).chain(&elsewhere);
    match all.filter(|finding| finding.is_severe).count() {
        0 => Ok(()),
        problems => {
            let count = render::count(problems, "problem");
            Err(CliError::new("plugins", format!("not all enabled plugins can be used: {count}")).into())
        }
    }
}

/// Examines one plugin, and starts it if there is no severe finding.
async fn check_plugin(
    shown: &PluginList,
    plugin: &(DiscoveredPlugin, PluginStatus),
    node: Option<&Result<String, String>>,
) -> PluginCheck {
    let (candidate, status) = plugin;
    let mut findings = findings::findings(shown, candidate);
    if let Some(Err(why)) = node.filter(|_| candidate.manifest.run.is_none()) {
        let (what, to_do) = why.rsplit_once("; ").unwrap_or((why, "install Node 22 or newer"));
        findings.push(PluginFinding::severe(what, to_do));
    }
    let mut trial = None;
    if !findings.iter().any(|finding| finding.is_severe) {
        match trial::start(shown, &status.id).await {
            Ok(done) => {
                findings.extend(findings::denied(candidate, &done.denied));
                trial = Some(done);
            }
            Err(why) => findings.push(findings::start_failure(candidate, &why)),
        }
    }
    PluginCheck { id: status.id.clone(), trial, findings }
}
