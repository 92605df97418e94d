//! Benchmark: reads streams of a Chat Completions server through the wire and with bare `reqwest`, alternately, and
//! prints the cost of each. Run by `cargo xtask bench`, whose server streams as many chunks as the request says.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for one's own terminal")]

use std::{fs, time::Duration};

use futures_util::StreamExt;
use homard_model::{Model, ModelEvent, ModelSpec, Request};
use homard_proto::message::{Message, User};
use homard_providers::{HttpClient, ModelTarget, RemoteModel};
use serde_json::json;
use tokio::time::Instant;

/// Lengths of the streams in chunks.
const SIZES: [usize; 3] = [500, 2_000, 4_000];
/// Total number of chunks streamed for each length.
const STREAMED: usize = 80_000;

/// Cost of a stream: processor time, and time to the first text.
type Cost = (Duration, Duration);

fn main() {
    let base_url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080/v1".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let results: Vec<_> = SIZES.map(|size| runtime.block_on(compare(&base_url, size))).into();
    println!("{}", json!(results));
}

async fn compare(base_url: &str, size: usize) -> serde_json::Value {
    let spec = ModelSpec { api: "openai-completions".to_owned(), model: "fake-1".to_owned(), ..ModelSpec::default() };
    let model = RemoteModel::new(ModelTarget::new(spec, base_url), &HttpClient::default()).unwrap();
    // The first read is a warm-up, and also initializes what the bare client needs.
    through_wire(&model, size).await;
    let bare = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    without_wire(&bare, base_url, size).await;
    let (mut wire_costs, mut bare_costs) = (Vec::new(), Vec::new());
    for _ in 0..STREAMED / size {
        wire_costs.push(through_wire(&model, size).await);
        bare_costs.push(without_wire(&bare, base_url, size).await);
    }
    json!({"chunks": size, "wire": summary(&wire_costs), "bare": summary(&bare_costs)})
}

/// Returns the processor time per stream and the median time to the first text, in microseconds.
fn summary(costs: &[Cost]) -> serde_json::Value {
    let used: Duration = costs.iter().map(|(used, _)| *used).sum();
    let mut waits: Vec<_> = costs.iter().map(|(_, wait)| *wait).collect();
    waits.sort_unstable();
    json!({"used": micros(used) / costs.len() as f64, "first": micros(waits[waits.len() / 2])})
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

async fn through_wire(model: &RemoteModel, size: usize) -> Cost {
    let message = Message::User(User::text(format!("chunks={size}"), 1));
    let request = Request { messages: vec![message.into()], ..Request::default() };
    let (used, start) = (processor_time(), Instant::now());
    let (mut texts, mut first) = (0, Duration::ZERO);
    let mut stream = model.stream(request);
    while let Some(event) = stream.next().await {
        if let ModelEvent::Text(_) = event {
            texts += 1;
            if texts == 1 {
                first = start.elapsed();
            }
        }
    }
    assert_eq!(texts, size, "the server should stream as many chunks as it is asked for");
    (processor_time() - used, first)
}

async fn without_wire(client: &reqwest::Client, base_url: &str, size: usize) -> Cost {
    let body = json!({"model": "fake-1", "messages": [{"role": "user", "content": format!("chunks={size}")}]});
    let (used, start) = (processor_time(), Instant::now());
    let sent = client.post(format!("{base_url}/chat/completions")).body(body.to_string()).send().await;
    let mut response = sent.unwrap();
    let (mut bytes, mut first) = (0, Duration::ZERO);
    while let Some(piece) = response.chunk().await.unwrap() {
        if bytes == 0 {
            first = start.elapsed();
        }
        bytes += piece.len();
    }
    assert!(bytes > size, "the server should stream as many chunks as it is asked for");
    (processor_time() - used, first)
}

/// Returns the processor time used by this thread, the only busy one.
fn processor_time() -> Duration {
    // The system updates the counter when a thread yields; otherwise a part of this time would be attributed to the
    // next measurement.
    std::thread::yield_now();
    let stats = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stats.split(' ').next().unwrap().parse().unwrap())
}
