//! Prompts, where it takes a real binary to test them: a log, a start, a user without rights.

use std::{
    fs::{self, File, Permissions},
    io::Write,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    thread,
};

use homard_testkit::fake_provider::{FakeProvider, ProviderReply, dialect::WireFormat};
use serde_json::{Value, json};

use crate::{
    home::{CommandOutput, Home, run_command},
    provider::request,
};

#[test]
fn a_workspace_path_that_is_a_file_is_reported_and_fails_runs() {
    let home = Home::new();
    let file = home.work().join("notes");
    fs::write(&file, "mine").unwrap();
    home.configure(&json!({"agents": {"defaults": {"workspace": file}}}).to_string());
    let gateway = home.gateway();
    let health = gateway.run(&["health", "--json"]).json();
    let expected = format!(
        "agent main: workspace {path} cannot be created: {path} is a file or a broken link, not a directory; rename it, or set another workspace in the config",
        path = file.display()
    );
    assert_eq!(health["notice"], json!(expected));
    // Acceptance D14: a run without its workspace would be another agent.
    let output = gateway.run(&["agent", "-m", "help"]);
    let expected = format!("the workspace {} of agent main cannot be used", file.display());
    assert!(output.code == Some(1) && output.stderr.contains(&expected), "{output:?}");
    let context = gateway.run(&["agent", "-m", "/context json"]).json();
    assert_eq!(context["injectedWorkspaceFiles"], json!([]));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    // Once the obstacle is gone, the next run creates the directory.
    fs::remove_file(&file).unwrap();
    let output = gateway.run(&["agent", "-m", "help"]);
    assert!(output.code == Some(0) && output.stdout.starts_with("I am Homard's built-in demo model."), "{output:?}");
    assert!(file.is_dir());
}

#[test]
fn case_101_a_small_window_answers_with_a_warning() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let provider = json!({
        "baseUrl": format!("http://{}/v1", listener.local_addr().unwrap()), "apiKey": "none",
        "api": "openai-completions", "models": [{"id": "small", "contextWindow": 20_000, "maxTokens": 1_000}],
    });
    let agents = json!({"defaults": {"model": "played/small"}});
    home.configure(&json!({"agents": agents, "models": {"providers": {"played": provider}}}).to_string());
    let answering = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        request(&stream);
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
            data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Aye\"},\"finish_reason\":\"stop\"}]}\n\n\
            data: [DONE]\n\n";
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let path = home.work().join("log");
    let gateway = home.gateway_with_log(File::create(&path).unwrap(), "warn");
    let output = gateway.run(&["agent", "-m", "hello"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "Aye\n"), "{}", output.stderr);
    answering.join().unwrap();
    let log = fs::read_to_string(path).unwrap();
    let warned: Vec<_> = log.lines().filter(|line| line.contains("model has a small context window")).collect();
    assert!(matches!(&warned[..], [line] if line.contains("20000")), "{log}");
}

/// Creates a home with a model on loopback and these settings, and a long file in its workspace.
async fn on_loopback(model: Value) -> (Home, FakeProvider) {
    let provider = FakeProvider::start(|_| ProviderReply::text("Aye")).await.unwrap();
    let home = Home::new();
    let configured = json!({
        "baseUrl": provider.base_url(WireFormat::Chat), "apiKey": "none", "api": "openai-completions", "models": [model],
    });
    let agents = json!({"defaults": {"model": "router/m"}});
    home.configure(&json!({"agents": agents, "models": {"providers": {"router": configured}}}).to_string());
    fs::create_dir_all(home.state().join("workspace")).unwrap();
    fs::write(home.state().join("workspace/AGENTS.md"), "Be kind. ".repeat(1_000)).unwrap();
    (home, provider)
}

// LiteLLM, vLLM and routers are on loopback, too: the address says nothing about the model behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_on_loopback_gets_the_full_prompt_unless_its_window_is_small() {
    for model in
        [json!({"id": "m"}), json!({"id": "m", "contextWindow": 0}), json!({"id": "m", "contextWindow": 32_000})]
    {
        let (home, provider) = on_loopback(model.clone()).await;
        let output = home.run(&["agent", "-m", "hello"]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(0), "Aye\n"), "{output:?}");
        let request = provider.requests().pop().unwrap().json();
        let tools = request["tools"].as_array().unwrap();
        assert!(tools.iter().any(|tool| tool["function"]["name"] == "sessions_list"), "{model}: {tools:?}");
        assert!(request.to_string().contains("Be kind. ".repeat(1_000).trim_end()), "{model}");
        for command in [&["status"][..], &["doctor"], &["trace", "last"], &["agent", "-m", "/status"]] {
            assert!(!home.run(command).stdout.contains("promptStyle"), "{model}: {command:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shortened_prompt_is_reported_with_its_reason_and_setting() {
    let (home, provider) = on_loopback(json!({"id": "m", "contextWindow": 20_000})).await;
    home.run(&["agent", "-m", "hello"]);
    let request_count = provider.requests().pop().unwrap().json();
    assert_eq!(request_count["tools"].as_array().unwrap().len(), 6, "{request_count}");
    let reason = "the prompt for router/m is lean because its context window of 20,000 tokens is below 32,000";
    let remedy = "for the full prompt set agents.defaults.promptStyle to \"rich\"; if the window is wrong, correct \
                  models.providers.router.models[].contextWindow or agents.defaults.contextTokens";
    for command in [&["status"][..], &["doctor"], &["trace", "last"], &["agent", "-m", "/status"]] {
        let output = home.run(command);
        for part in [reason, remedy, "workspace files are cut: AGENTS.md ("] {
            assert!(output.stdout.contains(part), "{command:?}: {part}: {output:?}");
        }
    }
    let trace = home.run(&["trace", "list", "--json"]).json();
    let run = trace["runs"].as_array().unwrap().iter().find(|run| run["model"] == "m").unwrap()["runId"].clone();
    let trace = home.run(&["trace", run.as_str().unwrap(), "--json"]).json();
    let step = trace["steps"].as_array().unwrap().iter().find(|step| step["step"] == "model").unwrap().clone();
    let shortened = &step["prompt"]["shortened"];
    assert_eq!((&shortened["style"], &shortened["window"]), (&json!("lean"), &json!(20_000)));
    assert!(shortened["tools"].as_u64().unwrap() > 6, "{shortened}");
    assert_eq!(shortened["files"][0]["name"], "AGENTS.md");
    // Also reported for a full prompt if only files are truncated.
    let file = home.state().join("homard.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["agents"]["defaults"]["promptStyle"] = json!("rich");
    config["agents"]["defaults"]["bootstrapMaxChars"] = json!(5_000);
    fs::write(&file, config.to_string()).unwrap();
    home.run(&["agent", "-m", "hello"]);
    for command in [&["status"][..], &["doctor"], &["trace", "last"]] {
        let output = home.run(command);
        assert!(
            output.stdout.contains("workspace files are cut in the prompt for router/m: AGENTS.md ("),
            "{output:?}"
        );
        assert!(output.stdout.contains("raise agents.defaults.bootstrapMaxChars"), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_message_is_reported_everywhere_and_rejected_in_strict_mode() {
    let (home, provider) = on_loopback(json!({"id": "m", "contextWindow": 40_000})).await;
    let file = home.work().join("book.txt");
    fs::write(&file, "ab, cd. ".repeat(100_000)).unwrap();
    let long_file = file.to_str().unwrap();
    let turn =
        |key, flags: &[&'static str]| [&["agent", "--message-file", long_file, "--session-key", key], flags].concat();
    let warned = |output: &CommandOutput| {
        let expected = "the message does not fit into the context window: of about ";
        assert!(
            output.stderr.contains(expected) && output.stderr.contains("--strict rejects the message instead"),
            "{}",
            output.stderr
        );
    };
    let refused = |output: &CommandOutput| {
        assert_eq!(output.code, Some(1), "{output:?}");
        let reason = output.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(reason.contains("router/m, with a context window of 40,000, accepts about 1"), "{reason}");
        assert!(reason.contains("choose a model with a larger context window, or omit strict"), "{reason}");
    };
    refused(&home.run(&turn("c", &["--strict", "--json"])));
    assert_eq!(provider.requests().len(), 0, "a refused message was sent");
    let output = home.run(&turn("a", &[]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(
        output.stdout.starts_with("Aye\n\n⚠️ Your message was too long for router/m: of about "),
        "{}",
        output.stdout
    );
    warned(&output);
    let trace = home.run(&["trace", "last"]).stdout;
    assert!(trace.contains("the message did not fit, so the model got "), "{trace}");
    let gateway = home.gateway();
    let output = gateway.run(&turn("b", &["--json"]));
    warned(&output);
    let input = output.json()["result"]["meta"]["inputTruncated"].clone();
    let size = |name: &str| input[name].as_u64().unwrap();
    assert_eq!(size("originalChars"), 799_999, "{input}");
    assert!(size("originalTokens") > 200_000 && (15_000..30_000).contains(&size("keptTokens")), "{input}");
    let request_count = provider.requests().len();
    refused(&gateway.run(&turn("c", &["--strict", "--json"])));
    assert_eq!(provider.requests().len(), request_count, "a refused message was sent");
    let output = gateway.run(&["agent", "-m", "hello", "--session-key", "c", "--strict"]);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(0), "Aye\n", ""));
    assert!(
        !provider.requests().pop().unwrap().json().to_string().contains("ab, cd."),
        "it was sent with the next one"
    );
}

/// Runs the binary in a directory as a user to whom permissions apply.
fn as_a_plain_user(folder: &Path, args: &[&str]) -> CommandOutput {
    let mut command = if rustix::process::geteuid().is_root() {
        // The binary may be in a directory that only root can enter.
        let program = folder.join("homard");
        if !program.exists() {
            fs::copy(env!("CARGO_BIN_EXE_homard"), &program).unwrap();
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
        command
    } else {
        Command::new(env!("CARGO_BIN_EXE_homard"))
    };
    command.args(args).current_dir(folder).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("HOME", folder).env("HOMARD_STATE_DIR", folder.join("state"));
    run_command(command)
}

#[test]
fn an_unreadable_file_is_reported_and_the_run_continues() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    // The first run creates the workspace.
    let hello = as_a_plain_user(folder.path(), &["agent", "--local", "--work-here", "-m", "help"]);
    assert_eq!(hello.code, Some(0), "{hello:?}");
    let file = folder.path().join("state/workspace/AGENTS.md");
    fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
    let context = as_a_plain_user(folder.path(), &["agent", "--local", "--work-here", "-m", "/context"]);
    let expected = "\nAGENTS.md cannot be used: permission denied; give the user that Homard runs as read permission\n";
    assert!(context.code == Some(0) && context.stdout.contains(expected), "{context:?}");
    let again = as_a_plain_user(folder.path(), &["agent", "--local", "--work-here", "-m", "help"]);
    assert_eq!((again.code, again.stdout), (Some(0), hello.stdout), "{}", again.stderr);
}
