//! The outages that a gateway reports.

use serde_json::Value;

/// Returns the outages that a gateway reports, each as `channel telegram:default: why`.
pub fn outages(report: &Value) -> Vec<String> {
    let all = report.get("degraded").and_then(Value::as_array).into_iter().flatten();
    all.map(|outage| format!("{}: {}", outage_name(outage), outage["why"].as_str().unwrap_or_default())).collect()
}

/// Returns the name of what is down.
pub fn outage_name(outage: &Value) -> String {
    let id = outage["id"].as_str().unwrap_or_default();
    match outage["part"].as_str().unwrap_or_default() {
        "model" => format!("model of agent {id}"),
        part => format!("{part} {id}"),
    }
}
