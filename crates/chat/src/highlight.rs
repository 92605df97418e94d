//! Syntax highlighting of code blocks: comments, strings, numbers and keywords of common languages.
//!
//! A line is highlighted with the state that the previous line left, so a block can be shown while it grows.

use crate::style::{Color, Line, TextStyle};

const COMMENT: TextStyle = TextStyle { italic: true, ..TextStyle::DIM };
const STRING: TextStyle = TextStyle::of(Color::Green);
const NUMBER: TextStyle = TextStyle::of(Color::Magenta);
const KEYWORD: TextStyle = TextStyle::of(Color::Blue);
const ADDED: TextStyle = TextStyle::of(Color::Green);
const REMOVED: TextStyle = TextStyle::of(Color::Red);
const HUNK: TextStyle = TextStyle::of(Color::Cyan);

/// What a language looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Syntax {
    /// Beginnings of comments to the end of the line.
    comments: &'static [&'static str],
    /// Beginning and end of comments over several lines.
    block_comment: Option<(&'static str, &'static str)>,
    /// Quotes.
    quotes: &'static [char],
    /// Quotes of texts over several lines.
    long_quotes: &'static [&'static str],
    keywords: &'static [&'static str],
}

const C_KEYWORDS: &[&str] = &[
    "abstract",
    "as",
    "async",
    "auto",
    "await",
    "bool",
    "boolean",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "continue",
    "crate",
    "default",
    "defer",
    "delete",
    "do",
    "double",
    "dyn",
    "else",
    "enum",
    "export",
    "extends",
    "extern",
    "false",
    "final",
    "finally",
    "float",
    "fn",
    "for",
    "foreach",
    "from",
    "func",
    "function",
    "go",
    "goto",
    "if",
    "impl",
    "implements",
    "import",
    "in",
    "instanceof",
    "int",
    "interface",
    "let",
    "long",
    "loop",
    "map",
    "match",
    "mod",
    "move",
    "mut",
    "namespace",
    "new",
    "nil",
    "null",
    "of",
    "override",
    "package",
    "private",
    "protected",
    "pub",
    "public",
    "range",
    "ref",
    "return",
    "select",
    "self",
    "Self",
    "short",
    "signed",
    "sizeof",
    "static",
    "string",
    "struct",
    "super",
    "switch",
    "this",
    "throw",
    "throws",
    "trait",
    "true",
    "try",
    "type",
    "typedef",
    "typeof",
    "union",
    "unsafe",
    "unsigned",
    "use",
    "using",
    "val",
    "var",
    "virtual",
    "void",
    "where",
    "while",
    "yield",
];
const PYTHON_KEYWORDS: &[&str] = &[
    "and", "as", "assert", "async", "await", "begin", "break", "class", "continue", "def", "del", "do", "elif", "else",
    "elsif", "end", "ensure", "except", "False", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "match", "module", "None", "nonlocal", "not", "or", "pass", "raise", "require", "rescue", "return",
    "self", "then", "True", "try", "unless", "until", "while", "with", "yield",
];
const SHELL_KEYWORDS: &[&str] = &[
    "break", "case", "cd", "continue", "do", "done", "echo", "elif", "else", "esac", "eval", "exec", "exit", "export",
    "fi", "for", "function", "if", "in", "local", "read", "return", "set", "shift", "source", "sudo", "test", "then",
    "trap", "unset", "until", "while",
];
const SQL_KEYWORDS: &[&str] = &[
    "ADD",
    "ALTER",
    "AND",
    "AS",
    "ASC",
    "BEGIN",
    "BETWEEN",
    "BY",
    "CASE",
    "COMMIT",
    "CREATE",
    "DEFAULT",
    "DELETE",
    "DESC",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXISTS",
    "FROM",
    "GROUP",
    "HAVING",
    "IN",
    "INDEX",
    "INNER",
    "INSERT",
    "INTO",
    "IS",
    "JOIN",
    "KEY",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "PRIMARY",
    "REFERENCES",
    "RIGHT",
    "SELECT",
    "SET",
    "TABLE",
    "THEN",
    "UNION",
    "UNIQUE",
    "UPDATE",
    "VALUES",
    "VIEW",
    "WHEN",
    "WHERE",
    "WITH",
];

const C: Syntax = Syntax {
    comments: &["//"],
    block_comment: Some(("/*", "*/")),
    quotes: &['"', '\''],
    long_quotes: &["`"],
    keywords: C_KEYWORDS,
};
const PYTHON: Syntax = Syntax {
    comments: &["#"],
    block_comment: None,
    quotes: &['"', '\''],
    long_quotes: &["\"\"\"", "'''"],
    keywords: PYTHON_KEYWORDS,
};
const SHELL: Syntax =
    Syntax { comments: &["#"], block_comment: None, quotes: &['"', '\''], long_quotes: &[], keywords: SHELL_KEYWORDS };
const DATA: Syntax = Syntax {
    comments: &["#", "//"],
    block_comment: None,
    quotes: &['"', '\''],
    long_quotes: &[],
    keywords: &["true", "false", "null", "yes", "no", "on", "off"],
};
const SQL: Syntax = Syntax {
    comments: &["--"],
    block_comment: Some(("/*", "*/")),
    quotes: &['\'', '"'],
    long_quotes: &[],
    keywords: SQL_KEYWORDS,
};
const MARKUP: Syntax =
    Syntax { comments: &[], block_comment: Some(("<!--", "-->")), quotes: &['"'], long_quotes: &[], keywords: &[] };

/// Highlights the lines of a block, one after the other.
#[derive(Debug, Clone)]
pub struct Highlighter {
    language: Language,
    /// End of the comment or text that a previous line began.
    open: Option<(&'static str, TextStyle)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Plain,
    Diff,
    Known(Syntax),
}

impl Highlighter {
    /// Starts a block in a language, as named after the fence.
    pub fn new(name: &str) -> Self {
        let name = name.split([',', ' ', '{']).next().unwrap_or_default().to_ascii_lowercase();
        let language = match name.as_str() {
            "diff" | "patch" => Language::Diff,
            "rust" | "rs" | "c" | "h" | "cpp" | "c++" | "cc" | "hpp" | "cs" | "csharp" | "java" | "kotlin" | "kt"
            | "scala" | "swift" | "go" | "golang" | "js" | "javascript" | "jsx" | "mjs" | "ts" | "typescript"
            | "tsx" | "dart" | "zig" | "php" | "proto" | "css" | "scss" => Language::Known(C),
            "py" | "python" | "python3" | "rb" | "ruby" => Language::Known(PYTHON),
            "sh" | "bash" | "zsh" | "fish" | "shell" | "console" | "dockerfile" | "make" | "makefile" => {
                Language::Known(SHELL)
            }
            "json" | "json5" | "jsonc" | "yaml" | "yml" | "toml" | "ini" | "conf" => Language::Known(DATA),
            "sql" | "postgres" | "sqlite" => Language::Known(SQL),
            "html" | "xml" | "svg" | "vue" => Language::Known(MARKUP),
            _ => Language::Plain,
        };
        Self { language, open: None }
    }

    /// Highlights the next line.
    pub fn line(&mut self, text: &str) -> Line {
        match self.language {
            Language::Plain => Line::plain(text),
            Language::Diff => Line::of(text, diff_style(text)),
            Language::Known(syntax) => self.highlight(text, &syntax),
        }
    }

    fn highlight(&mut self, text: &str, syntax: &Syntax) -> Line {
        let mut line = Line::default();
        let mut rest = text;
        if let Some((end, style)) = self.open.take() {
            let Some(at) = rest.find(end) else {
                self.open = Some((end, style));
                return Line::of(text, style);
            };
            let (inside, after) = rest.split_at(at + end.len());
            line.push(inside, style);
            rest = after;
        }
        let mut previous = ' ';
        while let Some(char) = rest.chars().next() {
            let is_at_word_start = !(previous.is_alphanumeric() || previous == '_');
            let (length, style) = self.token(rest, char, is_at_word_start, syntax);
            let (token, after) = rest.split_at(length);
            line.push(token, style);
            previous = token.chars().next_back().unwrap_or(' ');
            rest = after;
        }
        line
    }

    /// Returns the length and the style of the token at the start of a text.
    fn token(&mut self, rest: &str, char: char, is_at_word_start: bool, syntax: &Syntax) -> (usize, TextStyle) {
        // In shells and data, `#` and `//` within a word are part of it, as in URLs.
        if is_at_word_start && syntax.comments.iter().any(|start| rest.starts_with(start)) {
            return (rest.len(), COMMENT);
        }
        if let Some((start, end)) = syntax.block_comment
            && rest.starts_with(start)
        {
            return self.until(rest, start.len(), end, COMMENT);
        }
        if let Some(&quote) = syntax.long_quotes.iter().find(|quote| rest.starts_with(**quote)) {
            return self.until(rest, quote.len(), quote, STRING);
        }
        if syntax.quotes.contains(&char) {
            return quoted(rest, char).map_or((char.len_utf8(), TextStyle::PLAIN), |length| (length, STRING));
        }
        if char.is_alphabetic() || char == '_' {
            let length = rest.find(|char: char| !(char.is_alphanumeric() || char == '_')).unwrap_or(rest.len());
            let word = &rest[..length];
            let is_keyword = if std::ptr::eq(syntax.keywords, SQL_KEYWORDS) {
                syntax.keywords.iter().any(|keyword| keyword.eq_ignore_ascii_case(word))
            } else {
                syntax.keywords.contains(&word)
            };
            return (length, if is_keyword { KEYWORD } else { TextStyle::PLAIN });
        }
        if char.is_ascii_digit() && is_at_word_start {
            let is_number = |char: char| char.is_ascii_alphanumeric() || char == '.' || char == '_';
            return (rest.find(|char| !is_number(char)).unwrap_or(rest.len()), NUMBER);
        }
        (char.len_utf8(), TextStyle::PLAIN)
    }

    /// Takes a token up to its end; if that is not on this line, the next lines belong to it.
    fn until(&mut self, rest: &str, start: usize, end: &'static str, style: TextStyle) -> (usize, TextStyle) {
        match rest[start..].find(end) {
            Some(at) => (start + at + end.len(), style),
            None => {
                self.open = Some((end, style));
                (rest.len(), style)
            }
        }
    }
}

/// Returns the length of a quoted text. A quote without an end, such as an apostrophe, is no text.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, char) in rest.char_indices().skip(1) {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if char == quote => return Some(at + char.len_utf8()),
            _ => {}
        }
    }
    None
}

/// TextStyle of a line of a unified diff.
pub fn diff_style(line: &str) -> TextStyle {
    match line.as_bytes().first() {
        _ if line.starts_with("+++") || line.starts_with("---") => TextStyle::BOLD,
        Some(b'+') => ADDED,
        Some(b'-') => REMOVED,
        Some(b'@') => HUNK,
        Some(_) | None => TextStyle::PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn styles(language: &str, text: &str) -> Vec<(String, TextStyle)> {
        let mut highlighter = Highlighter::new(language);
        let lines = text.lines().map(|line| highlighter.line(line));
        lines.flat_map(|line| line.spans).map(|span| (span.text, span.style)).collect()
    }

    fn styled(text: &str, style: TextStyle) -> (String, TextStyle) {
        (text.to_owned(), style)
    }

    #[test]
    fn code_is_highlighted() {
        assert_eq!(
            styles("rust", "let x = \"a\\\"b\"; // y"),
            [
                styled("let", KEYWORD),
                styled(" x = ", TextStyle::PLAIN),
                styled("\"a\\\"b\"", STRING),
                styled("; ", TextStyle::PLAIN),
                styled("// y", COMMENT),
            ]
        );
        assert_eq!(
            styles("c", "a /* b\nc */ 1"),
            [
                styled("a ", TextStyle::PLAIN),
                styled("/* b", COMMENT),
                styled("c */", COMMENT),
                styled(" ", TextStyle::PLAIN),
                styled("1", NUMBER)
            ]
        );
        assert_eq!(styles("sql", "select a"), [styled("select", KEYWORD), styled(" a", TextStyle::PLAIN)]);
        assert_eq!(styles("diff", "-a\n+b"), [styled("-a", REMOVED), styled("+b", ADDED)]);
        // An apostrophe does not begin a text.
        assert_eq!(styles("rust", "&'a str"), [styled("&'a str", TextStyle::PLAIN)]);
        assert_eq!(styles("sh", "curl http://x#y")[0], styled("curl http://x#y", TextStyle::PLAIN));
    }

    proptest! {
        #[test]
        fn highlighting_changes_no_text(text in "[a-z0-9\"'`/*#é<!> -]{0,40}", language in "rust|python|sh|json|sql|html|diff|x") {
            let mut highlighter = Highlighter::new(&language);
            prop_assert_eq!(highlighter.line(&text).text(), text);
        }
    }
}
