//! Agents and rules of the hub. A change applies to runs that start later: a run keeps the agent it started with.

use std::sync::{Arc, PoisonError, RwLock};

use homard_store::{Fence, Store};

use super::HubRules;
use crate::profile::Agents;

/// A store with the fence that permits this process to write to it.
#[derive(Clone)]
pub struct FencedStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) fence: Fence,
}

impl FencedStore {
    /// Combines a store with the fence that it issued.
    pub fn new(store: Arc<dyn Store>, fence: Fence) -> Self {
        Self { store, fence }
    }
}

impl std::fmt::Debug for FencedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FencedStore").field("fence", &self.fence).finish_non_exhaustive()
    }
}

/// The current agents and rules.
#[derive(Debug)]
pub(crate) struct HubConfig(RwLock<(Agents, Arc<HubRules>)>);

impl HubConfig {
    pub(super) fn new(agents: Agents, rules: HubRules) -> Self {
        Self(RwLock::new((agents, Arc::new(rules))))
    }

    pub(super) fn change(&self, agents: Agents, rules: HubRules) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (agents, Arc::new(rules));
    }

    pub(crate) fn agents(&self) -> Agents {
        self.0.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    pub(crate) fn rules(&self) -> Arc<HubRules> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}
