//! The final verification: after one more restart every run is requested again, by its id and by its key, and every
//! response must equal the earlier one. Then every session receives one more message.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use homard_client::{ConnectResult, GatewayClient, RpcError, ServerFrame};
use serde_json::{Value, json};

use super::{
    sender::{final_answer, key, params},
    state::{ChaosState, ClientRun, ReceivedResult},
};

/// Number of concurrent clients.
const CLIENTS: usize = 4;
/// For one in this many runs, another request with the same key is sent, too; it must be a conflict.
const CONFLICT_EVERY: usize = 8;

/// Requests every run again.
pub(super) async fn repeat_requests(state: &Arc<ChaosState>, port: u16) -> Result<()> {
    let runs: Vec<_> = state.history().runs.iter().map(|(id, run)| (id.clone(), run.clone())).collect();
    let share = runs.len().div_ceil(CLIENTS).max(1);
    try_join_all(runs.chunks(share).map(|share| verify_runs(state, port, share))).await?;
    Ok(())
}

/// Sends one more message to every session: the recovered state must be usable.
pub(super) async fn continue_sessions(state: &Arc<ChaosState>, port: u16) -> Result<()> {
    let sessions: BTreeSet<_> = state.history().runs.values().map(|run| run.session.clone()).collect();
    let runs: Vec<_> = sessions.into_iter().enumerate().map(|(at, session)| (format!("more-{at}"), session)).collect();
    // Ordered behind all others.
    runs.iter().for_each(|(id, session)| state.record_sent(id, session, usize::MAX));
    let share = runs.len().div_ceil(CLIENTS).max(1);
    try_join_all(runs.chunks(share).map(|share| send_more(state, port, share))).await?;
    Ok(())
}

async fn send_more(state: &ChaosState, port: u16, runs: &[(String, String)]) -> Result<()> {
    let mut client = connect(state, port).await?;
    for (id, session) in runs {
        let request_id = client.send("agent", params(id, session)).await?;
        loop {
            match client.next().await? {
                ServerFrame::Response { id: to, answer: Ok(first) }
                    if to == request_id && first["status"] == "accepted" =>
                {
                    state.record_accepted(id);
                }
                ServerFrame::Response { id: to, answer } if to == request_id => {
                    state.record_result(id, final_answer(&answer));
                    break;
                }
                ServerFrame::Response { .. } | ServerFrame::Event { .. } => {}
            }
        }
    }
    Ok(())
}

async fn connect(state: &ChaosState, port: u16) -> Result<GatewayClient> {
    let target = state.target(port);
    match GatewayClient::connect(&target, &["operator.write", "operator.read"], &[]).await? {
        ConnectResult::Gateway(client) => Ok(*client),
        ConnectResult::NotRunning => anyhow::bail!("no gateway is listening at {}", target.url),
    }
}

async fn verify_runs(state: &ChaosState, port: u16, runs: &[(String, ClientRun)]) -> Result<()> {
    let mut client = connect(state, port).await?;
    for (number, (id, run)) in runs.iter().enumerate() {
        let wait_answer = call(&mut client, "agent.wait", json!({"runId": key(id), "timeoutMs": 0})).await?;
        let repeated_answer =
            if run.is_accepted { Some(call(&mut client, "agent", params(id, &run.session)).await?) } else { None };
        let other = json!({"message": "something else", "idempotencyKey": key(id), "sessionKey": run.session});
        let other = if number % CONFLICT_EVERY == 0 && run.is_accepted {
            Some(call(&mut client, "agent", other).await?)
        } else {
            None
        };
        let problems = check_responses(id, run, [Some(wait_answer), repeated_answer, other]);
        problems.into_iter().for_each(|problem| state.history().problem(problem));
    }
    Ok(())
}

async fn call(client: &mut GatewayClient, method: &str, params: Value) -> Result<Result<Value, RpcError>> {
    let request_id =
        client.send(method, params).await.context("the gateway closed the connection during verification")?;
    loop {
        if let ServerFrame::Response { id, answer } = client.next().await?
            && id == request_id
        {
            return Ok(answer);
        }
    }
}

/// Checks the responses: to `agent.wait`, to the same request, and to another request with the same key.
fn check_responses(
    id: &str,
    run: &ClientRun,
    [wait_answer, repeated_answer, other]: [Option<Result<Value, RpcError>>; 3],
) -> Vec<String> {
    let mut problems = Vec::new();
    let is_consistent = |payload: &Value| match &run.result {
        Some(ReceivedResult::Done(_)) => payload["status"] == "ok",
        Some(ReceivedResult::Failed(why)) => payload["status"] == "error" && payload["error"] == why.as_str(),
        None => true,
    };
    if let Some(wait_answer) = wait_answer
        && !wait_answer.as_ref().is_ok_and(is_consistent)
    {
        problems.push(format!("run {id} ended with {:?}, but agent.wait returned {wait_answer:?}", run.result));
    }
    if let (Some(repeated_answer), Some(result)) = (repeated_answer, &run.result)
        && final_answer(&repeated_answer) != *result
    {
        problems
            .push(format!("run {id} ended with {result:?}, but repeating the request returned {repeated_answer:?}"));
    }
    if let Some(other) = other
        && !other.as_ref().is_err_and(|error| error.message.starts_with("idempotency_conflict"))
    {
        problems.push(format!("a different request with the idempotency key of run {id} returned {other:?}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_inconsistent_answers_are_problems() {
        let run =
            ClientRun { result: Some(ReceivedResult::Done("x".to_owned())), is_accepted: true, ..ClientRun::default() };
        let wait_answer = |status: &str| Some(Ok(json!({"status": status})));
        let agent_answer = |text: &str| Some(Ok(json!({"status": "ok", "result": {"payloads": [{"text": text}]}})));
        let rejection =
            |message: &str| Some(Err(RpcError { code: "INVALID_REQUEST".to_owned(), message: message.to_owned() }));
        let good = [wait_answer("ok"), agent_answer("x"), rejection("idempotency_conflict: run id r")];
        assert_eq!(check_responses("1-1", &run, good), Vec::<String>::new());
        let bad = [wait_answer("timeout"), agent_answer("y"), agent_answer("x")];
        assert_eq!(check_responses("1-1", &run, bad).len(), 3);
    }
}
