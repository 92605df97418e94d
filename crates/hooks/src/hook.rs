//! Somebody who takes part in the loop.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Answer, Context, Event, Point};

/// Somebody who takes part in the loop.
///
/// It is called at the points that it names, with a deadline. It must not count on being called from one task.
#[async_trait]
pub trait Hook: Send + Sync {
    /// What it is called in logs and traces.
    fn name(&self) -> &str;

    /// Where it takes part, and how.
    fn registrations(&self) -> Vec<Registration>;

    /// Answers at a point. What is told where nobody is asked has no answer.
    async fn call(&self, event: Event, context: Context) -> Result<Answer, HookError>;
}

/// Where a hook takes part, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Where.
    pub point: Point,
    /// Those with more are asked first.
    pub priority: i32,
    /// Whether nothing may happen here if the hook cannot answer.
    pub is_guard: bool,
    /// How long it may take; `None` for the house's own.
    pub deadline: Option<Duration>,
}

impl Registration {
    /// An ordinary one.
    pub fn at(point: Point) -> Self {
        Self { point, priority: 0, is_guard: false, deadline: None }
    }

    /// With another priority.
    pub fn priority(self, priority: i32) -> Self {
        Self { priority, ..self }
    }

    /// One without whose word nothing may happen.
    pub fn guard(self) -> Self {
        Self { is_guard: true, ..self }
    }
}

/// Why a hook did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// It said so.
    #[error("{0}")]
    Failed(String),
    /// It is not there: its process ended, or cannot be reached.
    #[error("{0}")]
    Gone(String),
    /// It took too long.
    #[error("no answer within {} ms", .0.as_millis())]
    Late(Duration),
}

impl HookError {
    /// Whether it costs time to ask again, so that it is better not done for a while. One that is gone says so at once.
    pub(crate) fn is_ailing(&self) -> bool {
        match self {
            Self::Failed(_) | Self::Gone(_) => false,
            Self::Late(_) => true,
        }
    }
}
