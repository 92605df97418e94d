//! `homard models test`: sends a model one small request.

use std::time::Duration;

use anyhow::Result;
use homard_app::{
    keys::CredentialSource,
    model_chain::ModelChain,
    model_check::{ModelTest, TestAnswer},
};
use homard_setup::{ModelsContext, wizard::failure};
use serde_json::{Value, json};

use crate::{
    cli_error::CliError,
    cmd::flags,
    render::{self, Table},
};

/// A test of a model.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard models test                     test the model of the default agent
  homard models test openai/gpt-6.1-sol")]
pub(super) struct Test {
    /// Model as PROVIDER/MODEL, or an alias [default: the agent's primary model]
    model: Option<String>,
    /// Agent whose model and credentials are used [default: the default agent]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Time limit, such as 90s or 5m; a bare number is seconds
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = flags::seconds)]
    timeout: Duration,
}

/// Sends the request, and prints the answer or the failure.
pub(super) async fn run(setup: &ModelsContext, test: &Test, wants_json: bool) -> Result<()> {
    let agent = setup.agent(test.agent.as_deref())?;
    let keyring = setup.keyring(&agent)?;
    let named = match &test.model {
        Some(name) => {
            setup.models.entry(name).map_err(|error| CliError::new("config", format!("model \"{name}\": {error}")))?
        }
        None => {
            let chain = ModelChain::of(&setup.config, agent.config, &setup.models, &keyring)?;
            let Some(first) = chain.models.into_iter().next() else {
                return Err(
                    CliError::new("config", "no model is configured; set one with: homard models set MODEL").into()
                );
            };
            first
        }
    };
    let result = setup.models.test(&keyring, &named, test.timeout, &mut print_notice).await?;
    let answer = match &result.outcome {
        Ok(answer) => answer,
        Err(_) => return Err(CliError::new("model", failure(&result)).into()),
    };
    if wants_json {
        return Ok(render::print_json(&document(&result, answer))?);
    }
    Ok(render::print_table(&answer_table(&result, answer))?)
}

/// Prints what to check while a model does not answer.
pub(super) fn print_notice(text: &str) {
    render::remark(&format!("({})", render::strip_controls(text)));
}

/// Returns the result of a successful test as text.
pub(in crate::cmd) fn answer_text(result: &ModelTest, answer: &TestAnswer) -> String {
    answer_table(result, answer).to_string()
}

/// Returns the result of a successful test as JSON.
pub(in crate::cmd) fn document(result: &ModelTest, answer: &TestAnswer) -> Value {
    json!({
        "ok": true, "model": result.model, "api": result.api, "url": result.url, "credential": result.credential,
        "ms": u64::try_from(answer.duration.as_millis()).unwrap_or(u64::MAX), "answer": answer.text,
    })
}

fn answer_table(result: &ModelTest, answer: &TestAnswer) -> Table {
    let key = match CredentialSource::of(&result.credential) {
        CredentialSource::Profile => result.credential.clone(),
        CredentialSource::Environment(name) => format!("{name} in the environment"),
        CredentialSource::Config(key) => key,
        CredentialSource::None | CredentialSource::Missing => "none".to_owned(),
    };
    let text = match answer.text.trim() {
        "" => "(no text)".to_owned(),
        text => text.lines().collect::<Vec<_>>().join(" "),
    };
    let rows = [
        ("model", result.model.clone()),
        ("url", result.url.clone().unwrap_or_else(|| "built in".to_owned())),
        ("api", if result.api.is_empty() { "-".to_owned() } else { result.api.clone() }),
        ("key", key),
        ("time", render::duration(answer.duration)),
        ("answer", text),
    ];
    let row = |(name, value): (&str, String)| vec![name.to_owned(), render::strip_controls(&value)];
    Table::fields(rows.into_iter().map(row).collect())
}
