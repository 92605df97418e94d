//! Records of hook decisions, for logs and traces.

use std::time::Duration;

use crate::Point;

/// Result of a hook call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Name of the hook.
    pub hook: String,
    /// The point.
    pub point: Point,
    /// Its decision.
    pub decision: Decision,
    /// Duration of the call.
    pub took: Duration,
}

/// Decision of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It returned nothing.
    Nothing,
    /// It changed something: the fields that it set.
    Changed(Vec<String>),
    /// It blocked the operation, for this reason.
    Refused(String),
    /// It is a guard and failed, so the operation was blocked.
    Guarded(String),
    /// It failed and was skipped.
    Failed(String),
    /// Its circuit breaker is open.
    Parked,
}

impl Decision {
    /// Returns a one-word description.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Changed(_) => "changed",
            Self::Refused(_) => "refused",
            Self::Guarded(_) => "guarded",
            Self::Failed(_) => "failed",
            Self::Parked => "parked",
        }
    }
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("had nothing to say"),
            Self::Changed(fields) => write!(f, "changed {}", fields.join(", ")),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Guarded(why) => write!(f, "is a guard and could not answer ({why}); so it does not happen"),
            Self::Failed(why) => write!(f, "failed ({why}) and was passed over"),
            Self::Parked => f.write_str("failed too often and is not asked for a while"),
        }
    }
}
