//! Hints for web pages that show the config as a form: labels, descriptions, and which keys are secrets.

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::{ReferenceRow, rows, schema};
use crate::{
    path::{Path, Step},
    redact,
    shape::SchemaShape,
};

/// Returns for every key, as in `agents.list[].id`, its label, its description, and whether it is a secret.
pub fn hints<T: JsonSchema>() -> Value {
    let schema = schema::<T>();
    rows(&schema).iter().map(|row| (row.path.clone(), hint(row))).collect::<Map<_, _>>().into()
}

fn hint(row: &ReferenceRow) -> Value {
    let name = row.path.rsplit('.').next().unwrap_or_default();
    let mut hint = json!({"label": label(name.trim_end_matches("[]"))});
    if !row.description.is_empty() {
        hint["help"] = row.description.as_str().into();
    }
    if redact::is_secret_key(&row.path) {
        hint["sensitive"] = true.into();
    }
    hint
}

/// Converts a key to a label: `maxConcurrent` becomes `Max concurrent`.
fn label(name: &str) -> String {
    let mut text = String::new();
    for char in name.chars() {
        match char {
            first if text.is_empty() => text.extend(first.to_uppercase()),
            upper if upper.is_uppercase() => {
                text.push(' ');
                text.extend(upper.to_lowercase());
            }
            char => text.push(char),
        }
    }
    text
}

/// Describes one key: its schema without nested ones, its hint, and its keys. `None` if there is no such key.
pub fn describe_key<T: JsonSchema>(path: &Path) -> Option<Value> {
    let schema = schema::<T>();
    let (mut shape, mut key) = (SchemaShape::root(&schema), String::new());
    for step in path.steps() {
        (shape, key) = descend(&shape, &key, step)?;
    }
    let hints = hints::<T>();
    let mut names = shape.names();
    names.sort_unstable();
    let child = |name: &str| {
        let member = shape.member(name)?;
        let inner = join(&key, name);
        let has_children = !member.names().is_empty() || member.item().or_else(|| member.free()).is_some();
        let mut child = json!({
            "key": name, "path": path.key(name).to_string(), "required": false, "hasChildren": has_children,
        });
        child["type"] = shallow(&member)["type"].clone();
        Some(hinted(child, &hints, &inner))
    };
    let children: Vec<_> = names.into_iter().filter_map(child).collect();
    let described = json!({"path": path.to_string(), "schema": shallow(&shape), "children": children});
    Some(hinted(described, &hints, &key))
}

/// Returns the shape of a member or item, and its key in the reference: `*` for any name, `[]` for a list item. `None`
/// if the schema has no such member.
fn descend<'a>(shape: &SchemaShape<'a>, key: &str, step: &Step) -> Option<(SchemaShape<'a>, String)> {
    let member = match step {
        Step::Key(name) => shape.member(name).map(|member| (member, join(key, name))),
        Step::Index(_) => None,
    };
    let free = || matches!(step, Step::Key(_)).then(|| Some((shape.free()?, join(key, "*")))).flatten();
    let item = || step.list_index().and_then(|_| Some((shape.item()?, format!("{key}[]"))));
    member.or_else(free).or_else(item)
}

fn join(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

fn hinted(mut described: Value, hints: &Value, key: &str) -> Value {
    if let Some(hint) = hints.get(key) {
        described["hint"] = hint.clone();
        described["hintPath"] = key.into();
    }
    described
}

/// Returns the schema of a value without nested schemas.
fn shallow(shape: &SchemaShape<'_>) -> Value {
    let mut flat = Map::new();
    for key in ["description", "default", "minimum", "maximum"] {
        if let Some(value) = shape.options.iter().find_map(|option| option.get(key)) {
            flat.insert(key.to_owned(), value.clone());
        }
    }
    for key in ["type", "enum"] {
        let mut values: Vec<&Value> = Vec::new();
        for declared in shape.options.iter().filter_map(|option| option.get(key)) {
            let declared = declared.as_array().map_or_else(|| vec![declared], |list| list.iter().collect());
            values.extend(declared.into_iter().filter(|entry| !values.contains(entry)).collect::<Vec<_>>());
        }
        match values.as_slice() {
            [] => {}
            [entry] if key == "type" => drop(flat.insert(key.to_owned(), (*entry).clone())),
            values => drop(flat.insert(key.to_owned(), values.iter().copied().cloned().collect())),
        }
    }
    flat.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Default, Deserialize, JsonSchema)]
    #[serde(default, rename_all = "camelCase")]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Config {
        /// By name.
        providers: BTreeMap<String, TestProvider>,
        list: Vec<TestProvider>,
    }

    #[derive(Default, Deserialize, JsonSchema)]
    #[serde(default, rename_all = "camelCase")]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct TestProvider {
        /// The key
        /// of it.
        api_key: Option<String>,
        max_turns: u8,
    }

    #[test]
    fn keys_have_labels_and_secrets_are_marked() {
        let hints = hints::<Config>();
        assert_eq!(hints["providers"], json!({"label": "Providers", "help": "By name."}));
        let key = json!({"label": "Api key", "help": "The key of it.", "sensitive": true});
        assert_eq!((&hints["providers.*.apiKey"], &hints["list[].apiKey"]), (&key, &key));
        assert_eq!(hints["list[].maxTurns"], json!({"label": "Max turns"}));
    }

    #[test]
    fn a_key_is_described_with_its_children() {
        let describe = |path: &str| describe_key::<Config>(&path.parse().unwrap());
        let key = json!({"label": "Api key", "help": "The key of it.", "sensitive": true});
        let child = |hint_path: &str| {
            json!({
                "key": "apiKey", "path": "providers.x.apiKey", "required": false, "hasChildren": false,
                "type": ["string", "null"], "hint": key, "hintPath": hint_path,
            })
        };
        let provider = describe("providers.x").unwrap();
        assert_eq!((&provider["path"], &provider["schema"]["type"]), (&json!("providers.x"), &json!("object")));
        assert_eq!(provider["children"][0], child("providers.*.apiKey"));
        assert_eq!(
            describe("list[3].apiKey").unwrap(),
            json!({
                "path": "list[3].apiKey", "children": [], "hint": key, "hintPath": "list[].apiKey",
                "schema": {"description": "The key\nof it.", "default": null, "type": ["string", "null"]},
            })
        );
        assert_eq!((describe("list.x"), describe("providers.x.y"), describe("nope")), (None, None, None));
        let root = describe_key::<Config>(&Path::root()).unwrap();
        let names: Vec<_> = root["children"].as_array().unwrap().iter().map(|child| child["key"].clone()).collect();
        assert_eq!(names, ["env", "list", "providers"]);
    }
}
