//! From the state directory to a desk where commands are allowed, and everybody who may allow them hears of it.

use std::sync::Arc;

use anyhow::{Context, Result};
use async_trait::async_trait;
use homard_agent::{
    Ambient,
    approval::{Desk, shelf::Shelf},
    task,
};
use homard_gateway::{Audience, News, Scope};
use homard_journal::ApprovalFiles;
use homard_proto::Generation;
use homard_store::Error as StoreError;
use serde_json::Value;
use tokio::{sync::broadcast::error::RecvError, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::paths::Paths;

/// Opens the desk of a state directory that this process owns.
pub(crate) async fn open(ambient: &Ambient, paths: &Paths) -> Result<Desk> {
    let shelf = Files { files: ApprovalFiles::new(&paths.state), ambient: ambient.clone() };
    Desk::open(Arc::new(shelf), ambient.clone()).await.context("what waits for approval cannot be read")
}

/// Ends what nobody answers, and tells clients what is asked and answered, until it is stopped.
pub(crate) fn start(desk: &Desk, news: News, stop: CancellationToken) -> [JoinHandle<()>; 2] {
    let listening = tell(desk.clone(), news, stop.clone());
    [task::spawn("approvals", desk.clone().run(stop)), task::spawn("approvals told", listening)]
}

/// Commands may hold secrets: only those who may allow them are told.
async fn tell(desk: Desk, news: News, stop: CancellationToken) {
    let audience = Audience { needs: Some(Scope::Admin), since: Generation::Three };
    let mut heard = desk.listen();
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = heard.recv() => event,
        };
        match event {
            Ok((name, payload)) => news.tell(name, &payload, audience),
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "clients were not told of some approvals"),
            Err(RecvError::Closed) => return,
        }
    }
}

/// The approvals of a state directory.
#[derive(Debug)]
struct Files {
    files: ApprovalFiles,
    ambient: Ambient,
}

#[async_trait]
impl Shelf for Files {
    fn place(&self) -> String {
        self.files.path().display().to_string()
    }

    async fn load(&self) -> Result<Vec<Value>, StoreError> {
        self.files.load(self.ambient.now_ms()).await
    }

    async fn save(&self, approvals: Vec<Value>) -> Result<(), StoreError> {
        self.files.save(approvals).await
    }

    async fn policy(&self) -> Result<Option<String>, StoreError> {
        self.files.policy().await
    }

    async fn set_policy(&self, text: String) -> Result<(), StoreError> {
        self.files.set_policy(text).await
    }
}
