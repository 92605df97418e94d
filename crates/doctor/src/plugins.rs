//! Examines each enabled plugin and starts it briefly. Every finding says what to do.

mod findings;
mod trial;

use futures_util::{StreamExt as _, stream};
use homard_app::plugins::PluginList;
use homard_plugins::{DiscoveredPlugin, PluginStatus};
use homard_render::{one_line, plugins::table_of};
use serde_json::{Value, json};

use self::trial::StartTrial;
use crate::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};

pub use self::trial::node;

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
    fn severe(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { is_severe: true, message: message.into(), remedy: remedy.into() }
    }

    fn note(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { is_severe: false, ..Self::severe(message, remedy) }
    }

    /// Returns the finding as one of `homard doctor`.
    fn for_doctor(&self, prefix: &str) -> DoctorFinding {
        let (message, remedy) = (one_line(&format!("{prefix}{}", self.message)), one_line(&self.remedy));
        if self.is_severe { DoctorFinding::problem(message, remedy) } else { DoctorFinding::note(message, remedy) }
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
#[derive(Debug)]
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
        let duration = self.trial.as_ref().map(|trial| homard_render::duration(trial.took));
        let state = match (self.is_usable(), duration) {
            (true, Some(duration)) => format!("works, ready after {duration}"),
            (true, None) => "was not started".to_owned(),
            (false, _) => "cannot be used".to_owned(),
        };
        let mut rows = Vec::new();
        if let Some(trial) = self.trial.as_ref().filter(|_| self.is_usable()) {
            let none = trial.registered.is_empty().then(|| "nothing".to_owned());
            let all = none.into_iter().chain(trial.registered.iter().cloned());
            rows.extend(all.enumerate().map(|(at, capability)| (if at == 0 { "  registers" } else { "" }, capability)));
        }
        rows.extend(self.findings.iter().flat_map(PluginFinding::rows));
        let head = one_line(&format!("{}: {state}", self.id));
        if rows.is_empty() { head } else { format!("{head}\n{}", table_of(rows).fit(homard_render::width())) }
    }
}

/// The result for all plugins.
#[derive(Debug)]
pub struct PluginChecks {
    /// Number of plugins.
    total: usize,
    /// Number of enabled plugins.
    enabled: usize,
    /// The Node that runs OpenClaw plugins, if one of them is enabled.
    node: Option<Result<String, String>>,
    checks: Vec<PluginCheck>,
    /// Findings that do not concern an enabled plugin.
    other_findings: Vec<PluginFinding>,
}

/// Examines and starts all enabled plugins, as `homard plugins doctor` does.
pub async fn check(context: &CheckContext) -> CheckReport {
    let Some(loaded) = &context.loaded else { return CheckReport::without_config() };
    let checks = examine(&PluginList::find(loaded, &context.paths)).await;
    let mut summary = checks.head();
    if let Some(Ok(node)) = &checks.node {
        summary.push_str(&format!(", Node: {node}"));
    }
    let of_plugins = checks.checks.iter().flat_map(|check| {
        let id = &check.id;
        check.findings.iter().map(move |finding| finding.for_doctor(&format!("{id}: ")))
    });
    let others = checks.other_findings.iter().map(|finding| finding.for_doctor(""));
    CheckReport::new(summary, of_plugins.chain(others).collect())
}

/// Examines and starts all enabled plugins.
pub async fn examine(list: &PluginList) -> PluginChecks {
    let enabled: Vec<&(DiscoveredPlugin, PluginStatus)> =
        list.plugins.iter().filter(|(_, status)| status.verdict.is_enabled).collect();
    let needs_node = enabled.iter().any(|(candidate, _)| candidate.manifest.run.is_none());
    let node = if needs_node { Some(node(&list.setup).await) } else { None };
    let checks = stream::iter(&enabled)
        .map(|(candidate, status)| check_plugin(list, candidate, status, node.as_ref()))
        .buffered(CONCURRENCY);
    let mut checks: Vec<PluginCheck> = checks.collect().await;
    findings::duplicates(&mut checks);
    let other_findings = findings::missing(list).into_iter().chain(findings::invalid_files(list)).collect();
    PluginChecks { total: list.plugins.len(), enabled: enabled.len(), node, checks, other_findings }
}

impl PluginChecks {
    /// Returns the number of problems that make a plugin unusable.
    pub fn problem_count(&self) -> usize {
        let all = self.checks.iter().flat_map(|check| &check.findings).chain(&self.other_findings);
        all.filter(|finding| finding.is_severe).count()
    }

    /// Returns the result as JSON.
    pub fn document(&self) -> Value {
        json!({
            "total": self.total, "on": self.enabled,
            "node": self.node.as_ref().map(|node| match node {
                Ok(node) => json!({"ok": true, "found": node, "needed": "22 or newer"}),
                Err(why) => json!({"ok": false, "message": why, "needed": "22 or newer"}),
            }),
            "plugins": self.checks.iter().map(PluginCheck::document).collect::<Vec<_>>(),
            "findings": self.other_findings.iter().map(PluginFinding::document).collect::<Vec<_>>(),
        })
    }

    /// Formats the result for people.
    pub fn text(&self) -> String {
        let mut parts = vec![self.head()];
        if let Some(Ok(node)) = &self.node {
            parts[0].push_str(&one_line(&format!(", Node: {node} (22 or newer is required)")));
        }
        if self.enabled == 0 {
            parts.push("no plugin is enabled; enable one with: homard plugins enable ID".to_owned());
        }
        parts.extend(self.checks.iter().map(PluginCheck::text));
        if !self.other_findings.is_empty() {
            let rows = self.other_findings.iter().flat_map(PluginFinding::rows).collect();
            parts.push(format!("other findings:\n{}", table_of(rows).fit(homard_render::width())));
        }
        parts.join("\n\n")
    }

    fn head(&self) -> String {
        format!("plugins: {}, enabled: {}", self.total, self.enabled)
    }
}

/// Examines one plugin, and starts it if there is no severe finding.
async fn check_plugin(
    list: &PluginList,
    candidate: &DiscoveredPlugin,
    status: &PluginStatus,
    node: Option<&Result<String, String>>,
) -> PluginCheck {
    let mut findings = findings::findings(list, candidate);
    if let Some(Err(why)) = node.filter(|_| candidate.manifest.run.is_none()) {
        let (message, remedy) = why.rsplit_once("; ").unwrap_or((why, "install Node 22 or newer"));
        findings.push(PluginFinding::severe(message, remedy));
    }
    let mut trial = None;
    if !findings.iter().any(|finding| finding.is_severe) {
        match trial::start(list, &status.id).await {
            Ok(started) => {
                findings.extend(findings::denied(candidate, &started.denied));
                trial = Some(started);
            }
            Err(why) => findings.push(findings::start_failure(candidate, &why)),
        }
    }
    PluginCheck { id: status.id.clone(), trial, findings }
}
