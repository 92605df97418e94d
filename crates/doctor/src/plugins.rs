//! Examines each enabled plugin, and starts it briefly unless a gateway runs it. Every finding says what to do.

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
            "startMs": self.trial.as_ref().and_then(|trial| trial.took).map(|took| took.as_millis() as u64),
            "registered": self.trial.as_ref().map(|trial| &trial.registered),
            "denied": self.trial.as_ref().map(|trial| &trial.denied),
        })
    }

    fn text(&self) -> String {
        let duration = self.trial.as_ref().and_then(|trial| trial.took).map(homard_render::duration);
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
    examine(&PluginList::find(loaded, &context.paths)).await.report()
}

/// Examines all enabled plugins and starts none. `running` is their state in this gateway.
pub(crate) async fn check_running(context: &CheckContext, mut running: Vec<PluginStatus>) -> CheckReport {
    let Some(loaded) = &context.loaded else { return CheckReport::without_config() };
    let list = PluginList::find(loaded, &context.paths);
    let node = needed_node(&list).await;
    let checks = enabled(&list).map(|(candidate, status)| {
        let at = running.iter().position(|known| known.id == status.id);
        let state = at.map(|at| running.swap_remove(at));
        let started = state.map_or(Ok(None), trial::result);
        with_start(candidate, inspect(&list, candidate, node.as_ref()), started)
    });
    PluginChecks::new(&list, checks.collect(), node).report()
}

/// Examines and starts all enabled plugins.
pub async fn examine(list: &PluginList) -> PluginChecks {
    let node = needed_node(list).await;
    let checks = stream::iter(enabled(list))
        .map(|(candidate, status)| check_plugin(list, candidate, status, node.as_ref()))
        .buffered(CONCURRENCY);
    let checks: Vec<PluginCheck> = checks.collect().await;
    PluginChecks::new(list, checks, node)
}

fn enabled(list: &PluginList) -> impl Iterator<Item = &(DiscoveredPlugin, PluginStatus)> {
    list.plugins.iter().filter(|(_, status)| status.verdict.is_enabled)
}

/// Returns the Node that runs OpenClaw plugins, if one of them is enabled.
async fn needed_node(list: &PluginList) -> Option<Result<String, String>> {
    let is_needed = enabled(list).any(|(candidate, _)| candidate.manifest.run.is_none());
    if is_needed { Some(node(&list.setup).await) } else { None }
}

impl PluginChecks {
    fn new(list: &PluginList, mut checks: Vec<PluginCheck>, node: Option<Result<String, String>>) -> Self {
        findings::duplicates(&mut checks);
        let other_findings = findings::missing(list).into_iter().chain(findings::invalid_files(list)).collect();
        Self { total: list.plugins.len(), enabled: checks.len(), node, checks, other_findings }
    }

    /// Returns the result as a report of `homard doctor`.
    fn report(&self) -> CheckReport {
        let mut summary = self.head();
        if let Some(Ok(node)) = &self.node {
            summary.push_str(&format!(", Node: {node}"));
        }
        let of_plugins = self.checks.iter().flat_map(|check| {
            let id = &check.id;
            check.findings.iter().map(move |finding| finding.for_doctor(&format!("{id}: ")))
        });
        let others = self.other_findings.iter().map(|finding| finding.for_doctor(""));
        CheckReport::new(summary, of_plugins.chain(others).collect())
    }

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
    let findings = inspect(list, candidate, node);
    let started = if findings.iter().any(|finding| finding.is_severe) {
        Ok(None)
    } else {
        trial::start(list, &status.id).await.map(Some)
    };
    with_start(candidate, findings, started)
}

/// Returns the findings about a plugin that need no start.
fn inspect(
    list: &PluginList,
    candidate: &DiscoveredPlugin,
    node: Option<&Result<String, String>>,
) -> Vec<PluginFinding> {
    let mut findings = findings::findings(list, candidate);
    if let Some(Err(why)) = node.filter(|_| candidate.manifest.run.is_none()) {
        let (message, remedy) = why.rsplit_once("; ").unwrap_or((why, "install Node 22 or newer"));
        findings.push(PluginFinding::severe(message, remedy));
    }
    findings
}

/// Adds the result of a plugin's start. A plugin with a severe finding was not started, and that finding says why.
fn with_start(
    candidate: &DiscoveredPlugin,
    mut findings: Vec<PluginFinding>,
    started: Result<Option<StartTrial>, String>,
) -> PluginCheck {
    let trial = match started {
        Ok(trial) => trial,
        Err(_) if findings.iter().any(|finding| finding.is_severe) => None,
        Err(why) => {
            findings.push(findings::start_failure(candidate, &why));
            None
        }
    };
    if let Some(trial) = &trial {
        findings.extend(findings::denied(candidate, &trial.denied));
    }
    PluginCheck { id: candidate.manifest.id.clone(), trial, findings }
}
