//! Model candidates and their order.

use std::{cmp::Reverse, collections::HashSet, fmt, sync::Arc};

use crate::{
    Model,
    profile_health::{Cooldown, HealthTracker, ProfileHealth},
};

/// Credential of a model that needs none.
pub(crate) const NO_CREDENTIAL: &str = "none";

/// A model with one credential.
#[derive(Clone)]
pub struct Candidate {
    /// Client of the model.
    pub model: Arc<dyn Model>,
    /// Id of the credential, such as `anthropic:default`, or a name for its source.
    pub profile: Arc<str>,
    /// Kind of the credential.
    pub credential: Credential,
}

/// Kind of a credential, in order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Credential {
    Oauth,
    Token,
    ApiKey,
}

/// A model of the chain, with the credentials of its provider.
#[derive(Debug, Clone)]
pub struct CandidateRank {
    /// One candidate per credential.
    pub candidates: Vec<Candidate>,
    /// Order of the credentials.
    pub order: CredentialOrder,
}

/// Order in which the credentials of a provider are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialOrder {
    /// As configured.
    Configured,
    /// By kind, then round-robin: the least recently used first.
    RoundRobin,
}

/// Credential that a session prefers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PreferredCredential {
    /// No preference yet.
    #[default]
    Any,
    /// The one that answered last, unless it is in cooldown: the provider's cache holds the conversation.
    Sticky(Arc<str>),
    /// The one that the user chose. It is the only one of its provider, and it is used even during a cooldown.
    Pinned(Arc<str>),
}

/// Candidates of a run; never empty.
///
/// A model that the user chose for a session is strict: there is one rank, without fallbacks.
#[derive(Debug, Clone)]
pub struct Candidates {
    pub(crate) first: Candidate,
    ranks: Arc<[CandidateRank]>,
    /// Health of the profiles.
    pub(crate) health: Arc<HealthTracker>,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} as {}", self.profile)
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.model.spec();
        write!(f, "{}/{}", spec.provider, spec.model)
    }
}

impl PartialEq for Candidate {
    /// True for the same model with the same credential.
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Candidate {
    fn key(&self) -> (&str, &str, &str) {
        let spec = self.model.spec();
        (&self.profile, &spec.provider, &spec.model)
    }

    pub(crate) fn cooldown(&self, health: &ProfileHealth, now: u64) -> Option<Cooldown> {
        health.cooldown(&self.profile, &self.model.spec().model, now)
    }
}

impl PreferredCredential {
    fn is_pinned(&self, candidate: &Candidate) -> bool {
        matches!(self, Self::Pinned(profile) if *profile == candidate.profile)
    }

    /// Returns the sort key of a candidate: 0 if it is ready, else the end of its cooldown.
    pub(crate) fn ready_at(&self, candidate: &Candidate, health: &ProfileHealth, now: u64) -> u64 {
        if self.is_pinned(candidate) {
            return 0;
        }
        candidate.cooldown(health, now).map_or(0, |cooldown| cooldown.until)
    }
}

impl Candidates {
    /// Creates the chain of models: the primary, then the fallbacks. Duplicates are removed; returns `None` if no
    /// candidate is left.
    pub fn new(mut ranks: Vec<CandidateRank>, health: Arc<HealthTracker>) -> Option<Self> {
        let mut known = HashSet::new();
        for rank in &mut ranks {
            rank.candidates.retain(|candidate| {
                let (profile, provider, model) = candidate.key();
                known.insert((profile.to_owned(), provider.to_owned(), model.to_owned()))
            });
        }
        let first = ranks.iter().find_map(|rank| rank.candidates.first())?.clone();
        Some(Self { first, ranks: ranks.into(), health })
    }

    /// Creates the candidates for one model that needs no credential.
    pub fn single(model: Arc<dyn Model>) -> Self {
        let first = Candidate { model, profile: NO_CREDENTIAL.into(), credential: Credential::ApiKey };
        let rank = CandidateRank { candidates: vec![first.clone()], order: CredentialOrder::Configured };
        Self { first, ranks: [rank].into(), health: Arc::default() }
    }

    /// Returns the primary model.
    pub fn first(&self) -> &Arc<dyn Model> {
        &self.first.model
    }

    /// Returns why no candidate would answer, as far as is known in advance: each one is unusable, in cooldown, or
    /// failed and has not answered since. `None` if one may answer.
    pub fn outage(&self, now: u64) -> Option<String> {
        let health = self.health.lock();
        let why = |candidate: &Candidate| {
            let spec = candidate.model.spec();
            let cooldown = || candidate.cooldown(&health, now);
            let failing = || health.failing(&candidate.profile, &spec.model, now);
            let why = match candidate.model.unusable() {
                Some(error) => error.message.clone(),
                None => match cooldown() {
                    Some(cooldown) => {
                        let remaining = (cooldown.until - now).div_ceil(1000);
                        format!(
                            "its last request failed ({}), and it is in cooldown for another {remaining} s",
                            cooldown.reason
                        )
                    }
                    None => format!("its last request failed ({}), and none has succeeded since", failing()?),
                },
            };
            Some(if spec.provider.is_empty() { why } else { format!("{candidate}: {why}") })
        };
        let mut all: Vec<String> =
            self.ranks.iter().flat_map(|rank| &rank.candidates).map(why).collect::<Option<_>>()?;
        all.dedup();
        Some(all.join(" | "))
    }

    /// Returns all candidates in the order in which they would be tried now: those in cooldown last, the shortest
    /// cooldown first.
    pub fn order(&self, now: u64, preferred: &PreferredCredential) -> Vec<Candidate> {
        let health = self.health.lock();
        let mut order = self.chain(&health, preferred);
        order.sort_by_key(|candidate| preferred.ready_at(candidate, &health, now));
        order
    }

    /// Returns all candidates in chain order, without regard to cooldowns.
    pub(crate) fn chain(&self, health: &ProfileHealth, preferred: &PreferredCredential) -> Vec<Candidate> {
        let mut chain = Vec::new();
        for CandidateRank { candidates, order } in self.ranks.iter() {
            let mut rank: Vec<_> = candidates.iter().collect();
            match order {
                CredentialOrder::Configured => {}
                CredentialOrder::RoundRobin => rank.sort_by_key(|candidate| {
                    let stats = health.get(&candidate.profile);
                    (candidate.credential, stats.and_then(|stats| stats.last_used))
                }),
            }
            match preferred {
                PreferredCredential::Any => {}
                PreferredCredential::Sticky(profile) => {
                    rank.sort_by_key(|candidate| Reverse(candidate.profile == *profile))
                }
                // A pinned credential of another provider does not apply here.
                PreferredCredential::Pinned(_) if !rank.iter().any(|candidate| preferred.is_pinned(candidate)) => {}
                PreferredCredential::Pinned(_) => rank.retain(|candidate| preferred.is_pinned(candidate)),
            }
            chain.extend(rank.into_iter().cloned());
        }
        chain
    }
}

#[cfg(test)]
pub(crate) mod tests;
