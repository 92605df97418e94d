//! Checks that commands of agents are sandboxed.

use homard_tools::sandbox::{AccessMode, Tier};

use super::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};
use crate::assemble::tools;

/// Runs a short form of `homard sandbox explain`.
pub(super) fn check(scene: &CheckContext) -> CheckReport {
    let Some(loaded) = &scene.loaded else { return CheckReport::without_config() };
    evaluate(tools::policy(&loaded.config, &scene.paths).mode, &tools::tier())
}

fn evaluate(mode: AccessMode, tier: &Tier) -> CheckReport {
    let install = "install bubblewrap (apt-get install bubblewrap), or see: homard docs security";
    match (mode, tier) {
        (AccessMode::Full, _) => {
            let to_do = "if this is not intended: homard config unset tools.exec.mode";
            let what = "no sandbox: commands of agents run with your permissions";
            CheckReport::new("disabled by tools.exec", vec![DoctorFinding::note(what, to_do)])
        }
        (_, Tier::A { bwrap, .. }) => CheckReport::new(
            format!("tier A: namespaces ({}), a system call filter, and Landlock", bwrap.display()),
            vec![],
        ),
        (_, Tier::B { why }) => {
            let what = format!("commands of agents can {}, because {why}", tier.gaps().join("; "));
            CheckReport::new("tier B: Landlock and a system call filter", vec![DoctorFinding::note(what, install)])
        }
        (_, Tier::C { why }) => {
            let what = format!("agents cannot run commands, because {why}");
            CheckReport::new("tier C: none", vec![DoctorFinding::problem(what, install)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_that_holds_nothing_needs_a_hand() {
        let why = || "of x".to_owned();
        let needs = |mode, tier| evaluate(mode, &tier).needs_action();
        assert!(!needs(AccessMode::Workspace, Tier::A { bwrap: "/usr/bin/bwrap".into(), has_sizes: true }));
        assert!(!needs(AccessMode::Workspace, Tier::B { why: why() }));
        assert!(needs(AccessMode::Workspace, Tier::C { why: why() }));
        assert!(!needs(AccessMode::Full, Tier::C { why: why() }));
    }

    #[test]
    fn h4_tier_b_says_what_it_does_not_keep_commands_from() {
        let report = evaluate(AccessMode::Workspace, &Tier::B { why: "bubblewrap is not installed".to_owned() });
        let said = format!("{report:?}");
        assert!(said.contains("commands of agents can list other processes"), "{said}");
        assert!(said.contains("because bubblewrap is not installed"), "{said}");
    }
}
