//! `homard gateway call`: calls any method.

use std::time::Duration;

use anyhow::Result;
use homard_client::{ConnectResult, Fingerprint, GatewayClient, GatewayTarget};
use homard_credentials::gateway_secret::GatewaySecret;
use homard_settings::{Config, paths::Paths};
use serde_json::{Value, json};

use crate::{cli_error::CliError, cmd::flags, render};

/// Timeout for the first response, and for the final one.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const FINAL_TIMEOUT: Duration = Duration::from_secs(630);

/// Arguments of `homard gateway call`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Method name, such as health or sessions.list
    method: String,
    /// Parameters, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    params: Option<Value>,
    /// Wait for the final response of a method that sends two responses
    #[arg(long)]
    expect_final: bool,
    /// Maximum time to wait, such as 30s; a bare number is milliseconds [default: 10s, with --expect-final 630s]
    #[arg(long, value_name = "DURATION", value_parser = response_timeout)]
    timeout: Option<Duration>,
    /// URL of a gateway other than the configured one; requires --token or --password
    #[arg(long, requires = "secret", value_parser = gateway_url)]
    url: Option<String>,
    /// Token of the gateway
    #[arg(long, group = "secret")]
    token: Option<String>,
    /// Password of the gateway
    #[arg(long, group = "secret")]
    password: Option<String>,
    /// SHA-256 fingerprint of the TLS certificate, as printed by the gateway at startup
    #[arg(long, value_name = "HEX", requires = "url", value_parser = fingerprint)]
    tls_fingerprint: Option<Fingerprint>,
    /// Print errors as JSON as well
    #[arg(long)]
    pub(super) json: bool,
}

fn response_timeout(text: &str) -> Result<Duration, String> {
    let timeout = flags::milliseconds(text)?;
    if timeout.is_zero() { Err("at least 1ms".to_owned()) } else { Ok(timeout) }
}

fn gateway_url(text: &str) -> Result<String, String> {
    homard_client::check_url(text).map(|()| text.to_owned()).map_err(|error| format!("{error:#}"))
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    Fingerprint::read(text).map_err(|error| error.to_string())
}

fn object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("not a JSON object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Calls the method and prints the payload of its response.
pub(super) async fn run(args: Args) -> Result<()> {
    let paths = Paths::find()?;
    let loaded = Config::choose_as_client(&paths)?.loaded;
    let mut target = GatewayTarget::find(args.url, GatewaySecret::either(args.token, args.password), &loaded, &paths)?;
    target.pin = args.tls_fingerprint.or(target.pin);
    let ConnectResult::Gateway(mut client) = GatewayClient::connect(&target, &["operator.admin"], &[]).await? else {
        let text = format!("no gateway answers at {}\nstart one with: homard gateway", target.url);
        return Err(CliError::new("connection", text).into());
    };
    let params = args.params.unwrap_or_else(|| json!({}));
    let time_limit = args.timeout.unwrap_or(if args.expect_final { FINAL_TIMEOUT } else { RESPONSE_TIMEOUT });
    let timed_out = |_| {
        let limit_text = render::duration(time_limit);
        let text = format!("no response to {} within {limit_text}\nwait longer with --timeout", args.method);
        CliError::new("connection", text)
    };
    let answer = async {
        if args.expect_final {
            client.call_final(&args.method, params).await
        } else {
            client.call(&args.method, params).await
        }
    };
    let payload = tokio::time::timeout(time_limit, answer).await.map_err(timed_out)??;
    Ok(render::print_json(&payload)?)
}
