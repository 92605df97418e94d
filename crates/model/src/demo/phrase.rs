//! Intent detection for plain requests: a table of phrases and its matcher.

use Intent::{Date, Edit, Help, List, Note, Read, Run, Search, Unknown, Write};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Intent {
    Help,
    Date,
    Note,
    Write,
    Edit,
    Run,
    Search,
    List,
    Read,
    Unknown,
}

/// An intent and its arguments.
#[derive(Debug, PartialEq)]
pub(super) struct DetectedIntent {
    pub(super) intent: Intent,
    /// A file or folder; the workspace if none was named.
    pub(super) path: String,
    /// A search term, a note, a content or a command.
    pub(super) text: String,
    /// Replacement text.
    pub(super) with: String,
}

/// The first matching phrase counts. `a|b` is either, `a?` is optional, and `<>` captures: `<text>` verbatim, `<term>`
/// without the punctuation at the end of the sentence, `<path>` one word, `<file>` and `<folder>` with surrounding
/// filler words. `!` requires the capture to look like a path: "show me Cargo.toml" names a file, "show me love" does
/// not.
#[rustfmt::skip]
const TABLE: &[(Intent, &str)] = &[
    (Help, "help me? out?"),
    (Help, "hello|hi|hey|homard|there"),
    (Help, "good morning|afternoon|evening"),
    (Help, "what can|do you do|help here|with|for? me?"),
    (Help, "what|who|how are you"),
    (Help, "how do|can you work|help me?"),
    (Date, "what time|date|day is it|today now|today?"),
    (Date, "what|what's|whats is? the|today's current? time|date|day now|today?"),
    (Date, "the|today's? current? time|date now|today?"),
    (Note, "write|make|take|add|leave|create|save|keep a|another|this quick|short? note|reminder that|saying|to|about? <text>"),
    (Note, "note that|to|down|this? that? <text>"),
    (Note, "remember|remind me? that|to|this? <text>"),
    (Note, "don't forget that|to? <text>"),
    (Note, "jot|write down that? <text>"),
    (Note, "add|write|put|save <text> to|in|into the|my|your notes"),
    (Write, "create|make|write|save a|an|the? new? text? file called|named? <path> with|containing|saying the? content|contents|text|words? <text>"),
    (Write, "create|make a|an|the? new|empty? text? file called|named? <path>"),
    (Write, "create|make|write <path> with|containing|saying the? content|contents|text|words? <text>"),
    (Write, "write|save|put|store the? text|words|word|line? <text> to|into|in|as <file!>"),
    (Edit, "replace|change the? word|text|line? <text> with|to|by|into <with> in|inside the? file? <file!>"),
    (Run, "run|execute|exec the|this? following? shell? command <term>"),
    (Run, "run|execute|exec <term!>"),
    (List, "show|see|view|display|open|read|give|print <folder!>"),
    (Read, "show|see|give|get|print|display|look at? <file!>"),
    (Read, "what|what's|whats is? in|inside <file!>"),
    (Read, "what|what's|whats is|are? the contents|content of <file!>"),
    (Read, "what does <file!> say|contain"),
    (Search, "search|grep|look|scan|find for? the|all|any? word|text|string|phrase|mentions|occurrences? of? <term> in|inside|under <folder>"),
    (Search, "search|scan|look through|in|inside? the|all|my files|code|project for <term>"),
    (Search, "search|scan|look through|in|inside? <folder> for <term>"),
    (Search, "search|grep|scan|find|locate for? the|all|any? word|text|string|phrase|mentions|occurrences? of? <term>"),
    (Search, "look for the|all|any? word|text|string|phrase|mentions|occurrences? of? <term>"),
    (Search, "where is|are|does <term> mentioned|used|defined|appear|occur"),
    (Search, "where do|did we|you|i|they mention|use|define <term>"),
    (Search, "which|what files|file mention|mentions|contain|contains|use|uses <term>"),
    (List, "ls|dir|list <folder>"),
    (List, "what|which|what's|whats <folder!>"),
    (List, "what|what's|whats is? in|inside|under <folder>"),
    (Read, "read|cat|open|view|print|display|type <file>"),
];

/// Filler words before and after a request.
const BEFORE: &str = "please could can would will you kindly hey hi hello ok okay now so homard just i i'd want need like to \
                      let let's tell me go ahead and then also";
const AFTER: &str = "please thanks for me";

/// Filler words around a file or folder name.
const AROUND: &str = "the my your our of in inside under from at contents content that me all just out are is there do we i \
                      you have see named called whole what what's";
const FOLDER: &str = "files folder directory dir workspace everything";
const FILE: &str = "file document text this";
const HERE: &str = "here this current working";

/// Maximum length of a message that can be a plain request, and maximum number of words in a file or folder capture.
const MAX_BYTES: usize = 20_000;
const MAX_AROUND: usize = 12;

/// Detects the intent of a message.
pub(super) fn detect_intent(message: &str) -> DetectedIntent {
    let message = without_time(message);
    let all = if message.len() > MAX_BYTES { Vec::new() } else { split(message) };
    let mut words = all.as_slice();
    while words.len() > 1 && is_filler(BEFORE, &words[0]) {
        words = &words[1..];
    }
    let mut plain = words;
    while plain.len() > 1 && is_filler(AFTER, &plain[plain.len() - 1]) {
        plain = &plain[..plain.len() - 1];
    }
    let detected = |intent| DetectedIntent { intent, path: ".".to_owned(), text: String::new(), with: String::new() };
    let found = TABLE.iter().find_map(|(intent, phrase)| {
        // Text to be written is taken verbatim.
        let words = if matches!(intent, Note | Write | Edit) { words } else { plain };
        let phrase: Vec<_> = phrase.split(' ').collect();
        let mut detected = detected(*intent);
        fits(&phrase, words, message, &mut detected).then_some(detected)
    });
    found.unwrap_or_else(|| detected(Unknown))
}

/// Strips a timestamp prefix such as `[Sun 2026-11-15 02:24 UTC] `.
fn without_time(message: &str) -> &str {
    let stamped = message.trim_start().strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let is_date = |word: &str| word.len() == 10 && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    match stamped {
        Some((stamp, rest)) if stamp.split(' ').any(is_date) => rest,
        Some(_) | None => message,
    }
}

/// A word or a quoted string.
struct Word {
    start: usize,
    end: usize,
    /// Lower case without punctuation, for comparison.
    bare: String,
}

fn split(message: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(space) = message[at..].find(|c: char| !c.is_whitespace()) {
        let start = at + space;
        let quoted = quotes(&message[start..]).map_or(start, |quoted| start + quoted);
        at = message[quoted..].find(char::is_whitespace).map_or(message.len(), |length| quoted + length);
        let bare = message[start..at].to_lowercase().replace('’', "'");
        words.push(Word { start, end: at, bare: bare.trim_end_matches([',', '.', ':', ';', '!', '?']).to_owned() });
    }
    words
}

/// Returns the length of the quoted string at the start of a text.
fn quotes(text: &str) -> Option<usize> {
    let open = text.chars().next().filter(|open| matches!(open, '\'' | '"' | '`' | '“' | '‘'))?;
    let close = match open {
        '“' => '”',
        '‘' => '’',
        same => same,
    };
    let inside = text[open.len_utf8()..].find(close)?;
    Some(open.len_utf8() + inside + close.len_utf8())
}

/// Returns the content of a quoted string, if only punctuation follows it.
fn unquoted(text: &str) -> Option<&str> {
    let (quoted, rest) = text.split_at(quotes(text)?);
    let inside = quoted.strip_prefix(['\'', '"', '`', '“', '‘'])?.strip_suffix(['\'', '"', '`', '”', '’'])?;
    rest.trim_matches(['.', '?', '!', ',']).is_empty().then_some(inside)
}

/// Strips sentence punctuation from a term or path; the dots of `..` are kept.
fn without_punctuation(text: &str) -> &str {
    let text = text.trim_end_matches(['?', '!', ',', ';', ':']);
    let without = text.strip_suffix('.').filter(|rest| rest.ends_with(|c: char| c.is_alphanumeric() || c == ')'));
    without.unwrap_or(text)
}

fn is_filler(list: &str, word: &Word) -> bool {
    list.split_ascii_whitespace().any(|listed| listed == word.bare)
}

/// Matches the words against a phrase in the syntax of [`TABLE`], with backtracking. If it returns true, `detected`
/// contains the captures.
fn fits(phrase: &[&str], words: &[Word], message: &str, detected: &mut DetectedIntent) -> bool {
    let Some((head, rest)) = phrase.split_first() else { return words.is_empty() };
    if let Some(slot) = head.strip_prefix('<') {
        if rest.is_empty() {
            return take(slot, words, message, detected);
        }
        // Longest first, so that the last `in` of a sentence introduces the location.
        let mut lengths = (0..=words.len()).rev();
        return lengths
            .any(|at| fits(rest, &words[at..], message, detected) && take(slot, &words[..at], message, detected));
    }
    let alternatives = head.trim_end_matches('?');
    let is_match = words.first().is_some_and(|word| alternatives.split('|').any(|listed| listed == word.bare));
    (is_match && fits(rest, &words[1..], message, detected))
        || (head.ends_with('?') && fits(rest, words, message, detected))
}

fn take(slot: &str, words: &[Word], message: &str, detected: &mut DetectedIntent) -> bool {
    let captured = match words {
        [] => "",
        [first, .., last] => &message[first.start..last.end],
        [only] => &message[only.start..only.end],
    };
    let text = match slot {
        "with>" => {
            unquoted(captured).unwrap_or(captured).clone_into(&mut detected.with);
            return !captured.is_empty();
        }
        "text>" => unquoted(captured).unwrap_or(captured),
        "term>" => unquoted(captured).unwrap_or_else(|| without_punctuation(captured)),
        "term!>" if words.first().is_some_and(|first| is_filler("the a my it to", first)) => "",
        "term!>" => unquoted(captured).unwrap_or_else(|| without_punctuation(captured)),
        _ => return take_path(slot, words, message, detected),
    };
    text.clone_into(&mut detected.text);
    !text.is_empty()
}

fn take_path(slot: &str, words: &[Word], message: &str, detected: &mut DetectedIntent) -> bool {
    if words.len() > MAX_AROUND {
        return false;
    }
    let contains = |list| words.iter().any(|word| is_filler(list, word));
    let is_folder = slot.starts_with("folder");
    let nouns = if is_folder { FOLDER } else { FILE };
    let is_article = |word: &Word| !is_folder && words.len() > 1 && word.bare == "a";
    let is_name = |word: &&Word| !is_filler(AROUND, word) && !is_filler(nouns, word) && !is_article(word);
    let names: Vec<_> = words.iter().filter(is_name).map(|name| &message[name.start..name.end]).collect();
    let path = match (slot, names.as_slice()) {
        ("folder>" | "folder!>", _) if contains(HERE) => ".",
        ("folder>", []) => ".",
        ("folder!>", []) if contains(FOLDER) => ".",
        (_, [path]) => unquoted(path).unwrap_or_else(|| without_punctuation(path)),
        _ => return false,
    };
    path.clone_into(&mut detected.path);
    match slot {
        "folder!>" => contains(FOLDER) || contains(HERE) || path.ends_with('/'),
        "file!>" => contains("file document") || path.contains(['.', '/']) || path.starts_with(char::is_uppercase),
        "path>" => words.len() == 1,
        _ => true,
    }
}
