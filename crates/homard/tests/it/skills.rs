//! Skills: discovered, checked, given to the model, with keys for their commands.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    home::{Home, RunningGateway},
    provider::request,
    scripted_model::{ScriptedHome, call},
    socket::{connect, next_frame, send_frame},
};

/// Timeout for background work of a running gateway.
const PATIENCE: Duration = Duration::from_secs(30);

const SECRET: &str = "the-key-of-the-tide-service";

/// Creates a skill in a workspace; returns its file.
fn skill(workspace: &Path, folder: &str, front_matter: &str) -> PathBuf {
    let folder = workspace.join("skills").join(folder);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("SKILL.md");
    fs::write(&file, format!("---\n{front_matter}\n---\nLook at the table.\n")).unwrap();
    file
}

fn tides(home: &Home) -> PathBuf {
    let front_matter = "name: tides\ndescription: Tell when the water is high.\nmetadata: {\"openclaw\": {\"primaryEnv\": \
                  \"TIDE_KEY\", \"requires\": {\"env\": [\"TIDE_KEY\"]}}}";
    skill(&home.state().join("workspace"), "tides", front_matter)
}

fn names(skills: &Value) -> Vec<&str> {
    skills["skills"].as_array().unwrap().iter().map(|skill| skill["name"].as_str().unwrap()).collect()
}

/// Polls until the condition holds.
fn until(description: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{description}: not after {PATIENCE:?}");
    }
}

/// A home whose model is simulated by the test.
struct SimulatedHome {
    home: Home,
    listener: TcpListener,
}

impl SimulatedHome {
    fn new() -> Self {
        let home = Home::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let provider = json!({
            "baseUrl": format!("http://{}/v1", listener.local_addr().unwrap()), "apiKey": "none",
            "api": "openai-completions", "models": [{"id": "m", "contextWindow": 40_000, "maxTokens": 4_096}],
        });
        let agents = json!({"defaults": {"model": "played/m", "promptStyle": "rich"}});
        home.configure(&json!({"agents": agents, "models": {"providers": {"played": provider}}}).to_string());
        Self { home, listener }
    }

    /// Answers the next request, and returns it.
    fn answer(&self) -> JoinHandle<Value> {
        let listener = self.listener.try_clone().unwrap();
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let (_, body) = request(&stream);
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
                data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Aye\"},\"finish_reason\":\"stop\"}]}\n\n\
                data: [DONE]\n\n";
            stream.write_all(answer.as_bytes()).unwrap();
            body
        })
    }

    /// Runs a turn and returns its model request as one text.
    fn turn(&self, gateway: &RunningGateway<'_>, message: &str) -> String {
        let request = self.answer();
        let output = gateway.run(&["agent", "-m", message]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(0), "Aye\n"), "{}", output.stderr);
        let request = request.join().unwrap();
        let texts = request["messages"].as_array().unwrap().iter().map(|message| {
            let blocks = message["content"].as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
            message["content"].as_str().into_iter().chain(blocks).collect::<String>()
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// Returns true if the next run would have this skill.
fn is_on_the_shelf(gateway: &RunningGateway<'_>, name: &str) -> bool {
    gateway.run(&["agent", "-m", "/context json"]).stdout.contains(&format!("\"name\": \"{name}\""))
}

#[test]
fn a_skill_added_to_a_running_gateway_is_available_to_the_next_run() {
    let simulated = SimulatedHome::new();
    let gateway = simulated.home.gateway();
    let status = || gateway.run(&["gateway", "call", "skills.status"]).json();
    assert_eq!(names(&status()), Vec::<&str>::new());
    assert!(!simulated.turn(&gateway, "hello").contains("<available_skills>"));
    let file = skill(&simulated.home.state().join("workspace"), "knots", "name: knots\ndescription: Tie a rope.");
    assert_eq!(names(&status()), ["knots"]);
    until("the skill reaches the shelf", || is_on_the_shelf(&gateway, "knots"));
    let request = simulated.turn(&gateway, "hello again");
    assert!(request.contains("<name>knots</name>\n    <description>Tie a rope.</description>"), "{request}");
    fs::remove_file(file).unwrap();
    until("the skill leaves the shelf", || !is_on_the_shelf(&gateway, "knots"));
}

#[test]
fn a_skill_invoked_by_name_is_passed_to_the_model() {
    let simulated = SimulatedHome::new();
    let file = skill(&simulated.home.state().join("workspace"), "knots", "name: Sea Knots\ndescription: Tie a rope.");
    let gateway = simulated.home.gateway();
    let request = simulated.turn(&gateway, "/sea_knots  a bowline, please ");
    let note = format!(
        "Read the skill \"Sea Knots\" ({}) and follow it for this request.\n\nThe user wrote:\na bowline, please",
        file.display()
    );
    assert!(request.contains(&note), "{request}");
    let by_name = simulated.turn(&gateway, "/skill sea-knots");
    assert!(by_name.contains("follow it for this request."), "{by_name}");
}

// Pitfall 78.
#[test]
fn the_key_of_a_skill_reaches_the_commands_of_its_agents_runs_and_nothing_else() {
    let home = Home::new();
    let file = tides(&home);
    let entry = json!({"apiKey": SECRET, "env": {"TIDE_PORT": "harbour", "PATH": "/nowhere"}});
    let agents = json!({"list": [{"id": "main"}, {"id": "other", "skills": []}]});
    home.configure(&json!({"agents": agents, "skills": {"entries": {"tides": entry}}}).to_string());
    let gateway = home.dumpable_gateway();
    // The key itself is in no command and in no output, so any file that contains it is a leak.
    let send = |agent: &str| {
        let message = "Run `echo \"${#TIDE_KEY} $TIDE_PORT $PATH\"`";
        let output = gateway.run(&["agent", "-m", message, "--agent", agent]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output.stdout
    };
    let expected = format!("{} harbour /usr/local/bin:/usr/bin:/bin", SECRET.len());
    assert!(send("main").contains(&expected), "{}", send("main"));
    assert!(send("other").contains("0  /usr/local/bin:/usr/bin:/bin"), "{}", send("other"));
    for method in ["health", "status", "skills.status", "sessions.list"] {
        let result = gateway.run(&["gateway", "call", method]).stdout;
        assert!(!result.contains(SECRET) && !result.contains("harbour"), "{method}: {result}");
    }
    let environ = fs::read(format!("/proc/{}/environ", gateway.process.0.id())).unwrap();
    assert!(!String::from_utf8_lossy(&environ).contains("TIDE_"));
    assert_eq!(leaks(&home.state()), ["config.last-good.json", "homard.json"]);
    let info = home.run(&["skills", "info", "tides"]).stdout;
    assert!(info.contains(&file.display().to_string()) && !info.contains(SECRET), "{info}");
}

/// Returns the files of a directory that contain the key, by name.
fn leaks(folder: &Path) -> Vec<String> {
    let mut found: Vec<_> = crate::models::files(folder)
        .into_iter()
        .filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains(SECRET))
        .map(|(path, _)| path.strip_prefix(folder).unwrap().display().to_string())
        .collect();
    found.sort();
    found
}

#[test]
fn problems_with_files_are_reported_with_their_paths_and_other_skills_work() {
    let home = Home::new();
    let workspace = home.state().join("workspace");
    let broken = skill(&workspace, "broken", "name: [unclosed\ndescription:");
    let good = skill(&workspace, "good", "name: good\ndescription: Works.");
    let overridden = skill(&home.state(), "mine", "name: good\ndescription: Worked.");
    let outside_dir = home.work().join("outside");
    fs::create_dir(&outside_dir).unwrap();
    symlink(&outside_dir, workspace.join("skills/away")).unwrap();
    let output = home.run(&["skills", "check"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let text = &output.stdout;
    assert!(text.starts_with("skills of agent main: 1, ready: 1\n  good\n"), "{text}");
    assert!(
        text.contains(&format!("  {} has no description, and its front matter is not YAML: ", broken.display())),
        "{text}"
    );
    let link = workspace.join("skills/away");
    assert!(text.contains(&format!("  {} is a symbolic link that leads out of ", link.display())), "{text}");
    let collision = format!(
        "notes:\n  {} defines the skill \"good\", which is overridden by {}",
        overridden.display(),
        good.display()
    );
    assert!(text.contains(&collision), "{text}");
    let document = home.run(&["skills", "check", "--json"]).json();
    let problems = document["problems"].as_array().unwrap();
    let reported: Vec<_> = problems.iter().map(|problem| (problem["level"].clone(), problem["path"].clone())).collect();
    assert_eq!(
        reported,
        [(json!("info"), json!(overridden)), (json!("warning"), json!(link)), (json!("warning"), json!(broken))]
    );
    assert_eq!((&document["eligible"], &document["summary"]["total"]), (&json!(["good"]), &json!(1)));
}

#[test]
fn skills_are_listed_with_missing_requirements_and_advice() {
    let home = Home::new();
    assert!(home.run(&["skills"]).stdout.starts_with("no skills; put a directory with a SKILL.md into "));
    let file = tides(&home);
    skill(&home.state().join("workspace"), "knots", "name: knots\ndescription: Tie a rope.");
    assert_eq!(
        home.run(&["skills", "list"]).stdout,
        "SKILL  STATE           FROM       FOR\n\
         knots  ready           workspace  Tie a rope.\n\
         tides  needs TIDE_KEY  workspace  Tell when the water is high.\n"
    );
    assert_eq!(names(&home.run(&["skills", "list", "--eligible", "--json"]).json()), ["knots"]);
    let listed = home.run(&["skills", "--json"]).json();
    assert_eq!(listed["workspaceDir"], json!(home.state().join("workspace")));
    assert_eq!(listed["skills"][1]["missing"]["env"], json!(["TIDE_KEY"]));
    let info = home.run(&["skills", "info", "tides"]).stdout;
    assert!(info.contains(&file.display().to_string()), "{info}");
    let advice = "set the environment variable TIDE_KEY, or: homard config set skills.entries.tides.apiKey VALUE";
    assert!(info.ends_with(&format!("to do          {advice}\n")), "{info}");
    assert_eq!(home.run(&["skills", "info", "tides", "--json"]).json(), listed["skills"][1]);
    let unknown = home.run(&["skills", "info", "flying"]);
    let expected = "error: skill \"flying\" not found; list skills with: homard skills list\n";
    assert_eq!((unknown.code, unknown.stderr.as_str()), (Some(1), expected));
    assert_eq!(home.run(&["skills", "check", "--agent", "nobody"]).code, Some(2));
}

#[test]
fn enabling_a_skill_through_the_gateway_keeps_the_files_comments() {
    let home = Home::new();
    tides(&home);
    home.configure("{\n  // Mine.\n  skills: {entries: {tides: {env: {A: '1'}}}}, // The sea.\n}\n");
    let gateway = home.gateway();
    let update = |params: Value| {
        gateway.run(&["gateway", "call", "skills.update", "--params", &params.to_string(), "--json"]).json()
    };
    let state = || gateway.run(&["gateway", "call", "skills.status"]).json()["skills"][0].clone();
    assert_eq!(state()["eligible"], json!(false));
    let answer = update(json!({"skillKey": "tides", "apiKey": SECRET, "env": {"A": ""}}));
    let redacted = json!({"env": {}, "apiKey": "__OPENCLAW_REDACTED__"});
    assert_eq!(answer, json!({"ok": true, "skillKey": "tides", "config": redacted}));
    assert_eq!(state()["eligible"], json!(true));
    assert!(is_on_the_shelf(&gateway, "tides"));
    update(json!({"skillKey": "tides", "enabled": false, "apiKey": "__OPENCLAW_REDACTED__"}));
    assert_eq!((&state()["disabled"], &state()["missing"]["env"]), (&json!(true), &json!([])));
    assert!(!is_on_the_shelf(&gateway, "tides"));
    let file = fs::read_to_string(home.state().join("homard.json")).unwrap();
    let expected = format!(
        "{{\n  // Mine.\n  skills: {{entries: {{tides: {{env: {{}}, \"apiKey\": \"{SECRET}\", \"enabled\": false}}}}}}, // The sea.\n}}\n"
    );
    assert_eq!(file, expected);
    let refused = update(json!({"skillKey": "tides", "apiKey": "${NOT_SET}"}));
    assert_eq!(refused["error"]["type"], "INVALID_REQUEST", "{refused}");
    assert_eq!(fs::read_to_string(home.state().join("homard.json")).unwrap(), expected);
    let unknown = gateway.run(&["gateway", "call", "skills.status", "--params", r#"{"agentId": "nobody"}"#]);
    assert_eq!((unknown.code, unknown.stderr.as_str()), (Some(1), "error: unknown agent id \"nobody\"\n"));
}

#[tokio::test]
async fn only_admins_may_enable_a_skill() {
    let home = Home::new();
    let gateway = home.gateway();
    let mut socket = connect(gateway.port, &gateway.token()).await;
    for (method, params, is_allowed) in
        [("skills.status", json!({}), true), ("skills.update", json!({"skillKey": "tides", "enabled": true}), false)]
    {
        send_frame(&mut socket, &json!({"type": "req", "id": method, "method": method, "params": params})).await;
        let answer = loop {
            let frame = next_frame(&mut socket).await.unwrap();
            if frame["id"] == method {
                break frame;
            }
        };
        assert_eq!(answer["ok"], json!(is_allowed), "{answer}");
    }
    assert!(!home.state().join("homard.json").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reads_its_skills_anywhere_but_no_files_beside_them() {
    let extra = tempfile::tempdir().unwrap();
    fs::write(extra.path().join("beside.txt"), "not a skill").unwrap();
    let shared = extra.path().join("shared");
    let fixture = ScriptedHome::with(json!({"skills": {"load": {"extraDirs": [shared]}}})).await;
    let front_matter = "name: tides\ndescription: Tell when the water is high.";
    let state = fixture.home.state();
    let files = [skill(&state, "tides", front_matter), skill(&state.join("workspace"), "own", front_matter)];
    fs::create_dir_all(shared.join("far")).unwrap();
    fs::write(shared.join("far/SKILL.md"), format!("---\n{front_matter}\n---\nLook at the table.\n")).unwrap();
    let files = files.into_iter().chain([shared.join("far/SKILL.md")]);
    let gateway = fixture.home.gateway();
    for file in files {
        let read = call(&gateway, "read", &json!({"path": file}));
        assert!(read.contains("Look at the table."), "{}: {read}", file.display());
        let exec_output = call(&gateway, "exec", &json!({"command": format!("cat {}", file.display())}));
        assert!(exec_output.contains("Look at the table."), "{}: {exec_output}", file.display());
        let read_output = call(&gateway, "read", &json!({"path": file.join("../../../beside.txt")}));
        assert!(!read_output.contains("not a skill"), "{read_output}");
    }
    let config = call(&gateway, "read", &json!({"path": state.join("skills/../homard.json")}));
    assert!(!config.contains("providers"), "{config}");
    drop(gateway);
    let message = format!("CALL read {}", json!({"path": state.join("workspace/skills/own/SKILL.md")}));
    let local = fixture.home.run(&["agent", "-m", &message]);
    assert!(local.stdout.contains("Look at the table."), "{local:?}");
}
