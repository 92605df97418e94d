//! `homard setup`: from an empty home to an answered message, interrupted at every question, and run again.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    home::{Home, Process, run_command, terminal},
    models::files,
    provider_api::{ApiStyle, KeyedServer},
};

const KEY: &str = "sk-canary-of-the-setup";

/// Returns a command in a home without any setup. Ollama's variable names a port on which nothing listens.
fn command(home: &Home, args: &[&str]) -> Command {
    let mut command = home.command(args);
    command.env("OLLAMA_HOST", format!("127.0.0.1:{}", home.port));
    command
}

fn config(home: &Home) -> Value {
    home.run(&["config", "get", "--json"]).json()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => fs::write(target, fs::read(entry.path()).unwrap()).unwrap(),
        }
    }
}

#[test]
fn a_key_in_the_environment_is_enough() {
    let (home, server) = (Home::new(), KeyedServer::start(ApiStyle::Chat));
    let with_key = |args: &[&str]| {
        let mut command = command(&home, args);
        command.env("OPENAI_API_KEY", KEY).env("OPENAI_BASE_URL", server.base());
        run_command(command)
    };
    let output = with_key(&["setup", "--json"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let document = output.json();
    assert_eq!((&document["model"], &document["test"]["answer"]), (&json!("openai/m"), &json!("By chat")));
    assert_eq!(document["test"]["api"], "openai-completions", "the API at another address is detected");
    assert_eq!(document["test"]["url"], format!("{}/chat/completions", server.base()));
    assert_eq!(document["test"]["credential"], "env:OPENAI_API_KEY");
    assert_eq!(document["changed"], json!(["agents.defaults.model"]));
    assert_eq!(config(&home)["agents"]["defaults"]["model"], "openai/m");
    assert_eq!(with_key(&["agent", "-m", "hi"]).stdout, "By chat\n");
    // A key that is in the environment is not copied into a file.
    assert!(files(&home.state()).iter().all(|(_, text)| !String::from_utf8_lossy(text).contains(KEY)));
    // Again: the model stays, and nothing changes.
    let before = files(&home.state());
    let again = with_key(&["setup", "--yes"]);
    assert!(again.code == Some(0) && again.stdout.contains("openai/m, which answered"), "{again:?}");
    let config = |files: Vec<(std::path::PathBuf, Vec<u8>)>| {
        files.into_iter().find(|(path, _)| path.ends_with("homard.json")).unwrap()
    };
    assert_eq!(config(files(&home.state())), config(before));
}

#[test]
fn a_server_without_an_api_is_detected() {
    for (style, api, text) in [
        (ApiStyle::Chat, "openai-completions", "By chat\n"),
        (ApiStyle::Messages, "anthropic-messages", "By messages\n"),
    ] {
        let (home, server) = (Home::new(), KeyedServer::start(style));
        // The path is often left out.
        let url = server.base().replace("/v1", "");
        let mut setup = command(&home, &["setup", "--yes", "--url", &url, "--key-from-env", "MY_KEY"]);
        setup.env("MY_KEY", KEY);
        let output = run_command(setup);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stderr.contains("+ models.providers.custom.api: "), "{output:?}");
        assert!(!output.stderr.contains(KEY) && !output.stdout.contains(KEY));
        let provider = &config(&home)["models"]["providers"]["custom"];
        assert_eq!(
            (&provider["baseUrl"], &provider["api"], &provider["models"]),
            (&json!(server.base()), &json!(api), &json!([{"id": "m"}]))
        );
        let stored = home.state().join("agents/main/agent/auth-profiles.json");
        assert!(fs::read_to_string(&stored).unwrap().contains(KEY));
        assert_eq!(fs::metadata(&stored).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(run_command(command(&home, &["agent", "-m", "hi"])).stdout, text);
    }
}

#[test]
fn the_state_of_openclaw_is_imported_first() {
    let (home, server) = (Home::new(), KeyedServer::start(ApiStyle::Chat));
    let source = home.state().parent().unwrap().join(".openclaw");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/openclaw-state"), &source);
    let settings = json!({
        "agents": {"defaults": {"model": "mine/m"}},
        "models": {"providers": {"mine": {"baseUrl": server.base(), "api": "openai-completions", "apiKey": KEY, "models": []}}},
    });
    fs::write(source.join("openclaw.json"), settings.to_string()).unwrap();
    let before = files(&source);
    let output = run_command(command(&home, &["setup", "--json"]));
    assert_eq!(output.code, Some(0), "{output:?}");
    let document = output.json();
    assert_eq!((&document["model"], &document["test"]["answer"]), (&json!("mine/m"), &json!("By chat")));
    assert_eq!(document["import"]["config"]["new"], 1);
    assert!(document["import"]["sessions"]["new"].as_u64() > Some(0), "{document}");
    assert_eq!(files(&source), before);
    // With a config there is nothing to import any more.
    let again = run_command(command(&home, &["setup", "--json"])).json();
    assert_eq!((&again["import"], &again["changed"]), (&Value::Null, &json!([])));
    // Without the import, its state is not used.
    let other = Home::new();
    copy(&source, &other.state().parent().unwrap().join(".openclaw"));
    let refused = run_command(command(&other, &["setup", "--yes", "--no-import"]));
    assert_eq!((refused.code, other.state().join("homard.json").exists()), (Some(1), false), "{refused:?}");
}

#[test]
fn without_anything_the_next_step_is_said() {
    let home = Home::new();
    let output = run_command(command(&home, &["setup", "--yes"]));
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("homard setup --yes --provider PROVIDER --key-from-env NAME"), "{output:?}");
    assert!(!home.state().exists());
    let piped = run_command(command(&home, &["setup"]));
    assert!(piped.code == Some(2) && piped.stderr.contains("homard setup --yes"), "{piped:?}");
    let typo = run_command(command(&home, &["setup", "--yes", "--provider", "opnai"]));
    assert!(typo.code == Some(2) && typo.stderr.contains("did you mean \"openai\"?"), "{typo:?}");
    let unset = run_command(command(&home, &["setup", "--yes", "--provider", "openai", "--key-from-env", "NO_KEY"]));
    let aimless = run_command(command(&home, &["setup", "--yes", "--model", "m"]));
    assert!(aimless.code == Some(2) && aimless.stderr.contains("--provider or --url"), "{aimless:?}");
    assert!(unset.code == Some(2) && unset.stderr.contains("NO_KEY is not set"), "{unset:?}");
    assert!(!home.state().exists());
}

#[test]
fn a_model_that_does_not_answer_changes_nothing() {
    let (home, server) = (Home::new(), KeyedServer::start(ApiStyle::Closed));
    let output = run_command(command(&home, &["setup", "--yes", "--url", &server.base()]));
    assert!(output.code == Some(1) && output.stderr.contains("HTTP 401"), "{output:?}");
    assert!(!home.state().join("homard.json").exists());
    let gone = format!("http://127.0.0.1:{}/v1", home.port);
    let output = run_command(command(&home, &["setup", "--yes", "--url", &gone]));
    assert!(output.code == Some(1) && output.stderr.contains(&format!("GET {gone}/models failed")), "{output:?}");
    assert!(!home.state().join("homard.json").exists());
}

/// A setup on a pseudo-terminal.
struct Session {
    process: Process,
    input: File,
    output: Receiver<Vec<u8>>,
    screen: String,
}

impl Session {
    fn start(home: &Home) -> Self {
        let (master, slave) = terminal();
        let mut command = command(home, &["setup"]);
        let (stdout, stderr) = (slave.try_clone().unwrap(), slave.try_clone().unwrap());
        let process: Child = command.stdin(slave).stdout(stdout).stderr(stderr).spawn().unwrap();
        drop(command);
        let input = File::from(master);
        let (mut reader, (sender, output)) = (input.try_clone().unwrap(), mpsc::channel());
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Once the program has ended, Linux reports EIO.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { process: Process(process), input, output, screen: String::new() }
    }

    /// Waits for a question that was not shown before the last answer.
    fn expect(&mut self, text: &str) {
        while !self.screen.contains(text) {
            match self.output.recv_timeout(Duration::from_secs(60)) {
                Ok(bytes) => self.screen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{text:?} was not shown: {}", self.screen),
            }
        }
    }

    fn answer(&mut self, keys: &str) {
        self.screen.clear();
        self.input.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end; returns the exit code and what was shown since the last answer.
    fn end(mut self) -> (Option<i32>, String) {
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_secs(60)) {
            self.screen.push_str(&String::from_utf8_lossy(&bytes));
        }
        (self.process.0.wait().unwrap().code(), self.screen)
    }
}

#[test]
fn it_can_be_interrupted_at_every_question_and_run_again() {
    let (home, server) = (Home::new(), KeyedServer::start(ApiStyle::Chat));
    let url = format!("{}\r", server.base());
    let key = format!("{KEY}\r");
    let questions = [
        ("Number [1]:", "2\r"),
        ("Base URL", url.as_str()),
        ("Name for it", "mine\r"),
        ("API key for mine", key.as_str()),
        ("Number or name [1]:", "\r"),
        ("Workspace", "\r"),
        ("Write this? [Y/n]", "\r"),
    ];
    for interrupted in 0..questions.len() {
        let mut session = Session::start(&home);
        for (question, answer) in &questions[..interrupted] {
            session.expect(question);
            session.answer(answer);
        }
        session.expect(questions[interrupted].0);
        session.answer("\u{3}");
        let (code, screen) = session.end();
        assert_eq!(code, Some(130), "{interrupted}: {screen}");
        assert!(screen.contains("nothing was changed"), "{interrupted}: {screen}");
        assert!(!home.state().join("homard.json").exists(), "{interrupted}");
        assert!(!home.state().join("agents").exists(), "{interrupted}");
    }
    let mut session = Session::start(&home);
    for (question, answer) in questions {
        session.expect(question);
        assert!(!session.screen.contains(KEY), "the key is not shown");
        session.answer(answer);
    }
    let (code, screen) = session.end();
    assert!(code == Some(0) && screen.contains("mine/m, which answered") && !screen.contains(KEY), "{screen}");
    assert_eq!(home.run(&["agent", "-m", "hi"]).stdout, "By chat\n");
}

#[test]
fn without_a_key_the_demo_model_can_be_chosen() {
    let home = Home::new();
    let mut session = Session::start(&home);
    session.expect("Number [1]:");
    session.answer("3\r");
    session.expect("Workspace");
    session.answer("\r");
    let (code, screen) = session.end();
    assert!(code == Some(0) && screen.contains("The model is the built-in demo model"), "{screen}");
    assert!(!home.state().join("homard.json").exists());
}
