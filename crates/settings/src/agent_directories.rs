//! The directories of an agent: its workspace, its sandbox workspaces, and where its skills are searched.

use std::path::{Path, PathBuf};

use homard_agent::sandboxing::Sandboxing;
use homard_plugins::PluginRoots;
use homard_proto::AgentId;
use homard_workspace::skills::SkillRoots;

use crate::{
    Config, Text,
    agents::ConfiguredAgent,
    paths::{self, Paths},
    sandbox::SessionToolsVisibility,
};

/// Returns the workspace directory of an agent.
pub fn workspace(config: &Config, paths: &Paths, agent: &ConfiguredAgent<'_>) -> PathBuf {
    let expand = |text: &str| paths::expand(Path::new(text), paths::home().as_deref());
    let shared = config.agents.defaults.workspace.as_ref().map(|shared| expand(shared.as_str()));
    let found = match (&agent.config.workspace, shared) {
        (Some(configured), _) => expand(configured.as_str()),
        (None, Some(shared)) if agent.is_default => shared,
        (None, Some(shared)) => sibling_workspace(&paths.state.join(shared), &agent.id),
        (None, None) if agent.is_default => paths.state.join("workspace"),
        (None, None) => paths.state.join(format!("workspace-{}", agent.id)),
    };
    // Relative paths are resolved against the state directory, not the current directory.
    paths.state.join(found)
}

/// Returns the workspace of a non-default agent, beside the default agent's. Earlier versions created it inside; a
/// workspace that is in use there is kept until its owner moves it.
fn sibling_workspace(shared: &Path, agent: &AgentId) -> PathBuf {
    let name = shared.file_name().unwrap_or_default().to_string_lossy();
    let (new, nested) = (shared.with_file_name(format!("{name}-{agent}")), shared.join(agent.as_str()));
    if is_workspace(&nested) && !is_workspace(&new) { nested } else { new }
}

/// Returns true if the directory contains an agent's files.
fn is_workspace(folder: &Path) -> bool {
    ["AGENTS.md", "SOUL.md", "IDENTITY.md", "MEMORY.md", "memory"].iter().any(|name| folder.join(name).exists())
}

/// Returns which sessions of an agent are sandboxed, and where their workspaces are.
pub fn sandboxing(config: &Config, paths: &Paths, agent: &ConfiguredAgent<'_>) -> Sandboxing {
    let (own, all) = (&agent.config.sandbox, &config.agents.defaults.sandbox);
    let root = own.workspace_root.as_ref().or(all.workspace_root.as_ref());
    let root = root.map(|root| paths::expand(Path::new(root.as_str()), paths::home().as_deref()));
    let visibility = own.session_tools_visibility.or(all.session_tools_visibility);
    Sandboxing {
        mode: own.mode.or(all.mode).map(|word| word.0).unwrap_or_default(),
        scope: own.scope().or(all.scope()).unwrap_or_default(),
        access: own.workspace_access.or(all.workspace_access).map(|word| word.0).unwrap_or_default(),
        root: paths.state.join(root.unwrap_or_else(|| PathBuf::from("sandboxes"))),
        sees_all_sessions: visibility.is_some_and(|word| word.0 == SessionToolsVisibility::All),
    }
}

/// Returns the directories that are searched for the skills of an agent with this workspace.
pub fn skill_roots(config: &Config, paths: &Paths, workspace: &Path) -> SkillRoots {
    let home = paths::home();
    let expand = |text: &Text| paths::expand(Path::new(text.as_str()), home.as_deref());
    SkillRoots {
        extra: config.skills.load.extra_dirs.iter().map(expand).collect(),
        bundled: paths::setting("BUNDLED_SKILLS_DIR").map(PathBuf::from),
        ..SkillRoots::standard(&paths.state, home.as_deref(), workspace)
    }
}

/// Returns the directories that are searched for plugins.
pub fn plugin_roots(config: &Config, paths: &Paths) -> PluginRoots {
    PluginRoots {
        paths: config.plugins.settings(paths).load.paths,
        workspaces: config.agents.members().iter().map(|agent| workspace(config, paths, agent)).collect(),
        state: paths.state.clone(),
        trusts_workspaces: config.plugins.load.workspace,
    }
}

#[cfg(test)]
mod tests {
    use homard_agent::sandboxing::{SandboxMode, SandboxScope, WorkspaceAccess};

    use super::*;

    fn workspaces(text: &str) -> Vec<(String, PathBuf)> {
        let config = Config::parse(text).unwrap();
        let state = PathBuf::from("/nowhere");
        let paths = Paths { config: state.join("homard.json"), state };
        let members = config.agents.members();
        members.iter().map(|agent| (agent.id.to_string(), workspace(&config, &paths, agent))).collect()
    }

    #[test]
    fn every_agent_has_its_workspace() {
        let expected = |pairs: &[(&str, &str)]| -> Vec<(String, PathBuf)> {
            pairs.iter().map(|&(id, path)| (id.to_owned(), PathBuf::from(path))).collect()
        };
        assert_eq!(workspaces("{}"), expected(&[("main", "/nowhere/workspace")]));
        assert_eq!(
            workspaces("{agents: {list: [{id: 'a'}, {id: 'b', default: true}, {id: 'c', workspace: '/c'}]}}"),
            expected(&[("a", "/nowhere/workspace-a"), ("b", "/nowhere/workspace"), ("c", "/c")])
        );
        assert_eq!(
            workspaces("{agents: {defaults: {workspace: '/w'}, list: [{id: 'a'}, {id: 'b'}]}}"),
            expected(&[("a", "/w"), ("b", "/w-b")])
        );
        assert_eq!(workspaces("{agents: {defaults: {workspace: 'w'}}}"), expected(&[("main", "/nowhere/w")]));
    }

    #[test]
    fn a_workspace_inside_another_that_is_in_use_stays_until_it_is_moved() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("ws");
        let workspace_of = |id: &str| sibling_workspace(&shared, &AgentId::normalize(id));
        // A directory that merely has the agent's name is not a workspace.
        std::fs::create_dir_all(shared.join("third")).unwrap();
        assert_eq!(workspace_of("third"), folder.path().join("ws-third"));
        std::fs::write(shared.join("third/AGENTS.md"), "").unwrap();
        assert_eq!(workspace_of("third"), shared.join("third"));
        std::fs::rename(shared.join("third"), folder.path().join("ws-third")).unwrap();
        assert_eq!(workspace_of("third"), folder.path().join("ws-third"));
    }

    #[test]
    fn agent_sandbox_settings_override_the_defaults() {
        let text = "{agents: {defaults: {sandbox: {mode: 'non-main', workspaceRoot: '/boxes'}}, list: [{id: 'a'},
            {id: 'b', sandbox: {mode: 'all', perSession: true, workspaceAccess: 'ro', workspaceRoot: 'own'}}]}}";
        let config = Config::parse(text).unwrap();
        let paths = Paths { config: "/s/homard.json".into(), state: "/s".into() };
        let all: Vec<_> = config.agents.members().iter().map(|agent| sandboxing(&config, &paths, agent)).collect();
        let first = Sandboxing { mode: SandboxMode::NonMain, root: "/boxes".into(), ..Sandboxing::default() };
        let second = Sandboxing {
            mode: SandboxMode::All,
            scope: SandboxScope::Session,
            access: WorkspaceAccess::Ro,
            root: "/s/own".into(),
            sees_all_sessions: false,
        };
        assert_eq!(all, [first, second]);
        let none = Config::parse("{}").unwrap();
        let defaults = sandboxing(&none, &paths, &none.agents.members()[0]);
        assert_eq!(defaults, Sandboxing { root: "/s/sandboxes".into(), ..Sandboxing::default() });
    }

    #[test]
    fn a_sandboxed_session_sees_only_its_own_sessions_unless_configured() {
        let text = "{agents: {defaults: {sandbox: {sessionToolsVisibility: 'all'}}}}";
        let (config, none) = (Config::parse(text).unwrap(), Config::parse("{}").unwrap());
        let paths = Paths { config: "/s/homard.json".into(), state: "/s".into() };
        let sees_all = |config: &Config| sandboxing(config, &paths, &config.agents.members()[0]).sees_all_sessions;
        assert!(sees_all(&config) && !sees_all(&none));
    }

    #[test]
    fn agents_by_name_are_agents_too() {
        let config = Config::parse("{agents: {entries: {ops: {name: 'Ops'}, main: {default: true}}}}").unwrap();
        let ids: Vec<_> =
            config.agents.members().into_iter().map(|agent| (agent.id.to_string(), agent.is_default)).collect();
        assert_eq!(ids, [("main".to_owned(), true), ("ops".to_owned(), false)]);
    }
}
