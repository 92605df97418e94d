//! Differences between two configs.

use serde_json::{Map, Value};

use crate::path::Path;

/// Returns the paths whose values differ, sorted. A list counts as one value; for objects, including new and removed
/// ones, only the differing members are returned.
pub fn changed(old: &Value, new: &Value) -> Vec<Path> {
    let mut paths = Vec::new();
    compare(&Path::root(), Some(old), Some(new), &mut paths);
    paths.sort();
    paths
}

fn compare(path: &Path, old: Option<&Value>, new: Option<&Value>, paths: &mut Vec<Path>) {
    if old == new {
        return;
    }
    let nothing = Map::new();
    let (old, new) = match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => (old, new),
        (Some(Value::Object(old)), None) if !old.is_empty() => (old, &nothing),
        (None, Some(Value::Object(new))) if !new.is_empty() => (&nothing, new),
        _ => return paths.push(path.clone()),
    };
    for (name, value) in old {
        compare(&path.key(name), Some(value), new.get(name), paths);
    }
    for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        compare(&path.key(name), None, Some(value), paths);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(old: &Value, new: &Value) -> Vec<String> {
        changed(old, new).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_differing_members_are_listed() {
        let old =
            json!({"gateway": {"port": 1, "bind": "lan"}, "agents": {"list": [{"id": "a"}]}, "a.b": 1, "z": null});
        let new =
            json!({"gateway": {"bind": "lan", "port": 2}, "agents": {"list": [{"id": "b"}]}, "a.b": 2, "z": null});
        assert_eq!(paths(&old, &new), ["[\"a.b\"]", "agents.list", "gateway.port"]);
        assert_eq!(paths(&old, &old), [""; 0]);
    }

    #[test]
    fn a_new_or_removed_object_is_listed_by_its_members() {
        let old = json!({"ui": {"color": "red"}, "was": {}});
        let new = json!({"gateway": {"reload": {"mode": "off"}}, "is": {}});
        assert_eq!(paths(&old, &new), ["gateway.reload.mode", "is", "ui.color", "was"]);
    }

    #[test]
    fn a_change_of_type_is_one_change() {
        assert_eq!(paths(&json!({"model": "a"}), &json!({"model": {"primary": "a"}})), ["model"]);
        assert_eq!(paths(&json!({"a": null}), &json!({})), ["a"]);
        assert_eq!(paths(&json!({}), &json!([])), [""]);
    }
}
