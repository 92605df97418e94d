//! One-line labels of tool calls: an emoji, a display name, and the subject of the call.
//!
//! Only the identifying argument is shown: a path, a command, a URL. Content written to a file or a person is not.

mod tools;

use serde_json::Value;

/// Maximum number of characters of a subject.
const MAX_SUBJECT_CHARS: usize = 120;
/// Maximum number of subjects in one line.
const MAX_SUBJECTS: usize = 10;
/// Arguments that are paths.
const PATHS: &[&str] = &["path", "paths", "file_path", "filePath", "image", "pdf", "pdfs"];

/// How a channel renders text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// As it is.
    #[default]
    Plain,
    /// As Markdown: paths and commands are shown as code.
    Markdown,
}

/// Subject of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSubject {
    /// How a command was run: `elevated`, `pty`.
    flags: Vec<&'static str>,
    text: String,
    is_path: bool,
}

/// Returns the subjects of a call, from its arguments; most tools have one, a patch has one per file. `home` is the
/// user's home directory, shown as `~`.
pub fn subjects(tool: &str, arguments: &Value, home: Option<&str>) -> Vec<CallSubject> {
    if tool == "apply_patch" {
        let patch = arguments.get("input").or_else(|| arguments.get("patch")).and_then(Value::as_str);
        return patched_files(patch.unwrap_or_default()).map(|path| CallSubject::new(path, true, home)).collect();
    }
    let known = find(tool).unwrap_or(&tools::UNKNOWN);
    let argument = known.key_arguments.iter().find_map(|name| Some((*name, argument_texts(arguments.get(name)?)?)));
    let (is_path, mut texts) = argument.map_or((false, Vec::new()), |(name, texts)| (PATHS.contains(&name), texts));
    let action = arguments.get("action").and_then(Value::as_str).map(str::trim).filter(|action| !action.is_empty());
    if let Some(action) = action {
        texts = vec![[&[action.to_owned()], &texts[..]].concat().join(" ")];
    }
    let mut subjects: Vec<_> =
        texts.iter().map(|text| CallSubject::new(text, is_path && action.is_none(), home)).collect();
    if tool == "exec" {
        let is_set = |name: &&str| arguments.get(*name).and_then(Value::as_bool) == Some(true);
        let flags: Vec<_> = ["elevated", "pty"].into_iter().filter(is_set).collect();
        subjects.iter_mut().for_each(|subject| subject.flags.clone_from(&flags));
    }
    subjects
}

/// Summarizes calls of one tool in one line. Paths in the same folder are grouped.
pub fn summary(tool: &str, subjects: &[CallSubject], style: Style) -> String {
    let title = title(tool);
    let mut parts: Vec<String> = Vec::new();
    let mut hidden = 0;
    for (flags, text) in grouped(subjects) {
        let text = code(&text, style);
        let part = flags.iter().copied().chain([text.as_str()]).collect::<Vec<_>>().join(" · ");
        if parts.len() == MAX_SUBJECTS {
            hidden += 1;
        } else if !parts.contains(&part) {
            parts.push(part);
        }
    }
    if hidden > 0 {
        parts.push(format!("and {hidden} more"));
    }
    if parts.is_empty() { title } else { format!("{title}: {}", parts.join("; ")) }
}

/// Returns the emoji and the display name of a tool. For an unknown tool, the name is derived from its identifier.
pub fn title(tool: &str) -> String {
    match find(tool) {
        Some(known) => format!("{} {}", known.emoji, known.label),
        None => {
            let words: Vec<_> = tool.split(['_', ' ']).filter(|word| !word.is_empty()).collect();
            let name = words.join(" ");
            let mut letters = name.chars();
            let capital: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
            format!("{} {capital}{}", tools::UNKNOWN.emoji, letters.as_str())
        }
    }
}

fn find(tool: &str) -> Option<&'static tools::ToolLabel> {
    let at = tools::TOOLS.binary_search_by_key(&tool, |known| known.name).ok()?;
    tools::TOOLS.get(at)
}

/// Returns the text of an argument, if it has any.
fn argument_texts(value: &Value) -> Option<Vec<String>> {
    let texts = match value {
        Value::String(texts) => vec![texts.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(list) => list.iter().filter_map(argument_texts).flatten().collect(),
        Value::Null | Value::Bool(_) | Value::Object(_) => Vec::new(),
    };
    let texts: Vec<_> = texts.into_iter().filter(|texts| !texts.trim().is_empty()).collect();
    (!texts.is_empty()).then_some(texts)
}

/// Returns the files of a patch.
fn patched_files(patch: &str) -> impl Iterator<Item = &str> {
    let marks = ["*** Add File: ", "*** Update File: ", "*** Delete File: "];
    patch.lines().filter_map(move |line| marks.iter().find_map(|mark| line.strip_prefix(mark)))
}

impl CallSubject {
    fn new(text: &str, is_path: bool, home: Option<&str>) -> Self {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = abbreviate_home(&line, home);
        let text = match line.char_indices().nth(MAX_SUBJECT_CHARS) {
            Some((cut, _)) => format!("{}…", line[..cut].trim_end()),
            None => line,
        };
        Self { flags: Vec::new(), text, is_path }
    }
}

/// Replaces the home directory by `~` where it is a path or the start of one.
fn abbreviate_home(text: &str, home: Option<&str>) -> String {
    let Some(home) = home.map(|home| home.trim_end_matches('/')).filter(|home| !home.is_empty()) else {
        return text.to_owned();
    };
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let mut result = String::new();
    let mut done = 0;
    for (at, _) in text.match_indices(home) {
        let end = at + home.len();
        let is_start = !text[..at].ends_with(is_name);
        let is_end = text[end..].starts_with('/') || !text[end..].starts_with(is_name);
        if is_start && is_end {
            result.push_str(&text[done..at]);
            result.push('~');
            done = end;
        }
    }
    result + &text[done..]
}

/// Returns the subjects in order, with paths of one folder grouped: `src/{a.rs, b.rs}`.
fn grouped(subjects: &[CallSubject]) -> Vec<(&[&'static str], String)> {
    let mut groups: Vec<(&CallSubject, Option<&str>, Vec<&str>)> = Vec::new();
    for subject in subjects {
        let split = subject.text.rsplit_once('/').filter(|_| subject.is_path);
        let (folder, name) = split.map_or((None, subject.text.as_str()), |(folder, name)| (Some(folder), name));
        match groups.iter_mut().find(|(_, known, _)| known.is_some() && *known == folder) {
            Some((_, _, names)) if names.contains(&name) => {}
            Some((_, _, names)) => names.push(name),
            None => groups.push((subject, folder, vec![name])),
        }
    }
    let line = |(subject, folder, names): (&CallSubject, Option<&str>, Vec<&str>)| match (
        folder,
        names.split_at_checked(MAX_SUBJECTS),
    ) {
        (Some(folder), Some((first, more @ [_, ..]))) => {
            format!("{folder}/{{{}, and {} more}}", first.join(", "), more.len())
        }
        (Some(folder), _) if names.len() > 1 => format!("{folder}/{{{}}}", names.join(", ")),
        (Some(_) | None, _) => subject.text.clone(),
    };
    groups.into_iter().map(|group| (group.0.flags.as_slice(), line(group))).collect()
}

/// Formats text as code. Text with backticks gets a longer delimiter.
fn code(text: &str, style: Style) -> String {
    match style {
        Style::Plain => text.to_owned(),
        Style::Markdown if !text.contains('`') => format!("`{text}`"),
        Style::Markdown => {
            let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
            let marks = "`".repeat(longest + 1);
            format!("{marks} {text} {marks}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(tool: &str, arguments: &Value) -> String {
        summary(tool, &subjects(tool, arguments, Some("/home/ada")), Style::Plain)
    }

    #[test]
    fn a_label_names_the_subject_of_the_call() {
        for (tool, arguments, expected) in [
            ("read", json!({"path": "/home/ada/notes/a.md", "limit": 10}), "📖 Read: ~/notes/a.md"),
            ("write", json!({"path": "a.md", "content": "private"}), "📝 Write: a.md"),
            ("exec", json!({"command": "ls\n  -la /home/ada"}), "🛠️ Exec: ls -la ~"),
            (
                "exec",
                json!({"command": "apt update", "pty": true, "elevated": true}),
                "🛠️ Exec: elevated · pty · apt update",
            ),
            ("web_search", json!({"query": "weather in Ghent", "count": 3}), "🔍 Search the web: weather in Ghent"),
            ("web_fetch", json!({"url": "https://example.org/a"}), "🌐 Fetch page: https://example.org/a"),
            ("browser", json!({"action": "open", "targetUrl": "https://a.org"}), "🌍 Browser: open https://a.org"),
            ("message", json!({"action": "send", "target": "42", "message": "Hi"}), "✉️ Message: send 42"),
            ("process", json!({"action": "list"}), "⚙️ Process: list"),
            ("agents_wait", json!({"ids": ["a", "b"]}), "⏳ Wait for agents: a; b"),
            ("agents_list", json!({}), "👥 Agents"),
            ("tts", json!({"text": "private"}), "🔊 Speech"),
            ("weather__by_city", json!({"name": "Ghent"}), "🧩 Weather by city: Ghent"),
            ("exec", json!("not an object"), "🛠️ Exec"),
        ] {
            assert_eq!(line(tool, &arguments), expected);
        }
    }

    #[test]
    fn a_patch_names_its_files_by_folder() {
        let patch = "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-x\n+y\n*** Add File: src/b.rs\n+z\n\
                     *** Delete File: /home/ada/c.rs\n*** Update File: src/a.rs\n*** End Patch";
        assert_eq!(line("apply_patch", &json!({"input": patch})), "🩹 Patch: src/{a.rs, b.rs}; ~/c.rs");
    }

    #[test]
    fn several_calls_are_summarized_in_one_line() {
        let paths = ["/home/ada/a/1", "/home/ada/a/2", "x", "/home/ada/b/3", "x"];
        let calls: Vec<_> =
            paths.iter().flat_map(|path| subjects("read", &json!({"path": path}), Some("/home/ada/"))).collect();
        assert_eq!(summary("read", &calls, Style::Plain), "📖 Read: ~/a/{1, 2}; x; ~/b/3");
        let many: Vec<_> =
            (0..12).flat_map(|n| subjects("web_search", &json!({"query": format!("q{n}")}), None)).collect();
        let expected = "🔍 Search the web: q0; q1; q2; q3; q4; q5; q6; q7; q8; q9; and 2 more";
        assert_eq!(summary("web_search", &many, Style::Plain), expected);
        let files = json!({"paths": (0..12).map(|n| format!("p/{n}")).collect::<Vec<_>>()});
        let expected = "🖼️ Look at picture: p/{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 2 more}";
        assert_eq!(line("view_image", &files), expected);
    }

    #[test]
    fn markdown_shows_code() {
        let show = |command: &str| {
            let subjects = subjects("exec", &json!({"command": command, "pty": true}), None);
            summary("exec", &subjects, Style::Markdown)
        };
        assert_eq!(show("ls -la"), "🛠️ Exec: pty · `ls -la`");
        assert_eq!(show("echo `date`"), "🛠️ Exec: pty · `` echo `date` ``");
    }

    #[test]
    fn only_the_home_directory_itself_is_abbreviated() {
        let text = "/home/ada /home/adam /mnt/home/ada /home/ada/x '/home/ada'";
        assert_eq!(abbreviate_home(text, Some("/home/ada")), "~ /home/adam /mnt/home/ada ~/x '~'");
        assert_eq!([abbreviate_home("/x", Some("/")), abbreviate_home("/x", None)], ["/x", "/x"]);
    }

    #[test]
    fn a_long_command_is_cut() {
        let text = "é".repeat(MAX_SUBJECT_CHARS + 1);
        let expected = format!("🛠️ Exec: {}…", "é".repeat(MAX_SUBJECT_CHARS));
        assert_eq!(line("exec", &json!({"command": text})), expected);
    }

    #[test]
    fn the_table_is_sorted_and_its_labels_are_unique() {
        assert!(tools::TOOLS.is_sorted_by(|a, b| a.name < b.name), "or a search does not find all of them");
        let mut labels: Vec<_> = tools::TOOLS.iter().map(|tool| tool.label).collect();
        labels.sort_unstable();
        assert!(labels.is_sorted_by(|a, b| a < b), "two tools have the same label");
    }
}
