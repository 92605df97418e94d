//! Checks that every agent has a usable model, by the config and the credentials. No request is sent.

use homard_prompt::shortening;
use homard_setup::{
    ModelsContext,
    status::{ModelStatus, distinct},
};

use crate::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};

/// Same as `homard models status`, for every agent.
pub fn check(context: &CheckContext) -> CheckReport {
    let Some(loaded) = &context.loaded else { return CheckReport::without_config() };
    let (mut summary, mut findings) = (Vec::new(), Vec::new());
    let models = ModelsContext::of(loaded, context.paths.clone());
    for agent in loaded.config.agents.members() {
        let id = agent.id.to_string();
        match ModelStatus::find(&models, Some(&id)) {
            Ok(status) => {
                // A running gateway knows the current state better than the file, which it writes only at intervals; it
                // is queried separately.
                let outage = status.outage.filter(|_| context.holder.is_none());
                let status = ModelStatus { outage, ..status };
                summary.push(format!("{id}: {}", status.primary));
                findings.extend(evaluate(&id, &status));
            }
            Err(error) => {
                let remedy = format!("see: homard models status --agent {id}");
                findings.push(DoctorFinding::problem(format!("agent {id} has no usable model: {error}"), remedy));
            }
        }
    }
    CheckReport::new(summary.join(", "), findings)
}

fn evaluate(agent: &str, status: &ModelStatus) -> Vec<DoctorFinding> {
    let all = format!("homard models status --agent {agent}");
    let mut findings = Vec::new();
    if status.is_demo {
        let message = format!("agent {agent} has no API key and no model, so the demo model is used");
        findings.push(DoctorFinding::note(message, "add a key: homard models auth add PROVIDER"));
    }
    let has_no_other = status.missing.len() == status.candidate_count;
    findings.extend(distinct(&status.missing).map(|key| {
        let message = format!("agent {agent}: {key}");
        let remedy = format!("add the key: homard models auth add PROVIDER; see: {all}");
        if has_no_other { DoctorFinding::problem(message, remedy) } else { DoctorFinding::note(message, remedy) }
    }));
    if let Some(why) = status.outage.as_ref().filter(|_| !has_no_other) {
        let message = format!("agent {agent}: the model is down: {why}");
        findings.push(DoctorFinding::problem(message, format!("see: {all}; the next successful request clears this")));
    }
    let unusable = status.unusable.iter().map(|credential| {
        DoctorFinding::problem(
            format!("agent {agent}: {credential}"),
            "correct the credential, or remove it: homard models auth remove ID",
        )
    });
    findings.extend(unusable);
    findings.extend(status.skipped_fallbacks.iter().map(|fallback| {
        DoctorFinding::note(
            format!("agent {agent}: {fallback}"),
            "correct the name of the fallback, or add the model to agents.defaults.models",
        )
    }));
    let shortened = status.shortened.iter().map(|(model, shortened)| {
        let message = format!("agent {agent}: {}", shortening::explain(shortened, model));
        DoctorFinding::note(message, shortening::remedy(shortened, model))
    });
    findings.extend(shortened);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_is_a_problem_only_without_alternatives() {
        let status = |candidate_count, missing: usize| ModelStatus {
            primary: "p/m".to_owned(),
            is_demo: false,
            candidate_count,
            missing: vec!["p has no key".to_owned(); missing],
            unusable: Vec::new(),
            skipped_fallbacks: Vec::new(),
            shortened: Vec::new(),
            outage: None,
        };
        let needs_action = |candidate_count, missing| {
            evaluate("main", &status(candidate_count, missing))
                .iter()
                .map(DoctorFinding::needs_action)
                .collect::<Vec<_>>()
        };
        assert_eq!((needs_action(1, 1), needs_action(2, 1)), (vec![true], vec![false]));
        // Two candidates of one provider without a key are one problem.
        assert_eq!(needs_action(2, 2), [true]);
    }
}
