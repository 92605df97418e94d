//! `/approve ID allow-once|allow-always|deny`: decides an exec approval.

use super::{command_arguments, quoted};
use crate::approval::ApprovalDecision;

/// Usage text.
const USAGE: &str = "Usage: /approve ID allow-once|allow-always|deny";

/// A decision on an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApproveCommand {
    /// Id of the request.
    pub id: String,
    /// The decision.
    pub verdict: ApprovalDecision,
}

impl ApproveCommand {
    /// Parses a whole message; `None` if it is not this command. `Err` is the reply to the sender.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        let mut words = command_arguments(text.trim(), "/approve")?.split_whitespace();
        Some(match (words.next(), words.next(), words.next()) {
            (Some(id), Some(word), None) => match verdict(&word.to_lowercase()) {
                Some(verdict) => Ok(Self { id: id.to_owned(), verdict }),
                None => Err(format!("{} is not a decision. {USAGE}", quoted(word))),
            },
            (None | Some(_), ..) => Err(USAGE.to_owned()),
        })
    }
}

/// Parses a decision or one of its aliases.
fn verdict(word: &str) -> Option<ApprovalDecision> {
    match word {
        "allow" | "once" | "allow-once" | "allowonce" => Some(ApprovalDecision::AllowOnce),
        "always" | "allow-always" | "allowalways" => Some(ApprovalDecision::AllowAlways),
        "deny" | "reject" | "block" => Some(ApprovalDecision::Deny),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_name_and_a_word() {
        let answer = |verdict| Some(Ok(ApproveCommand { id: "a-1".to_owned(), verdict }));
        assert_eq!(ApproveCommand::parse("/approve a-1 allow-once"), answer(ApprovalDecision::AllowOnce));
        assert_eq!(ApproveCommand::parse(" /Approve: a-1  ALWAYS "), answer(ApprovalDecision::AllowAlways));
        assert_eq!(ApproveCommand::parse("/approve a-1 deny"), answer(ApprovalDecision::Deny));
    }

    #[test]
    fn what_is_no_answer_is_told_how_to_write_one() {
        for text in ["/approve", "/approve a-1", "/approve a-1 deny now"] {
            assert_eq!(ApproveCommand::parse(text), Some(Err(USAGE.to_owned())), "{text}");
        }
        let told = format!("\"yes\" is not a decision. {USAGE}");
        assert_eq!(ApproveCommand::parse("/approve a-1 yes"), Some(Err(told)));
        for text in ["/approved a-1 deny", "approve a-1 deny", "please /approve a-1 deny"] {
            assert_eq!(ApproveCommand::parse(text), None, "{text}");
        }
    }
}
