//! The secrets that are masked in log lines.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use homard_secrets::Secrets;

/// Secrets to mask in log lines. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Masks(Arc<Mutex<Vec<Secrets>>>);

impl Masks {
    /// Replaces the set of masked secrets.
    pub fn hide_all(&self, secrets: Vec<Secrets>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = secrets;
    }

    /// Replaces the secrets in a text.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let secrets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.iter().fold(Cow::Borrowed(text), |text, secrets| match secrets.mask(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(clear) => Cow::Owned(clear),
        })
    }
}
