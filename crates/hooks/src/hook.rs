//! The hook trait, registrations and errors.

use std::time::Duration;

use async_trait::async_trait;

use crate::{HookContext, HookEvent, HookPoint, HookResult};

/// A participant in the agent loop.
///
/// It is called at the points it registers for, each time with a deadline, possibly from different tasks.
#[async_trait]
pub trait Hook: Send + Sync {
    /// Returns its name for logs and traces.
    fn name(&self) -> &str;

    /// Returns the points it is called at.
    fn registrations(&self) -> Vec<Registration>;

    /// Handles an event. At points that only notify, the result is ignored.
    async fn call(&self, event: HookEvent, context: HookContext) -> Result<HookResult, HookError>;
}

/// Registration of a hook at a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The point.
    pub point: HookPoint,
    /// Hooks with a higher priority are called first.
    pub priority: i32,
    /// True for a guard: if it fails, the operation is blocked.
    pub is_guard: bool,
    /// Deadline; `None` for the default of the point.
    pub deadline: Option<Duration>,
}

impl Registration {
    /// Creates a registration with default settings.
    pub fn at(point: HookPoint) -> Self {
        Self { point, priority: 0, is_guard: false, deadline: None }
    }

    /// Sets the priority.
    pub fn priority(self, priority: i32) -> Self {
        Self { priority, ..self }
    }

    /// Makes it a guard.
    pub fn guard(self) -> Self {
        Self { is_guard: true, ..self }
    }
}

/// Why a hook returned no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// It reported an error.
    #[error("{0}")]
    Failed(String),
    /// It is unavailable: its process ended or cannot be reached.
    #[error("{0}")]
    Unavailable(String),
    /// It exceeded its deadline.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
}

impl HookError {
    /// True for errors that cost time and count towards the circuit breaker. An unavailable hook fails at once.
    pub(crate) fn trips_breaker(&self) -> bool {
        match self {
            Self::Failed(_) | Self::Unavailable(_) => false,
            Self::Timeout(_) => true,
        }
    }
}
