//! The final verification: after one more restart every run is requested again, by its id and by its key, and every
//! response must equal the earlier one. Then every session receives one more message.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::{
    sender::{final_answer, key, params},
    state::{ChaosState, ClientRun, ReceivedResult},
};
use crate::client::{ConnectResult, GatewayClient, RpcError, ServerFrame};

/// Number of concurrent clients.
const CLIENTS: usize = 4;
/// For one in this many runs, another request with the same key is sent, too; it must be a conflict.
const CONFLICT_EVERY: usize = 8;

/// Requests every run again.
pub(super) async fn ask_again(stage: &Arc<ChaosState>, port: u16) -> Result<()> {
    let runs: Vec<_> = stage.history().runs.iter().map(|(id, run)| (id.clone(), run.clone())).collect();
    let share = runs.len().div_ceil(CLIENTS).max(1);
    try_join_all(runs.chunks(share).map(|share| ask(stage, port, share))).await?;
    Ok(())
}

/// Sends one more message to every session: the recovered state must be usable.
pub(super) async fn continue_sessions(stage: &Arc<ChaosState>, port: u16) -> Result<()> {
    let sessions: BTreeSet<_> = stage.history().runs.values().map(|run| run.session.clone()).collect();
    let runs: Vec<_> = sessions.into_iter().enumerate().map(|(at, session)| (format!("more-{at}"), session)).collect();
    // Ordered behind all others.
    runs.iter().for_each(|(id, session)| stage.record_sent(id, session, usize::MAX));
    let share = runs.len().div_ceil(CLIENTS).max(1);
    try_join_all(runs.chunks(share).map(|share| send_more(stage, port, share))).await?;
    Ok(())
}

async fn send_more(stage: &ChaosState, port: u16, share: &[(String, String)]) -> Result<()> {
    let mut client = connect(stage, port).await?;
    for (id, session) in share {
        let asked = client.send("agent", params(id, session)).await?;
        loop {
            match client.next().await? {
                ServerFrame::Response { id: to, answer: Ok(first) } if to == asked && first["status"] == "accepted" => {
                    stage.record_accepted(id);
                }
                ServerFrame::Response { id: to, answer } if to == asked => {
                    stage.record_result(id, final_answer(&answer));
                    break;
                }
                ServerFrame::Response { .. } | ServerFrame::Event { .. } => {}
            }
        }
    }
    Ok(())
}

async fn connect(stage: &ChaosState, port: u16) -> Result<GatewayClient> {
    let target = stage.target(port);
    match GatewayClient::connect(&target, &["operator.write", "operator.read"], &[]).await? {
        ConnectResult::Gateway(client) => Ok(*client),
        ConnectResult::NotRunning => anyhow::bail!("no gateway is listening at {}", target.url),
    }
}

async fn ask(stage: &ChaosState, port: u16, share: &[(String, ClientRun)]) -> Result<()> {
    let mut client = connect(stage, port).await?;
    for (number, (id, run)) in share.iter().enumerate() {
        let waited = call(&mut client, "agent.wait", json!({"runId": key(id), "timeoutMs": 0})).await?;
        let again =
            if run.is_accepted { Some(call(&mut client, "agent", params(id, &run.session)).await?) } else { None };
        let other = json!({"message": "something else", "idempotencyKey": key(id), "sessionKey": run.session});
        let other = if number % CONFLICT_EVERY == 0 && run.is_accepted {
            Some(call(&mut client, "agent", other).await?)
        } else {
            None
        };
        let problems = check_responses(id, run, [Some(waited), again, other]);
        problems.into_iter().for_each(|problem| stage.history().problem(problem));
    }
    Ok(())
}

async fn call(client: &mut GatewayClient, method: &str, params: Value) -> Result<Result<Value, RpcError>> {
    let asked = client.send(method, params).await.context("the gateway closed the connection during verification")?;
    loop {
        if let ServerFrame::Response { id, answer } = client.next().await?
            && id == asked
        {
            return Ok(answer);
        }
    }
}

/// Checks the responses: to `agent.wait`, to the same request, and to another request with the same key.
fn check_responses(
    id: &str,
    run: &ClientRun,
    [waited, again, other]: [Option<Result<Value, RpcError>>; 3],
) -> Vec<String> {
    let mut problems = Vec::new();
    let agrees = |payload: &Value| match &run.result {
        Some(ReceivedResult::Done(_)) => payload["status"] == "ok",
        Some(ReceivedResult::Failed(why)) => payload["status"] == "error" && payload["error"] == why.as_str(),
        None => true,
    };
    if let Some(waited) = waited
        && !waited.as_ref().is_ok_and(agrees)
    {
        problems.push(format!("run {id} ended with {:?}, but agent.wait returned {waited:?}", run.result));
    }
    if let (Some(again), Some(told)) = (again, &run.result)
        && final_answer(&again) != *told
    {
        problems.push(format!("run {id} ended with {told:?}, but repeating the request returned {again:?}"));
    }
    if let Some(other) = other
        && !other.as_ref().is_err_and(|refusal| refusal.message.starts_with("idempotency_conflict"))
    {
        problems.push(format!("a different request with the idempotency key of run {id} returned {other:?}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_agree_are_no_problem_and_others_are() {
        let run =
            ClientRun { result: Some(ReceivedResult::Done("x".to_owned())), is_accepted: true, ..ClientRun::default() };
        let waited = |status: &str| Some(Ok(json!({"status": status})));
        let again = |text: &str| Some(Ok(json!({"status": "ok", "result": {"payloads": [{"text": text}]}})));
        let refused =
            |message: &str| Some(Err(RpcError { code: "INVALID_REQUEST".to_owned(), message: message.to_owned() }));
        let good = [waited("ok"), again("x"), refused("idempotency_conflict: run id r")];
        assert_eq!(check_responses("1-1", &run, good), Vec::<String>::new());
        let bad = [waited("timeout"), again("y"), again("x")];
        assert_eq!(check_responses("1-1", &run, bad).len(), 3);
    }
}
