//! Templates such as `New mail from {{messages[0].from}}`. Pure.
//!
//! Templates are the owner's, the values are untrusted: a value is inserted once and never interpreted as a template.

use std::collections::BTreeMap;

use serde_json::Value;

/// Maximum size of a filled text in bytes: that of the largest usual request. One value may fill many placeholders.
pub(super) const MAX_BYTES: usize = 262_144;
/// Marks truncated text.
const TRUNCATION_MARK: &str = "\n…(cut)";

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template(Vec<TemplatePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    /// Path to a value.
    Placeholder(Vec<String>),
}

/// Values for placeholders.
#[derive(Debug, Clone, Copy)]
pub(super) struct TemplateValues<'a> {
    pub(super) payload: &'a Value,
    /// Headers by lower-case name, without those that contain secrets.
    pub(super) headers: &'a BTreeMap<String, String>,
    /// Query parameters.
    pub(super) query: &'a BTreeMap<String, String>,
    /// Path below that of all webhooks.
    pub(super) path: &'a str,
    /// Time of the request in ISO 8601.
    pub(super) now: &'a str,
}

impl Template {
    /// Parses a text. Anything that is not a placeholder, such as an unclosed `{{`, is literal text.
    pub fn parse(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((placeholder, remaining)) = after.split_once("}}") else { break };
            parts.push(TemplatePart::Text(before.to_owned()));
            parts.push(TemplatePart::Placeholder(parse_path(placeholder)));
            rest = remaining;
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        parts.retain(|part| *part != TemplatePart::Text(String::new()));
        Self(parts)
    }

    /// Returns the text with its placeholders filled.
    pub(super) fn fill(&self, values: TemplateValues<'_>) -> String {
        self.fill_with(values, |value| value)
    }

    /// Like [`fill`](Self::fill), applying `transform` to each value.
    pub(super) fn fill_with(&self, values: TemplateValues<'_>, transform: impl Fn(String) -> String) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(literal) => text.push_str(literal),
                TemplatePart::Placeholder(path) => text.push_str(&transform(values.find(path))),
            }
            if text.len() > MAX_BYTES {
                text.truncate(text.floor_char_boundary(MAX_BYTES));
                text.push_str(TRUNCATION_MARK);
                break;
            }
        }
        text
    }
}

/// Parses the path `a.b[0].c` to names and indices.
fn parse_path(placeholder: &str) -> Vec<String> {
    let names = placeholder.split(['.', '[', ']']).map(|name| name.trim().trim_matches(['"', '\'']));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

impl TemplateValues<'_> {
    /// Returns the value of a placeholder; empty if it does not exist.
    fn find(&self, steps: &[String]) -> String {
        let names: Vec<&str> = steps.iter().map(String::as_str).collect();
        match &names[..] {
            [] => String::new(),
            ["path"] => self.path.to_owned(),
            ["now"] => self.now.to_owned(),
            ["headers", name] => self.headers.get(&name.to_lowercase()).cloned().unwrap_or_default(),
            ["query", name] => self.query.get(*name).cloned().unwrap_or_default(),
            ["payload", names @ ..] | names => value_text(value(self.payload, names)),
        }
    }
}

fn value<'a>(payload: &'a Value, names: &[&str]) -> &'a Value {
    let mut found = payload;
    for name in names {
        let next = match found {
            Value::Object(fields) => fields.get(*name),
            Value::Array(items) => name.parse::<usize>().ok().and_then(|at| items.get(at)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        let Some(next) = next else { return &Value::Null };
        found = next;
    }
    found
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn filled(template: &str, payload: &Value) -> String {
        let headers = BTreeMap::from([("x-event".to_owned(), "push".to_owned())]);
        let query = BTreeMap::from([("Who".to_owned(), "me {{path}}".to_owned())]);
        let values =
            TemplateValues { payload, headers: &headers, query: &query, path: "git/hub", now: "2026-11-15T00:00:00Z" };
        Template::parse(template).fill(values)
    }

    #[test]
    fn placeholders_are_filled_from_the_request() {
        let payload = json!({
            "a": {"b": [{"c": "deep"}, 2]}, "n": 1.5, "t": true, "none": null, "path": "mine", "x-y": "dash",
            "headers": "own",
        });
        for (template, text) in [
            ("{{a.b[0].c}} and {{ a.b[1] }}", "deep and 2"),
            ("{{a.b.0.c}}", "deep"),
            ("{{a}}", r#"{"b":[{"c":"deep"},2]}"#),
            ("{{n}} {{t}} <{{none}}> <{{nobody.is.here[7]}}> <{{a.b[9]}}> <{{n.x}}>", "1.5 true <> <> <> <>"),
            ("{{path}} {{payload.path}} {{now}}", "git/hub mine 2026-11-15T00:00:00Z"),
            ("{{headers.X-Event}} {{headers}} {{query.Who}} <{{query.who}}>", "push own me {{path}} <>"),
            ("{{x-y}} {{a['b'][0][\"c\"]}}", "dash deep"),
            ("{{payload.n}}", "1.5"),
        ] {
            assert_eq!(filled(template, &payload), text, "{template}");
        }
        assert_eq!(filled("{{[1].x}}", &json!([{}, {"x": 3}])), "3");
    }

    #[test]
    fn malformed_placeholders_are_plain_text() {
        for text in ["", "plain", "{", "{{", "}}", "{{open", "{ {a} }", "a }} b", "{{a}", "ä {{ö"] {
            assert_eq!(filled(text, &json!({"a": "x"})), text);
        }
        assert_eq!(filled("<{{}}> <{{ . }}> {{a}}}", &json!({"a": "x"})), "<> <> x}");
    }

    #[test]
    fn a_value_is_never_a_template() {
        let payload =
            json!({"name": "{{secret}} {{headers.x-event}}", "half": "{{", "rest": "secret}}", "secret": "s"});
        assert_eq!(filled("{{name}}", &payload), "{{secret}} {{headers.x-event}}");
        assert_eq!(filled("{{half}}{{rest}}", &payload), "{{secret}}");
    }

    #[test]
    fn a_result_that_is_too_long_is_truncated() {
        let text = filled(&"{{a}}".repeat(1000), &json!({"a": "é".repeat(1000)}));
        assert_eq!(text.len(), MAX_BYTES + TRUNCATION_MARK.len());
        assert!(text.ends_with("é\n…(cut)"));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), ".{0,12}".prop_map(Value::from)];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("[a-c]{1}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn filling_any_template_never_panics(
            template in r#"([a-c.{}\[\]0-3 "']|\{\{|\}\}|path|headers\.|ß){0,24}"#, payload in any_json()
        ) {
            filled(&template, &payload);
        }

        #[test]
        fn values_are_inserted_unchanged(value in r"([a-z{}\[\].]|\{\{|\}\}){0,24}", before in "[a-z ]{0,8}") {
            let text = filled(&format!("{before}{{{{v}}}}!"), &json!({"v": value}));
            prop_assert_eq!(text, format!("{before}{value}!"));
        }
    }
}
