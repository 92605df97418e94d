//! Parses JSON5 into a tree in which every value has its location.

use std::collections::{BTreeSet, HashMap};

use jsonc_parser::{CollectOptions, ParseOptions, ast, common::Ranged, parse_to_ast};
use serde_json::{Map, Number, Value};

use crate::{
    path::{Path, Step},
    problem,
};

/// Maximum nesting depth of one file.
const MAX_NESTING: usize = 64;

/// The supported JSON5 syntax.
pub(crate) const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: true,
    allow_trailing_commas: true,
    // Required by JSON5; without them, a forgotten quote could be read as something else.
    allow_missing_commas: false,
    allow_single_quoted_strings: true,
    allow_hexadecimal_numbers: true,
    allow_unary_plus_numbers: true,
    allow_bare_decimal_point_numbers: true,
    // JSON has no such numbers, so they could be neither stored nor sent.
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: true,
};

/// Location: the number of the file, in the order of reading, and the byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourceOffset {
    pub(crate) file: usize,
    pub(crate) offset: usize,
}

/// A value and its location.
#[derive(Clone)]
pub(crate) struct TreeNode {
    /// `None` for values that were not read from a user's file.
    pub(crate) at: Option<SourceOffset>,
    pub(crate) kind: Kind,
}

/// Content of a value.
#[derive(Clone)]
pub(crate) enum Kind {
    Object(Vec<TreeMember>),
    Array(Vec<TreeNode>),
    /// Neither an object nor a list.
    Scalar(Value),
}

/// A key of an object and its value.
#[derive(Clone)]
pub(crate) struct TreeMember {
    pub(crate) name: String,
    pub(crate) at: Option<SourceOffset>,
    pub(crate) node: TreeNode,
}

/// Formats a path.
pub(crate) fn dotted(steps: &[Step]) -> String {
    path(steps).to_string()
}

/// Returns the path of these steps.
pub(crate) fn path(steps: &[Step]) -> Path {
    steps.iter().fold(Path::root(), |path, step| match step {
        Step::Key(name) => path.key(name),
        Step::Index(index) => path.index(*index),
    })
}

/// Why a text cannot be parsed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) message: String,
    pub(crate) at: SourceOffset,
}

/// Result of parsing a text.
pub(crate) struct ParsedFile {
    pub(crate) node: TreeNode,
    /// Duplicate keys; the later one counts.
    pub(crate) repeated: Vec<(Vec<Step>, SourceOffset)>,
}

/// Parses the text of one file; an empty one is an empty object.
pub(crate) fn parse(text: &str, file: usize) -> Result<ParsedFile, SyntaxError> {
    let at = |offset| SourceOffset { file, offset };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS).map_err(|error| SyntaxError {
        message: error.kind().to_string().to_lowercase(),
        at: at(error.range().start),
    })?;
    let mut builder = TreeBuilder { file, steps: Vec::new(), repeated: Vec::new() };
    let node = match parsed.value {
        Some(value) => builder.node(value)?,
        None => TreeNode { at: Some(at(0)), kind: Kind::Object(Vec::new()) },
    };
    Ok(ParsedFile { node, repeated: builder.repeated })
}

struct TreeBuilder {
    file: usize,
    steps: Vec<Step>,
    repeated: Vec<(Vec<Step>, SourceOffset)>,
}

impl TreeBuilder {
    fn node(&mut self, value: ast::Value<'_>) -> Result<TreeNode, SyntaxError> {
        let at = SourceOffset { file: self.file, offset: value.start() };
        let syntax_error = |message: String| SyntaxError { message, at };
        if self.steps.len() > MAX_NESTING {
            return Err(syntax_error(format!("nested more than {MAX_NESTING} levels deep")));
        }
        let kind = match value {
            ast::Value::Object(object) => Kind::Object(self.members(object)?),
            ast::Value::Array(array) => {
                let mut nodes = Vec::with_capacity(array.elements.len());
                for (index, value) in array.elements.into_iter().enumerate() {
                    self.steps.push(Step::Index(index));
                    nodes.push(self.node(value)?);
                    self.steps.pop();
                }
                Kind::Array(nodes)
            }
            ast::Value::StringLit(text) => Kind::Scalar(Value::String(text.value.into_owned())),
            ast::Value::NumberLit(text) => {
                let number = number(text.value).ok_or_else(|| syntax_error("the number is too large".to_owned()))?;
                Kind::Scalar(Value::Number(number))
            }
            ast::Value::BooleanLit(value) => Kind::Scalar(Value::Bool(value.value)),
            ast::Value::NullKeyword(_) => Kind::Scalar(Value::Null),
        };
        Ok(TreeNode { at: Some(at), kind })
    }

    fn members(&mut self, object: ast::Object<'_>) -> Result<Vec<TreeMember>, SyntaxError> {
        let mut members: Vec<TreeMember> = Vec::with_capacity(object.properties.len());
        let mut index = HashMap::new();
        for property in object.properties {
            let at = SourceOffset { file: self.file, offset: property.start() };
            let name = property.name.into_string();
            self.steps.push(Step::Key(name.clone()));
            let member = TreeMember { name: name.clone(), at: Some(at), node: self.node(property.value)? };
            match index.get(&name) {
                Some(&earlier) => {
                    if self.repeated.len() < problem::MAX_PROBLEMS {
                        self.repeated.push((self.steps.clone(), at));
                    }
                    members[earlier] = member;
                }
                None => {
                    index.insert(name, members.len());
                    members.push(member);
                }
            }
            self.steps.pop();
        }
        Ok(members)
    }
}

fn number(text: &str) -> Option<Number> {
    let (minus, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let whole = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => Some(i128::from(u64::from_str_radix(hex, 16).ok()?)),
        None => digits.parse::<u64>().ok().map(i128::from),
    };
    let signed = whole.map(|whole| if minus { -whole } else { whole });
    if let Some(number) = signed.and_then(Number::from_i128) {
        return Some(number);
    }
    let fraction = digits.parse::<f64>().ok()?;
    Number::from_f64(if minus { -fraction } else { fraction })
}

impl TreeNode {
    /// Creates a tree without locations.
    pub(crate) fn without_locations(value: Value) -> Self {
        let kind = match value {
            Value::Object(members) => {
                let member = |(name, value)| TreeMember { name, at: None, node: Self::without_locations(value) };
                Kind::Object(members.into_iter().map(member).collect())
            }
            Value::Array(values) => Kind::Array(values.into_iter().map(Self::without_locations).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Kind::Scalar(value),
        };
        Self { at: None, kind }
    }

    /// Returns the plain value.
    pub(crate) fn value(&self) -> Value {
        match &self.kind {
            Kind::Object(members) => {
                let members = members.iter().map(|member| (member.name.clone(), member.node.value()));
                Value::Object(members.collect::<Map<_, _>>())
            }
            Kind::Array(nodes) => Value::Array(nodes.iter().map(Self::value).collect()),
            Kind::Scalar(value) => value.clone(),
        }
    }

    /// Returns the value of a key of this object.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Kind::Object(members) = &self.kind else { return None };
        members.iter().find(|member| member.name == name).map(|member| &member.node)
    }

    /// Returns the value at a path.
    pub(crate) fn find(&self, steps: &[Step]) -> Option<&Self> {
        steps.iter().try_fold(self, |node, step| match (step, &node.kind) {
            (Step::Key(key), _) => node.get(key),
            (Step::Index(index), Kind::Array(nodes)) => nodes.get(*index),
            (Step::Index(_), Kind::Object(_) | Kind::Scalar(_)) => None,
        })
    }

    /// Merges another tree on top of this one: objects by key, lists concatenated, otherwise the other wins.
    pub(crate) fn merged(self, top: Self) -> Self {
        let kind = match (self.kind, top.kind) {
            (Kind::Object(members), Kind::Object(more)) => Kind::Object(joined(members, more)),
            (Kind::Array(mut nodes), Kind::Array(more)) => {
                nodes.extend(more);
                Kind::Array(nodes)
            }
            (_, top) => top,
        };
        Self { at: top.at, kind }
    }
}

fn joined(members: Vec<TreeMember>, more: Vec<TreeMember>) -> Vec<TreeMember> {
    let index: HashMap<String, usize> =
        members.iter().enumerate().map(|(at, member)| (member.name.clone(), at)).collect();
    let mut slots: Vec<Option<TreeMember>> = members.into_iter().map(Some).collect();
    for member in more {
        let slot = index.get(&member.name).copied();
        match slot.and_then(|slot| slots[slot].take().map(|base| (slot, base))) {
            Some((slot, base)) => {
                let node = base.node.merged(member.node);
                slots[slot] = Some(TreeMember { name: member.name, at: member.at, node });
            }
            None => slots.push(Some(member)),
        }
    }
    slots.into_iter().flatten().collect()
}

/// Returns the tree without the values at these paths.
pub(crate) fn without(tree: &Value, omitted: &BTreeSet<Vec<Step>>) -> Value {
    fn copy(value: &Value, steps: &mut Vec<Step>, omitted: &BTreeSet<Vec<Step>>) -> Option<Value> {
        if omitted.contains(steps) {
            return None;
        }
        let mut copied = |step: Step, value: &Value| {
            steps.push(step);
            let copied = copy(value, steps, omitted);
            steps.pop();
            copied
        };
        Some(match value {
            Value::Object(members) => {
                let copied = members
                    .iter()
                    .filter_map(|(name, value)| Some((name.clone(), copied(Step::Key(name.clone()), value)?)));
                Value::Object(copied.collect())
            }
            Value::Array(values) => {
                let copied = values.iter().enumerate().filter_map(|(index, value)| copied(Step::Index(index), value));
                Value::Array(copied.collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        })
    }
    copy(tree, &mut Vec::new(), omitted).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Value {
        parse(text, 0).map(|parsed| parsed.node.value()).map_err(|error| error.message).unwrap()
    }

    fn error(text: &str) -> (String, usize) {
        match parse(text, 0) {
            Ok(_) => panic!("this should not be read"),
            Err(error) => (error.message, error.at.offset),
        }
    }

    #[test]
    fn json5_is_parsed() {
        assert_eq!(
            value("// mine\n{port: 0x1F90, 'bind': 'loop\\'back', list: [+.5, -1, 5., 1e2, null,], /* b */ on: true,}"),
            json!({"port": 8080, "bind": "loop'back", "list": [0.5, -1, 5.0, 100.0, null], "on": true})
        );
        assert_eq!(value(" // nothing\n"), json!({}));
        assert_eq!(value("[18446744073709551615, -9223372036854775808]"), json!([u64::MAX, i64::MIN]));
    }

    #[test]
    fn a_syntax_error_has_its_offset() {
        assert_eq!(error("{\n  a: 1\n  b: 2\n}"), ("expected comma".to_owned(), 8));
        assert_eq!(error("{a: 1"), ("unterminated object".to_owned(), 0));
        assert_eq!(error("{a: 1e999}"), ("the number is too large".to_owned(), 4));
        assert_eq!(error(&"[".repeat(70_000)).0, "maximum nesting depth exceeded");
        let deep = format!("{}{}", "[".repeat(70), "]".repeat(70));
        assert_eq!(error(&deep), ("nested more than 64 levels deep".to_owned(), 65));
    }

    #[test]
    fn of_duplicate_keys_the_last_counts_and_is_reported() {
        let parsed = parse("{a: {b: 1, c: 2, b: 3}}", 0).map_err(|error| error.message).unwrap();
        assert_eq!(parsed.node.value(), json!({"a": {"b": 3, "c": 2}}));
        let steps = vec![Step::Key("a".to_owned()), Step::Key("b".to_owned())];
        assert_eq!(parsed.repeated, [(steps, SourceOffset { file: 0, offset: 17 })]);
    }

    #[test]
    fn a_merge_joins_objects_and_lists() {
        let node = |value| TreeNode::without_locations(value);
        let below = node(json!({"a": {"x": 1, "y": [1]}, "b": 1, "c": {"z": 1}}));
        let top = node(json!({"a": {"y": [2], "w": 2}, "c": 7, "d": 2}));
        assert_eq!(below.merged(top).value(), json!({"a": {"x": 1, "y": [1, 2], "w": 2}, "b": 1, "c": 7, "d": 2}));
    }

    #[test]
    fn values_are_omitted_by_path() {
        let omitted = BTreeSet::from([
            vec![Step::Key("a".to_owned()), Step::Index(1)],
            vec![Step::Key("b".to_owned()), Step::Key("c".to_owned())],
        ]);
        let tree = json!({"a": [1, 2, 3], "b": {"c": 1, "d": 2}});
        assert_eq!(without(&tree, &omitted), json!({"a": [1, 3], "b": {"d": 2}}));
    }
}
