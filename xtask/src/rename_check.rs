//! `rename-check`: proves that a change only renames items, moves files and edits comments.
//!
//! Both versions of each Rust file are split into tokens. Comments are dropped, and so are commas, semicolons and braces, which
//! rustfmt adds and removes when a line becomes too long. The remaining tokens must be the same, in the same order, except for
//! identifiers that the table renames. `use` and `mod` declarations are compared as sets, because rustfmt sorts them.
//! Snapshots, traces, golden files and SQL must not change at all.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

use anyhow::{Context, Result, anyhow, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::shell;

/// Number of tokens that are shown before and after the first difference.
const CONTEXT: usize = 6;

/// Number of tokens before the path of a stored declaration: `use` or `mod`, and the visibility.
const DECLARED: usize = 2;

/// Arguments of `rename-check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The commit to compare the work tree with
    base: String,
    /// The table of renamed items (tab separated: file, kind, old name, new name); without it, only comments may differ
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

/// Compares the work tree with the base commit.
pub(crate) fn run(args: &Args) -> Result<()> {
    let table = match &args.table {
        Some(path) => {
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            Table::parse(&text)
        }
        None => Table::default(),
    };
    let root = shell::root();
    let mut git = Command::new("git");
    git.args(["diff", "--name-status", "-z", "--find-renames=40%", &args.base]).current_dir(&root);
    let listed = shell::output(&mut git)?;
    let changes = changes(&String::from_utf8_lossy(&listed))?;
    let mut problems = Vec::new();
    for change in &changes {
        problems.extend(check(&root, &args.base, change, &table)?);
    }
    problems.iter().for_each(|problem| println!("{problem}"));
    if !problems.is_empty() {
        bail!("more than names and comments changed since {} ({} files)", args.base, problems.len());
    }
    println!("{} files changed since {}: only names and comments differ", changes.len(), args.base);
    Ok(())
}

/// A file that differs from the base commit.
#[derive(Debug, PartialEq, Eq)]
struct FileChange {
    /// `None` if the file is new.
    old: Option<PathBuf>,
    /// `None` if the file was deleted.
    new: Option<PathBuf>,
    is_moved_unchanged: bool,
}

/// Parses the output of `git diff --name-status -z`.
fn changes(listed: &str) -> Result<Vec<FileChange>> {
    let mut fields = listed.split('\0').filter(|field| !field.is_empty());
    let mut all = Vec::new();
    while let Some(status) = fields.next() {
        let mut path = || fields.next().map(PathBuf::from).context("git diff listed a status without a path");
        let first = path()?;
        let (old, new) = match status.as_bytes().first() {
            Some(b'A') => (None, Some(first)),
            Some(b'D') => (Some(first), None),
            Some(b'R' | b'C') => (Some(first), Some(path()?)),
            _ => (Some(first.clone()), Some(first)),
        };
        all.push(FileChange { old, new, is_moved_unchanged: status == "R100" });
    }
    Ok(all)
}

/// Returns what is wrong with a change.
fn check(root: &Path, base: &str, change: &FileChange, table: &Table) -> Result<Option<String>> {
    let (Some(old), Some(new)) = (&change.old, &change.new) else {
        let path = change.old.as_ref().or(change.new.as_ref()).map(|path| path.display().to_string());
        let path = path.unwrap_or_default();
        let is_text = [".md", ".tsv"].iter().any(|ending| path.ends_with(ending));
        return Ok((!is_text).then(|| format!("{path}: added or deleted")));
    };
    let ending = new.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if change.is_moved_unchanged || matches!(ending, "md" | "tsv") {
        return Ok(None);
    }
    if ending != "rs" {
        return Ok(Some(format!("{}: not a Rust file, but changed", new.display())));
    }
    let mut git = Command::new("git");
    git.args(["show", &format!("{base}:{}", old.display())]).current_dir(root);
    let before = String::from_utf8(shell::output(&mut git)?).context("a Rust file is not UTF-8")?;
    let after = fs::read_to_string(root.join(new)).with_context(|| format!("cannot read {}", new.display()))?;
    let before = Source::parse(&before).with_context(|| format!("{} at {base}", old.display()))?;
    let after = Source::parse(&after).with_context(|| new.display().to_string())?;
    Ok(before.difference(&after, table).map(|difference| format!("{}: {difference}", new.display())))
}

/// Pairs of old and new identifiers.
#[derive(Debug, Default)]
struct Table(BTreeSet<(String, String)>);

impl Table {
    /// Reads rows of `file`, `kind`, `old`, `new`; `#module` rows have two paths. Other lines with `#` are ignored.
    fn parse(text: &str) -> Self {
        let last = |name: &str| name.rsplit("::").next().unwrap_or(name).trim().to_owned();
        let stem = |path: &str| {
            let path = path.trim().trim_end_matches("/mod.rs").trim_end_matches(".rs");
            path.rsplit('/').next().unwrap_or(path).to_owned()
        };
        let row = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["#module", old, new] => Some((stem(old), stem(new))),
                [first, _, old, new, ..] if !first.starts_with('#') => Some((last(old), last(new))),
                _ => None,
            }
        };
        Self(text.lines().filter_map(row).collect())
    }

    fn allows(&self, old: &str, new: &str) -> bool {
        old == new || self.0.contains(&(old.to_owned(), new.to_owned())) || self.allows_literal(old, new)
    }

    /// Whether two string literals differ only in the arguments of a format string (`{NAME}`).
    fn allows_literal(&self, old: &str, new: &str) -> bool {
        if !(old.ends_with('"') && new.ends_with('"')) {
            return false;
        }
        let (old, new): (Vec<&str>, Vec<&str>) = (old.split('{').collect(), new.split('{').collect());
        let name =
            |part: &str| part.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(part.len());
        old.len() == new.len()
            && old.iter().zip(&new).enumerate().all(|(at, (old, new))| {
                let ((old_name, old_rest), (new_name, new_rest)) = (old.split_at(name(old)), new.split_at(name(new)));
                old == new
                    || (at > 0 && old_rest == new_rest && self.0.contains(&(old_name.to_owned(), new_name.to_owned())))
            })
    }

    fn allows_path(&self, old: &[String], new: &[String]) -> bool {
        old.len() == new.len() && old.iter().zip(new).all(|(old, new)| self.allows(old, new))
    }
}

/// The search for an old declaration's counterpart in the new version.
struct DeclarationSearch<'a> {
    /// For each new declaration, the old one it was matched with.
    matches: &'a mut [Option<usize>],
    /// New declarations that this search has considered.
    tried: BTreeSet<usize>,
}

/// The tokens of a Rust file.
#[derive(Debug, Default)]
struct Source {
    tokens: Vec<String>,
    /// Paths of `use` declarations and names of `mod` declarations, with their visibility.
    declarations: Vec<Vec<String>>,
}

impl Source {
    fn parse(text: &str) -> Result<Self> {
        let stream = TokenStream::from_str(text).map_err(|error| anyhow!("cannot be split into tokens: {error}"))?;
        let mut source = Self::default();
        source.add(stream);
        Ok(source)
    }

    fn add(&mut self, stream: TokenStream) {
        let mut trees = stream.into_iter().peekable();
        while let Some(tree) = trees.next() {
            match tree {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let mut mark = "#".to_owned();
                    if trees.next_if(|next| next.to_string() == "!").is_some() {
                        mark.push('!');
                    }
                    // A doc comment is the attribute `#[doc = "…"]`.
                    if trees.next_if(is_doc_comment).is_none() {
                        self.tokens.push(mark);
                        if let Some(TokenTree::Group(attribute)) =
                            trees.next_if(|next| matches!(next, TokenTree::Group(_)))
                        {
                            self.add_attribute(attribute.stream());
                        }
                    }
                }
                TokenTree::Ident(word) if word == "use" || word == "mod" => {
                    let rest: Vec<TokenTree> =
                        std::iter::from_fn(|| trees.next_if(|next| !is_end_of_declaration(next))).collect();
                    if trees.peek().is_some_and(|next| next.to_string() == ";") {
                        trees.next();
                        let visibility = self.take_visibility();
                        let head: [String; DECLARED] = [word.to_string(), visibility];
                        self.declarations.extend(paths(&rest, &head));
                    } else {
                        // A module with a body.
                        self.tokens.push(word.to_string());
                        self.add(rest.into_iter().collect());
                    }
                }
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::Brace | Delimiter::None => ("", ""),
                    };
                    self.push(open);
                    self.add(group.stream());
                    self.push(close);
                }
                TokenTree::Punct(punct) if matches!(punct.as_char(), ',' | ';') => {}
                TokenTree::Punct(_) | TokenTree::Ident(_) | TokenTree::Literal(_) => self.push(&tree.to_string()),
            }
        }
    }

    /// Adds the tokens of an attribute. A literal that is a path is the path: `#[serde(default = "module::function")]`.
    fn add_attribute(&mut self, stream: TokenStream) {
        for tree in stream {
            match tree {
                TokenTree::Group(group) => {
                    self.push("(");
                    self.add_attribute(group.stream());
                    self.push(")");
                }
                TokenTree::Literal(literal) => {
                    let literal = literal.to_string();
                    let text = literal.trim_matches('"');
                    let is_path = text.chars().all(|letter| letter.is_alphanumeric() || "_:".contains(letter));
                    if is_path { text.split("::").for_each(|name| self.push(name)) } else { self.push(&literal) }
                }
                TokenTree::Punct(punct) if punct.as_char() == ',' => {}
                TokenTree::Punct(_) | TokenTree::Ident(_) => self.push(&tree.to_string()),
            }
        }
    }

    fn push(&mut self, token: &str) {
        if !token.is_empty() {
            self.tokens.push(token.to_owned());
        }
    }

    /// Removes a visibility from the end of the tokens, and returns it.
    fn take_visibility(&mut self) -> String {
        let end = self.tokens.len();
        let start = match self.tokens.last().map(String::as_str) {
            Some("pub") => end - 1,
            Some(")") => {
                let open = self.tokens.iter().rposition(|token| token == "(").unwrap_or(end);
                if open > 0 && self.tokens[open - 1] == "pub" { open - 1 } else { end }
            }
            _ => end,
        };
        self.tokens.split_off(start).concat()
    }

    /// Finds the first pair of tokens that the table does not explain, as positions in both versions.
    ///
    /// A renamed field has a colon only where its value has another name: `Point { x }` becomes `Point { left: x }`, and
    /// `Point { x: left }` becomes `Point { left }`.
    fn first_mismatch(&self, new: &Self, table: &Table) -> Option<(usize, usize)> {
        let names_value = |tokens: &[String], at: usize, value: &str| {
            tokens.get(at + 1).is_some_and(|next| next == ":") && tokens.get(at + 2).is_some_and(|next| next == value)
        };
        let (mut at_old, mut at_new) = (0, 0);
        while let (Some(old_token), Some(new_token)) = (self.tokens.get(at_old), new.tokens.get(at_new)) {
            let is_binding_mode = matches!(old_token.as_str(), "mut" | "ref") && old_token != new_token;
            if is_binding_mode {
                let binding = self.tokens.get(at_old + 1);
                if !names_value(&new.tokens, at_new, old_token)
                    || !binding.is_some_and(|name| table.allows(name, new_token))
                {
                    return Some((at_old, at_new));
                }
                at_new += 2;
                continue;
            }
            if !table.allows(old_token, new_token) {
                return Some((at_old, at_new));
            }
            if old_token != new_token {
                let (was, is) = (&self.tokens, &new.tokens);
                if names_value(is, at_new, old_token) && !names_value(was, at_old, old_token) {
                    at_new += 2;
                } else if names_value(was, at_old, new_token) && !names_value(is, at_new, new_token) {
                    at_old += 2;
                }
            }
            at_old += 1;
            at_new += 1;
        }
        let is_complete = at_old == self.tokens.len() && at_new == new.tokens.len();
        (!is_complete).then_some((at_old, at_new))
    }

    /// Matches the old declaration at `at` with one of the new version. If that one is already matched, the declaration that
    /// has it is matched with another one (an augmenting path): two modules may have exchanged a name, so the first fitting
    /// declaration is not always the right one.
    fn match_declaration(&self, at: usize, new: &Self, table: &Table, search: &mut DeclarationSearch<'_>) -> bool {
        for (candidate, declaration) in new.declarations.iter().enumerate() {
            if table.allows_path(&self.declarations[at], declaration) && search.tried.insert(candidate) {
                let holder = search.matches[candidate];
                if holder.is_none_or(|holder| self.match_declaration(holder, new, table, search)) {
                    search.matches[candidate] = Some(at);
                    return true;
                }
            }
        }
        false
    }

    /// Describes the first difference that the table does not explain.
    fn difference(&self, new: &Self, table: &Table) -> Option<String> {
        if let Some((at_old, at_new)) = self.first_mismatch(new, table) {
            let near = |tokens: &[String], at: usize| {
                let end = tokens.len().min(at + CONTEXT);
                tokens[at.saturating_sub(CONTEXT).min(end)..end].join(" ")
            };
            return Some(format!("was `{}`, is `{}`", near(&self.tokens, at_old), near(&new.tokens, at_new)));
        }
        let unmatched = self.declarations.len().max(new.declarations.len());
        let mut matches = vec![None; unmatched];
        for at in 0..self.declarations.len() {
            let mut search = DeclarationSearch { matches: &mut matches, tried: BTreeSet::new() };
            if !self.match_declaration(at, new, table, &mut search) {
                let missing = self.declarations[at].join(" ");
                return Some(format!("`{missing}` is missing, or renamed without a row in the table"));
            }
        }
        let added = new.declarations.iter().zip(&matches).find(|(_, old)| old.is_none());
        added.map(|(new, _)| format!("`{}` is new", new.join(" ")))
    }
}

fn is_doc_comment(tree: &TokenTree) -> bool {
    let TokenTree::Group(group) = tree else { return false };
    let mut inside = group.stream().into_iter();
    let mut is_next = |wanted: &str| inside.next().is_some_and(|tree| tree.to_string() == wanted);
    is_next("doc") && is_next("=")
}

/// Whether a `use` or `mod` declaration ends before this token.
fn is_end_of_declaration(tree: &TokenTree) -> bool {
    match tree {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    }
}

/// The paths of a `use` tree, each beginning with `head`.
fn paths(tree: &[TokenTree], head: &[String]) -> Vec<Vec<String>> {
    let mut path = head.to_vec();
    for (at, token) in tree.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| token.to_string() == ",";
                let branches = inside.split(is_comma).filter(|branch| !branch.is_empty());
                let mut all: Vec<_> = branches.flat_map(|branch| paths(branch, &path)).collect();
                all.extend(tree.get(at + 1..).filter(|rest| !rest.is_empty()).map(|_| path.clone()));
                return all;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            // `a::{self}` is `a`.
            TokenTree::Ident(word) if word == "self" && path.len() > DECLARED => {}
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => path.push(token.to_string()),
        }
    }
    vec![path]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(old: &str, new: &str, table: &str) -> Option<String> {
        Source::parse(old).unwrap().difference(&Source::parse(new).unwrap(), &Table::parse(table))
    }

    const TABLE: &str = "src/a.rs\ttype\tPurse\tBudgetLedger\nsrc/a.rs\tmethod\tPurse::pay\tcharge\n#module\tsrc/purse.rs\tsrc/budget.rs\n";

    #[test]
    fn comments_and_layout_may_differ() {
        let old = "//! Old.\n/// A.\nfn a(x: u8, y: u8) { call(x, y) } // why\n";
        let new = "//! New.\nfn a(\n    x: u8,\n    y: u8,\n) {\n    call(\n        x,\n        y,\n    )\n}\n";
        assert_eq!(difference(old, new, ""), None);
    }

    #[test]
    fn names_may_differ_as_the_table_says() {
        let old = "use crate::{purse::Purse, zebra::{self, Z}}; mod purse; fn a(p: Purse) { p.pay(\"Purse\") }";
        let new = "use crate::{budget::BudgetLedger, zebra, zebra::Z}; mod budget; fn a(p: BudgetLedger) { p.charge(\"Purse\") }";
        assert_eq!(difference(old, new, TABLE), None);
        assert!(difference(old, new, "").is_some());
    }

    #[test]
    fn a_renamed_field_keeps_the_name_of_its_value() {
        let table = "src/a.rs\tfield\tPoint::x\tleft\n";
        for (old, new) in [
            ("fn a() { Point { x, y } }", "fn a() { Point { left: x, y } }"),
            ("fn a() { Point { x: left, y } }", "fn a() { Point { left, y } }"),
            ("fn a(Point { x }: Point) {}", "fn a(Point { left: x }: Point) {}"),
            ("fn a() { let Point { mut x } = p; }", "fn a() { let Point { left: mut x } = p; }"),
            ("fn a() { Point { x: z, y } }", "fn a() { Point { left: z, y } }"),
        ] {
            assert_eq!(difference(old, new, table), None, "{old} -> {new}");
        }
        for (old, new) in [
            ("fn a() { Point { x, y } }", "fn a() { Point { left: z, y } }"),
            ("fn a() { Point { x: z, y } }", "fn a() { Point { left, y } }"),
            ("fn a() { Point { x: 1, y } }", "fn a() { Point { left, y } }"),
        ] {
            assert!(difference(old, new, table).is_some(), "{old} -> {new}");
        }
    }

    #[test]
    fn names_in_strings_may_differ_as_the_table_says() {
        let table = "src/a.rs\tconst\tMOST\tMAX_FILES\nsrc/a.rs\tfn\tpart\tfraction\n";
        for (old, new) in [
            ("fn a() { format!(\"at most {MOST:?} of {x}\") }", "fn a() { format!(\"at most {MAX_FILES:?} of {x}\") }"),
            ("#[serde(with = \"number::part\")] struct A;", "#[serde(with = \"number::fraction\")] struct A;"),
            ("#[serde(default = \"part\")] struct A;", "#[serde(default = \"fraction\")] struct A;"),
        ] {
            assert_eq!(difference(old, new, table), None, "{old} -> {new}");
        }
        for (old, new) in [
            ("fn a() { \"MOST\" }", "fn a() { \"MAX_FILES\" }"),
            ("fn a() { format!(\"{MOST} a\") }", "fn a() { format!(\"{MAX_FILES} b\") }"),
        ] {
            assert!(difference(old, new, table).is_some(), "{old} -> {new}");
        }
    }

    #[test]
    fn modules_may_exchange_a_name() {
        let table = "#module\tsrc/post.rs\tsrc/delivery.rs\n#module\tsrc/delivery.rs\tsrc/settings.rs\n";
        assert_eq!(difference("mod delivery; mod post;", "mod delivery; mod settings;", table), None);
        assert!(difference("mod delivery; mod post;", "mod delivery; mod other;", table).is_some());
    }

    #[test]
    fn everything_else_is_a_difference() {
        for (old, new) in [
            ("fn a() { b(1) }", "fn a() { b(2) }"),
            ("fn a() { b() }", "fn a() { b(); c() }"),
            ("fn a() { \"text\" }", "fn a() { \"other\" }"),
            ("use a::b;", "use a::c;"),
            ("use a::b;", "pub use a::b;"),
            ("mod a;", "mod a; mod b;"),
            ("#[cfg(test)] fn a() {}", "fn a() {}"),
            ("fn a() { Purse }", "fn a() { Wallet }"),
        ] {
            assert!(difference(old, new, TABLE).is_some(), "{old} -> {new}");
        }
    }

    #[test]
    fn changes_are_read_from_git() {
        let listed = "M\0a.rs\0R100\0b.rs\0c.rs\0A\0d.snap\0";
        let path = |name: &str| Some(PathBuf::from(name));
        let expected = [
            FileChange { old: path("a.rs"), new: path("a.rs"), is_moved_unchanged: false },
            FileChange { old: path("b.rs"), new: path("c.rs"), is_moved_unchanged: true },
            FileChange { old: None, new: path("d.snap"), is_moved_unchanged: false },
        ];
        assert_eq!(changes(listed).unwrap(), expected);
    }
}
