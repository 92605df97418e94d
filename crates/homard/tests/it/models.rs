//! Failover between models, management of keys, and no key where it does not belong.

use std::{
    fs::{self, DirBuilder},
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use serde_json::{Value, json};

use crate::home::{CommandOutput, Home, run_command, until};

/// A server that speaks Chat Completions. The path determines the response: `/<status>/v1/…`; 200 says good day. Errors
/// echo the key, as some providers do.
struct ChatServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ChatServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (requests, is_over) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let (address, recorded, ended) = (listener.local_addr().unwrap(), requests.clone(), is_over.clone());
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                answer(&stream.unwrap(), &recorded);
            }
        });
        Self { address, requests, is_over, thread: Some(thread) }
    }

    /// Returns a provider that answers with this status.
    fn provider(&self, status: u16, key: &str) -> Value {
        json!({
            "baseUrl": format!("http://{}/{status}/v1", self.address), "apiKey": key, "api": "openai-completions",
            "models": [{"id": "m", "contextWindow": 40_000, "maxTokens": 4_096}],
        })
    }

    fn request_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

impl Drop for ChatServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        TcpStream::connect(self.address).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn answer(mut stream: &TcpStream, requests: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length, mut key) = (String::new(), 0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if head.is_empty() {
            head = line.trim().to_owned();
        }
        match line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim())) {
            Some((name, value)) if name == "content-length" => length = value.parse().unwrap(),
            Some((name, value)) if name == "authorization" => value.clone_into(&mut key),
            _ => {}
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let status = head.split('/').nth(1).unwrap_or("200").to_owned();
    requests.lock().unwrap().push(head);
    if status == "token" {
        let body =
            json!({"access_token": "new-access-token", "refresh_token": "new-refresh-token", "expires_in": 3600});
        return reply(stream, "200", "application/json", &body.to_string());
    }
    if status != "200" {
        let body = json!({"error": {"message": format!("refused {key}"), "type": "refused"}}).to_string();
        return reply(stream, &status, "application/json", &body);
    }
    let body = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Good day\"},\"finish_reason\":\"stop\"}]}\n\n\
                data: [DONE]\n\n";
    stream
        .write_all(
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}").as_bytes(),
        )
        .unwrap();
}

fn reply(mut stream: &TcpStream, status: &str, kind: &str, body: &str) {
    let head = format!(
        "HTTP/1.1 {status} No\r\ncontent-type: {kind}\r\nretry-after: 3600\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
}

/// Creates a home whose agent tries these providers in order, each under its own name with its own key.
fn chain(server: &ChatServer, statuses: &[u16]) -> (Home, Vec<String>) {
    let home = Home::new();
    let keys: Vec<_> = (0..statuses.len()).map(|index| format!("sk-canary-{index:03}-in-the-config")).collect();
    let providers = statuses.iter().zip(&keys).enumerate();
    let providers: serde_json::Map<_, _> =
        providers.map(|(index, (status, key))| (format!("p{index}"), server.provider(*status, key))).collect();
    let names: Vec<_> = (0..statuses.len()).map(|index| format!("p{index}/m")).collect();
    let model = json!({"primary": names[0], "fallbacks": names[1..]});
    home.configure(&json!({"agents": {"defaults": {"model": model}}, "models": {"providers": providers}}).to_string());
    (home, keys)
}

fn auth_file(home: &Home) -> std::path::PathBuf {
    home.state().join("agents/main/agent/auth-profiles.json")
}

/// Pipes a key into `auth add`.
fn add(home: &Home, args: &[&str], key: &str) -> CommandOutput {
    let mut command = home.command(&[&["models", "auth", "add"], args].concat());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    // A command that refuses may end before it has read the key.
    let written = child.stdin.take().unwrap().write_all(key.as_bytes());
    assert!(written.is_ok() || matches!(child.wait(), Ok(status) if !status.success()));
    let output = child.wait_with_output().unwrap();
    CommandOutput {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Returns all files below a directory.
pub(crate) fn files(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found
}

#[test]
fn the_next_candidate_answers_when_the_first_is_rate_limited() {
    let server = ChatServer::start();
    let (home, _) = chain(&server, &[429, 200]);
    let output = home.run(&["agent", "-m", "hi", "--json"]);
    let document = output.json();
    assert_eq!((output.code, &document["payloads"][0]["text"]), (Some(0), &json!("Good day")), "{}", output.stderr);
    let meta = &document["meta"];
    assert_eq!((&meta["agentMeta"]["provider"], &meta["fallbackAttempts"][0]["model"]), (&json!("p1"), &json!("p0/m")));
    assert_eq!(meta["fallbackAttempts"][0]["reason"], "rate_limit");
    let status = home.run(&["models", "status", "--json"]).json();
    let states: Vec<_> = status["candidates"].as_array().unwrap().iter().collect();
    assert_eq!((&states[0]["provider"], &states[0]["state"]), (&json!("p1"), &json!("ready")));
    assert_eq!((&states[1]["provider"], &states[1]["reason"]), (&json!("p0"), &json!("rate_limit")));
    assert_eq!(states[1]["from"], "config: models.providers.p0.apiKey");
    let text_output = home.run(&["models", "status"]).stdout;
    assert!(
        text_output.contains("in cooldown for 1h (rate_limit)") || text_output.contains("in cooldown for 59m"),
        "{text_output}"
    );
    assert_eq!(server.request_count(), 2);
    // The cooldown survives the process: the first one is not tried again.
    assert_eq!(home.run(&["agent", "-m", "hi", "--json"]).json()["payloads"][0]["text"], "Good day");
    assert_eq!(server.request_count(), 3);
    assert_eq!(fs::metadata(auth_file(&home)).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_model_is_down_from_its_failure_to_its_next_answer() {
    let server = ChatServer::start();
    let home = Home::new();
    let configure = |status| {
        let agents = json!({"defaults": {"model": "p/m"}});
        let providers = json!({"p": server.provider(status, "sk-canary")});
        home.configure(&json!({"agents": agents, "models": {"providers": providers}}).to_string());
    };
    configure(401);
    let gateway = home.gateway();
    let health = || gateway.run(&["health"]);
    assert_eq!(health().code, Some(0), "nothing is known yet, and nobody is asked");
    assert_eq!(gateway.run(&["agent", "-m", "hi"]).code, Some(1));
    let requests_before = server.request_count();
    let down = health();
    assert!(down.code == Some(1) && down.stdout.contains("model of agent main: p/m: "), "{down:?}");
    assert!(down.stdout.contains("(auth)"), "{down:?}");
    let doctor = gateway.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert_eq!(server.request_count(), requests_before, "health asks no model");
    configure(200);
    until("the model answers", || gateway.run(&["agent", "-m", "hi"]).code == Some(0));
    assert_eq!(health().code, Some(0));
}

#[test]
fn while_a_fallback_answers_the_model_is_not_down() {
    let server = ChatServer::start();
    let (home, _) = chain(&server, &[429, 200]);
    let gateway = home.gateway();
    assert_eq!(gateway.run(&["agent", "-m", "hi"]).code, Some(0));
    let health = gateway.run(&["health"]);
    assert_eq!(health.code, Some(0), "{health:?}");
}

#[test]
fn sixteen_fail_and_the_seventeenth_answers() {
    let server = ChatServer::start();
    let mut statuses = [401, 402, 403, 404, 429].repeat(4)[..16].to_vec();
    statuses.push(200);
    let (home, _) = chain(&server, &statuses);
    let output = home.run(&["agent", "-m", "hi", "--json"]);
    let document = output.json();
    assert_eq!((output.code, &document["payloads"][0]["text"]), (Some(0), &json!("Good day")), "{}", output.stderr);
    let attempts = document["meta"]["fallbackAttempts"].as_array().unwrap();
    let reported: Vec<_> = attempts
        .iter()
        .map(|attempt| (attempt["model"].as_str().unwrap(), attempt["reason"].as_str().unwrap()))
        .collect();
    let reasons = ["auth", "billing", "auth", "model_not_found", "rate_limit"];
    let names: Vec<_> = (0..16).map(|index| format!("p{index}/m")).collect();
    let expected: Vec<_> = names.iter().enumerate().map(|(index, name)| (name.as_str(), reasons[index % 5])).collect();
    assert_eq!(reported, expected);
    assert_eq!(server.request_count(), 17);
}

#[test]
fn when_all_candidates_fail_one_message_has_advice() {
    let server = ChatServer::start();
    let (home, _) = chain(&server, &[401, 402, 429]);
    let output = home.run(&["agent", "-m", "hi"]);
    // One line per failed candidate, and one summary.
    let lines: Vec<_> = output.stderr.lines().collect();
    let [first, second, all] = lines[..] else { panic!("{}", output.stderr) };
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""), "{}", output.stderr);
    assert!(first.starts_with("✗ model p0/m (") && second.starts_with("✗ model p1/m ("), "{}", output.stderr);
    for word in ["p0/m", "p1/m", "p2/m", "(auth)", "(billing)", "(rate_limit)", "homard models status"] {
        assert!(all.contains(word), "{word}: {}", output.stderr);
    }
}

#[test]
fn a_missing_key_is_reported_with_advice() {
    let home = Home::new();
    home.configure("{agents: {defaults: {model: 'anthropic/claude-opus-5-5'}}}");
    let advice = "no API key for anthropic; set ANTHROPIC_API_KEY, or run: homard models auth add anthropic";
    let output = home.run(&["agent", "-m", "hi"]);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains(advice), "{}", output.stderr);
    let status = home.run(&["models", "status"]);
    assert!(status.stdout.contains("missing") && status.stdout.contains(advice), "{}", status.stdout);
}

#[test]
fn the_only_key_in_the_environment_selects_the_model_and_is_reported() {
    let (home, server) = (Home::new(), ChatServer::start());
    // The provider's base URL is moved to this machine; the model stays unset.
    let base = format!("http://{}/200/v1", server.address);
    home.configure(&json!({"models": {"providers": {"mistral": {"baseUrl": base}}}}).to_string());
    let mut command = home.command(&["agent", "-m", "hi"]);
    command.env("MISTRAL_API_KEY", "sk-canary-mistral");
    let output = run_command(command);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "Good day\n"), "{}", output.stderr);
    let expected = format!(
        "(using mistral/mistral-large-4 because of MISTRAL_API_KEY in the environment; to use another model, set \
         agents.defaults.model in {})\n",
        home.state().join("homard.json").display()
    );
    assert_eq!(output.stderr, expected);
}

#[test]
fn of_several_keys_one_is_chosen_and_the_others_are_named() {
    let home = Home::new();
    let mut command = home.command(&["models", "status"]);
    command.env("XAI_API_KEY", "sk-canary-x").env("OPENAI_API_KEY", "sk-canary-o").env("GROQ_API_KEY", "sk-canary-g");
    let output = run_command(command);
    assert!(
        output.stdout.contains("because of OPENAI_API_KEY in the environment, preferred over xai, groq;"),
        "{}",
        output.stdout
    );
    assert!(!output.stdout.contains("canary") && !home.state().exists(), "{}", output.stdout);
    let none = home.run(&["models", "status"]);
    assert!(none.stdout.contains("homard/demo") && none.stdout.contains("models auth add"), "{}", none.stdout);
}

// R54.
#[test]
fn a_key_in_the_environment_is_not_seen_by_commands() {
    let home = Home::new();
    home.configure("{agents: {defaults: {model: 'homard/demo'}}}");
    let mut command = home.command(&["agent", "-m", "Run `env`"]);
    for name in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "HOMARD_GATEWAY_TOKEN"] {
        command.env(name, "sk-canary-in-the-environment");
    }
    let output = run_command(command);
    assert!(output.stdout.contains("PATH="), "{output:?}");
    assert!(!output.stdout.contains("canary") && !output.stdout.contains("API_KEY"), "{output:?}");
}

#[test]
fn credentials_are_listed_without_their_secrets() {
    let home = Home::new();
    let file = auth_file(&home);
    let none = home.run(&["models", "auth", "list"]).stdout;
    assert!(none.starts_with(&format!("no credentials in {}; ", file.display())), "{none}");
    add(&home, &["anthropic"], "sk-canary-first");
    add(&home, &["openai", "--profile", "work", "--token"], "sk-canary-second");
    let listed = home.run(&["models", "auth", "list"]).stdout;
    let expected = "PROFILE            PROVIDER   TYPE     STATE\n\
                    anthropic:default  anthropic  api_key  ok\n\
                    openai:work        openai     token    ok\n";
    assert_eq!(listed, expected);
    let listed = home.run(&["models", "auth", "list", "--json"]);
    assert!(!listed.stdout.contains("canary"), "{listed:?}");
    let profile = json!({"id": "openai:work", "provider": "openai", "type": "token", "unusable": null});
    assert_eq!((&listed.json()["profiles"][1], &listed.json()["file"]), (&profile, &json!(file)));
    // A prefix is enough if it is unique.
    let removed = home.run(&["models", "auth", "rm", "open", "--json"]).json();
    assert_eq!(removed["profile"], "openai:work");
}

#[test]
fn keys_are_added_replaced_and_removed_and_never_shown() {
    let home = Home::new();
    let file = auth_file(&home);
    let output = add(&home, &["anthropic"], "sk-canary-first\n");
    assert_eq!((output.code, output.stdout), (Some(0), format!("added anthropic:default ({})\n", file.display())));
    let output = add(&home, &["anthropic", "--profile", "work", "--token"], "sk-canary-second");
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    assert!(add(&home, &["anthropic"], "sk-canary-third").stdout.starts_with("replaced anthropic:default"));
    let stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let expected = json!({
        "version": 1,
        "profiles": {
            "anthropic:default": {"type": "api_key", "provider": "anthropic", "key": "sk-canary-third"},
            "anthropic:work": {"type": "token", "provider": "anthropic", "token": "sk-canary-second"},
        },
    });
    assert_eq!(stored, expected);
    let status = home.run(&["models", "status"]);
    assert!(status.stdout.contains("because of the auth profiles of anthropic"), "{}", status.stdout);
    assert!(!status.stdout.contains("canary"), "{}", status.stdout);
    let output = home.run(&["models", "auth", "remove", "anthropic:work", "--json"]);
    assert_eq!((&output.json()["did"], &output.json()["profile"]), (&json!("removed"), &json!("anthropic:work")));
    let output = home.run(&["models", "auth", "remove", "anthropic:work"]);
    let expected = format!(
        "error: profile anthropic:work not found in {}; existing profiles: anthropic:default\n",
        file.display()
    );
    assert_eq!((output.code, output.stderr), (Some(1), expected));
}

#[test]
fn invalid_keys_and_providers_are_rejected() {
    let home = Home::new();
    for key in ["", " \n", "two words", "two\nlines"] {
        let output = add(&home, &["openai"], key);
        let expected = "error: invalid key: it must be one word on one line, and not empty\n";
        assert_eq!((output.code, output.stderr.as_str()), (Some(2), expected), "{key:?}");
    }
    let output = home.run(&["models", "auth", "add", "antropic"]);
    assert!(
        output.code == Some(2)
            && output.stderr.starts_with("error: unknown provider \"antropic\"; known providers are anthropic")
    );
    let output = home.run(&["models", "auth", "add", "openai", "sk-canary-on-the-command-line"]);
    assert_eq!(output.code, Some(2), "a key is no argument");
    assert!(!home.state().exists());
}

#[test]
fn an_unreadable_file_is_named_and_not_changed() {
    let home = Home::new();
    let file = auth_file(&home);
    DirBuilder::new().recursive(true).mode(0o700).create(file.parent().unwrap()).unwrap();
    let broken = "{\"profiles\": {\"openai:a\": {\"key\": \"sk-canary-broken\"}";
    fs::write(&file, broken).unwrap();
    for args in [&["agent", "-m", "hi"][..], &["models", "status"], &["models", "auth", "remove", "openai:a"]] {
        let output = home.run(args);
        assert_eq!(output.code, Some(1), "{args:?}");
        let expected = format!("error: {} is not a JSON object (line 1, column 53); ", file.display());
        assert!(output.stderr.starts_with(&expected) && !output.stderr.contains("canary"), "{}", output.stderr);
        assert_eq!(output.stderr.matches(" is not a JSON object").count(), 1, "printed once: {}", output.stderr);
    }
    assert_eq!(add(&home, &["openai"], "sk-canary-new").code, Some(1));
    assert_eq!(fs::read_to_string(&file).unwrap(), broken);
}

#[test]
fn keys_added_beside_a_gateway_require_a_restart() {
    let home = Home::new();
    let _gateway = home.gateway();
    let output = add(&home, &["openai"], "sk-canary-beside");
    assert_eq!(output.code, Some(0));
    assert_eq!(output.stderr, "a gateway is running; restart it to apply the change\n");
    assert_eq!(home.run(&["models", "status"]).code, Some(0));
}

#[test]
fn models_are_listed_with_their_properties() {
    let home = Home::new();
    let list = home.run(&["models", "list", "--provider", "anthropic", "--json"]).json();
    let models = list["models"].as_array().unwrap();
    let opus = models.iter().find(|model| model["model"] == "claude-opus-4-5").unwrap();
    assert_eq!((&opus["contextWindow"], &opus["usable"]), (&json!(200_000), &json!(false)));
    assert!(home.run(&["models", "list"]).stdout.starts_with("no provider is configured yet;"));
    assert_eq!(home.run(&["models", "list", "--provider", "nobody"]).code, Some(2));
    let mut command = home.command(&["models", "list"]);
    command.env("XAI_API_KEY", "sk-canary");
    let listed = run_command(command).stdout;
    assert!(listed.contains("xai/grok-4.7") && !listed.contains("anthropic/"), "{listed}");
}

#[test]
fn an_expired_sign_in_is_renewed_and_stored() {
    let (home, server) = (Home::new(), ChatServer::start());
    let (config, file) = (server.provider(200, ""), auth_file(&home));
    let model = json!({"defaults": {"model": "p/m"}});
    home.configure(&json!({"agents": model, "models": {"providers": {"p": config}}}).to_string());
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let profile = json!({
        "type": "oauth", "provider": "p", "access": "old-access-token", "refresh": "old-refresh-token", "expires": 1,
        "tokenEndpoint": format!("http://{}/token/new", server.address), "email": "me@example.com",
    });
    fs::write(&file, json!({"version": 1, "profiles": {"p:me": profile}}).to_string()).unwrap();
    let output = home.run(&["agent", "-m", "hi"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "Good day\n"), "{}", output.stderr);
    let stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let profile = &stored["profiles"]["p:me"];
    assert_eq!((&profile["access"], &profile["refresh"]), (&json!("new-access-token"), &json!("new-refresh-token")));
    assert_eq!((&profile["email"], profile["expires"].as_u64() > Some(1)), (&json!("me@example.com"), true));
    assert_eq!(home.run(&["agent", "-m", "hi"]).code, Some(0));
    let renewals = server.requests.lock().unwrap().iter().filter(|head| head.contains("/token/new ")).count();
    assert_eq!(renewals, 1);
}

// A28, R71.
#[test]
fn fifty_secrets_appear_in_no_output() {
    let server = ChatServer::start();
    let (home, mut secrets) = chain(&server, &[[401, 402, 403, 404, 429].repeat(4), vec![404]].concat());
    for index in 0..29 {
        let key = format!("sk-canary-{index:03}-in-the-profiles");
        assert_eq!(add(&home, &[&format!("p{}", index % 5), "--profile", &format!("n{index}")], &key).code, Some(0));
        secrets.push(key);
    }
    assert_eq!(secrets.len(), 50);
    let mut outputs = Vec::new();
    for args in
        [&["agent", "-m", "hi"][..], &["agent", "-m", "hi", "--json"], &["models", "status"], &["models", "list"]]
    {
        let mut command = home.command(args);
        command.env("HOMARD_LOG", "trace");
        let result = run_command(command);
        outputs.extend([result.stdout.into_bytes(), result.stderr.into_bytes()]);
    }
    let (local_requests, log) = (server.request_count(), home.state().join("gateway.log"));
    let gateway = home.gateway_with_log(fs::File::create(&log).unwrap(), "trace");
    let result = gateway.run(&["agent", "-m", "hi", "--json"]);
    drop(gateway);
    assert!(
        local_requests > 40 && server.request_count() > local_requests + 20,
        "everybody is asked, and echoes what it was shown"
    );
    assert!(result.stdout.contains("refused Bearer …"), "{}", result.stdout);
    assert!(fs::read_to_string(log).unwrap().contains("provider answered"));
    outputs.extend([result.stdout.into_bytes(), result.stderr.into_bytes()]);
    let is_own = |path: &Path| {
        ["homard.json", "config.last-good.json", "auth-profiles.json"].iter().any(|name| path.ends_with(name))
    };
    outputs.extend(files(&home.state()).into_iter().filter(|(path, _)| !is_own(path)).map(|(_, bytes)| bytes));
    for output in outputs {
        let text = String::from_utf8_lossy(&output);
        let seen: Vec<_> = secrets.iter().filter(|secret| text.contains(secret.as_str())).collect();
        assert!(seen.is_empty(), "{seen:?} in {}", &text[..text.len().min(2000)]);
    }
}
