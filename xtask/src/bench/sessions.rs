//! A list of ten thousand sessions: its response time, compared with a trivial request, interleaved.

use std::{path::Path, rc::Rc, time::Duration};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{
    client::BenchClient,
    recovery::{self, SESSIONS},
    report::BenchReport,
};
use crate::gateway::{self, GatewayHome, RunningGateway};

/// Number of requests of each kind.
const TIMES: usize = 200;
/// Size of a page of the list, as requested by clients.
const PAGE: usize = 100;

/// Measures a gateway of its own.
pub(super) async fn measure(binary: &Path, config: &Value, logs: &Path, report: &mut BenchReport) -> Result<()> {
    let home = GatewayHome::new(binary, config, &logs.join("sessions.log"))?;
    recovery::create_sessions(&home.state())?;
    let gateway = RunningGateway::start_at(Rc::new(home))?;
    let mut client = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    let requests = [
        ("all", "sessions.list", json!({}), SESSIONS),
        ("a page", "sessions.list", json!({"limit": PAGE}), PAGE),
        ("nothing", "system-presence", json!({}), 0),
    ];
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..TIMES {
        for ((_, method, params, rows), times) in requests.iter().zip(&mut times) {
            let (time, answer) = client.call(method, params.clone()).await?;
            let count = answer.matches(r#""sessionId":"#).count();
            ensure!(count == *rows, "{method} should have returned {rows} sessions, but returned {count}");
            times.push(time);
        }
    }
    let [all, page, empty] = times;
    report.sessions(&all, &page, &empty);
    Ok(())
}
