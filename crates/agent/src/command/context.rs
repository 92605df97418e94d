//! `/context`: what a model is told before the conversation, and how much of it there is.

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The sums.
    List,
    /// Every part.
    Detail,
    /// All of it, for programs.
    Json,
}

impl Ask {
    /// The question that the words after `/context` are. With other words it is a message like any other.
    pub(crate) fn parse(rest: &str) -> Option<Self> {
        Some(match rest.trim().to_lowercase().as_str() {
            "" | "list" | "show" | "help" => Self::List,
            "detail" | "details" | "deep" => Self::Detail,
            "json" => Self::Json,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_a_single_word() {
        for (ask, words) in [
            (Ask::List, ["", " \n", "list", " Show", "help"].as_slice()),
            (Ask::Detail, &["detail", "DETAILS", "deep"]),
            (Ask::Json, &["json", " JSON "]),
        ] {
            for rest in words {
                assert_eq!(Ask::parse(rest), Some(ask), "{rest:?}");
            }
        }
        for rest in ["of the meeting?", "list it", "jsonl", "deta"] {
            assert_eq!(Ask::parse(rest), None, "{rest:?}");
        }
    }
}
