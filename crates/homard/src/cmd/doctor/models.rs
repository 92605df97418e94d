//! Checks that every agent has a usable model, by the config and the credentials. No request is sent.

use homard_agent::shortening;

use super::{
    Scene,
    finding::{Finding, Report},
};
use crate::cmd::models::{Standing, standing};

/// Same as `homard models status`, for every agent.
pub(super) fn look(scene: &Scene) -> Report {
    let Some(loaded) = &scene.loaded else { return Report::without_config() };
    let (mut summary, mut findings) = (Vec::new(), Vec::new());
    for agent in loaded.config.agents.members() {
        let id = agent.id.to_string();
        match standing(loaded, &scene.paths, Some(&id)) {
            Ok(standing) => {
                // A running gateway knows the current state better than the file, which it writes only at intervals; it
                // is queried separately.
                let outage = standing.outage.filter(|_| scene.holder.is_none());
                let standing = Standing { outage, ..standing };
                summary.push(format!("{id}: {}", standing.first));
                findings.extend(judge(&id, &standing));
            }
            Err(error) => {
                let to_do = format!("see: homard models status --agent {id}");
                findings.push(Finding::wrong(format!("agent {id} has no model to ask: {error:#}"), to_do));
            }
        }
    }
    Report::new(summary.join(", "), findings)
}

fn judge(agent: &str, standing: &Standing) -> Vec<Finding> {
    let all = format!("homard models status --agent {agent}");
    let mut findings = Vec::new();
    if standing.is_demo {
        let what = format!("agent {agent} has no key and no model, so the demo model answers");
        findings.push(Finding::note(what, "add a key: homard models auth add PROVIDER"));
    }
    let is_alone = standing.missing.len() == standing.asked;
    findings.extend(standing.missing.iter().map(|what| {
        let what = format!("agent {agent}: {what}");
        let to_do = format!("add the key: homard models auth add PROVIDER; see: {all}");
        if is_alone { Finding::wrong(what, to_do) } else { Finding::note(what, to_do) }
    }));
    if let Some(why) = standing.outage.as_ref().filter(|_| !is_alone) {
        let what = format!("agent {agent}: its model is down: {why}");
        findings.push(Finding::wrong(what, format!("see: {all}; a request that succeeds ends this")));
    }
    let unusable = standing.unusable.iter().map(|what| {
        Finding::wrong(format!("agent {agent}: {what}"), "correct it, or remove it: homard models auth remove ID")
    });
    findings.extend(unusable);
    findings.extend(standing.left_out.iter().map(|what| {
        Finding::note(format!("agent {agent}: {what}"), "correct the fallbacks, or allow it in agents.defaults.models")
    }));
    let shortened = standing.shortened.iter().map(|(model, shortened)| {
        let what = format!("agent {agent}: {}", shortening::explain(shortened, model));
        Finding::note(what, shortening::remedy(shortened, model))
    });
    findings.extend(shortened);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_needs_a_hand_when_there_is_no_other() {
        let standing = |asked| Standing {
            first: "p/m".to_owned(),
            is_demo: false,
            asked,
            missing: vec!["p has no key".to_owned()],
            unusable: Vec::new(),
            left_out: Vec::new(),
            shortened: Vec::new(),
            outage: None,
        };
        let needs = |asked| judge("main", &standing(asked)).iter().map(Finding::needs_a_hand).collect::<Vec<_>>();
        assert_eq!((needs(1), needs(2)), (vec![true], vec![false]));
    }
}
