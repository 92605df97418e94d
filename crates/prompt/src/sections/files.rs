//! Workspace files in the prompt: as loaded, or truncated for small models.

use std::borrow::Cow;

use homard_workspace::{PageBody, PromptPage};

use super::{PROJECT_CONTEXT, StableInput, path, sanitize};
use crate::input::Wording;

/// Maximum characters of all files in a lean prompt.
const LEAN_FILES_CHARS: usize = 2_500;

/// A file in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownFile<'a> {
    /// The file.
    pub(crate) page: &'a PromptPage,
    /// Text that is shown.
    pub(crate) text: Cow<'a, str>,
    /// True if the text is truncated.
    pub(crate) is_cut: bool,
}

pub(super) fn all(stable: &StableInput<'_>) -> Option<String> {
    let soul = "SOUL.md says who you are: speak and act in its spirit.";
    context(stable, Wording::Rich, has(stable, "SOUL.md").then_some(soul))
}

pub(super) fn short(stable: &StableInput<'_>) -> Option<String> {
    context(stable, Wording::Lean, None)
}

/// True if a file exists and is readable.
pub(super) fn has(stable: &StableInput<'_>, name: &str) -> bool {
    stable.files.iter().any(|page| page.name == name && matches!(page.body, PageBody::Whole(_) | PageBody::Cut(_)))
}

fn context(stable: &StableInput<'_>, wording: Wording, remark: Option<&str>) -> Option<String> {
    let shown = shown(stable.files, wording);
    if shown.is_empty() {
        return None;
    }
    let head = [format!("# {PROJECT_CONTEXT}"), "Files of the workspace:".to_owned()];
    let pages = shown.iter().map(|shown| format!("## {}\n{}", shown.page.name, shown.text));
    let lines = head.into_iter().chain(remark.map(str::to_owned)).chain(pages);
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// Returns the shown text of each file.
pub(crate) fn shown(pages: &[PromptPage], wording: Wording) -> Vec<ShownFile<'_>> {
    let mut shown: Vec<_> = pages.iter().map(whole).collect();
    match wording {
        Wording::Rich => {}
        Wording::Lean => {
            let lengths = shown.iter().map(|shown| shown.text.chars().count()).collect();
            let max = share(lengths, LEAN_FILES_CHARS);
            for shown in &mut shown {
                cut(shown, max);
            }
        }
    }
    shown
}

fn whole(page: &PromptPage) -> ShownFile<'_> {
    let (text, is_cut) = match &page.body {
        PageBody::Whole(text) => (Cow::Borrowed(text.as_str()), false),
        PageBody::Cut(text) => (Cow::Borrowed(text.as_str()), true),
        PageBody::Missing => (format!("[MISSING] Expected at: {}", path(&page.path)).into(), false),
        PageBody::Unusable(reason) => (format!("[UNUSABLE] {}", sanitize(reason)).into(), false),
    };
    ShownFile { page, text, is_cut }
}

/// Returns the limit per file so that all fit: short files stay whole, and only the longest are truncated.
fn share(mut lengths: Vec<usize>, total: usize) -> usize {
    lengths.sort_unstable();
    let mut remaining = total;
    for (index, length) in lengths.iter().enumerate() {
        let share = remaining / (lengths.len() - index);
        if *length > share {
            return share;
        }
        remaining -= length;
    }
    total
}

fn cut(shown: &mut ShownFile<'_>, max: usize) {
    if shown.text.chars().count() <= max {
        return;
    }
    let PromptPage { name, chars, .. } = shown.page;
    let note = |kept: usize| format!("\n[cut: the first {kept} of {chars} characters; read {name} for the rest]");
    // No number has more digits than the largest.
    let kept = max.saturating_sub(note(*chars).chars().count());
    let head: String = shown.text.chars().take(kept).collect();
    shown.text = format!("{}{}", head.trim_end(), note(kept)).chars().take(max).collect::<String>().into();
    shown.is_cut = true;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(body: PageBody) -> PromptPage {
        let chars = match &body {
            PageBody::Whole(text) | PageBody::Cut(text) => text.chars().count(),
            PageBody::Missing | PageBody::Unusable(_) => 0,
        };
        PromptPage { name: "AGENTS.md".into(), path: "/w/AGENTS.md".into(), body, chars }
    }

    fn texts(pages: &[PromptPage], wording: Wording) -> Vec<(String, bool)> {
        shown(pages, wording).into_iter().map(|shown| (shown.text.into_owned(), shown.is_cut)).collect()
    }

    #[test]
    fn every_kind_of_page_is_rendered() {
        let pages = [
            page(PageBody::Whole("a\n\nb".to_owned())),
            page(PageBody::Cut("c".to_owned())),
            page(PageBody::Missing),
            page(PageBody::Unusable("it is a\nfolder".to_owned())),
        ];
        let expected = [
            ("a\n\nb", false),
            ("c", true),
            ("[MISSING] Expected at: /w/AGENTS.md", false),
            ("[UNUSABLE] it is a folder", false),
        ];
        let expected = expected.map(|(text, is_cut)| (text.to_owned(), is_cut));
        assert_eq!(texts(&pages, Wording::Rich), expected);
        assert_eq!(texts(&pages, Wording::Lean), expected);
    }

    #[test]
    fn a_lean_prompt_truncates_the_longest_file_with_a_note() {
        let pages = [page(PageBody::Whole("a".repeat(500))), page(PageBody::Whole("é".repeat(4_000)))];
        let [(first, false), (second, true)] = &texts(&pages, Wording::Lean)[..] else { panic!("{pages:?}") };
        assert_eq!(first, &"a".repeat(500));
        let note = "\n[cut: the first 1930 of 4000 characters; read AGENTS.md for the rest]";
        assert_eq!(second, &format!("{}{note}", "é".repeat(1_930)));
    }

    #[test]
    fn short_files_are_not_truncated() {
        assert_eq!(share(vec![1, 2, 3], 10), 10);
        assert_eq!(share(vec![100, 1, 100], 21), 10);
        assert_eq!(share(vec![], 10), 10);
    }

    proptest! {
        #[test]
        fn a_lean_prompt_stays_within_its_limit(lengths in proptest::collection::vec(0..9_000_usize, 0..60)) {
            let pages: Vec<_> = lengths.iter().map(|length| page(PageBody::Whole("ä".repeat(*length)))).collect();
            let shown = shown(&pages, Wording::Lean);
            let total: usize = shown.iter().map(|shown| shown.text.chars().count()).sum();
            prop_assert!(total <= LEAN_FILES_CHARS, "{}", total);
            for (shown, length) in shown.iter().zip(&lengths) {
                prop_assert_eq!(shown.is_cut, shown.text.chars().count() < *length || shown.text.contains("[cut"));
            }
        }
    }
}
