//! Checks that commands of agents are sandboxed.

use homard_app::toolbox;
use homard_sandbox::{AccessMode, Tier};

use crate::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};

/// Runs a short form of `homard sandbox explain`.
pub fn check(context: &CheckContext) -> CheckReport {
    let Some(loaded) = &context.loaded else { return CheckReport::without_config() };
    evaluate(homard_settings::sandbox_policy(&loaded.config, &context.paths).mode, &toolbox::tier())
}

fn evaluate(mode: AccessMode, tier: &Tier) -> CheckReport {
    let install = "install bubblewrap (apt-get install bubblewrap), or see: homard docs security";
    match (mode, tier) {
        (AccessMode::Full, _) => {
            let remedy = "if this is not intended: homard config unset tools.exec.sandbox.mode";
            let message = "no sandbox: commands of agents run with your permissions";
            CheckReport::new("disabled: tools.exec.sandbox.mode is full", vec![DoctorFinding::note(message, remedy)])
        }
        (_, Tier::A { bwrap, .. }) => CheckReport::new(
            format!("tier A: namespaces ({}), a system call filter, and Landlock", bwrap.display()),
            vec![],
        ),
        (_, Tier::B { why }) => {
            let message = format!("commands of agents can {}, because {why}", tier.gaps().join("; "));
            CheckReport::new("tier B: Landlock and a system call filter", vec![DoctorFinding::note(message, install)])
        }
        (_, Tier::C { why }) => {
            let message = format!("agents cannot run commands, because {why}");
            CheckReport::new("tier C: none", vec![DoctorFinding::problem(message, install)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_without_a_sandbox_needs_action() {
        let reason = || "of x".to_owned();
        let needs_action = |mode, tier| evaluate(mode, &tier).needs_action();
        assert!(!needs_action(AccessMode::Workspace, Tier::A { bwrap: "/usr/bin/bwrap".into(), has_sizes: true }));
        assert!(!needs_action(AccessMode::Workspace, Tier::B { why: reason() }));
        assert!(needs_action(AccessMode::Workspace, Tier::C { why: reason() }));
        assert!(!needs_action(AccessMode::Full, Tier::C { why: reason() }));
    }

    #[test]
    fn tier_b_lists_what_commands_can_still_do() {
        let report = evaluate(AccessMode::Workspace, &Tier::B { why: "bubblewrap is not installed".to_owned() });
        let text = format!("{report:?}");
        assert!(text.contains("commands of agents can list other processes"), "{text}");
        assert!(text.contains("because bubblewrap is not installed"), "{text}");
    }
}
