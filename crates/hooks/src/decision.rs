//! Records of hook decisions, for logs and traces.

use std::time::Duration;

use crate::HookPoint;

/// Result of a hook call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookNote {
    /// Name of the hook.
    pub hook: String,
    /// The point.
    pub point: HookPoint,
    /// Its decision.
    pub decision: HookDecision,
    /// Duration of the call.
    pub duration: Duration,
}

/// Decision of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookDecision {
    /// It returned nothing.
    Nothing,
    /// It changed something: the fields that it set.
    Changed(Vec<String>),
    /// It blocked the operation, for this reason.
    Blocked(String),
    /// It is a guard and failed, so the operation was blocked.
    GuardFailed(String),
    /// It failed and was skipped.
    Failed(String),
    /// Its circuit breaker is open.
    CircuitOpen,
}

impl HookDecision {
    /// Returns the value of the metrics label for this decision.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Changed(_) => "changed",
            Self::Blocked(_) => "refused",
            Self::GuardFailed(_) => "guarded",
            Self::Failed(_) => "failed",
            Self::CircuitOpen => "parked",
        }
    }
}

impl std::fmt::Display for HookDecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("made no change"),
            Self::Changed(fields) => write!(f, "changed {}", fields.join(", ")),
            Self::Blocked(reason) => write!(f, "refused: {reason}"),
            Self::GuardFailed(reason) => write!(f, "failed as a guard ({reason}); the operation is blocked"),
            Self::Failed(reason) => write!(f, "failed ({reason}) and was skipped"),
            Self::CircuitOpen => f.write_str("failed too often and is suspended for a while"),
        }
    }
}
