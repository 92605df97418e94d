//! Properties of all configs.

use std::{fs, path::Path};

use homard_config::{LoadedConfig, ReadEnvironment, read, read_text};
use proptest::prelude::*;
use serde_json::{Map, Value};

mod sample;

const ENV: ReadEnvironment<'static> =
    ReadEnvironment { variable: &sample::variable, secret: &sample::secret, include_roots: &[] };

fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has only finite numbers", |number| number.is_finite()).prop_map(Value::from),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        any::<String>().prop_map(Value::from),
        "[a-z'\"\\\\\n$ ]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            object(inner).prop_map(Value::Object),
        ]
    })
}

fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let name = prop_oneof!["[a-z_$][a-zA-Z0-9_$]{0,6}", any::<String>()];
    prop::collection::vec((name, value), 0..6).prop_map(|members| members.into_iter().collect())
}

/// Writes the value as JSON5: names without quotes, single quotes, comments, trailing commas.
fn json5(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members =
                members.iter().map(|(name, value)| format!("{}: {}, // a comment\n", bare(name), json5(value)));
            format!("{{{}}}", members.collect::<String>())
        }
        Value::Array(values) => {
            format!("[{}]", values.iter().map(|value| format!("{},/* , */", json5(value))).collect::<String>())
        }
        Value::String(text) => {
            let inner = value.to_string();
            let inner = &inner[1..inner.len() - 1];
            if text.contains('"') {
                format!("'{}'", inner.replace('\'', "\\'").replace("\\\"", "\""))
            } else {
                value.to_string()
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn bare(name: &str) -> String {
    let is_word =
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(|c| c.is_ascii_alphanumeric());
    if is_word && !["true", "false", "null"].contains(&name) { name.to_owned() } else { Value::from(name).to_string() }
}

fn read_as(text: &str) -> LoadedConfig<sample::Config> {
    read_text(Path::new("config.json"), text, &ENV)
}

proptest! {
    #[test]
    fn json5_round_trips(members in object(value())) {
        let value = Value::Object(members);
        prop_assume!(!value.to_string().contains("\"$include\""));
        prop_assert_eq!(read_as(&json5(&value)).source, value);
    }

    #[test]
    fn a_text_without_a_reference_is_unchanged(members in object(value())) {
        let value = Value::Object(members);
        let text = value.to_string();
        prop_assume!(!text.contains("${") && !text.contains("\"$include\"") && !text.contains("\"env\""));
        let loaded = read_as(&text);
        prop_assert_eq!(loaded.tree, value);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::write(&path, &bytes).unwrap();
        let loaded = read::<sample::Config>(&path, &ENV);
        prop_assert_eq!(loaded.text.map(String::into_bytes), String::from_utf8(bytes).ok().map(String::into_bytes));
    }

    #[test]
    fn any_text_that_looks_like_a_config_is_read_without_a_panic(
        text in r#"([{}\[\]:,'"/*\\$\n]|gateway|agents|list|env|vars|\$include|\$\{[A-Z]*\}|0x1|-|\+|\.5|1e9|é|null|true| ){0,40}"#,
    ) {
        let loaded = read_as(&text);
        prop_assert_eq!(loaded.text, Some(text));
    }
}
