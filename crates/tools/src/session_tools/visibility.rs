//! Decides which sessions a run can see, and how sessions are related.

use std::{collections::HashMap, sync::Arc};

use homard_agent::{
    Hub,
    hub::{ChildRun, parent_of},
    tool::{RunOrigin, ToolCx},
};
use homard_proto::{AgentId, SessionKey, session::Record};

use super::{SessionToolError, SessionToolRules, Visibility, hub};

/// A session and its record.
type SessionEntry = (SessionKey, Arc<Record>);

/// The sessions as seen by a run.
#[derive(Debug)]
pub(super) struct VisibleSessions<'a> {
    pub(super) hub: &'a Hub,
    session: &'a SessionKey,
    origin: &'a RunOrigin,
    rules: &'a SessionToolRules,
    visibility: Visibility,
    /// All sessions, newest first.
    rows: Vec<SessionEntry>,
    parents: HashMap<SessionKey, SessionKey>,
}

impl<'a> VisibleSessions<'a> {
    pub(super) async fn of(cx: &'a ToolCx, rules: &'a SessionToolRules) -> Result<Self, SessionToolError> {
        let hub = hub(cx)?;
        let rows = hub.sessions().list().await.map_err(SessionToolError::error)?;
        let parents = rows.iter().filter_map(|(key, record)| Some((key.clone(), parent_of(key, record)?))).collect();
        // Runs of non-owners see only the sessions they started themselves, and so do sandboxed runs: they must not
        // read other conversations.
        let agents = hub.agents();
        let agent = agents.get(cx.session.agent().unwrap_or_else(|| agents.default_id()));
        let sees_all = || agent.is_some_and(|agent| agent.sandboxing.sees_all_sessions);
        let is_free = cx.origin.is_owner() && (cx.sandbox.is_none() || sees_all());
        let widest = if is_free { Visibility::All } else { Visibility::Tree };
        Ok(Self {
            hub,
            session: &cx.session,
            origin: &cx.origin,
            rules,
            visibility: rules.visibility.min(widest),
            rows,
            parents,
        })
    }

    /// Returns the agent of the run.
    pub(super) fn agent(&self) -> AgentId {
        self.session.agent().cloned().unwrap_or_else(|| self.hub.agents().default_id().clone())
    }

    /// Returns the ancestors of a session, nearest first. Stops at a cycle, which a manipulated record can create.
    pub(super) fn ancestors(&self, key: &SessionKey) -> Vec<SessionKey> {
        let mut found: Vec<SessionKey> = Vec::new();
        let mut next = self.parents.get(key);
        while let Some(parent) = next.filter(|parent| *parent != key && !found.contains(parent)) {
            found.push(parent.clone());
            next = self.parents.get(parent);
        }
        found
    }

    /// Returns the depth of a session below its conversation; at least 1 for a subagent whose parent is unknown.
    pub(super) fn depth(&self, key: &SessionKey) -> usize {
        self.ancestors(key).len().max(usize::from(key.is_subagent()))
    }

    /// Returns the children of a session.
    pub(super) fn children<'b>(&'b self, key: &'b SessionKey) -> impl Iterator<Item = &'b SessionEntry> {
        self.rows.iter().filter(move |(child, _)| self.parents.get(child) == Some(key))
    }

    /// True if the run's session is an ancestor of another. In a session with several people, non-owners only own what
    /// they started themselves.
    pub(super) fn is_descendant(&self, key: &SessionKey) -> bool {
        let is_child = |(found, record): &SessionEntry| {
            found == key && ChildRun::of(record).is_some_and(|child_run| child_run.is_of(&self.origin.principal))
        };
        self.ancestors(key).contains(self.session) && (self.origin.is_owner() || self.rows.iter().any(is_child))
    }

    /// True if another session is an ancestor of the run's session.
    pub(super) fn is_ancestor(&self, key: &SessionKey) -> bool {
        self.ancestors(self.session).contains(key)
    }

    pub(super) fn is_visible(&self, key: &SessionKey) -> bool {
        if key == self.session {
            return true;
        }
        match self.visibility {
            Visibility::Own => false,
            Visibility::Tree => self.is_descendant(key),
            Visibility::Agent => self.is_descendant(key) || key.agent() == Some(&self.agent()),
            Visibility::All => {
                let may = |agent: &AgentId| self.rules.agent_to_agent.allows(&self.agent(), agent);
                self.is_descendant(key) || key.agent().is_none_or(|agent| *agent == self.agent() || may(agent))
            }
        }
    }

    /// Returns the visible sessions, newest first.
    pub(super) fn rows(&self) -> impl Iterator<Item = &SessionEntry> {
        self.rows.iter().filter(|(key, _)| self.is_visible(key))
    }

    /// Returns a visible session.
    pub(super) fn row(&self, key: &SessionKey) -> Option<&SessionEntry> {
        self.rows().find(|(found, _)| found == key)
    }

    /// Resolves a session key or transcript id, if the run can see that session.
    pub(super) fn find(&self, text: &str) -> Result<SessionKey, SessionToolError> {
        let by_id = self.rows().find(|(_, record)| record.session_id.as_str() == text.trim());
        if let Some((key, _)) = by_id {
            return Ok(key.clone());
        }
        let key = SessionKey::parse(text, &self.agent())
            .map_err(|error| SessionToolError::Error(format!("sessionKey: {error}")))?;
        if self.is_visible(&key) { Ok(key) } else { Err(self.hidden(&key)) }
    }

    /// Returns the visible session with a label.
    pub(super) fn labelled(&self, label: &str, agent: Option<&str>) -> Result<SessionKey, SessionToolError> {
        let agent = agent.map(AgentId::normalize);
        let is_meant = |(key, record): &&SessionEntry| {
            record.label.as_deref() == Some(label) && agent.as_ref().is_none_or(|agent| key.agent() == Some(agent))
        };
        let found: Vec<_> = self.rows().filter(is_meant).map(|(key, _)| key).collect();
        match &found[..] {
            [] => Err(SessionToolError::Error(format!(
                "no session has the label {label:?}: use sessions_list to see the sessions"
            ))),
            [key] => Ok((*key).clone()),
            several => {
                let keys: Vec<_> = several.iter().map(|key| key.as_str()).collect();
                Err(SessionToolError::Error(format!(
                    "several sessions have this label; give the sessionKey of one: {}",
                    keys.join(", ")
                )))
            }
        }
    }

    /// Error for a session that may not be seen. Does not reveal whether it exists.
    pub(super) fn hidden(&self, key: &SessionKey) -> SessionToolError {
        SessionToolError::Forbidden(format!(
            "session {key} is not visible to this one (visibility {}): use sessions_list to see the visible sessions. \
             The owner can change that with tools.sessions.visibility and tools.agentToAgent",
            self.visibility.name()
        ))
    }
}

/// Error for a visible session that does not exist.
pub(super) fn missing(key: &SessionKey) -> SessionToolError {
    SessionToolError::Error(format!("session {key} does not exist: use sessions_list to see the sessions"))
}
