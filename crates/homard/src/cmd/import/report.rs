//! The report of an import or a dry run.

use std::path::Path;

use homard_import::{DefaultDifference, ImportAction, ImportPlan};
use serde_json::{Value, json};

use crate::render::{self, Table};

const FATES: [(&str, ImportAction); 5] = [
    ("new", ImportAction::New),
    ("updated", ImportAction::Updated),
    ("same", ImportAction::Same),
    ("kept", ImportAction::Kept),
    ("broken", ImportAction::Broken),
];

/// The report of an import or a dry run.
pub(in crate::cmd) struct ImportReport<'a> {
    pub(in crate::cmd) plan: &'a ImportPlan,
    pub(in crate::cmd) source: &'a Path,
    pub(in crate::cmd) state: &'a Path,
    pub(in crate::cmd) is_dry: bool,
}

impl ImportReport<'_> {
    fn counts(&self) -> [(&'static str, &[ImportAction]); 10] {
        let counts = &self.plan.counts;
        [
            ("config", &counts.config),
            ("sessions", &counts.sessions),
            ("transcripts", &counts.transcripts),
            ("auth profiles", &counts.auth_profiles),
            ("skills", &counts.skills),
            ("cron jobs", &counts.cron_jobs),
            ("approvals", &counts.approvals),
            ("senders", &counts.senders),
            ("pairing", &counts.requests),
            ("devices", &counts.devices),
        ]
    }

    /// Returns the report as JSON.
    pub(in crate::cmd) fn document(&self) -> Value {
        let plan = self.plan;
        let mut document = json!({
            "ok": true, "dryRun": self.is_dry, "source": self.source, "state": self.state,
            "defaultsWritten": plan.defaults_are_written, "warnings": plan.warnings,
        });
        for (name, actions) in self.counts() {
            let name = match name {
                "auth profiles" => "authProfiles",
                "cron jobs" => "cronJobs",
                "pairing" => "pairingRequests",
                name => name,
            };
            document[name] =
                FATES.iter().map(|(label, action)| ((*label).to_owned(), json!(count(actions, *action)))).collect();
        }
        let defaults = plan.defaults.iter();
        let defaults =
            defaults.map(|default| json!({"key": default.key, "openclaw": default.theirs, "homard": default.ours}));
        document["defaults"] = defaults.collect();
        document["notImported"] =
            plan.not_imported.iter().map(|(name, why)| json!({"name": name, "why": why})).collect();
        document
    }

    /// Formats the report for people.
    pub(in crate::cmd) fn text(&self) -> String {
        let (source, state, plan) = (self.source.display(), self.state.display(), self.plan);
        let mut parts = vec![if self.is_dry {
            format!("An import from {source} to {state} would have the following result; nothing was changed.")
        } else {
            format!("Imported from {source} to {state}.")
        }];
        let titles = std::iter::once(String::new()).chain(FATES.map(|(label, _)| label.to_uppercase()));
        let row = |(name, actions): (&str, &[ImportAction])| {
            let counts = FATES.map(|(_, action)| count(actions, action).to_string());
            std::iter::once(name.to_owned()).chain(counts).collect()
        };
        let rows = std::iter::once(titles.collect()).chain(self.counts().map(row)).collect();
        parts.push(Table::list(rows).fit(render::width()));
        parts.extend(self.defaults());
        if !plan.warnings.is_empty() {
            parts.push(lines("Warnings:", plan.warnings.iter().cloned()));
        }
        if !plan.not_imported.is_empty() {
            parts.push(lines("Not imported:", plan.not_imported.iter().map(|(name, why)| format!("{name}: {why}"))));
        }
        if count(&plan.counts.cron_jobs, ImportAction::New) > 0 {
            parts.push(
                "While OpenClaw's gateway is running too, the imported jobs run twice; stop it, or run: openclaw cron disable ID"
                    .to_owned(),
            );
        }
        if !self.is_dry {
            parts.push("List the sessions with: homard sessions".to_owned());
        }
        parts.join("\n\n")
    }

    fn defaults(&self) -> Option<String> {
        let plan = self.plan;
        let title = match (plan.defaults.is_empty(), plan.defaults_are_written) {
            (true, _) => return None,
            (false, true) => "Defaults of OpenClaw that were written to the config because Homard's differ:",
            (false, false) => {
                "Settings that are not in the config and whose defaults differ (--write-defaults writes OpenClaw's):"
            }
        };
        let titles = ["SETTING", "OPENCLAW", "HOMARD"].map(str::to_owned).to_vec();
        let row = |default: &DefaultDifference| {
            let source_value = default.theirs.as_str().map_or_else(|| default.theirs.to_string(), str::to_owned);
            vec![default.key.to_owned(), source_value, default.ours.clone()]
        };
        let rows = std::iter::once(titles).chain(plan.defaults.iter().map(row)).collect();
        Some(format!("{title}\n{}", Table::list(rows).fit(render::width())))
    }
}

fn count(actions: &[ImportAction], wanted: ImportAction) -> usize {
    actions.iter().filter(|action| **action == wanted).count()
}

fn lines(title: &str, lines: impl Iterator<Item = String>) -> String {
    std::iter::once(title.to_owned()).chain(lines.map(|line| format!("- {line}"))).collect::<Vec<_>>().join("\n")
}
