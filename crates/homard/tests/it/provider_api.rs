//! The API of a provider: from the config, or found by a probe, stored, and discarded when it is wrong.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::home::{CommandOutput, Home};

/// How a server responds to its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiStyle {
    Chat,
    Responses,
    Messages,
    Nothing,
    /// Every path requires another key.
    Closed,
    /// No request is answered.
    Silent,
}

/// A model server that speaks one API. It runs until the test process ends.
pub(crate) struct KeyedServer {
    address: SocketAddr,
    api_style: Arc<Mutex<ApiStyle>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl KeyedServer {
    pub(crate) fn start(api_style: ApiStyle) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (api_style, requests) = (Arc::new(Mutex::new(api_style)), Arc::<Mutex<Vec<String>>>::default());
        let (now, recorded) = (api_style.clone(), requests.clone());
        thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().map(Result::unwrap) {
                let api_style = *now.lock().unwrap();
                if api_style == ApiStyle::Silent {
                    held.push(stream);
                } else {
                    answer(&stream, api_style, &recorded);
                }
            }
        });
        Self { address, api_style, requests }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the requests since the last call, sorted: probes are concurrent.
    fn requests(&self) -> Vec<String> {
        let mut requests = std::mem::take(&mut *self.requests.lock().unwrap());
        requests.sort();
        requests
    }

    /// Creates a home with this provider only, and these additional settings.
    fn home(&self, extra: &Value) -> Home {
        let home = Home::new();
        self.configure(&home, extra);
        home
    }

    fn configure(&self, home: &Home, extra: &Value) {
        let mut provider = json!({"baseUrl": self.base(), "apiKey": "sk-a-fake-key", "models": [{"id": "m"}]});
        for (name, value) in extra.as_object().unwrap() {
            provider[name] = value.clone();
        }
        let agents = json!({"defaults": {"model": "mine/m"}});
        home.configure(&json!({"agents": agents, "models": {"providers": {"mine": provider}}}).to_string());
    }
}

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const MODELS: &str = "/v1/models";

fn answer(mut stream: &TcpStream, api_style: ApiStyle, requests: &Mutex<Vec<String>>) {
    let Some(request) = HttpRequest::read(stream) else { return };
    requests.lock().unwrap().push(request.path.clone());
    let path = request.path.split('?').next().unwrap_or_default().to_owned();
    let is_stream = request.body["stream"] == true;
    let (status, text) = match path.as_str() {
        _ if api_style == ApiStyle::Closed => {
            ("401 Unauthorized", json!({"error": {"message": "bad key"}}).to_string())
        }
        MODELS if api_style != ApiStyle::Nothing => {
            ("200 OK", json!({"object": "list", "data": [{"id": "m", "object": "model"}]}).to_string())
        }
        path => match reply(api_style, path, is_stream) {
            Some(reply) => ("200 OK", reply),
            None => ("404 Not Found", "no such page".to_owned()),
        },
    };
    let kind = match (status, is_stream) {
        ("200 OK", true) => "text/event-stream",
        ("200 OK", false) | ("401 Unauthorized", _) => "application/json",
        _ => "text/plain",
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
    // A probe with a result closes its other connections.
    stream.write_all(format!("{head}{text}").as_bytes()).ok();
}

/// A request of a client.
struct HttpRequest {
    path: String,
    body: Value,
}

impl HttpRequest {
    /// Reads a request; `None` if the client has disconnected.
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let (mut path, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if path.is_empty() {
                path = line.split(' ').nth(1).unwrap_or_default().to_owned();
            }
            if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        if path.is_empty() || reader.read_exact(&mut body).is_err() {
            return None;
        }
        Some(Self { path, body: serde_json::from_slice(&body).unwrap_or_default() })
    }
}

/// Returns the answer of a server with this API, as a stream or whole.
fn reply(api_style: ApiStyle, path: &str, is_stream: bool) -> Option<String> {
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    Some(match (api_style, path) {
        (ApiStyle::Chat, CHAT) if is_stream => {
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"By chat\"},\"finish_reason\":\"stop\"}]}\n\n\
             data: [DONE]\n\n"
                .to_owned()
        }
        (ApiStyle::Chat, CHAT) => {
            let message = json!({"role": "assistant", "content": "p"});
            json!({"choices": [{"index": 0, "message": message, "finish_reason": "length"}]}).to_string()
        }
        (ApiStyle::Responses, RESPONSES) if is_stream => {
            let item = json!({"type": "message", "id": "m1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "By responses", "annotations": []}]});
            let done =
                json!({"id": "r1", "object": "response", "status": "completed", "output": [item], "usage": usage});
            let events = [
                json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m1", "role": "assistant", "content": []}}),
                json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "m1", "delta": "By responses"}),
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                json!({"type": "response.completed", "response": done}),
            ];
            sse(&events)
        }
        (ApiStyle::Responses, RESPONSES) => {
            json!({"id": "r0", "object": "response", "output": [], "usage": usage}).to_string()
        }
        (ApiStyle::Messages, MESSAGES) if is_stream => {
            let events = [
                json!({"type": "message_start", "message": {"id": "m1", "type": "message", "role": "assistant", "content": [], "usage": usage}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "By messages"}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
                json!({"type": "message_stop"}),
            ];
            sse(&events)
        }
        (ApiStyle::Messages, MESSAGES) => {
            json!({"id": "m0", "type": "message", "role": "assistant", "content": [], "usage": usage}).to_string()
        }
        _ => return None,
    })
}

fn sse(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

fn turn(home: &Home) -> CommandOutput {
    home.run(&["agent", "-m", "hi"])
}

#[test]
fn an_api_that_the_config_does_not_name_is_probed_once_and_remembered() {
    for (api_style, path, api, text) in [
        (ApiStyle::Chat, CHAT, "openai-completions", "By chat\n"),
        (ApiStyle::Responses, RESPONSES, "openai-responses", "By responses\n"),
        (ApiStyle::Messages, MESSAGES, "anthropic-messages", "By messages\n"),
    ] {
        let server = KeyedServer::start(api_style);
        let home = server.home(&json!({}));
        let first = turn(&home);
        assert_eq!((first.code, first.stdout.as_str()), (Some(0), text), "{first:?}");
        let found = format!("models.providers.mine.api is not set; a probe detected {api}");
        assert!(first.stderr.contains(&found), "{first:?}");
        let requests = server.requests();
        // A probe does not wait for the others once it has a result.
        assert!(requests.len() > 1 && requests.len() <= 4 && requests.contains(&path.to_owned()), "{requests:?}");
        let again = turn(&home);
        assert_eq!((again.code, again.stdout.as_str(), again.stderr.as_str()), (Some(0), text, ""), "{again:?}");
        assert_eq!(server.requests(), [path], "what was found is remembered");
        assert_eq!(home.run(&["models", "status", "--json"]).json()["candidates"][0]["api"], api);
        // At another address it may be another server.
        let moved = KeyedServer::start(api_style);
        moved.configure(&home, &json!({}));
        assert_eq!(turn(&home).stdout, text);
        assert!(moved.requests().len() > 1);
        // The config takes precedence over the probe.
        moved.configure(&home, &json!({"api": api}));
        assert_eq!((turn(&home).stdout.as_str(), moved.requests()), (text, vec![path.to_owned()]));
    }
}

#[test]
fn a_probe_result_that_turns_out_wrong_is_discarded() {
    let server = KeyedServer::start(ApiStyle::Chat);
    let home = server.home(&json!({}));
    assert_eq!(turn(&home).stdout, "By chat\n");
    *server.api_style.lock().unwrap() = ApiStyle::Messages;
    let failed = turn(&home);
    let expected = format!("POST {}/chat/completions answered HTTP 404", server.base());
    assert!(failed.code == Some(1) && failed.stderr.contains(&expected), "{failed:?}");
    assert_eq!(turn(&home).stdout, "By messages\n");
}

#[test]
fn a_server_without_a_known_api_is_reported_with_the_attempts() {
    let server = KeyedServer::start(ApiStyle::Nothing);
    let home = server.home(&json!({}));
    let failed = turn(&home);
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(1), ""));
    let base = server.base();
    for part in [
        format!("POST {base}/chat/completions answered HTTP 404"),
        format!("POST {base}/responses answered HTTP 404"),
        format!("POST {base}/messages answered HTTP 404"),
        "models.providers.mine.baseUrl".to_owned(),
        "models.providers.mine.api".to_owned(),
    ] {
        assert!(failed.stderr.contains(&part), "{part}: {failed:?}");
    }
    assert_eq!(server.requests().len(), 3, "nobody asks again");
    assert!(!failed.stderr.contains("sk-a-fake-key"));
    *server.api_style.lock().unwrap() = ApiStyle::Closed;
    let refused = turn(&home);
    assert!(refused.code == Some(1) && refused.stderr.contains("HTTP 401"), "{refused:?}");
    *server.api_style.lock().unwrap() = ApiStyle::Chat;
    assert_eq!(turn(&home).stdout, "By chat\n", "nothing was remembered");
}

#[test]
fn a_server_that_does_not_answer_the_probe_times_out_soon() {
    let server = KeyedServer::start(ApiStyle::Silent);
    let home = server.home(&json!({}));
    let started_at = Instant::now();
    let failed = turn(&home);
    let duration = started_at.elapsed();
    assert!(failed.code == Some(1) && failed.stderr.contains("did not answer within 4 s"), "{failed:?}");
    assert!(duration < Duration::from_secs(15), "{duration:?}");
}

#[test]
fn a_server_that_does_not_answer_is_named_while_it_is_awaited() {
    let server = KeyedServer::start(ApiStyle::Silent);
    let home = server.home(&json!({"api": "openai-completions"}));
    let base = server.base();
    let notice = format!(
        "POST {base}/chat/completions (openai-completions) has not answered for 4 s; still waiting, as a model may need time. \
         If the address or the API is wrong, correct models.providers.mine.baseUrl or models.providers.mine.api"
    );
    let other_home = Home::new();
    thread::scope(|scope| {
        let turn = scope.spawn(|| home.run(&["agent", "-m", "hi", "--timeout", "6"]));
        let test = scope.spawn(|| home.run(&["models", "test", "--timeout", "6"]));
        let setup = scope.spawn(|| other_home.run(&["setup", "--yes", "--url", &base]));
        let turn = turn.join().unwrap();
        let is_told = turn.stderr.contains(&format!("(model mine/m: {notice})\n"));
        assert!(turn.code == Some(1) && is_told, "{turn:?}");
        let test = test.join().unwrap();
        assert!(test.code == Some(1) && test.stderr.starts_with(&format!("({notice})\n")), "{test:?}");
        let setup = setup.join().unwrap();
        let expected = format!(
            "error: custom: GET {base}/models did not answer within 4 s, as a server with OpenAI's or Anthropic's API would; \
             check baseUrl and the network\n"
        );
        assert_eq!((setup.code, setup.stderr), (Some(1), expected));
    });
}

#[test]
fn a_wrong_api_in_the_config_is_reported_at_the_first_request() {
    let server = KeyedServer::start(ApiStyle::Chat);
    let home = server.home(&json!({"api": "openai-responses"}));
    let started_at = Instant::now();
    let failed = turn(&home);
    let expected = format!("POST {}/responses answered HTTP 404", server.base());
    assert!(failed.code == Some(1) && failed.stderr.contains(&expected), "{failed:?}");
    assert!(started_at.elapsed() < Duration::from_secs(5), "{:?}", started_at.elapsed());
    assert!(failed.stderr.contains("models.providers.mine.api, which is openai-responses"), "{failed:?}");
    assert_eq!(server.requests(), [RESPONSES]);
}

#[test]
fn an_unreachable_address_is_reported_soon() {
    let home = Home::new();
    let provider = json!({"baseUrl": format!("http://127.0.0.1:{}/v1", home.port), "api": "openai-completions"});
    let agents = json!({"defaults": {"model": "mine/m"}});
    home.configure(&json!({"agents": agents, "models": {"providers": {"mine": provider}}}).to_string());
    let started_at = Instant::now();
    let failed = turn(&home);
    let duration = started_at.elapsed();
    let url = format!("http://127.0.0.1:{}/v1/chat/completions", home.port);
    let expected = format!("POST {url} (openai-completions) failed (Connection refused");
    assert!(failed.code == Some(1) && failed.stderr.contains(&expected), "{failed:?}");
    // The first line says what to check. Two more attempts follow, after one and two seconds.
    let first = failed.stderr.lines().find(|line| line.starts_with("✗ model mine/m: ")).unwrap_or_default();
    assert!(first.contains(&expected) && first.contains("; check baseUrl and the network; retrying in "), "{failed:?}");
    assert!(duration < Duration::from_secs(6), "{duration:?}");
}

#[test]
fn unusable_providers_and_models_are_rejected_before_they_are_written() {
    let home = Home::new();
    home.configure("{models: {providers: {mine: {baseUrl: 'http://127.0.0.1:9/v1', api: 'openai-completions'}}}}");
    for (path, value, expected_error) in [
        (
            "models.providers.mine.api",
            "openai-completion",
            "is \"openai-completion\", which is not a known API; did you mean \"openai-completions\"?",
        ),
        (
            "models.providers.mine.api",
            "bedrock-converse-stream",
            "is \"bedrock-converse-stream\", which is not supported; supported: ",
        ),
        ("agents.defaults.model", "nobody/x", "is \"nobody/x\": unknown provider \"nobody\""),
        ("agents.defaults.model", "opnai/gpt-6.1-sol", "did you mean \"openai\"?"),
        ("agents.defaults.model", "gpt-6.1-sol", "has the form provider/model; did you mean \"openai/gpt-6.1-sol\"?"),
        ("agents.defaults.model", "gpt-6.1-sool", "did you mean \"openai/gpt-6.1-sol\"?"),
        (
            "agents.defaults.model",
            "{primary: 'mine/m', fallbacks: ['mine/n', 'nobody/x']}",
            "agents.defaults.model.fallbacks[1] is \"nobody/x\"",
        ),
        ("agents.defaults.imageModel", "nobody/x", "agents.defaults.imageModel is \"nobody/x\""),
        ("agents.defaults.subagents.model", "nobody/x", "agents.defaults.subagents.model is \"nobody/x\""),
        ("agents.defaults.compaction.model", "nobody/x", "agents.defaults.compaction.model is \"nobody/x\""),
        ("agents.list", "[{id: 'a', model: 'nobody/x'}]", "agents.list[0].model is \"nobody/x\""),
        ("models.providers.other", "{models: [{id: 'm'}]}", "models.providers.other.baseUrl is missing"),
    ] {
        let before = std::fs::read_to_string(home.state().join("homard.json")).unwrap();
        let output = home.run(&["config", "set", path, value]);
        assert!(output.code == Some(1) && output.stderr.contains(expected_error), "{path} {value}: {output:?}");
        assert_eq!(std::fs::read_to_string(home.state().join("homard.json")).unwrap(), before);
    }
    for (path, value) in [
        ("agents.defaults.model", "mine/any"),
        ("agents.defaults.imageModel", "ollama/llava"),
        ("agents.defaults.subagents.model", "homard/demo"),
    ] {
        let output = home.run(&["config", "set", path, value]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{path} {value}");
    }
    // A model that is newer than the catalogue can be used, with a warning.
    let output = home.run(&["config", "set", "agents.defaults.model", "anthropic/claude-opus-5-55"]);
    let expected = "is not in the catalogue";
    assert!(
        output.code == Some(0) && output.stderr.contains(expected) && output.stderr.contains("claude-opus-5-5"),
        "{output:?}"
    );
}

#[test]
fn validate_names_the_nearest_right_name() {
    let provider = |api: &str| json!({"mine": {"baseUrl": "http://127.0.0.1:9/v1", "api": api}});
    for (model, api, expected) in [
        ("mine/m", "openai-completion", "did you mean \"openai-completions\"?"),
        ("opnai/gpt-6.1-sol", "openai-completions", "did you mean \"openai\"?"),
        ("gpt-6.1-sol", "openai-completions", "did you mean \"openai/gpt-6.1-sol\"?"),
    ] {
        let home = Home::new();
        let config = json!({"agents": {"defaults": {"model": model}}, "models": {"providers": provider(api)}});
        home.configure(&config.to_string());
        let validate = home.run(&["config", "validate"]);
        assert!(validate.code == Some(1) && validate.stdout.contains(expected), "{model} {api}: {validate:?}");
    }
}

#[test]
fn a_gateway_with_an_unusable_model_starts_and_reports_it() {
    let home = Home::new();
    home.configure(
        "{agents: {defaults: {model: 'nobody/x'}, list: [{id: 'main'}, {id: 'well', model: {primary: 'homard/demo', fallbacks: []}}]}}",
    );
    let validate = home.run(&["config", "validate"]);
    let expected = "agents.defaults.model is \"nobody/x\": unknown provider \"nobody\"";
    assert!(validate.code == Some(1) && validate.stdout.contains(expected), "{validate:?}");
    let gateway = home.gateway();
    let failed = gateway.run(&["agent", "-m", "hi"]);
    assert!(failed.code == Some(1) && failed.stderr.contains(expected), "{failed:?}");
    assert_eq!(gateway.run(&["agent", "-m", "What time is it?", "--agent", "well"]).code, Some(0));
    assert!(gateway.run(&["status"]).stdout.contains(expected));
}

#[test]
fn a_server_is_added_with_its_models_and_its_api() {
    for (api_style, api, text) in [
        (ApiStyle::Chat, "openai-completions", "By chat\n"),
        (ApiStyle::Responses, "openai-responses", "By responses\n"),
        (ApiStyle::Messages, "anthropic-messages", "By messages\n"),
    ] {
        let (server, home) = (KeyedServer::start(api_style), Home::new());
        let url = server.base().replace("/v1", "/");
        let added = home.run(&["models", "add", "mine", &url, "--set", "--json"]);
        assert_eq!(added.code, Some(0), "{added:?}");
        let document = added.json();
        assert_eq!(
            (&document["baseUrl"], &document["api"], &document["models"]),
            (&json!(server.base()), &json!(api), &json!(["m"]))
        );
        let tested = home.run(&["models", "test", "--json"]).json();
        assert_eq!((&tested["model"], &tested["answer"]), (&json!("mine/m"), &json!(text.trim())));
        assert!(tested["url"].as_str().unwrap().starts_with(&server.base()), "{tested}");
        assert_eq!(turn(&home).stdout, text);
        assert!(home.run(&["models", "list"]).stdout.contains("mine/m"));
        let status = home.run(&["models", "status", "--probe", "--json"]).json();
        assert_eq!((&status["probes"][0]["ok"], &status["probes"][0]["api"]), (&json!(true), &json!(api)));
        let listed = home.run(&["models", "list", "--probe", "--provider", "mine", "--json"]).json();
        assert_eq!(listed["providers"][0]["models"][0]["model"], "m");
        assert!(home.run(&["config", "validate"]).code == Some(0));
    }
}

#[test]
fn a_server_that_cannot_be_used_is_not_added() {
    let (home, server) = (Home::new(), KeyedServer::start(ApiStyle::Nothing));
    let base = server.base();
    let gone = format!("http://127.0.0.1:{}/v1", home.port);
    for (args, expected) in [
        (vec!["mine", base.as_str()], format!("GET {base}/models answered HTTP 404")),
        (vec!["mine", base.as_str(), "--model", "m"], format!("POST {base}/chat/completions answered HTTP 404")),
        (vec!["mine", gone.as_str()], format!("GET {gone}/models failed (Connection refused")),
        (vec!["a/b", base.as_str()], "the name must not".to_owned()),
        (vec!["mine", base.as_str(), "--api", "openai"], "unknown API \"openai\"".to_owned()),
        (vec!["mine", base.as_str(), "--key-from-env", "NO_KEY"], "NO_KEY is not set".to_owned()),
    ] {
        let output = home.run(&[&["models", "add"], &args[..]].concat());
        assert!(output.code != Some(0) && output.stderr.contains(&expected), "{args:?}: {output:?}");
        assert!(!home.state().join("homard.json").exists(), "{args:?}");
    }
}

#[test]
fn the_model_is_set_and_a_failed_test_names_the_request() {
    let server = KeyedServer::start(ApiStyle::Chat);
    let home = server.home(&json!({"api": "openai-responses"}));
    let failed = home.run(&["models", "test"]);
    let place = format!("mine/m did not answer (openai-responses at {}/responses)", server.base());
    assert!(failed.code == Some(1) && failed.stderr.contains(&place), "{failed:?}");
    assert!(failed.stderr.contains("check models.providers.mine.baseUrl and models.providers.mine.api"), "{failed:?}");
    assert!(!failed.stderr.contains("sk-a-fake-key"));
    let wrong = home.run(&["models", "set", "minee/m"]);
    assert!(wrong.code == Some(1) && wrong.stderr.contains("did you mean \"mine\"?"), "{wrong:?}");
    let set = home.run(&["models", "set", "mine/n", "--fallback", "homard/demo"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    let model = home.run(&["config", "get", "agents.defaults.model", "--json"]).json();
    assert_eq!(model, json!({"primary": "mine/n", "fallbacks": ["homard/demo"]}));
    assert_eq!(home.run(&["models", "set", "mine/m"]).code, Some(0));
    let model = home.run(&["config", "get", "agents.defaults.model", "--json"]).json();
    assert_eq!(model, json!({"primary": "mine/m", "fallbacks": ["homard/demo"]}), "the fallbacks stay");
}

#[test]
fn a_missing_variable_is_named_in_the_list() {
    let home = Home::new();
    home.configure(
        "{models: {providers: {mine: {baseUrl: 'http://127.0.0.1:9/v1', apiKey: '${NO_SUCH_KEY}', models: [{id: 'm'}]}}}}",
    );
    let listed = home.run(&["models", "list"]);
    assert!(
        listed.stdout.contains("the models of mine cannot be used") && listed.stdout.contains("NO_SUCH_KEY"),
        "{listed:?}"
    );
}

#[test]
fn the_models_of_a_new_server_are_proposed() {
    let (home, server) = (Home::new(), KeyedServer::start(ApiStyle::Chat));
    let added = home.run(&["models", "add", "mine", &server.base()]);
    assert!(added.stdout.ends_with("use it with: homard models set mine/m\n"), "{added:?}");
    let status = home.run(&["models", "status"]).stdout;
    assert!(status.contains("use a configured one with: homard models set mine/m"), "{status}");
    let short = home.run(&["models", "set", "m"]);
    assert!(short.code == Some(1) && short.stderr.contains("did you mean \"mine/m\"?"), "{short:?}");
    let models = r#"[{"id": "qwen3-large"}, {"id": "qwen3-small"}]"#;
    assert_eq!(home.run(&["config", "set", "models.providers.mine.models", models]).code, Some(0));
    let typo = home.run(&["models", "set", "mine/qwen3-larg"]);
    assert!(typo.code == Some(0) && typo.stderr.contains("did you mean mine/qwen3-large?"), "{typo:?}");
    let right = home.run(&["models", "set", "mine/qwen3-large"]);
    assert!(right.code == Some(0) && right.stderr.is_empty(), "{right:?}");
}
