//! Detects which API a server provides: sends one short request for each API and interprets the responses.
//!
//! A server that knows an API responds to its path or rejects the request in detail; otherwise the path does not exist.
//! Ambiguous results are not guessed.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use homard_model::{Error, ErrorKind};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::{
    ModelTarget, Wire,
    http::{Endpoint, HttpClient},
};

/// Timeout of a probe.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(4);

/// Result of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ProbeReply {
    /// A response in the format of the API.
    Answered,
    /// The path exists and the request was rejected.
    Refused(u16),
    /// The path does not provide this API.
    Absent(u16),
    /// No response within the timeout.
    Silent,
    /// The server could not be reached.
    Unreached(String),
}

/// Detects which of [`Wire::PROBED`] a server provides, within [`PROBE_TIMEOUT`]. The target's own API is ignored.
///
/// # Errors
///
/// No API was found, or the result is ambiguous. The message lists each request and its result.
pub async fn probe(target: &ModelTarget, client: &HttpClient) -> Result<Wire, Error> {
    let mut endpoints = Vec::new();
    for wire in Wire::PROBED {
        endpoints.push(Endpoint::new(client, target, &wire.request_path(target), &wire.headers(target))?);
    }
    let deadline = Instant::now() + PROBE_TIMEOUT;
    let mut requests: FuturesUnordered<_> = Wire::PROBED
        .into_iter()
        .zip(&endpoints)
        .enumerate()
        .map(|(index, (wire, endpoint))| async move {
            let body = probe_request(wire, &target.spec.model).to_string().into_bytes();
            let reply = match timeout_at(deadline, endpoint.ask_once(body)).await {
                Ok(Ok((status, kind, text))) => read(wire, status, &kind, &text),
                Ok(Err(why)) => ProbeReply::Unreached(why),
                Err(_) => ProbeReply::Silent,
            };
            (index, reply)
        })
        .collect();
    let mut replies: [Option<ProbeReply>; 3] = [None, None, None];
    while let Some((index, reply)) = requests.next().await {
        replies[index] = Some(reply);
        // The first API with a response is the result, once those before it have responded as well.
        let first = replies.iter().position(|reply| reply.is_none() || *reply == Some(ProbeReply::Answered));
        if let Some(first) = first.filter(|first| replies[*first].is_some()) {
            return Ok(Wire::PROBED[first]);
        }
    }
    let replies = replies.map(|reply| reply.unwrap_or(ProbeReply::Silent));
    detect(&replies).map_err(|kind| {
        let descriptions: Vec<_> =
            endpoints.iter().zip(&replies).map(|(endpoint, reply)| describe(endpoint, reply)).collect();
        let slash =
            if target.base_url.contains("/v1") { "" } else { " (many servers require /v1 at the end of baseUrl)" };
        let status = replies.iter().find_map(|reply| match reply {
            ProbeReply::Refused(status) | ProbeReply::Absent(status) => Some(*status),
            ProbeReply::Answered | ProbeReply::Silent | ProbeReply::Unreached(_) => None,
        });
        let message = format!("no known API was found: {}{slash}", descriptions.join(", "));
        let error = Error { status, ..Error::new(kind, message) };
        endpoints.first().map_or_else(|| error.clone(), |endpoint| endpoint.with_context(error.clone()))
    })
}

/// Returns a minimal request of an API.
fn probe_request(wire: Wire, model: &str) -> Value {
    let messages = json!([{"role": "user", "content": "ping"}]);
    match wire {
        Wire::OpenAiResponses => json!({"model": model, "input": "ping", "max_output_tokens": 16, "store": false}),
        Wire::OpenAiCompletions | Wire::AnthropicMessages | Wire::GoogleGenerativeAi => {
            json!({"model": model, "messages": messages, "max_tokens": 1})
        }
    }
}

/// Interprets a response.
fn read(wire: Wire, status: u16, kind: &str, body: &str) -> ProbeReply {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    match status {
        200..=299 if kind.starts_with("text/event-stream") || is_answer(wire, &json) => ProbeReply::Answered,
        // Some servers respond to unknown paths with a success status.
        200..=399 | 405 | 501 => ProbeReply::Absent(status),
        404 if body.to_lowercase().contains("model") => ProbeReply::Refused(status),
        404 => ProbeReply::Absent(status),
        _ => ProbeReply::Refused(status),
    }
}

fn is_answer(wire: Wire, json: &Value) -> bool {
    match wire {
        Wire::OpenAiCompletions => json["choices"].is_array(),
        Wire::OpenAiResponses => json["output"].is_array(),
        Wire::AnthropicMessages => json["content"].is_array(),
        Wire::GoogleGenerativeAi => json["candidates"].is_array(),
    }
}

/// Returns the API indicated by the responses to all of [`Wire::PROBED`], or the kind of failure.
fn detect(replies: &[ProbeReply; 3]) -> Result<Wire, ErrorKind> {
    let all = || Wire::PROBED.into_iter().zip(replies);
    let statuses: Vec<u16> = replies
        .iter()
        .filter_map(|reply| match reply {
            ProbeReply::Refused(status) => Some(*status),
            ProbeReply::Answered | ProbeReply::Absent(_) | ProbeReply::Silent | ProbeReply::Unreached(_) => None,
        })
        .collect();
    if let Some((wire, _)) = all().find(|(_, reply)| **reply == ProbeReply::Answered) {
        return Ok(wire);
    }
    // A server that rejects everything alike may not have looked at the path.
    if let [first, rest @ ..] = statuses.as_slice()
        && rest.len() == 2
        && rest.iter().all(|status| status == first)
        && (matches!(first, 401 | 403) || *first >= 500)
    {
        return Err(if *first < 500 { ErrorKind::Auth } else { ErrorKind::Misconfigured });
    }
    if let Some((wire, _)) = all().find(|(_, reply)| matches!(reply, ProbeReply::Refused(_))) {
        return Ok(wire);
    }
    // Loading a model takes time, a missing path does not.
    let silent: Vec<_> = all().filter(|(_, reply)| **reply == ProbeReply::Silent).map(|(wire, _)| wire).collect();
    let are_others_absent = replies.iter().filter(|reply| matches!(reply, ProbeReply::Absent(_))).count() == 2;
    match silent.as_slice() {
        [wire] if are_others_absent => Ok(*wire),
        _ => Err(ErrorKind::Misconfigured),
    }
}

fn describe(endpoint: &Endpoint, reply: &ProbeReply) -> String {
    let url = endpoint.url_without_secrets();
    match reply {
        ProbeReply::Answered => format!("POST {url} answered"),
        ProbeReply::Refused(status) | ProbeReply::Absent(status) => format!("POST {url} answered HTTP {status}"),
        ProbeReply::Silent => format!("POST {url} did not answer within {} s", PROBE_TIMEOUT.as_secs()),
        ProbeReply::Unreached(why) => format!("POST {url} failed ({why})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: Wire = Wire::OpenAiCompletions;
    const MESSAGES: Wire = Wire::AnthropicMessages;

    #[test]
    fn an_answer_is_recognized_by_its_format() {
        let json = "application/json";
        assert_eq!(read(CHAT, 200, json, r#"{"choices": []}"#), ProbeReply::Answered);
        assert_eq!(read(CHAT, 200, "text/event-stream; charset=utf-8", ""), ProbeReply::Answered);
        assert_eq!(read(CHAT, 200, json, r#"{"error": "Unexpected endpoint or method"}"#), ProbeReply::Absent(200));
        assert_eq!(read(MESSAGES, 200, json, r#"{"choices": []}"#), ProbeReply::Absent(200));
        assert_eq!(read(CHAT, 404, json, r#"{"error": "model m not found"}"#), ProbeReply::Refused(404));
        for (status, reply) in
            [(404, ProbeReply::Absent(404)), (405, ProbeReply::Absent(405)), (302, ProbeReply::Absent(302))]
        {
            assert_eq!(read(CHAT, status, "text/html", "<html>"), reply);
        }
        for status in [400, 401, 422, 429, 500, 503] {
            assert_eq!(read(CHAT, status, json, "{}"), ProbeReply::Refused(status));
        }
    }

    #[test]
    fn ambiguous_replies_are_not_guessed() {
        use ProbeReply::{Absent, Answered, Refused, Silent};
        let unreached = || ProbeReply::Unreached("refused".to_owned());
        for (replies, expected) in [
            ([Answered, Answered, Answered], Ok(CHAT)),
            ([Absent(404), Absent(404), Answered], Ok(MESSAGES)),
            ([Refused(400), Answered, Absent(404)], Ok(Wire::OpenAiResponses)),
            ([Refused(400), Refused(400), Refused(400)], Ok(CHAT)),
            ([Absent(404), Absent(405), Refused(401)], Ok(MESSAGES)),
            ([Refused(401), Refused(401), Refused(401)], Err(ErrorKind::Auth)),
            ([Refused(502), Refused(502), Refused(502)], Err(ErrorKind::Misconfigured)),
            ([Silent, Absent(404), Absent(404)], Ok(CHAT)),
            ([Silent, Silent, Absent(404)], Err(ErrorKind::Misconfigured)),
            ([Silent, Silent, Silent], Err(ErrorKind::Misconfigured)),
            ([Absent(404), Absent(404), Absent(404)], Err(ErrorKind::Misconfigured)),
            ([unreached(), unreached(), unreached()], Err(ErrorKind::Misconfigured)),
        ] {
            assert_eq!(detect(&replies), expected, "{replies:?}");
        }
    }
}
