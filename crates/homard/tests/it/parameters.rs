//! Every method of a running gateway parses its parameters: an unknown one is rejected by name, and a known one has an
//! effect on the answer, if an answer can show it.
//!
//! `proto/src/method/tests.rs` checks that every parameter is listed, here or with the test that shows its effect.

use serde_json::{Value, json};

use crate::{
    home::Home,
    socket::{Socket, connect_as, hello_as, next_frame, send_frame},
};

/// Where the effect of every parameter is seen; the comment at its top says how it is read.
const EFFECTS: &str = include_str!("../../../proto/src/method/effects.tsv");

const ADMIN: &[&str] = &["operator.admin"];

/// Methods that accept unknown parameters: they change nothing, and clients request views that differ from version to
/// version. `exec.approval.request` shows them; `wake` is as open in OpenClaw.
const OPEN: [&str; 60] = [
    "approval.history",
    "artifacts.list",
    "channels.pairing.list",
    "channels.status",
    "chat.metadata",
    "commands.list",
    "cron.list",
    "cron.runs",
    "cron.status",
    "diagnostics.lanes",
    "diagnostics.stability",
    "doctor.memory.status",
    "doctor.run",
    "environments.list",
    "exec.approval.grants.list",
    "exec.approval.request",
    "health",
    "homard.audit.end",
    "homard.backup.database",
    "hooks.status",
    "last-heartbeat",
    "mcp.status",
    "migrations.memory.plan",
    "models.authStatus",
    "models.list",
    "node.list",
    "node.pair.list",
    "openclaw.approval.list",
    "plugin.approval.list",
    "plugins.catalog.browse",
    "plugins.list",
    "progressCard.get",
    "question.list",
    "sessions.branches.list",
    "sessions.companion.state",
    "sessions.messages.subscribe",
    "sessions.messages.unsubscribe",
    "sessions.observer.visibility",
    "sessions.subscribe",
    "sessions.unsubscribe",
    "sessions.usage",
    "sessions.usage.logs",
    "sessions.usage.timeseries",
    "skills.library.list",
    "skills.proposals.list",
    "status",
    "system-presence",
    "system.info",
    "talk.catalog",
    "tasks.list",
    "themes.list",
    "tools.catalog",
    "tools.effective",
    "tools.github.status",
    "transcripts.list",
    "update.status",
    "usage.cost",
    "usage.status",
    "wake",
    "webSearch.status",
];

#[tokio::test]
async fn an_unknown_parameter_is_rejected() {
    let home = Home::new();
    let gateway = home.gateway();
    let (mut socket, hello) = hello_as(gateway.port, &gateway.token(), 4, ADMIN, &[]).await;
    let methods = hello["features"]["methods"].as_array().unwrap().clone();
    assert!(methods.len() > 100, "{methods:?}");
    let mut accepting = Vec::new();
    for method in &methods {
        let request = json!({"type": "req", "id": method, "method": method, "params": {"noSuchParameter": 1}});
        send_frame(&mut socket, &request).await;
        let answer = loop {
            let frame = next_frame(&mut socket).await.unwrap();
            if frame["id"] == *method {
                break frame;
            }
        };
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        if !message.contains("unexpected property 'noSuchParameter'") {
            accepting.push(method.as_str().unwrap());
        }
    }
    accepting.sort_unstable();
    assert_eq!(accepting, OPEN);
}

/// Asks a running gateway; the answer as text, without what is only about the connection.
async fn asked(socket: &mut Socket, number: usize, method: &str, params: &str) -> String {
    let params: Value = serde_json::from_str(&params.replace("$n", &format!("u{number}"))).unwrap();
    // Some methods answer twice, so an answer belongs to one call.
    let id = format!("{number} {method}");
    send_frame(socket, &json!({"type": "req", "id": id, "method": method, "params": params})).await;
    loop {
        let frame = next_frame(socket).await.unwrap();
        if frame["type"] == "res" && frame["id"] == id {
            return json!({"ok": frame["ok"], "payload": frame["payload"], "error": frame["error"]}).to_string();
        }
    }
}

#[tokio::test]
async fn a_parameter_has_the_effect_that_the_table_names() {
    let home = Home::new();
    home.configure("{agents: {defaults: {model: 'homard/demo'}, list: [{id: 'main', default: true}, {id: 'other'}]}}");
    let gateway = home.gateway();
    let (mut number, mut problems) = (0, Vec::new());
    for line in EFFECTS.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<_> = line.split('\t').collect();
        // A connection each: some methods subscribe to events or take their time.
        let mut socket = connect_as(gateway.port, &gateway.token(), 4, ADMIN, &[]).await;
        match columns.as_slice() {
            [method, _, "setup", params] => {
                let answer = asked(&mut socket, 0, method, params).await;
                assert!(answer.contains(r#""ok":true"#), "{line}: {answer}");
            }
            [method, name, "live", base, value, seen, then @ ..] => {
                let mut with_parameter: Value = serde_json::from_str(base).unwrap();
                with_parameter[*name] = serde_json::from_str(value).unwrap();
                let mut answers = Vec::new();
                for params in [(*base).to_owned(), with_parameter.to_string()] {
                    number += 1;
                    let mut answer = asked(&mut socket, number, method, &params).await;
                    if let [then, params] = then {
                        answer = asked(&mut socket, number, then, params).await;
                    }
                    let text = seen.replace("$n", &format!("u{number}"));
                    answers.push((answer.contains(text.trim_start_matches('!')), answer));
                }
                let expected = if seen.starts_with('!') { [true, false] } else { [false, true] };
                if [answers[0].0, answers[1].0] != expected {
                    problems.push(format!("{line}\n  without: {:.400}\n  with: {:.400}", answers[0].1, answers[1].1));
                }
            }
            _ => {}
        }
    }
    assert!(number > 400, "only {number} calls were made");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
