//! Every method of a running gateway parses its parameters: unknown ones are rejected by name.
//!
//! That known ones have an effect is checked in `proto/src/method/tests.rs`. A method that never reads its parameters
//! accepts everything, and only a running gateway shows that.

use serde_json::json;

use crate::{
    home::Home,
    socket::{hear, hello_as, tell},
};

const ADMIN: (&[&str], &[&str]) = (&["operator.admin"], &[]);

/// Methods that accept unknown parameters: they change nothing, and clients request views that differ from version to
/// version. `exec.approval.request` shows them; `wake` is as open in OpenClaw.
const OPEN: [&str; 56] = [
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
    "environments.list",
    "exec.approval.grants.list",
    "exec.approval.request",
    "health",
    "homard.audit.end",
    "last-heartbeat",
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
async fn a_parameter_that_nobody_knows_is_refused() {
    let home = Home::new();
    let gateway = home.gateway();
    let (mut socket, hello) = hello_as(gateway.port, &gateway.token(), 4, ADMIN).await;
    let methods = hello["features"]["methods"].as_array().unwrap().clone();
    assert!(methods.len() > 100, "{methods:?}");
    let mut accepting = Vec::new();
    for method in &methods {
        let request = json!({"type": "req", "id": method, "method": method, "params": {"noSuchParameter": 1}});
        tell(&mut socket, &request).await;
        let answer = loop {
            let frame = hear(&mut socket).await.unwrap();
            if frame["id"] == *method {
                break frame;
            }
        };
        let said = answer["error"]["message"].as_str().unwrap_or_default();
        if !said.contains("unexpected property 'noSuchParameter'") {
            accepting.push(method.as_str().unwrap());
        }
    }
    accepting.sort_unstable();
    assert_eq!(accepting, OPEN);
}
