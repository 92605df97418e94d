//! An agent with a gateway in a program of one's own, from library crates alone.
//!
//! The settings are those of `homard`: a config file and a state directory. What is printed, which signals end the
//! program and how its arguments are called is for the program: this one takes a directory and a token, and prints the
//! address. Without a model in the config, the built-in demo model answers. Run it with
//! `cargo run -p homard-example-gateway -- DIRECTORY TOKEN`, then, in the same environment,
//! `homard gateway call health --url ws://ADDRESS --token TOKEN`.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context, Result};
use homard_agent::hub::CrashLoops;
use homard_app::{
    App, Purpose,
    gateway::{self, GatewayOptions},
};
use homard_credentials::gateway_secret::GatewaySecret;
use homard_gateway::LogBuffer;
use homard_settings::{Config, paths::Paths};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().context("the first argument is a directory")?;
    let token = args.next().context("the second argument is a token")?;
    let stop = CancellationToken::new();
    let serving = serve(Path::new(&folder), &token, stop.clone(), show);
    tokio::pin!(serving);
    tokio::select! {
        result = &mut serving => return result,
        pressed = tokio::signal::ctrl_c() => pressed?,
    }
    stop.cancel();
    serving.await
}

#[allow(clippy::print_stdout, reason = "this program prints its address")]
fn show(address: SocketAddr) {
    println!("listening on ws://{address}");
}

/// Runs an agent and its gateway, with everything they store below `folder`, until stopped. `ready` is called with the
/// address as soon as clients can connect.
async fn serve(folder: &Path, token: &str, stop: CancellationToken, ready: impl FnOnce(SocketAddr)) -> Result<()> {
    // Fails only if a provider was already installed.
    rustls::crypto::ring::default_provider().install_default().ok();
    let paths = Paths { state: folder.join("state"), config: folder.join("homard.json") };
    let chosen = Config::choose(&paths)?;
    let (app, feed) = App::open(&chosen, &paths, Purpose::Gateway)?;
    let options = GatewayOptions {
        addresses: vec![([127, 0, 0, 1], 0).into()],
        tls: None,
        secret: GatewaySecret::Token(token.to_owned()),
        control_ui: None,
        crash_loops: CrashLoops::Hold,
        log: LogBuffer::default(),
        inherited: Vec::new(),
        handover: None,
    };
    let served = async {
        let gateway = gateway::start(&app, &chosen, &paths, options, stop).await?;
        ready(*gateway.local_addrs().first().context("the gateway has no address")?);
        anyhow::Ok(gateway.serve(&app, feed).await?)
    };
    let served = served.await;
    // Also after a failure, otherwise it would count as a crash.
    app.close().await?;
    served
}

#[cfg(test)]
mod tests {
    use homard_client::{ConnectResult, GatewayClient, GatewayTarget};
    use homard_runtime::task;
    use serde_json::json;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_client_connects_and_gets_an_answer() {
        let folder = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (sender, receiver) = oneshot::channel();
        let (state, stopped) = (folder.path().to_owned(), stop.clone());
        let serving = task::spawn("example", async move {
            serve(&state, "a token that nobody guesses", stopped, |address| sender.send(address).unwrap()).await
        });
        let url = format!("ws://{}", receiver.await.unwrap());
        let secret = Some(GatewaySecret::Token("a token that nobody guesses".to_owned()));
        let target = GatewayTarget { url, secret, pin: None, is_own: false, is_down: false };
        let scopes = ["operator.read", "operator.write"];
        let ConnectResult::Gateway(mut client) = GatewayClient::connect(&target, &scopes, &[]).await.unwrap() else {
            panic!("no gateway listens at {}", target.url);
        };
        let params = json!({"message": "hello", "idempotencyKey": "1"});
        let answer = client.call_final("agent", params).await.unwrap();
        assert_eq!(answer["status"], "ok", "{answer}");
        stop.cancel();
        serving.await.unwrap().unwrap();
    }
}
