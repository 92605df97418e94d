//! Ratchets for the language of the project: counts that may fall and must not grow.
//!
//! `docs/glossary.md` says which words to use. A count finds symptoms only; a line without these words can still be
//! unclear, and a few uses are right.

use std::collections::{BTreeMap, BTreeSet};

use super::SourceFile;

/// Words and phrases that hide what happens. Whole words, in lower case.
const DIALECT: &[&str] = &[
    "whoever",
    "nobody",
    "somebody",
    "made short",
    "at work",
    "taken in",
    "taken up",
    "take up",
    "takes up",
    "the house",
    "is told",
    "are told",
    "was told",
    "were told",
    "tell it",
    "tell that",
    "tell how",
    "tell what",
    "tell who",
    "tell which",
    "tell whether",
    "tells it",
    "tells that",
    "tells how",
    "tells what",
    "tells who",
    "tells which",
    "tells whether",
    "what became",
    "needs a hand",
    "rests",
    "sum up",
    "sums up",
    "summed up",
    "passed over",
    "goes on",
    "of late",
    "so many",
    "all the same",
    "let in",
    "lets in",
    "void",
    "household",
    "stranger",
    "burial",
    "bury",
    "undertaker",
    "errand",
    "mend",
    "mends",
    "mended",
    "mending",
];

/// Type names that a module's name completes, so that several modules may have one.
const COMPLETED: [&str; 7] = ["Args", "Config", "Error", "Kind", "Params", "Settings", "State"];

/// Number of types that may share a name.
const SAME_NAME: usize = 3;

/// Participles that do not end in `ed`.
const PARTICIPLES: &[&str] = &[
    "Begun", "Bound", "Broken", "Brought", "Built", "Done", "Drawn", "Driven", "Found", "Given", "Gone", "Heard",
    "Held", "Kept", "Known", "Left", "Lent", "Lost", "Made", "Meant", "Met", "Paid", "Put", "Read", "Said", "Seen",
    "Sent", "Set", "Shown", "Spoken", "Spent", "Taken", "Thought", "Told", "Torn", "Woken", "Worn", "Written",
];

/// Nouns that end in `ed`.
const NOUNS_IN_ED: &[&str] = &["Embed", "Feed", "Need", "Seed", "Speed"];

/// Fields of a struct above which it is counted.
const MOST_FIELDS: usize = 20;

/// Files over which the `impl` blocks of a type may be spread.
const MOST_IMPL_FILES: usize = 4;

/// The counted symptoms, each with its limit. Lower a limit with the change that made the count smaller.
const ALLOWED: [(&str, usize); 7] = [
    ("comment lines with dialect words", 2),
    ("lines of docs with dialect words", 0),
    ("type names that more than three types have", 9),
    ("types named by a bare participle", 4),
    ("tuples as parameters of functions", 0),
    ("structs with more than 20 fields, wire and config aside", 1),
    ("types whose impl blocks are in more than four files", 2),
];

/// Reports each count that has grown.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let counts = [
        files.iter().filter(|file| file.is_rust()).map(|file| comment_lines(&file.text)).sum(),
        files.iter().filter(|file| is_page(file)).map(|file| dialect_lines(&file.text)).sum(),
        shared_names(files).len(),
        participles(files).len(),
        files.iter().filter(|file| file.is_rust()).map(|file| tuple_parameters(&without_strings(&file.text))).sum(),
        files.iter().filter(|file| file.is_rust()).map(|file| large_structs(&file.text)).sum(),
        scattered(files).len(),
    ];
    println!("language:");
    for ((what, allowed), count) in ALLOWED.iter().zip(counts) {
        println!("  {count:>5}  {what} (at most {allowed})");
    }
    let grown = ALLOWED.iter().zip(counts).filter(|((_, allowed), count)| count > allowed);
    grown
        .map(|((what, allowed), count)| {
            format!("{count} {what}: there were {allowed}; use the words of docs/glossary.md")
        })
        .collect()
}

/// Whether a file is a page of the documentation. Decision records keep their words, and the glossary lists those that
/// are replaced.
fn is_page(file: &SourceFile) -> bool {
    let is_other = file.path.starts_with("docs/adr") || file.path.ends_with("glossary.md");
    file.path.starts_with("docs") && !is_other && file.path.extension().is_some_and(|ending| ending == "md")
}

fn comment_lines(text: &str) -> usize {
    let comment = |line: &&str| line.find("//").is_some_and(|at| is_comment(line, at) && has_dialect(&line[at..]));
    text.lines().filter(comment).count()
}

/// Whether `//` begins a comment: at the start of a line or after a space, so not in an address.
fn is_comment(line: &str, at: usize) -> bool {
    at == 0 || line[..at].ends_with(char::is_whitespace)
}

fn dialect_lines(text: &str) -> usize {
    text.lines().filter(|line| has_dialect(line)).count()
}

fn has_dialect(line: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let line = line.to_ascii_lowercase();
    let is_whole =
        |at: usize, word: &str| !line[..at].ends_with(is_letter) && !line[at + word.len()..].starts_with(is_letter);
    DIALECT.iter().any(|word| line.match_indices(word).any(|(at, _)| is_whole(at, word)))
}

/// The definitions of types in a text, by name.
fn types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = without_visibility(line.trim_start());
        let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
        let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        rest.starts_with(|c: char| c.is_ascii_uppercase()).then(|| &rest[..end])
    })
}

fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map_or(line, |(_, rest)| rest.trim_start()),
        None => rest.trim_start(),
    }
}

fn rust_types(files: &[SourceFile]) -> BTreeMap<&str, usize> {
    let mut all = BTreeMap::new();
    for name in files.iter().filter(|file| file.is_rust()).flat_map(|file| types(&file.text)) {
        *all.entry(name).or_default() += 1;
    }
    all
}

fn shared_names(files: &[SourceFile]) -> Vec<&str> {
    let is_shared = |(name, count): &(&str, usize)| *count > SAME_NAME && !COMPLETED.contains(name);
    rust_types(files).into_iter().filter(is_shared).map(|(name, _)| name).collect()
}

fn participles(files: &[SourceFile]) -> Vec<&str> {
    rust_types(files).into_keys().filter(|name| is_participle(name)).collect()
}

/// Whether a type's name is one word, and that a participle.
fn is_participle(name: &str) -> bool {
    let is_one_word = name.chars().skip(1).all(|c| c.is_ascii_lowercase());
    let ends_in_ed = name.ends_with("ed") && name.len() > 3 && !NOUNS_IN_ED.contains(&name);
    is_one_word && (ends_in_ed || PARTICIPLES.contains(&name))
}

/// Counts the tuples among the parameters of functions, destructured or not. Closures and macros do not count, and
/// neither does `from`, whose parameter a trait prescribes.
fn tuple_parameters(text: &str) -> usize {
    let functions = text.match_indices("fn ").filter_map(|(at, _)| {
        let is_keyword = text[..at].chars().next_back().is_none_or(|c| c.is_whitespace() || c == '(');
        let rest = is_keyword.then(|| &text[at + 3..])?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').filter(|end| *end > 0)?;
        (&rest[..end] != "from").then(|| parameters(&rest[end..]))
    });
    functions.flatten().filter(|parameter| is_tuple(parameter)).count()
}

/// Returns a Rust text without its comments and the contents of its string literals, which may look like code.
fn without_strings(text: &str) -> String {
    let (mut code, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let length = literal(rest, code.chars().next_back());
        if length == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            rest = &rest[length..];
        }
    }
    code
}

/// Length of the comment, string or character literal with which a text begins; 0 if it begins with something else.
fn literal(text: &str, previous: Option<char>) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    let hashes = text.strip_prefix('r').map(|rest| rest.len() - rest.trim_start_matches('#').len());
    let is_word = previous.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if let Some(hashes) = hashes.filter(|hashes| !is_word && text[1 + hashes..].starts_with('"')) {
        let (start, end) = (2 + hashes, format!("\"{}", "#".repeat(hashes)));
        return text[start..].find(&end).map_or(text.len(), |at| start + at + end.len());
    }
    let quote = text.chars().next().filter(|c| *c == '"' || (*c == '\'' && is_character(text)));
    let Some(quote) = quote else { return 0 };
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let is_end = *c == quote && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// Whether an apostrophe begins a character literal, and not a lifetime.
fn is_character(text: &str) -> bool {
    let mut following = text.chars().skip(1);
    matches!((following.next(), following.next()), (Some('\\'), _) | (Some(_), Some('\'')))
}

/// Returns the parameters of a function, given what follows its name; none if that is not a function.
fn parameters(text: &str) -> Vec<&str> {
    let (mut depth, mut previous, mut start, mut found) = (0_usize, ' ', None, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' if depth == 0 => start = Some(at + 1),
            ')' | ',' if depth == 1 => {
                if let Some(from) = start {
                    found.push(text[from..at].trim());
                    start = Some(at + 1);
                }
            }
            _ if depth == 0 && c != '<' => break,
            _ => {}
        }
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' if depth == 1 => break,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            // Not that of `->`.
            '>' if previous != '-' => depth = depth.saturating_sub(1),
            _ => {}
        }
        previous = c;
    }
    found
}

/// True if a parameter has the type of a tuple or a reference to one, or is destructured as one.
fn is_tuple(parameter: &str) -> bool {
    let Some((pattern, of)) = parameter.split_once(": ") else { return false };
    let of = of.trim_start_matches(['&', ' ']);
    let of =
        of.split_once(' ').filter(|(first, _)| first.starts_with('\'') || *first == "mut").map_or(of, |(_, of)| of);
    let is_bound = ["(dyn ", "(impl "].iter().any(|start| of.starts_with(start));
    pattern.trim_start().starts_with('(') || (of.starts_with('(') && of != "()" && !is_bound)
}

/// Counts structs with named fields of which there are too many, except those that are read from JSON: the wire and the
/// config prescribe their fields. Trusts rustfmt: each field is on a line of its own.
fn large_structs(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &&str| without_visibility(line.trim_start()).starts_with("struct ") && line.ends_with('{');
    let is_field = |line: &&&str| {
        let line = without_visibility(line.trim_start());
        let end = line.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(0);
        end > 0 && line[end..].starts_with(": ") && line.ends_with(',')
    };
    let starts = lines.iter().enumerate().filter(|(_, line)| begins(line));
    let is_prescribed = |at: usize| {
        let attributes = lines[..at].iter().rev().take_while(|line| line.trim_start().starts_with("#["));
        attributes.into_iter().any(|line| line.contains("Deserialize"))
    };
    let sized = starts.filter(|(at, line)| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let body = lines[at + 1..].iter().take_while(|line| line.strip_prefix(indent) != Some("}"));
        body.filter(is_field).count() > MOST_FIELDS && !is_prescribed(*at)
    });
    sized.count()
}

/// Types with `impl Type` blocks in too many files of one crate, in proportion to the number of types of that name in
/// the crate. Implementations of traits do not count.
fn scattered(files: &[SourceFile]) -> Vec<(String, &str)> {
    let mut impl_files: BTreeMap<(String, &str), BTreeSet<usize>> = BTreeMap::new();
    let mut definitions: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for (number, file) in files.iter().enumerate().filter(|(_, file)| file.is_rust()) {
        let package: Vec<_> = file.path.iter().take(2).map(|part| part.to_string_lossy().into_owned()).collect();
        for name in types(&file.text) {
            *definitions.entry((package.join("/"), name)).or_default() += 1;
        }
        for line in file.text.lines().filter(|line| line.starts_with("impl") && !line.contains(" for ")) {
            let rest = line.trim_start_matches("impl").trim_start();
            let rest = if rest.starts_with('<') { rest.split_once("> ").map_or(rest, |(_, rest)| rest) } else { rest };
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            impl_files.entry((package.join("/"), &rest[..end])).or_default().insert(number);
        }
    }
    impl_files.retain(|name, files| files.len() > MOST_IMPL_FILES * definitions.get(name).copied().unwrap_or(1));
    impl_files.into_keys().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.to_owned() }
    }

    #[test]
    fn dialect_words_are_counted_in_comments_and_pages() {
        let rust = "/// What became of it.\nlet a = \"nobody\"; // Nobody knows.\nlet b = \"https://void\";\n// avoid nobodys\n";
        assert_eq!(comment_lines(rust), 2);
        assert_eq!(dialect_lines("Somebody is told.\nPlain words.\nThe void\n"), 2);
        let pages = ["docs/a.md", "docs/b/c.md", "docs/adr/001.md", "README.md"];
        assert_eq!(pages.map(|path| is_page(&file(path, ""))), [true, true, false, false]);
    }

    #[test]
    fn names_that_many_types_share_are_counted() {
        let same = "pub(crate) struct Line;\nenum Line {}\n    pub trait Line {}\ntype Line = u8;\nstruct Args;\nstruct Args;\nstruct Args;\nstruct Args;\nstruct Other;\n";
        assert_eq!(shared_names(&[file("a.rs", same)]), ["Line"]);
    }

    #[test]
    fn participles_are_one_word() {
        let counted = ["Said", "Queued", "Found"].map(is_participle);
        let others = ["Feed", "SaidOnce", "TicketQueued", "Bed", "Transcript"].map(is_participle);
        assert_eq!((counted, others), ([true; 3], [false; 5]));
    }

    #[test]
    fn tuples_as_parameters_are_counted() {
        let counted = "fn a((b, c): (B, C)) {}\npub(crate) fn d<E: Fn(F) -> G>(\n    e: E,\n    f: &'a (F, G),\n) {}\n    async fn h(&self, i: (I, J)) {}\n";
        assert_eq!(tuple_parameters(counted), 3);
        let others = "let (h, i): (H, I) = j;\nfn k(l: &[(L, M)], n: impl Fn((N, O)), p: &(dyn P + Q)) -> (L, M) {}\n\
                      let r = |(s, t): (S, T)| s;\nfn from((u, v): (U, V)) -> W {}\nfn x(y: Y, z: ()) {}\n";
        assert_eq!(tuple_parameters(others), 0);
        let quoted = "let a = \"\\\"fn b((c, d): (C, D)) {}\";\n// fn b((c, d): (C, D)) {}\nlet e = r#\"\"fn b((c, d): (C, D))\"#;\n";
        assert_eq!(tuple_parameters(&without_strings(quoted)), 0);
        let after = "let a = ['\"', '\\''];\nfn b<'a>((c, d): (&'a C, D)) {}\nlet e = '\"';\n";
        assert_eq!(tuple_parameters(&without_strings(after)), 1);
    }

    #[test]
    fn structs_with_many_fields_are_counted() {
        let fields = |count: usize| (0..count).map(|at| format!("    pub f{at}: u8,\n")).collect::<String>();
        let text = format!(
            "struct A {{\n{}}}\npub struct B {{\n{}}}\n#[derive(Deserialize)]\n#[serde(default)]\nstruct C {{\n{}}}\n",
            fields(20),
            fields(21),
            fields(21)
        );
        assert_eq!(large_structs(&text), 1);
    }

    #[test]
    fn types_that_many_files_implement_are_counted() {
        let files: Vec<_> =
            (0..5).map(|at| file(&format!("crates/a/{at}.rs"), "impl<'a> Hub<'a> {\nimpl X for Y {\n")).collect();
        assert_eq!(scattered(&files), [("crates/a".to_owned(), "Hub")]);
        assert_eq!(scattered(&files[1..]), []);
        let same_name: Vec<_> =
            (0..5).map(|at| file(&format!("crates/a/{at}.rs"), "struct Args;\nimpl Args {\n")).collect();
        assert_eq!(scattered(&same_name), []);
    }
}
