//! `homard agent` in its own process, and the state that it leaves.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
};

use serde_json::json;

use crate::home::{Home, run_command, terminal};

#[test]
fn a_first_message_is_answered_without_any_setup() {
    let home = Home::new();
    for name in ["notes.md", "zebra.txt"] {
        fs::write(home.work().join(name), "").unwrap();
    }
    let output = home.run(&["agent", "--message", "What files are here?"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "notes.md\nzebra.txt\n"), "{}", output.stderr);
    assert_eq!(
        output.stderr,
        "(answered by the built-in demo model, homard/demo; to set up a real model: homard setup)\n"
    );
    let sessions = home.run(&["sessions", "--json"]).json();
    let row = &sessions["sessions"][0];
    let facts = (&sessions["count"], &row["key"], &row["modelProvider"], &row["model"]);
    assert_eq!(facts, (&json!(1), &json!("agent:main:main"), &json!("homard"), &json!("demo")));
    let table = home.run(&["sessions"]);
    assert!(table.stdout.starts_with("SESSION          UPDATED"), "{}", table.stdout);
}

#[test]
fn a_commands_output_is_not_the_models_answer() {
    let home = Home::new();
    let output = home.run(&["agent", "-m", "/new What time is it?"]);
    assert_eq!(
        (output.code, output.stderr.starts_with("(answered by the built-in demo model, homard/demo")),
        (Some(0), true),
        "{}",
        output.stderr
    );
    for command in ["/compact", "/status", "/usage default"] {
        let output = home.run(&["agent", "-m", command]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{command}");
    }
}

// Case 39.
#[test]
fn json_is_one_document() {
    let home = Home::new();
    let output = home.run(&["agent", "-m", "What files are here?", "--json", "--verbose", "on"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let document = output.json();
    assert_eq!(document["meta"]["agentMeta"]["model"], "demo");
    assert_eq!(document["payloads"].as_array().unwrap().len(), 1);
    assert_eq!(
        document.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["runId", "status", "summary", "result", "payloads", "meta"]
    );
}

#[test]
fn the_run_id_of_json_output_leads_to_the_trace() {
    let home = Home::new();
    let args = ["agent", "-m", "What time is it?", "--json"];
    let local = home.run(&args).json()["runId"].as_str().unwrap().to_owned();
    let gateway = home.gateway();
    let remote = gateway.run(&args).json()["runId"].as_str().unwrap().to_owned();
    assert_ne!(local, remote);
    for run in [local, remote] {
        let trace = gateway.run(&["trace", &run, "--json"]);
        assert_eq!((trace.code, &trace.json()["run"]["runId"]), (Some(0), &run.as_str().into()), "{trace:?}");
    }
}

#[test]
fn a_session_continues_in_the_next_process() {
    let home = Home::new();
    let send = |text: &str| home.run(&["agent", "-m", text, "--session-key", "project-x", "--json"]).json();
    let (first, second) = (send("What time is it?"), send("What files are here?"));
    let session = |document: &serde_json::Value| document["meta"]["agentMeta"]["sessionId"].clone();
    assert_eq!(session(&first), session(&second));
    assert_eq!(second["meta"]["agentMeta"]["sessionKey"], "agent:main:project-x");
}

#[test]
fn a_session_id_names_a_session() {
    let home = Home::new();
    let document = home.run(&["agent", "-m", "What time is it?", "--session-id", "s-1", "--json"]).json();
    let meta = &document["meta"]["agentMeta"];
    assert_eq!((&meta["sessionId"], &meta["sessionKey"]), (&json!("s-1"), &json!("agent:main:explicit:s-1")));
}

#[test]
fn a_message_can_come_from_a_file() {
    let home = Home::new();
    fs::write(home.work().join("question.txt"), "\u{feff}What files are here?\n").unwrap();
    let output = home.run(&["agent", "--message-file", "question.txt"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "question.txt\n"), "{}", output.stderr);
    File::create(home.work().join("big.txt")).unwrap().set_len((4 << 20) + 1).unwrap();
    let output = home.run(&["agent", "--message-file", "big.txt"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(2), "error: big.txt is larger than 4 MiB\n"));
}

#[test]
fn openclaws_variables_apply_where_homards_are_not_set() {
    let home = Home::new();
    let mut command = home.command(&["agent", "-m", "What time is it?"]);
    let state = home.state().join("elsewhere");
    command.env_remove("HOMARD_STATE_DIR").env("OPENCLAW_STATE_DIR", &state);
    assert_eq!(run_command(command).code, Some(0));
    assert!(state.join("agents/main/sessions/sessions.json").exists());
}

#[test]
fn a_model_that_cannot_be_used_is_named() {
    let home = Home::new();
    home.configure("{agents: {defaults: {model: 'nobody/claude'}}}");
    let output = home.run(&["agent", "-m", "hi"]);
    let expected = format!(
        "agent main: config file {}: agents.defaults.model is \"nobody/claude\": unknown provider \"nobody\": it is neither in models.providers nor in the catalogue; see: homard docs models",
        home.state().join("homard.json").display()
    );
    assert_eq!((output.code, output.stderr), (Some(1), format!("error: {expected}\n")));
}

#[test]
fn openclaw_commands_name_their_homard_equivalents() {
    let home = Home::new();
    let output = home.run(&["gateway", "probe"]);
    let expected = "error: unknown command `gateway probe`\ncheck the installation with: homard doctor\n";
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(2), "", expected));
}

#[test]
fn a_command_without_a_subcommand_lists() {
    let home = Home::new();
    let nouns = ["agents", "audit", "channels", "config", "hooks", "mcp", "models", "models auth", "pairing"];
    for command in nouns.into_iter().chain(["plugins", "runs", "runs -n 5", "sandbox", "sessions", "skills"]) {
        let output = home.run(&command.split(' ').collect::<Vec<_>>());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{command}");
    }
}

#[test]
fn wrong_usage_is_exit_code_two() {
    let home = Home::new();
    let usage_error = |args: &[&str]| {
        let result = home.run(args);
        (result.code, result.stderr.lines().next().unwrap_or_default().to_owned())
    };
    let error = |text: &str| (Some(2), format!("error: {text}"));
    assert_eq!(usage_error(&["agent", "-m", "x", "--bogus"]), error("unexpected argument '--bogus' found"));
    assert_eq!(usage_error(&["agent", "-m", " \n"]), error("--message is blank; pass a message"));
    let no_message = "no message; pass one as an argument, with --message TEXT or --message-file FILE, or on stdin";
    assert_eq!(usage_error(&["agent"]), error(no_message));
    fs::write(home.work().join("latin1.txt"), b"caf\xe9").unwrap();
    for (file, expected) in [
        ("missing.txt", "cannot be read: No such file or directory (os error 2)"),
        (".", "cannot be read: Is a directory (os error 21)"),
        ("latin1.txt", "is not UTF-8: incomplete utf-8 byte sequence from index 3"),
    ] {
        assert_eq!(usage_error(&["agent", "--message-file", file]), error(&format!("{file} {expected}")));
    }
    assert_eq!(
        usage_error(&["agent", "-m", "x", "--timeout", "10000001"]),
        error("invalid value '10000001' for '--timeout <DURATION>': at most 10000000s")
    );
    assert_eq!(
        usage_error(&["agent", "-m", "x", "--reply-to", "+1555"]),
        error("the following required arguments were not provided:")
    );
    assert_eq!(
        usage_error(&["agent", "-m", "x", "--deliver", "--local"]),
        error("the argument '--deliver' cannot be used with '--local'")
    );
    assert_eq!(
        usage_error(&["gateway", "run", "--bind", "everywhere"]),
        error("invalid --bind everywhere; use loopback, lan, tailnet, custom or auto")
    );
    assert_eq!(usage_error(&["gateway", "--token", ""]), error("--token is empty"));
    assert_eq!(usage_error(&["gateway", "run", "--password", " "]), error("--password is empty"));
    assert!(!home.state().exists());
    let expected_error =
        format!("error: no gateway answers at ws://127.0.0.1:{}, and --deliver requires one", home.port);
    assert_eq!(usage_error(&["agent", "-m", "x", "--deliver"]), (Some(1), expected_error));
}

#[test]
fn a_rejected_message_is_a_machine_readable_failure() {
    let home = Home::new();
    let output = home.run(&["agent", "-m", "hi", "--agent", "ghost", "--json"]);
    let message = "unknown agent \"ghost\"; list agents with: homard agents";
    assert_eq!(output.code, Some(2));
    let mut document = output.json();
    assert!(document["runId"].take().is_string());
    let error = json!({"type": "usage", "message": message});
    assert_eq!(document, json!({"ok": false, "error": error, "runId": null, "origin": "local"}));
}

#[test]
fn read_only_commands_create_no_directory() {
    let home = Home::new();
    let sessions = home.run(&["sessions"]);
    assert_eq!(sessions.stdout, "no sessions yet; start one with: homard agent -m \"What files are here?\"\n");
    let status = home.run(&["status", "--json"]).json();
    assert_eq!((&status["gateway"]["reachable"], &status["sessions"]["count"]), (&json!(false), &json!(0)));
    let health = home.run(&["health"]);
    let expected =
        format!("error: no gateway answers at ws://127.0.0.1:{}\nstart one with: homard gateway\n", home.port);
    assert_eq!((health.code, health.stderr), (Some(1), expected));
    assert!(!home.state().exists());
}

/// Returns directories that need the user's consent, and their names in the refusal.
fn risky(home: &Home) -> [(std::path::PathBuf, &'static str); 2] {
    let parent = home.state().parent().unwrap().to_owned();
    [(parent, "your home directory"), ("/".into(), "the root of the file system")]
}

#[test]
fn a_risky_directory_is_refused_without_a_terminal() {
    let home = Home::new();
    for (directory, description) in risky(&home) {
        let mut command = home.command(&["agent", "-m", "What time is it?"]);
        command.current_dir(&directory);
        let refused = run_command(command);
        let expected = format!(
            "error: {} is {description}, and without a terminal you cannot confirm that the agent may work in it\n\
             start the command in another directory, or allow this one with --work-here\n",
            directory.canonicalize().unwrap().display()
        );
        assert_eq!((refused.code, refused.stdout.as_str(), refused.stderr), (Some(2), "", expected));
    }
}

#[test]
fn a_risky_directory_is_allowed_with_the_flag_and_its_secrets_stay_hidden() {
    let home = Home::new();
    home.configure("{}");
    let (directory, _) = risky(&home)[0].clone();
    fs::create_dir(directory.join(".ssh")).unwrap();
    fs::write(directory.join(".ssh/config"), "canary").unwrap();
    fs::write(directory.join("notes.txt"), "hello notes").unwrap();
    let send = |text: &str| {
        let mut command = home.command(&["agent", "--work-here", "-m", text]);
        command.current_dir(&directory);
        run_command(command)
    };
    let read = send("Read notes.txt");
    assert!(read.code == Some(0) && read.stdout.contains("hello notes"), "{read:?}");
    for path in [".ssh/config", "state/homard.json"] {
        let reply = send(&format!("Read {path}"));
        assert!(reply.stdout.contains("is hidden from tools"), "{reply:?}");
    }
}

#[test]
fn the_state_directory_is_rejected_as_a_working_directory() {
    let home = Home::new();
    home.configure("{}");
    for flags in [&["agent", "-m", "hi"][..], &["agent", "--work-here", "-m", "hi"]] {
        let mut command = home.command(flags);
        command.current_dir(home.state());
        let refused = run_command(command);
        assert!(
            refused.code == Some(2) && refused.stderr.contains("belongs to Homard's state directory"),
            "{refused:?}"
        );
    }
}

#[test]
fn a_terminal_user_confirms_a_turn_in_a_risky_directory() {
    let home = Home::new();
    let (directory, _) = risky(&home)[0].clone();
    for (answer, code) in [("y\n", Some(0)), ("\n", Some(1)), ("\u{3}", Some(130))] {
        let (master, slave) = terminal();
        let mut command = home.command(&["agent", "-m", "What time is it?"]);
        command.current_dir(&directory).stdin(slave.try_clone().unwrap()).stderr(slave);
        let mut child = command.spawn().unwrap();
        // Otherwise the terminal stays open on this side, and reading it never ends.
        drop(command);
        let mut master = File::from(master);
        let mut screen = Vec::new();
        while !String::from_utf8_lossy(&screen).contains("Work here? [y/N] ") {
            let mut piece = [0; 256];
            let count = master.read(&mut piece).unwrap();
            screen.extend(&piece[..count]);
        }
        master.write_all(answer.as_bytes()).unwrap();
        assert_eq!(child.wait().unwrap().code(), code, "{answer:?}");
    }
}
