//! `/context`: shows the parts of the system prompt and their sizes.

/// Level of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextDetail {
    /// Totals.
    List,
    /// Every part.
    Detail,
    /// The whole report as JSON.
    Json,
}

impl ContextDetail {
    /// Parses the argument of `/context`. With any other argument the text is an ordinary message.
    pub fn parse(rest: &str) -> Option<Self> {
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
    fn context_takes_one_known_argument() {
        for (expected, arguments) in [
            (ContextDetail::List, ["", " \n", "list", " Show", "help"].as_slice()),
            (ContextDetail::Detail, &["detail", "DETAILS", "deep"]),
            (ContextDetail::Json, &["json", " JSON "]),
        ] {
            for rest in arguments {
                assert_eq!(ContextDetail::parse(rest), Some(expected), "{rest:?}");
            }
        }
        for rest in ["of the meeting?", "list it", "jsonl", "deta"] {
            assert_eq!(ContextDetail::parse(rest), None, "{rest:?}");
        }
    }
}
