//! R80: the crates of others: where they come from, under which licences, and which of them are there twice. Needs no
//! network; advisories would.

use std::{collections::BTreeMap, iter::Peekable};

use serde_json::Value;

/// The only source of crates.
const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Licences under which a crate may be used. MPL-2.0 covers the files of the crate only.
const LICENCES: [&str; 8] = ["Apache-2.0", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MPL-2.0", "Unicode-3.0", "Zlib"];

/// Crates that are in Cargo.lock in several versions, each with the reason why one version is not possible now.
const DUPLICATES: [(&str, &str); 19] = [
    ("base64", "axum uses 0.22, like our crates; reqwest and rmcp use 0.23"),
    ("bit-set", "fancy-regex and dom_query use different versions"),
    ("bit-vec", "bit-set in both versions, and yasna"),
    ("bitflags", "defmt, through jiff, is behind"),
    ("block-buffer", "digest in both versions"),
    ("cpufeatures", "sha1 0.10 and the newer sha2"),
    ("crypto-common", "digest in both versions"),
    ("digest", "tungstenite uses sha1 0.10, which needs 0.10"),
    ("getrandom", "ring needs 0.2, tungstenite's rand_core 0.3, uuid and tempfile 0.4"),
    ("miniz_oxide", "png is behind flate2"),
    ("nom", "x509-parser is behind dom_query"),
    ("r-efi", "getrandom in two versions, on UEFI only"),
    ("rand", "shuttle needs 0.8, tungstenite 0.9, proptest 0.10; none of them in our own code"),
    ("rand_chacha", "rand in two versions"),
    ("rand_core", "rand in three versions"),
    ("similar", "insta, in tests, is behind the one of edits"),
    ("syn", "derive macros move to 3 one by one; both are needed at build time only"),
    ("synstructure", "syn in both versions"),
    ("windows-sys", "several crates, on Windows only"),
];

/// Reports crates from other sources, under other licences, and in several versions without a reason.
pub(super) fn check(metadata: &Value, lock: &str) -> Vec<String> {
    sources(lock).into_iter().chain(duplicates(lock)).chain(licences(metadata)).collect()
}

/// Returns the values of a field in Cargo.lock, in order.
fn values<'a>(lock: &'a str, field: &str) -> Vec<&'a str> {
    let prefix = format!("{field} = \"");
    lock.lines().filter_map(|line| line.strip_prefix(&prefix)?.strip_suffix('"')).collect()
}

fn sources(lock: &str) -> Vec<String> {
    let others = values(lock, "source").into_iter().filter(|source| *source != SOURCE);
    others.map(|source| format!("Cargo.lock: {source} is not crates.io")).collect()
}

fn duplicates(lock: &str) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in values(lock, "name") {
        *counts.entry(name).or_default() += 1;
    }
    let is_allowed = |name: &str| DUPLICATES.iter().any(|(known, _)| *known == name);
    let added = counts.iter().filter(|(name, count)| **count > 1 && !is_allowed(name));
    let added = added.map(|(name, count)| {
        format!("Cargo.lock: {count} versions of {name}; use one, or say why not in tidy/supply.rs")
    });
    let gone = DUPLICATES.iter().filter(|(name, _)| counts.get(name).is_none_or(|count| *count < 2));
    let gone = gone.map(|(name, _)| format!("{name} is there once: remove it from the list in tidy/supply.rs"));
    added.chain(gone).collect()
}

fn licences(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let others = packages.iter().filter(|package| package["source"].is_string());
    let problems = others.filter_map(|package| {
        let expression = package["license"].as_str().unwrap_or_default();
        (!is_permitted(expression)).then(|| {
            format!("{}: its licence, \"{expression}\", is not in the list of tidy/supply.rs", package["name"])
        })
    });
    problems.collect()
}

/// The words and parentheses of a licence expression.
type Words<'a> = Peekable<std::vec::IntoIter<&'a str>>;

/// True if the list of licences fulfils a licence expression. `/` is the older form of `OR`.
fn is_permitted(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = expression.split_whitespace().collect::<Vec<_>>().into_iter().peekable();
    alternatives(&mut words) && words.peek().is_none()
}

fn alternatives(words: &mut Words<'_>) -> bool {
    let mut is_any = false;
    loop {
        let mut is_all = term(words);
        while words.next_if_eq(&"AND").is_some() {
            is_all &= term(words);
        }
        is_any |= is_all;
        if words.next_if_eq(&"OR").is_none() {
            return is_any;
        }
    }
}

fn term(words: &mut Words<'_>) -> bool {
    let Some(word) = words.next() else { return false };
    if word == "(" {
        let is_permitted = alternatives(words);
        return words.next() == Some(")") && is_permitted;
    }
    // An exception permits more.
    if words.next_if_eq(&"WITH").is_some() {
        words.next();
    }
    LICENCES.contains(&word)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_licence_expression_is_permitted_if_its_alternatives_are() {
        for expression in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR BSL-1.0",
        ] {
            assert!(is_permitted(expression), "{expression}");
        }
        for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT Zlib"] {
            assert!(!is_permitted(expression), "{expression}");
        }
    }

    #[test]
    fn crates_of_other_licences_are_reported_and_ours_are_not() {
        let package =
            |name: &str, license: &str, source: Value| json!({"name": name, "license": license, "source": source});
        let metadata = json!({"packages": [
            package("ours", "GPL-3.0", Value::Null),
            package("theirs", "MIT", SOURCE.into()),
            package("other", "GPL-3.0", SOURCE.into()),
        ]});
        assert_eq!(licences(&metadata), ["\"other\": its licence, \"GPL-3.0\", is not in the list of tidy/supply.rs"]);
    }

    #[test]
    fn other_sources_and_new_duplicates_are_reported() {
        let lock = format!(
            "[[package]]\nname = \"one\"\nversion = \"1.0.0\"\nsource = \"{SOURCE}\"\n\n[[package]]\nname = \
             \"one\"\nversion = \"2.0.0\"\nsource = \"git+https://example.org/one\"\n"
        );
        assert_eq!(sources(&lock), ["Cargo.lock: git+https://example.org/one is not crates.io"]);
        let found = duplicates(&lock);
        assert_eq!(found[0], "Cargo.lock: 2 versions of one; use one, or say why not in tidy/supply.rs");
        // Nothing of the list is in this file.
        assert_eq!(found.len(), 1 + DUPLICATES.len());
    }
}
