//! Builds the schedule from the config: cron jobs in their file, and a heartbeat for each agent.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use homard_agent::Hub;
use homard_journal::CronFiles;
use homard_runtime::Ambient;
use homard_schedule::{
    Schedule, ScheduleSettings, ScheduleTasks,
    heartbeat::{HeartbeatConfig, HeartbeatFile},
    store::JobStore,
};
use homard_settings::{
    Config,
    paths::{self, Paths},
};
use homard_store::Error as StoreError;
use jiff::tz::TimeZone;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Maximum characters that are read of HEARTBEAT.md.
const MAX_HEARTBEAT_CHARS: usize = 20_000;

/// Starts cron jobs and heartbeats. For gateways only.
pub async fn start(
    hub: &Hub,
    config: &Config,
    paths: &Paths,
    stop: CancellationToken,
) -> Result<(Schedule, ScheduleTasks), crate::Error> {
    let expand = |text: &str| paths::expand(Path::new(text), paths::home().as_deref());
    let files = match &config.cron.store {
        Some(file) => CronFiles::at(expand(file.as_str())),
        None => CronFiles::new(&paths.state),
    };
    let store = Arc::new(FileCronStore { files, ambient: hub.ambient().clone() });
    // Looked up for each heartbeat: agents change with the config.
    let agents = hub.clone();
    let settings = ScheduleSettings {
        is_enabled: config.cron.enabled.unwrap_or(true) && paths::setting("SKIP_CRON").is_none(),
        zone: TimeZone::system(),
        heartbeats: heartbeats(hub, config, paths)?,
        file: HeartbeatFile::new(move |agent| {
            let profile = agents.agents().get(agent)?.clone();
            let prompt = &profile.prompt;
            let read = prompt.reader.file(prompt.workspace.as_ref()?, "HEARTBEAT.md", MAX_HEARTBEAT_CHARS);
            read.unwrap_or_else(|why| {
                tracing::warn!(%agent, "HEARTBEAT.md cannot be used: {why}");
                None
            })
        }),
    };
    Ok(Schedule::start(hub, store, settings, stop).await?)
}

/// Returns the heartbeats. If any agent has heartbeat settings of its own, only such agents have heartbeats.
fn heartbeats(hub: &Hub, config: &Config, paths: &Paths) -> Result<Vec<HeartbeatConfig>, crate::Error> {
    let (all, members) = (&config.agents.defaults.heartbeat, config.agents.members());
    let config_error = |why: String| crate::Error::Config(format!("config file {}: {why}", paths.config.display()));
    let configured: Vec<_> = members.into_iter().filter(|agent| agent.config.heartbeat.is_some()).collect();
    if configured.is_empty() {
        return Ok(vec![all.heartbeat(None, hub.agents().default_id().clone()).map_err(config_error)?]);
    }
    configured
        .into_iter()
        .map(|agent| all.heartbeat(agent.config.heartbeat.as_ref(), agent.id).map_err(config_error))
        .collect()
}

/// Stores the cron jobs of a state directory in files.
#[derive(Debug)]
struct FileCronStore {
    files: CronFiles,
    ambient: Ambient,
}

#[async_trait]
impl JobStore for FileCronStore {
    fn location(&self) -> String {
        self.files.path().display().to_string()
    }

    async fn load(&self) -> Result<Vec<Value>, StoreError> {
        self.files.load(self.ambient.now_ms()).await
    }

    async fn save(&self, jobs: Vec<Value>) -> Result<(), StoreError> {
        self.files.save(jobs).await
    }

    async fn append(&self, job: &str, line: Value) -> Result<(), StoreError> {
        self.files.append(job, line).await
    }

    async fn history(&self, job: &str) -> Result<Vec<Value>, StoreError> {
        self.files.runs(job).await
    }
}
