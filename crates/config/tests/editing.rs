//! Edits of random JSON5 files: the value is the requested one, and every other byte is unchanged.
#![allow(clippy::unwrap_used, reason = "tests may")]

use homard_config::{
    edit,
    path::{Path, Step, get},
};
use jsonc_parser::{
    CollectOptions, CommentCollectionStrategy, ParseOptions, ast,
    common::{Range, Ranged},
    parse_to_ast, parse_to_serde_value,
    tokens::{Token, TokenAndRange},
};
use proptest::prelude::*;
use serde_json::Value;

fn parse(text: &str) -> Value {
    let text = text.trim_start_matches('\u{feff}');
    parse_to_serde_value::<Option<Value>>(text, &ParseOptions::default()).unwrap().unwrap_or(Value::Null)
}

/// Text that users put between tokens.
fn gap() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "",
        "",
        " ",
        "  ",
        "\t",
        "\n",
        "\n  ",
        "\n\n    ",
        "\r\n\t",
        " // a, b: {1}\n",
        "//\n  ",
        "/* ], */",
        " /* x\n */ ",
        "\n  // \"key\": 'v'\n  ",
        "\u{a0}",
    ])
}

fn name() -> impl Strategy<Value = String> {
    // Few names, so that some objects have duplicates.
    prop::sample::select(vec!["a", "b", "'b'", "\"c\"", "\"c.d\"", "'\\u0065'", "$include", "\"\"", "\"0\"", "\"é\""])
        .prop_map(str::to_owned)
}

fn scalar() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "1",
        "-2",
        "0x1F",
        "+3",
        ".5",
        "true",
        "null",
        "'x'",
        "\"y,]}\"",
        "'it\\'s // no comment'",
        "\"a\\\nb\"",
        "''",
    ])
    .prop_map(str::to_owned)
}

/// A list or object around items, with arbitrary text between them.
fn container(items: impl Strategy<Value = String>, ends: [char; 2]) -> impl Strategy<Value = String> {
    let items = prop::collection::vec((gap(), items, gap()), 0..5);
    (items, any::<bool>(), gap()).prop_map(move |(items, trailing_comma, last)| {
        let mut text = String::from(ends[0]);
        let count = items.len();
        for (at, (before, item, after)) in items.into_iter().enumerate() {
            let comma = if at + 1 < count || trailing_comma { "," } else { "" };
            text.push_str(&format!("{before}{item}{after}{comma}"));
        }
        text.push_str(last);
        text.push(ends[1]);
        text
    })
}

fn member(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (name(), gap(), gap(), value).prop_map(|(name, before, after, value)| {
        // The parser treats a slash directly after a bare name as a part of it.
        let space = if before.starts_with('/') { " " } else { "" };
        format!("{name}{space}{before}:{after}{value}")
    })
}

fn json5() -> impl Strategy<Value = String> {
    let inner = scalar().prop_recursive(4, 40, 5, |inner| {
        prop_oneof![container(inner.clone(), ['[', ']']), container(member(inner), ['{', '}'])]
    });
    let bom = prop::sample::select(vec!["", "", "\u{feff}"]);
    (bom, gap(), container(member(inner), ['{', '}']), gap())
        .prop_map(|(bom, before, root, after)| format!("{bom}{before}{root}{after}"))
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-c]|.{0,3}", inner), 0..4).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Chooses an existing value by the numbers.
fn existing(config: &Value, picks: &[usize]) -> Path {
    let mut path = Path::root();
    for pick in picks {
        path = match get(config, &path) {
            Some(Value::Object(object)) if !object.is_empty() => {
                path.key(object.keys().nth(pick % object.len()).unwrap())
            }
            Some(Value::Array(list)) if !list.is_empty() => path.index(pick % list.len()),
            _ => break,
        };
    }
    path
}

/// Returns the range of a value; of two equal keys the later one counts.
fn span(text: &str, path: &Path) -> (usize, usize) {
    let bom = text.len() - text.trim_start_matches('\u{feff}').len();
    let parsed =
        parse_to_ast(&text[bom..], &CollectOptions::default(), &ParseOptions::default()).unwrap().value.unwrap();
    let node = descend(&parsed, path.steps());
    (bom + node.start(), bom + node.end())
}

fn descend<'n, 't>(root: &'n ast::Value<'t>, steps: &[Step]) -> &'n ast::Value<'t> {
    steps.iter().fold(root, |node, step| match (node, step) {
        (ast::Value::Object(object), Step::Key(name)) => {
            &object.properties.iter().rfind(|property| property.name.as_str() == name).unwrap().value
        }
        (ast::Value::Array(array), Step::Index(at)) => &array.elements[*at],
        _ => panic!("the path does not fit"),
    })
}

/// Returns the comments outside of these ranges.
fn comments(text: &str, excluded: &[Range]) -> Vec<String> {
    let bom = text.len() - text.trim_start_matches('\u{feff}').len();
    let text = &text[bom..];
    let options = CollectOptions { comments: CommentCollectionStrategy::AsTokens, tokens: true };
    let tokens = parse_to_ast(text, &options, &ParseOptions::default()).unwrap().tokens.unwrap();
    let is_comment = |token: &&TokenAndRange<'_>| matches!(token.token, Token::CommentLine(_) | Token::CommentBlock(_));
    let is_outside =
        |token: &&TokenAndRange<'_>| !excluded.iter().any(|span| (span.start..span.end).contains(&token.range.start));
    let comments = tokens.iter().filter(is_comment).filter(is_outside);
    comments.map(|token| text[token.range.start..token.range.end].to_owned()).collect()
}

/// Returns the ranges of a member or item, including duplicates.
fn spans(text: &str, path: &Path) -> Vec<Range> {
    let text = text.trim_start_matches('\u{feff}');
    let (last, parents) = path.steps().split_last().unwrap();
    let root = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default()).unwrap().value.unwrap();
    match (descend(&root, parents), last) {
        (ast::Value::Object(object), Step::Key(name)) => {
            let equal = object.properties.iter().filter(|property| property.name.as_str() == name);
            equal.map(Ranged::range).collect()
        }
        (ast::Value::Array(array), Step::Index(at)) => vec![array.elements[*at].range()],
        _ => panic!("the path does not fit"),
    }
}

fn with(config: &Value, path: &Path, value: &Value) -> Value {
    let mut config = config.clone();
    let mut node = &mut config;
    for step in path.steps() {
        node = match (node, step) {
            (Value::Object(object), Step::Key(name)) => object.entry(name.clone()).or_insert(Value::Null),
            (Value::Array(list), Step::Index(at)) => {
                if *at == list.len() {
                    list.push(Value::Null);
                }
                &mut list[*at]
            }
            _ => panic!("the path does not fit"),
        };
    }
    node.clone_from(value);
    config
}

fn picks() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(any::<usize>(), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_value_is_replaced_and_the_bytes_around_it_stay(text in json5(), picks in picks(), value in value()) {
        let old = parse(&text);
        let path = existing(&old, &picks);
        let new = edit::set(&text, &path, &value).unwrap();
        prop_assert_eq!(parse(&new), with(&old, &path, &value));
        let (start, end) = span(&text, &path);
        prop_assert!(new.starts_with(&text[..start]) && new.ends_with(&text[end..]), "{} -> {}", text, new);
        prop_assert!(new.len() >= start + text.len() - end);
        prop_assert_eq!(edit::set(&new, &path, &value), Ok(new), "twice");
        prop_assert_eq!(edit::set(&text, &path, get(&old, &path).unwrap()), Ok(text), "what is there");
    }

    // Guaranteed: inserting and removing a member or item restores the bytes, unless its container was blank: that
    // becomes a bare pair of brackets.
    #[test]
    fn inserting_and_removing_restores_the_text(text in json5(), picks in picks(), value in value()) {
        let old = parse(&text);
        let mut parent = existing(&old, &picks);
        while !matches!(get(&old, &parent), Some(Value::Object(_) | Value::Array(_))) {
            parent = existing(&old, &picks[..parent.steps().len() - 1]);
        }
        let path = match get(&old, &parent) {
            Some(Value::Array(list)) => parent.index(list.len()),
            _ => parent.key("new key"),
        };
        let new = edit::set(&text, &path, &value).unwrap();
        prop_assert_eq!(parse(&new), with(&old, &path, &value));
        let (start, end) = span(&text, &parent);
        prop_assert!(new.starts_with(&text[..=start]) && new.ends_with(&text[end - 1..]), "{} -> {}", text, new);
        let is_blank = text[start + 1..end - 1].trim().is_empty();
        let restored = if is_blank { format!("{}{}", &text[..=start], &text[end - 1..]) } else { text };
        prop_assert_eq!(edit::unset(&new, &path), Ok((restored, true)));
    }

    #[test]
    fn removing_keeps_other_values_and_all_comments(text in json5(), picks in picks()) {
        let old = parse(&text);
        let path = existing(&old, &picks);
        let Some((last, parents)) = path.steps().split_last() else { return Ok(()) };
        let (new, was_there) = edit::unset(&text, &path).unwrap();
        prop_assert!(was_there);
        let mut expected = old.clone();
        let target = parents.iter().fold(&mut expected, |node, step| match step {
            Step::Key(name) => &mut node[name.as_str()],
            Step::Index(at) => &mut node[*at],
        });
        match (target, last) {
            (Value::Object(object), Step::Key(name)) => drop(object.shift_remove(name)),
            (Value::Array(list), Step::Index(at)) => drop(list.remove(*at)),
            _ => panic!("the path does not fit"),
        }
        let is_repeated = |list: &Value| list.as_array().is_some_and(|list| {
            list.iter().filter(|item| Some(*item) == get(&old, &path)).count() > 1
        });
        let old_parent = parents.iter().fold(&old, |node, step| match step {
            Step::Key(name) => &node[name.as_str()],
            Step::Index(at) => &node[*at],
        });
        // Of equal items the last one is removed, which may have had another comment inside.
        if !is_repeated(old_parent) {
            prop_assert_eq!(comments(&new, &[]), comments(&text, &spans(&text, &path)));
        }
        prop_assert_eq!(parse(&new), expected);
        prop_assert_eq!(edit::unset(&text, &path.key("not there")), Ok((text, false)));
    }

    #[test]
    fn any_text_can_be_replaced_by_any_value(text in json5(), other in json5(), patch in value()) {
        let value = parse(&other);
        let new = edit::replace(&text, &value).unwrap();
        prop_assert_eq!(&parse(&new), &value);
        prop_assert_eq!(edit::replace(&new, &value), Ok(new));
        prop_assert!(edit::merge_patch(&text, &patch).is_ok());
    }

    #[test]
    fn any_text_is_edited_or_rejected(text in any::<String>(), value in value()) {
        if let Ok(new) = edit::set(&text, &Path::root().key("a"), &value) {
            prop_assert_eq!(&parse(&new)["a"], &value);
        }
    }
}
