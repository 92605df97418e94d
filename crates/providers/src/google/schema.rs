//! Converts a tool's JSON Schema to the form that Gemini accepts.
//!
//! Gemini accepts JSON Schema but not references, so these are inlined. One invalid schema fails the whole request,
//! with all other tools.

use serde_json::{Map, Value, json};

/// Keywords that describe the schema and not what it allows, and definitions that are no longer referenced.
const DROPPED: [&str; 7] = ["$schema", "$id", "$anchor", "$comment", "$vocabulary", "$defs", "definitions"];

/// Maximum number of schemas after inlining. Nested references could otherwise grow exponentially.
const MAX_SCHEMAS: usize = 5_000;

/// Returns an object schema without references.
pub(super) fn accepted(root: &Value) -> Value {
    let mut inliner = SchemaInliner { root, in_progress: Vec::new(), remaining: MAX_SCHEMAS };
    match inliner.schema(root) {
        Value::Object(mut fields) if !fields.is_empty() => {
            fields.entry("type").or_insert_with(|| "object".into());
            Value::Object(fields)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            json!({"type": "object", "properties": {}})
        }
    }
}

/// State of the inlining.
struct SchemaInliner<'a> {
    root: &'a Value,
    /// References being inlined. To inline one of them again would recurse forever.
    in_progress: Vec<&'a str>,
    remaining: usize,
}

impl<'a> SchemaInliner<'a> {
    fn schema(&mut self, schema: &'a Value) -> Value {
        let Value::Object(fields) = schema else { return schema.clone() };
        self.remaining = self.remaining.saturating_sub(1);
        let mut inlined = self.target(fields);
        for (name, value) in fields {
            let value = match name.as_str() {
                "$ref" => continue,
                name if DROPPED.contains(&name) => continue,
                // Here the names are the tool's own, and only their values are schemas.
                "properties" | "patternProperties" | "dependentSchemas" => self.named_schemas(value),
                // These contain values and no schemas.
                "enum" | "const" | "default" | "examples" | "required" => value.clone(),
                _ => self.schemas(value),
            };
            inlined.insert(name.clone(), value);
        }
        Value::Object(inlined)
    }

    /// Returns the target of a reference; an empty schema, which allows everything, if it is unknown or recursive.
    fn target(&mut self, fields: &'a Map<String, Value>) -> Map<String, Value> {
        let Some(reference) = fields.get("$ref").and_then(Value::as_str) else { return Map::new() };
        let found = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let Some(found) = found.filter(|_| self.remaining > 0 && !self.in_progress.contains(&reference)) else {
            return Map::new();
        };
        self.in_progress.push(reference);
        let target = self.schema(found);
        self.in_progress.pop();
        match target {
            Value::Object(fields) => fields,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
        }
    }

    fn named_schemas(&mut self, schemas: &'a Value) -> Value {
        match schemas {
            Value::Object(fields) => fields.iter().map(|(name, schema)| (name.clone(), self.schema(schema))).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => schemas.clone(),
        }
    }

    /// Inlines one schema, or a list of them.
    fn schemas(&mut self, value: &'a Value) -> Value {
        match value {
            Value::Array(list) => list.iter().map(|schema| self.schema(schema)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => self.schema(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_inlined_and_sibling_keywords_override_them() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "kind": {"$ref": "#/$defs/Kind", "description": "Which one"},
                "definitions": {"type": "array", "items": {"$ref": "#/$defs/Kind"}},
                "default": {"anyOf": [{"$ref": "#/$defs/Kind"}, {"type": "null"}], "default": {"$ref": "kept"}},
            },
            "required": ["kind"],
            "$defs": {"Kind": {"type": "string", "description": "A kind", "enum": ["a", "b"]}},
        });
        let kind = json!({"type": "string", "description": "A kind", "enum": ["a", "b"]});
        let expected = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "kind": {"type": "string", "description": "Which one", "enum": ["a", "b"]},
                "definitions": {"type": "array", "items": kind},
                "default": {"anyOf": [kind, {"type": "null"}], "default": {"$ref": "kept"}},
            },
            "required": ["kind"],
        });
        assert_eq!(accepted(&schema), expected);
    }

    #[test]
    fn a_recursive_or_unknown_reference_allows_everything() {
        let tree = json!({
            "type": "object",
            "properties": {"child": {"$ref": "#"}, "lost": {"$ref": "#/$defs/None"}, "far": {"$ref": "https://x"}},
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "child": {
                    "type": "object",
                    "properties": {"child": {}, "lost": {}, "far": {}},
                },
                "lost": {},
                "far": {},
            },
        });
        assert_eq!(accepted(&tree), expected);
    }

    #[test]
    fn exponential_inlining_is_bounded() {
        let mut defs = Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
            defs.insert(level.to_string(), json!({"type": "object", "properties": {"a": next, "b": next}}));
        }
        let bomb = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/0"}}, "$defs": defs});
        assert!(accepted(&bomb).to_string().len() < 500_000);
    }

    #[test]
    fn a_tool_without_parameters_takes_an_empty_object() {
        let empty = json!({"type": "object", "properties": {}});
        assert_eq!(
            [json!(null), json!({}), json!(true)].map(|schema| accepted(&schema)),
            [(); 3].map(|()| empty.clone())
        );
        assert_eq!(accepted(&json!({"properties": {}})), empty);
    }
}
