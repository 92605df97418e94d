//! Authentication, routing and size limits.

use serde_json::json;

use super::*;
use crate::support::says;

async fn request_without_auth(
    gateway: &TestGateway,
    line: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let answer = send(gateway.address, line, headers, body).await;
    (answer.status, answer.body)
}

#[tokio::test]
async fn requests_without_the_secret_are_unauthorized() {
    let gateway = gateway(says(&["ok"])).await;
    let denied = (401, r#"{"error":{"message":"Unauthorized","type":"unauthorized"}}"#.to_owned());
    for line in ["POST /v1/chat/completions", "POST /v1/responses", "GET /v1/models", "POST /tools/invoke"] {
        assert_eq!(request_without_auth(&gateway, line, &[], "{}").await, denied, "{line}");
    }
    let basic = [("Authorization", "Basic the-shared-token")];
    assert_eq!(request_without_auth(&gateway, "GET /v1/models", &basic, "").await, denied);
    for _ in 0..10 {
        assert_eq!(
            request_without_auth(&gateway, "GET /v1/models", &[("Authorization", "Bearer guess")], "").await,
            denied
        );
    }
    let correct = send(gateway.address, "GET /v1/models", &[("Authorization", &bearer())], "").await;
    assert_eq!(correct.status, 200);
    let locked = send(gateway.address, "GET /v1/models", &[("Authorization", "Bearer guess")], "").await;
    assert_eq!((locked.status, locked.header("retry-after").is_some()), (429, true));
    let error = &locked.json()["error"];
    assert_eq!(error["type"], "rate_limited");
    let (why, wait) = (error["message"].as_str().unwrap(), locked.header("retry-after").unwrap());
    let remaining: u64 = why
        .strip_prefix("Too many failed attempts from this address; retry with the correct secret in ")
        .and_then(|rest| rest.strip_suffix(" seconds."))
        .unwrap_or_else(|| panic!("{why}"))
        .parse()
        .unwrap();
    assert_eq!(Ok(remaining), wait.parse());
    assert!((200..=300).contains(&remaining), "{remaining}");
}

#[tokio::test]
async fn disabled_endpoints_explain_how_to_enable_them() {
    let gateway = gateway_with(says(&["ok"]), |endpoints| *endpoints = Endpoints::default()).await;
    for (line, key) in [
        ("POST /v1/chat/completions", "chatCompletions"),
        ("POST /v1/responses", "responses"),
        ("GET /v1/models", "chatCompletions"),
    ] {
        let answer = send(gateway.address, line, &[("Authorization", &bearer())], "{}").await;
        let path = line.split(' ').nth(1).unwrap();
        let why = format!(
            "{path} is disabled; set gateway.http.endpoints.{key}.enabled to true in the config and restart the gateway"
        );
        assert_eq!(
            (answer.status, answer.json()),
            (404, json!({"error": {"message": why, "type": "not_found_error"}}))
        );
    }
}

#[tokio::test]
async fn unsupported_openai_paths_are_not_found() {
    let gateway = gateway(says(&["ok"])).await;
    let available = "available are /v1/chat/completions, /v1/responses, /v1/models and /v1/models/<id>";
    for (line, path) in [
        ("POST /v1/embeddings", "/v1/embeddings"),
        ("GET /v1/responses/resp_1", "/v1/responses/resp_1"),
        ("GET /v1", "/v1"),
        ("GET /v1/models/", "/v1/models/"),
    ] {
        let answer = send(gateway.address, line, &[("Authorization", &bearer())], "").await;
        let why = format!("unknown path {path}; {available}");
        assert_eq!(
            (answer.status, answer.json()),
            (404, json!({"error": {"message": why, "type": "not_found_error"}}))
        );
        assert_eq!(request_without_auth(&gateway, line, &[], "").await.0, 401);
    }
    assert_eq!(request_without_auth(&gateway, "GET /v1x", &[], "").await, (404, "Not Found".to_owned()));
}

#[tokio::test]
async fn every_agent_is_a_model() {
    let gateway = gateway(says(&["ok"])).await;
    let get = |path: &'static str| {
        let (address, bearer) = (gateway.address, bearer());
        async move { send(address, &format!("GET {path}"), &[("Authorization", &bearer)], "").await }
    };
    let model = |id: &str| json!({"id": id, "object": "model", "created": 0, "owned_by": "openclaw", "permission": []});
    let all = ["openclaw", "openclaw/default", "openclaw/main"].map(model);
    assert_eq!(get("/v1/models").await.json(), json!({"object": "list", "data": all}));
    assert_eq!(get("/v1/models/openclaw").await.json(), model("openclaw"));
    assert_eq!(get("/v1/models/openclaw%2Fmain").await.json(), model("openclaw/main"));
    assert_eq!(get("/v1/models/agent:main").await.json(), model("agent:main"));
    let unknown = get("/v1/models/gpt-5").await;
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &json!("model_not_found")));
}

#[tokio::test]
async fn other_methods_and_invalid_bodies_are_rejected() {
    let gateway = gateway_with(says(&["ok"]), |endpoints| endpoints.responses_body = 64).await;
    let auth = [("Authorization", &*bearer())];
    for (line, allowed, why) in [
        ("GET /v1/chat/completions", "POST", "/v1/chat/completions does not support GET; use POST"),
        ("DELETE /v1/responses", "POST", "/v1/responses does not support DELETE; use POST"),
        ("POST /v1/models", "GET, HEAD", "/v1/models does not support POST; use GET, HEAD"),
        ("GET /tools/invoke", "POST", "/tools/invoke does not support GET; use POST"),
    ] {
        let wrong = send(gateway.address, line, &auth, "").await;
        assert_eq!((wrong.status, wrong.header("allow")), (405, Some(allowed)));
        assert_eq!(wrong.json(), json!({"error": {"message": why, "type": "invalid_request_error"}}));
    }
    let large = "x".repeat(1024 * 1024 + 1);
    let answer = send(gateway.address, "POST /v1/chat/completions", &auth, &large).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["message"].clone()),
        (413, json!("the request exceeds the limit of 1048576 bytes"))
    );
    assert_eq!(send(gateway.address, "POST /v1/responses", &auth, &"x".repeat(65)).await.status, 413);
    let answer = send(gateway.address, "POST /v1/chat/completions", &auth, "nope").await;
    assert_eq!(
        (answer.status, answer.json()),
        (
            400,
            json!({"error": {
                "message": "the body is not JSON: expected ident at line 1 column 2", "type": "invalid_request_error",
            }})
        )
    );
    assert_eq!(send(gateway.address, "POST /v1/chat/completions", &auth, "[]").await.status, 400);
}
