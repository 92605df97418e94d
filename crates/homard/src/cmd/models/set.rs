//! `homard models set`: chooses the model of an agent, or of all agents.

use anyhow::Result;
use homard_config::path::Path;
use homard_setup::{
    ModelsContext, edit_config,
    model_choice::{agent_section, check_model, choice_edit, missing_key, similar_model},
};
use serde_json::json;

use crate::render;

/// A choice of a model.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard models set openai/gpt-6.1-sol
  homard models set ollama/qwen3 --fallback openai/gpt-6.1-sol
  homard models set mine/large --agent work")]
pub(super) struct Args {
    /// Model as PROVIDER/MODEL, or an alias
    model: String,
    /// Agent that uses it [default: all agents without a model of their own]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Model to use if it fails; may be repeated, and replaces the existing fallbacks
    #[arg(long, value_name = "MODEL")]
    fallback: Vec<String>,
}

/// Writes the choice into the config.
pub(super) fn run(setup: &ModelsContext, set: &Args, wants_json: bool) -> Result<()> {
    for name in [&set.model].into_iter().chain(&set.fallback) {
        check_model(setup, name)?;
    }
    let section = match set.agent.as_deref() {
        None => Path::root().key("agents").key("defaults"),
        Some(id) => agent_section(setup, id)?,
    };
    let model = set.model.trim();
    let change = edit_config(&setup.paths, |text| choice_edit(text, &section, model, &set.fallback))?;
    let missing = missing_key(setup, model)?;
    let warning = similar_model(setup, model);
    if wants_json {
        return Ok(render::print_json(&json!({
            "ok": true, "model": model, "path": setup.paths.config, "changed": change.changed, "missing": missing,
            "warning": warning,
        }))?);
    }
    let path = section.key("model");
    match change.changed.is_empty() {
        true => render::print(&format!("{path} is already {model}; nothing changed"))?,
        false => render::print(&format!("set {path} to {model} in {}", setup.paths.config.display()))?,
    }
    warning.iter().for_each(|warning| render::remark(&render::strip_controls(warning)));
    match missing {
        Some(why) => render::remark(&why),
        None => render::print("check that it answers with: homard models test")?,
    }
    Ok(())
}
