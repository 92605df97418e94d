//! Context report: the parts of a prompt and their sizes, in the format of OpenClaw's `systemPromptReport`.
//!
//! Sizes are in characters. Fields that OpenClaw does not have are at the end; OpenClaw's own reports can be read, too.

mod format;

use std::collections::BTreeMap;

use homard_model::{ToolSpec, tokens};
use homard_proto::{SessionId, SessionKey};
use homard_store::timeline::PromptCuts;
use homard_workspace::PageBody;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shortening;
use crate::{
    input::PromptContext,
    sections::{PROJECT_CONTEXT, SKILLS, SystemPrompt, TOOLING, files, skills},
};

pub use format::format_report;

/// Parts of a prompt and their sizes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContextReport {
    /// Always `estimate`: of the prompt that the next run would send.
    pub source: String,
    /// Milliseconds since the epoch.
    pub generated_at: u64,
    /// Id of the transcript.
    pub session_id: String,
    /// Key of the session.
    pub session_key: String,
    /// Provider of the model.
    pub provider: String,
    /// Model.
    pub model: String,
    /// Working directory of tools.
    pub workspace_dir: String,
    /// Maximum characters of a file.
    pub bootstrap_max_chars: usize,
    /// Sandbox of the tools.
    pub sandbox: SandboxReport,
    /// Size of the prompt.
    pub system_prompt: PromptSizes,
    /// Files in the prompt.
    pub injected_workspace_files: Vec<FileReport>,
    /// Skills in the prompt.
    pub skills: SkillsReport,
    /// Tools of the request.
    pub tools: ToolsReport,
    /// Context window in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Sections of the prompt, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<SectionSize>,
    /// Token counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<RequestTokens>,
    /// What is omitted or truncated, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortened: Option<PromptCuts>,
}

/// Token counts of a request, measured in the same way as for the decision whether to compact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestTokens {
    /// Tokens of the system prompt.
    pub system_prompt: u64,
    /// Tokens of the tool definitions.
    pub tools: u64,
    /// Tokens of the whole request, including the history; `None` if there is no history yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
}

impl RequestTokens {
    /// Returns the tokens of everything except the history.
    pub fn overhead(self) -> u64 {
        self.system_prompt + self.tools
    }
}

/// Sandbox of a run's tools.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxReport {
    /// Sandbox mode, as configured: `off`, `non-main` or `all`.
    pub mode: String,
    /// True if commands run in a sandbox, because of `mode` or because of the setting `tools.exec.sandbox`.
    pub sandboxed: bool,
    /// True if the session is sandboxed because of `mode`, so that it uses a sandbox workspace.
    pub workspace: bool,
}

/// Sizes of a system prompt, in characters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PromptSizes {
    /// Characters of the whole prompt.
    pub chars: usize,
    /// Characters of the section with the workspace files.
    pub project_context_chars: usize,
    /// Characters of all other sections.
    pub non_project_context_chars: usize,
}

/// A file in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileReport {
    /// Name.
    pub name: String,
    /// Path.
    pub path: String,
    /// True if it does not exist.
    pub missing: bool,
    /// Size of the file.
    pub raw_chars: usize,
    /// Size in the prompt, including remarks.
    pub injected_chars: usize,
    /// True if it was truncated.
    pub truncated: bool,
    /// Why it could not be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Skills in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SkillsReport {
    /// Size of the section.
    pub prompt_chars: usize,
    /// Each skill.
    pub entries: Vec<SkillReport>,
}

/// A skill in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SkillReport {
    /// Name.
    pub name: String,
    /// Size of its text.
    pub block_chars: usize,
}

/// Tools of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolsReport {
    /// Size of the list in the prompt.
    pub list_chars: usize,
    /// Size of the argument schemas.
    pub schema_chars: usize,
    /// Each tool.
    pub entries: Vec<ToolReport>,
    /// Names of tools that a lean prompt omits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A tool of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolReport {
    /// Name.
    pub name: String,
    /// Size of the description.
    pub summary_chars: usize,
    /// Size of the argument schema.
    pub schema_chars: usize,
    /// Number of arguments, if known.
    pub properties_count: Option<usize>,
}

/// A section of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SectionSize {
    /// Name.
    pub name: String,
    /// Size.
    pub chars: usize,
    /// True if it is stable from run to run.
    pub stable: bool,
}

/// Parameters of a report.
#[derive(Debug, Clone, Copy)]
pub struct ReportParams<'a> {
    /// Current time in milliseconds since the epoch.
    pub at: u64,
    /// Id of the transcript.
    pub session: &'a SessionId,
    /// Key of the session.
    pub key: &'a SessionKey,
    /// Provider and model.
    pub model: (&'a str, &'a str),
    /// Context window in tokens.
    pub window: Option<u64>,
    /// Maximum characters of a file.
    pub page_cap: usize,
    /// Sandbox mode: `off`, `non-main` or `all`.
    pub sandbox: &'a str,
    /// True if commands are sandboxed in every session.
    pub confines_commands: bool,
}

impl ContextReport {
    /// Describes what the prompt omits or truncates, why, and which setting changes that; `None` if nothing.
    pub fn shortening_text(&self) -> Option<String> {
        let (shortened, model) = (self.shortened.as_ref()?, format!("{}/{}", self.provider, self.model));
        Some(format!("{}; {}", shortening::explain(shortened, &model), shortening::remedy(shortened, &model)))
    }

    /// Builds the report of a rendered prompt.
    pub fn of(context: &PromptContext<'_>, prompt: &SystemPrompt, params: &ReportParams<'_>) -> Self {
        let parts: BTreeMap<_, _> = prompt.parts.iter().map(|part| (part.name, part.chars)).collect();
        let chars_of = |name| parts.get(name).copied().unwrap_or(0);
        let chars = prompt.parts.iter().map(|part| part.chars).sum();
        let project_context_chars = chars_of(PROJECT_CONTEXT);
        Self {
            source: "estimate".to_owned(),
            generated_at: params.at,
            session_id: params.session.to_string(),
            session_key: params.key.to_string(),
            provider: params.model.0.to_owned(),
            model: params.model.1.to_owned(),
            workspace_dir: context.stable.workspace.display().to_string(),
            bootstrap_max_chars: params.page_cap,
            sandbox: SandboxReport {
                mode: params.sandbox.to_owned(),
                sandboxed: context.stable.sandbox.is_some() || params.confines_commands,
                workspace: context.stable.sandbox.is_some(),
            },
            system_prompt: PromptSizes {
                chars,
                project_context_chars,
                non_project_context_chars: chars - project_context_chars,
            },
            // If the prompt mode omits a section, the prompt contains none of its files or skills.
            injected_workspace_files: if project_context_chars > 0 { files(context) } else { Vec::new() },
            skills: match chars_of(SKILLS) {
                0 => SkillsReport::default(),
                prompt_chars => SkillsReport { prompt_chars, entries: skill_reports(context) },
            },
            tools: tools(context.stable.tools, chars_of(TOOLING)),
            context_window: params.window,
            parts: prompt
                .parts
                .iter()
                .map(|part| SectionSize { name: part.name.to_owned(), chars: part.chars, stable: part.is_stable })
                .collect(),
            tokens: Some(RequestTokens {
                system_prompt: tokens::estimate(&prompt.text),
                tools: tokens::of_tools(context.stable.tools),
                context: None,
            }),
            shortened: None,
        }
    }
}

/// Reports on each workspace file. A page is such a file as it was loaded for the prompt: whole, cut, or only a note
/// that it is missing or unusable.
fn files(context: &PromptContext<'_>) -> Vec<FileReport> {
    let file = |shown: files::ShownFile<'_>| {
        let (missing, problem) = match &shown.page.body {
            PageBody::Whole(_) | PageBody::Cut(_) => (false, None),
            PageBody::Missing => (true, None),
            PageBody::Unusable(reason) => (false, Some(reason.clone())),
        };
        FileReport {
            name: shown.page.name.to_string(),
            path: shown.page.path.display().to_string(),
            missing,
            raw_chars: shown.page.chars,
            injected_chars: shown.text.chars().count(),
            truncated: shown.is_cut,
            problem,
        }
    };
    files::shown(context.stable.files, context.wording).into_iter().map(file).collect()
}

fn skill_reports(context: &PromptContext<'_>) -> Vec<SkillReport> {
    let shown = skills::shown_skills(context.stable.skills, context.wording).into_iter();
    shown.map(|skill| SkillReport { block_chars: skill.text.chars().count(), name: skill.name }).collect()
}

fn tools(specs: &[ToolSpec], list_chars: usize) -> ToolsReport {
    let tool = |spec: &ToolSpec| ToolReport {
        name: spec.name.clone(),
        summary_chars: spec.description.trim().chars().count(),
        schema_chars: spec.parameters.to_string().chars().count(),
        properties_count: spec.parameters.get("properties").and_then(Value::as_object).map(serde_json::Map::len),
    };
    let entries: Vec<_> = specs.iter().map(tool).collect();
    let schema_chars = entries.iter().map(|tool| tool.schema_chars).sum();
    ToolsReport { list_chars, schema_chars, entries, left_out: Vec::new() }
}

#[cfg(test)]
mod tests;
