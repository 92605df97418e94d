//! What `homard gateway status` shows.

use anyhow::Result;
use homard_service::{
    manager::ServiceState,
    supervisor::{self, SupervisorRecord},
};
use homard_settings::{Config, paths::Paths};
use serde_json::{Value, json};

use super::Target;
use crate::{cli_error::CliError, cmd::logs, render};

/// Number of log lines.
const LOG_LINES: usize = 5;

/// Collects and prints everything. Fails if no gateway runs.
pub(super) async fn show(target: &Target, is_json: bool) -> Result<()> {
    let service = service(target)?;
    let (gateway, unreachable) = match target.process().await {
        Ok(gateway) => (gateway, None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    let log = newest_lines(&target.paths)?;
    let is_running = gateway.is_some();
    if is_json {
        let document = json!({
            "running": is_running, "service": service, "gateway": gateway, "error": unreachable, "log": log,
            "stateDir": target.paths.state,
        });
        render::print_json(&document)?;
    } else {
        let mut rows = service_rows(service.as_ref());
        rows.extend(gateway_rows(gateway.as_ref(), unreachable.as_deref()));
        rows.push(["state".to_owned(), target.paths.state.display().to_string()]);
        rows.extend(log.into_iter().map(|line| ["log".to_owned(), line]));
        render::print_table(&render::Table::fields(rows.into_iter().map(Vec::from).collect()))?;
    }
    if is_running {
        return Ok(());
    }
    Err(CliError { is_reported: true, ..CliError::new("service", "no gateway runs") }.into())
}

/// Returns the state of the installed service, else of the supervised gateway.
fn service(target: &Target) -> Result<Option<ServiceState>> {
    if let Some(manager) = &target.manager {
        let state = manager.state()?;
        if state.is_installed {
            return Ok(Some(state));
        }
    }
    let running = supervisor::running(&target.paths.state)?;
    let activity = if running.is_some() { "active" } else { "inactive" };
    let SupervisorRecord { gateway, restarts, last_exit, .. } =
        running.unwrap_or_else(|| SupervisorRecord { gateway: None, ..supervisor::last_record(&target.paths.state) });
    // Never supervised.
    if gateway.is_none() && last_exit.is_none() {
        return Ok(None);
    }
    Ok(Some(ServiceState {
        manager: "supervisor".to_owned(),
        is_installed: false,
        is_enabled: false,
        activity: activity.to_owned(),
        pid: gateway,
        restarts,
        last_exit,
    }))
}

fn service_rows(service: Option<&ServiceState>) -> Vec<[String; 2]> {
    let Some(service) = service else {
        let text = "not installed; install it with: homard gateway install";
        return vec![["service".to_owned(), text.to_owned()]];
    };
    let start = if service.is_enabled { "starts with the machine" } else { "does not start with the machine" };
    let mut rows = vec![["service".to_owned(), format!("{} ({}), {start}", service.activity, service.manager)]];
    if service.restarts > 0 {
        rows.push(["restarts".to_owned(), format!("{} after failures", service.restarts)]);
    }
    rows.extend(service.last_exit.clone().map(|exit| ["last exit".to_owned(), exit]));
    rows
}

fn gateway_rows(gateway: Option<&Value>, unreachable: Option<&str>) -> Vec<[String; 2]> {
    let row = |name: &str, text: String| [name.to_owned(), text];
    let Some(gateway) = gateway else {
        let text = unreachable.unwrap_or("does not run; start it with: homard gateway start");
        return vec![row("gateway", render::strip_controls(text))];
    };
    let text = |name: &str| render::strip_controls(gateway[name].as_str().unwrap_or("?"));
    let number = |path: &str| gateway.pointer(path).and_then(Value::as_u64).unwrap_or_default();
    let addresses = gateway["listeners"].as_array().into_iter().flatten().filter_map(Value::as_str);
    vec![
        row("gateway", format!("process {}, version {}", number("/pid"), text("version"))),
        row("uptime", render::duration_ms(number("/uptimeMs"))),
        row("listening", render::strip_controls(&addresses.collect::<Vec<_>>().join(", "))),
        row("runs", format!("{} active, {} waiting", number("/runs/active"), number("/runs/waiting"))),
    ]
}

/// Returns the newest lines of the gateway's log file.
fn newest_lines(paths: &Paths) -> Result<Vec<String>> {
    let logging = Config::choose_as_client(paths).map(|chosen| chosen.loaded.config.logging).unwrap_or_default();
    logs::newest(&homard_logging::log_file(&logging, paths), LOG_LINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_service_is_described_by_its_manager_and_by_itself() {
        let service = ServiceState {
            manager: "systemd".to_owned(),
            is_installed: true,
            is_enabled: true,
            activity: "active".to_owned(),
            pid: Some(7),
            restarts: 2,
            last_exit: Some("signal 9".to_owned()),
        };
        let gateway = json!({
            "pid": 7, "version": "1.2.3", "uptimeMs": 61_000, "listeners": ["127.0.0.1:1", "[::1]:1"],
            "runs": {"active": 1, "waiting": 2},
        });
        let rows = [service_rows(Some(&service)), gateway_rows(Some(&gateway), None)].concat();
        let lines: Vec<_> = rows.iter().map(|[name, text]| format!("{name}: {text}")).collect();
        assert_eq!(
            lines,
            [
                "service: active (systemd), starts with the machine",
                "restarts: 2 after failures",
                "last exit: signal 9",
                "gateway: process 7, version 1.2.3",
                "uptime: 1m 1s",
                "listening: 127.0.0.1:1, [::1]:1",
                "runs: 1 active, 2 waiting",
            ]
        );
    }
}
