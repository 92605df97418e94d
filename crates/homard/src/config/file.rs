//! Reading the file: JSON5, and one clear error that says where it is wrong.

use std::{fs, io::ErrorKind, path::Path};

use anyhow::{Context, Result, bail};
use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::Value,
    common::Ranged,
    errors::{ParseError, ParseErrorKind},
    parse_to_ast, parse_to_serde_value,
};

use super::{Config, sections::Object};

const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: true,
    allow_trailing_commas: true,
    // JSON5 wants them; without, a forgotten quote reads as something else.
    allow_missing_commas: false,
    allow_single_quoted_strings: true,
    allow_hexadecimal_numbers: true,
    allow_unary_plus_numbers: true,
    allow_bare_decimal_point_numbers: true,
    allow_non_finite_numbers: true,
    allow_extended_string_escapes: true,
};

impl Config {
    /// Reads the file; one that is not there says nothing.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("cannot read config file {}", path.display())),
        };
        match Self::parse(&text) {
            Ok(config) => Ok(config),
            Err(wrong) => bail!(
                "config file {}, {wrong}\ncorrect the file, or use another one with HOMARD_CONFIG_PATH",
                path.display()
            ),
        }
    }

    /// Reads the file's text, or says where and why that does not work.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let config: Result<Option<Object<Self>>, _> = parse_to_serde_value(text, &OPTIONS);
        let config = config.map_err(|error| explain(text, &error))?;
        Ok(config.map(|config| config.0).unwrap_or_default())
    }
}

fn explain(text: &str, error: &ParseError) -> String {
    let place = format!("line {}, column {}", error.line_display(), error.column_display());
    let ParseErrorKind::Custom(why) = error.kind() else {
        return format!("{place}: {}", error.kind().to_string().to_lowercase());
    };
    match key_at(text, error.range().start) {
        Some(key) => format!("{place}: {key} {}", plain(why)),
        None => format!("{place}: the whole file {}", plain(why)),
    }
}

/// Says it without the value, which may be a secret, and without the names of Rust's types.
fn plain(why: &str) -> String {
    let Some((_, expected)) = why.rsplit_once(", expected ") else { return why.replace('`', "\"") };
    let wanted = match expected {
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number, zero or more",
        "a string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other => other,
    };
    format!("must be {wanted}")
}

/// The path of the deepest key whose value is at `place`.
fn key_at(text: &str, place: usize) -> Option<String> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS).ok()?;
    let root = parsed.value?;
    let mut path = String::new();
    let mut node = &root;
    loop {
        let here = |value: &Value<'_>| (value.start()..value.end().max(value.start() + 1)).contains(&place);
        let next = match node {
            Value::Object(object) => object.properties.iter().find(|property| here(&property.value)).map(|property| {
                let dot = if path.is_empty() { "" } else { "." };
                path.push_str(&format!("{dot}{}", property.name.as_str()));
                &property.value
            }),
            Value::Array(array) => {
                array.elements.iter().enumerate().find(|(_, value)| here(value)).map(|(at, value)| {
                    path.push_str(&format!("[{at}]"));
                    value
                })
            }
            Value::StringLit(_) | Value::NumberLit(_) | Value::BooleanLit(_) | Value::NullKeyword(_) => None,
        };
        match next {
            Some(next) => node = next,
            None => return (!path.is_empty()).then_some(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        Config::parse(text).unwrap_err()
    }

    #[test]
    fn json5_is_read_and_unknown_keys_are_let_be() {
        let config =
            Config::parse("\u{feff}// mine\n{gateway: {port: 0x1F90, 'bind': 'loopback',}, unknown: [+.5]}").unwrap();
        assert_eq!((config.gateway.port, config.gateway.bind.as_deref()), (Some(8080), Some("loopback")));
        assert_eq!(Config::parse(" // nothing\n").unwrap().gateway.port, None);
    }

    #[test]
    fn a_syntax_error_names_its_place() {
        assert_eq!(wrong("{\n  gateway: {port: 1\n"), "line 3, column 1: unterminated object");
        assert_eq!(wrong("{\n  a: 1\n  b: 2\n}"), "line 2, column 7: expected comma");
    }

    #[test]
    fn a_wrong_type_names_its_key_and_not_its_value() {
        assert_eq!(
            wrong("{\n  gateway: {port: \"s3cret\"}}"),
            "line 2, column 19: gateway.port must be a whole number from 0 to 65535"
        );
        assert_eq!(wrong("{gateway: {auth: 's3cret'}}"), "line 1, column 18: gateway.auth must be an object");
        assert_eq!(
            wrong("{agents: {list: [{id: 'a'}, {id: 7}]}}"),
            "line 1, column 34: agents.list[1].id must be a text in quotes"
        );
        assert_eq!(wrong("{agents: {list: [{}]}}"), "line 1, column 18: agents.list[0] missing field \"id\"");
        assert_eq!(
            wrong("{agents: {defaults: {model: {primary: []}}}}"),
            "line 1, column 39: agents.defaults.model.primary must be a text in quotes"
        );
        assert_eq!(
            wrong("{agents: {defaults: {model: 7}}}"),
            "line 1, column 29: agents.defaults.model must be a text such as \"provider/model\", or an object with \"primary\""
        );
        assert_eq!(wrong("{gateway: [1]}"), "line 1, column 11: gateway must be an object");
        assert_eq!(wrong("{agents: {list: [['a']]}}"), "line 1, column 18: agents.list[0] must be an object");
        assert_eq!(wrong("{models: {providers: []}}"), "line 1, column 22: models.providers must be an object");
        assert_eq!(
            wrong("{gateway: {auth: {\n  token: '${HOMARD_NOT_SET}'}}}"),
            "line 2, column 10: gateway.auth.token needs the environment variable HOMARD_NOT_SET, which is not set"
        );
        assert_eq!(wrong("[]"), "line 1, column 1: the whole file must be an object");
    }
}
