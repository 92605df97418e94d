//! `/approve ID allow-once|allow-always|deny`: decides an exec approval.

use homard_approvals::ApprovalDecision;

use super::{command_arguments, quoted};

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
            (Some(id), Some(decision), None) => match verdict(&decision.to_lowercase()) {
                Some(verdict) => Ok(Self { id: id.to_owned(), verdict }),
                None => Err(format!("{} is not a decision. {USAGE}", quoted(decision))),
            },
            (None | Some(_), ..) => Err(USAGE.to_owned()),
        })
    }
}

/// Parses a decision or one of its aliases.
fn verdict(name: &str) -> Option<ApprovalDecision> {
    match name {
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
    fn approve_takes_an_id_and_a_decision() {
        let parsed = |verdict| Some(Ok(ApproveCommand { id: "a-1".to_owned(), verdict }));
        assert_eq!(ApproveCommand::parse("/approve a-1 allow-once"), parsed(ApprovalDecision::AllowOnce));
        assert_eq!(ApproveCommand::parse(" /Approve: a-1  ALWAYS "), parsed(ApprovalDecision::AllowAlways));
        assert_eq!(ApproveCommand::parse("/approve a-1 deny"), parsed(ApprovalDecision::Deny));
    }

    #[test]
    fn an_invalid_approve_command_gets_the_usage() {
        for text in ["/approve", "/approve a-1", "/approve a-1 deny now"] {
            assert_eq!(ApproveCommand::parse(text), Some(Err(USAGE.to_owned())), "{text}");
        }
        let reply = format!("\"yes\" is not a decision. {USAGE}");
        assert_eq!(ApproveCommand::parse("/approve a-1 yes"), Some(Err(reply)));
        for text in ["/approved a-1 deny", "approve a-1 deny", "please /approve a-1 deny"] {
            assert_eq!(ApproveCommand::parse(text), None, "{text}");
        }
    }
}
