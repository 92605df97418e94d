//! Wait graph of sessions, so that no session waits for itself through others.

use homard_proto::SessionKey;

use super::{Hub, HubSessions};

/// Edges of the wait graph: one pair of sessions per waiting call.
#[derive(Debug, Default)]
pub(super) struct WaitGraph(Vec<(SessionKey, SessionKey)>);

impl WaitGraph {
    /// Adds an edge from `waiter` to `target`. Returns false if `target` already waits for `waiter`, directly or
    /// through others.
    fn begin(&mut self, waiter: &SessionKey, target: &SessionKey) -> bool {
        let is_acyclic = !self.reaches(target, waiter);
        if is_acyclic {
            self.0.push((waiter.clone(), target.clone()));
        }
        is_acyclic
    }

    fn end(&mut self, waiter: &SessionKey, target: &SessionKey) {
        if let Some(index) = self.0.iter().position(|(from, to)| (from, to) == (waiter, target)) {
            self.0.swap_remove(index);
        }
    }

    fn reaches(&self, from: &SessionKey, to: &SessionKey) -> bool {
        let mut seen = vec![from];
        let mut next = 0;
        while let Some(&current) = seen.get(next) {
            if current == to {
                return true;
            }
            for (_, target) in self.0.iter().filter(|(waiter, _)| waiter == current) {
                if !seen.contains(&target) {
                    seen.push(target);
                }
            }
            next += 1;
        }
        false
    }
}

/// Guard: one session waits for another until this is dropped.
#[derive(Debug)]
#[must_use = "the wait is over when this is dropped"]
pub struct WaitGuard {
    hub: Hub,
    waiter: SessionKey,
    target: SessionKey,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.hub.0.lock().waits.end(&self.waiter, &self.target);
    }
}

impl HubSessions<'_> {
    /// Registers that a run of `waiter` waits for a run of `target`. `None` if that would be a deadlock, because
    /// `target` is the same session or waits for `waiter`, directly or through others.
    pub fn wait_for(self, waiter: &SessionKey, target: &SessionKey) -> Option<WaitGuard> {
        let is_acyclic = self.hub.0.lock().waits.begin(waiter, target);
        is_acyclic.then(|| WaitGuard { hub: self.hub.clone(), waiter: waiter.clone(), target: target.clone() })
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::AgentId;

    use super::*;

    fn key(name: &str) -> SessionKey {
        SessionKey::parse(name, &AgentId::main()).unwrap()
    }

    #[test]
    fn a_wait_that_would_close_a_cycle_is_rejected() {
        let mut waits = WaitGraph::default();
        let begin = |waits: &mut WaitGraph, waiter: &str, target: &str| waits.begin(&key(waiter), &key(target));
        assert!(!begin(&mut waits, "a", "a"));
        assert!(begin(&mut waits, "a", "b"));
        assert!(begin(&mut waits, "b", "c"));
        assert!(begin(&mut waits, "a", "c"));
        assert!(!begin(&mut waits, "c", "a"));
        assert!(!begin(&mut waits, "b", "a"));
        waits.end(&key("b"), &key("c"));
        assert!(!begin(&mut waits, "c", "a"), "a still waits for c by itself");
        waits.end(&key("a"), &key("c"));
        assert!(begin(&mut waits, "c", "a"));
        assert!(!begin(&mut waits, "b", "c"), "b would wait for c, c for a, a for b");
    }

    #[test]
    fn two_waits_for_the_same_session_are_counted_separately() {
        let mut waits = WaitGraph::default();
        assert!(waits.begin(&key("a"), &key("b")) && waits.begin(&key("a"), &key("b")));
        waits.end(&key("a"), &key("b"));
        assert!(!waits.begin(&key("b"), &key("a")));
        waits.end(&key("a"), &key("b"));
        assert!(waits.begin(&key("b"), &key("a")));
    }
}
