//! View of a JSON schema at one path: its keys, its items, its types.

use serde_json::Value;

/// Maximum number of references followed without descending into a value, because a schema may refer to itself.
const MAX_REFERENCES: usize = 16;

/// Allowed values at one path of the config.
#[derive(Clone)]
pub(crate) struct SchemaShape<'a> {
    root: &'a Value,
    /// Alternative schemas of the value at this path.
    pub(crate) options: Vec<&'a Value>,
}

impl<'a> SchemaShape<'a> {
    /// Returns the shape of the whole config.
    pub(crate) fn root(schema: &'a Value) -> Self {
        Self::new(schema, schema)
    }

    fn new(root: &'a Value, schema: &'a Value) -> Self {
        let mut options = Vec::new();
        collect_options(root, schema, &mut options, 0);
        Self { root, options }
    }

    /// Returns the named keys.
    pub(crate) fn names(&self) -> Vec<&'a str> {
        let mut names = Vec::new();
        for name in self.objects("properties").flat_map(|properties| properties.keys()) {
            if !names.contains(&name.as_str()) {
                names.push(name.as_str());
            }
        }
        names
    }

    /// Returns the shape of a named key.
    pub(crate) fn member(&self, name: &str) -> Option<Self> {
        self.joined(self.objects("properties").filter_map(|properties| properties.get(name)))
    }

    /// Returns the shape of keys with free names.
    pub(crate) fn free(&self) -> Option<Self> {
        let patterns = self.objects("patternProperties").flat_map(|patterns| patterns.values());
        let more = self.options.iter().filter_map(|option| option.get("additionalProperties"));
        self.joined(patterns.chain(more.filter(|more| **more != Value::Bool(false))))
    }

    /// Returns the shape of the items of a list.
    pub(crate) fn item(&self) -> Option<Self> {
        self.joined(self.options.iter().filter_map(|option| option.get("items")))
    }

    /// True if it may be anything, or nothing with keys: in both cases nothing is known about keys in it.
    pub(crate) fn is_unconstrained(&self) -> bool {
        self.options.iter().any(|option| is_anything(option))
            || !self.options.iter().any(|option| {
                let kinds = option.get("type");
                option.get("properties").is_some()
                    || option.get("additionalProperties").is_some()
                    || kinds.is_some_and(|kinds| names_kind(kinds, "object"))
            })
    }

    fn objects(&self, key: &'static str) -> impl Iterator<Item = &'a serde_json::Map<String, Value>> {
        self.options.iter().filter_map(move |option| option.get(key)?.as_object())
    }

    fn joined(&self, schemas: impl Iterator<Item = &'a Value>) -> Option<Self> {
        let mut options = Vec::new();
        for schema in schemas {
            collect_options(self.root, schema, &mut options, 0);
        }
        (!options.is_empty()).then_some(Self { root: self.root, options })
    }
}

/// True if `type` includes this type.
pub(crate) fn names_kind(kinds: &Value, kind: &str) -> bool {
    kinds.as_str() == Some(kind) || kinds.as_array().is_some_and(|kinds| kinds.iter().any(|name| name == kind))
}

/// Collects a schema, its references, and its alternatives.
fn collect_options<'a>(root: &'a Value, schema: &'a Value, options: &mut Vec<&'a Value>, depth: usize) {
    if depth > MAX_REFERENCES {
        return;
    }
    options.push(schema);
    let reference = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    if let Some(schema) = reference.and_then(|pointer| root.pointer(pointer)) {
        collect_options(root, schema, options, depth + 1);
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        for schema in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
            collect_options(root, schema, options, depth + 1);
        }
    }
}

/// True if a schema allows everything.
pub(crate) fn is_anything(schema: &Value) -> bool {
    const CONSTRAINTS: [&str; 10] =
        ["type", "properties", "additionalProperties", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "not"];
    match schema {
        Value::Bool(allows_all) => *allows_all,
        Value::Object(schema) => !CONSTRAINTS.iter().any(|key| schema.contains_key(*key)),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "plain": {"type": "string"},
                "section": {"description": "d", "anyOf": [{"$ref": "#/$defs/S"}, {"type": "null"}]},
                "any": true,
                "list": {"type": "array", "items": {"$ref": "#/$defs/S"}},
                "map": {"type": "object", "additionalProperties": {"$ref": "#/$defs/S"}},
                "closed": {"type": ["object", "null"]},
                "circle": {"$ref": "#/$defs/C"},
            },
            "$defs": {
                "S": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}},
                "C": {"anyOf": [{"$ref": "#/$defs/C"}]},
            },
        })
    }

    #[test]
    fn references_and_alternatives_are_followed() {
        let schema = schema();
        let root = SchemaShape::root(&schema);
        let member = |name: &str| root.member(name).unwrap();
        assert_eq!(root.names(), ["plain", "section", "any", "list", "map", "closed", "circle"]);
        assert_eq!(member("section").names(), ["a", "b"]);
        assert_eq!(member("list").item().unwrap().names(), ["a", "b"]);
        assert_eq!(member("map").free().unwrap().names(), ["a", "b"]);
        assert_eq!(member("circle").names(), [""; 0]);
        assert!(root.member("none").is_none() && root.free().is_none());
    }

    #[test]
    fn only_objects_with_known_keys_are_constrained() {
        let schema = schema();
        let root = SchemaShape::root(&schema);
        let is_unconstrained = |name: &str| root.member(name).unwrap().is_unconstrained();
        let names = ["plain", "section", "any", "list", "map", "closed"];
        assert_eq!(names.map(is_unconstrained), [true, false, true, true, false, false]);
        assert!(!root.is_unconstrained());
    }
}
