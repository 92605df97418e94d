//! Model requests of runs with their prompts (`runs.prompt`).

use std::io;

use homard_proto::RunId;
use homard_request_log::{LoggedPrompt, PromptId, RequestLog};
use homard_store::{
    Error as StoreError, RunQuery, RunRow, RunState, RunTimeline, SpanKind, timeline::ModelRequestSpan,
};

use super::Hub;

/// Maximum number of earlier runs of a session that are searched for the previous request. Most runs make one.
const MAX_EARLIER_RUNS: usize = 20;

/// A model request of a run, and the session's request before it.
#[derive(Debug, Clone)]
pub struct ModelRequests {
    /// Session of the run.
    pub row: RunRow,
    /// Number of requests of the run.
    pub count: usize,
    /// The request.
    pub request: LoggedRequest,
    /// The request before it, with which a provider's cache compares it; `None` if there was none, or it is unknown.
    pub previous: Option<LoggedRequest>,
}

/// A model request with its prompt.
#[derive(Debug, Clone)]
pub struct LoggedRequest {
    /// Run that made it.
    pub run: RunId,
    /// Position among the run's requests, from 0.
    pub index: usize,
    /// Time in milliseconds since the epoch.
    pub at: u64,
    /// Sizes and result.
    pub span: ModelRequestSpan,
    /// System prompt and tools; `None` if they were not kept, or no longer are.
    pub prompt: Option<LoggedPrompt>,
}

/// Why a model request cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is no such run.
    #[error("unknown run: {0}; runs.list returns the known runs")]
    UnknownRun(String),
    /// The run made fewer requests.
    #[error("the run made {0} model requests")]
    NoRequest(usize),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The files with the prompts cannot be read.
    #[error("cannot read a kept prompt: {0}")]
    Log(#[from] io::Error),
}

/// Returns a model request of a run with its prompt: the one with this index, or the last one.
pub async fn model_requests(hub: &Hub, name: &str, index: Option<usize>) -> Result<ModelRequests, RequestError> {
    let Some(trace) = hub.runs().trace(name).await? else { return Err(RequestError::UnknownRun(name.to_owned())) };
    let requests = requests(&trace.steps);
    let count = requests.len();
    let index = index.unwrap_or(count.saturating_sub(1));
    let Some((at, span)) = requests.get(index).cloned() else { return Err(RequestError::NoRequest(count)) };
    let run = trace.row.host.clone().unwrap_or_else(|| trace.row.run.clone());
    let log = hub.request_log();
    let earlier = index.checked_sub(1).and_then(|index| Some((index, requests.get(index).cloned()?)));
    let previous = match earlier {
        Some((index, (at, span))) => Some(logged(&log, run.clone(), index, at, span).await?),
        None => last_request_before(hub, &trace.row, &run).await?,
    };
    let request = logged(&log, run, index, at, span).await?;
    Ok(ModelRequests { row: trace.row, count, request, previous })
}

/// Returns the last request that the session made before a run.
async fn last_request_before(hub: &Hub, row: &RunRow, run: &RunId) -> Result<Option<LoggedRequest>, RequestError> {
    let Some(session) = &row.session else { return Ok(None) };
    let (key, before) = (Some(row.key.clone()), Some(run.clone()));
    let query = RunQuery { key, before, limit: MAX_EARLIER_RUNS, ..RunQuery::default() };
    for earlier in hub.runs().list(&query).await? {
        // An absorbed run has the timeline of its host.
        let RunState::Ended(ended) = &earlier.state else { continue };
        if earlier.session.as_ref() != Some(session) || earlier.host.is_some() {
            continue;
        }
        let mut requests = requests(&ended.steps);
        if let Some((at, span)) = requests.pop() {
            return Ok(Some(logged(&hub.request_log(), earlier.run, requests.len(), at, span).await?));
        }
    }
    Ok(None)
}

async fn logged(
    log: &RequestLog,
    run: RunId,
    index: usize,
    at: u64,
    span: ModelRequestSpan,
) -> io::Result<LoggedRequest> {
    let id = span.prompt.id.as_deref().and_then(|id| id.parse::<PromptId>().ok());
    let prompt = match id {
        Some(id) => log.read(id).await?,
        None => None,
    };
    Ok(LoggedRequest { run, index, at, span, prompt })
}

/// Returns the model requests of a timeline with their times.
fn requests(steps: &RunTimeline) -> Vec<(u64, ModelRequestSpan)> {
    let request =
        |kind: &SpanKind| if let SpanKind::Model(span) = kind { Some(ModelRequestSpan::clone(span)) } else { None };
    steps.all().iter().filter_map(|step| Some((step.from, request(&step.what)?))).collect()
}
