//! Merges a patch into the config: objects are merged, `null` removes a key, lists of objects with ids are merged by
//! id.

use homard_config::path::Path;
use serde_json::{Map, Value};

/// Merges a patch into a value. Paths in `replaced` are replaced as a whole.
pub(crate) fn merge(value: &mut Value, patch: &Value, path: &Path, replaced: &[Path]) {
    if replaced.contains(path) {
        return *value = without_nulls(patch);
    }
    match (value, patch) {
        (Value::Array(list), Value::Array(items)) if have_ids(list) && have_ids(items) => {
            for item in items {
                match list.iter_mut().position(|old| old.get("id") == item.get("id")) {
                    Some(at) => merge(&mut list[at], item, &path.index(at), replaced),
                    None => list.push(without_nulls(item)),
                }
            }
        }
        (value, Value::Object(members)) => {
            if !value.is_object() {
                *value = Value::Object(Map::new());
            }
            let Value::Object(object) = value else { return };
            for (name, patch) in members {
                if patch.is_null() {
                    object.shift_remove(name);
                } else {
                    merge(object.entry(name.clone()).or_insert(Value::Null), patch, &path.key(name), replaced);
                }
            }
        }
        (value, patch) => value.clone_from(patch),
    }
}

/// Returns true if all items are objects with an id. False for an empty list, which therefore replaces the old one.
fn have_ids(list: &[Value]) -> bool {
    !list.is_empty() && list.iter().all(|item| item.get("id").is_some_and(Value::is_string))
}

/// Returns the value of a patch for a missing key: without its nulls.
fn without_nulls(patch: &Value) -> Value {
    match patch {
        Value::Object(members) => {
            let non_null = members.iter().filter(|(_, value)| !value.is_null());
            non_null.map(|(name, value)| (name.clone(), without_nulls(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => patch.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(value: &Value, patch: &Value, replaced: &[&str]) -> Value {
        let mut value = value.clone();
        let replaced: Vec<Path> = replaced.iter().map(|path| path.parse().unwrap()).collect();
        merge(&mut value, patch, &Path::root(), &replaced);
        value
    }

    #[test]
    fn objects_are_merged_and_null_removes_a_key() {
        let value = json!({"a": {"b": 1, "c": 2}, "d": [1, 2]});
        let patch = json!({"a": {"b": null, "e": {"f": null, "g": 3}}, "d": [3], "h": null});
        assert_eq!(merged(&value, &patch, &[]), json!({"a": {"c": 2, "e": {"g": 3}}, "d": [3]}));
        assert_eq!(merged(&value, &patch, &["a"]), json!({"a": {"e": {"g": 3}}, "d": [3]}));
    }

    #[test]
    fn agents_are_merged_by_id() {
        let value = json!({"list": [{"id": "a", "x": 1}, {"id": "b", "y": 2}]});
        let patch = json!({"list": [{"id": "b", "y": null, "z": 3}, {"id": "c"}]});
        assert_eq!(
            merged(&value, &patch, &[]),
            json!({"list": [{"id": "a", "x": 1}, {"id": "b", "z": 3}, {"id": "c"}]})
        );
        assert_eq!(merged(&value, &json!({"list": []}), &[]), json!({"list": []}));
        assert_eq!(merged(&value, &json!({"list": [{"id": "c"}]}), &["list"]), json!({"list": [{"id": "c"}]}));
    }
}
