//! Budgets: hard limits on cost and tokens, enforced by reservations before each model request.
//!
//! A request reserves its maximum usage. Reservations count as spent, so that concurrent runs cannot exceed a limit
//! together. A request that does not fit waits while other reservations may be released, and is rejected when nothing
//! is left.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homard_model::{Request, Spec};
use homard_proto::{AgentId, SessionId, message::Usage};
use homard_store::{
    Store,
    spend::{Period, day_of},
};
use tokio::sync::Notify;

use crate::ambient::Ambient;

/// Minimum output tokens of a request; less is no useful answer.
const LEAST: u64 = 256;

/// Cost and tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sum {
    /// US dollars.
    pub cost: f64,
    /// Input and output tokens.
    pub tokens: u64,
}

impl std::ops::Add for Sum {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cost: self.cost + other.cost, tokens: self.tokens.saturating_add(other.tokens) }
    }
}

impl std::iter::Sum for Sum {
    fn sum<I: Iterator<Item = Self>>(sums: I) -> Self {
        sums.fold(Self::default(), |all, one| all + one)
    }
}

impl From<&Usage> for Sum {
    fn from(usage: &Usage) -> Self {
        Self { cost: usage.cost.total, tokens: usage.input + usage.output + usage.cache_read + usage.cache_write }
    }
}

/// A budget limit; `None` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limit {
    /// US dollars.
    pub cost: Option<f64>,
    /// Tokens.
    pub tokens: Option<u64>,
}

impl Limit {
    fn allows(&self, sum: Sum) -> bool {
        self.cost.is_none_or(|most| sum.cost <= most) && self.tokens.is_none_or(|most| sum.tokens <= most)
    }
}

/// All budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Per run.
    pub run: Limit,
    /// Per transcript.
    pub session: Limit,
    /// Per agent and day.
    pub agent: Limit,
    /// For all agents per day.
    pub day: Limit,
}

/// Today's usage and reservations. Days are UTC days.
#[derive(Debug, Default)]
pub(crate) struct Purse {
    inner: Mutex<Inner>,
    /// Notified when a reservation is released.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// Current day; `None` until its usage was read from the store.
    day: Option<u32>,
    spent: HashMap<AgentId, Sum>,
    reserved: HashMap<AgentId, Vec<(u64, Sum)>>,
    next: u64,
}

/// Budget of one run.
#[derive(Clone)]
pub(crate) struct Payer {
    pub(crate) purse: Arc<Purse>,
    pub(crate) ambient: Ambient,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) limits: Limits,
    pub(crate) agent: AgentId,
    pub(crate) session: SessionId,
    own: Arc<Mutex<Own>>,
}

#[derive(Debug, Default)]
struct Own {
    /// Usage of the run.
    run: Sum,
    /// Usage of its session before the run.
    session: Option<Sum>,
    /// Usage of the run before a restart, which is in no stored sum yet.
    found: Sum,
}

impl fmt::Debug for Payer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payer").field("limits", &self.limits).field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// Reservation of a model request, until its actual usage is known.
#[derive(Debug)]
pub(crate) struct Hold {
    payer: Payer,
    number: u64,
    /// Usage of the prompt, charged if the request was sent.
    prompt: Sum,
    is_settled: bool,
}

impl Payer {
    pub(crate) fn new(
        (purse, ambient, store): (&Arc<Purse>, &Ambient, &Arc<dyn Store>),
        limits: Limits,
        (agent, session): (AgentId, SessionId),
        found: Sum,
    ) -> Self {
        let own = Arc::new(Mutex::new(Own { run: found, session: None, found }));
        let (purse, ambient, store) = (purse.clone(), ambient.clone(), store.clone());
        Self { purse, ambient, store, limits, agent, session, own }
    }

    /// Reserves the maximum usage of a request, with a lower output limit if that is all that is left. Waits while
    /// other reservations may be released. The error names the limit that is reached and the remedy.
    pub(crate) async fn reserve(&self, spec: &Spec, prompt: u64, request: &mut Request) -> Result<Hold, String> {
        self.look_up().await?;
        let most_output = request.max_output.unwrap_or(spec.max_output).max(1);
        loop {
            let changed = self.purse.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let refused = match self.bid(spec, prompt, most_output) {
                Ok(hold) => return Ok(hold),
                Err(refused) => refused,
            };
            if !refused.may_wait {
                // No reservation is left to wait for: a short answer may still fit.
                let room = self.room(spec, prompt).min(most_output);
                if room >= LEAST.min(most_output)
                    && let Ok(hold) = self.bid(spec, prompt, room)
                {
                    request.max_output = Some(room);
                    return Ok(hold);
                }
                return Err(refused.why);
            }
            changed.await;
        }
    }

    /// Reads the usage before this process, and before this run in its session.
    async fn look_up(&self) -> Result<(), String> {
        let unknown = |error: homard_store::Error| format!("it cannot be read what was spent so far: {error}");
        let today = day_of(self.ambient.now_ms());
        if self.purse.lock().day.is_none() {
            let rows = self.store.spent(&Period::Days(today, today)).await.map_err(unknown)?;
            let mut inner = self.purse.lock();
            if inner.day.is_none() {
                inner.day = Some(today);
                for row in rows {
                    inner.charge(row.of.key.agent().cloned().unwrap_or_else(AgentId::main), Sum::from(&row.usage));
                }
            }
        }
        let found = std::mem::take(&mut self.own().found);
        self.purse.lock().charge(self.agent.clone(), found);
        if self.limits.session != Limit::default() && self.own().session.is_none() {
            let rows = self.store.spent(&Period::Session(self.session.clone())).await.map_err(unknown)?;
            let sum = rows.iter().map(|row| Sum::from(&row.usage)).sum();
            self.own().session = Some(sum);
        }
        Ok(())
    }

    /// Returns how many output tokens fit if no other reservation is released.
    fn room(&self, spec: &Spec, prompt: u64) -> u64 {
        let known = price(spec, prompt, 0);
        let Taken { run, session, agent, day, .. } = self.taken(&self.purse.lock());
        let limits = [
            (self.limits.run, run),
            (self.limits.session, session),
            (self.limits.agent, agent),
            (self.limits.day, day),
        ];
        let room = limits.into_iter().map(|(limit, taken)| {
            let taken = taken + known;
            let tokens = limit.tokens.map_or(u64::MAX, |most| most.saturating_sub(taken.tokens));
            let by_cost = limit.cost.filter(|_| spec.prices.output > 0.0).map(|most| {
                let tokens = ((most - taken.cost) * 1_000_000.0 / spec.prices.output).floor();
                // A float that is too large or below zero becomes the nearest number.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
                let tokens = tokens as u64;
                tokens
            });
            tokens.min(by_cost.unwrap_or(u64::MAX))
        });
        room.min().unwrap_or(u64::MAX)
    }

    fn taken(&self, inner: &Inner) -> Taken {
        let own = self.own();
        let (run, session) = (own.run, own.run + own.session.unwrap_or_default());
        drop(own);
        let of = |agent: &AgentId| {
            let reserved: Sum = inner.reserved.get(agent).into_iter().flatten().map(|(_, sum)| *sum).sum();
            inner.spent.get(agent).copied().unwrap_or_default() + reserved
        };
        let agents = inner.spent.keys().chain(inner.reserved.keys().filter(|agent| !inner.spent.contains_key(*agent)));
        let is_reserved = inner.reserved.values().any(|reserved| !reserved.is_empty());
        Taken { run, session, agent: of(&self.agent), day: agents.map(of).sum(), is_reserved }
    }

    fn bid(&self, spec: &Spec, prompt: u64, output: u64) -> Result<Hold, Refusal> {
        let most = price(spec, prompt, output);
        // One lock for the check and the reservation, so that two requests cannot reserve the same remainder.
        let mut inner = self.purse.lock();
        inner.begin(day_of(self.ambient.now_ms()));
        let Taken { run, session, agent, day, is_reserved } = self.taken(&inner);
        let of_agent = format!("of the agent {} today", self.agent);
        let checks = [
            (self.limits.run, run, "run", "of this run", false),
            (self.limits.session, session, "session", "of this session", false),
            (self.limits.agent, agent, "agent", of_agent.as_str(), is_reserved),
            (self.limits.day, day, "day", "of today", is_reserved),
        ];
        for (limit, taken, key, whose, may_wait) in checks {
            if !limit.allows(taken + most) {
                return Err(Refusal { why: refusal((limit, taken, most), key, whose), may_wait });
            }
        }
        let number = inner.reserve(&self.agent, most);
        drop(inner);
        Ok(Hold { payer: self.clone(), number, prompt: price(spec, prompt, 0), is_settled: false })
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Usage including reservations.
struct Taken {
    run: Sum,
    session: Sum,
    agent: Sum,
    day: Sum,
    /// True if there are reservations.
    is_reserved: bool,
}

struct Refusal {
    why: String,
    /// True if a released reservation could help.
    may_wait: bool,
}

fn refusal((limit, taken, most): (Limit, Sum, Sum), key: &str, whose: &str) -> String {
    let (unit, allowed, taken, more) = match limit.cost {
        Some(cost) if taken.cost + most.cost > cost => {
            ("cost", format!("{cost:.2} dollars"), format!("{:.2}", taken.cost), format!("{:.4}", most.cost))
        }
        _ => {
            let allowed = format!("{} tokens", limit.tokens.unwrap_or(0));
            ("tokens", allowed, taken.tokens.to_string(), most.tokens.to_string())
        }
    };
    let anew = if key == "run" || key == "session" { "" } else { "; it begins anew at 00:00 UTC" };
    format!(
        "the budget {whose} is {allowed}; {taken} are taken, and the next question may take {more}{anew}. To allow more, set \
         budgets.{key}.{unit}"
    )
}

impl Purse {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Resets the usage on a new day.
    fn begin(&mut self, day: u32) {
        if self.day.is_some_and(|counted| counted < day) {
            self.day = Some(day);
            self.spent.clear();
        }
    }

    fn charge(&mut self, agent: AgentId, sum: Sum) {
        if sum != Sum::default() {
            let spent = self.spent.entry(agent).or_default();
            *spent = *spent + sum;
        }
    }

    fn reserve(&mut self, agent: &AgentId, sum: Sum) -> u64 {
        self.next += 1;
        self.reserved.entry(agent.clone()).or_default().push((self.next, sum));
        self.next
    }

    fn give_back(&mut self, agent: &AgentId, number: u64) {
        if let Some(reserved) = self.reserved.get_mut(agent) {
            reserved.retain(|(held, _)| *held != number);
        }
    }
}

impl Hold {
    /// Replaces the reservation by the actual usage.
    pub(crate) fn settle(mut self, usage: &Usage) {
        self.end(Sum::from(usage));
    }

    /// Releases the reservation: the request was not sent.
    pub(crate) fn give_back(mut self) {
        self.end(Sum::default());
    }

    fn end(&mut self, took: Sum) {
        self.is_settled = true;
        let mut inner = self.payer.purse.lock();
        inner.give_back(&self.payer.agent, self.number);
        inner.charge(self.payer.agent.clone(), took);
        drop(inner);
        let mut own = self.payer.own();
        own.run = own.run + took;
        drop(own);
        self.payer.purse.changed.notify_waiters();
    }
}

/// A cancelled request is charged for its prompt, which the provider has processed.
impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_settled {
            self.end(self.prompt);
        }
    }
}

/// Returns the maximum cost of a request.
fn price(spec: &Spec, prompt: u64, output: u64) -> Sum {
    let prices = spec.prices;
    #[expect(clippy::cast_precision_loss, reason = "no prompt has so many tokens")]
    let cost = (prompt as f64 * prices.input.max(prices.cache_write) + output as f64 * prices.output) / 1_000_000.0;
    Sum { cost, tokens: prompt.saturating_add(output) }
}
