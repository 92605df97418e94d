//! Describes a policy in plain sentences for the user.

use std::path::Path;

use crate::{
    home_view::HomeView,
    layers::{Layer, Layers},
    policy::{AccessMode, SandboxPolicy},
    protected::for_commands,
    record::Names,
    tier::Tier,
};

/// Returns what a command in `workspace` may do on this machine, one sentence per item. Reads the disk.
pub fn explain(policy: &SandboxPolicy, tier: &Tier, workspace: &Path) -> Vec<String> {
    if policy.mode == AccessMode::Full {
        return vec!["No sandbox: commands have all permissions of the user (mode full).".to_owned()];
    }
    let mut all = vec![match tier {
        Tier::A { bwrap, .. } => {
            format!("Tier A: namespaces ({}), a system call filter, and Landlock.", bwrap.display())
        }
        Tier::B { why } => format!(
            "Tier B, limited: Landlock and a system call filter, without namespaces, because {why}. Unlike in tier A, \
             commands can {}.",
            tier.gaps().join("; ")
        ),
        Tier::C { why } => {
            return vec![format!(
                "Tier C: commands are refused, because {why}. Install bubblewrap (apt-get install bubblewrap), \
                 or choose the mode full."
            )];
        }
    }];
    let layers = match Layers::new(policy, workspace, &Names::new()) {
        Ok(layers) => layers,
        Err(error) => return vec![format!("{} cannot be used: {error}", workspace.display())],
    };
    let list = |layer| {
        let paths: Vec<_> = layers.of(layer).map(|path| path.display().to_string()).collect();
        if paths.is_empty() { "nothing".to_owned() } else { paths.join(", ") }
    };
    all.push(match policy.mode {
        AccessMode::ReadOnly => "Nothing can be changed (mode read-only).".to_owned(),
        AccessMode::Workspace => format!("Can be changed: {} (mode workspace).", list(Layer::Writable)),
        AccessMode::Guarded => format!("Can be changed: {}, after approval (mode guarded).", list(Layer::Writable)),
        AccessMode::Full => return all,
    });
    all.push(format!("Cannot be seen: {}.", list(Layer::Hidden)));
    all.push(match tier {
        Tier::A { .. } => format!("Empty at the start, and deleted afterwards: {}.", list(Layer::Private)),
        Tier::B { .. } | Tier::C { .. } => {
            format!("Not used: {}; TMPDIR is a private directory.", list(Layer::Private))
        }
    });
    if policy.mode != AccessMode::ReadOnly {
        let change = if matches!(tier, Tier::A { .. }) {
            "Cannot be changed in the workspace, and quarantined"
        } else {
            "Quarantined"
        };
        all.push(format!(
            "{change} if a command creates them: {}, hooks and config of .git.",
            for_commands().collect::<Vec<_>>().join(", ")
        ));
    }
    all.push(match HomeView::of(policy, workspace).filter(|view| !view.is_workspace) {
        Some(view) => {
            let visible = layers.of(Layer::Readable).filter(|path| path.starts_with(&view.home));
            let visible: Vec<_> = visible.map(|path| path.display().to_string()).collect();
            format!(
                "Can be read in the home directory, besides the workspace: {}. Add more with \
                 tools.exec.sandbox.extraRead. Everything outside the home directory can be read.",
                if visible.is_empty() { "nothing".to_owned() } else { visible.join(", ") }
            )
        }
        None => "Everything else can be read.".to_owned(),
    });
    all.push(match (policy.network, tier) {
        (true, _) => "The network can be reached.".to_owned(),
        (false, Tier::A { .. }) => {
            "The network cannot be reached; only a private loopback device is available.".to_owned()
        }
        (false, Tier::B { .. } | Tier::C { .. }) => "The network cannot be reached: sockets are blocked.".to_owned(),
    });
    all.push(format!("Limits: {} (tools.exec.limits).", policy.limits.explained()));
    all
}
