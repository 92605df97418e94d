//! A gateway that goes away in the middle: simulated by the test, because a real one does not.

use serde_json::json;
use tokio::net::TcpListener;
use tokio_tungstenite::accept_async;

use crate::{
    home::{CommandOutput, Home, run_command},
    socket::{Socket, next_frame, send_frame},
};

/// Runs a turn against a gateway simulated by `act`, and returns the output of the command.
async fn against<F: Future>(home: &Home, serve: impl FnOnce(TcpListener) -> F) -> CommandOutput {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut command = home.command(&["agent", "-m", "hi", "--reconnect", "0"]);
    command.env("HOMARD_GATEWAY_PORT", listener.local_addr().unwrap().port().to_string());
    let turn = tokio::task::spawn_blocking(move || run_command(command));
    serve(listener).await;
    turn.await.unwrap()
}

/// Accepts a client up to its `agent` request, and returns that.
async fn welcome(listener: &TcpListener) -> (Socket, serde_json::Value) {
    let mut socket = accept_async(listener.accept().await.unwrap().0).await.unwrap();
    send_frame(
        &mut socket,
        &json!({"type": "event", "event": "connect.challenge", "payload": {"nonce": "n", "ts": 1}}),
    )
    .await;
    let connect = next_frame(&mut socket).await.unwrap();
    let hello = json!({"type": "hello-ok", "protocol": 4});
    send_frame(&mut socket, &json!({"type": "res", "id": connect["id"], "ok": true, "payload": hello})).await;
    let agent = next_frame(&mut socket).await.unwrap();
    assert_eq!(agent["method"], "agent");
    (socket, agent)
}

// Case 40.
#[tokio::test]
async fn a_turn_that_may_run_in_the_gateway_is_not_run_locally() {
    for accepts in [true, false] {
        let home = Home::new();
        let mut run = String::new();
        let output = against(&home, async |listener| {
            let (mut socket, agent) = welcome(&listener).await;
            run = agent["params"]["idempotencyKey"].as_str().unwrap().to_owned();
            if accepts {
                let payload = json!({"runId": run, "status": "accepted", "sessionKey": "agent:main:main"});
                send_frame(&mut socket, &json!({"type": "res", "id": agent["id"], "ok": true, "payload": payload}))
                    .await;
            }
        })
        .await;
        assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
        let advice = match accepts {
            true => format!("run {run} was accepted and continues in the gateway; see: homard trace {run}\n"),
            false => format!("it is not known whether run {run} was accepted; see: homard trace {run}\n"),
        };
        assert!(output.stderr.starts_with("error: the connection to the gateway was lost: "), "{}", output.stderr);
        assert!(output.stderr.ends_with(&advice), "{}", output.stderr);
        assert!(!home.state().exists(), "no run may have begun here");
    }
}

#[tokio::test]
async fn another_program_on_the_port_does_not_cause_a_local_run() {
    let home = Home::new();
    let output = against(&home, async |listener| drop(listener.accept().await.unwrap())).await;
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
    assert!(output.stderr.contains("another program may be listening there"), "{}", output.stderr);
    assert!(!home.state().exists(), "no run may have begun here");
}

#[tokio::test]
async fn a_turn_aborted_by_another_client_fails() {
    let home = Home::new();
    let output = against(&home, async |listener| {
        let (mut socket, agent) = welcome(&listener).await;
        let payload = json!({"runId": "r", "status": "timeout", "summary": "aborted", "stopReason": "rpc"});
        send_frame(&mut socket, &json!({"type": "res", "id": agent["id"], "ok": true, "payload": payload})).await;
        // The client disconnects first.
        assert_eq!(next_frame(&mut socket).await, None);
    })
    .await;
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.ends_with(" did not finish: aborted\n"), "{}", output.stderr);
}
