//! Hash chain: each row contains the digest of the preceding row and is signed with the key of the log. Pure.

use std::{fmt, str::FromStr};

use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::{key::Key, record::AuditRecord};

/// SHA-256 of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of a row, without its line break.
    pub fn of(line: &[u8]) -> Self {
        Self(Sha256::digest(line).into())
    }

    pub(crate) fn bytes(self) -> [u8; 32] {
        self.0
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for Digest {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(());
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).or(Err(()))?;
        }
        Ok(Self(bytes))
    }
}

/// End of a chain: the number of rows, and the digest of the last one. Formatted as `12:abc…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChainHead {
    /// Number of rows.
    pub rows: u64,
    /// Digest of the last row; zeros if there is none.
    pub digest: Digest,
}

impl fmt::Display for ChainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.rows, self.digest)
    }
}

impl FromStr for ChainHead {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (rows, digest) = text.split_once(':').ok_or(())?;
        Ok(Self { rows: rows.parse().or(Err(()))?, digest: digest.parse()? })
    }
}

impl ChainHead {
    /// Builds the next row for this record, and returns it with the new end.
    pub(crate) fn next(self, record: &AuditRecord, at_ms: u64, key: &Key) -> (String, Self) {
        self.row(self.rows + 1, record, at_ms, key)
    }

    /// Builds the row that records a break. Sequence numbers are never reused: it comes after the missing row.
    pub(crate) fn next_after_break(
        self,
        expected: Self,
        record: &AuditRecord,
        at_ms: u64,
        key: &Key,
    ) -> (String, Self) {
        self.row(self.rows.max(expected.rows) + 1, record, at_ms, key)
    }

    fn row(self, seq: u64, record: &AuditRecord, at_ms: u64, key: &Key) -> (String, Self) {
        let mut row = Map::new();
        row.insert("seq".to_owned(), seq.into());
        row.insert("at".to_owned(), at_ms.into());
        row.extend(record.fields());
        row.insert("prev".to_owned(), self.digest.to_string().into());
        let mut line = Value::from(row).to_string();
        let signature = key.sign(line.as_bytes());
        line.truncate(line.len() - 1);
        line.push_str(&format!("{MAC}{signature}\"}}"));
        let digest = Digest::of(line.as_bytes());
        (line, Self { rows: seq, digest })
    }

    /// Returns the end of a chain whose last row is this line; `None` if it is not a row.
    pub(crate) fn at(line: &[u8]) -> Option<Self> {
        let link = Link::read(line)?;
        Some(Self { rows: link.seq, digest: Digest::of(line) })
    }
}

/// Separator between the signed part of a row and the signature.
const MAC: &str = ",\"mac\":\"";

/// Fields that link a row, and those relevant for verification.
#[derive(Debug, Deserialize)]
pub(crate) struct Link {
    pub(crate) seq: u64,
    pub(crate) prev: String,
    #[serde(default)]
    pub(crate) at: u64,
    #[serde(default)]
    pub(crate) what: String,
    #[serde(default)]
    pub(crate) more: Map<String, Value>,
}

impl Link {
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Returns a string value of the row.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.more.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Returns the signed part of a row and its signature; `None` if it has none, like rows of earlier versions.
pub(crate) fn signed(line: &[u8]) -> Option<(Vec<u8>, Digest)> {
    let rest = line.strip_suffix(b"\"}")?;
    let (rest, signature) = rest.split_at_checked(rest.len().checked_sub(64)?)?;
    let mut body = rest.strip_suffix(MAC.as_bytes())?.to_vec();
    body.push(b'}');
    Some((body, std::str::from_utf8(signature).ok()?.parse().ok()?))
}
