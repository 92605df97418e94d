//! The final verification: after one more restart every run is requested again, by its id and by its key, and every
//! response must equal the earlier one. Then every session receives one more message.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::{
    sender::{final_answer, key, params},
    stage::{Run, Stage, Told},
};
use crate::client::{Client, Incoming, Reached, Refusal};

/// Number of concurrent clients.
const CLIENTS: usize = 4;
/// For one in this many runs, another request with the same key is sent, too; it must be a conflict.
const CONFLICTS: usize = 8;

/// Requests every run again.
pub(super) async fn ask_again(stage: &Arc<Stage>, port: u16) -> Result<()> {
    let runs: Vec<_> = stage.history().runs.iter().map(|(id, run)| (id.clone(), run.clone())).collect();
    let share = runs.len().div_ceil(CLIENTS).max(1);
    try_join_all(runs.chunks(share).map(|share| ask(stage, port, share))).await?;
    Ok(())
}

/// Sends one more message to every session: the recovered state must be usable.
pub(super) async fn go_on(stage: &Arc<Stage>, port: u16) -> Result<()> {
    let sessions: BTreeSet<_> = stage.history().runs.values().map(|run| run.session.clone()).collect();
    let runs: Vec<_> = sessions.into_iter().enumerate().map(|(at, session)| (format!("more-{at}"), session)).collect();
    // Ordered behind all others.
    runs.iter().for_each(|(id, session)| stage.sends(id, session, usize::MAX));
    let share = runs.len().div_ceil(CLIENTS).max(1);
    try_join_all(runs.chunks(share).map(|share| say_more(stage, port, share))).await?;
    Ok(())
}

async fn say_more(stage: &Stage, port: u16, share: &[(String, String)]) -> Result<()> {
    let mut client = connect(stage, port).await?;
    for (id, session) in share {
        let asked = client.send("agent", params(id, session)).await?;
        loop {
            match client.next().await? {
                Incoming::Answer { id: to, answer: Ok(first) } if to == asked && first["status"] == "accepted" => {
                    stage.accepted(id);
                }
                Incoming::Answer { id: to, answer } if to == asked => {
                    stage.told(id, final_answer(&answer));
                    break;
                }
                Incoming::Answer { .. } | Incoming::News { .. } => {}
            }
        }
    }
    Ok(())
}

async fn connect(stage: &Stage, port: u16) -> Result<Client> {
    let target = stage.target(port);
    match Client::connect(&target, &["operator.write", "operator.read"], &[]).await? {
        Reached::Gateway(client) => Ok(*client),
        Reached::Nobody => anyhow::bail!("nobody listens at {}", target.url),
    }
}

async fn ask(stage: &Stage, port: u16, share: &[(String, Run)]) -> Result<()> {
    let mut client = connect(stage, port).await?;
    for (number, (id, run)) in share.iter().enumerate() {
        let waited = call(&mut client, "agent.wait", json!({"runId": key(id), "timeoutMs": 0})).await?;
        let again =
            if run.is_accepted { Some(call(&mut client, "agent", params(id, &run.session)).await?) } else { None };
        let other = json!({"message": "something else", "idempotencyKey": key(id), "sessionKey": run.session});
        let other = if number % CONFLICTS == 0 && run.is_accepted {
            Some(call(&mut client, "agent", other).await?)
        } else {
            None
        };
        let problems = judge(id, run, [Some(waited), again, other]);
        problems.into_iter().for_each(|problem| stage.history().problem(problem));
    }
    Ok(())
}

async fn call(client: &mut Client, method: &str, params: Value) -> Result<Result<Value, Refusal>> {
    let asked = client.send(method, params).await.context("the gateway went away in the middle of the check")?;
    loop {
        if let Incoming::Answer { id, answer } = client.next().await?
            && id == asked
        {
            return Ok(answer);
        }
    }
}

/// Checks the responses: to `agent.wait`, to the same request, and to another request with the same key.
fn judge(id: &str, run: &Run, [waited, again, other]: [Option<Result<Value, Refusal>>; 3]) -> Vec<String> {
    let mut problems = Vec::new();
    let agrees = |payload: &Value| match &run.told {
        Some(Told::Done(_)) => payload["status"] == "ok",
        Some(Told::Failed(why)) => payload["status"] == "error" && payload["error"] == why.as_str(),
        None => true,
    };
    if let Some(waited) = waited
        && !waited.as_ref().is_ok_and(agrees)
    {
        problems.push(format!("run {id} ended with {:?}, and agent.wait says {waited:?}", run.told));
    }
    if let (Some(again), Some(told)) = (again, &run.told)
        && final_answer(&again) != *told
    {
        problems.push(format!("run {id} ended with {told:?}, and the same request gets {again:?}"));
    }
    if let Some(other) = other
        && !other.as_ref().is_err_and(|refusal| refusal.message.starts_with("idempotency_conflict"))
    {
        problems.push(format!("another request with the key of run {id} gets {other:?}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_agree_are_no_problem_and_others_are() {
        let run = Run { told: Some(Told::Done("x".to_owned())), is_accepted: true, ..Run::default() };
        let waited = |status: &str| Some(Ok(json!({"status": status})));
        let again = |text: &str| Some(Ok(json!({"status": "ok", "result": {"payloads": [{"text": text}]}})));
        let refused =
            |message: &str| Some(Err(Refusal { code: "INVALID_REQUEST".to_owned(), message: message.to_owned() }));
        let good = [waited("ok"), again("x"), refused("idempotency_conflict: run id r")];
        assert_eq!(judge("1-1", &run, good), Vec::<String>::new());
        let bad = [waited("timeout"), again("y"), again("x")];
        assert_eq!(judge("1-1", &run, bad).len(), 3);
    }
}
