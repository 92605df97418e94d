//! `/v1/chat/completions`.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use homard_agent::{AbortReason, Outcome, Subscriber, Tape, hub::WaitResult, tape::TapeState};
use homard_model::{Error, ErrorKind, ModelEvent};
use homard_proto::{Generation, RunId, message::StopReason};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::Semaphore};

use super::*;
use crate::support::{FaultyMemoryStore, says, waits};

const PATH: &str = "/v1/chat/completions";

fn hi() -> Value {
    json!({"model": "openclaw", "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test]
async fn an_unstreamed_answer_is_a_completion() {
    let gateway = gateway(says(&["hello ", "world"])).await;
    let answer = post(&gateway, PATH, hi()).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json; charset=utf-8")));
    let body = answer.json();
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl_"), "{body}");
    assert_eq!(
        normalize(body),
        json!({
            "id": "chatcmpl", "object": "chat.completion", "created": 0, "model": "openclaw",
            "choices": [{
                "index": 0, "message": {"role": "assistant", "content": "hello world"}, "finish_reason": "stop",
            }],
            "usage": {
                "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        })
    );
}

#[tokio::test]
async fn a_stream_begins_with_a_role_and_ends_with_a_reason_and_done() {
    let gate = Arc::new(Semaphore::new(1));
    let gateway = gateway(waits(&gate)).await;
    let answer =
        post(&gateway, PATH, json!({"model": "openclaw:main", "stream": true, "messages": hi()["messages"]})).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
    let events: Vec<_> = answer.events().into_iter().map(|(name, data)| (name, normalize(data))).collect();
    let chunk = |delta: Value, reason: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        json!({
            "id": "chatcmpl", "object": "chat.completion.chunk", "created": 0, "model": "openclaw:main",
            "choices": [choice],
        })
    };
    assert!(events.iter().all(|(name, _)| name.is_none()));
    let text: String = events.iter().filter_map(|(_, data)| data["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "hello world");
    assert_eq!(events[0].1, chunk(json!({"role": "assistant", "content": ""}), Value::Null));
    assert_eq!(events[events.len() - 2].1, chunk(json!({}), "stop".into()));
    assert_eq!(events[events.len() - 1].1, json!("[DONE]"));
}

#[tokio::test]
async fn a_stream_reports_usage_on_request() {
    let gateway = gateway(says(&["hello"])).await;
    let mut body = hi();
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let answer = post(&gateway, PATH, body).await;
    let mut events = answer.events();
    assert_eq!(events.pop().unwrap().1, json!("[DONE]"));
    let last = events.pop().unwrap().1;
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(105)));
    assert!(events.iter().all(|(_, data)| data.get("usage") == Some(&Value::Null)), "{events:?}");
}

// Pitfall 86.
#[tokio::test]
async fn a_client_tool_call_is_returned_and_its_result_accepted() {
    let gateway = gateway(weather()).await;
    let tools = json!([{"type": "function", "function": get_weather()}]);
    let question = json!({"role": "user", "content": "How is the weather in Paris?"});
    let first = post(&gateway, PATH, json!({"messages": [question], "tools": tools})).await.json();
    let call = json!({
        "id": "call_1", "type": "function",
        "function": {"name": "get_weather", "arguments": r#"{"city":"Paris"}"#},
    });
    assert_eq!(
        first["choices"][0],
        json!({
            "index": 0, "message": {"role": "assistant", "content": null, "tool_calls": [call]},
            "finish_reason": "tool_calls",
        })
    );
    assert_eq!(
        last_request(&gateway),
        ("How is the weather in Paris?".to_owned(), vec!["echo".to_owned(), "get_weather".to_owned()])
    );
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": r#"{"celsius":18}"#});
    let messages = json!([question, first["choices"][0]["message"], result]);
    let second = post(&gateway, PATH, json!({"messages": messages, "tools": tools})).await.json();
    assert_eq!(second["choices"][0]["message"], json!({"role": "assistant", "content": "It is 18 degrees."}));
    let first_turn = ["user How is the weather in Paris?", r#"assistant call_1 get_weather {"city":"Paris"}"#];
    assert_eq!(conversation(&gateway), [&first_turn[..], &[r#"result call_1 get_weather {"celsius":18}"#]].concat());
    // The same conversation, followed by another question.
    let follow_up = json!({"role": "user", "content": "And tomorrow?"});
    let messages = json!([question, first["choices"][0]["message"], result, follow_up]);
    post(&gateway, PATH, json!({"messages": messages, "tools": tools})).await.json();
    let expected = [&first_turn[..], &[r#"result call_1 get_weather {"celsius":18}"#, "user And tomorrow?"]].concat();
    assert_eq!(conversation(&gateway), expected);
    wait_for_sessions(&gateway, 0).await;
}

#[tokio::test]
async fn a_session_that_knows_the_call_gets_its_result() {
    let gateway = gateway(weather()).await;
    let tools = json!([{"type": "function", "function": get_weather()}]);
    let question = json!({"role": "user", "content": "Paris?"});
    let body = |messages: Value| json!({"user": "ann", "messages": messages, "tools": tools});
    let first = post(&gateway, PATH, body(json!([question]))).await.json();
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "18"});
    post(&gateway, PATH, body(json!([question, first["choices"][0]["message"], result]))).await;
    assert_eq!(
        conversation(&gateway),
        ["user Paris?", r#"assistant call_1 get_weather {"city":"Paris"}"#, "result call_1 get_weather 18"]
    );
    // A result without a call is passed on as text.
    let unknown_result = json!({"role": "tool", "tool_call_id": "call_9", "content": "19"});
    post(&gateway, PATH, body(json!([unknown_result]))).await;
    assert_eq!(conversation(&gateway).last().unwrap(), "user [Result of the call (call_9)]\n19");
}

#[tokio::test]
async fn a_streamed_call_comes_before_its_reason() {
    let gateway = gateway(weather()).await;
    let tools = json!([{"type": "function", "function": get_weather()}]);
    let body = json!({"messages": [{"role": "user", "content": "Paris?"}], "tools": tools, "stream": true});
    let answer = post(&gateway, PATH, body).await;
    let choices: Vec<_> = answer.events().into_iter().map(|(_, data)| data["choices"][0].clone()).collect();
    let call = json!({
        "index": 0, "id": "call_1", "type": "function",
        "function": {"name": "get_weather", "arguments": r#"{"city":"Paris"}"#},
    });
    assert_eq!(
        choices,
        [
            json!({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}),
            json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null}),
            json!({"index": 0, "delta": {}, "finish_reason": "tool_calls"}),
            Value::Null,
        ]
    );
}

#[tokio::test]
async fn tool_choice_selects_the_offered_tools() {
    let tools = json!([
        {"type": "function", "function": get_weather()}, {"type": "function", "function": {"name": "roll"}},
    ]);
    for (choice, offered) in [
        (json!("none"), vec!["echo"]),
        (json!("auto"), vec!["echo", "get_weather", "roll"]),
        (json!("required"), vec!["echo", "get_weather", "roll"]),
        (json!({"type": "function", "function": {"name": "roll"}}), vec!["echo", "roll"]),
    ] {
        let gateway = gateway(says(&["ok"])).await;
        let mut body = hi();
        body["tools"] = tools.clone();
        body["tool_choice"] = choice.clone();
        assert_eq!(post(&gateway, PATH, body).await.status, 200);
        assert_eq!(last_request(&gateway).1, offered, "{choice}");
    }
}

#[tokio::test]
async fn system_messages_are_added_to_the_prompt() {
    let gateway = gateway(says(&["ok"])).await;
    let messages = json!([
        {"role": "system", "content": "Speak like a pirate."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "hi"},
    ]);
    assert_eq!(post(&gateway, PATH, json!({"messages": messages})).await.status, 200);
    let system = gateway.requests.lock().unwrap()[0].system.clone();
    assert!(system.contains("Speak like a pirate.\n\nBe brief."), "{system}");
    assert_eq!(last_request(&gateway).0, "hi");
}

#[tokio::test]
async fn an_image_is_passed_to_the_model() {
    let gateway = gateway(says(&["a dot"])).await;
    let dot = "R0lGODdhAQABAIAAAP///////ywAAAAAAQABAAACAkQBADs=";
    let content = json!([
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": format!("data:image/gif;base64,{dot}")}},
    ]);
    assert_eq!(post(&gateway, PATH, json!({"messages": [{"role": "user", "content": content}]})).await.status, 200);
    let requests = gateway.requests.lock().unwrap();
    let message = serde_json::to_value(&**requests[0].messages.last().unwrap()).unwrap();
    assert_eq!(
        message["content"],
        json!([{"type": "text", "text": "What is this?"}, {"type": "image", "data": dot, "mimeType": "image/gif"}])
    );
}

#[tokio::test]
async fn a_named_user_keeps_a_session_and_others_get_ephemeral_ones() {
    let gateway = gateway(says(&["ok"])).await;
    let mut body = hi();
    for _ in 0..2 {
        assert_eq!(post(&gateway, PATH, body.clone()).await.status, 200);
    }
    // The sessions are ephemeral.
    wait_for_sessions(&gateway, 0).await;
    body["user"] = "Ann".into();
    for message_count in [1, 3] {
        assert_eq!(post(&gateway, PATH, body.clone()).await.status, 200);
        assert_eq!(gateway.message_counts.lock().unwrap().last(), Some(&message_count));
    }
    assert!(sessions(&gateway).await.contains(&"agent:main:openai-user:%41nn".to_owned()));
    // A user id that has another one as its prefix does not share its session.
    body["user"] = "Ann:thread:1".into();
    assert_eq!(post(&gateway, PATH, body.clone()).await.status, 200);
    assert_eq!(gateway.message_counts.lock().unwrap().last(), Some(&1));
    let header = [("x-openclaw-session-key", "Notes")];
    assert_eq!(post_with(&gateway, PATH, &header, body).await.status, 200);
    assert!(sessions(&gateway).await.contains(&"agent:main:notes".to_owned()));
}

#[tokio::test]
async fn a_session_with_history_gets_only_the_new_messages() {
    let gateway = gateway(says(&["ok"])).await;
    let before = json!([
        {"role": "user", "content": "one"}, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "two"},
    ]);
    let body = json!({"user": "ann", "messages": before});
    post(&gateway, PATH, body.clone()).await;
    assert_eq!(conversation(&gateway), ["user one", "assistant ok", "user two"]);
    post(&gateway, PATH, body).await;
    assert_eq!(conversation(&gateway), ["user one", "assistant ok", "user two", "assistant ok", "user two"]);
}

#[tokio::test]
async fn agents_are_found_by_model_and_header() {
    let gateway = gateway(says(&["ok"])).await;
    for model in ["openclaw", "openclaw:main", "openclaw/default", "agent:main", "gpt-5"] {
        let mut body = hi();
        body["model"] = model.into();
        let answer = post(&gateway, PATH, body).await.json();
        assert_eq!(answer["model"], model, "{answer}");
    }
    let mut body = hi();
    body["model"] = "openclaw/ops".into();
    let answer = post(&gateway, PATH, body).await;
    assert_eq!(
        (answer.status, answer.json()),
        (
            404,
            json!({"error": {
                "message": "unknown agent \"ops\"; known agents: main", "type": "invalid_request_error",
                "param": "model", "code": "model_not_found",
            }})
        )
    );
    let answer = post_with(&gateway, PATH, &[("x-openclaw-agent-id", "ops")], hi()).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("x-openclaw-agent-id")));
}

#[tokio::test]
async fn a_model_that_fails_is_an_error_that_is_not_retried() {
    let broken = || -> Script {
        Arc::new(|_| stream::iter([ModelEvent::Failed(Error::new(ErrorKind::Auth, "no key"))]).boxed())
    };
    let gateway = gateway(broken()).await;
    let answer = post(&gateway, PATH, hi()).await;
    assert_eq!((answer.status, answer.header("x-should-retry")), (502, Some("false")));
    let error = answer.json()["error"].clone();
    assert_eq!(error["type"], "api_error");
    let mut body = hi();
    body["stream"] = true.into();
    let answer = post(&gateway, PATH, body).await;
    let events: Vec<_> = answer.events().into_iter().map(|(_, data)| data).collect();
    assert_eq!(events[1..], [json!({ "error": error }), json!("[DONE]")]);
}

/// Sends a request and does not read the response.
async fn open(gateway: &TestGateway, body: &Value) -> TcpStream {
    let body = body.to_string();
    let mut caller = TcpStream::connect(gateway.address).await.unwrap();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\nContent-Length: {}\r\n\r\n{body}",
        bearer(),
        body.len()
    );
    caller.write_all(head.as_bytes()).await.unwrap();
    caller
}

/// Reads until this text was received.
async fn read_until(caller: &mut TcpStream, text: &str) {
    let mut received = String::new();
    while !received.contains(text) {
        let mut bytes = [0; 1024];
        let count = timeout(PATIENCE, caller.read(&mut bytes)).await.unwrap().unwrap();
        assert!(count > 0, "{received}");
        received.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

#[tokio::test]
async fn a_silent_stream_sends_keep_alive_comments() {
    let gateway = gateway(waits(&Arc::new(Semaphore::new(0)))).await;
    let mut body = hi();
    body["stream"] = true.into();
    let mut caller = open(&gateway, &body).await;
    read_until(&mut caller, "hello").await;
    tokio::time::pause();
    let started_at = tokio::time::Instant::now();
    read_until(&mut caller, ":\n\n").await;
    assert_eq!(started_at.elapsed().as_secs_f64().round(), 15.0);
}

#[tokio::test]
async fn an_ephemeral_run_is_aborted_when_its_caller_disconnects() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = gateway(waits(&gate)).await;
    for (user, continues) in [(Value::Null, false), (json!("ann"), true)] {
        let mut body = hi();
        body["stream"] = true.into();
        body["user"] = user;
        let mut caller = open(&gateway, &body).await;
        read_until(&mut caller, "hello").await;
        let run = gateway.hub.runs().live()[0].run.clone();
        let follower = gateway.hub.runs().follow(&run).unwrap();
        drop(caller);
        if continues {
            gate.add_permits(1);
        }
        let state = timeout(PATIENCE, follower.end()).await.unwrap();
        let is_done = matches!(state, TapeState::Ended(end) if end.outcome == Outcome::Done);
        assert_eq!(is_done, continues);
    }
}

#[tokio::test]
async fn a_caller_that_disconnects_before_the_commit_leaves_no_run() {
    let gate = Arc::new(Semaphore::new(0));
    let store = Arc::new(FaultyMemoryStore { gate: gate.clone(), ..FaultyMemoryStore::default() });
    let blocked = waits(&Arc::new(Semaphore::new(0)));
    let gateway =
        TestGateway::build(store, blocked, HubRules::default(), |gateway| gateway.with_endpoints(all())).await;
    let mut caller = open(&gateway, &hi()).await;
    let run = active_run(&gateway).await;
    let follower = gateway.hub.runs().follow(&run).unwrap();
    caller.shutdown().await.unwrap();
    // The stream ends once the gateway has noticed.
    assert_eq!(timeout(PATIENCE, caller.read(&mut [0])).await.unwrap().unwrap(), 0);
    gate.add_permits(100);
    let TapeState::Ended(end) = timeout(PATIENCE, follower.end()).await.unwrap() else { panic!("the run has no end") };
    assert_eq!(end.outcome, Outcome::Aborted(AbortReason::User));
}

/// Waits for an active run.
async fn active_run(gateway: &TestGateway) -> RunId {
    loop {
        if let Some(live_run) = gateway.hub.runs().live().first() {
            return live_run.run.clone();
        }
        tokio::task::yield_now().await;
    }
}

/// Sends a request and stops the gateway; returns the response and the run's tape.
async fn response_at_stop(gateway: &TestGateway, user: Value, stop: impl AsyncFnOnce()) -> (Answer, Arc<Tape>) {
    let mut body = hi();
    body["user"] = user;
    let stopping = async {
        let run = active_run(gateway).await;
        let tape = gateway.hub.runs().follow(&run).unwrap().tape().clone();
        while tape.state() == TapeState::Queued {
            tokio::task::yield_now().await;
        }
        stop().await;
        tape
    };
    tokio::join!(post(gateway, PATH, body), stopping)
}

#[tokio::test]
async fn waiting_callers_are_told_not_to_retry_when_the_gateway_stops() {
    let continues = "the gateway is stopping; the run continues after the restart";
    let aborted = "the gateway is stopping and the run is aborted; it may have had side effects";
    for (user, message, is_stopped) in [(json!("ann"), continues, false), (Value::Null, aborted, true)] {
        let mut gateway = gateway(waits(&Arc::new(Semaphore::new(0)))).await;
        let (answer, tape) = response_at_stop(&gateway, user, async || gateway.stop.cancel()).await;
        assert_eq!(
            (answer.status, answer.header("x-should-retry"), answer.json()),
            (503, Some("false"), json!({"error": {"message": message, "type": "api_error"}}))
        );
        // Shutdown waits until ephemeral runs are aborted.
        timeout(PATIENCE, &mut gateway.serving).await.unwrap().unwrap();
        if is_stopped {
            let TapeState::Ended(end) = timeout(PATIENCE, Subscriber::new(tape).end()).await.unwrap() else {
                panic!("the run has no end")
            };
            assert_eq!(end.outcome, Outcome::Aborted(AbortReason::User));
        } else {
            assert_eq!(tape.state(), TapeState::Running);
        }
    }
}

#[tokio::test]
async fn callers_are_told_not_to_retry_when_the_hub_stops_first() {
    let gateway = gateway(waits(&Arc::new(Semaphore::new(0)))).await;
    let (answer, _) =
        response_at_stop(&gateway, json!("ann"), async || gateway.hub.lifecycle().shut_down().await).await;
    let message = "gateway_draining: the gateway is stopping; the run continues after the restart";
    assert_eq!(
        (answer.status, answer.header("x-should-retry"), answer.json()),
        (503, Some("false"), json!({"error": {"message": message, "type": "api_error"}}))
    );
    let answer = post(&gateway, PATH, hi()).await;
    assert_eq!((answer.status, answer.header("x-should-retry")), (503, None));
}

#[tokio::test]
async fn after_a_restart_only_runs_of_named_users_resume() {
    let aborted = "the gateway is stopping and the run is aborted; it may have had side effects";
    for (user, message, continues) in [
        (json!("ann"), "gateway_draining: the gateway is stopping; the run continues after the restart", true),
        (Value::Null, aborted, false),
    ] {
        let store = Arc::new(MemoryStore::default());
        let start_gateway = |script| {
            TestGateway::build(store.clone(), script, HubRules::default(), |gateway| gateway.with_endpoints(all()))
        };
        let before = start_gateway(waits(&Arc::new(Semaphore::new(0)))).await;
        let (answer, tape) = response_at_stop(&before, user, async || before.hub.lifecycle().shut_down().await).await;
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (503, &json!(message)));
        let after = start_gateway(says(&["ok"])).await;
        assert_eq!(after.hub.lifecycle().recover(Default::default()).await.unwrap().resumed, usize::from(continues));
        let waited = after.hub.runs().wait(tape.run(), PATIENCE).await;
        let WaitResult::Ended(reported) = waited.unwrap() else { panic!("the run has no end") };
        let request_count = after.message_counts.lock().unwrap().len();
        assert_eq!(request_count, usize::from(continues));
        if !continues {
            let (payload, _) = reported.response(Generation::Four);
            let why = "INTERRUPTED: the program was restarted, and the sender requested an error instead of a resume";
            assert_eq!((&payload["status"], &payload["summary"]), (&json!("error"), &json!(why)));
        }
    }
}

#[tokio::test]
async fn a_truncated_answer_has_finish_reason_length() {
    let truncated: Script =
        Arc::new(|_| stream::iter([ModelEvent::Text("so".to_owned()), done(StopReason::Length)]).boxed());
    let gateway = gateway(truncated).await;
    assert_eq!(post(&gateway, PATH, hi()).await.json()["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_a_message() {
    let gateway = gateway(says(&["ok"])).await;
    for (body, message) in [
        (json!({}), "messages must be a list of messages"),
        (json!({"messages": []}), "Missing user message in `messages`."),
        (json!({"messages": [{"role": "system", "content": "x"}]}), "Missing user message in `messages`."),
        (json!({"messages": [{"content": "x"}]}), "messages[0].role must be a role, such as \"user\""),
        (
            json!({"messages": [{"role": "boss", "content": "x"}]}),
            "messages[0].role must be system, developer, user, assistant or tool, not \"boss\"",
        ),
        (
            json!({"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            ]}]}),
            "attachment 1: not a PNG, JPEG, GIF or WebP image",
        ),
        (
            json!({"messages": [{"role": "user", "content": {}}]}),
            "messages[0].content must be a string or a list of parts",
        ),
        (json!({"messages": hi()["messages"], "n": 2}), "n must be 1: an agent gives one answer"),
        (json!({"messages": hi()["messages"], "user": 7}), "user must be a string"),
        (
            json!({"messages": hi()["messages"], "tools": [{"type": "function", "function": {"name": "a b"}}]}),
            "tools[0] must have a name of at most 64 letters, digits, dashes and underscores",
        ),
        (
            json!({"messages": hi()["messages"], "tools": [{"type": "web_search"}]}),
            "tools[0] has the unsupported type \"web_search\"; only function tools are supported",
        ),
        (
            json!({"messages": hi()["messages"], "tool_choice": {"function": {"name": "x"}}}),
            "tool_choice names x, which is not in tools",
        ),
    ] {
        let answer = post(&gateway, PATH, body).await;
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["message"], &error["type"]),
            (400, &json!(message), &json!("invalid_request_error"))
        );
    }
    assert_eq!(sessions(&gateway).await, Vec::<String>::new());
}
