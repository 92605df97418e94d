//! Wait graph of sessions, so that no session waits for itself through others.

use homard_proto::SessionKey;

use super::Hub;

/// Edges of the wait graph: one pair of sessions per waiting call.
#[derive(Debug, Default)]
pub(super) struct WaitGraph(Vec<(SessionKey, SessionKey)>);

impl WaitGraph {
    /// Adds an edge from `one` to `other`. Returns false if `other` already waits for `one`, directly or through
    /// others.
    fn begin(&mut self, one: &SessionKey, other: &SessionKey) -> bool {
        let is_free = !self.reaches(other, one);
        if is_free {
            self.0.push((one.clone(), other.clone()));
        }
        is_free
    }

    fn end(&mut self, one: &SessionKey, other: &SessionKey) {
        if let Some(place) = self.0.iter().position(|(from, to)| (from, to) == (one, other)) {
            self.0.swap_remove(place);
        }
    }

    fn reaches(&self, from: &SessionKey, to: &SessionKey) -> bool {
        let mut seen = vec![from];
        let mut next = 0;
        while let Some(&here) = seen.get(next) {
            if here == to {
                return true;
            }
            for (_, there) in self.0.iter().filter(|(waits, _)| waits == here) {
                if !seen.contains(&there) {
                    seen.push(there);
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
    one: SessionKey,
    other: SessionKey,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.hub.0.lock().waits.end(&self.one, &self.other);
    }
}

impl Hub {
    /// Registers that a run of `one` waits for a run of `other`. `None` if that would be a deadlock, because `other` is
    /// the same session or waits for `one`, directly or through others.
    pub fn wait_for(&self, one: &SessionKey, other: &SessionKey) -> Option<WaitGuard> {
        let is_free = self.0.lock().waits.begin(one, other);
        is_free.then(|| WaitGuard { hub: self.clone(), one: one.clone(), other: other.clone() })
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
    fn a_circle_of_waits_is_not_closed() {
        let mut waits = WaitGraph::default();
        let begin = |waits: &mut WaitGraph, one: &str, other: &str| waits.begin(&key(one), &key(other));
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
    fn two_calls_that_wait_for_the_same_end_one_by_one() {
        let mut waits = WaitGraph::default();
        assert!(waits.begin(&key("a"), &key("b")) && waits.begin(&key("a"), &key("b")));
        waits.end(&key("a"), &key("b"));
        assert!(!waits.begin(&key("b"), &key("a")));
        waits.end(&key("a"), &key("b"));
        assert!(waits.begin(&key("b"), &key("a")));
    }
}
