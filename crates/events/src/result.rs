//! Results of tools.

use homard_proto::message::Block;
use homard_secrets::Secrets;
use serde_json::Value;

/// Result of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// Content for the model.
    pub content: Vec<Block>,
    /// Details for programs.
    pub details: Option<Value>,
    /// True if the call failed.
    pub is_error: bool,
}

impl ToolResult {
    /// A plain text result.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Block::text(text)], details: None, is_error: false }
    }

    /// An error that the model can read and act on.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// Masks the secrets in it.
    pub fn masked(mut self, secrets: &Secrets) -> Self {
        for block in &mut self.content {
            if let Block::Text(text) = block {
                secrets.mask_string(&mut text.text);
            }
        }
        if let Some(details) = &mut self.details {
            secrets.mask_value(details);
        }
        self
    }

    /// Adds details for programs.
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_and_details_of_a_result_are_masked() {
        let secrets = Secrets::new(["key-0123456789".to_owned()]);
        let result = ToolResult::text("KEY=key-0123456789").with_details(json!({"tail": ["key-0123456789"], "n": 1}));
        let masked = ToolResult::text("KEY=[secret]").with_details(json!({"tail": ["[secret]"], "n": 1}));
        assert_eq!(result.masked(&secrets), masked);
    }
}
