//! Which sessions a run may see, and how they belong together.

use std::{collections::HashMap, sync::Arc};

use homard_agent::{
    Hub,
    hub::{Errand, parent_of},
    tool::{Origin, ToolCx},
};
use homard_proto::{AgentId, SessionKey, session::Record};

use super::{HouseRules, No, Visibility, hub};

/// A session and what is remembered of it.
type Row = (SessionKey, Arc<Record>);

/// What a run sees of the sessions.
#[derive(Debug)]
pub(super) struct Sight<'a> {
    pub(super) hub: &'a Hub,
    me: &'a SessionKey,
    origin: &'a Origin,
    rules: &'a HouseRules,
    visibility: Visibility,
    /// All sessions, newest first.
    rows: Vec<Row>,
    parents: HashMap<SessionKey, SessionKey>,
}

impl<'a> Sight<'a> {
    pub(super) async fn of(cx: &'a ToolCx, rules: &'a HouseRules) -> Result<Self, No> {
        let hub = hub(cx)?;
        let rows = hub.sessions().await.map_err(No::error)?;
        let parents = rows.iter().filter_map(|(key, record)| Some((key.clone(), parent_of(key, record)?))).collect();
        // Others than the owner ask for themselves, and see what they began themselves.
        // So do sandboxed runs: what the others say is not theirs to read.
        let agents = hub.agents();
        let agent = agents.get(cx.session.agent().unwrap_or_else(|| agents.default_id()));
        let sees_all = || agent.is_some_and(|agent| agent.sandboxing.sees_all_sessions);
        let is_free = cx.origin.is_owner() && (cx.sandbox.is_none() || sees_all());
        let widest = if is_free { Visibility::All } else { Visibility::Tree };
        Ok(Self {
            hub,
            me: &cx.session,
            origin: &cx.origin,
            rules,
            visibility: rules.visibility.min(widest),
            rows,
            parents,
        })
    }

    /// Whose run it is.
    pub(super) fn agent(&self) -> AgentId {
        self.me.agent().cloned().unwrap_or_else(|| self.hub.agents().default_id().clone())
    }

    /// The sessions above one, nearest first. One whose record was made to lead to itself ends there.
    pub(super) fn ancestors(&self, key: &SessionKey) -> Vec<SessionKey> {
        let mut found: Vec<SessionKey> = Vec::new();
        let mut next = self.parents.get(key);
        while let Some(parent) = next.filter(|parent| *parent != key && !found.contains(parent)) {
            found.push(parent.clone());
            next = self.parents.get(parent);
        }
        found
    }

    /// How many starts away from a conversation a session is. A sub-agent whose beginnings are forgotten is still one.
    pub(super) fn depth(&self, key: &SessionKey) -> usize {
        self.ancestors(key).len().max(usize::from(key.is_subagent()))
    }

    /// The sessions that a session started.
    pub(super) fn children<'b>(&'b self, key: &'b SessionKey) -> impl Iterator<Item = &'b Row> {
        self.rows.iter().filter(move |(child, _)| self.parents.get(child) == Some(key))
    }

    /// Whether the run's session is above another. In a session that several people write in, others than the owner
    /// have only what they began themselves.
    pub(super) fn is_mine(&self, key: &SessionKey) -> bool {
        let began = |(found, record): &Row| {
            found == key && Errand::of(record).is_some_and(|errand| errand.is_of(&self.origin.principal))
        };
        self.ancestors(key).contains(self.me) && (self.origin.is_owner() || self.rows.iter().any(began))
    }

    /// Whether another session is above the run's.
    pub(super) fn is_above(&self, key: &SessionKey) -> bool {
        self.ancestors(self.me).contains(key)
    }

    pub(super) fn sees(&self, key: &SessionKey) -> bool {
        if key == self.me {
            return true;
        }
        match self.visibility {
            Visibility::Own => false,
            Visibility::Tree => self.is_mine(key),
            Visibility::Agent => self.is_mine(key) || key.agent() == Some(&self.agent()),
            Visibility::All => {
                let may = |agent: &AgentId| self.rules.agent_to_agent.allows(&self.agent(), agent);
                self.is_mine(key) || key.agent().is_none_or(|agent| *agent == self.agent() || may(agent))
            }
        }
    }

    /// The sessions that the run sees, newest first.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|(key, _)| self.sees(key))
    }

    /// A session that the run sees.
    pub(super) fn row(&self, key: &SessionKey) -> Option<&Row> {
        self.rows().find(|(found, _)| found == key)
    }

    /// The session that a text means, if the run may see it: a key, or the id of a transcript.
    pub(super) fn find(&self, text: &str) -> Result<SessionKey, No> {
        let by_id = self.rows().find(|(_, record)| record.session_id.as_str() == text.trim());
        if let Some((key, _)) = by_id {
            return Ok(key.clone());
        }
        let key = SessionKey::parse(text, &self.agent()).map_err(|error| No::Error(format!("sessionKey: {error}")))?;
        if self.sees(&key) { Ok(key) } else { Err(self.hidden(&key)) }
    }

    /// The session with a label, among those that the run sees.
    pub(super) fn labelled(&self, label: &str, agent: Option<&str>) -> Result<SessionKey, No> {
        let agent = agent.map(AgentId::normalize);
        let is_meant = |(key, record): &&Row| {
            record.label.as_deref() == Some(label) && agent.as_ref().is_none_or(|agent| key.agent() == Some(agent))
        };
        let found: Vec<_> = self.rows().filter(is_meant).map(|(key, _)| key).collect();
        match &found[..] {
            [] => {
                Err(No::Error(format!("no session has the label {label:?}: use sessions_list to see which there are")))
            }
            [key] => Ok((*key).clone()),
            several => {
                let keys: Vec<_> = several.iter().map(|key| key.as_str()).collect();
                Err(No::Error(format!(
                    "several sessions have this label; give the sessionKey of one: {}",
                    keys.join(", ")
                )))
            }
        }
    }

    /// Why a session is not shown. It says nothing about whether it is there.
    pub(super) fn hidden(&self, key: &SessionKey) -> No {
        No::Forbidden(format!(
            "{key} is not among the sessions that this one may see (visibility {}): use sessions_list to see which are. \
             The owner can widen it with tools.sessions.visibility and tools.agentToAgent",
            self.visibility.name()
        ))
    }
}

/// Why there is nothing to show of a session that may be seen.
pub(super) fn missing(key: &SessionKey) -> No {
    No::Error(format!("there is no session {key}: use sessions_list to see which there are"))
}
