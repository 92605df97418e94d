//! The observer of the hops of a request, for a log.

use std::{fmt, sync::Arc};

/// A hop of a request: a server that was contacted, or to which the request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The host; empty if the URL is not valid.
    pub host: String,
    /// The port, if the URL is valid.
    pub port: Option<u16>,
    /// Its outcome.
    pub outcome: HopOutcome,
}

/// Outcome of a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopOutcome {
    /// The server answered.
    Ok,
    /// The destination is not allowed.
    Denied,
    /// There is no answer.
    Failed,
}

impl HopOutcome {
    /// Returns the name for logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }
}

type Note = dyn Fn(&Hop) + Send + Sync;

/// A function that is called with each hop, before its response is used. The default one does nothing.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<Note>>);

impl Observer {
    /// Creates an observer.
    pub fn new(note: impl Fn(&Hop) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(note)))
    }

    pub(crate) fn note(&self, hop: &Hop) {
        if let Some(note) = &self.0 {
            note(hop);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.0.is_some()).finish()
    }
}
