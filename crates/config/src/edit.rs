//! Edits the text of a config file: comments, order, unknown keys, whitespace and quotes stay as the user wrote them.
//!
//! Every edit computes the new value of the file; `rewrite` then finds the smallest changes of the text. A comment is
//! removed only together with a value that contains it.

use jsonc_parser::{CollectOptions, parse_to_ast};
use serde_json::{Map, Value, json};

use crate::{
    file::Files,
    path::{Path, Step},
    problem::SourceLocation,
    rewrite::rewrite,
    tree,
};

/// Why a text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The file cannot be parsed, so it is not touched.
    #[error("{location}: {what}; correct the config file first")]
    Syntax {
        /// Location of the error.
        location: SourceLocation,
        /// Description of the error.
        what: String,
    },
    /// The path leads through a scalar.
    #[error("{} is {kind} and cannot contain other keys; unset it first", named(path))]
    Scalar {
        /// Path of the scalar.
        path: Path,
        /// Its type.
        kind: &'static str,
    },
    /// The path names a member of a list.
    #[error("{} is a list; select an item, as in {path}[0]", named(path))]
    List {
        /// Path of the list.
        path: Path,
    },
    /// The path names an item of an object.
    #[error("{} is an object, not a list, and has no item [{index}]; to use the index as a key, write {}", named(path), path.key(&index.to_string()))]
    Object {
        /// Path of the object.
        path: Path,
        /// Index of the item.
        index: usize,
    },
    /// The path names an item beyond the end of a list.
    #[error("{} has {len} items; to append one, use {}", named(path), path.index(*len))]
    BeyondEnd {
        /// Path of the list.
        path: Path,
        /// Length of the list.
        len: usize,
    },
    /// The whole config cannot be unset.
    #[error("the whole config cannot be unset; name a key")]
    Root,
    /// The result could not be parsed as intended, for example because it is nested too deeply.
    #[error("the changed config could not be parsed; it may be nested too deeply")]
    Unreadable,
}

/// Sets the value at a path; missing objects and lists on the way are created.
///
/// Of an existing value only the differences are changed. If an object takes its members from a file with `$include`,
/// the member is written next to the `$include` and overrides the file's; a list is appended to the file's.
pub fn set(text: &str, path: &Path, value: &Value) -> Result<String, EditError> {
    change(text, |config| put(config, path, value))
}

/// Removes the value at a path, and returns whether there was one.
pub fn unset(text: &str, path: &Path) -> Result<(String, bool), EditError> {
    let mut was_there = false;
    let text = change(text, |config| {
        was_there = take(config, path)?;
        Ok(())
    })?;
    Ok((text, was_there))
}

/// Applies a merge patch (RFC 7396): objects are merged, `null` removes, anything else replaces.
pub fn merge_patch(text: &str, patch: &Value) -> Result<String, EditError> {
    change(text, |config| {
        merge(config, patch);
        Ok(())
    })
}

/// Replaces the whole config by `value`. Parts of the text whose values are equal stay as they are.
pub fn replace(text: &str, value: &Value) -> Result<String, EditError> {
    change(text, |config| {
        config.clone_from(value);
        Ok(())
    })
}

fn change(text: &str, edit: impl FnOnce(&mut Value) -> Result<(), EditError>) -> Result<String, EditError> {
    let old = value(text)?;
    let mut new = old.clone();
    edit(&mut new)?;
    if old == new {
        return Ok(text.to_owned());
    }
    let text = rewrite(text, &old, &new).ok_or(EditError::Unreadable)?;
    if value(&text).is_ok_and(|parsed| parsed == new) { Ok(text) } else { Err(EditError::Unreadable) }
}

/// Parses a JSON5 value; `None` if the text is invalid or empty.
pub fn parse(text: &str) -> Option<Value> {
    let ast = parse_to_ast(text, &CollectOptions::default(), &tree::OPTIONS).ok()?.value;
    ast.is_some().then(|| value(text).ok()).flatten()
}

/// Parses the text of a file; an empty one is an empty object.
pub fn value(text: &str) -> Result<Value, EditError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = tree::parse(text, 0).map_err(|error| {
        let mut files = Files::new(std::path::Path::new(""));
        files.add(std::path::Path::new(""), text.to_owned());
        EditError::Syntax { location: files.location(error.at), what: error.message }
    })?;
    Ok(parsed.node.value())
}

fn put(config: &mut Value, path: &Path, value: &Value) -> Result<(), EditError> {
    let mut node = config;
    for (at, step) in path.steps().iter().enumerate() {
        // A created container has the type that the next step needs.
        let new_container = || match path.steps().get(at + 1) {
            Some(Step::Key(_)) => json!({}),
            Some(Step::Index(_)) => json!([]),
            None => Value::Null,
        };
        node = match (node, step) {
            (Value::Object(object), Step::Key(name)) => object.entry(name.clone()).or_insert_with(new_container),
            (Value::Object(_), Step::Index(index)) => {
                return Err(EditError::Object { path: path.first(at), index: *index });
            }
            (Value::Array(list), step) => {
                let Some(index) = step.list_index() else { return Err(EditError::List { path: path.first(at) }) };
                let len = list.len();
                if index == len {
                    list.push(new_container());
                }
                list.get_mut(index).ok_or_else(|| EditError::BeyondEnd { path: path.first(at), len })?
            }
            (scalar, _) => return Err(EditError::Scalar { path: path.first(at), kind: kind(scalar) }),
        };
    }
    node.clone_from(value);
    Ok(())
}

fn take(config: &mut Value, path: &Path) -> Result<bool, EditError> {
    let Some((last, parents)) = path.steps().split_last() else { return Err(EditError::Root) };
    let parent = parents.iter().try_fold(config, |node, step| match (node, step) {
        (Value::Object(object), Step::Key(name)) => object.get_mut(name),
        (Value::Array(list), step) => list.get_mut(step.list_index()?),
        (Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => None,
    });
    Ok(match (parent, last) {
        (Some(Value::Object(object)), Step::Key(name)) => object.shift_remove(name).is_some(),
        (Some(Value::Array(list)), step) => match step.list_index().filter(|index| *index < list.len()) {
            Some(index) => {
                list.remove(index);
                true
            }
            None => false,
        },
        (Some(Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None, _) => {
            false
        }
    })
}

fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return value.clone_from(patch) };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(object) = value else { return };
    for (name, patch) in patch {
        if patch.is_null() {
            object.shift_remove(name);
        } else {
            merge(object.entry(name.clone()).or_insert(Value::Null), patch);
        }
    }
}

fn named(path: &Path) -> String {
    if path.steps().is_empty() { "the config".to_owned() } else { path.to_string() }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    fn set_in(text: &str, at: &str, value: &Value) -> String {
        set(text, &path(at), value).unwrap()
    }

    fn edit_error(text: &str, at: &str) -> String {
        set(text, &path(at), &json!(1)).unwrap_err().to_string()
    }

    const FILE: &str = "// Mine.\n{\n  // The door.\n  gateway: {\n    port: 0x10, // hex\n    'bind': 'lan' // all\n  },\n\n  \
                        list: [1, 2], unknown: +.5,\n}\n";

    #[test]
    fn a_value_is_replaced_and_the_text_around_it_stays() {
        assert_eq!(set_in(FILE, "gateway.port", &json!(17)), FILE.replace("0x10", "17"));
        assert_eq!(set_in(FILE, "list.1", &json!({"a": [3]})), FILE.replace("[1, 2]", "[1, {\"a\": [3]}]"));
        assert_eq!(set_in(FILE, "gateway.port", &json!(16)), FILE);
        let object = json!({"port": 1, "bind": "lan"});
        assert_eq!(set_in(FILE, "gateway", &object), FILE.replace("0x10", "1"));
        assert_eq!(
            set_in(&format!("\u{feff}{FILE}"), "unknown", &json!(null)),
            format!("\u{feff}{}", FILE.replace("+.5", "null"))
        );
    }

    #[test]
    fn a_value_is_parsed_as_json5() {
        for (text, value) in [
            ("17", json!(17)),
            ("'x'", json!("x")),
            ("[1, {a: null},] // two", json!([1, {"a": null}])),
            (" true ", json!(true)),
        ] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        for text in ["", " ", "//host/share", "openai/gpt", "1.2.3", "1 2", "{a: 1", "-x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_new_key_is_formatted_like_its_siblings() {
        let token = FILE.replace("'lan' // all\n", "'lan', // all\n    \"auth\": {\n      \"token\": \"x\"\n    }\n");
        assert_eq!(set_in(FILE, "gateway.auth.token", &json!("x")), token);
        assert_eq!(set_in(FILE, "new[0]", &json!(1)), FILE.replace("+.5,\n", "+.5,\n  \"new\": [\n    1\n  ],\n"));
        assert_eq!(set_in(FILE, "list[2]", &json!(3)), FILE.replace("[1, 2]", "[1, 2, 3]"));
        assert_eq!(set_in("{a: {}}", "a.b.c", &json!([1, {}])), "{a: {\"b\": {\"c\": [1, {}]}}}");
        assert_eq!(
            set_in("{\r\n\ta: {}\r\n}", "a.b.c", &json!(1)),
            "{\r\n\ta: {\r\n\t\t\"b\": {\r\n\t\t\t\"c\": 1\r\n\t\t}\r\n\t}\r\n}"
        );
        assert_eq!(set_in("{\n    // none yet\n}", "a", &json!(1)), "{\n    // none yet\n  \"a\": 1\n}");
        assert_eq!(set_in("{a: 1 /* x, */ }", "b", &json!(2)), "{a: 1, /* x, */ \"b\": 2 }");
        assert_eq!(set_in("{\n  a: 1 }", "b", &json!(2)), "{\n  a: 1,\n  \"b\": 2 }");
    }

    #[test]
    fn an_empty_file_becomes_a_new_config() {
        let fresh = "{\n  \"gateway\": {\n    \"port\": 1\n  }\n}\n";
        assert_eq!(set_in("", "gateway.port", &json!(1)), fresh);
        assert_eq!(set_in(" \n\n", "gateway.port", &json!(1)), fresh);
        assert_eq!(set_in("{}", "gateway.port", &json!(1)), fresh.trim_end());
        assert_eq!(set_in("// soon", "gateway.port", &json!(1)), format!("// soon\n{fresh}"));
        assert_eq!(merge_patch("", &json!({"gateway": {"port": 1, "bind": null}})), Ok(fresh.to_owned()));
        assert_eq!(replace("", &json!({})), Ok(String::new()));
    }

    #[test]
    fn a_path_that_does_not_match_the_file_is_rejected() {
        assert_eq!(
            edit_error(FILE, "gateway.port.x"),
            "gateway.port is a number and cannot contain other keys; unset it first"
        );
        assert_eq!(edit_error("{a: null}", "a.b"), "a is null and cannot contain other keys; unset it first");
        assert_eq!(edit_error(FILE, "list.x"), "list is a list; select an item, as in list[0]");
        assert_eq!(edit_error(FILE, "list[3]"), "list has 2 items; to append one, use list[2]");
        assert_eq!(
            edit_error(FILE, "gateway[3]"),
            "gateway is an object, not a list, and has no item [3]; to use the index as a key, write gateway.3"
        );
        assert_eq!(edit_error("[]", "a"), "the config is a list; select an item, as in [0]");
        assert_eq!(edit_error("{}", "a[1]"), "a has 0 items; to append one, use a[0]");
        assert_eq!(unset(FILE, &Path::root()), Err(EditError::Root));
    }

    #[test]
    fn a_file_with_a_syntax_error_is_not_touched() {
        let expected = "line 2, column 7: expected comma; correct the config file first";
        let text = "{\n  a: 1\n  b: 2\n}";
        assert_eq!(edit_error(text, "a"), expected);
        assert_eq!(unset(text, &path("a")).unwrap_err().to_string(), expected);
        assert_eq!(merge_patch(text, &json!({})).unwrap_err().to_string(), expected);
        assert_eq!(replace(text, &json!({})).unwrap_err().to_string(), expected);
    }

    #[test]
    fn an_edit_that_cannot_be_parsed_back_is_rejected() {
        let deep = (0..70).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(set("{}", &path("a"), &deep), Err(EditError::Unreadable));
    }

    #[test]
    fn a_value_is_removed_with_its_comma_and_line() {
        let without = |text: &str, at: &str| unset(text, &path(at)).unwrap();
        let removed = |text: &str| (text.to_owned(), true);
        assert_eq!(without("{a: 1, b: 2, c: 3}", "a"), removed("{b: 2, c: 3}"));
        assert_eq!(without("{a: 1, b: 2, c: 3}", "b"), removed("{a: 1, c: 3}"));
        assert_eq!(without("{ a: 1, b: 2, c: 3 }", "c"), removed("{ a: 1, b: 2 }"));
        assert_eq!(without("{ a: 1 }", "a"), removed("{}"));
        assert_eq!(without("{\n  a: 1,\n  b: [2,\n3]\n}", "b"), removed("{\n  a: 1\n}"));
        assert_eq!(without("{\n  a: 1,\n  b: 2,\n}", "b"), removed("{\n  a: 1,\n}"));
        assert_eq!(without("{\r\n  a: 1,\r\n  b: 2,\r\n}", "a"), removed("{\r\n  b: 2,\r\n}"));
        assert_eq!(without("{\n  a: 1\n  , b: 2\n}", "a"), removed("{\n  b: 2\n}"));
        assert_eq!(without("[1, [2], 3]", "[1][0]"), removed("[1, [], 3]"));
        assert_eq!(without("[1, 2, 3]", "1"), removed("[1, 3]"));
        for absent in ["nope", "gateway.port.x", "list[2]", "list.x", "gateway[0]"] {
            assert_eq!(without(FILE, absent), (FILE.to_owned(), false), "{absent}");
        }
    }

    #[test]
    fn comments_around_a_removed_value_stay() {
        let without = |text: &str, at: &str| unset(text, &path(at)).unwrap().0;
        assert_eq!(without(FILE, "gateway.port"), FILE.replace("port: 0x10, // hex", "// hex"));
        assert_eq!(
            without(FILE, "gateway"),
            FILE.replace(&FILE[FILE.find("  gateway").unwrap()..FILE.find("\n  list").unwrap()], "")
        );
        assert_eq!(without("{a: 1 /* x, */, // y\n b: 2}", "a"), "{/* x, */ // y\n b: 2}");
        assert_eq!(without("{a: 1, // x\n b: 2}", "b"), "{a: 1 // x\n }");
        assert_eq!(without("{a: 1 // x\n}", "a"), "{// x\n}");
        assert_eq!(without("{/* x */ a: 1}", "a"), "{/* x */}");
    }

    #[test]
    fn a_member_is_written_next_to_an_include() {
        let text = "{\n  agents: {$include: './agents.json'}\n}";
        let expected = "{\n  agents: {$include: './agents.json', \"defaults\": {\"workspace\": \"~/w\"}}\n}";
        assert_eq!(set_in(text, "agents.defaults.workspace", &json!("~/w")), expected);
    }

    #[test]
    fn of_duplicate_keys_the_last_is_changed_and_all_are_removed() {
        assert_eq!(set_in("{a: 1, b: 2, a: 3}", "a", &json!(4)), "{a: 1, b: 2, a: 4}");
        assert_eq!(unset("{a: 1, b: 2, a: 3}", &path("a")), Ok(("{b: 2}".to_owned(), true)));
    }

    // Examples of RFC 7396, appendix A.
    #[test]
    fn a_merge_patch_follows_rfc_7396() {
        for (text, patch, result) in [
            ("{'a':'b'}", json!({"a": "c"}), json!({"a": "c"})),
            ("{'a':'b'}", json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            ("{'a':'b'}", json!({"a": null}), json!({})),
            ("{'a':'b','b':'c'}", json!({"a": null}), json!({"b": "c"})),
            ("{'a':['b']}", json!({"a": "c"}), json!({"a": "c"})),
            ("{'a':'c'}", json!({"a": ["b"]}), json!({"a": ["b"]})),
            ("{'a':{'b':'c'}}", json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            ("{'a':[{'b':'c'}]}", json!({"a": [1]}), json!({"a": [1]})),
            ("['a','b']", json!(["c", "d"]), json!(["c", "d"])),
            ("{'a':'b'}", json!(["c"]), json!(["c"])),
            ("{'a':'foo'}", json!(null), json!(null)),
            ("{'a':'foo'}", json!("bar"), json!("bar")),
            ("{'e':null}", json!({"a": 1}), json!({"e": null, "a": 1})),
            ("[1,2]", json!({"a": "b", "c": null}), json!({"a": "b"})),
            ("{}", json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            assert_eq!(value(&merge_patch(text, &patch).unwrap()), Ok(result), "{text} with {patch}");
        }
        let patch = json!({"gateway": {"bind": null, "mode": "local"}});
        let text = merge_patch(FILE, &patch).unwrap();
        assert_eq!(text, FILE.replace("'bind': 'lan' // all", "\"mode\": \"local\"\n    // all"));
    }

    #[test]
    fn a_replacement_makes_the_smallest_edits() {
        let text = "[\n  1, // one\n  {id: 'a', x: 1}, // a\n  3 // three\n]";
        let replaced = |value: Value| replace(text, &value).unwrap();
        assert_eq!(replaced(json!([1, 3])), "[\n  1, // one\n  // a\n  3 // three\n]");
        assert_eq!(replaced(json!([0, 1, {"id": "a", "x": 1}, 3])), text.replace("[\n", "[\n  0,\n"));
        assert_eq!(replaced(json!([1, 2, {"id": "a", "x": 1}, 3])), text.replace("one\n", "one\n  2,\n"));
        assert_eq!(
            replaced(json!([1, {"id": "a"}, 3, 4])),
            text.replace(", x: 1", "").replace("3 // three", "3, // three\n  4")
        );
        assert_eq!(replaced(json!([])), "[\n  // one\n  // a\n  // three\n]");
        assert_eq!(replaced(json!("x")), "\"x\"");
    }
}
