//! Checks that commands of agents are sandboxed.

use homard_tools::sandbox::{Mode, Tier};

use super::{
    Scene,
    finding::{Finding, Report},
};
use crate::assemble::tools;

/// Runs a short form of `homard sandbox explain`.
pub(super) fn look(scene: &Scene) -> Report {
    let Some(loaded) = &scene.loaded else { return Report::without_config() };
    judge(tools::policy(&loaded.config, &scene.paths).mode, &tools::tier())
}

fn judge(mode: Mode, tier: &Tier) -> Report {
    let install = "install bubblewrap (apt-get install bubblewrap), or see docs/security.md";
    match (mode, tier) {
        (Mode::Full, _) => {
            let to_do = "if that is not meant: homard config unset tools.exec.mode";
            let what = "there is no sandbox: commands of agents may do what you may do";
            Report::new("tools.exec says so", vec![Finding::note(what, to_do)])
        }
        (_, Tier::A { bwrap, .. }) => {
            Report::new(format!("tier A: namespaces ({}), a system call filter, and Landlock", bwrap.display()), vec![])
        }
        (_, Tier::B { why }) => {
            let what = format!("commands of agents can {}, because {why}", tier.gaps().join("; "));
            Report::new("tier B: Landlock and a system call filter", vec![Finding::note(what, install)])
        }
        (_, Tier::C { why }) => {
            let what = format!("agents cannot run commands, because {why}");
            Report::new("tier C: nothing", vec![Finding::wrong(what, install)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_that_holds_nothing_needs_a_hand() {
        let why = || "of x".to_owned();
        let needs = |mode, tier| judge(mode, &tier).needs_a_hand();
        assert!(!needs(Mode::Workspace, Tier::A { bwrap: "/usr/bin/bwrap".into(), has_sizes: true }));
        assert!(!needs(Mode::Workspace, Tier::B { why: why() }));
        assert!(needs(Mode::Workspace, Tier::C { why: why() }));
        assert!(!needs(Mode::Full, Tier::C { why: why() }));
    }

    #[test]
    fn h4_tier_b_says_what_it_does_not_keep_commands_from() {
        let report = judge(Mode::Workspace, &Tier::B { why: "bubblewrap is not installed".to_owned() });
        let said = format!("{report:?}");
        assert!(said.contains("commands of agents can list other processes"), "{said}");
        assert!(said.contains("because bubblewrap is not installed"), "{said}");
    }
}
