//! OpenTelemetry export: each finished run becomes a span, with a child span for every model request and tool call.
//!
//! The spans are derived from the run's tape, so the run itself is not affected. They are sent as OTLP over HTTP, in
//! JSON, to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names. Failures are logged and the spans dropped.

use std::{ops::Range, sync::Arc, time::Duration};

use homard_agent::{Cursor, RequestEvent, RunEvent, StoredEvent, Tape, TapeEvent, ToolEvent};
use homard_gateway::RunEndCallback;
use homard_runtime::task;
use homard_settings::paths;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::{self, Receiver};

use crate::Error;

/// Maximum number of runs waiting to be sent; further ones are dropped.
const MAX_PENDING: usize = 1024;
/// Maximum number of runs per request.
const MAX_BATCH: usize = 64;
/// Timeout for the collector.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the callback for finished runs; `None` if no collector is configured.
pub fn start() -> Result<Option<RunEndCallback>, Error> {
    let Some(endpoint) = paths::env("OTEL_EXPORTER_OTLP_ENDPOINT") else { return Ok(None) };
    let Ok(endpoint) = endpoint.into_string() else {
        return Err(Error::Config("OTEL_EXPORTER_OTLP_ENDPOINT is not valid UTF-8".to_owned()));
    };
    let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let client = reqwest::Client::builder().timeout(COLLECTOR_TIMEOUT).build();
    let client = client.map_err(|error| Error::Config(format!("cannot create the HTTP client: {error}")))?;
    let (sender, receiver) = mpsc::channel(MAX_PENDING);
    drop(task::spawn("otel", send(client, url, receiver)));
    Ok(Some(Arc::new(move |tape: &Tape| {
        let run = tape.run().to_string();
        let spans = spans(&run, tape.key().as_str(), tape.accepted_at(), &tape.read(&mut Cursor::default()));
        if sender.try_send(spans).is_err() {
            tracing::debug!(run, "the trace of a run was dropped: the export queue is full");
        }
    })))
}

async fn send(client: reqwest::Client, url: String, mut receiver: Receiver<Vec<Value>>) {
    let mut batch = Vec::new();
    while receiver.recv_many(&mut batch, MAX_BATCH).await > 0 {
        let body = document(&batch.drain(..).flatten().collect::<Vec<_>>()).to_string();
        let sent = client.post(&url).header("content-type", "application/json").body(body).send().await;
        if let Err(error) = sent.and_then(reqwest::Response::error_for_status) {
            tracing::warn!(error = %error.without_url(), "failed to send traces to the collector");
        }
    }
}

fn document(spans: &[Value]) -> Value {
    let resource = [("service.name", "homard".into()), ("service.version", env!("CARGO_PKG_VERSION").into())];
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes(&resource)},
        "scopeSpans": [{"scope": {"name": "homard"}, "spans": spans}],
    }]})
}

/// Collects the spans of a run.
struct SpanBuilder<'a> {
    run: &'a str,
    spans: Vec<Value>,
}

impl SpanBuilder<'_> {
    fn id(&self, name: &str, bytes: usize) -> String {
        let digest = Sha256::digest(format!("{} {name}", self.run));
        digest.iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Adds a span. The first one is the run itself.
    fn add(&mut self, name: &str, period: &Range<u64>, span_attributes: &[(&str, Value)], error: Option<&str>) {
        let number = self.spans.len();
        let mut span = json!({
            "traceId": self.id("trace", 16), "spanId": self.id(&format!("span {number}"), 8), "name": name, "kind": 1,
            "startTimeUnixNano": nanos(period.start), "endTimeUnixNano": nanos(period.end), "attributes": attributes(span_attributes),
        });
        if number > 0 {
            span["parentSpanId"] = self.id("span 0", 8).into();
        }
        if let Some(why) = error {
            span["status"] = json!({"code": 2, "message": why});
        }
        self.spans.push(span);
    }
}

/// Returns the spans of a run, the run itself first.
fn spans(run: &str, session: &str, accepted_at: u64, events: &[TapeEvent]) -> Vec<Value> {
    let mut trace = SpanBuilder { run, spans: Vec::new() };
    let ended_at = events.last().map_or(accepted_at, |event| event.at);
    let error = events.iter().find_map(|event| {
        let RunEvent::Stored(StoredEvent::Ended(end)) = &event.kind else { return None };
        end.outcome.error()
    });
    let span_attributes = [("homard.run", run.into()), ("homard.session", session.into())];
    trace.add("run", &(accepted_at..ended_at), &span_attributes, error);
    let (mut pending, mut tools) = (None, Vec::new());
    for TapeEvent { at, kind } in events {
        if let RunEvent::Stored(StoredEvent::Started { .. }) = kind {
            trace.add("queue", &(accepted_at..*at), &[], None);
        } else if let RunEvent::Model(RequestEvent::Requested(request)) = kind {
            pending = Some((request.clone(), *at));
        } else if let RunEvent::Stored(StoredEvent::Assistant { message, .. }) = kind
            && let Some((request, started_at)) = pending.take()
        {
            let span_attributes = [
                ("gen_ai.provider.name", request.provider.as_str().into()),
                ("gen_ai.request.model", request.model.as_str().into()),
                ("gen_ai.usage.input_tokens", message.usage.input.into()),
                ("gen_ai.usage.output_tokens", message.usage.output.into()),
            ];
            let error = message.error_message.as_deref();
            trace.add(&format!("chat {}", request.model), &(started_at..*at), &span_attributes, error);
        } else if let RunEvent::Model(RequestEvent::Retrying { why, .. } | RequestEvent::CandidateFailed { why, .. }) =
            kind
            && let Some((request, started_at)) = pending.take()
        {
            let span_attributes = [("gen_ai.provider.name", request.provider.as_str().into())];
            trace.add(&format!("chat {}", request.model), &(started_at..*at), &span_attributes, Some(why));
        } else if let RunEvent::Tool(ToolEvent::Started { call, .. }) = kind {
            tools.push((call.clone(), *at));
        } else if let RunEvent::Stored(StoredEvent::ToolEnded { call, result, .. }) = kind
            && let Some(index) = tools.iter().position(|(started, _)| started == call)
        {
            let (_, started_at) = tools.swap_remove(index);
            let span_attributes = [("gen_ai.tool.name", result.tool_name.as_str().into())];
            let error = result.is_error.then_some("the tool failed");
            trace.add(&format!("execute_tool {}", result.tool_name), &(started_at..*at), &span_attributes, error);
        }
    }
    trace.spans
}

fn nanos(at_ms: u64) -> String {
    at_ms.saturating_mul(1_000_000).to_string()
}

/// Encodes attributes for OTLP: integers are strings there.
fn attributes(all: &[(&str, Value)]) -> Vec<Value> {
    let value = |value: &Value| match value {
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::String(text) => json!({"stringValue": text}),
        other @ (Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            json!({"stringValue": other.to_string()})
        }
    };
    all.iter().map(|(name, attribute)| json!({"key": name, "value": value(attribute)})).collect()
}

#[cfg(test)]
mod tests {
    use homard_proto::SessionId;

    use super::*;

    #[test]
    fn a_run_is_a_span_with_child_spans() {
        let request = Arc::new(serde_json::from_value(json!({"provider": "acme", "model": "m"})).unwrap());
        let events = [
            (20, RunEvent::Stored(StoredEvent::Started { session: SessionId::parse("s").unwrap() })),
            (30, RunEvent::Model(RequestEvent::Requested(request))),
            (
                50,
                RunEvent::Model(RequestEvent::Retrying {
                    model: String::new(),
                    attempt: (2, 5),
                    after: Duration::ZERO,
                    why: "busy".to_owned(),
                }),
            ),
        ];
        let events = events.map(|(at, kind)| TapeEvent { at, kind });
        let spans = spans("r", "agent:main:main", 10, &events);
        let text = |span: &Value, name: &str| span[name].as_str().unwrap_or_default().to_owned();
        let actual: Vec<_> = spans.iter().map(|span| (text(span, "name"), text(span, "endTimeUnixNano"))).collect();
        let expected = [("run", "50000000"), ("queue", "20000000"), ("chat m", "50000000")];
        assert_eq!(actual, expected.map(|(name, end)| (name.to_owned(), end.to_owned())));
        assert_eq!(spans[2]["status"]["message"], "busy");
        assert!(spans[1..].iter().all(|span| span["parentSpanId"] == spans[0]["spanId"]));
        assert_eq!((text(&spans[0], "traceId").len(), text(&spans[0], "spanId").len()), (32, 16));
    }
}
