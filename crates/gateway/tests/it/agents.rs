//! Agents as listed for clients of both protocol versions.

use homard_agent::{Agents, HubRules, Profile, profile::AgentIdentity};
use homard_proto::AgentId;
use serde_json::json;

use crate::support::{TestGateway, says};

/// The main agent and two named ones.
fn agents(gateway: &TestGateway) -> Agents {
    let main = gateway.hub.agents().get(&AgentId::main()).unwrap().clone();
    let other = |id: &str| Profile { id: AgentId::normalize(id), ..(*main).clone() };
    let text = |text: &str| Some(text.to_owned());
    let identity = AgentIdentity { name: text("Clawd"), emoji: text("🦞"), theme: text(" "), avatar: None };
    let ops = Profile { name: text("Operations"), identity, ..other("ops") };
    let desk = Profile { name: text("Desk"), ..other("desk") };
    Agents::new((*main).clone(), [ops, desk])
}

#[tokio::test]
async fn agents_are_listed_default_first_and_with_models_in_protocol_4() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut old = gateway.client(3, json!({})).await;
    assert_eq!(
        old.ask("1", "agents.list", json!({})).await["payload"],
        json!({"defaultId": "main", "mainKey": "main", "scope": "per-sender", "agents": [{"id": "main"}]})
    );

    // A configuration change is visible at once.
    gateway.hub.reconfigure(agents(&gateway), HubRules::default());
    let identity = json!({"name": "Clawd", "emoji": "🦞"});
    assert_eq!(
        old.ask("2", "agents.list", json!(null)).await["payload"],
        json!({
            "defaultId": "main", "mainKey": "main", "scope": "per-sender",
            "agents": [
                {"id": "main"}, {"id": "desk", "name": "Desk"},
                {"id": "ops", "name": "Operations", "identity": identity},
            ],
        })
    );
    let mut new = gateway.client(4, json!({})).await;
    let model = json!({"primary": "test/scripted"});
    assert_eq!(
        new.ask("1", "agents.list", json!({})).await["payload"],
        json!({
            "defaultId": "main", "mainKey": "main", "scope": "per-sender", "ownership": "sole",
            "selectionRequired": false,
            "agents": [
                {"id": "main", "kind": "agent", "model": model},
                {"id": "desk", "name": "Desk", "kind": "agent", "model": model},
                {"id": "ops", "name": "Operations", "identity": identity, "kind": "agent", "model": model},
            ],
        })
    );
}

#[tokio::test]
async fn an_agent_identity_is_found_by_id_session_or_default() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    gateway.hub.reconfigure(agents(&gateway), HubRules::default());
    for protocol in [3, 4] {
        let mut socket = gateway.client(protocol, json!({})).await;
        let unnamed = |id: &str| json!({"agentId": id, "name": "Assistant", "avatar": "A"});
        let clawd = json!({"agentId": "ops", "name": "Clawd", "avatar": "🦞", "emoji": "🦞"});
        for (params, expected) in [
            (json!({}), unnamed("main")),
            (json!({"agentId": "desk"}), json!({"agentId": "desk", "name": "Desk", "avatar": "A"})),
            (json!({"agentId": "OPS"}), clawd.clone()),
            (json!({"sessionKey": "agent:ops:garden"}), clawd.clone()),
            (json!({"agentId": "ops", "sessionKey": "garden"}), clawd),
            (json!({"sessionKey": ""}), unnamed("main")),
            (json!({"sessionKey": "global"}), unnamed("main")),
            (json!({"agentId": "stranger"}), unnamed("stranger")),
        ] {
            assert_eq!(socket.ask("1", "agent.identity.get", params.clone()).await["payload"], expected, "{params}");
        }
        let mismatch =
            socket.ask("2", "agent.identity.get", json!({"agentId": "ops", "sessionKey": "agent:main:x"})).await;
        assert_eq!(
            mismatch["error"],
            json!({
                "code": "INVALID_REQUEST",
                "message": "invalid agent.identity.get params: agent \"ops\" does not match session key agent \"main\"",
            })
        );
    }
}
