//! What went into a prompt and how much each part weighs, in the shape of OpenClaw's `systemPromptReport`.
//!
//! Sizes are characters. Members that OpenClaw does not have are at the end; its own reports are read, too.

mod words;

use std::collections::BTreeMap;

use homard_model::{ToolSpec, tokens};
use homard_proto::{SessionId, SessionKey};
use homard_store::timeline::Shortened;
use homard_workspace::Body;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    prompt::{PROJECT_CONTEXT, Prompt, SKILLS, TOOLING, pages, skills},
    scene::Scene,
    shortening,
};

pub(crate) use words::words;

/// What went into a prompt, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Report {
    /// `run`: it is about a prompt that was sent. `estimate`: about one that would be.
    pub(crate) source: String,
    /// Milliseconds since the epoch.
    pub(crate) generated_at: u64,
    /// The transcript.
    pub(crate) session_id: String,
    /// The session.
    pub(crate) session_key: String,
    /// Who answers, and where.
    pub(crate) provider: String,
    /// Who answers.
    pub(crate) model: String,
    /// Where tools work.
    pub(crate) workspace_dir: String,
    /// How long a file may be.
    pub(crate) bootstrap_max_chars: usize,
    /// What confines the tools.
    pub(crate) sandbox: Confined,
    /// The prompt.
    pub(crate) system_prompt: Sums,
    /// The files in it.
    pub(crate) injected_workspace_files: Vec<File>,
    /// The skills in it.
    pub(crate) skills: Skills,
    /// The tools that go along with it.
    pub(crate) tools: Tools,
    /// How many tokens the model can read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context_window: Option<u64>,
    /// The sections of the prompt, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<Weight>,
    /// What all of it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<Tokens>,
    /// What is left out or cut, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shortened: Option<Shortened>,
}

/// What a request takes, by the measure that also says when a conversation is made short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Tokens {
    /// The prompt.
    pub(crate) system_prompt: u64,
    /// The tools.
    pub(crate) tools: u64,
    /// Everything, with the conversation; `None` if nothing was said yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<u64>,
}

impl Tokens {
    /// What is told besides the conversation.
    pub(crate) fn overhead(self) -> u64 {
        self.system_prompt + self.tools
    }
}

/// What confines the tools of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Confined {
    /// The setting: `off`, `non-main` or `all`.
    pub(crate) mode: String,
    /// Whether commands run in a sandbox here: because of the mode, or because `tools.exec.sandbox` holds them everywhere.
    pub(crate) sandboxed: bool,
    /// Whether the session is sandboxed by the mode, so that it works in a sandbox workspace.
    pub(crate) workspace: bool,
}

/// How long a prompt is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Sums {
    /// All of it.
    pub(crate) chars: usize,
    /// The files.
    pub(crate) project_context_chars: usize,
    /// The rest.
    pub(crate) non_project_context_chars: usize,
}

/// A file in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct File {
    /// Its name.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) path: String,
    /// Whether it is not there.
    pub(crate) missing: bool,
    /// How long it is.
    pub(crate) raw_chars: usize,
    /// How much of that the prompt has, with remarks.
    pub(crate) injected_chars: usize,
    /// Whether something was left out.
    pub(crate) truncated: bool,
    /// Why it could not be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// The skills in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Skills {
    /// All that is said about them.
    pub(crate) prompt_chars: usize,
    /// Each.
    pub(crate) entries: Vec<Skill>,
}

/// A skill in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Skill {
    /// Its name.
    pub(crate) name: String,
    /// All that is said about it.
    pub(crate) block_chars: usize,
}

/// The tools that go along with a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Tools {
    /// What the prompt says about them.
    pub(crate) list_chars: usize,
    /// The schemas of their arguments.
    pub(crate) schema_chars: usize,
    /// Each.
    pub(crate) entries: Vec<Tool>,
    /// Those that a lean prompt is without, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<String>,
}

/// A tool that goes along with a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Tool {
    /// Its name.
    pub(crate) name: String,
    /// Its description.
    pub(crate) summary_chars: usize,
    /// The schema of its arguments.
    pub(crate) schema_chars: usize,
    /// How many arguments it has, if that is known.
    pub(crate) properties_count: Option<usize>,
}

/// A section of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Weight {
    /// Its name.
    pub(crate) name: String,
    /// How long it is.
    pub(crate) chars: usize,
    /// Whether it stays the same from one run to the next.
    pub(crate) stable: bool,
}

/// The run that a report is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    /// Whether the prompt was sent.
    pub(crate) source: Source,
    /// Now, in milliseconds since the epoch.
    pub(crate) at: u64,
    /// The transcript.
    pub(crate) session: &'a SessionId,
    /// The session.
    pub(crate) key: &'a SessionKey,
    /// Who answers: the provider and the model.
    pub(crate) model: (&'a str, &'a str),
    /// How many tokens the model can read.
    pub(crate) window: Option<u64>,
    /// How long a file may be.
    pub(crate) page_cap: usize,
    /// The sandbox's setting: `off`, `non-main` or `all`.
    pub(crate) sandbox: &'a str,
    /// Whether commands are held by a sandbox in every session.
    pub(crate) confines_commands: bool,
}

/// Why there is a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The prompt was sent.
    #[cfg_attr(not(test), expect(dead_code, reason = "runs do not keep their report yet"))]
    Run,
    /// Somebody wants to know before it is.
    Estimate,
}

impl Report {
    /// What the prompt leaves out or cuts, why, and what to set to change that; `None` if nothing.
    pub(crate) fn shortened_words(&self) -> Option<String> {
        let (shortened, model) = (self.shortened.as_ref()?, format!("{}/{}", self.provider, self.model));
        Some(format!("{}; {}", shortening::explain(shortened, &model), shortening::remedy(shortened, &model)))
    }

    /// About a prompt and the scene that it was written from.
    pub(crate) fn of(scene: &Scene<'_>, prompt: &Prompt, about: &About<'_>) -> Self {
        let parts: BTreeMap<_, _> = prompt.parts.iter().map(|part| (part.name, part.chars)).collect();
        let weight = |name| parts.get(name).copied().unwrap_or(0);
        let chars = prompt.parts.iter().map(|part| part.chars).sum();
        let project_context_chars = weight(PROJECT_CONTEXT);
        let source = match about.source {
            Source::Run => "run",
            Source::Estimate => "estimate",
        };
        Self {
            source: source.to_owned(),
            generated_at: about.at,
            session_id: about.session.to_string(),
            session_key: about.key.to_string(),
            provider: about.model.0.to_owned(),
            model: about.model.1.to_owned(),
            workspace_dir: scene.stable.workspace.display().to_string(),
            bootstrap_max_chars: about.page_cap,
            sandbox: Confined {
                mode: about.sandbox.to_owned(),
                sandboxed: scene.stable.sandbox.is_some() || about.confines_commands,
                workspace: scene.stable.sandbox.is_some(),
            },
            system_prompt: Sums {
                chars,
                project_context_chars,
                non_project_context_chars: chars - project_context_chars,
            },
            // A mode without a section has none of what would be in it.
            injected_workspace_files: if project_context_chars > 0 { files(scene) } else { Vec::new() },
            skills: match weight(SKILLS) {
                0 => Skills::default(),
                prompt_chars => Skills { prompt_chars, entries: told(scene) },
            },
            tools: tools(scene.stable.tools, weight(TOOLING)),
            context_window: about.window,
            parts: prompt
                .parts
                .iter()
                .map(|part| Weight { name: part.name.to_owned(), chars: part.chars, stable: part.is_stable })
                .collect(),
            tokens: Some(Tokens {
                system_prompt: tokens::estimate(&prompt.text),
                tools: tokens::of_tools(scene.stable.tools),
                context: None,
            }),
            shortened: None,
        }
    }
}

fn files(scene: &Scene<'_>) -> Vec<File> {
    let file = |shown: pages::Shown<'_>| {
        let (missing, problem) = match &shown.page.body {
            Body::Whole(_) | Body::Cut(_) => (false, None),
            Body::Missing => (true, None),
            Body::Unusable(why) => (false, Some(why.clone())),
        };
        File {
            name: shown.page.name.to_string(),
            path: shown.page.path.display().to_string(),
            missing,
            raw_chars: shown.page.chars,
            injected_chars: shown.text.chars().count(),
            truncated: shown.is_cut,
            problem,
        }
    };
    pages::shown(scene.stable.pages, scene.wording).into_iter().map(file).collect()
}

fn told(scene: &Scene<'_>) -> Vec<Skill> {
    let told = skills::told(scene.stable.skills, scene.wording).into_iter();
    told.map(|skill| Skill { block_chars: skill.text.chars().count(), name: skill.name }).collect()
}

fn tools(specs: &[ToolSpec], list_chars: usize) -> Tools {
    let tool = |spec: &ToolSpec| Tool {
        name: spec.name.clone(),
        summary_chars: spec.description.trim().chars().count(),
        schema_chars: spec.parameters.to_string().chars().count(),
        properties_count: spec.parameters.get("properties").and_then(Value::as_object).map(serde_json::Map::len),
    };
    let entries: Vec<_> = specs.iter().map(tool).collect();
    let schema_chars = entries.iter().map(|tool| tool.schema_chars).sum();
    Tools { list_chars, schema_chars, entries, left_out: Vec::new() }
}

#[cfg(test)]
mod tests;
