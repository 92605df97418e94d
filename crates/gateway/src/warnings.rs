//! Warnings for operators, set by any component and reported by health.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Current warnings, one per topic. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct OperatorWarnings(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl OperatorWarnings {
    /// Sets or replaces the warning of a topic; `None` clears it.
    pub fn set(&self, topic: &'static str, text: Option<String>) {
        let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match text {
            Some(text) => warnings.insert(topic, text),
            None => warnings.remove(topic),
        };
    }

    /// Returns all warnings in one text, ordered by topic; `None` if there are none.
    pub fn text(&self) -> Option<String> {
        let warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let texts: Vec<_> = warnings.values().map(String::as_str).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}
