//! Tests of the transport against a minimal server that fails like real ones.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use futures_util::StreamExt;
use homard_model::{Error, ErrorKind, Model, ModelEvent, ModelSpec, Prices, Request, Signature, stream::AnswerEnd};
use homard_proto::message::{Cost, Message, StopReason, Usage, User};
use homard_providers::{Credentials, HttpClient, ModelTarget, RemoteModel, Secret};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

const KEY: &str = "sk-very-secret";
const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n";
const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello wörld 🦞\"}}]}\r\n\r\n";
const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// What the server does after its last bytes.
enum Then {
    Close,
    /// Sends nothing more and waits until the client disconnects.
    Wait,
}

async fn bind() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Responds to one request with these pieces and returns the request.
async fn serve(listener: TcpListener, pieces: Vec<Vec<u8>>, then: Then) -> String {
    let (mut socket, _) = listener.accept().await.unwrap();
    socket.set_nodelay(true).unwrap();
    let request = read_request(&mut socket).await;
    for piece in pieces {
        socket.write_all(&piece).await.unwrap();
        socket.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    match then {
        Then::Close => socket.shutdown().await.unwrap(),
        // A reset is a disconnect as well.
        Then::Wait => assert_eq!(socket.read(&mut [0; 16]).await.unwrap_or(0), 0),
    }
    request
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        socket.read_buf(&mut bytes).await.unwrap();
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() >= length.parse().unwrap() {
            return text;
        }
    }
}

fn target(address: &str) -> ModelTarget {
    let spec = ModelSpec {
        provider: "local".to_owned(),
        model: "tiny".to_owned(),
        api: "openai-completions".to_owned(),
        idle_timeout: Duration::from_secs(20),
        ..ModelSpec::default()
    };
    ModelTarget {
        auth: Some(Credentials::Key(Secret::from(KEY))),
        headers: vec![("X-Tenant".to_owned(), Secret::from("tenant-secret"))],
        ..ModelTarget::new(spec, format!("http://{address}/v1/"))
    }
}

fn model(address: &str) -> RemoteModel {
    RemoteModel::new(target(address), &HttpClient::default()).unwrap()
}

fn hello_request() -> Request {
    let message = Message::User(User::text("Hi", 1));
    Request { messages: vec![message.into()], ..Request::default() }
}

/// Returns the events without heartbeats, whose number depends on how the network splits packets.
async fn answer(model: &RemoteModel) -> Vec<ModelEvent> {
    let events: Vec<_> = model.stream(hello_request()).collect().await;
    events.into_iter().filter(|event| *event != ModelEvent::Heartbeat).collect()
}

/// Runs one exchange: returns the client's events and the server's request. The address in an error is replaced by
/// `HOST`.
async fn exchange(pieces: Vec<Vec<u8>>) -> (Vec<ModelEvent>, String) {
    let (listener, address) = bind().await;
    let model = model(&address);
    let (mut events, request) = tokio::join!(answer(&model), serve(listener, pieces, Then::Close));
    for event in &mut events {
        if let ModelEvent::Failed(error) = event {
            error.message = error.message.replace(&address, "HOST");
        }
    }
    (events, request)
}

async fn failure(response: &str) -> Error {
    let (events, _) = exchange(vec![response.as_bytes().to_vec()]).await;
    match events.as_slice() {
        [ModelEvent::Failed(error)] => error.clone(),
        other => panic!("not one failure: {other:?}"),
    }
}

fn done() -> ModelEvent {
    ModelEvent::Done(AnswerEnd { stop: StopReason::Stop, usage: Usage::default() })
}

#[tokio::test]
async fn an_answer_in_small_packets_is_assembled() {
    let all = format!("{STREAM}: heartbeat\n\n{HELLO}{END}");
    let (events, request) = exchange(all.as_bytes().chunks(37).map(<[u8]>::to_vec).collect()).await;
    assert_eq!(events, [ModelEvent::Text("Hello wörld 🦞".to_owned()), done()]);
    assert!(request.starts_with("post /v1/chat/completions http/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nauthorization: bearer sk-very-secret\r\n"), "{request}");
    assert!(request.contains("\r\nx-tenant: tenant-secret\r\n"), "{request}");
    assert!(request.contains("\"stream\":true"), "{request}");
}

#[tokio::test]
async fn gemini_gets_a_key_header_or_a_bearer_token() {
    let chunk = r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}"#;
    for (auth, auth_header) in [
        (Credentials::Key(Secret::from(KEY)), "\r\nx-goog-api-key: sk-very-secret\r\n"),
        (Credentials::Token(Secret::from(KEY)), "\r\nauthorization: bearer sk-very-secret\r\n"),
    ] {
        let (listener, address) = bind().await;
        let mut target = ModelTarget { auth: Some(auth), ..target(&address) };
        target.spec.api = "google-generative-ai".to_owned();
        target.spec.model = "gemini-3.8-flash".to_owned();
        let model = RemoteModel::new(target, &HttpClient::default()).unwrap();
        let pieces = vec![format!("{STREAM}data: {chunk}\r\n\r\n").into_bytes()];
        let (events, request) = tokio::join!(answer(&model), serve(listener, pieces, Then::Close));
        assert_eq!(events, [ModelEvent::Text("Hi".to_owned()), done()]);
        let line = "post /v1/models/gemini-3.8-flash:streamgeneratecontent?alt=sse http/1.1\r\n";
        assert!(request.starts_with(line), "{request}");
        assert!(request.contains(auth_header), "{request}");
        assert_eq!(request.matches(KEY).count(), 1, "{request}");
    }
}

#[tokio::test]
async fn responses_requests_use_the_base_url_and_have_a_cost() {
    let (listener, address) = bind().await;
    let mut target = target(&address);
    target.spec.api = "openai-responses".to_owned();
    target.spec.prices = Prices { output: 1_000_000.0, ..Prices::default() };
    let model = RemoteModel::new(target, &HttpClient::default()).unwrap();
    let item = r#"{"type":"message","id":"msg_1","content":[{"type":"output_text","text":"Hi"}]}"#;
    let response = format!(r#"{{"status":"completed","output":[{item}],"usage":{{"output_tokens":2}}}}"#);
    let all = format!("{STREAM}event: response.completed\r\ndata: {{\"response\":{response}}}\r\n\r\n");
    let pieces = all.as_bytes().chunks(37).map(<[u8]>::to_vec).collect();
    let (events, request) = tokio::join!(answer(&model), serve(listener, pieces, Then::Close));
    let cost = Cost { output: 2.0, total: 2.0, ..Cost::default() };
    let usage = Usage { output: 2, total_tokens: 2, cost, ..Usage::default() };
    let signature = ModelEvent::Signature(Signature::Text("msg_1".to_owned()));
    assert_eq!(
        events,
        [ModelEvent::Text("Hi".to_owned()), signature, ModelEvent::Done(AnswerEnd { stop: StopReason::Stop, usage })]
    );
    assert!(request.starts_with("post /v1/responses http/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nauthorization: bearer sk-very-secret\r\n"), "{request}");
    assert!(request.contains("\"store\":false"), "{request}");
}

#[tokio::test]
async fn text_arrives_before_the_answer_ends() {
    let (listener, address) = bind().await;
    let model = model(&address);
    let first_event = async {
        let mut stream = model.stream(hello_request());
        stream.next().await
        // The stream is dropped here, and the server waits for exactly that.
    };
    let server = serve(listener, vec![format!("{STREAM}{HELLO}").into_bytes()], Then::Wait);
    let both = async { tokio::join!(first_event, server) };
    let (first, _) = timeout(Duration::from_secs(20), both).await.expect("the connection stayed open");
    assert_eq!(first, Some(ModelEvent::Text("Hello wörld 🦞".to_owned())));
}

#[tokio::test]
async fn an_error_response_keeps_status_delay_and_message() {
    let body = r#"{"error":{"message":"Slow\ndown, sk-very-secret of tenant-secret","type":"requests"}}"#;
    let error = failure(&format!(
        "HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nX-Request-Id: req_1\r\nConnection: close\r\n\r\n{body}"
    ))
    .await;
    let expected = Error {
        kind: ErrorKind::RateLimit,
        status: Some(429),
        retry_after: Some(Duration::from_secs(7)),
        message: "local (HOST): HTTP 429: Slow down, … of …; wait a little, or choose another model".to_owned(),
        excerpt: r#"{"error":{"message":"Slow\ndown, … of …","type":"requests"}}"#.to_owned(),
        request_id: Some("req_1".to_owned()),
    };
    assert_eq!(error, expected);
}

#[tokio::test]
async fn statuses_map_to_error_kinds() {
    let kinds = [
        (302, ErrorKind::Misconfigured),
        (400, ErrorKind::Rejected),
        (401, ErrorKind::Auth),
        (402, ErrorKind::Billing),
        (403, ErrorKind::Auth),
        (404, ErrorKind::Misconfigured),
        (405, ErrorKind::Misconfigured),
        (408, ErrorKind::Timeout),
        (413, ErrorKind::Overflow),
        (422, ErrorKind::Rejected),
        (500, ErrorKind::Server),
        (503, ErrorKind::Overloaded),
        (529, ErrorKind::Overloaded),
    ];
    for (status, kind) in kinds {
        let response = format!(
            "HTTP/1.1 {status} X\r\nRetry-After: Fri, 31 Dec 2027 23:59:59 GMT\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
        );
        let error = failure(&response).await;
        let message = if kind == ErrorKind::Misconfigured {
            format!(
                "local: POST http://HOST/v1/chat/completions answered HTTP {status}: no explanation; check \
                 models.providers.local.baseUrl and models.providers.local.api, which is openai-completions, and the model's \
                 name, tiny"
            )
        } else {
            format!("local (HOST): HTTP {status}: no explanation; {}", kind.advice())
        };
        assert_eq!(error, Error { status: Some(status), ..Error::new(kind, message) });
    }
}

#[tokio::test]
async fn an_html_page_is_an_error() {
    let error =
        failure("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<h1>Hotel\nlogin</h1>").await;
    let expected = Error {
        status: Some(200),
        excerpt: "<h1>Hotel\nlogin</h1>".to_owned(),
        ..Error::new(ErrorKind::Misconfigured, error.message.clone())
    };
    assert_eq!(error, expected);
    let fragment = "/v1/chat/completions answered HTTP 200 with text/html, which is not an event stream; check ";
    assert!(error.message.starts_with("local: POST http://HOST") && error.message.contains(fragment), "{error}");
}

#[tokio::test]
async fn an_error_object_is_an_error_in_any_format() {
    let body = r#"{"error":{"type":"overloaded_error","message":"Busy"}}"#;
    let json = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{body}");
    let event = format!("{STREAM}data: {body}\n\n");
    let bare = format!("{STREAM}{body}");
    for response in [json, event, bare] {
        let message = "local (HOST): Busy; try again in a moment, or choose another model";
        let expected = Error { excerpt: body.to_owned(), ..Error::new(ErrorKind::Overloaded, message) };
        assert_eq!(failure(&response).await, expected);
    }
}

#[tokio::test]
async fn tokens_have_a_cost() {
    let (listener, address) = bind().await;
    let mut target = target(&address);
    target.spec.prices = Prices { input: 2.0, output: 8.0, cache_read: 1.0, cache_write: 0.0 };
    let model = RemoteModel::new(target, &HttpClient::default()).unwrap();
    let usage = "\"usage\":{\"prompt_tokens\":3000000,\"completion_tokens\":500000,\"prompt_tokens_details\":{\"cached_tokens\":1000000}}";
    let end = format!("{STREAM}data: {{\"choices\":[{{\"finish_reason\":\"stop\"}}],{usage}}}\n\ndata: [DONE]\n\n");
    let (events, _) = tokio::join!(answer(&model), serve(listener, vec![end.into_bytes()], Then::Close));
    let cost = Cost { input: 4.0, output: 4.0, cache_read: 1.0, cache_write: 0.0, total: 9.0 };
    let usage = Usage {
        input: 2_000_000,
        output: 500_000,
        cache_read: 1_000_000,
        total_tokens: 3_500_000,
        cost,
        ..Usage::default()
    };
    assert_eq!(events, [ModelEvent::Done(AnswerEnd { stop: StopReason::Stop, usage })]);
}

#[tokio::test]
async fn a_heartbeat_is_emitted() {
    let (listener, address) = bind().await;
    let model = model(&address);
    let first = async { model.stream(hello_request()).next().await };
    let server = serve(listener, vec![format!("{STREAM}: heartbeat\n\n").into_bytes()], Then::Wait);
    assert_eq!(tokio::join!(first, server).0, Some(ModelEvent::Heartbeat));
}

#[tokio::test]
async fn a_truncated_stream_is_an_error() {
    let chunked = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let cut = format!("{chunked}{:x}\r\n{HELLO}\r\n", HELLO.len());
    let closed = format!("{STREAM}{HELLO}");
    for response in [cut, closed] {
        let (events, _) = exchange(vec![response.into_bytes()]).await;
        let [ModelEvent::Text(_), ModelEvent::Failed(error)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(error.kind, ErrorKind::Truncated);
        assert!(error.message.starts_with("local (HOST): the answer ended prematurely ("), "{error}");
        assert!(error.message.ends_with("); try again"), "{error}");
    }
}

#[tokio::test]
async fn a_silent_stream_times_out() {
    let (listener, address) = bind().await;
    let mut target = target(&address);
    target.spec.idle_timeout = Duration::from_millis(50);
    let model = RemoteModel::new(target, &HttpClient::default()).unwrap();
    let server = serve(listener, vec![format!("{STREAM}{HELLO}").into_bytes()], Then::Wait);
    let (events, _) = tokio::join!(answer(&model), server);
    let message = format!(
        "local ({address}): no data received for 50ms; the request was cancelled; try again, or choose a faster model"
    );
    let expected =
        [ModelEvent::Text("Hello wörld 🦞".to_owned()), ModelEvent::Failed(Error::new(ErrorKind::Timeout, message))];
    assert_eq!(events, expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_response_is_reported_and_awaited() {
    let (listener, address) = bind().await;
    let model = model(&address);
    let mut events = model.stream(hello_request());
    // The connection is accepted by the system; the clock advances, because nothing else happens.
    let notice = format!(
        "POST http://{address}/v1/chat/completions (openai-completions) has not answered for 4 s; still waiting, as a model \
         may need time. If the address or the API is wrong, correct models.providers.local.baseUrl or \
         models.providers.local.api"
    );
    let start = tokio::time::Instant::now();
    assert_eq!(events.next().await, Some(ModelEvent::NoResponse(notice)));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // What arrives late is an answer as any other.
    let server = serve(listener, vec![format!("{STREAM}{HELLO}{END}").into_bytes()], Then::Close);
    tokio::time::resume();
    let (late, _) = tokio::join!(events.collect::<Vec<_>>(), server);
    let late: Vec<_> = late.into_iter().filter(|event| *event != ModelEvent::Heartbeat).collect();
    assert_eq!(late, [ModelEvent::Text("Hello wörld 🦞".to_owned()), done()]);
}

#[tokio::test]
async fn an_unreachable_server_is_named() {
    let (listener, address) = bind().await;
    drop(listener);
    let events = answer(&model(&address)).await;
    let message = format!(
        "local: POST http://{address}/v1/chat/completions (openai-completions) failed (Connection refused (os error 111)); \
         check baseUrl and the network"
    );
    assert_eq!(events, [ModelEvent::Failed(Error::new(ErrorKind::Connect, message))]);
}

#[tokio::test]
async fn invalid_targets_are_rejected_at_once() {
    let target = target("127.0.0.1:1");
    let error_message = |target: ModelTarget| RemoteModel::new(target, &HttpClient::default()).unwrap_err().message;
    assert_eq!(
        error_message(ModelTarget { base_url: "localhost:8080/v1".to_owned(), ..target.clone() }),
        "the baseUrl of provider local is neither http nor https; expected a URL such as https://host/v1"
    );
    assert_eq!(
        error_message(ModelTarget { auth: Some(Credentials::Key(Secret::from("line\nbreak"))), ..target.clone() }),
        "the API key of provider local has characters that are not allowed in an HTTP header"
    );
    let spec = ModelSpec { api: "smoke-signals".to_owned(), ..target.spec.clone() };
    assert_eq!(
        error_message(ModelTarget { spec, ..target }),
        "provider local has the unsupported api \"smoke-signals\"; supported are anthropic-messages, \
         openai-completions, openai-responses, google-generative-ai"
    );
}

#[test]
fn debug_output_shows_no_secret() {
    let debug = format!("{:?}", model("127.0.0.1:1"));
    assert_eq!(
        (debug.contains("sk-very"), debug.contains("tenant-"), debug.contains("127.0.0.1")),
        (false, false, true)
    );
}
