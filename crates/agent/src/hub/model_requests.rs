//! Model requests of runs with their prompts (`runs.prompt`).

use std::io;

use homard_proto::{RunId, SessionId};
use homard_request_log::{LoggedPrompt, PromptId};
use homard_store::{Error as StoreError, RunQuery, RunRow, RunTimeline, SpanKind, timeline::ModelRequestSpan};

use super::HubRuns;

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

impl HubRuns<'_> {
    /// Returns a model request of a run with its prompt: the one with this index, or the last one.
    pub async fn model_requests(self, name: &str, index: Option<usize>) -> Result<ModelRequests, RequestError> {
        let Some(trace) = self.trace(name).await? else { return Err(RequestError::UnknownRun(name.to_owned())) };
        let requests = requests(&trace.steps);
        let count = requests.len();
        let index = index.unwrap_or(count.saturating_sub(1));
        let Some((at, span)) = requests.get(index).cloned() else { return Err(RequestError::NoRequest(count)) };
        let run = trace.row.host.clone().unwrap_or_else(|| trace.row.run.clone());
        let request = self.logged(run.clone(), index, at, span).await?;
        let previous = match index.checked_sub(1).and_then(|index| Some((index, requests.get(index).cloned()?))) {
            Some((index, (at, span))) => Some(self.logged(run, index, at, span).await?),
            None => self.last_request_before(&trace.row, run).await?,
        };
        Ok(ModelRequests { row: trace.row, count, request, previous })
    }

    /// Returns the last request that the session made before a run.
    async fn last_request_before(self, row: &RunRow, run: RunId) -> Result<Option<LoggedRequest>, RequestError> {
        let Some(session) = &row.session else { return Ok(None) };
        let query =
            RunQuery { key: Some(row.key.clone()), before: Some(run), limit: MAX_EARLIER_RUNS, ..RunQuery::default() };
        let is_of_session = |earlier: &RunRow, session: &SessionId| earlier.session.as_ref() == Some(session);
        for earlier in self.list(&query).await? {
            // An absorbed run has the timeline of its host.
            let homard_store::RunState::Ended(ended) = &earlier.state else { continue };
            if !is_of_session(&earlier, session) || earlier.host.is_some() {
                continue;
            }
            let requests = requests(&ended.steps);
            if let Some((at, span)) = requests.last().cloned() {
                return Ok(Some(self.logged(earlier.run, requests.len() - 1, at, span).await?));
            }
        }
        Ok(None)
    }

    async fn logged(self, run: RunId, index: usize, at: u64, span: ModelRequestSpan) -> io::Result<LoggedRequest> {
        let id = span.prompt.id.as_deref().and_then(|id| id.parse::<PromptId>().ok());
        let prompt = match id {
            Some(id) => self.hub.request_log().read(id).await?,
            None => None,
        };
        Ok(LoggedRequest { run, index, at, span, prompt })
    }
}

/// Returns the model requests of a timeline with their times.
fn requests(steps: &RunTimeline) -> Vec<(u64, ModelRequestSpan)> {
    let request =
        |kind: &SpanKind| if let SpanKind::Model(span) = kind { Some(ModelRequestSpan::clone(span)) } else { None };
    steps.all().iter().filter_map(|step| Some((step.from, request(&step.what)?))).collect()
}
