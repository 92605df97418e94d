//! The databases of OpenClaw 2026.9, read into files as 2026.2 has them, which the rest of the import understands.
//!
//! The databases are copied first and the copies are opened: SQLite writes beside a database even if it only reads it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use homard_proto::AgentId;
use rusqlite::{Connection, OptionalExtension as _};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::{Error, pairing, source::listed};

/// Database with what all agents share.
const SHARED: &str = "state/openclaw.sqlite";

/// Database of an agent, below its directory.
const AGENT: &str = "agent/openclaw-agent.sqlite";

/// Newest formats of the databases that are known.
const SHARED_VERSION: i64 = 18;
const AGENT_VERSION: i64 = 23;

/// Version of the transcripts that are written.
const TRANSCRIPT_VERSION: u64 = 3;

/// Limit of a compressed entry, as in OpenClaw.
const MAX_ENTRY: usize = 4 * 1024 * 1024;

/// How often a database that changes while it is copied is copied again.
const ATTEMPTS: usize = 3;

/// The content of the databases as files, in a temporary directory.
#[derive(Debug)]
pub(crate) struct ExportedState {
    folder: TempDir,
    pub(crate) warnings: Vec<String>,
}

impl ExportedState {
    /// Reads the databases of a state directory. `None` if there are none. The directories of agents with a database are
    /// replaced by exported ones.
    pub(crate) fn of(root: &Path, agents: &mut [(AgentId, PathBuf)]) -> Result<Option<Self>, Error> {
        let shared = root.join(SHARED);
        if !shared.is_file() && !agents.iter().any(|(_, folder)| folder.join(AGENT).is_file()) {
            return Ok(None);
        }
        let folder = TempDir::new().map_err(|error| Error::Write { path: std::env::temp_dir(), error })?;
        let mut exported = Self { folder, warnings: Vec::new() };
        let mut shared_auth = None;
        if shared.is_file() {
            match exported.shared(&shared) {
                Ok(auth) => shared_auth = auth,
                Err(why) => exported.warn(&shared, &why),
            }
        }
        for (agent, source) in agents.iter_mut() {
            let database = source.join(AGENT);
            let target = exported.folder.path().join("agents").join(agent.as_str());
            let auth = shared_auth.as_ref().filter(|_| *agent == AgentId::main());
            let is_exported = database.is_file()
                && match exported.agent(&database, source, &target, auth) {
                    Ok(()) => true,
                    Err(why) => {
                        exported.warn(&database, &why);
                        false
                    }
                };
            if is_exported {
                *source = target;
            }
        }
        Ok(Some(exported))
    }

    /// Returns an exported file or folder, if it was in a database.
    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.path().join(name)).filter(|path| path.exists())
    }

    fn warn(&mut self, database: &Path, why: &str) {
        self.warnings.push(homard_stdx::text::strip_controls(&format!("{}: {why}", database.display())));
    }

    /// Exports jobs, approvals, approved senders, pairing requests and devices, and returns the credentials that all agents share.
    fn shared(&mut self, database: &Path) -> Result<Option<Value>, String> {
        let (_copy, db) = self.open(database, SHARED_VERSION)?;
        let jobs = self.jobs(database, &db).map_err(|error| error.to_string())?;
        if !jobs.is_empty() {
            self.write("cron/jobs.json", &json!({"version": 1, "jobs": jobs}).to_string())?;
        }
        let text = |sql: &str| {
            let row = db.query_row(sql, [], |row| row.get::<_, String>(0)).optional();
            row.map_err(|error| error.to_string())
        };
        if let Some(approvals) = text("SELECT raw_json FROM exec_approvals_config WHERE config_key = 'current'")? {
            self.write("exec-approvals.json", &approvals)?;
        }
        self.senders(&db)?;
        self.requests(&db)?;
        self.devices(&db)?;
        self.name_left_out(database, &db)?;
        let auth = text("SELECT value_json FROM config_machine_state WHERE state_key = 'authProfiles.store'")?;
        Ok(auth.and_then(|auth| serde_json::from_str(&auth).ok()))
    }

    /// Exports the approved senders, by channel.
    fn senders(&self, db: &Connection) -> Result<(), String> {
        let sql = "SELECT channel_key, account_id, entry FROM channel_pairing_allow_entries ORDER BY sort_order, entry";
        let rows = optional_rows(db, sql, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut channels: BTreeMap<String, Value> = BTreeMap::new();
        for (channel, account, entry) in rows {
            let (channel, account, entry): (String, String, String) = (channel, account, entry);
            let list =
                channels.entry(channel).or_insert_with(|| json!({"version": 1, "allowFrom": [], "accounts": {}}));
            let list = match account == "default" {
                true => &mut list["allowFrom"],
                false => &mut list["accounts"][account],
            };
            let mut entries = list.as_array().cloned().unwrap_or_default();
            entries.push(entry.into());
            *list = entries.into();
        }
        for (channel, list) in channels.into_iter().filter(|(channel, _)| is_name(channel)) {
            self.write(&format!("credentials/{channel}-allowFrom.json"), &list.to_string())?;
        }
        Ok(())
    }

    /// Exports the pairing requests, by channel.
    fn requests(&self, db: &Connection) -> Result<(), String> {
        let sql = "SELECT channel_key, json_object('id', request_id, 'accountId', account_id, 'code', code,
                'createdAt', created_at, 'lastSeenAt', last_seen_at, 'meta', json(coalesce(meta_json, '{}')))
            FROM channel_pairing_requests ORDER BY created_at, request_id";
        let rows = optional_rows(db, sql, |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        let mut channels: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (channel, request) in rows.into_iter().filter(|(channel, _)| is_name(channel)) {
            channels.entry(channel).or_default().extend(serde_json::from_str::<Value>(&request));
        }
        for (channel, requests) in channels {
            let text = json!({"version": 1, "requests": requests}).to_string();
            self.write(&format!("{}/{channel}-pairing.json", pairing::EXPORTED), &text)?;
        }
        Ok(())
    }

    /// Warns about what users have stored and cannot be imported.
    fn name_left_out(&mut self, database: &Path, db: &Connection) -> Result<(), String> {
        let named = |sql: &str| optional_rows(db, sql, |row| row.get::<_, String>(0));
        for (sql, what) in [
            (
                "SELECT name FROM secret_store_entries WHERE deleted_at_ms IS NULL ORDER BY name",
                "the values of the secret store are not imported; add a key with: homard models auth add PROVIDER, or put the \
                 value into a file and refer to it in the config with ${file:PATH}",
            ),
            (
                "SELECT store_key FROM mcp_oauth_stores ORDER BY store_key",
                "sign-ins at MCP servers are not imported; set a header with a token in mcp.servers",
            ),
            (
                "SELECT coalesce(display_name, device_id) FROM device_pairing_pending ORDER BY 1",
                "devices that wait to be paired are not imported; connect them again",
            ),
        ] {
            let names = named(sql)?;
            if !names.is_empty() {
                self.warn(database, &format!("{what} ({})", names.join(", ")));
            }
        }
        Ok(())
    }

    /// Exports the paired devices.
    fn devices(&self, db: &Connection) -> Result<(), String> {
        let sql =
            "SELECT device_id, json_object('publicKey', public_key, 'displayName', display_name, 'platform', platform,
                'clientId', client_id, 'clientMode', client_mode, 'role', role, 'roles', json(roles_json),
                'scopes', json(scopes_json), 'approvedScopes', json(approved_scopes_json), 'tokens', json(tokens_json),
                'createdAtMs', created_at_ms, 'approvedAtMs', approved_at_ms, 'lastSeenAtMs', last_seen_at_ms)
            FROM device_pairing_paired ORDER BY device_id";
        let rows = optional_rows(db, sql, |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        let devices: Map<String, Value> =
            rows.into_iter().filter_map(|(id, text)| Some((id, serde_json::from_str(&text).ok()?))).collect();
        match devices.is_empty() {
            true => Ok(()),
            false => self.write("devices/paired.json", &Value::Object(devices).to_string()),
        }
    }

    /// Returns the jobs of users, with their progress. OpenClaw has jobs of its own, which nothing here would answer.
    fn jobs(&mut self, database: &Path, db: &Connection) -> rusqlite::Result<Vec<Value>> {
        let sql = "SELECT job_json, state_json, declaration_key IS NOT NULL FROM cron_jobs ORDER BY sort_order, job_id";
        let mut statement = db.prepare(sql)?;
        let row =
            |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?));
        let rows = statement.query_map([], row)?.collect::<rusqlite::Result<Vec<_>>>()?;
        let own_count = rows.iter().filter(|(.., is_own)| *is_own).count();
        if own_count > 0 {
            let why = format!("jobs that OpenClaw runs for itself are not imported ({own_count})");
            self.warn(database, &why);
        }
        let job = |(job, state, _): (String, String, bool)| {
            let mut job: Value = serde_json::from_str(&job).ok()?;
            job["state"] = serde_json::from_str(&state).unwrap_or_else(|_| json!({}));
            Some(job)
        };
        Ok(rows.into_iter().filter(|(.., is_own)| !is_own).filter_map(job).collect())
    }

    /// Exports sessions, transcripts and credentials of an agent.
    fn agent(
        &mut self,
        database: &Path,
        source: &Path,
        target: &Path,
        shared_auth: Option<&Value>,
    ) -> Result<(), String> {
        let (_copy, db) = self.open(database, AGENT_VERSION)?;
        let sessions = target.join("sessions");
        create(&sessions)?;
        let records = records(&db).map_err(|error| error.to_string())?;
        write(&sessions.join("sessions.json"), &Value::Object(records).to_string())?;
        let (transcripts, broken_count) = transcripts(&db).map_err(|error| error.to_string())?;
        for (id, text) in transcripts {
            write(&sessions.join(format!("{id}.jsonl")), &text)?;
        }
        if broken_count > 0 {
            self.warn(database, &format!("entries that cannot be read are left out ({broken_count})"));
        }
        // Transcripts that were never moved into the database.
        let legacy = listed(&source.join("sessions")).unwrap_or_default();
        for (name, path) in legacy.into_iter().filter(|(name, path)| name.ends_with(".jsonl") && path.is_file()) {
            let to = sessions.join(name);
            if !to.exists() {
                fs::copy(&path, &to).map_err(|error| format!("cannot copy {}: {error}", path.display()))?;
            }
        }
        let own_auth =
            db.query_row("SELECT store_json FROM auth_profile_store LIMIT 1", [], |row| row.get::<_, String>(0));
        let own_auth = own_auth.optional().map_err(|error| error.to_string())?;
        let own_auth = own_auth.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let has_profiles = |auth: &&Value| auth["profiles"].as_object().is_some_and(|profiles| !profiles.is_empty());
        let file = target.join("agent/auth-profiles.json");
        create(&target.join("agent"))?;
        let legacy_file = source.join("agent/auth-profiles.json");
        match own_auth.as_ref().filter(has_profiles).or_else(|| shared_auth.filter(has_profiles)) {
            Some(auth) => write(&file, &auth.to_string()),
            None if legacy_file.is_file() => fs::copy(&legacy_file, &file)
                .map(drop)
                .map_err(|error| format!("cannot copy {}: {error}", legacy_file.display())),
            None => Ok(()),
        }
    }

    /// Opens a copy of a database. The copy is deleted with the returned directory.
    fn open(&mut self, database: &Path, newest: i64) -> Result<(TempDir, Connection), String> {
        let folder = TempDir::new_in(self.folder.path()).map_err(|error| error.to_string())?;
        let copy = folder.path().join("copy.sqlite");
        for _ in 0..ATTEMPTS {
            let before = stamps(database);
            for suffix in ["", "-wal"] {
                let (from, to) = (with_suffix(database, suffix), with_suffix(&copy, suffix));
                match fs::copy(&from, &to) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::NotFound && !suffix.is_empty() => {}
                    Err(error) => return Err(format!("cannot be copied ({error})")),
                }
            }
            if stamps(database) == before {
                let db = Connection::open(&copy).map_err(|error| error.to_string())?;
                let version: i64 = db
                    .pragma_query_value(None, "user_version", |row| row.get(0))
                    .map_err(|error| format!("cannot be read: {error}"))?;
                if version > newest {
                    self.warn(database, &format!("has the format {version}, which is newer than the known {newest}"));
                }
                return Ok((folder, db));
            }
            for suffix in ["", "-wal"] {
                fs::remove_file(with_suffix(&copy, suffix)).ok();
            }
        }
        Err("changes all the time; stop OpenClaw, and import again".to_owned())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.path().join(name);
        create(path.parent().unwrap_or(self.folder.path()))?;
        write(&path, text)
    }
}

/// Returns the sizes and times of a database and its log.
fn stamps(database: &Path) -> [Option<(u64, Option<std::time::SystemTime>)>; 2] {
    ["", "-wal"].map(|suffix| {
        let found = fs::metadata(with_suffix(database, suffix)).ok()?;
        Some((found.len(), found.modified().ok()))
    })
}

/// True if a channel's name can be part of a file name.
fn is_name(channel: &str) -> bool {
    channel.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn create(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let written = File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Returns the rows of a query; none if the database is too old to have the table.
fn optional_rows<T>(
    db: &Connection,
    sql: &str,
    row: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, String> {
    let mut statement = match db.prepare(sql) {
        Ok(statement) => statement,
        Err(error) if error.to_string().contains("no such table") => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let rows = statement.query_map([], row).and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>);
    rows.map_err(|error| error.to_string())
}

/// Returns the records of all sessions, by their keys.
fn records(db: &Connection) -> rusqlite::Result<Map<String, Value>> {
    let mut statement = db.prepare("SELECT session_key, entry_json FROM session_nodes ORDER BY session_key")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let mut records = Map::new();
    for row in rows {
        let (key, text) = row?;
        // An unreadable record is reported by its key when the sessions are planned.
        let mut record = serde_json::from_str(&text).unwrap_or(Value::Null);
        if let Some(fields) = record.as_object_mut() {
            // It names a place in the database.
            fields.remove("sessionFile");
        }
        records.insert(key, record);
    }
    Ok(records)
}

/// Returns the transcripts by session id, and the number of unreadable entries.
fn transcripts(db: &Connection) -> rusqlite::Result<(BTreeMap<String, String>, usize)> {
    let sql = "SELECT session_id, event_json, event_zstd FROM transcript_events ORDER BY session_id, seq";
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query([])?;
    let (mut transcripts, mut broken_count) = (BTreeMap::<String, String>::new(), 0);
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        let text = match (row.get::<_, Option<String>>(1)?, row.get::<_, Option<Vec<u8>>>(2)?) {
            (Some(text), _) => Some(text),
            (None, Some(bytes)) => {
                zstd::bulk::decompress(&bytes, MAX_ENTRY).ok().and_then(|bytes| String::from_utf8(bytes).ok())
            }
            (None, None) => None,
        };
        let is_plain = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        match text.as_deref().and_then(entry).filter(|_| is_plain) {
            Some(line) => {
                let transcript = transcripts.entry(id).or_default();
                transcript.push_str(&line);
                transcript.push('\n');
            }
            None => broken_count += 1,
        }
    }
    Ok((transcripts, broken_count))
}

/// Converts an entry of a transcript from version 4 to 3.
fn entry(text: &str) -> Option<String> {
    let mut entry: Map<String, Value> = serde_json::from_str(text).ok()?;
    match entry.get("type").and_then(Value::as_str) {
        Some("session") => drop(entry.insert("version".to_owned(), TRANSCRIPT_VERSION.into())),
        // Version 4 keeps the session's id at a reset: what was said before is no longer part of the conversation.
        Some("reset") => drop(entry.insert("parentId".to_owned(), Value::Null)),
        Some(_) | None => {}
    }
    serde_json::to_string(&entry).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a state directory from databases of the real program.
    fn state() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/2026.9.6");
        for (name, database) in [("state.sql", SHARED.to_owned()), ("agent.sql", format!("agents/main/{AGENT}"))] {
            let path = root.path().join(database);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let db = Connection::open(path).unwrap();
            // Parts of the schema that refer to omitted tables are never used.
            db.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
            db.execute_batch(&fs::read_to_string(golden.join(name)).unwrap()).unwrap();
        }
        root
    }

    fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        for (_, path) in listed(folder).unwrap() {
            if path.is_dir() {
                found.extend(files(&path))
            } else {
                found.push((path.clone(), fs::read(&path).unwrap()))
            }
        }
        found
    }

    fn exported(root: &Path) -> (ExportedState, PathBuf) {
        let mut agents = [(AgentId::main(), root.join("agents/main"))];
        let exported = ExportedState::of(root, &mut agents).unwrap().unwrap();
        let [(_, folder)] = agents;
        (exported, folder)
    }

    #[test]
    fn sessions_and_transcripts_of_the_real_program_become_files() {
        let root = state();
        let before = files(root.path());
        let (exported, folder) = exported(root.path());
        assert!(folder.starts_with(exported.folder.path()));
        let sessions = folder.join("sessions");
        let records: Value = serde_json::from_slice(&fs::read(sessions.join("sessions.json")).unwrap()).unwrap();
        let keys: Vec<_> = records.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["agent:main:main", "agent:main:notes"]);
        for record in records.as_object().unwrap().values() {
            let path = sessions.join(format!("{}.jsonl", record["sessionId"].as_str().unwrap()));
            let text = fs::read_to_string(path).unwrap();
            let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!((&lines[0]["type"], &lines[0]["version"]), (&json!("session"), &json!(3)));
            let roles: Vec<_> = lines.iter().filter_map(|line| line["message"]["role"].as_str()).collect();
            assert_eq!(roles[..2], ["user", "assistant"], "{text}");
        }
        // Long texts are compressed in the database.
        let notes = records["agent:main:notes"]["sessionId"].as_str().unwrap();
        let notes = fs::read_to_string(sessions.join(format!("{notes}.jsonl"))).unwrap();
        assert!(notes.contains("long text of the notes long text of the notes"), "{}", notes.len());
        let approvals = fs::read_to_string(exported.file("exec-approvals.json").unwrap()).unwrap();
        assert!(approvals.contains("/usr/bin/git"), "{approvals}");
        let jobs: Value = serde_json::from_slice(&fs::read(exported.file("cron/jobs.json").unwrap()).unwrap()).unwrap();
        let names: Vec<_> = jobs["jobs"].as_array().unwrap().iter().map(|job| &job["name"]).collect();
        assert_eq!(names, ["Daily look", "Every hour"]);
        let senders = fs::read_to_string(exported.file("credentials/telegram-allowFrom.json").unwrap()).unwrap();
        assert_eq!(senders, r#"{"version":1,"allowFrom":["4711"],"accounts":{}}"#);
        let requests: Value =
            serde_json::from_slice(&fs::read(exported.file("pairing/telegram-pairing.json").unwrap()).unwrap())
                .unwrap();
        let request = &requests["requests"][0];
        assert_eq!(
            (&request["id"], &request["code"], &request["meta"]["username"]),
            (&json!("4712"), &json!("LMNPQRST"), &json!("ann"))
        );
        let devices: Value =
            serde_json::from_slice(&fs::read(exported.file("devices/paired.json").unwrap()).unwrap()).unwrap();
        let device = devices.as_object().unwrap().values().next().unwrap();
        assert_eq!((&device["displayName"], &device["roles"]), (&json!("Desk"), &json!(["operator"])));
        assert!(device["tokens"]["operator"]["token"].is_string());
        assert_eq!(exported.warnings.len(), 1, "{:?}", exported.warnings);
        assert!(exported.warnings[0].ends_with("jobs that OpenClaw runs for itself are not imported (3)"));
        assert_eq!(files(root.path()), before, "the source is not changed");
    }

    #[test]
    fn jobs_keep_their_progress_and_a_damaged_database_affects_only_itself() {
        let root = state();
        let db = Connection::open(root.path().join(SHARED)).unwrap();
        let job = r#"{"id": "j1", "name": "Daily", "state": {}}"#;
        db.execute(
            "INSERT INTO cron_jobs (store_key, job_id, name, enabled, payload_kind, job_json, state_json, updated_at)
             VALUES ('s', 'j1', 'Daily', 1, 'agentTurn', ?1, '{\"nextRunAtMs\": 5}', 1)",
            [job],
        )
        .unwrap();
        drop(db);
        fs::write(root.path().join("agents/main").join(AGENT), "not a database").unwrap();
        let (exported, folder) = exported(root.path());
        let jobs: Value = serde_json::from_slice(&fs::read(exported.file("cron/jobs.json").unwrap()).unwrap()).unwrap();
        let added: Vec<_> = jobs["jobs"].as_array().unwrap().iter().filter(|job| job["id"] == "j1").collect();
        assert_eq!(added, [&json!({"id": "j1", "name": "Daily", "state": {"nextRunAtMs": 5}})]);
        assert_eq!(folder, root.path().join("agents/main"));
        assert!(exported.warnings.iter().any(|warning| warning.contains("openclaw-agent.sqlite: ")));
    }

    #[test]
    fn a_reset_ends_the_conversation_before_it() {
        let line = entry(r#"{"type": "reset", "id": "r", "parentId": "p", "reason": "new"}"#).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line, json!({"type": "reset", "id": "r", "parentId": null, "reason": "new"}));
        assert_eq!(entry("[]"), None);
    }
}
