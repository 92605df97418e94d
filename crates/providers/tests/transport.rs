//! The road itself, against a server of a few lines that can do what real ones do on bad days.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use futures_util::StreamExt;
use homard_model::{Error, ErrorKind, Event, Model, Request, stream::Done};
use homard_proto::message::{Message, StopReason, Usage, User};
use homard_providers::{Client, OpenAiChat, Secret, Settings};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

const KEY: &str = "sk-very-secret";
const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n";
const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello wörld 🦞\"}}]}\r\n\r\n";
const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// What the server does after its last words.
enum Then {
    Close,
    /// It says nothing more, and waits until the client hangs up.
    Wait,
}

async fn bind() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Answers one request with these pieces and returns the request.
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
        // A reset is a hang-up too.
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

fn settings(address: &str) -> Settings {
    Settings {
        provider: "local".to_owned(),
        model: "tiny".to_owned(),
        base_url: format!("http://{address}/v1/"),
        api_key: Some(Secret::from(KEY)),
        context_window: 32_000,
        max_output: 0,
        headers: vec![("X-Tenant".to_owned(), Secret::from("tenant-secret"))],
        idle: Duration::from_secs(20),
    }
}

fn model(address: &str) -> OpenAiChat {
    OpenAiChat::new(settings(address), &Client::default()).unwrap()
}

fn question() -> Request {
    let message = Message::User(User::text("Hi", 1));
    Request { system: "".into(), messages: vec![message.into()], tools: [].into() }
}

async fn answer(model: &OpenAiChat) -> Vec<Event> {
    model.stream(question()).collect().await
}

/// One whole exchange: what the client heard and what the server was asked.
async fn exchange(pieces: Vec<Vec<u8>>) -> (Vec<Event>, String) {
    let (listener, address) = bind().await;
    let model = model(&address);
    tokio::join!(answer(&model), serve(listener, pieces, Then::Close))
}

async fn failure(response: &str) -> Error {
    let (events, _) = exchange(vec![response.as_bytes().to_vec()]).await;
    match events.as_slice() {
        [Event::Failed(error)] => error.clone(),
        other => panic!("not one failure: {other:?}"),
    }
}

fn done() -> Event {
    Event::Done(Done { stop: StopReason::Stop, usage: Usage::default() })
}

#[tokio::test]
async fn an_answer_in_small_pieces_is_put_together() {
    let all = format!("{STREAM}: heartbeat\n\n{HELLO}{END}");
    let (events, request) = exchange(all.as_bytes().chunks(37).map(<[u8]>::to_vec).collect()).await;
    assert_eq!(events, [Event::Text("Hello wörld 🦞".to_owned()), done()]);
    assert!(request.starts_with("post /v1/chat/completions http/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nauthorization: bearer sk-very-secret\r\n"), "{request}");
    assert!(request.contains("\r\nx-tenant: tenant-secret\r\n"), "{request}");
    assert!(request.contains("\"stream\":true"), "{request}");
}

#[tokio::test]
async fn words_arrive_before_the_answer_is_over() {
    let (listener, address) = bind().await;
    let model = model(&address);
    let first_words = async {
        let mut stream = model.stream(question());
        stream.next().await
        // Here the stream is dropped, and the server waits for exactly that.
    };
    let server = serve(listener, vec![format!("{STREAM}{HELLO}").into_bytes()], Then::Wait);
    let both = async { tokio::join!(first_words, server) };
    let (first, _) = timeout(Duration::from_secs(20), both).await.expect("the connection stayed open");
    assert_eq!(first, Some(Event::Text("Hello wörld 🦞".to_owned())));
}

#[tokio::test]
async fn a_refusal_keeps_status_wait_and_words() {
    let body = r#"{"error":{"message":"Slow\ndown, sk-very-secret of tenant-secret","type":"requests"}}"#;
    let error = failure(&format!("HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nConnection: close\r\n\r\n{body}")).await;
    let expected = Error {
        kind: ErrorKind::RateLimit,
        status: Some(429),
        retry_after: Some(Duration::from_secs(7)),
        message: "local: HTTP 429: Slow down, … of …".to_owned(),
    };
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_status_says_what_can_be_done() {
    let kinds = [
        (302, ErrorKind::Rejected),
        (400, ErrorKind::Rejected),
        (401, ErrorKind::Auth),
        (402, ErrorKind::Auth),
        (403, ErrorKind::Auth),
        (404, ErrorKind::Rejected),
        (408, ErrorKind::Server),
        (413, ErrorKind::Rejected),
        (422, ErrorKind::Rejected),
        (500, ErrorKind::Server),
        (503, ErrorKind::Server),
        (529, ErrorKind::Server),
    ];
    for (status, kind) in kinds {
        let response = format!(
            "HTTP/1.1 {status} X\r\nRetry-After: Fri, 31 Dec 2027 23:59:59 GMT\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
        );
        let message = format!("local: HTTP {status}: no explanation");
        assert_eq!(failure(&response).await, Error { status: Some(status), ..Error::new(kind, message) });
    }
}

#[tokio::test]
async fn a_page_is_not_an_answer() {
    let error =
        failure("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<h1>Hotel\nlogin</h1>").await;
    let message = "local: the answer is not an event stream but text/html: <h1>Hotel login</h1>";
    assert_eq!(error, Error { status: Some(200), ..Error::new(ErrorKind::Malformed, message) });
}

#[tokio::test]
async fn a_cut_is_not_an_end() {
    let chunked = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let cut = format!("{chunked}{:x}\r\n{HELLO}\r\n", HELLO.len());
    let closed = format!("{STREAM}{HELLO}");
    for response in [cut, closed] {
        let (events, _) = exchange(vec![response.into_bytes()]).await;
        let [Event::Text(_), Event::Failed(error)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(error.kind, ErrorKind::Truncated);
        assert!(error.message.starts_with("local: the answer broke off before its end ("), "{error}");
    }
}

#[tokio::test]
async fn silence_is_given_up() {
    let (listener, address) = bind().await;
    let idle = Duration::from_millis(50);
    let model = OpenAiChat::new(Settings { idle, ..settings(&address) }, &Client::default()).unwrap();
    let server = serve(listener, vec![format!("{STREAM}{HELLO}").into_bytes()], Then::Wait);
    let (events, _) = tokio::join!(answer(&model), server);
    let message = "local: nothing came for 50ms, so the request was given up";
    let expected = [Event::Text("Hello wörld 🦞".to_owned()), Event::Failed(Error::new(ErrorKind::Idle, message))];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let (listener, address) = bind().await;
    drop(listener);
    let events = answer(&model(&address)).await;
    let message = format!(
        "local: {address} cannot be reached (Connection refused (os error 111)); check baseUrl and the network"
    );
    assert_eq!(events, [Event::Failed(Error::new(ErrorKind::Connect, message))]);
}

#[tokio::test]
async fn settings_that_cannot_be_sent_are_refused_at_once() {
    let settings = settings("127.0.0.1:1");
    let refused = |settings| OpenAiChat::new(settings, &Client::default()).unwrap_err().message;
    assert_eq!(
        refused(Settings { base_url: "localhost:8080/v1".to_owned(), ..settings.clone() }),
        "the baseUrl of provider local is neither http nor https; it looks like https://host/v1"
    );
    assert_eq!(
        refused(Settings { api_key: Some(Secret::from("line\nbreak")), ..settings }),
        "the API key of provider local has characters that HTTP cannot send"
    );
}

#[test]
fn debug_output_shows_no_secret() {
    let shown = format!("{:?}", model("127.0.0.1:1"));
    assert_eq!(
        (shown.contains("sk-very"), shown.contains("tenant-"), shown.contains("127.0.0.1")),
        (false, false, true)
    );
}
