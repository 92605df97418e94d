//! What a hook did, for those who want to know why something happened.

use std::time::Duration;

use crate::Point;

/// What came of asking a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The hook.
    pub hook: String,
    /// Where.
    pub point: Point,
    /// What it decided.
    pub decision: Decision,
    /// How long it took.
    pub took: Duration,
}

/// What a hook decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It had nothing to say.
    Nothing,
    /// It changed something: the fields of its answer.
    Changed(Vec<String>),
    /// It forbade it, and why.
    Refused(String),
    /// It was to be a guard and could not answer, so it was forbidden.
    Guarded(String),
    /// It could not answer, and was passed over.
    Failed(String),
    /// It failed so often that it is not asked for a while.
    Parked,
}

impl Decision {
    /// In a word.
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
