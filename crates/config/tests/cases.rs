//! Every folder in `cases` is a config with the expected problems, warnings, and remaining config.

use std::{fs, path::Path};

use homard_config::{LoadedConfig, ReadEnvironment, read};
use serde_json::{Value, json};

mod sample;

/// Formats the result of reading a config like `expected.txt`.
fn report(loaded: &LoadedConfig<sample::Config>) -> String {
    let mut text = String::new();
    for (kind, problems) in [("problem", &loaded.all_problems()), ("warning", &loaded.warnings)] {
        for problem in problems {
            text.push_str(&format!("{kind}: {problem}\n"));
        }
    }
    for (name, value) in &loaded.variables {
        text.push_str(&format!("variable: {name}={value}\n"));
    }
    text.push_str(&format!("config: {}\n", without_nulls(json!(loaded.config))));
    text
}

/// Removes unset values.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| (name, without_nulls(value)))
            .filter(|(_, value)| !value.is_null() && value.as_object().is_none_or(|members| !members.is_empty()))
            .collect(),
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[test]
fn every_case_gives_the_expected_report() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut folders: Vec<_> = fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert!(!folders.is_empty());
    let mut different = String::new();
    for folder in folders {
        let env = ReadEnvironment { variable: &sample::variable, secret: &sample::secret, include_roots: &[] };
        let report = report(&read(&folder.join("config.json"), &env));
        let expected = fs::read_to_string(folder.join("expected.txt")).unwrap_or_default();
        if report != expected {
            let name = folder.file_name().unwrap().to_string_lossy();
            different.push_str(&format!("{name}: expected\n{expected}but got\n{report}\n"));
        }
    }
    assert!(different.is_empty(), "{different}");
}
