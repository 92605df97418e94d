//! Agents and rules of the hub. A change applies to runs that start later: a run keeps the agent it started with.

use std::sync::{Arc, PoisonError, RwLock};

use super::Rules;
use crate::profile::Agents;

/// The current agents and rules.
#[derive(Debug)]
pub(crate) struct Setup(RwLock<(Agents, Arc<Rules>)>);

impl Setup {
    pub(super) fn new(agents: Agents, rules: Rules) -> Self {
        Self(RwLock::new((agents, Arc::new(rules))))
    }

    pub(super) fn change(&self, agents: Agents, rules: Rules) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (agents, Arc::new(rules));
    }

    pub(crate) fn agents(&self) -> Agents {
        self.0.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}
