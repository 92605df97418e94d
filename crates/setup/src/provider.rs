//! A model server in the config: its address, its API, and the models that it lists.

use homard_app::model_check::ServerReport;
use homard_config::{
    edit::{self, EditError},
    path::Path,
};
use homard_providers::ListedModel;
use homard_settings::paths;
use serde_json::{Value, json};

use crate::Error;

/// Maximum number of models that are written without being named.
pub const MAX_MODELS: usize = 50;

/// Returns the name of a new provider, which models are addressed with.
pub fn check_name(typed: &str) -> Result<&str, Error> {
    let name = typed.trim();
    if name.is_empty() || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control()) {
        return Err(Error::Usage("the name must not be empty or contain a slash, colon or space".to_owned()));
    }
    Ok(name)
}

/// Returns the models to write: the named ones, else the listed ones if they are few, else the first.
pub fn written_models(report: &ServerReport, named: &[String]) -> Result<Vec<ListedModel>, Error> {
    if named.is_empty() {
        return Ok(report.models.iter().take(MAX_MODELS).cloned().collect());
    }
    let model = |id: &String| {
        if let Some(listed) = report.models.iter().find(|listed| listed.id == *id) {
            return Ok(listed.clone());
        }
        let ids = report.models.iter().map(|listed| listed.id.as_str());
        match homard_config::nearest(id, ids) {
            Some(similar) => {
                Err(Error::Usage(format!("the server does not list the model \"{id}\"; did you mean \"{similar}\"?")))
            }
            None => Ok(ListedModel { id: id.clone(), ..ListedModel::default() }),
        }
    };
    named.iter().map(model).collect()
}

/// Writes a provider into the text of a config.
pub fn provider_edits(
    text: &str,
    name: &str,
    report: &ServerReport,
    models: &[ListedModel],
    key_variable: Option<&str>,
) -> Result<String, EditError> {
    let section = Path::root().key("models").key("providers").key(name);
    let model = |model: &ListedModel| {
        let mut entry = json!({"id": model.id});
        for (name, number) in [("contextWindow", model.context_window), ("maxTokens", model.max_output)] {
            if let Some(number) = number {
                entry[name] = json!(number);
            }
        }
        entry
    };
    let settings: [(&str, Value); 3] = [
        ("baseUrl", json!(report.base_url)),
        ("api", json!(report.wire.api())),
        ("models", models.iter().map(model).collect()),
    ];
    let key = key_variable.map(|variable| ("apiKey", json!(format!("${{{variable}}}"))));
    let mut all = settings.into_iter().chain(key);
    all.try_fold(text.to_owned(), |text, (name, value)| edit::set(&text, &section.key(name), &value))
}

/// Returns the value of an environment variable that holds a key.
pub fn variable_value(name: &str) -> Result<String, Error> {
    let value = paths::env(name).and_then(|value| value.into_string().ok()).unwrap_or_default();
    match value.trim() {
        "" => Err(Error::Usage(format!("the environment variable {name} is not set"))),
        value => Ok(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use homard_providers::Wire;

    use super::*;

    fn report(ids: &[&str]) -> ServerReport {
        let model = |id: &&str| ListedModel { id: (*id).to_owned(), ..ListedModel::default() };
        let models = ids.iter().map(model).collect();
        ServerReport { base_url: "http://h/v1".to_owned(), wire: Wire::OpenAiCompletions, models }
    }

    #[test]
    fn a_provider_is_written_next_to_comments_and_other_settings() {
        let mut report = report(&["m"]);
        report.models[0].context_window = Some(9);
        let text = "{models: {providers: {mine: {headers: {a: 'b'} /* kept */}}}}";
        let text = provider_edits(text, "mine", &report, &report.models, Some("MY_KEY")).unwrap();
        assert!(text.contains("/* kept */"), "{text}");
        let mine = &edit::value(&text).unwrap()["models"]["providers"]["mine"];
        assert_eq!(
            *mine,
            json!({"headers": {"a": "b"}, "baseUrl": "http://h/v1", "api": "openai-completions",
                "models": [{"id": "m", "contextWindow": 9}], "apiKey": "${MY_KEY}"})
        );
    }

    #[test]
    fn a_mistyped_model_is_refused_and_an_unlisted_one_is_not() {
        let report = report(&["qwen3-large"]);
        let ids = |named: &[&str]| {
            let named: Vec<_> = named.iter().map(|name| (*name).to_owned()).collect();
            let models = written_models(&report, &named).map_err(|error| error.to_string())?;
            Ok::<_, String>(models.into_iter().map(|model| model.id).collect::<Vec<_>>())
        };
        assert_eq!(ids(&[]).unwrap(), ["qwen3-large"]);
        assert_eq!(ids(&["other"]).unwrap(), ["other"]);
        assert!(ids(&["qwen3-lage"]).unwrap_err().contains("did you mean \"qwen3-large\"?"));
    }
}
