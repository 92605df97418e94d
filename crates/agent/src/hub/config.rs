//! Agents and rules of the hub. A change applies to runs that start later: a run keeps the agent it started with.

use std::sync::{Arc, PoisonError, RwLock};

use super::HubRules;
use crate::profile::Agents;

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
