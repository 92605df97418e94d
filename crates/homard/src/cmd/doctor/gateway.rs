//! Checks whether the gateway answers if it runs, and can start if it does not.

use std::{net::Ipv4Addr, time::Duration};

use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

use super::{
    Scene,
    finding::{Finding, Report},
};
use crate::{
    client::Target,
    cmd::{ask::Setup, health::name},
    paths::{self, PORT},
};

/// Timeout for a local port.
const PATIENCE: Duration = Duration::from_secs(2);

/// What answered at the gateway's address.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Met {
    /// The gateway, with its warning.
    Gateway {
        is_well: bool,
        notice: Option<String>,
        /// Models, channels and configs that are down.
        down: Vec<String>,
    },
    /// Nothing.
    Nobody,
    /// A program that is not the gateway of this directory.
    Stranger,
    /// Something that does not behave like a gateway.
    Trouble(String),
}

/// Connects to the gateway and evaluates the result.
pub(super) async fn look(scene: &Scene) -> Report {
    let Some(loaded) = &scene.loaded else { return Report::without_config() };
    let config = &loaded.config;
    let setup = match scene.setup(loaded) {
        Ok(setup) => setup,
        Err(error) => {
            let to_do = "correct it; see docs/gateway.md";
            return Report::new("", vec![Finding::wrong(format!("{error:#}"), to_do)]);
        }
    };
    let target = &setup.target;
    let holder = scene.holder.as_ref().map(ToString::to_string);
    let port = paths::port().ok().flatten().or(config.gateway.port).unwrap_or(PORT);
    let met = if target.is_own && holder.is_none() {
        let knock = timeout(PATIENCE, TcpStream::connect((Ipv4Addr::LOCALHOST, port))).await;
        if matches!(knock, Ok(Ok(_))) { Met::Stranger } else { Met::Nobody }
    } else {
        ask(&setup).await
    };
    judge(&met, target, holder.as_deref(), port)
}

async fn ask(setup: &Setup) -> Met {
    match setup.ask("health").await {
        Ok(None) => Met::Nobody,
        Ok(Some(health)) => Met::Gateway {
            is_well: health.get("ok") != Some(&Value::Bool(false)),
            notice: health.get("notice").and_then(Value::as_str).map(str::to_owned),
            down: down(&health),
        },
        Err(error) => Met::Trouble(format!("{error:#}")),
    }
}

fn down(health: &Value) -> Vec<String> {
    let all = health["degraded"].as_array().into_iter().flatten();
    let word =
        |outage: &Value| if matches!(outage["part"].as_str(), Some("plugin" | "hook")) { "fails" } else { "is down" };
    let told =
        |outage: &Value| format!("{} {}: {}", name(outage), word(outage), outage["why"].as_str().unwrap_or_default());
    all.map(told).collect()
}

fn judge(met: &Met, target: &Target, holder: Option<&str>, port: u16) -> Report {
    let url = &target.url;
    match (met, holder) {
        (Met::Gateway { is_well, notice, down }, _) => {
            let told = |notice: &String| match is_well {
                true => Finding::note(format!("it says: {notice}"), "see whether that is meant"),
                false => Finding::wrong(format!("it is not well: {notice}"), "do what it says"),
            };
            let silent = || Finding::wrong("it says that it is not well", "see why with: homard health");
            let silent = (!is_well && notice.is_none()).then(silent);
            let down = down.iter().map(|what| {
                Finding::wrong(
                    what.clone(),
                    "do what it says; see: homard channels status, homard models status, homard plugins doctor",
                )
            });
            let told = notice.as_ref().map(told).into_iter();
            Report::new(format!("it answers at {url}"), down.chain(told).chain(silent).collect())
        }
        (Met::Nobody, None) if target.is_own => {
            Report::new(format!("it does not run, and port {port} is free; start it with: homard gateway"), vec![])
        }
        (Met::Nobody, None) => {
            let what = format!("no gateway answers at {url}");
            Report::new("", vec![Finding::wrong(what, "start it there, or correct gateway.remote.url")])
        }
        (Met::Nobody, Some(holder)) => {
            let what = format!("{holder} has the state directory, and nobody answers at {url}");
            let to_do = "wait, if that is a turn at work; if it hangs: homard gateway run --takeover";
            Report::new("it does not answer", vec![Finding::note(what, to_do)])
        }
        (Met::Stranger, _) => {
            let what = format!("port {port} is taken by a program that is not the gateway of this state directory");
            let to_do = "stop that program, or choose another port: homard config set gateway.port NUMBER";
            Report::new("", vec![Finding::wrong(what, to_do)])
        }
        (Met::Trouble(why), _) => {
            let to_do = "see its log; if it hangs: homard gateway run --takeover";
            Report::new("", vec![Finding::wrong(why.clone(), to_do)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_missed_only_where_one_should_be() {
        let target = |is_own| Target { url: "ws://x".to_owned(), secret: None, pin: None, is_own, is_down: false };
        let needs = |met, holder, is_own| judge(&met, &target(is_own), holder, 1).needs_a_hand();
        let gateway = |is_well, notice: Option<&str>| Met::Gateway {
            is_well,
            notice: notice.map(str::to_owned),
            down: Vec::new(),
        };
        assert!(!needs(gateway(true, None), Some("process 7"), true));
        assert!(!needs(gateway(true, Some("x")), Some("process 7"), true));
        assert!(needs(gateway(false, Some("x")), Some("process 7"), true));
        assert!(needs(gateway(false, None), Some("process 7"), true));
        assert!(!needs(Met::Nobody, None, true));
        assert!(needs(Met::Nobody, None, false));
        assert!(!needs(Met::Nobody, Some("process 7"), true));
        assert!(needs(Met::Stranger, None, true));
        assert!(needs(Met::Trouble("x".to_owned()), Some("process 7"), true));
    }
}
