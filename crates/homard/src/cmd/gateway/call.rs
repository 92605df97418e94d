//! `homard gateway call`: calls any method.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    client::{Client, Fingerprint, Reached, Target},
    config::Config,
    failure::Failure,
    paths::Paths,
    render,
    secret::Secret,
};

/// Timeout for the first response, and for the final one.
const ANSWER: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(630);

/// The flags of `homard gateway call`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Method name, such as health or sessions.list
    method: String,
    /// Parameters, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    params: Option<Value>,
    /// Wait for the final response of a method that sends two
    #[arg(long)]
    expect_final: bool,
    /// Maximum time to wait [default: 10000, with --expect-final 630000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// URL of another gateway than the configured one; needs its token or password
    #[arg(long, requires = "secret")]
    url: Option<String>,
    /// Token of the gateway
    #[arg(long, group = "secret")]
    token: Option<String>,
    /// Password of the gateway
    #[arg(long, group = "secret")]
    password: Option<String>,
    /// SHA-256 fingerprint of the certificate of a wss:// gateway, as it prints it
    #[arg(long, value_name = "HEX", requires = "url", value_parser = fingerprint)]
    tls_fingerprint: Option<Fingerprint>,
    /// Print errors as JSON as well
    #[arg(long)]
    pub(super) json: bool,
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
    let mut target = Target::find(args.url, Secret::either(args.token, args.password), &loaded, &paths)?;
    target.pin = args.tls_fingerprint.or(target.pin);
    let Reached::Gateway(mut client) = Client::connect(&target, &["operator.admin"], &[]).await? else {
        let text = format!("no gateway answers at {}\nstart one with: homard gateway", target.url);
        return Err(Failure::new("connection", text).into());
    };
    let params = args.params.unwrap_or_else(|| json!({}));
    let patience = args.timeout.map_or(if args.expect_final { END } else { ANSWER }, Duration::from_millis);
    let slow = |_| {
        let text =
            format!("{} had no answer within {} ms\nwait longer with --timeout", args.method, patience.as_millis());
        Failure::new("connection", text)
    };
    let answer = async {
        if args.expect_final {
            client.call_to_the_end(&args.method, params).await
        } else {
            client.call(&args.method, params).await
        }
    };
    let payload = tokio::time::timeout(patience, answer).await.map_err(slow)??;
    Ok(render::print_json(&payload)?)
}
