//! Notes at the end of truncated tool results that state how much of them is left. Further truncation first removes the
//! note and updates its numbers, so that no result has two notes.

/// Returns the note for a result of `all` characters of which only the first `kept` were stored.
pub fn stored_note(all: usize, kept: usize) -> String {
    format!("{KEPT}{all}{KEPT_FIRST}{kept}{KEPT_END}")
}

/// Returns the note for a text of `all` characters of which the first `shown` are shown.
pub(crate) fn shown_note(shown: usize, all: usize) -> String {
    format!("{CUT}{shown}{OF}{all}{CUT_END}")
}

const KEPT: &str = "[This result had ";
const KEPT_FIRST: &str = " characters. The first ";
const KEPT_END: &str = " are kept; ask for less at a time to see the rest.]";
const CUT: &str = "[Cut: the first ";
const OF: &str = " of ";
const CUT_END: &str = " characters are shown. Ask for a smaller part to see more.]";

/// Parses the note at the end of a text: the number of characters of the result, and of those stored; `None` if there
/// is none.
pub fn parse_stored(text: &str) -> Option<(usize, usize)> {
    let (_, numbers) = text.strip_suffix(KEPT_END)?.rsplit_once(KEPT)?;
    let (all, kept) = numbers.split_once(KEPT_FIRST)?;
    Some((all.parse().ok()?, kept.parse().ok()?))
}

/// Returns a text without the note at its end, and its original number of characters, if it was truncated.
pub(crate) fn strip(text: &str) -> (&str, Option<usize>) {
    read_cut(text).or_else(|| read_kept(text)).map_or((text, None), |(text, all)| (text, Some(all)))
}

fn read_cut(text: &str) -> Option<(&str, usize)> {
    let (rest, numbers) = text.strip_suffix(CUT_END)?.rsplit_once(CUT)?;
    let (shown, all) = numbers.split_once(OF)?;
    shown.parse::<usize>().ok()?;
    Some((rest.trim_end_matches('\n'), all.parse().ok()?))
}

fn read_kept(text: &str) -> Option<(&str, usize)> {
    let (rest, numbers) = text.strip_suffix(KEPT_END)?.rsplit_once(KEPT)?;
    let (all, kept) = numbers.split_once(KEPT_FIRST)?;
    kept.parse::<usize>().ok()?;
    Some((rest.strip_suffix('\n').unwrap_or(rest), all.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_parsed() {
        assert_eq!(strip("a\nb"), ("a\nb", None));
        assert_eq!(strip(&format!("a\nb\n\n{}", shown_note(3, 70))), ("a\nb", Some(70)));
        assert_eq!(strip(&format!("a\n\n{}", stored_note(70, 2))), ("a\n", Some(70)));
        assert_eq!(strip(&stored_note(70, 2)), ("", Some(70)));
        assert_eq!(
            (parse_stored(&stored_note(70, 2)), parse_stored("a"), parse_stored(&shown_note(3, 70))),
            (Some((70, 2)), None, None)
        );
    }

    #[test]
    fn text_similar_to_a_note_is_not_one() {
        for text in [format!("{} and more", shown_note(3, 70)), format!("{CUT}some{OF}9{CUT_END}"), CUT_END.to_owned()]
        {
            assert_eq!(strip(&text), (text.as_str(), None));
        }
    }
}
