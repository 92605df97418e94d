//! What happened in a run, and when: small enough to be kept with every run.

use serde::{Deserialize, Serialize};

use crate::{RunRow, RunState};

/// The time of one thing in a run: its name, and milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step(pub String, pub u64);

/// What happened between a run's start and its end, by milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Steps(Vec<Step>);

impl Steps {
    /// So many are kept: it is the beginning of a long run that tells where its time went, and rows must stay small.
    pub const MAX: usize = 200;

    /// Adds a step; what comes after [`MAX`](Self::MAX) of them is not kept.
    pub fn add(&mut self, name: impl Into<String>, at: u64) {
        if self.0.len() < Self::MAX {
            self.0.push(Step(name.into(), at));
        }
    }
}

impl RunRow {
    /// What is known of the run's course, oldest first, by milliseconds since it was accepted.
    pub fn timeline(&self) -> Vec<Step> {
        let since = |name: &str, at: u64| Step(name.to_owned(), at.saturating_sub(self.accepted_at));
        let mut line = vec![since("accepted", self.accepted_at)];
        line.extend(self.started_at.map(|at| since("started", at)));
        if let RunState::Ended(ended) = &self.state {
            line.extend(ended.steps.0.iter().map(|Step(name, at)| since(name, *at)));
            line.push(since("ended", ended.ended_at));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::{AgentId, RunId, message::Usage};

    use super::*;
    use crate::{Ended, Outcome};

    #[test]
    fn a_run_tells_its_course_from_its_acceptance_on() {
        let mut steps = Steps::default();
        steps.add("model", 1_020);
        steps.add("tool exec", 1_300);
        let ended = Ended {
            outcome: Outcome::Done,
            replies: Vec::new(),
            model: (String::new(), String::new()),
            usage: Usage::default(),
            steps,
            ended_at: 1_500,
            words: None,
        };
        let row = RunRow {
            run: RunId::parse("r").unwrap(),
            principal: String::new(),
            method: String::new(),
            fingerprint: String::new(),
            key: AgentId::main().main_session(),
            session: None,
            accepted_at: 1_000,
            started_at: Some(1_010),
            state: RunState::Ended(Box::new(ended)),
        };
        let told: Vec<_> = row.timeline().into_iter().map(|Step(name, at)| format!("{name} {at}")).collect();
        assert_eq!(told, ["accepted 0", "started 10", "model 20", "tool exec 300", "ended 500"]);
        let waiting = RunRow { started_at: None, state: RunState::Accepted, ..row };
        assert_eq!(waiting.timeline(), [Step("accepted".to_owned(), 0)]);
    }

    #[test]
    fn a_long_run_stays_small() {
        let mut steps = Steps::default();
        (0..1_000).for_each(|at| steps.add("model", at));
        assert_eq!(steps.0.len(), Steps::MAX);
        assert_eq!(serde_json::to_string(&steps.0[0]).unwrap(), r#"["model",0]"#);
    }
}
