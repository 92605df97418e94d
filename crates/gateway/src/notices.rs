//! What is not as it should be: said by whoever finds out, and told to everybody who asks how things are.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// What is not as it should be, one text a topic. Clones are the same list; it may change at any time.
#[derive(Debug, Clone, Default)]
pub struct Notices(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl Notices {
    /// Says what is wrong about a topic, in place of what was said of it before; `None` when all is well again.
    pub fn set(&self, topic: &'static str, text: Option<String>) {
        let mut notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match text {
            Some(text) => notices.insert(topic, text),
            None => notices.remove(topic),
        };
    }

    /// All of them in one text, by topic; `None` when all is well.
    pub(crate) fn text(&self) -> Option<String> {
        let notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let texts: Vec<_> = notices.values().map(String::as_str).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}
