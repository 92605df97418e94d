//! `chat.resume`: a client comes back to runs, is told what it missed and from there on the rest.

use homard_proto::{
    ErrorShape,
    method::{Params, chat::ResumeParams},
};

use crate::{
    methods::{session_key, submit::tool_detail, unavailable},
    projector::Missed,
    router::{Answer, Call},
};

/// Finds the runs; the projector answers.
pub(crate) async fn resume(mut call: Call) -> Result<Answer, ErrorShape> {
    let ResumeParams { session_key: asked, run_id, after_seq } = call.params()?;
    let key = session_key(&call.server, ResumeParams::METHOD, &asked)?;
    let hub = &call.server.hub;
    let after = match (&run_id, after_seq) {
        (None, Some(_)) => {
            let why = "invalid chat.resume params: afterSeq counts the events of one run; say which in runId";
            return Err(ErrorShape::invalid(why));
        }
        (_, after) => after.unwrap_or_default(),
    };
    let alive = || hub.work().into_iter().filter(|work| work.key == key).map(|work| work.run).collect();
    let mut runs = Vec::new();
    for run in run_id.map_or_else(alive, |run| vec![run]) {
        let known = match hub.follow(&run) {
            Some(follower) => Ok(follower.tape().clone()),
            None => Err(hub.reported(&run).await.map_err(unavailable)?),
        };
        let session = match &known {
            Ok(tape) => Some(tape.key()),
            Err(report) => report.as_ref().map(|report| report.key()),
        };
        if session.is_some_and(|session| *session != key) {
            return Err(ErrorShape::invalid("runId does not match sessionKey"));
        }
        runs.push((run, known.map_err(|report| report.map(|report| report.over()))));
    }
    let detail = tool_detail(&call, &key).await?;
    Ok(Answer::Missed(Missed { key, asked, runs, after, detail }))
}
