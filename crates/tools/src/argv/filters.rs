//! Filters that only read standard input as long as their arguments name no file; they need no allowlist rule.

use super::ShellCommand;

/// Accepted arguments of a filter. Any other argument makes it require a rule.
struct FilterProgram {
    name: &'static str,
    /// Maximum number of words besides options (a pattern, a script, character sets). None of them is a file.
    max_words: usize,
    /// Letters of the short options without a value.
    flags: &'static str,
    /// Letters of the short options that take a value.
    valued: &'static str,
    /// Long options.
    long: &'static [&'static str],
}

/// Names of the known filters; the config may select a subset.
pub const SAFE_BINS: [&str; 9] = ["jq", "grep", "cut", "sort", "uniq", "head", "tail", "tr", "wc"];

const FILTERS: [FilterProgram; 9] = [
    FilterProgram {
        name: "jq",
        max_words: 1,
        flags: "rcnesSMCjaR",
        valued: "",
        long: &["--raw-output", "--compact-output", "--null-input", "--exit-status", "--slurp", "--sort-keys", "--tab"],
    },
    FilterProgram {
        name: "grep",
        max_words: 1,
        flags: "ivcnowxEFPqsa",
        valued: "mABC",
        long: &["--ignore-case", "--invert-match", "--count", "--line-number", "--only-matching", "--fixed-strings"],
    },
    FilterProgram {
        name: "cut",
        max_words: 0,
        flags: "snz",
        valued: "bcdf",
        long: &["--only-delimited", "--complement"],
    },
    FilterProgram {
        name: "sort",
        max_words: 0,
        flags: "bdfgiMhnRrVcCsuz",
        valued: "kt",
        long: &["--numeric-sort", "--reverse", "--unique", "--ignore-case", "--version-sort", "--stable"],
    },
    FilterProgram {
        name: "uniq",
        max_words: 0,
        flags: "cdDiuz",
        valued: "fsw",
        long: &["--count", "--repeated", "--unique"],
    },
    FilterProgram { name: "head", max_words: 0, flags: "qvz", valued: "nc", long: &[] },
    FilterProgram { name: "tail", max_words: 0, flags: "qvz", valued: "nc", long: &[] },
    FilterProgram {
        name: "tr",
        max_words: 2,
        flags: "cCdst",
        valued: "",
        long: &["--delete", "--squeeze-repeats", "--complement"],
    },
    FilterProgram {
        name: "wc",
        max_words: 0,
        flags: "cmlLw",
        valued: "",
        long: &["--bytes", "--chars", "--lines", "--words"],
    },
];

/// True if a command only reads standard input: a known filter with arguments that cannot name a file.
pub(crate) fn only_filters(command: &ShellCommand) -> bool {
    let Some((program, arguments)) = command.words.split_first() else { return false };
    let name = program.rsplit('/').next().unwrap_or_default();
    FILTERS.iter().find(|filter| filter.name == name).is_some_and(|filter| filter.accepts(arguments))
}

impl FilterProgram {
    fn accepts(&self, arguments: &[String]) -> bool {
        let mut left = self.max_words;
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let is_fine = match argument.strip_prefix('-') {
                // Not accepted: `-` names standard input like a file, and words after a bare `--` would not be options.
                Some("" | "-") => false,
                Some(_) if argument.starts_with("--") => self.long.contains(&argument.as_str()),
                Some(short_options) if self.is_count(short_options) => true,
                Some(short_options) => match short_options.find(|character| self.valued.contains(character)) {
                    Some(position) => {
                        let has_value = position + 1 < short_options.len()
                            || arguments.next().is_some_and(|value| is_no_file(value));
                        short_options[..position].chars().all(|character| self.flags.contains(character)) && has_value
                    }
                    None => short_options.chars().all(|character| self.flags.contains(character)),
                },
                None => {
                    let has_room = left > 0;
                    left = left.saturating_sub(1);
                    has_room && is_no_file(argument) && (self.name != "jq" || is_self_contained(argument))
                }
            };
            if !is_fine {
                return false;
            }
        }
        true
    }

    /// True for a line count, as in `head -5`.
    fn is_count(&self, short_options: &str) -> bool {
        matches!(self.name, "head" | "tail") && short_options.bytes().all(|byte| byte.is_ascii_digit())
    }
}

/// True if a word does not look like a path.
fn is_no_file(argument: &str) -> bool {
    !argument.contains('/') && !argument.starts_with('~') && !argument.starts_with("..")
}

/// True if a jq program loads no other file and does not read the environment.
fn is_self_contained(program: &str) -> bool {
    !["import", "include", "env", "ENV", "input_filename", "modulemeta", "get_search_list"]
        .iter()
        .any(|word| program.contains(word))
}
