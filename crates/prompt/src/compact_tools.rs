//! Compact tool specs for models with a small context window: the core tools, described in one sentence each.

use std::sync::Arc;

use homard_model::ToolSpec;
use serde_json::Value;

/// The core tools.
pub(super) const CORE_TOOLS: [&str; 6] = ["read", "write", "edit", "ls", "grep", "exec"];

/// Parameters that small models seldom need, and that cost tokens in every request.
const RARE_PARAMETERS: [&str; 16] = [
    "after",
    "ask",
    "background",
    "context",
    "cursor",
    "elevated",
    "env",
    "glob",
    "host",
    "limit",
    "node",
    "optional",
    "pty",
    "security",
    "yieldMs",
    "ignoreCase",
];

/// Returns compact specs of the core tools. The other tools can still be called.
pub fn compact_specs(all: &[ToolSpec]) -> Arc<[ToolSpec]> {
    all.iter().filter(|spec| CORE_TOOLS.contains(&spec.name.as_str())).map(compact_spec).collect()
}

fn compact_spec(spec: &ToolSpec) -> ToolSpec {
    let description = spec.description.split_inclusive(". ").next().unwrap_or_default().trim();
    let mut parameters = spec.parameters.clone();
    if let Some(properties) = parameters.get_mut("properties").and_then(Value::as_object_mut) {
        let required: Vec<_> = spec.parameters["required"].as_array().into_iter().flatten().collect();
        properties.retain(|name, _| {
            !RARE_PARAMETERS.contains(&name.as_str()) || required.contains(&&Value::from(name.as_str()))
        });
    }
    strip_descriptions(&mut parameters);
    ToolSpec { name: spec.name.clone(), description: description.to_owned(), parameters }
}

/// Removes the descriptions from a schema; a property with that name is kept.
fn strip_descriptions(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if fields.get("description").is_some_and(Value::is_string) {
        fields.shift_remove("description");
    }
    for (name, part) in fields.iter_mut() {
        match (name.as_str(), part) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(strip_descriptions),
            ("anyOf" | "oneOf" | "allOf", Value::Array(parts)) => parts.iter_mut().for_each(strip_descriptions),
            (_, part) => strip_descriptions(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_described_in_a_sentence_and_its_parameters_by_their_names() {
        let spec = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: "Reads a file. Much more could be said.".to_owned(),
            parameters: json!({
                "type": "object", "required": ["path", "limit"], "properties": {
                    "path": {"type": "string", "description": "Where"},
                    "description": {"type": "string", "description": "A property of that name"},
                    "edits": {"type": "array", "items": {"type": "object", "description": "One", "properties": {}}},
                    "limit": {"type": "number", "description": "Seldom, but required"},
                    "cursor": {"type": "string"},
                },
            }),
        };
        let lean = compact_specs(&[spec("read"), spec("sessions_list")]);
        let expected = ToolSpec {
            name: "read".to_owned(),
            description: "Reads a file.".to_owned(),
            parameters: json!({
                "type": "object", "required": ["path", "limit"], "properties": {
                    "path": {"type": "string"},
                    "description": {"type": "string"},
                    "edits": {"type": "array", "items": {"type": "object", "properties": {}}},
                    "limit": {"type": "number"},
                },
            }),
        };
        assert_eq!(*lean, [expected]);
    }
}
