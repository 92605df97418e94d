//! A small JSON Schema validator for the parameters of RPC methods and tools.
//!
//! It supports the keywords that both generations and our tools use: `type`, `required`, `properties`,
//! `additionalProperties`, `items`, `enum`, `const`, `minLength`, `maxLength`, `minimum`, `maximum` and `anyOf`. Others
//! are not checked. A schema is compiled once; its errors are worded as OpenClaw's clients know them.

use std::fmt;

use serde_json::{Map, Value};

/// One validation error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaViolation {
    /// Location: empty for the value itself, else a JSON pointer such as `/client/id`.
    pub path: String,
    /// Description of the error.
    pub message: String,
}

impl fmt::Display for SchemaViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // OpenClaw names the root only for unexpected properties.
        match self.path.as_str() {
            "" if self.message.starts_with("unexpected") => write!(f, "at root: {}", self.message),
            "" => f.write_str(&self.message),
            path => write!(f, "at {path}: {}", self.message),
        }
    }
}

/// Maximum number of reported errors.
const MAX_REPORTED: usize = 20;

/// Formats the errors in one line, for an error response. Only the first ones are listed; the others are counted.
pub fn summary(problems: &[SchemaViolation]) -> String {
    let mut messages: Vec<_> = problems.iter().take(MAX_REPORTED).map(ToString::to_string).collect();
    if problems.len() > MAX_REPORTED {
        messages.push(format!("and {} more", problems.len() - MAX_REPORTED));
    }
    messages.join("; ")
}

/// A compiled schema.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    types: Vec<Type>,
    required: Vec<String>,
    properties: Vec<(String, Self)>,
    closed: bool,
    items: Option<Box<Self>>,
    allowed: Option<Vec<Value>>,
    constant: Option<Value>,
    length: (Option<u64>, Option<u64>),
    range: (Option<f64>, Option<f64>),
    any_of: Vec<Self>,
}

impl Schema {
    /// Returns the known members of an object.
    pub fn property_names(&self) -> impl Iterator<Item = &str> {
        self.properties.iter().map(|(name, _)| name.as_str())
    }

    /// True if other members are refused.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns a valid value: for an object, the required members and the member named `optional`.
    #[cfg(test)]
    pub(crate) fn example(&self, optional: Option<&str>) -> Value {
        if let Some(constant) = &self.constant {
            return constant.clone();
        }
        if let Some(allowed) = &self.allowed {
            return allowed.first().cloned().unwrap_or_default();
        }
        if let Some(first) = self.any_of.first() {
            return first.example(None);
        }
        match self.types.first() {
            Some(Type::Object) => {
                let is_included = |name: &str| {
                    self.required.iter().any(|required_name| required_name == name) || optional == Some(name)
                };
                let members = self.properties.iter().filter(|(name, _)| is_included(name));
                Value::Object(members.map(|(name, schema)| (name.clone(), schema.example(None))).collect())
            }
            Some(Type::Array) => Value::Array(self.items.iter().map(|items| items.example(None)).collect()),
            Some(Type::Number | Type::Integer) => self.range.0.map_or(1, |min| min.max(1.0) as u64).into(),
            Some(Type::Boolean) => true.into(),
            Some(Type::Null) => Value::Null,
            Some(Type::String) | None => "a1b2c3d4".into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Object,
    Array,
    String,
    Number,
    Integer,
    Boolean,
    Null,
}

impl Type {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "number" => Self::Number,
            "integer" => Self::Integer,
            "boolean" => Self::Boolean,
            "null" => Self::Null,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Null => "null",
        }
    }

    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Integer => value.as_f64().is_some_and(|n| n.fract() == 0.0),
            Self::Boolean => value.is_boolean(),
            Self::Null => value.is_null(),
        }
    }

    /// Converts a value to this type if the intent is obvious: `"5"` to 5, `"true"` to true, 5 to `"5"`.
    fn coerce(self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Self::Number | Self::Integer, Value::String(text)) => {
                let number: Value = serde_json::from_str(text.trim()).ok()?;
                self.fits(&number).then_some(number)
            }
            (Self::Boolean, Value::String(text)) => match text.trim() {
                "true" => Some(Value::Bool(true)),
                "false" => Some(Value::Bool(false)),
                _ => None,
            },
            (Self::String, Value::Number(number)) => Some(Value::String(number.to_string())),
            (Self::String, Value::Bool(flag)) => Some(Value::String(flag.to_string())),
            _ => None,
        }
    }
}

impl Schema {
    /// Compiles a schema. Keywords of an unexpected shape are ignored, like unknown ones.
    pub fn compile(schema: &Value) -> Self {
        let list = |key: &str| schema.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let types = match schema.get("type") {
            Some(Value::String(name)) => Type::parse(name).into_iter().collect(),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).filter_map(Type::parse).collect(),
            _ => Vec::new(),
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        Self {
            types,
            required: list("required").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            properties: properties.into_iter().flatten().map(|(k, v)| (k.clone(), Self::compile(v))).collect(),
            closed: schema.get("additionalProperties") == Some(&Value::Bool(false)),
            items: schema.get("items").filter(|items| items.is_object()).map(|items| Box::new(Self::compile(items))),
            allowed: schema.get("enum").and_then(Value::as_array).cloned(),
            constant: schema.get("const").cloned(),
            length: (schema.get("minLength").and_then(Value::as_u64), schema.get("maxLength").and_then(Value::as_u64)),
            range: (schema.get("minimum").and_then(Value::as_f64), schema.get("maximum").and_then(Value::as_f64)),
            any_of: list("anyOf").iter().map(Self::compile).collect(),
        }
    }

    /// Returns all validation errors of a value.
    pub fn check(&self, value: &Value) -> Vec<SchemaViolation> {
        let mut problems = Vec::new();
        self.visit(value, "", &mut problems);
        problems
    }

    /// Returns a copy of `value` with obvious type errors corrected; the others are left for [`check`](Self::check).
    pub fn coerce(&self, value: &Value) -> Value {
        if !self.types.is_empty()
            && !self.types.iter().any(|kind| kind.fits(value))
            && let Some(coerced) = self.types.iter().find_map(|kind| kind.coerce(value))
        {
            return coerced;
        }
        match value {
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(key, field)| {
                        let schema = self.properties.iter().find(|(name, _)| name == key).map(|(_, schema)| schema);
                        (key.clone(), schema.map_or_else(|| field.clone(), |schema| schema.coerce(field)))
                    })
                    .collect(),
            ),
            Value::Array(items) => match &self.items {
                Some(schema) => Value::Array(items.iter().map(|item| schema.coerce(item)).collect()),
                None => value.clone(),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }

    fn visit(&self, value: &Value, path: &str, problems: &mut Vec<SchemaViolation>) {
        let mut report = |message: String| problems.push(SchemaViolation { path: path.to_owned(), message });
        if !self.types.is_empty() && !self.types.iter().any(|kind| kind.fits(value)) {
            let names: Vec<_> = self.types.iter().map(|kind| kind.name()).collect();
            return report(format!("must be {}", names.join(",")));
        }
        if self.allowed.as_ref().is_some_and(|allowed| !allowed.contains(value)) {
            report("must be equal to one of the allowed values".to_owned());
        }
        if self.constant.as_ref().is_some_and(|constant| constant != value) {
            report("must be equal to constant".to_owned());
        }
        if !self.any_of.is_empty() && !self.any_of.iter().any(|schema| schema.check(value).is_empty()) {
            report("must match a schema in anyOf".to_owned());
        }
        match value {
            Value::String(text) => {
                let length = text.chars().count() as u64;
                if let Some(min) = self.length.0.filter(|&min| length < min) {
                    report(format!("must NOT have fewer than {min} characters"));
                }
                if let Some(max) = self.length.1.filter(|&max| length > max) {
                    report(format!("must NOT have more than {max} characters"));
                }
            }
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                if let Some(min) = self.range.0.filter(|&min| number < min) {
                    report(format!("must be >= {min}"));
                }
                if let Some(max) = self.range.1.filter(|&max| number > max) {
                    report(format!("must be <= {max}"));
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for (index, item) in items.iter().enumerate() {
                        schema.visit(item, &format!("{path}/{index}"), problems);
                    }
                }
            }
            Value::Object(fields) => self.visit_fields(fields, path, problems),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn visit_fields(&self, fields: &Map<String, Value>, path: &str, problems: &mut Vec<SchemaViolation>) {
        let mut report = |message: String| problems.push(SchemaViolation { path: path.to_owned(), message });
        for name in self.required.iter().filter(|name| !fields.contains_key(*name)) {
            report(format!("must have required property '{name}'"));
        }
        let schema_of =
            |name: &str| self.properties.iter().find(|(property, _)| property == name).map(|(_, schema)| schema);
        for name in fields.keys().filter(|name| self.closed && schema_of(name).is_none()) {
            report(format!("unexpected property '{name}'"));
        }
        for (name, field) in fields {
            if let Some(schema) = schema_of(name) {
                schema.visit(field, &format!("{path}/{name}"), problems);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        Schema::compile(&json!({
            "type": "object", "additionalProperties": false, "required": ["message"],
            "properties": {
                "message": {"type": "string", "minLength": 1},
                "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
                "mode": {"enum": ["a", "b"]},
                "list": {"type": "array", "items": {"type": "number"}},
            },
        }))
    }

    #[test]
    fn violations_are_worded_as_clients_expect() {
        let summary_of = |value: Value| summary(&schema().check(&value));
        assert_eq!(summary_of(json!({"message": "x", "limit": 3, "mode": "b", "list": [1]})), "");
        assert_eq!(summary_of(json!("str")), "must be object");
        assert_eq!(summary_of(json!({})), "must have required property 'message'");
        assert_eq!(summary_of(json!({"message": "x", "foo": 1})), "at root: unexpected property 'foo'");
        assert_eq!(summary_of(json!({"message": "x", "limit": 1001})), "at /limit: must be <= 1000");
        assert_eq!(summary_of(json!({"message": "x", "limit": 1.5})), "at /limit: must be integer");
        assert_eq!(summary_of(json!({"message": ""})), "at /message: must NOT have fewer than 1 characters");
        assert_eq!(
            summary_of(json!({"message": "x", "mode": "c"})),
            "at /mode: must be equal to one of the allowed values"
        );
        assert_eq!(summary_of(json!({"message": "x", "list": [1, "y"]})), "at /list/1: must be number");
    }

    #[test]
    fn simple_type_mistakes_are_coerced() {
        let coerced = schema().coerce(&json!({"message": 5, "limit": "7", "list": ["1.5", "x"]}));
        assert_eq!(coerced, json!({"message": "5", "limit": 7, "list": [1.5, "x"]}));
    }
}
