//! `homard plugins doctor`: examines each enabled plugin and starts it briefly. Every finding says what to do.

mod look;
mod trial;

use anyhow::Result;
use futures_util::{StreamExt as _, stream};
use homard_plugins::{Candidate, Status};
use serde_json::{Value, json};

use self::trial::Trial;
pub(in crate::cmd) use self::trial::node;
use super::{
    Shown,
    words::{count, one_line, table_of},
};
use crate::{failure::Failure, render};

/// Number of plugins that are tried concurrently.
const AT_ONCE: usize = 4;

/// A problem or a note.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    /// True if it makes a plugin unusable.
    is_grave: bool,
    what: String,
    to_do: String,
}

impl Finding {
    fn grave(what: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { is_grave: true, what: what.into(), to_do: to_do.into() }
    }

    fn odd(what: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { is_grave: false, ..Self::grave(what, to_do) }
    }

    fn document(&self) -> Value {
        let level = if self.is_grave { "error" } else { "warning" };
        json!({"level": level, "message": one_line(&self.what), "toDo": one_line(&self.to_do)})
    }

    fn rows(&self) -> [(&'static str, String); 2] {
        [(if self.is_grave { "  wrong" } else { "  odd" }, self.what.clone()), ("  to do", self.to_do.clone())]
    }
}

/// The result for one plugin.
struct Checkup {
    id: String,
    trial: Option<Trial>,
    findings: Vec<Finding>,
}

impl Checkup {
    fn is_usable(&self) -> bool {
        !self.findings.iter().any(|finding| finding.is_grave)
    }

    fn document(&self) -> Value {
        let findings: Vec<Value> = self.findings.iter().map(Finding::document).collect();
        json!({
            "id": self.id, "ok": self.is_usable(), "findings": findings,
            "startMs": self.trial.as_ref().map(|trial| trial.took.as_millis() as u64),
            "registered": self.trial.as_ref().map(|trial| &trial.registered),
            "denied": self.trial.as_ref().map(|trial| &trial.denied),
        })
    }

    fn text(&self) -> String {
        let took = self.trial.as_ref().map(|trial| trial.took.as_millis());
        let state = match (self.is_usable(), took) {
            (true, Some(took)) => format!("works, ready after {took} ms"),
            (true, None) => "was not started".to_owned(),
            (false, _) => "cannot be used".to_owned(),
        };
        let mut rows = Vec::new();
        if let Some(trial) = self.trial.as_ref().filter(|_| self.is_usable()) {
            let none = trial.registered.is_empty().then(|| "nothing".to_owned());
            let all = none.into_iter().chain(trial.registered.iter().cloned());
            rows.extend(all.enumerate().map(|(at, what)| (if at == 0 { "  registers" } else { "" }, what)));
        }
        rows.extend(self.findings.iter().flat_map(Finding::rows));
        let head = one_line(&format!("{}: {state}", self.id));
        if rows.is_empty() { head } else { format!("{head}\n{}", table_of(rows)) }
    }
}

/// The result for all plugins.
struct Exam {
    /// Number of enabled plugins.
    on: usize,
    /// The Node that runs OpenClaw plugins, if one of them is enabled.
    node: Option<Result<String, String>>,
    checkups: Vec<Checkup>,
    /// Findings that do not concern an enabled plugin.
    elsewhere: Vec<Finding>,
}

/// Findings about plugins, for `homard doctor`.
pub(in crate::cmd) struct Summary {
    pub(in crate::cmd) summary: String,
    /// Whether it is severe, what it is, and what to do.
    pub(in crate::cmd) findings: Vec<(bool, String, String)>,
}

/// Examines and starts all enabled plugins, and summarizes the findings.
pub(super) async fn summary(shown: &Shown) -> Summary {
    let exam = examine(shown).await;
    let mut summary = format!("plugins: {}, on: {}", shown.plugins.len(), exam.on);
    if let Some(Ok(node)) = &exam.node {
        summary.push_str(&format!(", Node: {node}"));
    }
    let told = |id: &str, finding: Finding| {
        (finding.is_grave, one_line(&format!("{id}{}", finding.what)), one_line(&finding.to_do))
    };
    let mut findings = Vec::new();
    for checkup in exam.checkups {
        let id = format!("{}: ", checkup.id);
        findings.extend(checkup.findings.into_iter().map(|finding| told(&id, finding)));
    }
    findings.extend(exam.elsewhere.into_iter().map(|finding| told("", finding)));
    Summary { summary, findings }
}

async fn examine(shown: &Shown) -> Exam {
    let on: Vec<&(Candidate, Status)> = shown.plugins.iter().filter(|(_, status)| status.verdict.is_on).collect();
    let needs_node = on.iter().any(|(candidate, _)| candidate.manifest.run.is_none());
    let node = if needs_node { Some(node(&shown.setup).await) } else { None };
    let checkups = stream::iter(&on).map(|plugin| checkup(shown, plugin, node.as_ref())).buffered(AT_ONCE);
    let mut checkups: Vec<Checkup> = checkups.collect().await;
    look::namesakes(&mut checkups);
    let elsewhere = look::missing(shown).into_iter().chain(look::files(shown)).collect();
    Exam { on: on.len(), node, checkups, elsewhere }
}

/// Examines and starts all enabled plugins. Fails if one of them is unusable.
pub(super) async fn run(shown: &Shown, wants_json: bool) -> Result<()> {
    let Exam { on, node, checkups, elsewhere } = examine(shown).await;
    if wants_json {
        render::print_json(&json!({
            "total": shown.plugins.len(), "on": on,
            "node": node.as_ref().map(|node| match node {
                Ok(node) => json!({"ok": true, "found": node, "needed": "22 or newer"}),
                Err(why) => json!({"ok": false, "message": why, "needed": "22 or newer"}),
            }),
            "plugins": checkups.iter().map(Checkup::document).collect::<Vec<_>>(),
            "findings": elsewhere.iter().map(Finding::document).collect::<Vec<_>>(),
        }))?;
    } else {
        let mut parts = vec![format!("plugins: {}, on: {on}", shown.plugins.len())];
        if let Some(Ok(node)) = &node {
            parts[0].push_str(&one_line(&format!(", Node: {node} (22 or newer is needed)")));
        }
        if on == 0 {
            parts.push("none is on; to switch one on: homard plugins enable ID".to_owned());
        }
        parts.extend(checkups.iter().map(Checkup::text));
        if !elsewhere.is_empty() {
            let rows = elsewhere.iter().flat_map(Finding::rows).collect();
            parts.push(format!("elsewhere:\n{}", table_of(rows)));
        }
        render::print(&parts.join("\n\n"))?;
    }
    let all = checkups.iter().flat_map(|checkup| &checkup.findings).chain(&elsewhere);
    match all.filter(|finding| finding.is_grave).count() {
        0 => Ok(()),
        problems => {
            let count = count(problems, "problem", "problems");
            Err(Failure::new("plugins", format!("not all plugins that are on can be used: {count}")).into())
        }
    }
}

/// Examines one plugin, and starts it if there is no severe finding.
async fn checkup(shown: &Shown, plugin: &(Candidate, Status), node: Option<&Result<String, String>>) -> Checkup {
    let (candidate, status) = plugin;
    let mut findings = look::at(shown, candidate);
    if let Some(Err(why)) = node.filter(|_| candidate.manifest.run.is_none()) {
        let (what, to_do) = why.rsplit_once("; ").unwrap_or((why, "install Node 22 or newer"));
        findings.push(Finding::grave(what, to_do));
    }
    let mut trial = None;
    if !findings.iter().any(|finding| finding.is_grave) {
        match trial::start(shown, &status.id).await {
            Ok(done) => {
                findings.extend(look::denied(candidate, &done.denied));
                trial = Some(done);
            }
            Err(why) => findings.push(look::no_start(candidate, &why)),
        }
    }
    Checkup { id: status.id.clone(), trial, findings }
}
