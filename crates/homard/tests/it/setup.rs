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

use homard_testkit::fake_telegram::{FakeTelegram, TOKEN};
use serde_json::{Value, json};

use crate::{
    home::{Home, Process, run_command, terminal},
    import_databases::openclaw_of_2026_9,
    models::files,
    provider_api::{ApiStyle, KeyedServer},
    service::{calls, systemd_command, systemd_home},
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
    write_openclaw(&home, &server);
    let source = home.state().parent().unwrap().join(".openclaw");
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
fn the_state_of_a_real_openclaw_2026_9_is_imported_and_answers() {
    let (home, server) = (Home::new(), KeyedServer::start(ApiStyle::Chat));
    copy(openclaw_of_2026_9(&server.base()).path(), &home.state().parent().unwrap().join(".openclaw"));
    let output = run_command(command(&home, &["setup", "--json"]));
    assert_eq!(output.code, Some(0), "{output:?}");
    let document = output.json();
    assert_eq!((&document["model"], &document["test"]["answer"]), (&json!("fake/m"), &json!("By chat")));
    let new = ["sessions", "cronJobs", "senders", "devices"].map(|kind| &document["import"][kind]["new"]);
    assert_eq!(new, [2, 2, 1, 1]);
    let answered = home.run(&["agent", "-m", "And now?", "--session-key", "agent:main:notes"]);
    assert_eq!(answered.stdout, "By chat\n", "{answered:?}");
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
    fn start(mut command: Command) -> Self {
        let (master, slave) = terminal();
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

/// A question, and what is typed.
type Dialogue<'a> = Vec<(&'a str, &'a str)>;

/// A start of the setup, and its questions up to the last one.
struct Case<'a> {
    name: &'a str,
    args: &'a [&'a str],
    variables: Vec<(&'a str, String)>,
    /// Prepares the home.
    prepare: &'a dyn Fn(&Home),
    dialogue: Dialogue<'a>,
    /// What the last screen shows.
    end: &'a str,
}

/// Returns the files of a home, without what was learned about servers.
fn state_files(home: &Home) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    if !home.state().exists() {
        return Vec::new();
    }
    let is_cache = |path: &Path| path.ends_with("provider-apis.json");
    files(&home.state()).into_iter().filter(|(path, _)| !is_cache(path)).collect()
}

impl Case<'_> {
    fn home(&self) -> Home {
        let home = Home::new();
        (self.prepare)(&home);
        home
    }

    fn start(&self, home: &Home) -> Session {
        let mut command = command(home, self.args);
        command.envs(self.variables.iter().map(|(name, value)| (*name, value.as_str())));
        Session::start(command)
    }

    /// Answers the questions; returns the session before the next one.
    fn answered(&self, home: &Home, count: usize) -> Session {
        let mut session = self.start(home);
        for (question, answer) in &self.dialogue[..count] {
            session.expect(question);
            assert!(!session.screen.contains(KEY), "{}: the key is shown", self.name);
            session.answer(&format!("{answer}\r"));
        }
        session
    }

    /// Leaves at a question, and checks that nothing was changed.
    fn interrupt(&self, home: &Home, at: usize) {
        let before = state_files(home);
        let mut session = self.answered(home, at);
        session.expect(self.dialogue[at].0);
        session.answer("\u{3}");
        let (code, screen) = session.end();
        let place = format!("{}, question {at} ({}): {screen}", self.name, self.dialogue[at].0);
        assert_eq!(code, Some(130), "{place}");
        // An import is not undone.
        let was_imported = self.dialogue[..at].iter().any(|(question, _)| question.starts_with("Import"));
        if was_imported {
            assert!(
                screen.contains("was imported, and nothing else was changed; continue with: homard setup"),
                "{place}"
            );
        } else {
            assert!(screen.contains("nothing was changed; continue with: homard setup"), "{place}");
            assert_eq!(state_files(home), before, "{place}");
        }
    }

    /// Leaves the dialogue at each question, each time in a new home; the last home is then set up to the end.
    fn interrupt_everywhere(&self) {
        for at in 0..self.dialogue.len() {
            let home = self.home();
            self.interrupt(&home, at);
            if at + 1 == self.dialogue.len() && self.args == ["setup"] {
                self.run_again(&home);
            }
        }
    }

    /// Answers all questions in a home in which the dialogue was left before.
    fn run_again(&self, home: &Home) {
        // What was imported is not offered again.
        let is_asked = |question: &str| !question.starts_with("Import") || !home.state().join("homard.json").exists();
        let dialogue = self.dialogue.iter().filter(|(question, _)| is_asked(question)).copied().collect();
        let again = Case { dialogue, prepare: &|_| (), variables: self.variables.clone(), ..*self };
        let (code, screen) = again.answered(home, again.dialogue.len()).end();
        assert!(code == Some(0) && screen.contains(self.end) && !screen.contains(KEY), "{}: {screen}", self.name);
    }
}

fn write_openclaw(home: &Home, server: &KeyedServer) {
    let source = home.state().parent().unwrap().join(".openclaw");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/openclaw-state"), &source);
    let provider = json!({"baseUrl": server.base(), "api": "openai-completions", "apiKey": KEY, "models": []});
    let settings = json!({"agents": {"defaults": {"model": "mine/m"}}, "models": {"providers": {"mine": provider}}});
    fs::write(source.join("openclaw.json"), settings.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn it_can_be_interrupted_at_every_question_and_run_again() {
    let (server, closed) = (KeyedServer::start(ApiStyle::Chat), KeyedServer::start(ApiStyle::Closed));
    let telegram = FakeTelegram::start().await.unwrap();
    let (base, root) = (server.base(), telegram.root());
    let with_root = |home: &Home| home.configure(&json!({"channels": {"telegram": {"apiRoot": root}}}).to_string());
    let unanswered = |home: &Home| {
        let models = json!({"providers": {"mine": {"baseUrl": closed.base(), "api": "openai-completions", "models": [{"id": "m"}]}}});
        home.configure(&json!({"agents": {"defaults": {"model": "mine/m"}}, "models": models}).to_string());
    };
    let (workspace, no_channel) = (("Workspace", ""), ("Number [1]:", ""));
    let cases = [
        Case {
            name: "a server and a bot",
            args: &["setup"],
            variables: Vec::new(),
            prepare: &with_root,
            dialogue: vec![
                ("Number [1]:", "2"),
                ("Base URL", &base),
                ("Name for it", "mine"),
                ("API key for mine", KEY),
                ("Number or name [1]:", ""),
                workspace,
                ("Number [1]:", "2"),
                ("Bot token", "not a token"),
                ("Bot token", "123456:another-Token_of_nobody"),
                ("Bot token", TOKEN),
                ("Write this? [Y/n]", ""),
            ],
            end: "mine/m, which answered",
        },
        Case {
            name: "a key of a provider",
            args: &["setup"],
            variables: vec![("OPENAI_BASE_URL", base.clone())],
            prepare: &|_| (),
            dialogue: vec![
                ("Number [1]:", "1"),
                ("Provider, such as", "openai"),
                ("API key for openai", KEY),
                ("Number or name [1]:", ""),
                workspace,
                no_channel,
                ("Write this? [Y/n]", ""),
            ],
            end: "openai/m, which answered",
        },
        Case {
            name: "an import",
            args: &["setup"],
            variables: Vec::new(),
            prepare: &|home| write_openclaw(home, &server),
            dialogue: vec![("Import the state of OpenClaw", ""), ("Number [1]:", ""), workspace, no_channel],
            end: "mine/m, which answered",
        },
        Case {
            name: "a model that does not answer",
            args: &["setup"],
            variables: Vec::new(),
            prepare: &unanswered,
            dialogue: vec![("Number [1]:", ""), workspace, no_channel, ("Use it anyway? [y/N]", "y")],
            end: "mine/m, which did not answer",
        },
        Case {
            name: "the first start",
            args: &[],
            variables: Vec::new(),
            prepare: &|_| (),
            dialogue: vec![("Set one up now? [Y/n]", "")],
            end: "Number [1]:",
        },
    ];
    cases.iter().for_each(Case::interrupt_everywhere);
    let home = cases[4].home();
    let mut session = cases[4].answered(&home, 1);
    session.expect(cases[4].end);
    session.answer("\u{3}");
    assert_eq!(session.end().0, Some(130));
    works_as_written(&cases[0], &root);
}

/// Answers all questions of a case, and uses what it wrote.
fn works_as_written(case: &Case<'_>, root: &str) {
    let home = case.home();
    let (code, screen) = case.answered(&home, case.dialogue.len()).end();
    assert!(code == Some(0) && screen.contains("homard pairing approve telegram CODE"), "{screen}");
    assert!(!screen.contains(TOKEN), "the diff hides the token: {screen}");
    assert_eq!(home.run(&["agent", "-m", "hi"]).stdout, "By chat\n");
    let text = fs::read_to_string(home.state().join("homard.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["channels"]["telegram"], json!({"apiRoot": root, "botToken": TOKEN, "enabled": true}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_is_set_up_without_questions() {
    let (home, server) = (Home::new(), KeyedServer::start(ApiStyle::Chat));
    let telegram = FakeTelegram::start().await.unwrap();
    home.configure(&json!({"channels": {"telegram": {"apiRoot": telegram.root()}}}).to_string());
    let setup = |token: &str| {
        let args = ["setup", "--json", "--url", &server.base(), "--telegram-token-from-env", "BOT"];
        let mut command = command(&home, &args);
        command.env("BOT", token);
        run_command(command)
    };
    let refused = setup("123456:another-Token_of_nobody");
    assert_eq!((refused.code, &refused.json()["error"]["type"]), (Some(1), &json!("channel")), "{refused:?}");
    assert_eq!(setup("a word").code, Some(2));
    assert_eq!(config(&home)["models"], Value::Null, "nothing is written");
    let done = setup(TOKEN);
    assert_eq!(done.code, Some(0), "{done:?}");
    let changed = done.json()["changed"].clone();
    assert!(changed.as_array().unwrap().contains(&json!("channels.telegram.botToken")), "{changed}");
    assert_eq!(done.json()["next"][3], "homard pairing approve telegram CODE");
}

#[test]
fn without_a_key_the_demo_model_can_be_chosen() {
    let home = Home::new();
    let mut session = Session::start(command(&home, &["setup"]));
    for (question, answer) in [("Number [1]:", "3\r"), ("Workspace", "\r"), ("Number [1]:", "\r")] {
        session.expect(question);
        session.answer(answer);
    }
    let (code, screen) = session.end();
    assert!(code == Some(0) && screen.contains("The model is the built-in demo model"), "{screen}");
    assert!(!home.state().join("homard.json").exists());
}

/// What is asked of systemd to install and start the service.
const INSTALLED: [&str; 4] =
    ["--user daemon-reload", "--user enable homard.service", "enable-linger", "--user start homard.service"];

#[test]
fn the_service_is_offered_last_and_can_be_left_out() {
    let (home, server) = (systemd_home(), KeyedServer::start(ApiStyle::Chat));
    let unit = home.work().join(".config/systemd/user/homard.service");
    let start = |questions: &[&str]| {
        let args = ["setup", "--url", &server.base(), "--provider", "mine"];
        let mut session = Session::start(systemd_command(&home, &args));
        for question in questions {
            session.expect(question);
            session.answer("\r");
        }
        session.expect("Run the gateway as a service, from every login on? [y/N]");
        session
    };
    let questions = ["Number or name [1]:", "Workspace", "Number [1]:", "Write this? [Y/n]"];
    let mut session = start(&questions);
    session.answer("\u{3}");
    let (code, screen) = session.end();
    let left = "the setup is complete, and the service was not installed; install it with: homard gateway install";
    assert!(code == Some(130) && screen.contains(left), "{screen}");
    assert!(screen.contains("mine/m, which answered"), "the rest is written: {screen}");
    assert_eq!((calls(&home), unit.exists()), (Vec::new(), false));
    // Again: only the service is missing.
    let mut session = start(&questions[..3]);
    session.answer("y\r");
    let (code, screen) = session.end();
    assert!(code == Some(0) && screen.contains("The gateway runs as a service ("), "{screen}");
    assert!(screen.contains("homard gateway status") && !screen.contains("homard gateway install"), "{screen}");
    assert_eq!((calls(&home), unit.exists()), (INSTALLED.map(str::to_owned).to_vec(), true));
}

#[test]
fn a_script_installs_the_service_if_there_is_a_service_manager() {
    let server = KeyedServer::start(ApiStyle::Chat);
    let args = ["setup", "--json", "--install-service", "--url", &server.base()];
    let home = systemd_home();
    let output = run_command(systemd_command(&home, &args));
    assert_eq!(output.code, Some(0), "{output:?}");
    let files = output.json()["service"]["files"].to_string();
    assert!(files.contains("homard.service") && files.contains("homard.socket"), "{files}");
    assert_eq!(calls(&home), INSTALLED);
    let without = systemd_home();
    let output = run_command(systemd_command(&without, &["setup", "--json", "--url", &server.base()]));
    assert!(output.code == Some(0) && calls(&without).is_empty(), "it is not installed unasked: {output:?}");
    let unmanaged = Home::new();
    let mut command = command(&unmanaged, &args);
    command.env("PATH", unmanaged.work());
    let output = run_command(command);
    assert!(output.code == Some(1) && output.stdout.contains("no service manager runs for this user"), "{output:?}");
    assert!(!unmanaged.state().join("homard.json").exists());
    let mut command = systemd_command(&unmanaged, &["setup", "--yes", "--url", &server.base()]);
    command.env("PATH", unmanaged.work());
    let output = run_command(command);
    assert!(output.code == Some(0) && output.stdout.contains("homard gateway start"), "{output:?}");
}
