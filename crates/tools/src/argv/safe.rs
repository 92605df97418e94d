//! Programs that only read their input, as long as their arguments name no file: they need no rule.

use super::Part;

/// What such a program takes. Anything else makes it one that needs a rule.
struct Filter {
    name: &'static str,
    /// How many words besides options: a pattern, a program, sets of letters. None of them is a file.
    words: usize,
    /// Options of one letter.
    flags: &'static str,
    /// Those with a value.
    valued: &'static str,
    /// Long options.
    long: &'static [&'static str],
}

/// Their names; the config may name fewer.
pub const SAFE_BINS: [&str; 9] = ["jq", "grep", "cut", "sort", "uniq", "head", "tail", "tr", "wc"];

const FILTERS: [Filter; 9] = [
    Filter {
        name: "jq",
        words: 1,
        flags: "rcnesSMCjaR",
        valued: "",
        long: &["--raw-output", "--compact-output", "--null-input", "--exit-status", "--slurp", "--sort-keys", "--tab"],
    },
    Filter {
        name: "grep",
        words: 1,
        flags: "ivcnowxEFPqsa",
        valued: "mABC",
        long: &["--ignore-case", "--invert-match", "--count", "--line-number", "--only-matching", "--fixed-strings"],
    },
    Filter { name: "cut", words: 0, flags: "snz", valued: "bcdf", long: &["--only-delimited", "--complement"] },
    Filter {
        name: "sort",
        words: 0,
        flags: "bdfgiMhnRrVcCsuz",
        valued: "kt",
        long: &["--numeric-sort", "--reverse", "--unique", "--ignore-case", "--version-sort", "--stable"],
    },
    Filter { name: "uniq", words: 0, flags: "cdDiuz", valued: "fsw", long: &["--count", "--repeated", "--unique"] },
    Filter { name: "head", words: 0, flags: "qvz", valued: "nc", long: &[] },
    Filter { name: "tail", words: 0, flags: "qvz", valued: "nc", long: &[] },
    Filter {
        name: "tr",
        words: 2,
        flags: "cCdst",
        valued: "",
        long: &["--delete", "--squeeze-repeats", "--complement"],
    },
    Filter { name: "wc", words: 0, flags: "cmlLw", valued: "", long: &["--bytes", "--chars", "--lines", "--words"] },
];

/// Whether a part reads its input only: a known program with arguments that cannot name a file.
pub(crate) fn only_filters(part: &Part) -> bool {
    let Some((program, arguments)) = part.words.split_first() else { return false };
    let name = program.rsplit('/').next().unwrap_or_default();
    FILTERS.iter().find(|filter| filter.name == name).is_some_and(|filter| filter.takes(arguments))
}

impl Filter {
    fn takes(&self, arguments: &[String]) -> bool {
        let mut left = self.words;
        let mut arguments = arguments.iter();
        while let Some(word) = arguments.next() {
            let is_fine = match word.strip_prefix('-') {
                // Standard input by name is no file; nor is what comes after a bare `--` an option.
                Some("" | "-") => false,
                Some(_) if word.starts_with("--") => self.long.contains(&word.as_str()),
                Some(letters) if self.counts(letters) => true,
                Some(letters) => match letters.find(|letter| self.valued.contains(letter)) {
                    Some(place) => {
                        let has_value =
                            place + 1 < letters.len() || arguments.next().is_some_and(|value| is_no_file(value));
                        letters[..place].chars().all(|letter| self.flags.contains(letter)) && has_value
                    }
                    None => letters.chars().all(|letter| self.flags.contains(letter)),
                },
                None => {
                    let has_room = left > 0;
                    left = left.saturating_sub(1);
                    has_room && is_no_file(word) && (self.name != "jq" || is_alone(word))
                }
            };
            if !is_fine {
                return false;
            }
        }
        true
    }

    /// Whether it is a count of lines, as in `head -5`.
    fn counts(&self, letters: &str) -> bool {
        matches!(self.name, "head" | "tail") && letters.bytes().all(|byte| byte.is_ascii_digit())
    }
}

/// Whether a word does not even look like a path.
fn is_no_file(word: &str) -> bool {
    !word.contains('/') && !word.starts_with('~') && !word.starts_with("..")
}

/// Whether a program of jq needs no other file, and does not look at the environment.
fn is_alone(program: &str) -> bool {
    !["import", "include", "env", "ENV", "input_filename", "modulemeta", "get_search_list"]
        .iter()
        .any(|word| program.contains(word))
}
