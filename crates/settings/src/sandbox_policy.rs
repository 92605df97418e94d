//! The sandbox policy for commands, built from the config.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use homard_agent::sandboxing::SandboxMode;

use crate::{
    Config, Text,
    agent_directories::{sandboxing, skill_roots, workspace},
    paths::{self, Paths},
    tools::{Limits, Mode},
};

/// Returns the sandbox policy for commands.
pub fn sandbox_policy(config: &Config, paths: &Paths) -> homard_sandbox::SandboxPolicy {
    let section = &config.tools.exec.sandbox;
    let home = paths::home();
    let expand_all = |list: &[Text]| -> Vec<PathBuf> {
        list.iter().map(|text| paths::expand(Path::new(text.as_str()), home.as_deref())).collect()
    };
    let members = config.agents.members();
    let workspaces: Vec<PathBuf> = members.iter().map(|agent| workspace(config, paths, agent)).collect();
    let sandboxes = members.iter().map(|agent| sandboxing(config, paths, agent));
    let sandboxes =
        sandboxes.filter(|sandboxing| sandboxing.mode != SandboxMode::Off).map(|sandboxing| sandboxing.root);
    let sandboxes: BTreeSet<PathBuf> = sandboxes.collect();
    let roots = workspaces.iter().map(|workspace| skill_roots(config, paths, workspace));
    let folders =
        roots.flat_map(|roots| roots.folders().into_iter().map(|(_, folder)| folder.to_owned()).collect::<Vec<_>>());
    homard_sandbox::SandboxPolicy {
        mode: match section.mode.map(|word| word.0) {
            None | Some(Mode::Workspace) => homard_sandbox::AccessMode::Workspace,
            Some(Mode::ReadOnly) => homard_sandbox::AccessMode::ReadOnly,
            Some(Mode::Guarded) => homard_sandbox::AccessMode::Guarded,
            Some(Mode::Full) => homard_sandbox::AccessMode::Full,
        },
        network: section.network.unwrap_or(false),
        state_dir: Some(paths.state.clone()),
        skills: folders.collect::<BTreeSet<_>>().into_iter().collect(),
        workspaces: workspaces.into_iter().chain(sandboxes).collect(),
        extra_read: expand_all(&section.extra_read),
        extra_write: expand_all(&section.extra_write),
        masked: expand_all(&section.masked)
            .into_iter()
            .chain([paths.config.clone()])
            .chain(config.files.clone())
            .collect(),
        home,
        search_path: paths::env("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default(),
        limits: limits(config.tools.exec.limits),
    }
}

/// Returns the resource limits for commands; 0 means no limit.
fn limits(configured: Limits) -> homard_sandbox::ResourceLimits {
    let defaults = homard_sandbox::ResourceLimits::default();
    let count = |configured: Option<u64>, defaults: Option<u64>| {
        configured.map_or(defaults, |configured| Some(configured).filter(|configured| *configured > 0))
    };
    let bytes =
        |configured: Option<u64>, defaults| count(configured.map(|mib| mib.saturating_mul(1024 * 1024)), defaults);
    homard_sandbox::ResourceLimits {
        memory: bytes(configured.memory_mb, defaults.memory),
        processes: count(configured.processes, defaults.processes),
        file: bytes(configured.file_mb, defaults.file),
        temporary: bytes(configured.tmp_mb, defaults.temporary),
        disk_free: bytes(configured.disk_free_mb, defaults.disk_free),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_commands_are_those_of_the_config() {
        let limits = |text: &str| limits(Config::parse(text).unwrap().tools.exec.limits);
        let defaults = homard_sandbox::ResourceLimits::default();
        assert_eq!(limits("{}"), defaults);
        let configured = "{tools: {exec: {limits: {memoryMb: 2, processes: 3, fileMb: 0, tmpMb: 4, diskFreeMb: 0}}}}";
        let mib = 1024 * 1024;
        let expected = homard_sandbox::ResourceLimits {
            memory: Some(2 * mib),
            processes: Some(3),
            file: None,
            temporary: Some(4 * mib),
            disk_free: None,
        };
        assert_eq!(limits(configured), expected);
    }
}
