//! Checks whether the gateway answers if it runs, and can start if it does not.

use std::{net::Ipv4Addr, time::Duration};

use homard_client::{ConnectResult, GatewayClient, GatewayTarget};
use homard_gateway::Outage;
use homard_render::outage_name;
use homard_settings::paths::{self, PORT};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};

use crate::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};

/// Timeout for a local port.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for the gateway's response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What answered at the gateway's address.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ProbeResult {
    /// The gateway, with its warning.
    Gateway {
        is_healthy: bool,
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
pub async fn check(context: &CheckContext) -> CheckReport {
    let Some(loaded) = &context.loaded else { return CheckReport::without_config() };
    let config = &loaded.config;
    let target = match GatewayTarget::find(None, None, loaded, &context.paths) {
        Ok(target) => target,
        Err(error) => {
            let remedy = "correct the setting or file that the message names; see: homard docs gateway";
            return CheckReport::new("", vec![DoctorFinding::problem(error.to_string(), remedy)]);
        }
    };
    let holder = context.holder.as_ref().map(ToString::to_string);
    let port = paths::port().ok().flatten().or(config.gateway.port).unwrap_or(PORT);
    let probe = if target.is_own && holder.is_none() {
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect((Ipv4Addr::LOCALHOST, port))).await;
        if matches!(connected, Ok(Ok(_))) { ProbeResult::OtherProgram } else { ProbeResult::NotRunning }
    } else {
        ask(&target).await
    };
    evaluate(&probe, &target, holder.as_deref(), port)
}

/// Reports what a gateway knows of itself.
pub(crate) fn check_running(outages: &[Outage], notice: Option<&str>) -> CheckReport {
    let summary = format!("running as process {}", std::process::id());
    report(summary, true, notice, &down(&json!({"degraded": outages})))
}

async fn ask(target: &GatewayTarget) -> ProbeResult {
    let mut client = match GatewayClient::connect(target, &["operator.read"], &[]).await {
        Ok(ConnectResult::Gateway(client)) => client,
        Ok(ConnectResult::NotRunning) => return ProbeResult::NotRunning,
        Err(error) => return ProbeResult::Error(error.to_string()),
    };
    match timeout(TIMEOUT, client.call("health", json!({}))).await {
        Err(_) => ProbeResult::Error(format!("the gateway at {} does not answer", target.url)),
        Ok(Err(error)) => ProbeResult::Error(error.to_string()),
        Ok(Ok(health)) => ProbeResult::Gateway {
            is_healthy: health.get("ok") != Some(&Value::Bool(false)),
            notice: health.get("notice").and_then(Value::as_str).map(str::to_owned),
            down: down(&health),
        },
    }
}

fn down(health: &Value) -> Vec<String> {
    let all = health["degraded"].as_array().into_iter().flatten();
    let verb =
        |outage: &Value| if matches!(outage["part"].as_str(), Some("plugin" | "hook")) { "fails" } else { "is down" };
    let line = |outage: &Value| {
        format!("{} {}: {}", outage_name(outage), verb(outage), outage["why"].as_str().unwrap_or_default())
    };
    all.map(line).collect()
}

fn evaluate(probe: &ProbeResult, target: &GatewayTarget, holder: Option<&str>, port: u16) -> CheckReport {
    let url = &target.url;
    match (probe, holder) {
        (ProbeResult::Gateway { is_healthy, notice, down }, _) => {
            report(format!("responding at {url}"), *is_healthy, notice.as_deref(), down)
        }
        (ProbeResult::NotRunning, None) if target.is_own => {
            CheckReport::new(format!("not running, and port {port} is free; start it with: homard gateway"), vec![])
        }
        (ProbeResult::NotRunning, None) => {
            let message = format!("no gateway answers at {url}");
            CheckReport::new("", vec![DoctorFinding::problem(message, "start it there, or correct gateway.remote.url")])
        }
        (ProbeResult::NotRunning, Some(holder)) => {
            let message = format!("{holder} holds the state directory, but nothing answers at {url}");
            let remedy = "wait if that process is running a turn; if it hangs: homard gateway run --takeover";
            CheckReport::new("not responding", vec![DoctorFinding::note(message, remedy)])
        }
        (ProbeResult::OtherProgram, _) => {
            let message = format!("port {port} is used by a program that is not the gateway of this state directory");
            let remedy = "stop that program, or choose another port: homard config set gateway.port NUMBER";
            CheckReport::new("", vec![DoctorFinding::problem(message, remedy)])
        }
        (ProbeResult::Error(why), _) => {
            let remedy = "see the log of the gateway: homard logs; if the gateway hangs: homard gateway run --takeover";
            CheckReport::new("", vec![DoctorFinding::problem(why.clone(), remedy)])
        }
    }
}

/// Reports the state of a gateway that answered.
fn report(summary: String, is_healthy: bool, notice: Option<&str>, down: &[String]) -> CheckReport {
    let notice_finding = |notice: &str| match is_healthy {
        true => DoctorFinding::note(format!("the gateway warns: {notice}"), "check whether this is intended"),
        false => DoctorFinding::problem(
            format!("the gateway is unhealthy: {notice}"),
            "resolve the cause that the message names; for details: homard health",
        ),
    };
    let unexplained =
        || DoctorFinding::problem("the gateway reports that it is unhealthy", "see why with: homard health");
    let unexplained = (!is_healthy && notice.is_none()).then(unexplained);
    let down = down.iter().map(|message| {
        DoctorFinding::problem(
            message.clone(),
            "resolve the cause that the message names; for details: homard channels status, homard models status, homard plugins doctor",
        )
    });
    CheckReport::new(summary, down.chain(notice.map(notice_finding)).chain(unexplained).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_gateway_is_a_problem_only_where_one_is_expected() {
        let target =
            |is_own| GatewayTarget { url: "ws://x".to_owned(), secret: None, pin: None, is_own, is_down: false };
        let needs_action = |probe, holder, is_own| evaluate(&probe, &target(is_own), holder, 1).needs_action();
        let gateway = |is_healthy, notice: Option<&str>| ProbeResult::Gateway {
            is_healthy,
            notice: notice.map(str::to_owned),
            down: Vec::new(),
        };
        assert!(!needs_action(gateway(true, None), Some("process 7"), true));
        assert!(!needs_action(gateway(true, Some("x")), Some("process 7"), true));
        assert!(needs_action(gateway(false, Some("x")), Some("process 7"), true));
        assert!(needs_action(gateway(false, None), Some("process 7"), true));
        assert!(!needs_action(ProbeResult::NotRunning, None, true));
        assert!(needs_action(ProbeResult::NotRunning, None, false));
        assert!(!needs_action(ProbeResult::NotRunning, Some("process 7"), true));
        assert!(needs_action(ProbeResult::OtherProgram, None, true));
        assert!(needs_action(ProbeResult::Error("x".to_owned()), Some("process 7"), true));
    }
}
