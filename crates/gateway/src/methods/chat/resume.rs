//! `chat.resume`: lets a reconnected client catch up with runs.

use homard_proto::{
    ErrorShape,
    method::{Params, chat::ResumeParams},
};

use crate::{
    methods::{session_key, submit::tool_detail, unavailable},
    projector::{Known, Missed},
    router::{Answer, Call},
};

/// Finds the runs; the projector sends the response.
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
        let (session, known) = match hub.follow(&run) {
            Some(follower) => (Some(follower.tape().key().clone()), Known::Alive(follower.tape().clone())),
            None => match hub.reported(&run).await.map_err(unavailable)? {
                Some(report) => (Some(report.key().clone()), Known::Over(report.over())),
                None => (None, Known::Nothing),
            },
        };
        if session.is_some_and(|session| session != key) {
            return Err(ErrorShape::invalid("runId does not match sessionKey"));
        }
        runs.push((run, known));
    }
    let detail = tool_detail(&call, &key).await?;
    Ok(Answer::Missed(Missed { key, asked, runs, after, detail }))
}
