//! Presence: the gateway and the clients connected to it, published to clients with the read scope.
//!
//! Publishing every change individually would be quadratic: ten thousand clients that connect at once would cause a
//! hundred million frames. Therefore connections with identical descriptions share one row, and a further one changes
//! nothing; the list has at most [`MAX_ROWS`] rows; after a change there is a delay that grows with the number of
//! connections ([`pause`]), and then the list is published once; and clients whose hello already contained this version
//! are skipped.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_proto::method::connect::ConnectParams;
use homard_runtime::task;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use crate::{send_queue::StateVersion, server::ServerState};

/// Maximum number of clients listed; the newest are kept.
const MAX_ROWS: usize = 64;
/// Maximum length of a client's self-description fields in characters.
const MAX_FIELD_CHARS: usize = 100;
/// Minimum delay before a change is published.
const MIN_DELAY: Duration = Duration::from_secs(1);
/// Additional delay per connection: limits publication to about a thousand frames a second.
const DELAY_PER_CONNECTION: Duration = Duration::from_millis(1);

/// The list of connected clients that is published as presence.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    table: Mutex<PresenceTable>,
    /// Notified when a client joined or left.
    changed: Notify,
}

#[derive(Debug, Default)]
struct PresenceTable {
    /// Rows in order of arrival.
    rows: BTreeMap<u64, PresenceRow>,
    /// Position in `here` by description.
    by_description: HashMap<String, u64>,
    next_position: u64,
    /// Number of changes of the list.
    version: u64,
}

/// Connections with the same description.
#[derive(Debug)]
struct PresenceRow {
    row: Map<String, Value>,
    since: u64,
    connections: usize,
}

/// A connection's entry in the list; removed on drop.
#[derive(Debug)]
pub(crate) struct PresenceEntry {
    position: u64,
    presence: Arc<Presence>,
}

impl Drop for PresenceEntry {
    fn drop(&mut self) {
        self.presence.remove(self.position);
    }
}

impl Presence {
    /// Adds a connection. Short-lived clients (CLI commands and probes) are not listed.
    pub(crate) fn add(self: &Arc<Self>, params: &ConnectParams, address: IpAddr, now_ms: u64) -> Option<PresenceEntry> {
        if matches!(params.client.mode.as_str(), "cli" | "probe") {
            return None;
        }
        let row = row(params, address);
        let name = json!(row).to_string();
        let mut table = self.lock();
        if let Some(&position) = table.by_description.get(&name) {
            if let Some(row_entry) = table.rows.get_mut(&position) {
                row_entry.connections += 1;
            }
            return Some(PresenceEntry { position, presence: self.clone() });
        }
        table.next_position += 1;
        table.version += 1;
        let position = table.next_position;
        table.by_description.insert(name, position);
        table.rows.insert(position, PresenceRow { row, since: now_ms, connections: 1 });
        drop(table);
        self.changed.notify_one();
        Some(PresenceEntry { position, presence: self.clone() })
    }

    fn remove(&self, position: u64) {
        let mut table = self.lock();
        let Some(entry) = table.rows.get_mut(&position) else { return };
        entry.connections -= 1;
        if entry.connections > 0 {
            return;
        }
        let name = json!(entry.row).to_string();
        table.rows.remove(&position);
        table.by_description.remove(&name);
        table.version += 1;
        drop(table);
        self.changed.notify_one();
    }

    /// Returns the rows of the gateway and its clients, and the version of the list.
    pub(crate) fn list(&self, now_ms: u64) -> (Vec<Value>, StateVersion) {
        let table = self.lock();
        let newest = table.rows.values().rev().take(MAX_ROWS).map(|entry| {
            let mut row = entry.row.clone();
            row.insert("ts".to_owned(), now_ms.into());
            row.insert("onlineSince".to_owned(), entry.since.into());
            Value::Object(row)
        });
        let mut rows: Vec<Value> = newest.collect();
        rows.push(gateway(now_ms));
        rows.reverse();
        (rows, StateVersion { presence: table.version, health: 0 })
    }

    fn lock(&self) -> MutexGuard<'_, PresenceTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the gateway's own row.
pub(crate) fn gateway(now_ms: u64) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "host": "homard", "version": version, "platform": std::env::consts::OS, "mode": "gateway", "reason": "self",
        "text": format!("Gateway: homard {version}"), "ts": now_ms,
    })
}

/// Builds the row of a connection. The address is included unless it is a loopback address.
fn row(params: &ConnectParams, address: IpAddr) -> Map<String, Value> {
    let client = &params.client;
    let extra = |name: &str| client.extra.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let truncate = |text: &str| text.chars().take(MAX_FIELD_CHARS).collect::<String>();
    let host = truncate(extra("displayName").unwrap_or(&client.id));
    let text = format!("{host} {} · {}", truncate(&client.version), client.mode);
    let mut row = Map::new();
    let mut insert_text = |name: &str, text: Option<&str>| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            row.insert(name.to_owned(), truncate(text).into());
        }
    };
    insert_text("host", Some(&host));
    insert_text("ip", Some(address.to_string().as_str()).filter(|_| !address.is_loopback()));
    insert_text("version", Some(&client.version));
    insert_text("platform", Some(&client.platform));
    insert_text("deviceFamily", client.device_family.as_deref());
    insert_text("modelIdentifier", extra("modelIdentifier"));
    insert_text("mode", Some(&client.mode));
    insert_text("deviceId", params.device.as_ref().map(|device| device.id.as_str()));
    insert_text("instanceId", extra("instanceId"));
    insert_text("reason", Some("connect"));
    row.insert("text".to_owned(), text.into());
    row.insert("roles".to_owned(), json!(["operator"]));
    row
}

/// Delay before a change is published to this many connections.
fn publish_delay(connections: usize) -> Duration {
    MIN_DELAY + DELAY_PER_CONNECTION.saturating_mul(u32::try_from(connections).unwrap_or(u32::MAX))
}

/// Publishes presence changes until the handle is dropped.
pub(crate) fn publish(server: Arc<ServerState>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(task::spawn("presence", async move {
        loop {
            server.presence.changed.notified().await;
            tokio::time::sleep(publish_delay(server.connections.len())).await;
            if !server.connections.is_empty() {
                let (rows, version) = server.presence.list(server.hub.ambient().now_ms());
                server.projector.publish_presence(&json!({"presence": rows}), version);
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use homard_proto::Generation;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const AWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

    fn connect(client: &Value) -> ConnectParams {
        let mut params = json!({
            "minProtocol": 4, "maxProtocol": 4,
            "client": {"id": "openclaw-control-ui", "mode": "webchat", "version": "1", "platform": "web"},
        });
        for (name, value) in client.as_object().unwrap() {
            params["client"][name] = value.clone();
        }
        homard_proto::method::Params::decode(Generation::Four, Some(params)).unwrap()
    }

    fn hosts(presence: &Presence, now: u64) -> (Vec<String>, u64) {
        let (rows, version) = presence.list(now);
        (rows.iter().map(|row| row["host"].as_str().unwrap().to_owned()).collect(), version.presence)
    }

    #[test]
    fn equal_connections_share_a_row_until_the_last_one_closes() {
        let presence = Arc::new(Presence::default());
        let page = connect(&json!({"displayName": "desk"}));
        let (first, second) = (presence.add(&page, HERE, 1), presence.add(&page, HERE, 2));
        let remote = presence.add(&page, AWAY, 3);
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(hosts(&presence, 9), (owned(&["homard", "desk", "desk"]), 2));
        drop(first);
        assert_eq!(hosts(&presence, 9), (owned(&["homard", "desk", "desk"]), 2));
        drop(second);
        let (rows, version) = presence.list(9);
        assert_eq!(
            rows[1],
            json!({
                "host": "desk", "ip": "192.0.2.7", "version": "1", "platform": "web", "mode": "webchat",
                "reason": "connect", "text": "desk 1 · webchat", "roles": ["operator"], "ts": 9, "onlineSince": 3,
            })
        );
        assert_eq!((rows.len(), version.presence), (2, 3));
        drop(remote);
        assert_eq!(hosts(&presence, 9), (owned(&["homard"]), 4));
        let table = presence.lock();
        assert!(table.rows.is_empty() && table.by_description.is_empty());
    }

    #[test]
    fn cli_connections_are_not_listed() {
        let presence = Arc::new(Presence::default());
        for mode in ["cli", "probe"] {
            assert!(presence.add(&connect(&json!({"mode": mode})), HERE, 1).is_none());
        }
        assert_eq!(hosts(&presence, 9), (vec!["homard".to_owned()], 0));
    }

    #[test]
    fn the_presence_list_is_bounded_in_rows_and_bytes() {
        let presence = Arc::new(Presence::default());
        let name = |number: usize| format!("{number}{}", "é".repeat(50_000));
        let connects =
            (0..MAX_ROWS * 2).map(|number| connect(&json!({"displayName": name(number), "instanceId": name(number)})));
        let _all: Vec<_> = connects.map(|params| presence.add(&params, HERE, 1).unwrap()).collect();
        let (rows, version) = presence.list(9);
        assert_eq!((rows.len(), version.presence), (MAX_ROWS + 1, 2 * MAX_ROWS as u64));
        let hosts: Vec<_> = rows.iter().map(|row| row["host"].as_str().unwrap()).collect();
        assert!(
            hosts[0] == "homard" && hosts[1].starts_with("64é") && hosts[MAX_ROWS].starts_with("127é"),
            "{hosts:?}"
        );
        assert!(json!(rows).to_string().len() < MAX_ROWS * 1000);
    }

    #[test]
    fn many_clients_get_presence_updates_less_often() {
        let a_second = |connections: usize| connections as f64 / publish_delay(connections).as_secs_f64();
        assert_eq!((publish_delay(0), publish_delay(1000)), (Duration::from_secs(1), Duration::from_secs(2)));
        assert!([1, 100, 10_000, 1_000_000].into_iter().all(|connections| a_second(connections) <= 1000.0));
    }
}
