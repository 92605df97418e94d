//! The questions of the setup, and what their answers mean. Knows neither the terminal nor the network: answers come
//! through [`Answers`].

use homard_app::{model_chain::DEFAULT_MODELS, model_check::ModelTest};
use homard_model::catalog::{self, provider_name};
use homard_providers::{ListedModel, quirks};
use homard_stdx::text::strip_controls;

use crate::{Error, credentials::check_key};

/// Number of models that are shown; any other can be typed.
const SHOWN_MODELS: usize = 15;

/// Where answers come from: a terminal, or the defaults.
pub trait Answers {
    /// Shows a text.
    fn tell(&mut self, text: &str);
    /// Asks for a line; an empty answer is returned as such.
    fn text(&mut self, label: &str) -> Result<String, Error>;
    /// Asks for a line that is not shown.
    fn secret(&mut self, label: &str) -> Result<String, Error>;
    /// Shows the result of a test of the chosen model.
    fn tested(&mut self, test: &ModelTest);
}

/// A model server on this machine that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalServer {
    pub(super) provider: String,
    pub(super) base_url: String,
    pub(super) models: Vec<ListedModel>,
}

/// What was found before the first question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Discovery {
    /// The model that the config names.
    pub(super) current: Option<String>,
    /// Providers whose key is in the environment or stored, with the place of the key.
    pub(super) keys: Vec<(String, String)>,
    pub(super) servers: Vec<LocalServer>,
}

/// Where the model comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModelSource {
    /// The configured model stays.
    Current(String),
    /// A provider whose key exists.
    Known(String),
    /// A server on this machine.
    Local(LocalServer),
    /// A known provider, with a new key.
    NewKey { provider: String, key: String },
    /// Any other server.
    Server { name: String, base_url: String, key: Option<String> },
    /// The built-in model.
    Demo,
}

/// Asks where the model should come from. The first option is the default: what exists already, then what was found.
pub(super) fn source(answers: &mut dyn Answers, detected: &Discovery) -> Result<ModelSource, Error> {
    /// An option of the question.
    enum Offer {
        Ready(ModelSource),
        NewKey,
        Server,
    }

    let mut offers: Vec<(String, Offer)> = Vec::new();
    if let Some(model) = &detected.current {
        offers.push((format!("keep {model}"), Offer::Ready(ModelSource::Current(model.clone()))));
    }
    for (provider, place) in &detected.keys {
        offers.push((format!("{provider}, with {place}"), Offer::Ready(ModelSource::Known(provider.clone()))));
    }
    for server in &detected.servers {
        let models = count_models(server.models.len());
        let label = format!("{} on this machine ({}, {models})", server.provider, server.base_url);
        offers.push((label, Offer::Ready(ModelSource::Local(server.clone()))));
    }
    offers.push(("a provider for which you have an API key".to_owned(), Offer::NewKey));
    offers.push(("another server with an API of OpenAI or Anthropic".to_owned(), Offer::Server));
    offers.push((
        "none now: the built-in demo model, which is not a language model".to_owned(),
        Offer::Ready(ModelSource::Demo),
    ));
    let labels: Vec<_> = offers.iter().map(|(label, _)| label.as_str()).collect();
    let chosen = choose(answers, "Where should the model come from?", &labels)?;
    match offers.into_iter().nth(chosen).map(|(_, offer)| offer) {
        Some(Offer::Ready(source)) => Ok(source),
        Some(Offer::NewKey) => {
            let provider = known_provider(answers)?;
            let key = required_key(answers, &format!("API key for {provider}"))?;
            Ok(ModelSource::NewKey { provider, key })
        }
        Some(Offer::Server) => other_server(answers),
        None => Ok(ModelSource::Demo),
    }
}

/// Formats a number of models.
fn count_models(count: usize) -> String {
    if count == 1 { "1 model".to_owned() } else { format!("{count} models") }
}

/// Asks for one of several options, by number. The first is the default.
pub(crate) fn choose(answers: &mut dyn Answers, question: &str, options: &[&str]) -> Result<usize, Error> {
    let lines = options.iter().enumerate().map(|(at, option)| format!("  {}) {option}", at + 1));
    let lines: Vec<_> = std::iter::once(question.to_owned()).chain(lines).collect();
    answers.tell(&lines.join("\n"));
    loop {
        let typed = answers.text("Number [1]:")?;
        match typed.trim() {
            "" => return Ok(0),
            typed => match typed.parse::<usize>().ok().filter(|number| (1..=options.len()).contains(number)) {
                Some(number) => return Ok(number - 1),
                None => answers.tell(&format!("Type a number from 1 to {}.", options.len())),
            },
        }
    }
}

/// Asks for a provider that is known by name.
fn known_provider(answers: &mut dyn Answers) -> Result<String, Error> {
    loop {
        let typed = answers.text("Provider, such as anthropic, openai, google or openrouter:")?;
        match check_provider(&typed) {
            Ok(name) => return Ok(name),
            Err(error) => answers.tell(&error.to_string()),
        }
    }
}

/// Returns the canonical name of a known provider, or says which one may be meant.
pub(super) fn check_provider(typed: &str) -> Result<String, Error> {
    let name = provider_name(typed);
    let is_known = !name.is_empty() && (catalog::provider(&name).next().is_some() || quirks::provider(&name).is_some());
    if is_known {
        return Ok(quirks::provider(&name).map_or(name, |known| known.id.to_owned()));
    }
    let local = quirks::PROVIDERS.iter().map(|known| known.id);
    let help = match homard_config::nearest(&name, catalog::providers().chain(local)) {
        Some(similar) => format!("did you mean \"{similar}\"?"),
        None => format!("known providers: {}", catalog::providers().collect::<Vec<_>>().join(", ")),
    };
    Err(Error::Usage(format!("unknown provider \"{}\"; {help}", typed.trim())))
}

fn required_key(answers: &mut dyn Answers, label: &str) -> Result<String, Error> {
    loop {
        let typed = answers.secret(label)?;
        match check_key(typed.trim()) {
            Ok(()) => return Ok(typed.trim().to_owned()),
            Err(error) => answers.tell(&error.to_string()),
        }
    }
}

fn other_server(answers: &mut dyn Answers) -> Result<ModelSource, Error> {
    let base_url = loop {
        let typed = answers.text("Base URL, such as http://127.0.0.1:8000/v1:")?;
        match typed.trim() {
            typed if typed.starts_with("http://") || typed.starts_with("https://") => break typed.to_owned(),
            _ => answers.tell("The URL must start with http:// or https://."),
        }
    };
    let name = loop {
        let typed = answers.text("Name for it [custom]:")?;
        match server_name(&typed) {
            Some(name) => break name,
            None => {
                answers.tell("The name must not contain a slash, colon or space, nor be the name of a known provider.")
            }
        }
    };
    let key = loop {
        let typed = answers.secret(&format!("API key for {name}, empty for none"))?;
        match typed.trim() {
            "" => break None,
            key => match check_key(key) {
                Ok(()) => break Some(key.to_owned()),
                Err(error) => answers.tell(&error.to_string()),
            },
        }
    };
    Ok(ModelSource::Server { name, base_url, key })
}

/// Returns the name of a new provider, if it is usable.
pub(super) fn server_name(typed: &str) -> Option<String> {
    let name = match typed.trim() {
        "" => "custom",
        name => name,
    };
    let is_plain = !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
    (is_plain && check_provider(name).is_err()).then(|| name.to_owned())
}

/// Asks for one of the models of a provider. Returns its id.
pub(super) fn model(answers: &mut dyn Answers, provider: &str, listed: &[ListedModel]) -> Result<String, Error> {
    let first = default_model(provider, listed);
    let others = listed.iter().map(|model| model.id.as_str()).filter(|id| Some(*id) != first.as_deref());
    let shown: Vec<_> = first.as_deref().into_iter().chain(others).take(SHOWN_MODELS).collect();
    let lines = shown.iter().enumerate().map(|(at, id)| format!("  {}) {id}", at + 1));
    let hidden = listed.len().saturating_sub(shown.len());
    let rest = (hidden > 0).then(|| format!("  … and {hidden} more; type the name of any"));
    let title = format!("Which model of {provider}?");
    let text: Vec<_> = std::iter::once(title).chain(lines).chain(rest).collect();
    let text: Vec<_> = text.iter().map(|line| strip_controls(line)).collect();
    answers.tell(&text.join("\n"));
    let label = if shown.is_empty() { "Model:" } else { "Number or name [1]:" };
    loop {
        let typed = answers.text(label)?;
        let typed = typed.trim();
        let number = typed.parse::<usize>().ok().and_then(|number| shown.get(number.checked_sub(1)?));
        let similar = || homard_config::nearest(typed, listed.iter().map(|model| model.id.as_str()));
        match (typed, number) {
            ("", _) if !shown.is_empty() => return Ok(shown[0].to_owned()),
            ("", _) => answers.tell("Type the name of a model."),
            (_, Some(id)) => return Ok((*id).to_owned()),
            (name, None) if listed.iter().any(|model| model.id == name) => return Ok(name.to_owned()),
            (name, None) => match similar() {
                Some(similar) => answers.tell(&format!("{provider} does not list {name}; did you mean {similar}?")),
                None if listed.is_empty() => return Ok(name.to_owned()),
                None => answers.tell(&format!("{provider} does not list {name}.")),
            },
        }
    }
}

/// Returns the model that is chosen without a question: the preferred one of the provider, else the first listed one.
pub(super) fn default_model(provider: &str, listed: &[ListedModel]) -> Option<String> {
    let preferred = DEFAULT_MODELS.iter().find(|(name, _)| *name == provider).map(|(_, model)| *model);
    let is_listed = |id: &str| listed.is_empty() || listed.iter().any(|model| model.id == id);
    let preferred = preferred.filter(|id| is_listed(id)).map(str::to_owned);
    preferred.or_else(|| listed.first().map(|model| model.id.clone()))
}

/// Asks a yes/no question.
pub fn confirm(answers: &mut dyn Answers, question: &str, default: bool) -> Result<bool, Error> {
    let label = format!("{question} [{}]", if default { "Y/n" } else { "y/N" });
    loop {
        match answers.text(&label)?.trim().to_lowercase().as_str() {
            "" => return Ok(default),
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => answers.tell("Type y or n."),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Answers that are known in advance.
    #[derive(Default)]
    struct Script {
        answers: VecDeque<&'static str>,
        told: Vec<String>,
    }

    impl Script {
        fn new(answers: &[&'static str]) -> Self {
            Self { answers: answers.iter().copied().collect(), told: Vec::new() }
        }

        fn next(&mut self) -> Result<String, Error> {
            let answer = self.answers.pop_front().ok_or_else(|| Error::Interrupted("no more answers".to_owned()))?;
            Ok(answer.to_owned())
        }
    }

    impl Answers for Script {
        fn tell(&mut self, text: &str) {
            self.told.push(text.to_owned());
        }

        fn text(&mut self, _: &str) -> Result<String, Error> {
            self.next()
        }

        fn secret(&mut self, _: &str) -> Result<String, Error> {
            self.next()
        }

        fn tested(&mut self, _: &ModelTest) {}
    }

    fn listed(ids: &[&str]) -> Vec<ListedModel> {
        ids.iter().map(|id| ListedModel { id: (*id).to_owned(), ..ListedModel::default() }).collect()
    }

    fn detected() -> Discovery {
        let server = LocalServer {
            provider: "ollama".to_owned(),
            base_url: "http://127.0.0.1:11434/v1".to_owned(),
            models: listed(&["qwen3"]),
        };
        Discovery {
            current: Some("a/b".to_owned()),
            keys: vec![("openai".to_owned(), "OPENAI_API_KEY in the environment".to_owned())],
            servers: vec![server],
        }
    }

    #[test]
    fn what_exists_comes_before_what_was_found_and_what_must_be_typed() {
        let detected = detected();
        let chosen = |answers: &[&'static str]| {
            let mut script = Script::new(answers);
            let chosen = source(&mut script, &detected);
            assert!(script.answers.is_empty(), "{answers:?}");
            chosen.unwrap()
        };
        assert_eq!(chosen(&[""]), ModelSource::Current("a/b".to_owned()));
        assert_eq!(chosen(&["2"]), ModelSource::Known("openai".to_owned()));
        assert_eq!(chosen(&["9", "x", "3"]), ModelSource::Local(detected.servers[0].clone()));
        let typed = ModelSource::NewKey { provider: "anthropic".to_owned(), key: "sk-1".to_owned() };
        assert_eq!(chosen(&["4", "antropic", "Anthropic", "two words", " sk-1 "]), typed);
        let server = |key: Option<&str>| ModelSource::Server {
            name: "custom".to_owned(),
            base_url: "http://h/v1".to_owned(),
            key: key.map(str::to_owned),
        };
        assert_eq!(chosen(&["5", "h", "http://h/v1", "open ai", "openai", "", ""]), server(None));
        assert_eq!(chosen(&["5", "http://h/v1", "", "k"]), server(Some("k")));
        assert_eq!(chosen(&["6"]), ModelSource::Demo);
    }

    #[test]
    fn a_mistyped_provider_gets_the_nearest_name() {
        assert!(check_provider("opnai").unwrap_err().to_string().contains("did you mean \"openai\"?"));
        assert_eq!(check_provider("LM Studio").unwrap(), "lmstudio");
        assert!(check_provider(" ").is_err());
    }

    #[test]
    fn a_model_is_chosen_by_number_or_name() {
        let all = listed(&["gpt-a", "gpt-6.1-sol", "gpt-b"]);
        let chosen = |answers: &[&'static str]| model(&mut Script::new(answers), "openai", &all).unwrap();
        assert_eq!(chosen(&[""]), "gpt-6.1-sol", "the preferred model is the first one");
        assert_eq!(chosen(&["2"]), "gpt-a");
        assert_eq!(chosen(&["gpt-c", "unheard of", "gpt-b"]), "gpt-b");
        let none = |answers: &[&'static str]| model(&mut Script::new(answers), "mine", &[]).unwrap();
        assert_eq!(none(&["", "large"]), "large", "a server that lists nothing may have any model");
        let many: Vec<_> = (0..40).map(|at| ListedModel { id: format!("m{at}"), ..ListedModel::default() }).collect();
        let mut script = Script::new(&["m33"]);
        assert_eq!(model(&mut script, "mine", &many).unwrap(), "m33");
        assert!(script.told[0].ends_with("… and 25 more; type the name of any"), "{:?}", script.told);
    }

    #[test]
    fn the_end_of_the_answers_ends_the_setup() {
        assert!(source(&mut Script::new(&[]), &detected()).is_err());
        assert!(confirm(&mut Script::new(&["maybe"]), "Sure?", true).is_err());
        assert!(confirm(&mut Script::new(&[""]), "Sure?", true).unwrap());
        assert!(!confirm(&mut Script::new(&["NO"]), "Sure?", true).unwrap());
    }
}
