//! Detects secrets in the config, and redacts them.
//!
//! Errs on the safe side: whatever could be a secret by its name is treated as one.

use std::collections::{BTreeMap, HashMap};

use jsonc_parser::{
    CollectOptions, CommentCollectionStrategy, ast,
    common::{Range, Ranged},
    parse_to_ast,
};
use serde_json::Value;

use crate::{
    path::{Path, Step},
    tree::{OPTIONS, path},
    variables::is_reference,
};

/// Sentinel in place of a secret.
pub const REDACTED: &str = "__OPENCLAW_REDACTED__";

/// Whether a value may be a secret, according to the names on its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecretContext {
    /// It is not a secret.
    Open,
    /// It is a secret.
    Secret,
    /// It is an object whose values are all secrets, like the environment variables of a program.
    AllValues,
    /// If it is a list, its items are secrets.
    List,
    /// It contains login data.
    Login,
    /// If it is a list, its items are command-line arguments: some may be secrets.
    Arguments,
}

/// Returns a copy with the sentinel in place of every secret. References such as `${NAME}` and `${file:PATH}` are not secrets.
pub fn redact(value: &Value) -> Value {
    hide(value, SecretContext::Open)
}

/// Returns the paths of all secrets that a config contains, instead of naming where they are.
pub fn secret_paths(value: &Value) -> Vec<String> {
    let (mut found, mut steps) = (Vec::new(), Vec::new());
    differences(value, &redact(value), &mut steps, &mut found);
    found
}

/// Collects the paths at which a redacted value differs from the original.
fn differences(value: &Value, redacted: &Value, steps: &mut Vec<Step>, found: &mut Vec<String>) {
    let mut descend = |step: Step, value: &Value, redacted: &Value| {
        steps.push(step);
        differences(value, redacted, steps, found);
        steps.pop();
    };
    match (value, redacted) {
        (Value::Object(members), Value::Object(others)) => {
            for (name, value) in members {
                others.get(name).into_iter().for_each(|other| descend(Step::Key(name.clone()), value, other));
            }
        }
        (Value::Array(items), Value::Array(others)) => {
            let pairs = items.iter().zip(others).enumerate();
            pairs.for_each(|(index, (value, other))| descend(Step::Index(index), value, other));
        }
        _ if value != redacted => found.push(path(steps).to_string()),
        _ => {}
    }
}

/// Replaces every secret in the text by the sentinel, also where a comment repeats one; everything else stays byte for
/// byte. For a text that cannot be parsed the result is empty, because its secrets cannot be located. A secret that
/// occurs only in a comment is not detected.
pub fn redact_text(text: &str) -> String {
    let (bom, text) = text.split_at(if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 });
    let options = CollectOptions { comments: CommentCollectionStrategy::Separate, ..CollectOptions::default() };
    let Ok(parsed) = parse_to_ast(text, &options, &OPTIONS) else { return String::new() };
    let found = parsed.value.as_ref().map(|root| secrets(root, SecretContext::Open)).unwrap_or_default();
    let secret_texts = spellings(&found, text);
    let mut replacements: BTreeMap<usize, (usize, String)> = BTreeMap::new();
    for FoundSecret { range, .. } in &found {
        let quote = if text[range.start..].starts_with('\'') { '\'' } else { '"' };
        replacements.insert(range.start, (range.end, format!("{quote}{REDACTED}{quote}")));
    }
    for comment in parsed.comments.iter().flat_map(HashMap::values).flat_map(|comments| comments.iter()) {
        let comment_text = &text[comment.start()..comment.end()];
        let result = secret_texts
            .iter()
            .fold(comment_text.to_owned(), |comment_text, secret| comment_text.replace(secret, REDACTED));
        replacements.insert(comment.start(), (comment.end(), result));
    }
    let mut result = bom.to_owned();
    let mut end = 0;
    for (start, (next, replacement)) in replacements {
        result.push_str(&text[end..start]);
        result.push_str(&replacement);
        end = next;
    }
    result + &text[end..]
}

/// A secret of a text: its range and its value.
struct FoundSecret {
    range: Range,
    value: String,
}

/// Minimum length of a secret that is also replaced in comments. A shorter one would match ordinary words by chance,
/// and is too short to protect anything.
const MIN_SECRET_CHARS: usize = 4;

/// Returns the texts to replace in comments: each secret as written and as parsed, longest first because one may be a
/// prefix of another.
fn spellings(found: &[FoundSecret], text: &str) -> Vec<String> {
    let written = found.iter().map(|secret| text[secret.range.start..secret.range.end].trim_matches(['"', '\'']));
    let mut all: Vec<String> =
        written.map(str::to_owned).chain(found.iter().map(|found| found.value.clone())).collect();
    all.retain(|secret| secret.chars().count() >= MIN_SECRET_CHARS);
    all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    all.dedup();
    all
}

/// Restores the old secrets where a client sent the sentinel. If there is no old value, the sentinel stays, and its
/// paths are the error: such a value must not be written. Items of lists are matched by their `id`, else by their
/// redacted value, else by their position.
pub fn restore(new: &mut Value, old: &Value) -> Result<(), Vec<Path>> {
    let mut unknown = Vec::new();
    refill(new, Some(old), SecretContext::Open, &Path::root(), &mut unknown);
    if unknown.is_empty() { Ok(()) } else { Err(unknown) }
}

/// True if a key of the reference, as in `models.providers.*.apiKey`, is a secret.
pub(crate) fn is_secret_key(key: &str) -> bool {
    let context = key.split('.').fold(SecretContext::Open, |context, name| {
        let plain = name.trim_end_matches("[]");
        (0..name[plain.len()..].len() / 2).fold(context.member(plain), |context, _| context.item())
    });
    context == SecretContext::Secret
}

impl SecretContext {
    /// Returns the context of a member of this object.
    fn member(self, name: &str) -> Self {
        match self {
            Self::AllValues if name == "vars" => Self::AllValues,
            Self::AllValues if name == "shellEnv" => Self::Open,
            Self::AllValues => Self::Secret,
            // A reference to a secret that is stored elsewhere.
            Self::Secret if matches!(name, "source" | "provider" | "id") => Self::Open,
            Self::Secret => Self::Secret,
            Self::Login if name == "value" => Self::Secret,
            Self::Open | Self::List | Self::Login | Self::Arguments => classify_name(name),
        }
    }

    /// Returns the context of an item of this list, when its neighbours are not known. [`Self::items`] also considers
    /// them, because a command-line argument may be secret depending on the flag before it.
    fn item(self) -> Self {
        match self {
            Self::Secret | Self::AllValues | Self::List => Self::Secret,
            Self::Open | Self::Login | Self::Arguments => Self::Open,
        }
    }

    /// Returns the contexts of all items of a list. Items that are not strings are `None`.
    fn items(self, texts: &[Option<&str>]) -> Vec<Self> {
        if self != Self::Arguments {
            return vec![self.item(); texts.len()];
        }
        let previous = std::iter::once(None).chain(texts.iter().copied());
        let context = |(previous, text): (Option<&str>, &Option<&str>)| {
            let is_value =
                previous.is_some_and(|previous| flag(previous).is_some_and(|name| classify_name(name) == Self::Secret));
            // The sentinel stands for a redacted value.
            let is_secret = |text: &str| text == REDACTED || is_secret_argument(text);
            if is_value || text.is_some_and(is_secret) { Self::Secret } else { Self::Open }
        };
        previous.zip(texts).map(context).collect()
    }

    fn hides_text(self, text: &str) -> bool {
        let is_open = text.is_empty() || text == REDACTED || is_reference(text);
        !is_open && (self == Self::Secret || has_login(text))
    }

    fn hides(self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.hides_text(text),
            Value::Number(_) => self == Self::Secret,
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        }
    }
}

/// Classifies a name alone.
fn classify_name(name: &str) -> SecretContext {
    let words = words(name);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [before @ .., last] = words.as_slice() else { return SecretContext::Open };
    match (before, *last) {
        ([], "env") | (["edge"], "auth") => SecretContext::AllValues,
        ([], "args") => SecretContext::Arguments,
        ([.., "required" | "allowed"], "headers") => SecretContext::Open,
        (_, "headers") => SecretContext::AllValues,
        ([], "auth") => SecretContext::Login,
        ([], "code") | (["auth"], "tag") | ([.., "service"], "account") => SecretContext::Secret,
        ([.., "session" | "main" | "public" | "host" | "cache" | "message"], "key" | "keys") => SecretContext::Open,
        (_, "key" | "pass" | "credential" | "credentials" | "jwt" | "bearer") => SecretContext::Secret,
        (_, "tokens" | "passwords" | "keys" | "secrets" | "cookies") => SecretContext::List,
        (_, last) if SECRETS.iter().any(|secret| last.ends_with(secret)) => SecretContext::Secret,
        _ => SecretContext::Open,
    }
}

/// Suffixes of words that name secrets; `authtoken` therefore matches as well.
const SECRETS: [&str; 10] = [
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "apikey",
    "privatekey",
    "accesskey",
    "cookie",
    "authorization",
];

/// Splits a name into words in lower case: `clientSecret`, `client_secret`, `CLIENT-SECRET` yield the same.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for char in name.chars() {
        let starts_word = char.is_uppercase() && was_lower;
        was_lower = char.is_lowercase() || char.is_ascii_digit();
        if starts_word || !char.is_alphanumeric() {
            words.push(String::new());
        }
        if char.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(char.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// True if a text is a URL with a password, or with a secret among its parameters.
fn has_login(text: &str) -> bool {
    let Some(url) = UrlParts::of(text) else { return false };
    let is_secret = |(name, value): (&str, &str)| {
        classify_name(name) == SecretContext::Secret && !value.is_empty() && !is_reference(value)
    };
    url.password.is_some() || url.parameters().any(is_secret)
}

/// Parts of a URL that may be secrets.
struct UrlParts<'a> {
    password: Option<&'a str>,
    query: &'a str,
}

impl<'a> UrlParts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (_, rest) = text.split_once("://")?;
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let password = host.rsplit_once('@').and_then(|(user, _)| Some(user.split_once(':')?.1));
        Some(Self { password, query: rest.split_once('?').map_or("", |(_, parameters)| parameters) })
    }

    fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.query.split(['&', '#']).filter_map(|parameter| parameter.split_once('='))
    }
}

/// Returns the name of a command-line option, if its value is the next argument.
fn flag(argument: &str) -> Option<&str> {
    let name = argument.strip_prefix('-').filter(|name| !name.contains('='))?;
    Some(name.trim_start_matches('-'))
}

/// True if an argument is a secret by itself: `--token=x`, `API_KEY=x`, `Authorization: x`, or a text that looks like a
/// key.
fn is_secret_argument(argument: &str) -> bool {
    let is_named_secret = |(name, value): (&str, &str)| {
        classify_name(name.trim().trim_start_matches('-')) == SecretContext::Secret
            && !value.is_empty()
            && !is_reference(value)
    };
    argument.split_once('=').is_some_and(is_named_secret)
        || argument.split_once(':').is_some_and(is_named_secret)
        || looks_random(argument)
}

/// Prefixes of keys of well-known services.
const KEY_PREFIXES: [&str; 12] =
    ["sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "AIza", "hf_", "eyJ", "npm_"];

/// True if a text is one long word of letters and digits, like generated keys.
fn looks_random(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+=".contains(&byte);
    let count = |is: fn(&u8) -> bool| text.as_bytes().iter().filter(|byte| is(byte)).count();
    let (digits, letters) = (count(u8::is_ascii_digit), count(u8::is_ascii_alphabetic));
    let has_prefix = KEY_PREFIXES.iter().any(|prefix| text.starts_with(prefix)) && text.len() >= 12;
    let is_mixed = text.len() >= 20 && digits >= 3 && letters >= 3 && text.matches(['-', '_']).count() <= 2;
    text.bytes().all(is_word) && (has_prefix || is_mixed)
}

/// Returns every secret of a config, whole and in the parts that programs show: the password and the parameters of a
/// URL, the value of an option, the word after `Bearer`.
pub fn known_secrets(config: &Value) -> Vec<String> {
    let mut found = Vec::new();
    gather(config, SecretContext::Open, &mut found);
    found
}

fn gather(value: &Value, context: SecretContext, found: &mut Vec<String>) {
    match value {
        Value::String(text) if context.hides(value) => found.extend(parts(text)),
        Value::Object(object) => object.iter().for_each(|(name, value)| gather(value, context.member(name), found)),
        Value::Array(list) => {
            let contexts = context.items(&texts(list));
            list.iter().zip(contexts).for_each(|(value, context)| gather(value, context, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns a secret, and the parts of it that are secrets by themselves.
fn parts(text: &str) -> Vec<String> {
    let mut all = vec![text.to_owned()];
    if let Some(url) = UrlParts::of(text) {
        let secret =
            url.parameters().filter(|(name, _)| classify_name(name) == SecretContext::Secret).map(|(_, value)| value);
        all.extend(url.password.into_iter().chain(secret).flat_map(|value| [value.to_owned(), percent_decoded(value)]));
    }
    let is_named =
        |(name, _): &(&str, &str)| classify_name(name.trim().trim_start_matches('-')) == SecretContext::Secret;
    let value = ['=', ':'].into_iter().find_map(|sign| text.split_once(sign).filter(is_named));
    let value = value.map_or(text, |(_, value)| value.trim());
    let scheme = |(scheme, _): &(&str, &str)| ["basic", "bearer", "token"].contains(&scheme.to_lowercase().as_str());
    all.push(value.split_once(' ').filter(scheme).map_or(value, |(_, word)| word.trim()).to_owned());
    all
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let escaped = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn texts(list: &[Value]) -> Vec<Option<&str>> {
    list.iter().map(Value::as_str).collect()
}

fn hide(value: &Value, context: SecretContext) -> Value {
    match value {
        value if context.hides(value) => Value::from(REDACTED),
        Value::Object(object) => {
            let hidden = |(name, value): (&String, &Value)| (name.clone(), hide(value, context.member(name)));
            Value::Object(object.iter().map(hidden).collect())
        }
        Value::Array(list) => {
            let contexts = context.items(&texts(list));
            Value::Array(list.iter().zip(contexts).map(|(value, context)| hide(value, context)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Returns the locations of the secrets, in the order of the text.
fn secrets(node: &ast::Value<'_>, context: SecretContext) -> Vec<FoundSecret> {
    let secret = match node {
        ast::Value::StringLit(text) => context.hides_text(&text.value).then(|| text.value.to_string()),
        ast::Value::NumberLit(number) => (context == SecretContext::Secret).then(|| number.value.to_owned()),
        ast::Value::Object(object) => {
            let inside = |member: &ast::ObjectProp<'_>| secrets(&member.value, context.member(member.name.as_str()));
            return object.properties.iter().flat_map(inside).collect();
        }
        ast::Value::Array(array) => {
            let texts = array.elements.iter().map(|node| match node {
                ast::Value::StringLit(text) => Some(&*text.value),
                ast::Value::NumberLit(_)
                | ast::Value::BooleanLit(_)
                | ast::Value::Object(_)
                | ast::Value::Array(_)
                | ast::Value::NullKeyword(_) => None,
            });
            let contexts = context.items(&texts.collect::<Vec<_>>());
            return array.elements.iter().zip(contexts).flat_map(|(node, context)| secrets(node, context)).collect();
        }
        ast::Value::BooleanLit(_) | ast::Value::NullKeyword(_) => None,
    };
    secret.into_iter().map(|value| FoundSecret { range: node.range(), value }).collect()
}

fn refill(new: &mut Value, old: Option<&Value>, context: SecretContext, path: &Path, unknown: &mut Vec<Path>) {
    match new {
        Value::String(text) if text.contains(REDACTED) => match old.filter(|old| context.hides(old)) {
            Some(old) if text == REDACTED => new.clone_from(old),
            _ => unknown.push(path.clone()),
        },
        Value::Object(object) => {
            for (name, new) in object {
                let old = old.and_then(|old| old.as_object()?.get(name));
                refill(new, old, context.member(name), &path.key(name), unknown);
            }
        }
        Value::Array(list) => {
            let old = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let matched = matches(list, old, context);
            let contexts = context.items(&texts(list));
            for (at, ((new, old), context)) in list.iter_mut().zip(matched).zip(contexts).enumerate() {
                refill(new, old, context, &path.index(at), unknown);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns for each item of the new list the corresponding old one, as far as that is certain.
fn matches<'a>(new: &[Value], old: &'a [Value], context: SecretContext) -> Vec<Option<&'a Value>> {
    let redacted: Vec<Value> =
        old.iter().zip(context.items(&texts(old))).map(|(old, context)| hide(old, context)).collect();
    let matched = |item: &Value| match item.get("id") {
        Some(id) => old.iter().position(|old| old.get("id") == Some(id)),
        None => {
            let mut same = (0..old.len()).filter(|at| redacted[*at] == *item);
            same.next().filter(|_| same.next().is_none())
        }
    };
    let matched: Vec<Option<usize>> = new.iter().map(matched).collect();
    // In a shorter list an item may have moved to the position of another, whose secret it must not get.
    let by_position = |at: usize| new.len() >= old.len() && new[at].get("id").is_none() && !matched.contains(&Some(at));
    let found = |(at, matched): (usize, &Option<usize>)| matched.or_else(|| by_position(at).then_some(at));
    matched.iter().enumerate().map(found).map(|at| old.get(at?)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_recognized_by_name() {
        for name in [
            "token",
            "botToken",
            "apiKey",
            "api_key",
            "OPENAI_API_KEY",
            "APIKey",
            "openaiApiKey",
            "password",
            "webhookSecret",
            "clientSecret",
            "privateKey",
            "encryptKey",
            "secretAccessKey",
            "authtoken",
            "passphrase",
            "key",
            "code",
            "authTag",
            "serviceAccount",
            "Authorization",
            "x-api-key",
            "sessionToken",
            "Cookie",
            "credentials",
        ] {
            assert_eq!(classify_name(name), SecretContext::Secret, "{name}");
        }
        for name in [
            "tokenFile",
            "sessionKey",
            "defaultSessionKey",
            "mainKey",
            "publicKey",
            "keyPrefix",
            "keyPath",
            "mode",
            "languageCode",
            "secretFile",
            "accessKeyId",
            "userHeader",
            "requiredHeaders",
            "tokenizer",
            "monkey",
            "",
            "account",
            "profile",
            "é",
        ] {
            assert_eq!(classify_name(name), SecretContext::Open, "{name}");
        }
    }

    fn config() -> Value {
        json!({
            "gateway": {"auth": {"mode": "token", "token": "t0p"}, "remote": {"url": "wss://me:pw@host/x"}, "port": 1},
            "env": {"vars": {"A": "1"}, "B": "2", "C": 3, "shellEnv": {"enabled": true, "timeoutMs": 5}},
            "models": {"providers": {"x": {
                "apiKey": "${X_KEY}", "headers": {"X-Me": "m", "Y": {"source": "env", "provider": "p", "id": "Y"}},
                "request": {"auth": {"mode": "header", "headerName": "H", "value": "v"}},
                "baseUrl": "https://user@host/v1", "maxTokens": 9,
            }}},
            "skills": {"entries": {"s": {"env": {"K": "k"}, "apiKey": {"source": "env", "id": "S"}}}},
            "hooks": {"url": "https://h/?a=1&token=z", "token": "", "password": 1234, "apiKeys": ["k1", "${K2}"]},
        })
    }

    fn redacted_config() -> Value {
        json!({
            "gateway": {"auth": {"mode": "token", "token": REDACTED}, "remote": {"url": REDACTED}, "port": 1},
            "env": {
                "vars": {"A": REDACTED}, "B": REDACTED, "C": REDACTED, "shellEnv": {"enabled": true, "timeoutMs": 5},
            },
            "models": {"providers": {"x": {
                "apiKey": "${X_KEY}", "headers": {"X-Me": REDACTED, "Y": {"source": "env", "provider": "p", "id": "Y"}},
                "request": {"auth": {"mode": "header", "headerName": "H", "value": REDACTED}},
                "baseUrl": "https://user@host/v1", "maxTokens": 9,
            }}},
            "skills": {"entries": {"s": {"env": {"K": REDACTED}, "apiKey": {"source": "env", "id": "S"}}}},
            "hooks": {"url": REDACTED, "token": "", "password": REDACTED, "apiKeys": [REDACTED, "${K2}"]},
        })
    }

    // R72.
    #[test]
    fn every_secret_is_redacted_and_restored() {
        assert_eq!(redact(&config()), redacted_config());
        assert_eq!(redact(&redacted_config()), redacted_config());
        let mut sent = redacted_config();
        assert_eq!(restore(&mut sent, &config()), Ok(()));
        assert_eq!(sent, config());
    }

    #[test]
    fn secrets_in_a_text_are_redacted_and_the_rest_is_unchanged() {
        let text = "\u{feff}{ // t0p is too short\n  gateway: {auth: {token: 't0p', password : \"${P}\"}},\r\n 'port': 0x1, \
                    password: 7, apiKey: \"\\u0041\",}\n";
        let expected = "\u{feff}{ // t0p is too short\n  gateway: {auth: {token: '__OPENCLAW_REDACTED__', password : \"${P}\"}},\r\n \
                     'port': 0x1, password: \"__OPENCLAW_REDACTED__\", apiKey: \"__OPENCLAW_REDACTED__\",}\n";
        assert_eq!(redact_text(text), expected);
        assert_eq!(redact_text("// none\n"), "// none\n");
        assert_eq!(redact_text("{token: 't0p'"), "");
    }

    #[test]
    fn a_secret_is_redacted_in_comments() {
        let text = "// was hush-hush, now hush-hush-2\n{token: 'hush-hush', /* \"hush-hush\" */ apiKey: \"hush-hush-2\", \
                    password: 12345, // 12345\n secret: 'it\\'s me', // it's me, it\\'s me\n name: 'hush-hush'} // é hush-hush";
        let expected = "// was R, now R\n{token: 'R', /* \"R\" */ apiKey: \"R\", \
                     password: \"R\", // R\n secret: 'R', // R, R\n name: 'hush-hush'} // é R";
        assert_eq!(redact_text(text), expected.replace('R', REDACTED));
    }

    #[test]
    fn secrets_in_arguments_and_urls_are_redacted_and_known_in_parts() {
        let config_value = json!({"mcp": {"servers": {
            "a": {"command": "npx", "args": [
                "-y", "@modelcontextprotocol/server-files", "--token", "hush-hush", "--api-key=hush-2", "API_KEY=hush-3",
                "--header", "Authorization: Bearer hush-4", "sk-proj-hush-5-6-7-8-9", "0123456789abcdef0123", "--port", "80",
                "--key", "${KEY}", "--verbose", "https://u:hush-6@h/", "/srv/data",
            ]},
            "b": {"url": "https://user:hush-7@h/mcp?a=1&key=hush%2F8", "headers": {"Authorization": "Bearer hush-9"}},
        }}});
        let redacted = redact(&config_value);
        assert_eq!(
            redacted["mcp"]["servers"]["a"]["args"],
            json!([
                "-y",
                "@modelcontextprotocol/server-files",
                "--token",
                REDACTED,
                REDACTED,
                REDACTED,
                "--header",
                REDACTED,
                REDACTED,
                REDACTED,
                "--port",
                "80",
                "--key",
                "${KEY}",
                "--verbose",
                REDACTED,
                "/srv/data",
            ])
        );
        assert!(!redacted.to_string().contains("hush"));
        assert!(!redact_text(&format!("{config_value:#}")).contains("hush"));
        let mut sent = redacted;
        assert_eq!(restore(&mut sent, &config_value), Ok(()));
        assert_eq!(sent, config_value);
        let known = known_secrets(&config_value);
        for secret in ["hush-hush", "hush-2", "hush-3", "hush-4", "hush-6", "hush-7", "hush%2F8", "hush/8", "hush-9"] {
            assert!(known.iter().any(|known| known == secret), "{secret}: {known:?}");
        }
    }

    fn unknown(mut new: Value, old: &Value) -> Vec<String> {
        let paths = restore(&mut new, old).unwrap_err();
        paths.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sentinel_without_an_old_secret_is_reported() {
        let old = json!({"a": {"token": "x", "name": "n"}, "b": {"token": "${B}"}, "c": {"token": REDACTED}});
        let new = json!({
            "a": {"token": REDACTED, "name": REDACTED, "apiKey": REDACTED},
            "b": {"token": REDACTED}, "c": {"token": REDACTED}, "d": [{"token": format!("Bearer {REDACTED}")}],
        });
        assert_eq!(unknown(new, &old), ["a.name", "a.apiKey", "b.token", "c.token", "d[0].token"]);
        assert_eq!(unknown(json!(REDACTED), &json!({})), [""]);
    }

    #[test]
    fn items_of_lists_get_their_own_secrets_back() {
        let item = |name: &str, token: &str| json!({"name": name, "token": token});
        let agent = |id: &str, token: &str| json!({"id": id, "token": token});
        let restored = |old: Value, new: Value| {
            let mut sent = new;
            restore(&mut sent, &old).map(|()| sent).map_err(|paths| paths.len())
        };
        let agents = json!([agent("a", "1"), agent("b", "2")]);
        assert_eq!(restored(agents.clone(), json!([agent("b", REDACTED)])), Ok(json!([agent("b", "2")])));
        assert_eq!(restored(agents, json!([agent("c", REDACTED)])), Err(1));
        let items = json!([item("a", "1"), item("b", "2")]);
        let swapped = json!([item("b", REDACTED), item("a", REDACTED)]);
        assert_eq!(restored(items.clone(), swapped), Ok(json!([item("b", "2"), item("a", "1")])));
        let more = json!([item("x", "0"), item("a", REDACTED), item("b", REDACTED)]);
        assert_eq!(restored(items.clone(), more), Ok(json!([item("x", "0"), item("a", "1"), item("b", "2")])));
        assert_eq!(restored(items.clone(), json!([item("b", REDACTED)])), Ok(json!([item("b", "2")])));
        let renamed = json!([item("a", REDACTED), item("c", REDACTED)]);
        assert_eq!(restored(items.clone(), renamed), Ok(json!([item("a", "1"), item("c", "2")])));
        // Its name changed and the list became shorter: it could be either.
        assert_eq!(restored(items, json!([item("c", REDACTED)])), Err(1));
        let bare = json!({"tokens": ["1", "2"]});
        assert_eq!(
            restored(bare.clone(), json!({"tokens": [REDACTED, REDACTED, "3"]})),
            Ok(json!({"tokens": ["1", "2", "3"]}))
        );
        assert_eq!(restored(bare, json!({"tokens": [REDACTED]})), Err(1));
    }
}
