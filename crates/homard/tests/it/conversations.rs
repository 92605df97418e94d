//! The messages of sessions on the command line: shown, followed, searched, exported; and sessions that are changed.

use std::{
    fs,
    io::{BufRead, BufReader},
};

use serde_json::{Value, json};

use crate::{
    home::{CommandOutput, Home, Process},
    scripted_model::ScriptedHome,
};

/// A text that tries to control the terminal and the page.
const HOSTILE: &str = "</pre><script>alert(1)</script> \u{1b}[2J\u{202e}";

/// Creates a home with two sessions.
async fn two_sessions() -> ScriptedHome {
    let scripted = ScriptedHome::with(json!({})).await;
    for (key, text) in [("garden", "Buy MILK today"), ("garden", HOSTILE), ("shed", "Paint it")] {
        let output = scripted.home.run(&["agent", "-m", text, "--session-key", key]);
        assert_eq!(output.code, Some(0), "{output:?}");
    }
    scripted
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_the_same_with_and_without_a_gateway() {
    let scripted = two_sessions().await;
    let home = &scripted.home;
    let commands: [&[&str]; 6] = [
        &["sessions", "show", "garden"],
        &["sessions", "show", "garden", "-n", "1"],
        &["sessions", "tail", "garden", "-n", "3"],
        &["sessions", "search", "milk"],
        &["sessions", "search", "paint", "--session", "shed"],
        &["sessions", "export", "garden", "--format", "json"],
    ];
    let outputs = |run: &dyn Fn(&[&str]) -> CommandOutput| -> Vec<(String, Value)> {
        let both = |args: &&[&str]| {
            let (text, json) = (run(args), run(&[args, &["--json"][..]].concat()));
            assert_eq!((text.code, json.code), (Some(0), Some(0)), "{args:?}: {text:?} {json:?}");
            (text.stdout, json.json())
        };
        commands.iter().map(both).collect()
    };
    let without = outputs(&|args| home.run(args));
    let gateway = home.gateway();
    let with = outputs(&|args| gateway.run(args));
    for ((args, with), without) in commands.iter().zip(&with).zip(&without) {
        assert_eq!(with, without, "{args:?}");
    }
    let (shown, document) = &with[0];
    assert!(shown.starts_with("session agent:main:garden (") && shown.contains("), 4 messages\n"), "{shown}");
    assert!(shown.contains("\n\nuser  20") && shown.contains("\n  Buy MILK today\n"), "{shown}");
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    assert_eq!((&document["key"], &document["totalMessages"]), (&json!("agent:main:garden"), &json!(4)));
    let (newest, document) = &with[1];
    assert!(newest.contains("the newest 1 of 4 messages"), "{newest}");
    assert_eq!(document["messages"].as_array().unwrap().len(), 1);
    let matches = with[3].1["matches"].as_array().unwrap();
    assert!(
        matches
            .iter()
            .all(|row| row["key"] == "agent:main:garden" && row["snippet"].as_str().unwrap().contains("MILK"))
    );
    assert_eq!((matches.len(), &with[4].1["count"]), (2, &json!(2)), "{matches:?}");
    assert_eq!(with[5].1, with[0].1);
    for args in [&["sessions", "show", "nowhere"][..], &["sessions", "tail", "nowhere"]] {
        let (with, without) = (gateway.run(args), Home::new().run(args));
        let expected = "error: session agent:main:nowhere not found; list sessions with: homard sessions\n";
        assert_eq!((with.code, with.stderr.as_str(), &with.stderr), (Some(1), expected, &without.stderr), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_a_private_inert_file() {
    use std::os::unix::fs::PermissionsExt;

    let scripted = two_sessions().await;
    let home = &scripted.home;
    let export = |args: &[&str]| home.run(&[&["sessions", "export", "garden"], args].concat());
    let output = export(&["-o", "garden.html"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""), "{output:?}");
    let path = home.work().join("garden.html");
    let page = fs::read_to_string(&path).unwrap();
    assert!(page.contains("&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;") && !page.contains("<script"), "{page}");
    assert!(!page.contains(['\u{1b}', '\u{202e}']) && !page.contains("://"), "{page}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let output = export(&["-o", "garden.html"]);
    assert!(output.code == Some(2) && output.stderr.contains("garden.html exists; "), "{output:?}");
    assert_eq!(export(&["-o", "garden.html", "--force"]).code, Some(0));
    let output = export(&["-o", "garden.xyz"]);
    assert!(output.code == Some(2) && output.stderr.contains("--format"), "{output:?}");
    let output = export(&[]);
    assert!(
        output.stdout.starts_with("# agent:main:garden\n") && output.stdout.contains("\n## user  20"),
        "{output:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_session_shows_new_messages() {
    let scripted = two_sessions().await;
    let home = &scripted.home;
    let output = home.run(&["sessions", "tail", "shed", "-f"]);
    assert!(output.code == Some(1) && output.stderr.contains("no gateway answers"), "{output:?}");
    let gateway = home.gateway();
    let args = ["sessions", "tail", "shed", "-n", "1", "-f", "--json"];
    let mut tail = Process(gateway.command(&args).spawn().unwrap());
    let mut lines = BufReader::new(tail.0.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["role"], "assistant");
    assert_eq!(gateway.run(&["agent", "-m", "Once more", "--session-key", "shed"]).code, Some(0));
    let (question, answer) = (next(), next());
    assert_eq!((&question["role"], &answer["role"]), (&json!("user"), &json!("assistant")));
    assert!(question["content"].to_string().contains("Once more"), "{question}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_changed_with_and_without_a_gateway() {
    for is_gateway in [false, true] {
        let scripted = two_sessions().await;
        let home = &scripted.home;
        let gateway = is_gateway.then(|| home.gateway());
        let run = |args: &[&str]| gateway.as_ref().map_or_else(|| home.run(args), |gateway| gateway.run(args));
        let key = "agent:main:garden";
        let output = run(&["sessions", "rename", "garden", "The garden", "--json"]);
        assert_eq!(output.json(), json!({"ok": true, "key": key, "label": "The garden"}), "{output:?}");
        assert_eq!(run(&["sessions", "show", "The garden", "--json"]).json()["key"], key);
        let output = run(&["sessions", "reset", "garden"]);
        assert!(output.code == Some(2) && output.stderr.contains("pass --yes"), "{output:?}");
        let before = run(&["sessions", "show", "garden", "--json"]).json();
        let output = run(&["sessions", "reset", "garden", "--yes", "--json"]).json();
        assert_eq!((&output["ok"], &output["key"]), (&json!(true), &json!(key)));
        assert!(output["sessionId"].is_string() && output["sessionId"] != before["sessionId"], "{output}");
        let after = run(&["sessions", "show", "garden", "--json"]).json();
        assert_eq!((&after["sessionId"], &after["totalMessages"]), (&output["sessionId"], &json!(0)));
        let output = run(&["sessions", "delete", "shed", "--yes", "--json"]).json();
        assert_eq!((&output["deleted"], output["archived"].as_array().unwrap().len()), (&json!(true), 1), "{output}");
        for verb in ["show", "delete"] {
            let args = ["sessions", verb, "shed", "--yes"];
            let output = run(&args[..if verb == "show" { 3 } else { 4 }]);
            assert!(
                output.code == Some(1) && output.stderr.contains("session agent:main:shed not found"),
                "{output:?}"
            );
        }
        let output = run(&["sessions", "delete", "main", "--yes"]);
        assert_eq!(output.code, Some(1), "{output:?}");
    }
}
