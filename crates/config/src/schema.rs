//! Descriptions of the sections: a JSON schema for programs, a reference for people, and a list of keys.

mod hints;

use std::fmt::Write;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Value, json};

use crate::shape::{SchemaShape, is_anything, names_kind};

pub use hints::{describe_key, hints};

/// Maximum depth of the reference, because a schema may contain itself.
const MAX_DEPTH: usize = 12;

/// Returns the JSON schema of the config, draft 2020-12. It includes the `env` section, which the reader itself uses.
pub fn schema<T: JsonSchema>() -> Value {
    generate::<T>(SchemaSettings::draft2020_12())
}

/// Like [`schema()`], with all references inlined, because the forms of web pages do not follow references.
pub fn schema_inlined<T: JsonSchema>() -> Value {
    generate::<T>(SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true))
}

fn generate<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.entry("env").or_insert_with(env);
    }
    schema
}

fn env() -> Value {
    json!({
        "description": "Environment variables, set unless the environment already has them.",
        "type": "object",
        "properties": {
            "vars": {
                "description": "Variables by name; they override those beside `vars`.",
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
        },
        "additionalProperties": {"type": "string"},
    })
}

/// Returns every key, as in `agents.list[].id`; `*` stands for a free name.
pub fn keys<T: JsonSchema>() -> Vec<String> {
    let schema = schema::<T>();
    rows(&schema).into_iter().map(|row| row.path).collect()
}

/// Returns every key in the format that the reader uses to find unknown keys: one per line, indented below its parent;
/// `*` is a free name, `[]` an item of a list. A key without keys below it may contain anything.
pub fn key_list<T: JsonSchema>() -> String {
    let schema = schema::<T>();
    let mut list = String::new();
    lines(&SchemaShape::root(&schema), 0, &mut list);
    list
}

fn lines(shape: &SchemaShape<'_>, depth: usize, list: &mut String) {
    if depth > MAX_DEPTH {
        return;
    }
    let mut names = shape.names();
    names.sort_unstable();
    let named = names.into_iter().filter_map(|name| Some((name, shape.member(name)?)));
    let mut members: Vec<_> = named.chain(shape.free().map(|free| ("*", free))).collect();
    debug_assert!(
        depth == 0 || shape.is_unconstrained() || !members.is_empty(),
        "an object must name its keys: {list}"
    );
    members.retain(|_| !shape.is_unconstrained());
    for (name, child) in members.into_iter().chain(shape.item().map(|item| ("[]", item))) {
        list.push_str(&format!("{}{name}\n", " ".repeat(depth)));
        lines(&child, depth + 1, list);
    }
}

/// Returns every key with its type, default and description, as Markdown with a table for each section.
pub fn reference<T: JsonSchema>() -> String {
    let schema = schema::<T>();
    let mut text = "# Config reference\n".to_owned();
    for row in rows(&schema) {
        if !row.path.contains(['.', '[']) {
            text.push_str(&format!("\n## {}\n\n", row.path));
            if !row.description.is_empty() {
                text.push_str(&format!("{}\n\n", row.description));
            }
            text.push_str("| Key | Value | Default | Meaning |\n|---|---|---|---|\n");
        }
        let [kind, default, description] =
            [&row.kind, &row.default, &row.description].map(|cell| cell.replace('|', "\\|"));
        text.push_str(&format!("| `{}` | {kind} | {default} | {description} |\n", row.path));
    }
    text
}

struct ReferenceRow {
    path: String,
    kind: String,
    default: String,
    description: String,
}

fn rows(schema: &Value) -> Vec<ReferenceRow> {
    let mut rows = Vec::new();
    collect_rows(&SchemaShape::root(schema), "", 0, &mut rows);
    rows
}

/// Collects the keys of a shape, sorted by name: the order of fields in the source does not matter.
fn collect_rows(shape: &SchemaShape<'_>, path: &str, depth: usize, rows: &mut Vec<ReferenceRow>) {
    if depth > MAX_DEPTH {
        return;
    }
    let mut names = shape.names();
    names.sort_unstable();
    for name in names {
        let Some(member) = shape.member(name) else { continue };
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{name}");
        rows.push(row(&member, path.clone()));
        collect_rows(&member, &path, depth + 1, rows);
    }
    if let Some(free) = shape.free().filter(|_| !path.is_empty()) {
        collect_rows(&free, &format!("{path}.*"), depth + 1, rows);
    }
    if let Some(item) = shape.item() {
        collect_rows(&item, &format!("{path}[]"), depth + 1, rows);
    }
}

fn row(shape: &SchemaShape<'_>, path: String) -> ReferenceRow {
    let first = |key: &str| shape.options.iter().find_map(|option| option.get(key));
    let default = first("default").filter(|default| !default.is_null() && !default.is_object());
    let description = first("description").and_then(Value::as_str).unwrap_or_default();
    ReferenceRow {
        path,
        kind: kind(shape, 0),
        default: default.map(|default| format!("`{default}`")).unwrap_or_default(),
        description: description.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Describes the allowed values in words.
fn kind(shape: &SchemaShape<'_>, depth: usize) -> String {
    let mut kinds: Vec<String> = Vec::new();
    for option in &shape.options {
        let alternatives = match option {
            option if is_anything(option) => vec!["anything".to_owned()],
            option if option.get("const").is_some() => option.get("const").into_iter().map(quoted).collect(),
            option => match option.get("enum").and_then(Value::as_array) {
                Some(values) => values.iter().filter(|value| !value.is_null()).map(quoted).collect(),
                None => types(option, shape, depth),
            },
        };
        for word in alternatives {
            if !kinds.contains(&word) {
                kinds.push(word);
            }
        }
    }
    kinds.join(" or ")
}

fn quoted(value: &Value) -> String {
    format!("`{value}`")
}

fn types(option: &Value, shape: &SchemaShape<'_>, depth: usize) -> Vec<String> {
    let Some(types) = option.get("type") else { return Vec::new() };
    let inner = |shape: Option<SchemaShape<'_>>| match shape {
        Some(shape) if depth < MAX_DEPTH => kind(&shape, depth + 1),
        Some(_) | None => "anything".to_owned(),
    };
    let mut alternatives = Vec::new();
    for (name, word) in [("string", "text"), ("boolean", "true or false")] {
        if names_kind(types, name) {
            alternatives.push(word.to_owned());
        }
    }
    for (name, word) in [("integer", "whole number"), ("number", "number")] {
        if names_kind(types, name) {
            alternatives.push(format!("{word}{}", range(option)));
        }
    }
    if names_kind(types, "array") {
        alternatives.push(format!("list of {}", inner(shape.item())));
    }
    if names_kind(types, "object") {
        let free = shape.free().filter(|_| shape.names().is_empty());
        alternatives.push(free.map_or_else(|| "object".to_owned(), |free| format!("object of {}", inner(Some(free)))));
    }
    alternatives
}

fn range(option: &Value) -> String {
    let mut text = String::new();
    for (key, word) in [("minimum", "from"), ("maximum", "to")] {
        if let Some(limit) = option.get(key) {
            // Writing to a string cannot fail.
            write!(text, " {word} {limit}").unwrap_or_default();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use super::*;

    /// All of it.
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default, rename_all = "camelCase")]
    struct Config {
        gateway: Gateway,
        /// Who answers.
        agents: Vec<Agent>,
        /// By name.
        providers: BTreeMap<String, Agent>,
        anything: Value,
    }

    /// Where it listens.
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default, rename_all = "camelCase")]
    struct Gateway {
        /// The port | of
        /// the gateway.
        port: Option<u16>,
        bind: Bind,
        is_on: bool,
    }

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Bind {
        #[default]
        Loopback,
        Lan,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Agent {
        id: String,
        #[serde(default)]
        weights: Vec<f64>,
        /// Those beneath it.
        #[serde(default)]
        below: Vec<Self>,
    }

    #[test]
    fn the_inlined_schema_keeps_only_recursive_references() {
        let references = |schema: &Value| -> std::collections::BTreeSet<String> {
            let text = schema.to_string();
            text.split("\"$ref\":\"").skip(1).filter_map(|rest| rest.split('"').next().map(str::to_owned)).collect()
        };
        assert!(references(&schema::<Config>()).len() > 1);
        let inlined = schema_inlined::<Config>();
        assert_eq!(references(&inlined), ["#/$defs/Agent".to_owned()].into());
        assert_eq!(inlined["properties"]["gateway"]["type"], "object");
    }

    #[test]
    fn a_schema_includes_the_env_section() {
        let schema = schema::<Config>();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["properties"]["env"], env());
    }

    #[test]
    fn keys_are_listed_by_their_paths() {
        let keys = keys::<Config>();
        let shallow: Vec<_> = keys.iter().filter(|key| key.matches("below").count() < 1).collect();
        assert_eq!(
            shallow,
            [
                "agents",
                "agents[].id",
                "agents[].weights",
                "anything",
                "env",
                "env.vars",
                "gateway",
                "gateway.bind",
                "gateway.isOn",
                "gateway.port",
                "providers",
                "providers.*.id",
                "providers.*.weights",
            ]
        );
    }

    #[test]
    fn keys_are_listed_in_the_readers_format() {
        let list = key_list::<Config>();
        let shallow: Vec<&str> = list.lines().filter(|line| line.len() - line.trim_start().len() < 3).collect();
        let agents = ["agents", " []", "  below", "  id", "  weights", "anything"];
        let rest = ["env", " vars", "  *", " *", "gateway", " bind", " isOn", " port"];
        let providers = ["providers", " *", "  below", "  id", "  weights"];
        assert_eq!(shallow, [agents.as_slice(), &rest, &providers].concat());
        assert!(list.starts_with("agents\n []\n  below\n   []\n    below\n"), "{list}");
    }

    #[test]
    fn the_reference_has_a_table_for_each_section() {
        let reference = reference::<Config>();
        let (_, gateway) = reference.split_once("\n## gateway\n").unwrap();
        let (gateway, _) = gateway.split_once("\n## ").unwrap();
        assert_eq!(
            gateway,
            "
Where it listens.

| Key | Value | Default | Meaning |
|---|---|---|---|
| `gateway` | object |  | Where it listens. |
| `gateway.bind` | `\"loopback\"` or `\"lan\"` | `\"loopback\"` |  |
| `gateway.isOn` | true or false | `false` |  |
| `gateway.port` | whole number from 0 to 65535 |  | The port \\| of the gateway. |
"
        );
        assert!(reference.starts_with("# Config reference\n\n## agents\n\nWho answers.\n\n| Key |"));
        assert!(reference.contains("| `agents` | list of object | `[]` | Who answers. |\n"));
        assert!(reference.contains("| `providers` | object of object |  | By name. |\n"));
        assert!(reference.contains("| `anything` | anything |  |  |\n"));
        assert_eq!(reference, super::reference::<Config>());
    }
}
