//! Ids of texts and prompts: digests of their content.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Length in bytes. The ids are stored with every model request, so they are as short as accidental collisions permit.
const LENGTH: usize = 12;

/// Digest of a text or of a prompt. Shown as hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromptId([u8; LENGTH]);

impl PromptId {
    /// Returns the id of a content.
    pub fn of(content: &[u8]) -> Self {
        let mut id = [0; LENGTH];
        id.copy_from_slice(&Sha256::digest(content)[..LENGTH]);
        Self(id)
    }
}

impl fmt::Display for PromptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for PromptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PromptId {
    type Err = hex::FromHexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut id = [0; LENGTH];
        hex::decode_to_slice(text, &mut id)?;
        Ok(Self(id))
    }
}

impl Serialize for PromptId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PromptId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
