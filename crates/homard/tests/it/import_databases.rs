//! The import of OpenClaw 2026.9, which keeps its state in databases.

use std::{fs, path::Path};

use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    devices::Device,
    home::Home,
    import::{Openclaw, SECRET, files, import},
    provider_api::{ApiStyle, KeyedServer},
};

/// The state of a real OpenClaw 2026.9.6; see `record.py` beside the SQL.
pub(crate) fn openclaw_of_2026_9(server: &str) -> TempDir {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../import/tests/golden/2026.9.6");
    let root = tempfile::tempdir().unwrap();
    for (name, database) in
        [("state.sql", "state/openclaw.sqlite"), ("agent.sql", "agents/main/agent/openclaw-agent.sqlite")]
    {
        let path = root.path().join(database);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let db = Connection::open(path).unwrap();
        // Tables to which others refer are left out.
        db.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        db.execute_batch(&fs::read_to_string(golden.join(name)).unwrap()).unwrap();
    }
    let provider = json!({"baseUrl": server, "api": "openai-completions", "apiKey": SECRET, "models": [{"id": "m"}]});
    let config = json!({
        "gateway": {"auth": {"mode": "token", "token": "throw-away-token"}, "trustedProxies": ["127.0.0.9"]},
        "agents": {"defaults": {"model": "fake/m"}}, "models": {"providers": {"fake": provider}},
        "channels": {"telegram": {"enabled": false, "botToken": "123456:fake-token", "dmPolicy": "pairing"}, "imessage": {}},
    });
    fs::write(root.path().join("openclaw.json"), config.to_string()).unwrap();
    root
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_2026_9_works_after_the_import() {
    let server = KeyedServer::start(ApiStyle::Chat);
    let (home, root) = (Home::new(), openclaw_of_2026_9(&server.base()));
    let from = Openclaw(root);
    let before = files(from.0.path());
    let preview = import(&home, &from, &["--dry-run"]);
    let report = import(&home, &from, &[]);
    let kinds = ["sessions", "transcripts", "cronJobs", "approvals", "senders", "devices"];
    let counts = |report: &Value, fate: &str| kinds.map(|kind| report[kind][fate].as_u64().unwrap());
    assert_eq!((counts(&report, "new"), counts(&preview, "new")), ([2, 2, 2, 1, 1, 1], [2, 2, 2, 1, 1, 1]), "{report}");
    assert_eq!(counts(&import(&home, &from, &[]), "same"), [2, 2, 2, 1, 1, 1]);
    assert_eq!(files(from.0.path()), before);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("channels.imessage: is not supported"), "{warnings}");
    assert!(warnings.contains("jobs that OpenClaw runs for itself are not imported (3)"), "{warnings}");

    // An existing conversation continues, and is answered.
    let output = home.run(&["agent", "-m", "And now?", "--session-key", "agent:main:notes"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "By chat\n"), "{}", output.stderr);
    let shown = home.run(&["sessions", "show", "agent:main:notes"]).stdout;
    assert!(shown.contains("long text of the notes") && shown.contains("And now?"), "{shown}");
    let gateway = home.gateway();
    let approved = gateway.run(&["pairing", "list", "telegram", "--json"]).stdout;
    assert!(approved.contains("4711") && !approved.contains("4712"), "{approved}");
    let jobs = gateway.run(&["cron", "list", "--all", "--json"]).stdout;
    assert!(jobs.contains("Daily look") && jobs.contains("Every hour"), "{jobs}");
    let rules = gateway.run(&["gateway", "call", "exec.approvals.get"]).stdout;
    assert!(rules.contains("/usr/bin/git"), "{rules}");
    // The device of the recording uses the token that OpenClaw issued.
    let device = Device::new(7);
    let golden =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../import/tests/golden/2026.9.6/state.sql"));
    let golden = golden.unwrap();
    let token = golden.split("{\"operator\":{\"token\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let (_, hello) = device.connect(gateway.port, token).await;
    assert_eq!(hello["payload"]["type"], "hello-ok", "{hello}");
    assert!(gateway.run(&["devices"]).stdout.contains("Desk"));
}

/// Tables that the recorded database leaves out, as the real program creates them.
const MORE_TABLES: &str = "
    CREATE TABLE secret_store_entries (
        scope_kind TEXT NOT NULL, scope_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, kind TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL, updated_at_ms INTEGER NOT NULL, updated_by TEXT, deleted_at_ms INTEGER,
        allowed_hosts TEXT, PRIMARY KEY (scope_kind, scope_id, name)) STRICT;
    CREATE TABLE mcp_oauth_stores (
        store_key TEXT NOT NULL PRIMARY KEY, format_version INTEGER NOT NULL, store_json TEXT NOT NULL,
        updated_at INTEGER NOT NULL) STRICT;
    CREATE TABLE device_pairing_pending (
        request_id TEXT NOT NULL PRIMARY KEY, device_id TEXT NOT NULL, public_key TEXT NOT NULL, display_name TEXT,
        platform TEXT, device_family TEXT, client_id TEXT, client_mode TEXT, browser_origin TEXT, role TEXT,
        roles_json TEXT, scopes_json TEXT, remote_ip TEXT, silent INTEGER, is_repair INTEGER, ts INTEGER NOT NULL,
        refreshed_at_ms INTEGER) STRICT;";

/// Something that users have and that cannot be imported.
const LEFT_OUT: &str = "
    INSERT INTO secret_store_entries VALUES ('team', '', 'TIDE_API_KEY', 'canary-of-the-store', 'secret', 1, 1, NULL, NULL, NULL);
    INSERT INTO secret_store_entries VALUES ('team', '', 'GONE', 'canary-deleted', 'secret', 1, 1, NULL, 2, NULL);
    INSERT INTO mcp_oauth_stores VALUES ('linear', 1, '{\"token\": \"canary-of-mcp\"}', 1);
    INSERT INTO device_pairing_pending (request_id, device_id, public_key, display_name, ts)
        VALUES ('r1', 'd1', 'key', 'Tablet', 1);
    INSERT INTO device_pairing_paired
        (device_id, public_key, display_name, role, roles_json, scopes_json, approved_scopes_json, tokens_json,
         created_at_ms, approved_at_ms)
        VALUES ('d2', 'key', 'Phone', 'node', '[\"node\"]', '[]', '[]', '{}', 1, 1);";

#[test]
fn waiting_senders_are_imported_and_what_is_left_out_is_named() {
    let server = KeyedServer::start(ApiStyle::Chat);
    let (home, root) = (Home::new(), openclaw_of_2026_9(&server.base()));
    let db = Connection::open(root.path().join("state/openclaw.sqlite")).unwrap();
    db.execute_batch(MORE_TABLES).unwrap();
    db.execute_batch(LEFT_OUT).unwrap();
    // The recorded request has expired.
    let recent = "UPDATE channel_pairing_requests SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
    assert_eq!(db.execute(recent, []).unwrap(), 1);
    drop(db);
    let from = Openclaw(root);
    let report = import(&home, &from, &[]);
    assert_eq!(report["pairingRequests"]["new"], 1, "{report}");
    let warnings = report["warnings"].to_string();
    for left_out in [
        "the values of the secret store are not imported",
        "(TIDE_API_KEY)",
        "sign-ins at MCP servers are not imported",
        "(linear)",
        "devices that wait to be paired are not imported; connect them again (Tablet)",
        "devices that are nodes are not imported (Phone)",
    ] {
        assert!(warnings.contains(left_out), "{left_out}: {warnings}");
    }
    assert!(!report.to_string().contains("canary") && !warnings.contains("GONE"), "{report}");
    let imported: Vec<_> = files(&home.state()).into_values().map(|(_, bytes)| bytes).collect();
    assert!(imported.iter().all(|bytes| !String::from_utf8_lossy(bytes).contains("canary")));
    assert_eq!(import(&home, &from, &[])["pairingRequests"]["same"], 1);
    let gateway = home.gateway();
    let pending = gateway.run(&["pairing", "list", "telegram", "--json"]).stdout;
    assert!(pending.contains("LMNPQRST") && pending.contains("4712"), "{pending}");
    let approved = gateway.run(&["pairing", "approve", "telegram", "LMNPQRST"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    drop(gateway);
    let again = import(&home, &from, &[]);
    assert_eq!(again["pairingRequests"]["same"], 1, "an approved sender does not wait again: {again}");
}
