//! Large values are passed by reference and fetched on demand; most hooks do not need them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use homard_stdx::sync::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

/// Size in bytes above which a value is passed by reference.
pub(crate) const BLOB_BYTES: usize = 64 * 1024;

/// Values that a process may fetch. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct BlobStore(Arc<BlobTable>);

#[derive(Debug, Default)]
struct BlobTable {
    values: Mutex<HashMap<String, Arc<RawValue>>>,
    /// References are never reused, since a process may cache what it fetched.
    last: AtomicU64,
}

/// References that can be fetched while this lives.
#[derive(Debug)]
pub(crate) struct BlobRefs {
    store: BlobStore,
    references: Vec<String>,
}

impl Drop for BlobRefs {
    fn drop(&mut self) {
        let mut values = self.store.values();
        for reference in &self.references {
            values.remove(reference);
        }
    }
}

impl BlobStore {
    fn values(&self) -> MutexGuard<'_, HashMap<String, Arc<RawValue>>> {
        self.0.values.lock()
    }

    /// Serialises an object, with large fields by reference.
    pub(crate) fn write(&self, object: &impl Serialize) -> serde_json::Result<(Box<RawValue>, BlobRefs)> {
        let mut blobs = BlobRefs { store: self.clone(), references: Vec::new() };
        let serialised = to_raw_value(object)?;
        if serialised.get().len() <= BLOB_BYTES {
            return Ok((serialised, blobs));
        }
        let fields: HashMap<String, Box<RawValue>> = match serde_json::from_str(serialised.get()) {
            Ok(fields) => fields,
            // Not an object, so there are no fields to replace.
            Err(_) => return Ok((serialised, blobs)),
        };
        let mut replaced = serde_json::Map::new();
        for (name, value) in fields {
            let value = if value.get().len() > BLOB_BYTES {
                self.put(value, &mut blobs)
            } else {
                serde_json::from_str(value.get())?
            };
            replaced.insert(name, value);
        }
        Ok((to_raw_value(&replaced)?, blobs))
    }

    fn put(&self, value: Box<RawValue>, blobs: &mut BlobRefs) -> Value {
        let reference = format!("v{}", self.0.last.fetch_add(1, Ordering::Relaxed) + 1);
        self.values().insert(reference.clone(), value.into());
        blobs.references.push(reference.clone());
        json!({"$ref": reference})
    }

    /// Returns the value of a reference, unless its call has ended.
    pub(crate) fn get(&self, reference: &str) -> Option<Arc<RawValue>> {
        self.values().get(reference).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_object_is_serialised_unchanged() {
        let store = BlobStore::default();
        let (written, blobs) = store.write(&json!({"b": 1, "a": {"$ref": "mine"}})).unwrap();
        assert_eq!(written.get(), r#"{"b":1,"a":{"$ref":"mine"}}"#);
        assert_eq!(blobs.references, Vec::<String>::new());
    }

    #[test]
    fn a_large_field_can_be_fetched_while_the_call_is_open() {
        let store = BlobStore::default();
        let large = "x".repeat(BLOB_BYTES);
        let (written, blobs) = store.write(&json!({"prompt": "hi", "messages": [large]})).unwrap();
        let written: Value = serde_json::from_str(written.get()).unwrap();
        assert_eq!(written, json!({"prompt": "hi", "messages": {"$ref": "v1"}}));
        assert_eq!(store.get("v1").unwrap().get(), json!([large]).to_string());
        drop(blobs);
        assert!(store.get("v1").is_none());
        let (_, again) = store.write(&json!({"messages": [large]})).unwrap();
        assert_eq!(again.references, ["v2"]);
    }

    #[test]
    fn a_large_value_without_fields_is_sent_whole() {
        let (written, _) = BlobStore::default().write(&json!(["x".repeat(BLOB_BYTES)])).unwrap();
        assert!(written.get().len() > BLOB_BYTES);
    }
}
