//! Checks that every agent has a usable model, by the config and the credentials. No request is sent.

use homard_agent::shortening;

use super::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};
use crate::cmd::models::{ModelStatus, distinct, model_status};

/// Same as `homard models status`, for every agent.
pub(super) fn check(scene: &CheckContext) -> CheckReport {
    let Some(loaded) = &scene.loaded else { return CheckReport::without_config() };
    let (mut summary, mut findings) = (Vec::new(), Vec::new());
    for agent in loaded.config.agents.members() {
        let id = agent.id.to_string();
        match model_status(loaded, &scene.paths, Some(&id)) {
            Ok(standing) => {
                // A running gateway knows the current state better than the file, which it writes only at intervals; it
                // is queried separately.
                let outage = standing.outage.filter(|_| scene.holder.is_none());
                let standing = ModelStatus { outage, ..standing };
                summary.push(format!("{id}: {}", standing.primary));
                findings.extend(evaluate(&id, &standing));
            }
            Err(error) => {
                let to_do = format!("see: homard models status --agent {id}");
                findings.push(DoctorFinding::problem(format!("agent {id} has no usable model: {error:#}"), to_do));
            }
        }
    }
    CheckReport::new(summary.join(", "), findings)
}

fn evaluate(agent: &str, standing: &ModelStatus) -> Vec<DoctorFinding> {
    let all = format!("homard models status --agent {agent}");
    let mut findings = Vec::new();
    if standing.is_demo {
        let what = format!("agent {agent} has no API key and no model, so the demo model is used");
        findings.push(DoctorFinding::note(what, "add a key: homard models auth add PROVIDER"));
    }
    let is_alone = standing.missing.len() == standing.candidate_count;
    findings.extend(distinct(&standing.missing).map(|what| {
        let what = format!("agent {agent}: {what}");
        let to_do = format!("add the key: homard models auth add PROVIDER; see: {all}");
        if is_alone { DoctorFinding::problem(what, to_do) } else { DoctorFinding::note(what, to_do) }
    }));
    if let Some(why) = standing.outage.as_ref().filter(|_| !is_alone) {
        let what = format!("agent {agent}: the model is down: {why}");
        findings.push(DoctorFinding::problem(what, format!("see: {all}; the next successful request clears this")));
    }
    let unusable = standing.unusable.iter().map(|what| {
        DoctorFinding::problem(
            format!("agent {agent}: {what}"),
            "correct it, or remove it: homard models auth remove ID",
        )
    });
    findings.extend(unusable);
    findings.extend(standing.skipped_fallbacks.iter().map(|what| {
        DoctorFinding::note(
            format!("agent {agent}: {what}"),
            "correct the fallbacks, or allow it in agents.defaults.models",
        )
    }));
    let shortened = standing.shortened.iter().map(|(model, shortened)| {
        let what = format!("agent {agent}: {}", shortening::explain(shortened, model));
        DoctorFinding::note(what, shortening::remedy(shortened, model))
    });
    findings.extend(shortened);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_needs_a_hand_when_there_is_no_other() {
        let standing = |asked, missing: usize| ModelStatus {
            primary: "p/m".to_owned(),
            is_demo: false,
            candidate_count: asked,
            missing: vec!["p has no key".to_owned(); missing],
            unusable: Vec::new(),
            skipped_fallbacks: Vec::new(),
            shortened: Vec::new(),
            outage: None,
        };
        let needs = |asked, missing| {
            evaluate("main", &standing(asked, missing)).iter().map(DoctorFinding::needs_action).collect::<Vec<_>>()
        };
        assert_eq!((needs(1, 1), needs(2, 1)), (vec![true], vec![false]));
        // Two candidates of one provider without a key are one problem.
        assert_eq!(needs(2, 2), [true]);
    }
}
