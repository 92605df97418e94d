//! Permanent permissions: a program by its path, and the prefix of its arguments.

use serde_json::{Map, Value, json};

/// Allows commands without asking. The caller must not create one for shells, interpreters or wrappers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRule {
    /// Id in the file.
    pub id: Option<String>,
    pattern: RulePattern,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RulePattern {
    /// The program and its leading arguments. More may follow, unless it is exact.
    Words { argv: Vec<String>, is_exact: bool },
    /// A program with any arguments, by a pattern of its path, as OpenClaw writes it.
    Path(String),
    /// Allows nothing: the entry is invalid, or has a field that restricts it in a way that is not supported.
    Nothing,
}

impl ApprovalRule {
    /// Allows commands with this prefix, which starts with the absolute path of the program.
    pub fn prefix(argv: Vec<String>) -> Self {
        Self { id: None, pattern: RulePattern::Words { argv, is_exact: false } }
    }

    /// Allows exactly this command.
    pub fn exact(argv: Vec<String>) -> Self {
        Self { id: None, pattern: RulePattern::Words { argv, is_exact: true } }
    }

    /// Parses an entry of the file, which may be an object or only a path pattern. An entry that is invalid or has an
    /// unsupported restriction (`argPattern`, a pattern without a slash) allows nothing.
    pub(super) fn parse(entry: &Value) -> Self {
        let id = entry.get("id").and_then(Value::as_str).map(str::to_owned);
        let is_set = |name: &str| entry.get(name).is_some_and(|value| !value.is_null());
        let pattern = match (entry.get("argv"), entry.get("pattern").or(Some(entry)).and_then(Value::as_str)) {
            (Some(argv), _) => argv_pattern(argv, entry.get("exact") == Some(&json!(true))),
            (None, Some(path_pattern)) if path_pattern.contains('/') && !is_set("argPattern") => {
                RulePattern::Path(path_pattern.to_owned())
            }
            (None, _) => RulePattern::Nothing,
        };
        Self { id, pattern }
    }

    /// Builds the entry for the file. Its pattern has no slash, so that a program that knows only patterns ignores it
    /// instead of allowing any arguments.
    pub(super) fn entry(&self, id: &str, at_ms: u64, command: &str) -> Map<String, Value> {
        let mut entry = Map::new();
        entry.insert("id".to_owned(), id.into());
        match &self.pattern {
            RulePattern::Words { argv, is_exact } => {
                let program = argv.first().map(String::as_str).unwrap_or_default();
                let name = program.rsplit('/').next().unwrap_or_default();
                entry.insert("pattern".to_owned(), name.into());
                entry.insert("argv".to_owned(), json!(argv));
                if *is_exact {
                    entry.insert("exact".to_owned(), true.into());
                }
                entry.insert("lastResolvedPath".to_owned(), program.into());
            }
            RulePattern::Path(pattern) => drop(entry.insert("pattern".to_owned(), pattern.as_str().into())),
            RulePattern::Nothing => {}
        }
        entry.insert("source".to_owned(), "allow-always".into());
        entry.insert("lastUsedAt".to_owned(), at_ms.into());
        entry.insert("lastUsedCommand".to_owned(), command.into());
        entry
    }

    /// True if it allows this program, by absolute path, with these arguments. `home` replaces `~`.
    pub fn allows(&self, program: &str, arguments: &[String], home: Option<&str>) -> bool {
        match &self.pattern {
            RulePattern::Words { argv, is_exact } => {
                let Some((first, rest)) = argv.split_first() else { return false };
                let is_length_ok = !is_exact || rest.len() == arguments.len();
                first == program && arguments.starts_with(rest) && is_length_ok
            }
            RulePattern::Path(pattern) => match (pattern.strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => glob_matches(&format!("{}/{rest}", home.trim_end_matches('/')), program),
                (Some(_), None) => false,
                (None, _) => glob_matches(pattern, program),
            },
            RulePattern::Nothing => false,
        }
    }

    /// True if it allows the same commands, regardless of its id.
    pub(super) fn allows_same(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }

    /// Describes what it allows.
    pub fn describe(&self) -> String {
        match &self.pattern {
            RulePattern::Words { argv, is_exact: true } => argv.join(" "),
            RulePattern::Words { argv, is_exact: false } => format!("{} …", argv.join(" ")),
            RulePattern::Path(pattern) => format!("{pattern} …"),
            RulePattern::Nothing => "nothing".to_owned(),
        }
    }

    /// Serializes it for [`ApprovalRule::parse`].
    pub(super) fn to_value(&self) -> Value {
        match &self.pattern {
            RulePattern::Words { argv, is_exact } => json!({"argv": argv, "exact": is_exact}),
            RulePattern::Path(pattern) => json!({"pattern": pattern}),
            RulePattern::Nothing => json!({}),
        }
    }
}

fn argv_pattern(argv: &Value, is_exact: bool) -> RulePattern {
    let parse = |argument: &Value| argument.as_str().map(str::to_owned);
    let argv: Option<Vec<String>> = argv.as_array().and_then(|argv| argv.iter().map(parse).collect());
    match argv {
        Some(argv) if argv.first().is_some_and(|program| program.starts_with('/')) => {
            RulePattern::Words { argv, is_exact }
        }
        Some(_) | None => RulePattern::Nothing,
    }
}

/// True if a path matches a pattern: `*` and `?` do not match slashes, `**` does.
fn glob_matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<char>, Vec<char>) = (pattern.chars().collect(), path.chars().collect());
    // matched[n] is true if the first n characters of the path match the pattern so far.
    let mut matched = vec![false; path.len() + 1];
    matched[0] = true;
    let mut position = 0;
    while position < pattern.len() {
        let is_deep = pattern[position] == '*' && pattern.get(position + 1) == Some(&'*');
        let mut next_matched = vec![false; path.len() + 1];
        if pattern[position] == '*' {
            let mut is_open = false;
            for index in 0..=path.len() {
                is_open &= is_deep || index == 0 || path[index - 1] != '/';
                is_open |= matched[index];
                next_matched[index] = is_open;
            }
        } else {
            for index in 0..path.len() {
                let is_same = pattern[position] == path[index] || (pattern[position] == '?' && path[index] != '/');
                next_matched[index + 1] = matched[index] && is_same;
            }
        }
        matched = next_matched;
        position += if is_deep { 2 } else { 1 };
    }
    matched[path.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(rule: &ApprovalRule, command: &str) -> bool {
        let mut arguments = command.split(' ').map(str::to_owned);
        let program = arguments.next().unwrap();
        rule.allows(&program, &arguments.collect::<Vec<_>>(), Some("/home/ann"))
    }

    fn argv(command: &str) -> Vec<String> {
        command.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_prefix_rule_compares_whole_arguments() {
        let rule = ApprovalRule::prefix(argv("/usr/bin/git log"));
        for allowed in ["/usr/bin/git log", "/usr/bin/git log -1"] {
            assert!(allows(&rule, allowed), "{allowed}");
        }
        for refused in ["/usr/bin/git", "/usr/bin/git logs", "/usr/bin/git push log", "/bin/git log", "git log"] {
            assert!(!allows(&rule, refused), "{refused}");
        }
        let exact = ApprovalRule::exact(argv("/bin/rm a"));
        assert_eq!((allows(&exact, "/bin/rm a"), allows(&exact, "/bin/rm a -rf")), (true, false));
    }

    #[test]
    fn openclaw_patterns_are_parsed_and_invalid_or_restricted_entries_allow_nothing() {
        let rule = |entry: Value| ApprovalRule::parse(&entry);
        for (entry, allowed, refused) in [
            (json!({"pattern": "/usr/bin/rg"}), "/usr/bin/rg x", "/usr/bin/rgx x"),
            (json!("/usr/bin/rg"), "/usr/bin/rg", "/bin/rg"),
            (json!({"pattern": "/opt/*/bin/tool"}), "/opt/a/bin/tool", "/opt/a/b/bin/tool"),
            (json!({"pattern": "/opt/**/tool"}), "/opt/a/b/tool", "/opt/a/b/tools"),
            (json!({"pattern": "~/bin/?g"}), "/home/ann/bin/rg", "/home/ann/bin/x/g"),
        ] {
            let rule = rule(entry);
            assert_eq!((allows(&rule, allowed), allows(&rule, refused)), (true, false), "{rule:?}");
        }
        // A pattern must contain a slash, `argv` must begin with an absolute path, and `argPattern` is not supported.
        for entry in [
            json!({"pattern": "rg"}),
            json!({"pattern": "/usr/bin/rg", "argPattern": "^x$"}),
            json!({"pattern": "/usr/bin/rg", "argv": "rg"}),
            json!({"pattern": "/usr/bin/rg", "argv": []}),
            json!({"pattern": "/usr/bin/rg", "argv": ["rg"]}),
            json!({"pattern": 7}),
            json!({}),
            json!(null),
        ] {
            assert!(!allows(&rule(entry.clone()), "/usr/bin/rg x"), "{entry}");
        }
    }

    #[test]
    fn a_rule_entry_round_trips_and_is_not_a_path_pattern() {
        for rule in [ApprovalRule::prefix(argv("/usr/bin/git log")), ApprovalRule::exact(argv("/bin/rm a"))] {
            let entry = rule.entry("r1", 5, "git log -1");
            assert!(!entry["pattern"].as_str().unwrap().contains('/'), "{entry:?}");
            assert_eq!(ApprovalRule::parse(&entry.into()), ApprovalRule { id: Some("r1".to_owned()), ..rule });
        }
    }
}
