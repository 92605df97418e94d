//! `exec-approvals.json`: the approval rules. The file format is OpenClaw's; unknown fields are preserved.

use homard_proto::AgentId;
use homard_store::Error as StoreError;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    level::{AskMode, LevelOverrides, Security},
    rule::ApprovalRule,
};

/// Approval rules of all agents.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalPolicy(Map<String, Value>);

impl Default for ApprovalPolicy {
    fn default() -> Self {
        let empty = || json!({});
        let members = [("version", json!(1)), ("defaults", empty()), ("agents", empty())];
        Self(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

impl ApprovalPolicy {
    /// Parses a file. A wrong structure is an error, because an unreadable rule may be one that denies.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Value::Object(file) = file else { return Err("the file is not a JSON object".to_owned()) };
        Self::new(file)
    }

    /// Validates the fields of a file.
    pub fn new(file: Map<String, Value>) -> Result<Self, String> {
        if file.get("version").is_some_and(|version| *version != 1) {
            return Err(format!("version {} is not supported; use 1", file["version"]));
        }
        for name in ["socket", "defaults", "agents"] {
            if file.get(name).is_some_and(|member| !member.is_object()) {
                return Err(format!("\"{name}\" is not an object"));
            }
        }
        let policy = Self(file);
        for (id, agent) in policy.agents() {
            let allowlist = agent.as_object().map(|agent| agent.get("allowlist").is_none_or(Value::is_array));
            match allowlist {
                Some(true) => {}
                Some(false) => return Err(format!("\"agents.{id}.allowlist\" is not a list")),
                None => return Err(format!("\"agents.{id}\" is not an object")),
            }
        }
        Ok(policy)
    }

    /// Serializes the file.
    ///
    /// # Errors
    ///
    /// If it cannot be serialized; an empty file would lose every rule.
    pub fn text(&self) -> Result<String, StoreError> {
        let text = serde_json::to_string_pretty(&self.0).map_err(|error| StoreError::Disk(error.to_string()))?;
        Ok(format!("{text}\n"))
    }

    /// Returns the file for clients, without the token of OpenClaw's socket.
    pub fn redacted(&self) -> Value {
        let mut file = self.0.clone();
        if let Some(Value::Object(socket)) = file.get_mut("socket") {
            socket.shift_remove("token");
        }
        file.into()
    }

    /// Takes over another file's token if this one has none: clients do not see the token, so they cannot send it back.
    pub fn with_token_of(mut self, other: &Self) -> Self {
        if let Some(token) = other.0.get("socket").and_then(|socket| socket.get("token")) {
            let socket = self.0.entry("socket").or_insert_with(|| json!({}));
            if let Value::Object(socket) = socket {
                socket.entry("token").or_insert_with(|| token.clone());
            }
        }
        self
    }

    /// Returns the levels of an agent: its own, else those for all agents, else the defaults.
    pub fn levels_of(&self, agent: &AgentId) -> LevelOverrides {
        let setting = |name: &str| {
            let agent_value = self.entries_of(agent).find_map(|level| level.get(name).filter(|value| !value.is_null()));
            agent_value.or_else(|| self.0.get("defaults")?.get(name).filter(|value| !value.is_null()))
        };
        // A value that is not a string counts as an unknown word, which is the strictest.
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        LevelOverrides {
            security: setting("security").map(|value| Security::parse(&text(value))),
            ask: setting("ask").map(|value| AskMode::parse(&text(value))),
        }
    }

    /// Returns the rules of commands that an agent may run without asking.
    pub fn rules(&self, agent: &AgentId) -> Vec<ApprovalRule> {
        let lists = self.entries_of(agent).filter_map(|level| level.get("allowlist")?.as_array());
        lists.flatten().map(ApprovalRule::parse).collect()
    }

    /// Adds a rule for an agent as this entry, unless it has an equal one.
    pub(super) fn add_rule(&mut self, agent: &AgentId, rule: &ApprovalRule, entry: Map<String, Value>) {
        if self.rules(agent).iter().any(|known| known.allows_same(rule)) {
            return;
        }
        let own = object(&mut self.0, "agents").and_then(|agents| object(agents, agent.as_str()));
        let list = own.map(|own| own.entry("allowlist").or_insert_with(|| json!([])));
        if let Some(Value::Array(list)) = list {
            list.push(entry.into());
        }
    }

    fn agents(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.get("agents").and_then(Value::as_object).into_iter().flatten()
    }

    /// Returns the entries of an agent and of all agents. `default` is an old name of `main`.
    fn entries_of(&self, agent: &AgentId) -> impl Iterator<Item = &Value> + use<'_> {
        let find = |name: &str| self.0.get("agents")?.get(name);
        let old_name_entry = if agent.as_str() == "main" { find("default") } else { None };
        [find(agent.as_str()), old_name_entry, find("*")].into_iter().flatten()
    }
}

/// Returns the hash of a file's text, with which a client states what it has read.
pub fn hash(text: Option<&str>) -> String {
    hex::encode(Sha256::digest(text.unwrap_or_default()))
}

/// Returns an object field; creates it if it is missing.
fn object<'a>(map: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    map.entry(name).or_insert_with(|| json!({})).as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(file: &Value) -> ApprovalPolicy {
        ApprovalPolicy::parse(&file.to_string()).unwrap()
    }

    fn overrides(security: Option<Security>, ask: Option<AskMode>) -> LevelOverrides {
        LevelOverrides { security, ask }
    }

    #[test]
    fn the_most_specific_level_applies_and_default_means_main() {
        let policy = policy(&json!({
            "version": 1, "defaults": {"security": "deny", "ask": "on-miss"},
            "agents": {"*": {"ask": "always"}, "default": {"security": "full"}, "ops": {"security": "allowlist", "ask": "off"}},
        }));
        let levels_of = |agent: &str| policy.levels_of(&AgentId::normalize(agent));
        assert_eq!(levels_of("main"), overrides(Some(Security::Full), Some(AskMode::Always)));
        assert_eq!(levels_of("ops"), overrides(Some(Security::Allowlist), Some(AskMode::Off)));
        assert_eq!(levels_of("ann"), overrides(Some(Security::Deny), Some(AskMode::Always)));
        assert_eq!(ApprovalPolicy::default().levels_of(&AgentId::main()), overrides(None, None));
    }

    #[test]
    fn a_level_that_is_not_a_string_is_strict() {
        let policy = policy(&json!({"defaults": {"security": true, "ask": ["off"]}}));
        assert_eq!(policy.levels_of(&AgentId::main()), overrides(Some(Security::Deny), Some(AskMode::Always)));
    }

    #[test]
    fn a_rule_is_added_once_and_other_fields_are_preserved() {
        let before = json!({
            "version": 1, "socket": {"path": "/s", "token": "hush"}, "by": "another",
            "agents": {"ops": {"mood": "calm", "allowlist": [{"pattern": "/usr/bin/rg", "note": 1}]}},
        });
        let mut policy = policy(&before);
        let rule = ApprovalRule::prefix(vec!["/usr/bin/git".to_owned(), "log".to_owned()]);
        let agent = AgentId::normalize("ops");
        policy.add_rule(&agent, &rule, rule.entry("r1", 5, "git log"));
        policy.add_rule(&agent, &rule, rule.entry("r2", 6, "git log -1"));
        let mut after = before;
        let entry = json!({
            "id": "r1", "pattern": "git", "argv": ["/usr/bin/git", "log"], "lastResolvedPath": "/usr/bin/git",
            "source": "allow-always", "lastUsedAt": 5, "lastUsedCommand": "git log",
        });
        after["agents"]["ops"]["allowlist"].as_array_mut().unwrap().push(entry);
        assert_eq!(ApprovalPolicy::parse(&policy.text().unwrap()).unwrap().0, *after.as_object().unwrap());
        assert_eq!(policy.rules(&AgentId::main()), []);
    }

    #[test]
    fn the_token_is_redacted_and_not_lost() {
        let stored = policy(&json!({"socket": {"path": "/s", "token": "hush"}}));
        assert_eq!(stored.redacted(), json!({"socket": {"path": "/s"}}));
        let Value::Object(sent) = stored.redacted() else { panic!() };
        assert_eq!(ApprovalPolicy::new(sent).unwrap().with_token_of(&stored), stored);
    }

    #[test]
    fn a_policy_file_with_a_wrong_structure_is_rejected() {
        for (text, error) in [
            ("[]", "the file is not a JSON object"),
            ("{\"version\": 2}", "version 2 is not supported; use 1"),
            ("{\"agents\": []}", "\"agents\" is not an object"),
            ("{\"agents\": {\"a\": 1}}", "\"agents.a\" is not an object"),
            ("{\"agents\": {\"a\": {\"allowlist\": {}}}}", "\"agents.a.allowlist\" is not a list"),
        ] {
            assert_eq!(ApprovalPolicy::parse(text), Err(error.to_owned()), "{text}");
        }
    }
}
