//! `chat.resume`: lets a reconnected client catch up with runs.

use homard_proto::{
    ErrorShape,
    method::{Params, chat::ResumeParams},
};

use crate::{
    methods::{session_key, submit::tool_detail, unavailable},
    projector::{KnownRun, ResumePosition},
    router::{RpcCall, RpcResult},
};

/// Finds the runs; the projector sends the response.
pub(crate) async fn resume(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ResumeParams { session_key: requested_key, run_id, after_seq } = call.params()?;
    let key = session_key(&call.server, ResumeParams::METHOD, &requested_key)?;
    let hub = &call.server.hub;
    let after = match (&run_id, after_seq) {
        (None, Some(_)) => {
            let why = "invalid chat.resume params: afterSeq counts the events of one run and requires runId";
            return Err(ErrorShape::invalid(why));
        }
        (_, after) => after.unwrap_or_default(),
    };
    let live_runs = || hub.runs().live().into_iter().filter(|live| live.key == key).map(|live| live.run).collect();
    let mut runs = Vec::new();
    for run in run_id.map_or_else(live_runs, |run| vec![run]) {
        let (session, known) = match hub.runs().follow_admitted(&run).await {
            Some(follower) => (Some(follower.tape().key().clone()), KnownRun::Active(follower.tape().clone())),
            None => match hub.runs().result(&run).await.map_err(unavailable)? {
                Some(report) => (Some(report.key().clone()), KnownRun::Finished(report.final_event())),
                None => (None, KnownRun::Unknown),
            },
        };
        if session.is_some_and(|session| session != key) {
            return Err(ErrorShape::invalid("runId does not match sessionKey"));
        }
        runs.push((run, known));
    }
    let detail = tool_detail(&call, &key).await?;
    Ok(RpcResult::Resume(ResumePosition { key, requested_key, runs, after, detail }))
}
