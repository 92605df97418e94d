//! `sessions.list`: which conversations there are.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Params;
use crate::{Generation, schema::Schema};

/// What `sessions.list` takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// How many, newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// How many to pass over first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// Only those touched in the last so many minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_minutes: Option<u64>,
    /// Only those with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only those started by this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawned_by: Option<String>,
    /// Only those of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only those whose key or label contains this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Whether `global` is listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_global: Option<bool>,
    /// Whether `unknown` is listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_unknown: Option<bool>,
}

impl Params for ListParams {
    const METHOD: &'static str = "sessions.list";

    fn schema(generation: Generation) -> &'static Schema {
        fn compile(generation: Generation) -> Schema {
            let flag = || json!({"type": "boolean"});
            let mut properties = json!({
                "limit": {"type": "integer", "minimum": 1},
                "activeMinutes": {"type": "integer", "minimum": 1},
                "includeGlobal": flag(), "includeUnknown": flag(),
                "includeDerivedTitles": flag(), "includeLastMessage": flag(),
                "label": {"type": "string", "minLength": 1, "maxLength": 512},
                "spawnedBy": {"type": "string", "minLength": 1},
                "agentId": {"type": "string", "minLength": 1},
                "search": {"type": "string"},
            });
            if generation == Generation::Four {
                properties["offset"] = json!({"type": "integer", "minimum": 0});
                for name in
                    ["requireLastInteraction", "configuredAgentsOnly", "ownerFirst", "involvingMe", "includePeople"]
                {
                    properties[name] = flag();
                }
                for name in ["sortBy", "boardFace", "creatorId", "ownerId", "involvingProfileId"] {
                    properties[name] = json!({"type": "string"});
                }
                properties["archived"] = json!({"anyOf": [{"type": "boolean"}, {"const": "all"}]});
            }
            Schema::compile(&json!({"type": "object", "additionalProperties": false, "properties": properties}))
        }
        static THREE: LazyLock<Schema> = LazyLock::new(|| compile(Generation::Three));
        static FOUR: LazyLock<Schema> = LazyLock::new(|| compile(Generation::Four));
        match generation {
            Generation::Three => &THREE,
            Generation::Four => &FOUR,
        }
    }
}
