//! Tests for the resolution of model names in the config to candidates.

use std::fs;

use homard_model::candidates::PreferredCredential;
use homard_settings::DEMO;

use super::*;
use crate::model_chain::{ModelChain, SelectionReason};

/// A config with its environment and credential profiles.
#[derive(Default)]
struct TestSetup<'a> {
    config: &'a str,
    environment: &'a [(&'a str, &'a str)],
    profiles: &'a str,
}

impl TestSetup<'_> {
    fn with_models<T>(&self, inspect: impl FnOnce(&Models, &Keyring, Result<ModelChain, crate::Error>) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("auth-profiles.json");
        if !self.profiles.is_empty() {
            fs::write(&path, self.profiles).unwrap();
        }
        let config = Config::read(Path::new("homard.json"), self.config).config;
        let variable = |name: &str| self.environment.iter().find(|(known, _)| *known == name);
        let environment = Environment::read(|name| variable(name).map(|(_, value)| (*value).to_owned()));
        let models = Models::new(&config, environment, folder.path());
        let (keyring, _) = Keyring::open(path, &models.client).unwrap();
        let chain = ModelChain::of(&config, config.agents.members()[0].config, &models, &keyring);
        inspect(&models, &keyring, chain)
    }

    /// Returns all candidates in order, each with its credential.
    fn order(&self) -> Vec<String> {
        self.with_models(|models, keyring, chain| {
            let candidates = models.candidates(keyring, &chain.unwrap().models).unwrap();
            order(&candidates)
        })
    }

    fn error(&self) -> String {
        self.with_models(|models, keyring, chain| {
            let candidates = chain.and_then(|chain| models.candidates(keyring, &chain.models));
            format!("{:#}", candidates.unwrap_err())
        })
    }

    fn spec(&self) -> ModelSpec {
        self.with_models(|models, keyring, chain| {
            models.candidates(keyring, &chain.unwrap().models).unwrap().first().spec().clone()
        })
    }
}

fn order(candidates: &Candidates) -> Vec<String> {
    candidates.order(0, &PreferredCredential::Any).iter().map(|candidate| format!("{candidate:?}")).collect()
}

fn config(config: &str) -> TestSetup<'_> {
    TestSetup { config, ..TestSetup::default() }
}

#[test]
fn models_are_found_by_provider_and_name() {
    let targets_of = |model: &str| {
        let offers = "models: [{id: 'm', contextWindow: 4000}, {id: 'a/b', maxTokens: 5}]";
        let provider = format!("{{baseUrl: 'http://127.0.0.1:9/v1', {offers}}}");
        let text = format!("{{agents: {{defaults: {{model: {model}}}}}, models: {{providers: {{p: {provider}}}}}}}");
        let spec = config(&text).spec();
        (format!("{}/{}", spec.provider, spec.model), spec.context_window, spec.max_output)
    };
    assert_eq!(targets_of("'p/m'"), ("p/m".to_owned(), 4000, 4000));
    assert_eq!(targets_of("{primary: 'p/a/b'}"), ("p/a/b".to_owned(), 200_000, 5));
    assert_eq!(targets_of("'p/unlisted'"), ("p/unlisted".to_owned(), 200_000, 0));
    assert_eq!(targets_of("'homard/demo'").0, DEMO);
    assert_eq!(targets_of("'claude-opus-4-5'").0, "anthropic/claude-opus-4-5");
}

#[test]
fn the_wire_comes_from_the_config_the_catalogue_or_the_default() {
    let api = |model: &str, providers: &str| {
        let text = format!("{{agents: {{defaults: {{model: '{model}'}}}}, models: {{providers: {{{providers}}}}}}}");
        config(&text).spec().api
    };
    assert_eq!(api("mine/m", "mine: {baseUrl: 'http://box/v1'}"), "", "it is probed");
    assert_eq!(api("ollama/m", ""), "openai-completions");
    assert_eq!(api("vllm/m", "vllm: {baseUrl: 'http://box/v1'}"), "openai-completions");
    assert_eq!(api("anthropic/claude-next", ""), "anthropic-messages");
    assert_eq!(
        api(
            "p/m",
            "p: {baseUrl: 'http://box/v1', api: 'openai-completions', models: [{id: 'm', api: 'google-generative-ai'}]}"
        ),
        "google-generative-ai"
    );
}

#[test]
fn an_unusable_model_is_an_error_with_its_reason() {
    let refused = |model: &str, providers: &str| {
        let text = format!("{{agents: {{defaults: {{model: {model}}}}}, models: {{providers: {{{providers}}}}}}}");
        config(&text).error()
    };
    let unknown_model = |name: &str| {
        format!(
            "unknown provider \"{name}\": it is neither in models.providers nor in the catalogue; see: homard docs models"
        )
    };
    assert_eq!(refused("'x/y'", ""), format!("agents.defaults.model is \"x/y\": {}", unknown_model("x")));
    assert_eq!(
        refused("'y'", ""),
        "agents.defaults.model is \"y\": a model name has the form provider/model, such as homard/demo"
    );
    assert_eq!(
        refused("'p/y'", "p: {}"),
        "agents.defaults.model is \"p/y\": models.providers.p.baseUrl is missing; set it, for example to \
         \"http://127.0.0.1:11434/v1\""
    );
    let unknown_api = refused("'p/y'", "p: {baseUrl: 'http://box', api: 'carrier-pigeon'}");
    assert!(
        unknown_api.contains("the api of models.providers.p is \"carrier-pigeon\", which is not a known API"),
        "{unknown_api}"
    );
}

// Case 181, pitfall 67.
#[test]
fn an_agents_own_list_replaces_the_shared_one() {
    let chain = |own: &str| {
        let shared = "defaults: {model: {primary: 'ollama/a', fallbacks: ['ollama/b', 'ollama/a']}}";
        config(&format!("{{agents: {{{shared}, list: [{{id: 'x', model: {own}}}]}}}}")).order()
    };
    let expected =
        |names: &[&str]| names.iter().map(|name| format!("ollama/{name} as none:ollama")).collect::<Vec<_>>();
    assert_eq!(chain("{}"), expected(&["a", "b"]));
    assert_eq!(chain("'ollama/c'"), expected(&["c", "b", "a"]));
    assert_eq!(chain("{primary: 'ollama/c', fallbacks: []}"), expected(&["c"]));
    assert_eq!(chain("{primary: 'ollama/c', fallbacks: ['ollama/d']}"), expected(&["c", "d"]));
}

const TWO: &str = r#"{"profiles": {
    "openai:a": {"type": "api_key", "provider": "openai", "key": "k1"},
    "openai:b": {"type": "token", "provider": "openai", "token": "t1"},
    "openai:old": {"type": "token", "provider": "openai", "token": "t0", "expires": 1},
    "xai:a": {"type": "api_key", "provider": "xai", "key": "k2"}}, "usageStats": {"openai:a": {"lastUsed": 7}}}"#;

#[test]
fn profiles_come_before_the_environment_and_that_before_the_config() {
    let text = "{agents: {defaults: {model: 'openai/gpt-6.1-sol'}}, models: {providers: {openai: {apiKey: 'c1'}}}}";
    let environment = [("OPENAI_API_KEY", "e1")];
    let setup = |profiles| TestSetup { config: text, environment: &environment, profiles };
    let expected = |ids: &[&str]| ids.iter().map(|id| format!("openai/gpt-6.1-sol as {id}")).collect::<Vec<_>>();
    let others = ["env:OPENAI_API_KEY", "config:openai"];
    assert_eq!(setup("").order(), expected(&others));
    assert_eq!(setup(TWO).order(), expected(&["openai:b", "openai:a", others[0], others[1]]));
    let ordered =
        TWO.replace("\"usageStats\"", "\"order\": {\"OpenAI\": [\"openai:a\", \"gone\", \"xai:a\"]}, \"usageStats\"");
    assert_eq!(setup(&ordered).order(), expected(&["openai:a", others[0], others[1]]));
    let same = [("OPENAI_API_KEY", "k1")];
    let duplicated = TestSetup { config: text, environment: &same, profiles: TWO };
    assert_eq!(duplicated.order(), expected(&["openai:b", "openai:a", "config:openai"]), "one key counts once");
}

#[test]
fn the_order_of_the_config_applies_if_the_file_has_none() {
    let text = "{agents: {defaults: {model: 'openai/gpt-6.1-sol'}}, auth: {order: {openai: ['openai:a', 'openai:b']}}}";
    let setup = TestSetup { config: text, profiles: TWO, ..TestSetup::default() };
    assert_eq!(setup.order(), ["openai/gpt-6.1-sol as openai:a", "openai/gpt-6.1-sol as openai:b"]);
}

#[test]
fn without_a_model_the_available_keys_select_the_default() {
    let chosen = |environment: &[(&str, &str)], profiles: &str| {
        let setup = TestSetup { config: "{}", environment, profiles };
        setup.with_models(|_, _, chain| {
            let chain = chain.unwrap();
            (chain.primary(), chain.reason)
        })
    };
    let key = |from: &str, others: &[&'static str]| SelectionReason::Credential {
        from: from.to_owned(),
        others: others.to_vec(),
    };
    assert_eq!(chosen(&[], ""), (DEMO.to_owned(), SelectionReason::DemoModel));
    assert_eq!(chosen(&[("OLLAMA_API_KEY", "x")], ""), (DEMO.to_owned(), SelectionReason::DemoModel));
    assert_eq!(
        chosen(&[("MISTRAL_API_KEY", "k")], ""),
        ("mistral/mistral-large-4".to_owned(), key("MISTRAL_API_KEY in the environment", &[]))
    );
    assert_eq!(
        chosen(&[("XAI_API_KEY", "k"), ("GEMINI_API_KEY", "k")], ""),
        ("google/gemini-3.8-flash".to_owned(), key("GEMINI_API_KEY in the environment", &["xai"]))
    );
    assert_eq!(
        chosen(&[("XAI_API_KEY", "k")], TWO),
        ("openai/gpt-6.1-sol".to_owned(), key("the auth profiles of openai", &["xai"]))
    );
}

#[test]
fn an_unusable_fallback_is_skipped() {
    let text = "{agents: {defaults: {model: {primary: 'ollama/a', fallbacks: ['nope/x', 'ollama/b']}}}}";
    config(text).with_models(|_, _, chain| {
        let chain = chain.unwrap();
        assert_eq!(chain.models.iter().map(NamedModel::name).collect::<Vec<_>>(), ["ollama/a", "ollama/b"]);
        let [left_out] = chain.skipped.as_slice() else { panic!("{:?}", chain.skipped) };
        assert!(left_out.reason.starts_with("agents.defaults.model.fallbacks names \"nope/x\", which is ignored: "));
    });
    config("{agents: {defaults: {model: 'nope/x'}}}").with_models(|_, _, chain| assert!(chain.is_err()));
    let text = "{agents: {defaults: {model: {primary: 'ollama/a', fallbacks: ['p/x']}}}, \
                models: {providers: {p: {baseUrl: 'http://box', api: 'openai-completions', headers: {'a b': 'x'}}}}}";
    assert_eq!(config(text).order(), ["ollama/a as none:ollama", "p/x as none:p"]);
}

#[test]
fn a_pinned_model_has_no_fallbacks_and_must_be_allowed() {
    let text = "{agents: {defaults: {model: {primary: 'ollama/a', fallbacks: ['ollama/b', 'ollama/c']}, \
                models: {'ollama/b': {alias: 'Bee'}, 'ollama/d': {}}}}}";
    config(text).with_models(|models, keyring, chain| {
        let chain = chain.unwrap();
        assert_eq!(chain.skipped.iter().map(|left_out| left_out.name.as_str()).collect::<Vec<_>>(), ["ollama/c"]);
        let choose = |name: &str| models.pinned(keyring, name, &chain.models).map(|candidates| order(&candidates));
        let single = |name: &str| vec![format!("ollama/{name} as none:ollama")];
        assert_eq!(choose("bee").unwrap(), single("b"));
        assert_eq!(choose("ollama/bee").unwrap(), single("b"), "as a session keeps it");
        assert_eq!((choose("ollama/d").unwrap(), choose("ollama/a").unwrap()), (single("d"), single("a")));
        let error = choose("ollama/c").unwrap_err().to_string();
        assert_eq!(error, "the model is not listed in agents.defaults.models");
    });
}

#[test]
fn a_missing_key_is_reported_with_a_remedy() {
    let old = r#"{"profiles": {"google:me": {"type": "oauth", "provider": "google", "access": "a", "refresh": "r", "expires": 1}}}"#;
    let setup = TestSetup {
        config: "{agents: {defaults: {model: 'google/gemini-3-pro'}}}",
        profiles: old,
        ..TestSetup::default()
    };
    let reason =
        setup.with_models(|models, keyring, _| models.keys(keyring, "google")[0].1[0].unusable_reason().to_owned());
    assert_eq!(
        reason,
        "no API key for google (google:me: expired; sign in again, or add a key); set GEMINI_API_KEY, or run: \
         homard models auth add google"
    );
}

#[test]
fn a_context_is_never_larger_than_the_config_says() {
    let context_window = |max: u64, model: &str| {
        let provider = "{baseUrl: 'http://127.0.0.1:9/v1', models: [{id: 'm', contextWindow: 40000}]}";
        let defaults = format!("{{model: '{model}', contextTokens: {max}}}");
        let text = format!("{{agents: {{defaults: {defaults}}}, models: {{providers: {{p: {provider}}}}}}}");
        config(&text).spec().context_window
    };
    assert_eq!(
        (context_window(30_000, "p/m"), context_window(50_000, "p/m"), context_window(50_000, "p/other")),
        (30_000, 40_000, 50_000)
    );
}

#[test]
fn a_key_is_sent_as_bearer_token_if_auth_header_is_set() {
    let is_bearer = |header: &str| {
        let text = format!("{{models: {{providers: {{p: {{baseUrl: 'http://box/v1'{header}}}}}}}}}");
        config(&text).with_models(|models, _, _| models.extras["p"].is_bearer)
    };
    assert!(is_bearer(", authHeader: true") && !is_bearer(""));
}
