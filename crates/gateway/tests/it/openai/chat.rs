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
async fn a_whole_answer_is_a_completion() {
    let world = world(says(&["hello ", "world"])).await;
    let answer = post(&world, PATH, hi()).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json; charset=utf-8")));
    let body = answer.json();
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl_"), "{body}");
    assert_eq!(
        steady(body),
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
    let world = world(waits(&gate)).await;
    let answer =
        post(&world, PATH, json!({"model": "openclaw:main", "stream": true, "messages": hi()["messages"]})).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
    let events: Vec<_> = answer.events().into_iter().map(|(name, data)| (name, steady(data))).collect();
    let chunk = |delta: Value, reason: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        json!({
            "id": "chatcmpl", "object": "chat.completion.chunk", "created": 0, "model": "openclaw:main",
            "choices": [choice],
        })
    };
    assert!(events.iter().all(|(name, _)| name.is_none()));
    let said: String = events.iter().filter_map(|(_, data)| data["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said, "hello world");
    assert_eq!(events[0].1, chunk(json!({"role": "assistant", "content": ""}), Value::Null));
    assert_eq!(events[events.len() - 2].1, chunk(json!({}), "stop".into()));
    assert_eq!(events[events.len() - 1].1, json!("[DONE]"));
}

#[tokio::test]
async fn a_stream_tells_what_it_cost_if_it_is_asked_to() {
    let world = world(says(&["hello"])).await;
    let mut body = hi();
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let answer = post(&world, PATH, body).await;
    let mut events = answer.events();
    assert_eq!(events.pop().unwrap().1, json!("[DONE]"));
    let last = events.pop().unwrap().1;
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(105)));
    assert!(events.iter().all(|(_, data)| data.get("usage") == Some(&Value::Null)), "{events:?}");
}

#[tokio::test]
async fn a_call_of_the_callers_tool_is_handed_over_and_its_result_comes_back() {
    let world = world(weather()).await;
    let tools = json!([{"type": "function", "function": get_weather()}]);
    let question = json!({"role": "user", "content": "How is the weather in Paris?"});
    let first = post(&world, PATH, json!({"messages": [question], "tools": tools})).await.json();
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
        shown(&world),
        ("How is the weather in Paris?".to_owned(), vec!["echo".to_owned(), "get_weather".to_owned()])
    );
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": r#"{"celsius":18}"#});
    let messages = json!([question, first["choices"][0]["message"], result]);
    let second = post(&world, PATH, json!({"messages": messages, "tools": tools})).await.json();
    assert_eq!(second["choices"][0]["message"], json!({"role": "assistant", "content": "It is 18 degrees."}));
    let asked = ["user How is the weather in Paris?", r#"assistant call_1 get_weather {"city":"Paris"}"#];
    assert_eq!(conversation(&world), [&asked[..], &[r#"result call_1 get_weather {"celsius":18}"#]].concat());
    // The same conversation, followed by another question.
    let more = json!({"role": "user", "content": "And tomorrow?"});
    let messages = json!([question, first["choices"][0]["message"], result, more]);
    post(&world, PATH, json!({"messages": messages, "tools": tools})).await.json();
    let told = [&asked[..], &[r#"result call_1 get_weather {"celsius":18}"#, "user And tomorrow?"]].concat();
    assert_eq!(conversation(&world), told);
    until_sessions(&world, 0).await;
}

#[tokio::test]
async fn a_session_that_knows_the_call_gets_its_result() {
    let world = world(weather()).await;
    let tools = json!([{"type": "function", "function": get_weather()}]);
    let question = json!({"role": "user", "content": "Paris?"});
    let body = |messages: Value| json!({"user": "ann", "messages": messages, "tools": tools});
    let first = post(&world, PATH, body(json!([question]))).await.json();
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "18"});
    post(&world, PATH, body(json!([question, first["choices"][0]["message"], result]))).await;
    assert_eq!(
        conversation(&world),
        ["user Paris?", r#"assistant call_1 get_weather {"city":"Paris"}"#, "result call_1 get_weather 18"]
    );
    // A result without a call is passed on as text.
    let stray = json!({"role": "tool", "tool_call_id": "call_9", "content": "19"});
    post(&world, PATH, body(json!([stray]))).await;
    assert_eq!(conversation(&world).last().unwrap(), "user [Result of the call (call_9)]\n19");
}

#[tokio::test]
async fn a_streamed_call_comes_before_its_reason() {
    let world = world(weather()).await;
    let tools = json!([{"type": "function", "function": get_weather()}]);
    let body = json!({"messages": [{"role": "user", "content": "Paris?"}], "tools": tools, "stream": true});
    let answer = post(&world, PATH, body).await;
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
async fn tool_choice_says_which_tools_there_are() {
    let tools = json!([
        {"type": "function", "function": get_weather()}, {"type": "function", "function": {"name": "roll"}},
    ]);
    for (choice, offered) in [
        (json!("none"), vec!["echo"]),
        (json!("auto"), vec!["echo", "get_weather", "roll"]),
        (json!("required"), vec!["echo", "get_weather", "roll"]),
        (json!({"type": "function", "function": {"name": "roll"}}), vec!["echo", "roll"]),
    ] {
        let world = world(says(&["ok"])).await;
        let mut body = hi();
        body["tools"] = tools.clone();
        body["tool_choice"] = choice.clone();
        assert_eq!(post(&world, PATH, body).await.status, 200);
        assert_eq!(shown(&world).1, offered, "{choice}");
    }
}

#[tokio::test]
async fn system_messages_are_added_to_the_prompt() {
    let world = world(says(&["ok"])).await;
    let messages = json!([
        {"role": "system", "content": "Speak like a pirate."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "hi"},
    ]);
    assert_eq!(post(&world, PATH, json!({"messages": messages})).await.status, 200);
    let system = world.requests.lock().unwrap()[0].system.clone();
    assert!(system.contains("Speak like a pirate.\n\nBe brief."), "{system}");
    assert_eq!(shown(&world).0, "hi");
}

#[tokio::test]
async fn a_picture_is_shown_to_the_model() {
    let world = world(says(&["a dot"])).await;
    let dot = "R0lGODdhAQABAIAAAP///////ywAAAAAAQABAAACAkQBADs=";
    let content = json!([
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": format!("data:image/gif;base64,{dot}")}},
    ]);
    assert_eq!(post(&world, PATH, json!({"messages": [{"role": "user", "content": content}]})).await.status, 200);
    let requests = world.requests.lock().unwrap();
    let seen = serde_json::to_value(&**requests[0].messages.last().unwrap()).unwrap();
    assert_eq!(
        seen["content"],
        json!([{"type": "text", "text": "What is this?"}, {"type": "image", "data": dot, "mimeType": "image/gif"}])
    );
}

#[tokio::test]
async fn a_user_has_one_session_and_nobody_has_another_each_time() {
    let world = world(says(&["ok"])).await;
    let mut body = hi();
    for _ in 0..2 {
        assert_eq!(post(&world, PATH, body.clone()).await.status, 200);
    }
    // The sessions are ephemeral.
    until_sessions(&world, 0).await;
    body["user"] = "Ann".into();
    for asked in [1, 3] {
        assert_eq!(post(&world, PATH, body.clone()).await.status, 200);
        assert_eq!(world.message_counts.lock().unwrap().last(), Some(&asked));
    }
    assert!(sessions(&world).await.contains(&"agent:main:openai-user:%41nn".to_owned()));
    // A user id that has another one as its prefix does not share its session.
    body["user"] = "Ann:thread:1".into();
    assert_eq!(post(&world, PATH, body.clone()).await.status, 200);
    assert_eq!(world.message_counts.lock().unwrap().last(), Some(&1));
    let header = [("x-openclaw-session-key", "Notes")];
    assert_eq!(post_with(&world, PATH, &header, body).await.status, 200);
    assert!(sessions(&world).await.contains(&"agent:main:notes".to_owned()));
}

#[tokio::test]
async fn a_session_that_knows_the_conversation_is_told_only_what_is_new() {
    let world = world(says(&["ok"])).await;
    let before = json!([
        {"role": "user", "content": "one"}, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "two"},
    ]);
    let body = json!({"user": "ann", "messages": before});
    post(&world, PATH, body.clone()).await;
    assert_eq!(conversation(&world), ["user one", "assistant ok", "user two"]);
    post(&world, PATH, body).await;
    assert_eq!(conversation(&world), ["user one", "assistant ok", "user two", "assistant ok", "user two"]);
}

#[tokio::test]
async fn agents_are_found_by_model_and_header() {
    let world = world(says(&["ok"])).await;
    for model in ["openclaw", "openclaw:main", "openclaw/default", "agent:main", "gpt-5"] {
        let mut body = hi();
        body["model"] = model.into();
        let answer = post(&world, PATH, body).await.json();
        assert_eq!(answer["model"], model, "{answer}");
    }
    let mut body = hi();
    body["model"] = "openclaw/ops".into();
    let answer = post(&world, PATH, body).await;
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
    let answer = post_with(&world, PATH, &[("x-openclaw-agent-id", "ops")], hi()).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("x-openclaw-agent-id")));
}

#[tokio::test]
async fn a_model_that_fails_is_an_error_that_is_not_retried() {
    let broken = || -> Script {
        Arc::new(|_| stream::iter([ModelEvent::Failed(Error::new(ErrorKind::Auth, "no key"))]).boxed())
    };
    let world = world(broken()).await;
    let answer = post(&world, PATH, hi()).await;
    assert_eq!((answer.status, answer.header("x-should-retry")), (502, Some("false")));
    let error = answer.json()["error"].clone();
    assert_eq!(error["type"], "api_error");
    let mut body = hi();
    body["stream"] = true.into();
    let answer = post(&world, PATH, body).await;
    let events: Vec<_> = answer.events().into_iter().map(|(_, data)| data).collect();
    assert_eq!(events[1..], [json!({ "error": error }), json!("[DONE]")]);
}

/// Sends a request and does not read the response.
async fn open(world: &TestGateway, body: &Value) -> TcpStream {
    let body = body.to_string();
    let mut caller = TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\nContent-Length: {}\r\n\r\n{body}",
        bearer(),
        body.len()
    );
    caller.write_all(head.as_bytes()).await.unwrap();
    caller
}

/// Reads until this text was received.
async fn hear(caller: &mut TcpStream, what: &str) {
    let mut heard = String::new();
    while !heard.contains(what) {
        let mut bytes = [0; 1024];
        let count = timeout(PATIENCE, caller.read(&mut bytes)).await.unwrap().unwrap();
        assert!(count > 0, "{heard}");
        heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

#[tokio::test]
async fn a_stream_in_which_nothing_is_said_shows_that_it_lives() {
    let world = world(waits(&Arc::new(Semaphore::new(0)))).await;
    let mut body = hi();
    body["stream"] = true.into();
    let mut caller = open(&world, &body).await;
    hear(&mut caller, "hello").await;
    tokio::time::pause();
    let before = tokio::time::Instant::now();
    hear(&mut caller, ":\n\n").await;
    assert_eq!(before.elapsed().as_secs_f64().round(), 15.0);
}

#[tokio::test]
async fn a_run_that_nobody_can_come_back_to_ends_when_its_caller_leaves() {
    let gate = Arc::new(Semaphore::new(0));
    let world = world(waits(&gate)).await;
    for (user, goes_on) in [(Value::Null, false), (json!("ann"), true)] {
        let mut body = hi();
        body["stream"] = true.into();
        body["user"] = user;
        let mut caller = open(&world, &body).await;
        hear(&mut caller, "hello").await;
        let run = world.hub.live_runs()[0].run.clone();
        let follower = world.hub.follow(&run).unwrap();
        drop(caller);
        if goes_on {
            gate.add_permits(1);
        }
        let state = timeout(PATIENCE, follower.end()).await.unwrap();
        let is_done = matches!(state, TapeState::Ended(end) if end.outcome == Outcome::Done);
        assert_eq!(is_done, goes_on);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_before_its_message_is_stored_leaves_no_run() {
    let gate = Arc::new(Semaphore::new(0));
    let store = Arc::new(FaultyMemoryStore { gate: gate.clone(), ..FaultyMemoryStore::default() });
    let never = waits(&Arc::new(Semaphore::new(0)));
    let world = TestGateway::built(store, never, HubRules::default(), |gateway| gateway.with_endpoints(all())).await;
    let mut caller = open(&world, &hi()).await;
    let run = at_work(&world).await;
    let follower = world.hub.follow(&run).unwrap();
    caller.shutdown().await.unwrap();
    // The stream ends once the gateway has noticed.
    assert_eq!(timeout(PATIENCE, caller.read(&mut [0])).await.unwrap().unwrap(), 0);
    gate.add_permits(100);
    let TapeState::Ended(end) = timeout(PATIENCE, follower.end()).await.unwrap() else { panic!("the run has no end") };
    assert_eq!(end.outcome, Outcome::Aborted(AbortReason::User));
}

/// Waits for an active run.
async fn at_work(world: &TestGateway) -> RunId {
    loop {
        if let Some(work) = world.hub.live_runs().first() {
            return work.run.clone();
        }
        tokio::task::yield_now().await;
    }
}

/// Sends a request and stops the gateway; returns the response and the run's tape.
async fn answer_at_stop(world: &TestGateway, user: Value, stop: impl AsyncFnOnce()) -> (Answer, Arc<Tape>) {
    let mut body = hi();
    body["user"] = user;
    let stopping = async {
        let run = at_work(world).await;
        let tape = world.hub.follow(&run).unwrap().tape().clone();
        while tape.state() == TapeState::Queued {
            tokio::task::yield_now().await;
        }
        stop().await;
        tape
    };
    tokio::join!(post(world, PATH, body), stopping)
}

#[tokio::test]
async fn whoever_waits_when_the_gateway_stops_is_told_not_to_send_it_again() {
    let goes_on = "the gateway is stopping; the run continues after the restart";
    let stops = "the gateway is stopping and the run is aborted; it may have had side effects";
    for (user, message, is_stopped) in [(json!("ann"), goes_on, false), (Value::Null, stops, true)] {
        let mut world = world(waits(&Arc::new(Semaphore::new(0)))).await;
        let (answer, tape) = answer_at_stop(&world, user, async || world.stop.cancel()).await;
        assert_eq!(
            (answer.status, answer.header("x-should-retry"), answer.json()),
            (503, Some("false"), json!({"error": {"message": message, "type": "api_error"}}))
        );
        // Shutdown waits until ephemeral runs are aborted.
        timeout(PATIENCE, &mut world.serving).await.unwrap().unwrap();
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
async fn the_same_is_said_when_the_runs_stop_before_the_gateway_does() {
    let world = world(waits(&Arc::new(Semaphore::new(0)))).await;
    let (answer, _) = answer_at_stop(&world, json!("ann"), async || world.hub.shut_down().await).await;
    let message = "gateway_draining: the gateway is stopping; the run continues after the restart";
    assert_eq!(
        (answer.status, answer.header("x-should-retry"), answer.json()),
        (503, Some("false"), json!({"error": {"message": message, "type": "api_error"}}))
    );
    let answer = post(&world, PATH, hi()).await;
    assert_eq!((answer.status, answer.header("x-should-retry")), (503, None));
}

#[tokio::test]
async fn after_a_restart_only_a_run_that_somebody_can_come_back_to_goes_on() {
    let stops = "the gateway is stopping and the run is aborted; it may have had side effects";
    for (user, message, goes_on) in [
        (json!("ann"), "gateway_draining: the gateway is stopping; the run continues after the restart", true),
        (Value::Null, stops, false),
    ] {
        let store = Arc::new(MemoryStore::default());
        let built = |script| {
            TestGateway::built(store.clone(), script, HubRules::default(), |gateway| gateway.with_endpoints(all()))
        };
        let before = built(waits(&Arc::new(Semaphore::new(0)))).await;
        let (answer, tape) = answer_at_stop(&before, user, async || before.hub.shut_down().await).await;
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (503, &json!(message)));
        let after = built(says(&["ok"])).await;
        assert_eq!(after.hub.recover(Default::default()).await.unwrap().resumed, usize::from(goes_on));
        let waited = after.hub.wait(tape.run(), PATIENCE).await;
        let WaitResult::Ended(reported) = waited.unwrap() else { panic!("the run has no end") };
        let asked = after.message_counts.lock().unwrap().len();
        assert_eq!(asked, usize::from(goes_on));
        if !goes_on {
            let (payload, _) = reported.response(Generation::Four);
            let why = "INTERRUPTED: the program was restarted, and the sender requested an error instead of a resume";
            assert_eq!((&payload["status"], &payload["summary"]), (&json!("error"), &json!(why)));
        }
    }
}

#[tokio::test]
async fn an_answer_that_ran_into_its_limit_says_so() {
    let cut: Script = Arc::new(|_| stream::iter([ModelEvent::Text("so".to_owned()), done(StopReason::Length)]).boxed());
    let world = world(cut).await;
    assert_eq!(post(&world, PATH, hi()).await.json()["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_in_plain_words() {
    let world = world(says(&["ok"])).await;
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
            "attachment 1: not a PNG, JPEG, GIF or WebP picture",
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
        let answer = post(&world, PATH, body).await;
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["message"], &error["type"]),
            (400, &json!(message), &json!("invalid_request_error"))
        );
    }
    assert_eq!(sessions(&world).await, Vec::<String>::new());
}
