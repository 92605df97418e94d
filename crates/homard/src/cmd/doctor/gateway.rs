//! Checks whether the gateway answers if it runs, and can start if it does not.

use std::{net::Ipv4Addr, time::Duration};

use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

use super::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};
use crate::{
    client::GatewayTarget,
    cmd::{health::name, query::CommandContext},
    paths::{self, PORT},
};

/// Timeout for a local port.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What answered at the gateway's address.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ProbeResult {
    /// The gateway, with its warning.
    Gateway {
        is_well: bool,
        notice: Option<String>,
        /// Models, channels and configs that are down.
        down: Vec<String>,
    },
    /// Nothing.
    NotRunning,
    /// A program that is not the gateway of this directory.
    OtherProgram,
    /// Something that does not behave like a gateway.
    Error(String),
}

/// Connects to the gateway and evaluates the result.
pub(super) async fn check(scene: &CheckContext) -> CheckReport {
    let Some(loaded) = &scene.loaded else { return CheckReport::without_config() };
    let config = &loaded.config;
    let setup = match scene.setup(loaded) {
        Ok(setup) => setup,
        Err(error) => {
            let to_do = "correct it; see: homard docs gateway";
            return CheckReport::new("", vec![DoctorFinding::problem(format!("{error:#}"), to_do)]);
        }
    };
    let target = &setup.target;
    let holder = scene.holder.as_ref().map(ToString::to_string);
    let port = paths::port().ok().flatten().or(config.gateway.port).unwrap_or(PORT);
    let met = if target.is_own && holder.is_none() {
        let knock = timeout(TIMEOUT, TcpStream::connect((Ipv4Addr::LOCALHOST, port))).await;
        if matches!(knock, Ok(Ok(_))) { ProbeResult::OtherProgram } else { ProbeResult::NotRunning }
    } else {
        ask(&setup).await
    };
    evaluate(&met, target, holder.as_deref(), port)
}

async fn ask(setup: &CommandContext) -> ProbeResult {
    match setup.query("health").await {
        Ok(None) => ProbeResult::NotRunning,
        Ok(Some(health)) => ProbeResult::Gateway {
            is_well: health.get("ok") != Some(&Value::Bool(false)),
            notice: health.get("notice").and_then(Value::as_str).map(str::to_owned),
            down: down(&health),
        },
        Err(error) => ProbeResult::Error(format!("{error:#}")),
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

fn evaluate(met: &ProbeResult, target: &GatewayTarget, holder: Option<&str>, port: u16) -> CheckReport {
    let url = &target.url;
    match (met, holder) {
        (ProbeResult::Gateway { is_well, notice, down }, _) => {
            let told = |notice: &String| match is_well {
                true => DoctorFinding::note(format!("the gateway warns: {notice}"), "check whether this is intended"),
                false => DoctorFinding::problem(format!("the gateway is unhealthy: {notice}"), "follow the message"),
            };
            let silent =
                || DoctorFinding::problem("the gateway reports that it is unhealthy", "see why with: homard health");
            let silent = (!is_well && notice.is_none()).then(silent);
            let down = down.iter().map(|what| {
                DoctorFinding::problem(
                    what.clone(),
                    "follow the message; see: homard channels status, homard models status, homard plugins doctor",
                )
            });
            let told = notice.as_ref().map(told).into_iter();
            CheckReport::new(format!("responding at {url}"), down.chain(told).chain(silent).collect())
        }
        (ProbeResult::NotRunning, None) if target.is_own => {
            CheckReport::new(format!("not running, and port {port} is free; start it with: homard gateway"), vec![])
        }
        (ProbeResult::NotRunning, None) => {
            let what = format!("no gateway answers at {url}");
            CheckReport::new("", vec![DoctorFinding::problem(what, "start it there, or correct gateway.remote.url")])
        }
        (ProbeResult::NotRunning, Some(holder)) => {
            let what = format!("{holder} holds the state directory, but nothing answers at {url}");
            let to_do = "wait if that process is running a turn; if it hangs: homard gateway run --takeover";
            CheckReport::new("not responding", vec![DoctorFinding::note(what, to_do)])
        }
        (ProbeResult::OtherProgram, _) => {
            let what = format!("port {port} is used by a program that is not the gateway of this state directory");
            let to_do = "stop that program, or choose another port: homard config set gateway.port NUMBER";
            CheckReport::new("", vec![DoctorFinding::problem(what, to_do)])
        }
        (ProbeResult::Error(why), _) => {
            let to_do = "see its log; if it hangs: homard gateway run --takeover";
            CheckReport::new("", vec![DoctorFinding::problem(why.clone(), to_do)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_missed_only_where_one_should_be() {
        let target =
            |is_own| GatewayTarget { url: "ws://x".to_owned(), secret: None, pin: None, is_own, is_down: false };
        let needs = |met, holder, is_own| evaluate(&met, &target(is_own), holder, 1).needs_action();
        let gateway = |is_well, notice: Option<&str>| ProbeResult::Gateway {
            is_well,
            notice: notice.map(str::to_owned),
            down: Vec::new(),
        };
        assert!(!needs(gateway(true, None), Some("process 7"), true));
        assert!(!needs(gateway(true, Some("x")), Some("process 7"), true));
        assert!(needs(gateway(false, Some("x")), Some("process 7"), true));
        assert!(needs(gateway(false, None), Some("process 7"), true));
        assert!(!needs(ProbeResult::NotRunning, None, true));
        assert!(needs(ProbeResult::NotRunning, None, false));
        assert!(!needs(ProbeResult::NotRunning, Some("process 7"), true));
        assert!(needs(ProbeResult::OtherProgram, None, true));
        assert!(needs(ProbeResult::Error("x".to_owned()), Some("process 7"), true));
    }
}
