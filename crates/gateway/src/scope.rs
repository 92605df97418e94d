//! Scopes: permissions of a connection.

use homard_proto::{Code, ErrorShape, Generation};
use serde_json::json;

/// Scope that a method requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Read state and receive events.
    Read,
    /// Start runs and change sessions.
    Write,
    /// Decide exec approvals.
    Approvals,
    /// Answer questions of agents.
    Questions,
    /// Manage paired devices.
    Pairing,
    /// Change settings and other shared state.
    Admin,
}

impl Scope {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "operator.read",
            Self::Write => "operator.write",
            Self::Approvals => "operator.approvals",
            Self::Questions => "operator.questions",
            Self::Pairing => "operator.pairing",
            Self::Admin => "operator.admin",
        }
    }
}

/// Scopes granted to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scopes(Vec<String>);

impl Scopes {
    /// Returns the scopes requested. An empty request means all scopes in protocol 3 and none in protocol 4.
    pub(crate) fn granted(generation: Generation, requested: Option<&[String]>) -> Self {
        let requested = requested.unwrap_or_default();
        match generation {
            Generation::Three if requested.is_empty() => Self(vec!["operator.admin".to_owned()]),
            Generation::Three | Generation::Four => Self(requested.to_vec()),
        }
    }

    pub(crate) fn from_names(names: Vec<String>) -> Self {
        Self(names)
    }

    /// Restricts the scopes to those that a grant covers.
    pub(crate) fn within(self, grant: &[String]) -> Self {
        let grant = Self(grant.to_vec());
        Self(self.0.into_iter().filter(|scope| grant.includes(scope)).collect())
    }

    /// True if these scopes cover a scope, given by name.
    pub(crate) fn includes(&self, scope: &str) -> bool {
        let has = |name: &str| self.0.iter().any(|granted| granted == name);
        has(scope) || has("operator.admin") || (scope == "operator.read" && has("operator.write"))
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.0
    }

    /// True if these scopes cover a requirement: admin covers all, write covers read, every other scope covers itself
    /// only.
    pub(crate) fn allow(&self, required: Scope) -> bool {
        let sufficient: &[&str] = match required {
            Scope::Read => &["operator.read", "operator.write", "operator.admin"],
            Scope::Write => &["operator.write", "operator.admin"],
            Scope::Approvals => &["operator.approvals", "operator.admin"],
            Scope::Questions => &["operator.questions", "operator.admin"],
            Scope::Pairing => &["operator.pairing", "operator.admin"],
            Scope::Admin => &["operator.admin"],
        };
        self.0.iter().any(|scope| sufficient.contains(&scope.as_str()))
    }
}

/// Error for a caller without the required scope.
pub(crate) fn missing_error(generation: Generation, required: Scope) -> ErrorShape {
    let message = format!("missing scope: {}", required.name());
    match generation {
        Generation::Three => ErrorShape::invalid(message),
        Generation::Four => ErrorShape::new(Code::Forbidden, message).with_details(json!({
            "code": "MISSING_SCOPE", "missingScope": required.name(), "requiredScopes": [required.name()],
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which requirements the scopes cover, in the order read, write, approvals, admin.
    fn allowed(generation: Generation, requested: &[&str]) -> [bool; 4] {
        let requested: Vec<_> = requested.iter().map(|&scope| scope.to_owned()).collect();
        let scopes = Scopes::granted(generation, Some(&requested));
        [Scope::Read, Scope::Write, Scope::Approvals, Scope::Admin].map(|scope| scopes.allow(scope))
    }

    #[test]
    fn admin_covers_all_scopes_and_write_covers_read() {
        for generation in [Generation::Three, Generation::Four] {
            assert_eq!(allowed(generation, &["operator.admin"]), [true, true, true, true]);
            assert_eq!(allowed(generation, &["operator.write"]), [true, true, false, false]);
            assert_eq!(allowed(generation, &["operator.read"]), [true, false, false, false]);
            assert_eq!(allowed(generation, &["operator.approvals"]), [false, false, true, false]);
            assert_eq!(allowed(generation, &["operator.pairing"]), [false, false, false, false]);
        }
    }

    #[test]
    fn no_requested_scopes_mean_all_in_protocol_3_and_none_in_protocol_4() {
        assert_eq!(allowed(Generation::Three, &[]), [true, true, true, true]);
        assert_eq!(allowed(Generation::Four, &[]), [false, false, false, false]);
        assert_eq!(Scopes::granted(Generation::Three, None).names(), ["operator.admin"]);
    }

    #[test]
    fn each_protocol_version_gets_its_own_missing_scope_error() {
        assert_eq!(
            missing_error(Generation::Three, Scope::Write),
            ErrorShape::invalid("missing scope: operator.write")
        );
        assert_eq!(
            serde_json::to_value(missing_error(Generation::Four, Scope::Read)).unwrap(),
            json!({
                "code": "FORBIDDEN", "message": "missing scope: operator.read",
                "details": {
                    "code": "MISSING_SCOPE", "missingScope": "operator.read", "requiredScopes": ["operator.read"],
                },
            })
        );
    }
}
