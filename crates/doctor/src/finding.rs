//! Results of checks, and their output.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::fix::Fix;

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Short description of the state.
    pub summary: String,
    pub findings: Vec<DoctorFinding>,
    /// True if the check could not be made.
    is_skipped: bool,
}

impl CheckReport {
    pub fn new(summary: impl Into<String>, findings: Vec<DoctorFinding>) -> Self {
        Self { summary: summary.into(), findings, is_skipped: false }
    }

    /// Returns the report of a check that needs a config when there is no valid one.
    pub fn without_config() -> Self {
        let summary = "not checked: the config is not valid".to_owned();
        Self { summary, findings: Vec::new(), is_skipped: true }
    }

    /// Returns true if the user has to act.
    pub fn needs_action(&self) -> bool {
        self.findings.iter().any(DoctorFinding::needs_action)
    }

    /// Returns the report as JSON.
    pub fn document(&self, check: &str) -> Value {
        let findings: Vec<Value> = self.findings.iter().map(DoctorFinding::document).collect();
        let summary = homard_render::strip_controls(&self.summary);
        let is_ok = !self.needs_action() && !self.is_skipped;
        let mut document = json!({"check": check, "ok": is_ok, "summary": summary, "findings": findings});
        if self.is_skipped {
            document["skipped"] = true.into();
        }
        document
    }

    /// Returns the rows of the report: the check, a status word, and a sentence.
    pub fn rows(&self, check: &str) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        if !self.findings.iter().any(|finding| finding.level == FindingSeverity::Problem) {
            let status = if self.is_skipped { "skipped" } else { "ok" };
            rows.push([status, &self.summary].map(str::to_owned));
        }
        rows.extend(self.findings.iter().flat_map(DoctorFinding::rows));
        let line = |(at, [status, text]): (usize, [String; 2])| {
            let text = homard_render::strip_controls(&text).replace('\n', " ");
            vec![if at == 0 { check } else { "" }.to_owned(), status, text]
        };
        rows.into_iter().enumerate().map(line).collect()
    }
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingSeverity {
    /// The user has to act.
    Problem,
    /// For information.
    Note,
}

/// A problem or a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorFinding {
    pub level: FindingSeverity,
    /// Description; a complete sentence that names the subject.
    pub message: String,
    /// The file or directory, if it is one.
    pub file: Option<PathBuf>,
    /// What the user should do.
    pub remedy: String,
    /// The action of `--fix`, if it is safe.
    pub fix: Option<Fix>,
    /// The result of that action.
    pub fixed: Option<Result<String, String>>,
}

impl DoctorFinding {
    pub fn problem(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (message, remedy) = (message.into(), remedy.into());
        Self { level: FindingSeverity::Problem, message, file: None, remedy, fix: None, fixed: None }
    }

    pub fn note(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: FindingSeverity::Note, ..Self::problem(message, remedy) }
    }

    pub fn at(self, file: impl Into<PathBuf>) -> Self {
        Self { file: Some(file.into()), ..self }
    }

    pub fn fixed_by(self, fix: Fix) -> Self {
        Self { fix: Some(fix), ..self }
    }

    /// Returns true if the user has to act.
    pub fn needs_action(&self) -> bool {
        self.level == FindingSeverity::Problem && !matches!(self.fixed, Some(Ok(_)))
    }

    fn document(&self) -> Value {
        let level = match self.level {
            FindingSeverity::Problem => "wrong",
            FindingSeverity::Note => "note",
        };
        let mut document = json!({
            "level": level, "message": homard_render::strip_controls(&self.message), "toDo": homard_render::strip_controls(&self.remedy),
            "fixable": self.fix.is_some(),
        });
        if let Some(place) = &self.file {
            document["place"] = json!(place);
        }
        match &self.fixed {
            Some(Ok(action)) => document["fixed"] = homard_render::strip_controls(action).into(),
            Some(Err(error)) => document["notFixed"] = homard_render::strip_controls(error).into(),
            None => {}
        }
        document
    }

    fn rows(&self) -> Vec<[String; 2]> {
        let level = match self.level {
            FindingSeverity::Problem => "wrong",
            FindingSeverity::Note => "note",
        };
        let help = if self.fix.is_some() && self.fixed.is_none() { ", or: homard doctor --fix" } else { "" };
        let mut rows = vec![[level.to_owned(), self.message.clone()]];
        match &self.fixed {
            Some(Ok(action)) => rows.push(["fixed".to_owned(), action.clone()]),
            Some(Err(error)) => {
                rows.push(["failed".to_owned(), error.clone()]);
                rows.push(["to do".to_owned(), self.remedy.clone()]);
            }
            None => rows.push(["to do".to_owned(), format!("{}{help}", self.remedy)]),
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_shows_its_message_and_remedy_until_it_is_fixed() {
        let problem = DoctorFinding::problem("a is open", "close it").fixed_by(Fix::Remove("/a".into()));
        let note = DoctorFinding::note("b is odd", "look at it").at("/b");
        let mut report = CheckReport::new("all is well", vec![problem, note]);
        let rows = |report: &CheckReport| report.rows("x").iter().map(|row| row.join("|")).collect::<Vec<_>>();
        let note_rows = ["|note|b is odd", "|to do|look at it"];
        let open = ["x|wrong|a is open", "|to do|close it, or: homard doctor --fix"];
        assert_eq!(rows(&report), [open, note_rows].concat());
        assert!(report.needs_action());
        report.findings[0].fixed = Some(Ok("closed".to_owned()));
        let closed = ["x|wrong|a is open", "|fixed|closed"];
        assert_eq!(rows(&report), [closed, note_rows].concat());
        assert!(!report.needs_action());
        assert_eq!(
            report.document("x"),
            json!({"check": "x", "ok": true, "summary": "all is well", "findings": [
                {"level": "wrong", "message": "a is open", "toDo": "close it", "fixable": true, "fixed": "closed"},
                {"level": "note", "message": "b is odd", "toDo": "look at it", "fixable": false, "place": "/b"},
            ]})
        );
    }
}
