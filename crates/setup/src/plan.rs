//! The changes of a setup, before anything is written: the new text of the config, and the key to store. Pure.

use homard_app::model_check::ServerReport;
use homard_config::{
    diff,
    edit::{self, EditError},
    path::{self, Path},
    redact,
};
use homard_providers::ListedModel;
use serde_json::{Value, json};

use crate::{channel::TELEGRAM, model_choice::primary_edit, provider::provider_edits};

/// What the answers amount to.
#[derive(Debug, Clone, Default)]
pub(super) struct SetupPlan {
    /// Full name of the model; the config's model stays if it is absent.
    pub(super) model: Option<String>,
    /// A server that the config does not have yet.
    pub(super) server: Option<NewServer>,
    /// Token of a Telegram bot.
    pub(super) telegram_token: Option<String>,
    /// The workspace, if it is not the default one.
    pub(super) workspace: Option<String>,
    /// Sections of the model and of the workspace, if the default agent has its own ones.
    pub(super) model_section: Option<Path>,
    pub(super) workspace_section: Option<Path>,
}

/// A server to write into the config.
#[derive(Debug, Clone)]
pub(super) struct NewServer {
    pub(super) name: String,
    pub(super) report: ServerReport,
    /// The models to write.
    pub(super) models: Vec<ListedModel>,
}

impl SetupPlan {
    /// Applies the plan to the text of a config. Comments and other settings stay.
    pub(super) fn apply(&self, text: &str) -> Result<String, EditError> {
        let defaults = Path::root().key("agents").key("defaults");
        let mut text = text.to_owned();
        if let Some(NewServer { name, report, models }) = &self.server {
            text = provider_edits(&text, name, report, models, None)?;
        }
        if let Some(model) = &self.model {
            text = primary_edit(&text, self.model_section.as_ref().unwrap_or(&defaults), model)?;
        }
        if let Some(workspace) = &self.workspace {
            let section = self.workspace_section.as_ref().unwrap_or(&defaults);
            text = edit::set(&text, &section.key("workspace"), &json!(workspace))?;
        }
        if let Some(token) = &self.telegram_token {
            let section = Path::root().key("channels").key(TELEGRAM);
            text = edit::set(&text, &section.key("botToken"), &json!(token))?;
            text = edit::set(&text, &section.key("enabled"), &json!(true))?;
        }
        Ok(text)
    }
}

/// Returns the difference between two texts of a config, a line per value, without secrets.
pub(super) fn difference(old: &str, new: &str) -> Result<Vec<String>, EditError> {
    let (old, new) = (edit::value(old)?, edit::value(new)?);
    let (shown_old, shown_new) = (redact::redact(&old), redact::redact(&new));
    let line = |sign: char, value: &Value, path: &Path| Some(format!("{sign} {path}: {}", path::get(value, path)?));
    let paths = diff::changed(&old, &new);
    Ok(paths.iter().flat_map(|path| [line('-', &shown_old, path), line('+', &shown_new, path)]).flatten().collect())
}

#[cfg(test)]
mod tests {
    use homard_providers::Wire;

    use super::*;

    #[test]
    fn a_plan_keeps_comments_and_shows_no_secrets() {
        let models = vec![ListedModel { id: "m".to_owned(), ..ListedModel::default() }];
        let report =
            ServerReport { base_url: "http://h/v1".to_owned(), wire: Wire::OpenAiCompletions, models: models.clone() };
        let plan = SetupPlan {
            model: Some("custom/m".to_owned()),
            server: Some(NewServer { name: "custom".to_owned(), report, models }),
            workspace: Some("/w".to_owned()),
            ..SetupPlan::default()
        };
        let old = "{\n  // mine\n  agents: {defaults: {model: 'a/b'}},\n  gateway: {auth: {token: 'hush'}},\n}\n";
        let new = plan.apply(old).unwrap();
        assert!(new.contains("// mine") && new.contains("hush"), "{new}");
        let lines = difference(old, &new).unwrap();
        let expected = [
            "- agents.defaults.model: \"a/b\"",
            "+ agents.defaults.model: \"custom/m\"",
            "+ agents.defaults.workspace: \"/w\"",
            "+ models.providers.custom.api: \"openai-completions\"",
            "+ models.providers.custom.baseUrl: \"http://h/v1\"",
            "+ models.providers.custom.models: [{\"id\":\"m\"}]",
        ];
        assert_eq!(lines, expected);
        let own = SetupPlan { model_section: Some("agents.list[0]".parse().unwrap()), ..plan };
        let new = own.apply("{agents: {list: [{id: 'a', model: 'a/b'}]}}").unwrap();
        assert_eq!(edit::value(&new).unwrap()["agents"]["list"][0]["model"], "custom/m", "an agent's own model wins");
        assert_eq!(difference(&new, &new).unwrap(), Vec::<String>::new());
        assert_eq!(SetupPlan::default().apply(old).unwrap(), old);
        let changed = difference("{gateway: {auth: {token: 'hush'}}}", "{gateway: {auth: {token: 'other'}}}").unwrap();
        assert!(!changed.concat().contains("hush") && !changed.concat().contains("other"), "{changed:?}");
    }
}
