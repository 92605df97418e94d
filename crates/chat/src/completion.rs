//! Completions while typing: commands after `/`, files after `@`.

use unicode_segmentation::UnicodeSegmentation;

use crate::command::CommandInfo;

/// Maximum number of candidates.
const MAX_CANDIDATES: usize = 50;

/// Something that can be inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompletionItem {
    pub(crate) text: String,
    pub(crate) description: String,
}

/// An open list of completions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) candidates: Vec<CompletionItem>,
    pub(crate) selected: usize,
    /// Elements before the cursor that the completion replaces.
    pub(crate) replaces: usize,
    /// True for commands: one that is chosen with Enter is executed at once.
    pub(crate) is_command: bool,
}

impl Completion {
    /// Moves the selection.
    pub(crate) fn select(&mut self, down: bool) {
        let count = self.candidates.len().max(1);
        self.selected = if down { (self.selected + 1) % count } else { (self.selected + count - 1) % count };
    }

    /// Returns the selected text.
    pub(crate) fn text(&self) -> Option<&str> {
        self.candidates.get(self.selected).map(|candidate| candidate.text.as_str())
    }
}

/// Finds the completions of a text before the cursor.
pub(crate) fn find(before: &str, commands: &[CommandInfo], files: &[String]) -> Option<Completion> {
    let completion = match file_query(before) {
        Some(query) => files_like(query, files),
        None => commands_like(before, commands)?,
    };
    (!completion.candidates.is_empty()).then_some(completion)
}

/// Returns the part of a file name after `@`, if one is being typed.
pub(crate) fn file_query(before: &str) -> Option<&str> {
    let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
    word.strip_prefix('@')
}

fn commands_like(before: &str, commands: &[CommandInfo]) -> Option<Completion> {
    if !before.starts_with('/') || before.contains(char::is_whitespace) {
        return None;
    }
    let is_exact = commands.iter().any(|command| command.name == before);
    let found = commands.iter().filter(|command| command.name.starts_with(before));
    let mut candidates: Vec<_> = found
        .map(|command| CompletionItem { text: command.name.clone(), description: command.description.clone() })
        .collect();
    if is_exact {
        candidates.sort_by_key(|candidate| candidate.text != before);
    }
    Some(Completion { candidates, selected: 0, replaces: before.graphemes(true).count(), is_command: true })
}

fn files_like(query: &str, files: &[String]) -> Completion {
    let mut scored: Vec<_> = files.iter().filter_map(|file| Some((score(query, file)?, file))).collect();
    scored.sort();
    let candidates = scored
        .into_iter()
        .take(MAX_CANDIDATES)
        .map(|(_, file)| CompletionItem { text: format!("@{file}"), description: String::new() })
        .collect();
    Completion { candidates, selected: 0, replaces: query.graphemes(true).count() + 1, is_command: false }
}

/// Rates how well a path fits a query; less is better. `None` if not all characters occur in order.
fn score(query: &str, path: &str) -> Option<(usize, usize)> {
    let (query, lower) = (query.to_lowercase(), path.to_lowercase());
    let name = lower.trim_end_matches('/').rsplit('/').next().unwrap_or(&lower);
    let rank = if query.is_empty() {
        path.matches('/').count()
    } else if name.starts_with(&query) {
        0
    } else if lower.starts_with(&query) {
        1
    } else if name.contains(&query) {
        2
    } else if lower.contains(&query) {
        3
    } else {
        let mut rest = lower.chars();
        query.chars().all(|wanted| rest.any(|char| char == wanted)).then_some(4)?
    };
    Some((rank, path.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(before: &str) -> Vec<String> {
        let commands =
            ["/new", "/model", "/models"].map(|name| CommandInfo { name: name.to_owned(), description: String::new() });
        let files = ["src/main.rs", "README.md", "src/deep/mainline.rs", "docs/"].map(str::to_owned);
        let completion = find(before, &commands, &files);
        completion.into_iter().flat_map(|completion| completion.candidates).map(|candidate| candidate.text).collect()
    }

    #[test]
    fn commands_complete_at_the_start_only() {
        assert_eq!(found("/"), ["/new", "/model", "/models"]);
        assert_eq!(found("/mo"), ["/model", "/models"]);
        assert_eq!(found("/models"), ["/models"]);
        assert_eq!(found("see /mo"), [""; 0]);
        assert_eq!(found("/model x"), [""; 0]);
    }

    #[test]
    fn files_complete_after_an_at_sign() {
        assert_eq!(found("look at @main"), ["@src/main.rs", "@src/deep/mainline.rs"]);
        assert_eq!(found("@redme"), ["@README.md"]);
        assert_eq!(found("@"), ["@README.md", "@docs/", "@src/main.rs", "@src/deep/mainline.rs"]);
        assert_eq!(found("mail a@b"), [""; 0]);
        let completion = find("x @ma", &[], &["main".to_owned()]).unwrap();
        assert_eq!((completion.replaces, completion.is_command), (3, false));
    }
}
