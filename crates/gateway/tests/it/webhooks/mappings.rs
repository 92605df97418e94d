//! Mappings of custom paths.

use async_trait::async_trait;
use homard_gateway::{Mapping, MappingAction, Template, Transform, Transformer};
use homard_schedule::job::WakeMode;
use serde_json::json;

use super::*;

fn template(text: &str) -> Option<Template> {
    Some(Template::parse(text))
}

fn quiet() -> Mapping {
    Mapping { wake: WakeMode::NextHeartbeat, ..Mapping::default() }
}

#[tokio::test]
async fn the_first_matching_mapping_selects_the_action() {
    let gateway = gateway(|webhooks| {
        let at = |path: &str| Some(path.to_owned());
        webhooks.mappings = vec![
            Mapping {
                path: at("ci"),
                source: Some("nightly".to_owned()),
                action: MappingAction::Wake,
                text: template("{{headers.x-event}}: {{jobs[0].name}} by {{query.who}} at {{path}}"),
                ..quiet()
            },
            Mapping {
                path: at("/ci/"),
                name: template("CI {{source}}"),
                message: template("{{jobs}} {{payload.path}} {{headers.authorization}}{{headers.x-openclaw-token}}"),
                allow_unsafe_external_content: true,
                session_key: template("hook:ci:{{source}}"),
                ..quiet()
            },
            Mapping { path: at("dumb"), ..quiet() },
        ];
    })
    .await;
    let nightly = json!({"source": "nightly", "jobs": [{"name": "{{now}} [x]"}]}).to_string();
    let answer = post_with(&gateway, "ci?who=me%21", &[("X-Event", "push")], &nightly).await;
    assert_eq!(answer.json(), (200, json!({"ok": true, "mode": "next-heartbeat"})));
    assert_eq!(events(&gateway).await, ["push: {{now}} (x) by me! at ci"]);

    let daily = json!({"source": "agent:main:main", "jobs": [1], "path": "p"});
    let run = post(&gateway, "ci", daily).await.run();
    assert_eq!(wait_for_events(&gateway, 2).await[1], "Hook CI agent:main:main: all done");
    assert_eq!(prompts(&gateway), ["[hook:CI agent:main:main] [1] p"]);
    let key = gateway.hub.runs().find_session(&run).await.unwrap().unwrap();
    assert_eq!(key.as_str(), "agent:main:hook:ci:agent%3amain%3amain");

    let missing = json!({"ok": false, "error": "message is required and must not be blank"});
    assert_eq!(post(&gateway, "dumb", json!({})).await.json(), (400, missing));
    assert_eq!(post(&gateway, "other", json!({})).await.text(), (404, "Not Found"));
}

/// Acts as the body says.
struct ScriptedTransformer;

#[async_trait]
impl Transformer for ScriptedTransformer {
    async fn transform(&self, transform: &Transform, request: Value) -> Result<Value, String> {
        assert_eq!((transform.module.as_str(), transform.export.as_deref()), ("ci.mjs", Some("run")));
        assert_eq!((&request["path"], &request["url"]), (&json!("ci"), &json!("/hooks/ci?a=1")));
        assert!(request["headers"].get("authorization").is_none(), "{request}");
        match request["payload"]["fail"].as_str() {
            Some(why) => Err(why.to_owned()),
            None => Ok(request["payload"]["make"].clone()),
        }
    }
}

fn transformed() -> Mapping {
    let transform = Transform { module: "ci.mjs".to_owned(), export: Some("run".to_owned()) };
    Mapping { path: Some("ci".to_owned()), message: template("plain"), transform: Some(transform), ..quiet() }
}

#[tokio::test]
async fn a_transform_can_change_or_skip_the_action() {
    let gateway = gateway(|webhooks| {
        webhooks.mappings = vec![transformed()];
        webhooks.transformer = Some(Arc::new(ScriptedTransformer));
    })
    .await;
    let make = |make: Value| post_with_body(&gateway, json!({ "make": make }));
    let skipped = make(Value::Null).await;
    assert_eq!((skipped.status, skipped.body.as_str()), (204, ""));
    let woken = make(json!({"kind": "wake", "text": "from a transform", "name": null})).await;
    assert_eq!(woken.json(), (200, json!({"ok": true, "mode": "next-heartbeat"})));
    make(json!({"name": "Made", "allowUnsafeExternalContent": true})).await.run();
    assert_eq!(wait_for_events(&gateway, 2).await, ["from a transform", "Hook Made: all done"]);
    assert_eq!(prompts(&gateway), ["[hook:Made] plain"]);

    let failed = |why: &str| (500, json!({"ok": false, "error": format!("the transform ci.mjs {why}")}));
    assert_eq!(make(json!("x")).await.json(), failed("must return an object or null"));
    let broken = post_with_body(&gateway, json!({"fail": "a secret place"})).await;
    assert_eq!(broken.json(), failed("failed; see the gateway's log"));
    assert_eq!(make(json!({"action": "dance"})).await.status, 400);
}

async fn post_with_body(gateway: &TestGateway, body: Value) -> Answer {
    post(gateway, "ci?a=1", body).await
}

#[tokio::test]
async fn a_mapping_without_its_transformer_is_rejected() {
    let gateway = gateway(|webhooks| webhooks.mappings = vec![transformed()]).await;
    let why = "this mapping has a transform, which requires Node";
    assert_eq!(post(&gateway, "ci", json!({})).await.json(), (501, json!({"ok": false, "error": why})));
    assert!(events(&gateway).await.is_empty() && prompts(&gateway).is_empty());
}
