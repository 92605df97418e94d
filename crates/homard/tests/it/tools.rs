//! Tools through the binary, the sandbox of their commands, and masking of secrets in their output.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use serde_json::{Value, json};

use crate::{
    home::{Home, has_node, run_command, skip},
    models::files,
    scripted_model::ScriptedHome,
    socket::{Socket, connect_as, next_frame, send_frame},
};

/// Runs the demo model, and returns which tools it used.
fn ask(home: &Home, text: &str) -> (Option<i32>, String, String) {
    let output = home.run(&["agent", "-m", text, "--verbose", "on"]);
    let used = output
        .stderr
        .lines()
        .filter(|line| !line.starts_with("(answered by the built-in demo model, homard/demo"))
        .collect::<Vec<_>>()
        .join("\n");
    (output.code, output.stdout, used)
}

#[test]
fn the_demo_model_lists_reads_searches_and_edits() {
    let home = Home::new();
    fs::create_dir(home.work().join("src")).unwrap();
    fs::write(home.work().join("src/main.rs"), "fn main() {} // TODO\n").unwrap();
    fs::write(home.work().join("hello.txt"), "hello, world\n").unwrap();
    let expected = |stdout: &str, used: &str| (Some(0), format!("{stdout}\n"), used.to_owned());
    assert_eq!(ask(&home, "What files are here?"), expected("hello.txt\nsrc/", "· ls ."));
    assert_eq!(ask(&home, "Read hello.txt"), expected("hello, world", "· read hello.txt"));
    assert_eq!(ask(&home, "Search for TODO in src"), expected("src/main.rs:1: fn main() {} // TODO", "· grep src"));
    let edited = ask(&home, "Replace 'hello' with 'goodbye' in hello.txt");
    assert_eq!(edited, expected("Replaced it in hello.txt.", "· edit hello.txt"));
    assert_eq!(fs::read_to_string(home.work().join("hello.txt")).unwrap(), "goodbye, world\n");
    assert_eq!(ask(&home, "Run `wc -c < hello.txt`"), expected("15", "· exec wc -c < hello.txt"));
    assert_eq!(ask(&home, "Save 'new' to src/new.txt"), expected("Wrote src/new.txt.", "· write src/new.txt"));
    assert_eq!(fs::read_to_string(home.work().join("src/new.txt")).unwrap(), "new\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn web_search_is_offered_only_with_a_provider() {
    let fixture = ScriptedHome::with(json!({})).await;
    let is_offered = || {
        fixture.home.run(&["agent", "-m", "hello"]);
        let offered = fixture.offered();
        assert!(offered.contains(&"web_fetch".to_owned()), "{offered:?}");
        offered.contains(&"web_search".to_owned())
    };
    assert!(!is_offered());
    let file = fixture.home.state().join("homard.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["tools"]["web"]["search"] = json!({"searxng": {"baseUrl": "http://127.0.0.1:9"}});
    fs::write(&file, config.to_string()).unwrap();
    assert!(is_offered());
    config["tools"]["web"]["search"] = json!({"provider": "brave"});
    fs::write(&file, config.to_string()).unwrap();
    let output = fixture.home.run(&["agent", "-m", "hello"]);
    let expected = "web search is disabled: tools.web.search.provider is brave, but its API key is missing";
    assert!(output.stderr.contains(expected), "{output:?}");
    assert!(!is_offered());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_turn_waits_for_its_background_command() {
    let fixture = ScriptedHome::with(json!({"tools": {"exec": {"backgroundMs": 10}}})).await;
    let call = json!({"command": "sleep 0.3; echo all done", "background": true});
    let output = fixture.home.run(&["agent", "-m", &format!("CALL exec {call}")]);
    assert!(output.stdout.starts_with("all done"), "{output:?}");
    let gateway = fixture.home.gateway();
    let output = gateway.run(&["agent", "-m", &format!("CALL exec {call}")]);
    assert!(!output.stdout.contains("all done"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_left_out_of_a_compact_prompt_are_reported() {
    if !has_node("it is told which tools a lean prompt is without") {
        return;
    }
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/tests/mcp/server.mjs");
    let servers = json!({"fake": {"command": "node", "args": [server], "toolFilter": {"include": ["echo"]}}});
    let fixture = ScriptedHome::with(json!({"mcp": {"servers": servers}})).await;
    let context = || fixture.home.run(&["agent", "-m", "/context"]).stdout;
    assert!(!context().contains("lean"), "{}", context());
    let file = fixture.home.state().join("homard.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["agents"]["defaults"]["promptStyle"] = json!("lean");
    fs::write(&file, config.to_string()).unwrap();
    let expected = "Tools left out: fake__echo, agents_list, ";
    assert!(context().contains(expected), "{}", context());
    let json: Value = serde_json::from_str(&fixture.home.run(&["agent", "-m", "/context json"]).stdout).unwrap();
    assert_eq!(json["tools"]["leftOut"][0], "fake__echo");
}

// A18, R60.
#[test]
fn a_file_tool_does_not_leave_its_directory() {
    let home = Home::new();
    home.configure("{}");
    std::os::unix::fs::symlink(home.state(), home.work().join("link")).unwrap();
    for text in ["Read ../state/homard.json", "Read link/homard.json", "Save 'x' to ../state/homard.json"] {
        let (code, stdout, _) = ask(&home, text);
        assert!(code == Some(0) && stdout.starts_with("That did not work: "), "{text}: {stdout}");
    }
    assert_eq!(fs::read_to_string(home.state().join("homard.json")).unwrap(), "{}");
}

// A13, A17, R51, R52, R53.
#[test]
fn a_command_has_no_access_to_state_network_or_protected_files() {
    let home = Home::new();
    let tier = home.run(&["sandbox", "explain", "--json"]).json()["tier"].clone();
    if tier != "A" {
        return skip("a_command_sees_neither_the_state_nor_the_network", "commands cannot be run in namespaces here");
    }
    home.configure("{agents: {defaults: {model: 'homard/demo'}}}");
    fs::create_dir_all(home.state().join("../.ssh")).unwrap();
    fs::write(home.state().join("../.ssh/id_ed25519"), "a-private-key\n").unwrap();
    fs::create_dir_all(home.work().join(".git/hooks")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let state = home.state().display().to_string();
    let script = format!(
        "cat {state}/homard.json; ls {state}/*; cat {state}/../.ssh/id_ed25519; cat ~/.ssh/id_ed25519
         echo planted > {state}/planted; echo planted > {state}/../planted
         (exec 3<>/dev/tcp/127.0.0.1/{port}; echo planted >&3)
         echo planted > .git/hooks/pre-commit; echo planted > AGENTS.md; mkdir -p skills/x; echo planted > skills/x/SKILL.md
         echo worked > allowed.txt"
    );
    fs::write(home.work().join("attack.sh"), script).unwrap();
    let (code, stdout, _) = ask(&home, "Run `bash attack.sh`");
    assert_eq!(code, Some(0));
    assert_eq!(fs::read_to_string(home.work().join("allowed.txt")).unwrap(), "worked\n", "{stdout}");
    assert!(!stdout.contains("homard/demo'") && !stdout.contains("a-private-key"), "{stdout}");
    let planted = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.contains("planted"));
    let work = home.work();
    for path in [
        home.state().join("planted"),
        home.state().join("../planted"),
        work.join(".git/hooks/pre-commit"),
        work.join("AGENTS.md"),
        work.join("skills/x/SKILL.md"),
    ] {
        assert!(!planted(&path), "{}: {stdout}", path.display());
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "{stdout}");
}

/// A model behind an HTTP endpoint that obeys its input: each line `do <tool> <arguments>` of the newest message is a
/// call. It replies with the tool results. All requests are recorded.
struct ObedientModel {
    address: SocketAddr,
    sent: Arc<Mutex<Vec<String>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ObedientModel {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (sent, is_over) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let (address, recorded, ended) = (listener.local_addr().unwrap(), sent.clone(), is_over.clone());
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                serve(&stream.unwrap(), &recorded);
            }
        });
        Self { address, sent, is_over, thread: Some(thread) }
    }
}

impl Drop for ObedientModel {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        TcpStream::connect(self.address).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(mut stream: &TcpStream, recorded: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let choice = obey(&serde_json::from_str(&body).unwrap());
    recorded.lock().unwrap().push(body);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let answer = format!("{head}data: {}\n\ndata: [DONE]\n\n", json!({"choices": [choice]}));
    stream.write_all(answer.as_bytes()).unwrap();
}

/// Returns the text of a message.
fn message_text(message: &Value) -> String {
    let blocks = message["content"].as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    message["content"].as_str().into_iter().chain(blocks).collect()
}

fn obey(request: &Value) -> Value {
    let messages = request["messages"].as_array().unwrap();
    let last_user = messages.iter().rposition(|message| message["role"] == "user").unwrap();
    let results: Vec<_> =
        messages[last_user..].iter().filter(|message| message["role"] == "tool").map(message_text).collect();
    if !results.is_empty() {
        let content = results.join("\n---\n");
        return json!({"index": 0, "delta": {"content": content}, "finish_reason": "stop"});
    }
    let text = message_text(&messages[last_user]);
    let orders = text.lines().filter_map(|line| line.strip_prefix("do ")?.split_once(' '));
    let calls: Vec<_> = orders
        .enumerate()
        .map(|(index, (name, arguments))| {
            let id = format!("call_{}_{index}", messages.len());
            json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    json!({"index": 0, "delta": {"tool_calls": calls}, "finish_reason": "tool_calls"})
}

/// Fifty secrets, by where they are stored.
struct Canaries {
    environment: Vec<(String, String)>,
    config: Value,
    profiles: Value,
    all: Vec<String>,
}

fn canaries(model: SocketAddr) -> Canaries {
    let mut all = Vec::new();
    // With characters that every encoding writes differently.
    let mut next = |label: &str| {
        let secret = format!("canary/{:02}+\"{label}\"&=%~end", all.len());
        all.push(secret.clone());
        secret
    };
    let endings = ["API_KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS"];
    let environment =
        (0..16).map(|n| (format!("MY_{n}_{}", endings[n % endings.len()]), next("environment"))).collect();
    let mut providers = serde_json::Map::new();
    for label in 0..6 {
        let provider = json!({
            "baseUrl": format!("http://{model}/v1"), "apiKey": next("provider"), "api": "openai-completions",
            "models": [{"id": "m", "contextWindow": 200_000, "maxTokens": 4_096}],
        });
        providers.insert(format!("p{label}"), provider);
    }
    let mut skills = serde_json::Map::new();
    for label in 0..5 {
        let entry = json!({"apiKey": next("skill"), "env": {format!("SKILL_{label}_VALUE"): next("skill-variable")}});
        skills.insert(format!("skill-{label}"), entry);
    }
    let vars: serde_json::Map<_, _> = (0..6).map(|n| (format!("VAR_{n}_KEY"), json!(next("variable")))).collect();
    let config = json!({
        "agents": {"defaults": {"model": "p0/m"}},
        "models": {"providers": providers},
        "skills": {"entries": skills},
        "env": {"vars": vars},
        "gateway": {"auth": {"mode": "token", "token": next("gateway")}},
        "tools": {"web": {"search": {"provider": "brave", "apiKey": next("search")}}},
    });
    let profile =
        |secret: String, n: usize| json!({"type": "api_key", "provider": format!("p{}", n % 6), "key": secret});
    let profiles: serde_json::Map<_, _> =
        (0..10).map(|n| (format!("p{}:n{n}", n % 6), profile(next("profile"), n))).collect();
    Canaries { environment, config, profiles: json!({"version": 1, "profiles": profiles}), all }
}

/// Encodes bytes as Base64 without padding; their number must be a multiple of three.
fn base64(bytes: &[u8], last: &[u8; 2]) -> String {
    let letters = [&(b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').collect::<Vec<_>>()[..], last].concat();
    let sixes = bytes.chunks_exact(3).flat_map(|three| {
        let all = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        [18, 12, 6, 0].map(|shift| (all >> shift) as usize & 63)
    });
    sixes.map(|six| char::from(letters[six])).collect()
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Returns every encoding of a secret, also within a longer text.
fn spellings(secret: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::from([secret.to_owned(), hex(secret), hex(secret).to_uppercase(), percent(secret)]);
    all.extend([escaped(secret), escaped(&escaped(secret))]);
    for skip in 0..3 {
        let rest = &secret.as_bytes()[skip..];
        let aligned = &rest[..rest.len() / 3 * 3];
        all.extend([base64(aligned, b"+/"), base64(aligned, b"-_")]);
    }
    all
}

/// Returns the instructions of a session: print the secrets in every way.
fn orders() -> Vec<String> {
    let run = |command: &str| format!("do exec {}", json!({"command": command}));
    vec![
        [
            run("cat loot.txt"),
            run("env; cat /proc/self/environ; cat /proc/$PPID/environ"),
            run("cat loot.txt >&2; exit 3"),
            run("base64 -w0 loot.txt"),
            run("od -An -v -tx1 loot.txt | tr -d ' \\n'"),
            run("od -An -v -tx1 loot.txt | tr -d ' \\n' | tr a-f A-F"),
            run("cat loot.url loot.json"),
            run("while read -r line; do echo \"$line\"; done < loot.txt"),
        ]
        .join("\n"),
        [
            format!("do read {}", json!({"path": "loot.txt"})),
            format!("do grep {}", json!({"pattern": "canary", "path": "."})),
            format!("do exec {}", json!({"command": "cat loot.txt", "background": true})),
            format!("do process {}", json!({"action": "list"})),
            format!("do edit {}", json!({"path": "copy.txt", "oldText": "mark", "newText": "done"})),
        ]
        .join("\n"),
        // Wrapped as these programs do by default.
        [run("base64 loot.txt"), run("od -An -v -tx1 loot.txt | tr -d ' \\n' | fold -w 60")].join("\n"),
    ]
}

/// Sends a message over a socket and records every frame until the run has ended.
async fn turn(socket: &mut Socket, id: &str, text: &str, frames: &mut Vec<String>) {
    let params = json!({"message": text, "idempotencyKey": id, "sessionKey": "agent:main:main"});
    send_frame(socket, &json!({"type": "req", "id": id, "method": "agent", "params": params})).await;
    loop {
        let frame = next_frame(socket).await.unwrap();
        let is_last = frame["id"] == id && frame["payload"]["status"] != "accepted";
        frames.push(frame.to_string());
        if is_last {
            assert_eq!(frame["payload"]["status"], "ok", "{frame}");
            return;
        }
    }
}

async fn call(socket: &mut Socket, method: &str, params: Value, frames: &mut Vec<String>) {
    send_frame(socket, &json!({"type": "req", "id": method, "method": method, "params": params})).await;
    loop {
        let frame = next_frame(socket).await.unwrap();
        let is_answer = frame["id"] == method;
        frames.push(frame.to_string());
        if is_answer {
            assert_eq!(frame["ok"], true, "{frame}");
            return;
        }
    }
}

/// Returns where secrets are found, in a text and in the same text without its line ends.
fn seen(secrets: &[String], source: &str, text: &str) -> Vec<String> {
    let joined = text.replace("\\n", "").replace(['\n', '\r'], "");
    let mut found = Vec::new();
    for secret in secrets {
        for spelling in spellings(secret) {
            if text.contains(&spelling) || joined.contains(&spelling) {
                found.push(format!("{secret} as {spelling} in {source}"));
            }
        }
    }
    found
}

// A28, R71, R79.
#[tokio::test]
async fn fifty_secrets_printed_by_tools_appear_in_no_output() {
    let (home, model) = (Home::new(), ObedientModel::start());
    let Canaries { environment, config, profiles, all } = canaries(model.address);
    assert_eq!(all.len(), 50);
    home.configure(&config.to_string());
    let agent = home.state().join("agents/main/agent");
    fs::create_dir_all(&agent).unwrap();
    fs::write(agent.join("auth-profiles.json"), profiles.to_string()).unwrap();
    let workspace = home.state().join("workspace");
    for folder in [&home.work(), &workspace] {
        fs::create_dir_all(folder).unwrap();
        let lines = |encode: fn(&str) -> String| all.iter().map(|secret| encode(secret) + "\n").collect::<String>();
        fs::write(folder.join("loot.txt"), lines(str::to_owned)).unwrap();
        fs::write(folder.join("loot.url"), lines(percent)).unwrap();
        fs::write(folder.join("loot.json"), lines(escaped)).unwrap();
        fs::write(folder.join("copy.txt"), lines(str::to_owned) + "mark\n").unwrap();
    }
    let with_secrets = |mut command: Command| {
        command.envs(environment.clone()).env("HOMARD_LOG", "trace");
        command
    };
    let mut outputs = Vec::new();
    for (number, text) in orders().iter().enumerate() {
        let output =
            run_command(with_secrets(home.command(&["agent", "-m", text, "--json", "--session-key", "alone"])));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        outputs.push((format!("stdout {number}"), output.stdout));
        outputs.push((format!("stderr {number}"), output.stderr));
    }

    let log = home.state().join("gateway.log");
    let mut command = with_secrets(home.command(&["gateway", "run", "--port", "0"]));
    command.stderr(fs::File::create(&log).unwrap());
    let gateway = home.listening(command);
    let token = config["gateway"]["auth"]["token"].as_str().unwrap();
    let mut frames = Vec::new();
    for protocol in [3, 4] {
        let mut socket = connect_as(gateway.port, token, protocol, &["operator.admin"], &["tool-events"]).await;
        for (number, text) in orders().iter().enumerate() {
            turn(&mut socket, &format!("run-{protocol}-{number}"), text, &mut frames).await;
        }
        for (method, params) in [
            ("chat.history", json!({"sessionKey": "agent:main:main"})),
            ("sessions.list", json!({})),
            ("config.get", json!({})),
            ("skills.status", json!({})),
            ("health", json!({})),
        ] {
            call(&mut socket, method, params, &mut frames).await;
        }
    }
    drop(gateway);

    let sent = model.sent.lock().unwrap().clone();
    let masked = sent.iter().map(|body| body.matches("[secret]").count()).max();
    assert!(masked > Some(1_000), "the tools printed them: {masked:?} in {} requests", sent.len());
    let is_own = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_config = name.starts_with("homard.json") || name == "config.last-good.json";
        let is_loot = path.parent() == Some(&workspace) && (name.starts_with("loot.") || name == "copy.txt");
        is_config || is_loot || name == "auth-profiles.json" || name == "gateway-token"
    };
    let stored = files(&home.state()).into_iter().filter(|(path, _)| !is_own(path));
    outputs
        .extend(stored.map(|(path, bytes)| (path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned())));
    outputs.extend(frames.into_iter().enumerate().map(|(number, frame)| (format!("frame {number}"), frame)));
    outputs.extend(sent.into_iter().enumerate().map(|(number, body)| (format!("request {number}"), body)));
    let found: Vec<_> = outputs.iter().flat_map(|(source, text)| seen(&all, source, text)).collect();
    assert!(found.is_empty(), "{} times: {:#?}", found.len(), &found[..found.len().min(20)]);
}
