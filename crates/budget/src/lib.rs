//! Budgets: hard limits on cost and tokens, enforced by reservations before each model request.
//!
//! A request reserves its maximum usage. Reservations count as spent, so that concurrent runs cannot exceed a limit
//! together. A request that does not fit waits while other reservations may be released, and is rejected when nothing
//! is left.
#![warn(missing_docs)]

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homard_model::{ModelSpec, Request};
use homard_proto::{AgentId, SessionId, message::Usage};
use homard_runtime::ambient::Ambient;
use homard_store::{
    StoreReader,
    usage::{UsageQuery, day_of},
};
use tokio::sync::Notify;

/// Minimum output tokens of a request; less is no useful answer.
const MIN_OUTPUT: u64 = 256;

/// Cost and tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spend {
    /// US dollars.
    pub cost: f64,
    /// Input and output tokens.
    pub tokens: u64,
}

impl std::ops::Add for Spend {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cost: self.cost + other.cost, tokens: self.tokens.saturating_add(other.tokens) }
    }
}

impl std::iter::Sum for Spend {
    fn sum<I: Iterator<Item = Self>>(spends: I) -> Self {
        spends.fold(Self::default(), |total, spend| total + spend)
    }
}

impl From<&Usage> for Spend {
    fn from(usage: &Usage) -> Self {
        Self { cost: usage.cost.total, tokens: usage.input + usage.output + usage.cache_read + usage.cache_write }
    }
}

/// A budget limit; `None` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BudgetLimit {
    /// US dollars.
    pub cost: Option<f64>,
    /// Tokens.
    pub tokens: Option<u64>,
}

impl BudgetLimit {
    fn allows(&self, spend: Spend) -> bool {
        self.cost.is_none_or(|limit| spend.cost <= limit) && self.tokens.is_none_or(|limit| spend.tokens <= limit)
    }
}

/// All budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BudgetLimits {
    /// Per run.
    pub run: BudgetLimit,
    /// Per transcript.
    pub session: BudgetLimit,
    /// Per agent and day.
    pub agent: BudgetLimit,
    /// For all agents per day.
    pub day: BudgetLimit,
}

/// Today's usage and reservations. Days are UTC days.
#[derive(Debug, Default)]
pub struct BudgetLedger {
    inner: Mutex<LedgerInner>,
    /// Notified when a reservation is released.
    changed: Notify,
}

#[derive(Debug, Default)]
struct LedgerInner {
    /// Current day; `None` until its usage was read from the store.
    day: Option<u32>,
    spent: HashMap<AgentId, Spend>,
    reserved: HashMap<AgentId, Vec<(u64, Spend)>>,
    next: u64,
}

/// The run that a budget belongs to.
#[derive(Debug, Clone)]
pub struct BudgetedRun {
    /// Agent of the run.
    pub agent: AgentId,
    /// Transcript of the run.
    pub session: SessionId,
    /// Usage of the run before a restart.
    pub earlier: Spend,
}

/// Budget of one run.
#[derive(Clone)]
pub struct RunBudget {
    ledger: Arc<BudgetLedger>,
    ambient: Ambient,
    store: Arc<dyn StoreReader>,
    limits: BudgetLimits,
    agent: AgentId,
    session: SessionId,
    run_usage: Arc<Mutex<RunUsage>>,
}

#[derive(Debug, Default)]
struct RunUsage {
    /// Usage of the run.
    run: Spend,
    /// Usage of its session before the run.
    session: Option<Spend>,
    /// Usage of the run before a restart, which is in no stored sum yet.
    unrecorded: Spend,
}

impl fmt::Debug for RunBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunBudget").field("limits", &self.limits).field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// Reservation of a model request, until its actual usage is known.
#[derive(Debug)]
pub struct Reservation {
    budget: RunBudget,
    number: u64,
    /// Usage of the prompt, charged if the request was sent.
    prompt: Spend,
    is_settled: bool,
}

impl RunBudget {
    /// The budget of a run.
    pub fn new(
        ledger: &Arc<BudgetLedger>,
        ambient: &Ambient,
        store: &Arc<dyn StoreReader>,
        limits: BudgetLimits,
        run: BudgetedRun,
    ) -> Self {
        let BudgetedRun { agent, session, earlier } = run;
        let run_usage = Arc::new(Mutex::new(RunUsage { run: earlier, session: None, unrecorded: earlier }));
        let (ledger, ambient, store) = (ledger.clone(), ambient.clone(), store.clone());
        Self { ledger, ambient, store, limits, agent, session, run_usage }
    }

    /// Reserves the maximum usage of a request, with a lower output limit if that is all that is left. Waits while
    /// other reservations may be released. The error names the limit that is reached and the remedy.
    pub async fn reserve(&self, spec: &ModelSpec, prompt: u64, request: &mut Request) -> Result<Reservation, String> {
        self.load_usage().await?;
        let most_output = request.max_output.unwrap_or(spec.max_output).max(1);
        loop {
            let changed = self.ledger.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let refusal = match self.try_reserve(spec, prompt, most_output) {
                Ok(reservation) => return Ok(reservation),
                Err(refusal) => refusal,
            };
            if !refusal.may_wait {
                // No reservation is left to wait for: a short answer may still fit.
                let output_left = self.output_left(spec, prompt).min(most_output);
                if output_left >= MIN_OUTPUT.min(most_output)
                    && let Ok(reservation) = self.try_reserve(spec, prompt, output_left)
                {
                    request.max_output = Some(output_left);
                    return Ok(reservation);
                }
                return Err(refusal.why);
            }
            changed.await;
        }
    }

    /// Reads the usage before this process, and before this run in its session.
    async fn load_usage(&self) -> Result<(), String> {
        let read_error = |error: homard_store::Error| format!("failed to read the token usage so far: {error}");
        let today = day_of(self.ambient.now_ms());
        if self.ledger.lock().day.is_none() {
            let rows = self.store.usage(&UsageQuery::Days(today, today)).await.map_err(read_error)?;
            let mut inner = self.ledger.lock();
            if inner.day.is_none() {
                inner.day = Some(today);
                for row in rows {
                    inner.charge(
                        row.subject.key.agent().cloned().unwrap_or_else(AgentId::main),
                        Spend::from(&row.usage),
                    );
                }
            }
        }
        let unrecorded = std::mem::take(&mut self.run_usage().unrecorded);
        self.ledger.lock().charge(self.agent.clone(), unrecorded);
        if self.limits.session != BudgetLimit::default() && self.run_usage().session.is_none() {
            let rows = self.store.usage(&UsageQuery::Session(self.session.clone())).await.map_err(read_error)?;
            let total = rows.iter().map(|row| Spend::from(&row.usage)).sum();
            self.run_usage().session = Some(total);
        }
        Ok(())
    }

    /// Returns how many output tokens fit if no other reservation is released.
    fn output_left(&self, spec: &ModelSpec, prompt: u64) -> u64 {
        let prompt_cost = price(spec, prompt, 0);
        let CommittedUsage { run, session, agent, day, .. } = self.committed(&self.ledger.lock());
        let limits = [
            (self.limits.run, run),
            (self.limits.session, session),
            (self.limits.agent, agent),
            (self.limits.day, day),
        ];
        let output_tokens = limits.into_iter().map(|(limit, used)| {
            let used = used + prompt_cost;
            let tokens = limit.tokens.map_or(u64::MAX, |max| max.saturating_sub(used.tokens));
            let by_cost = limit.cost.filter(|_| spec.prices.output > 0.0).map(|max| {
                let tokens = ((max - used.cost) * 1_000_000.0 / spec.prices.output).floor();
                // A float that is too large or below zero becomes the nearest number.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
                let tokens = tokens as u64;
                tokens
            });
            tokens.min(by_cost.unwrap_or(u64::MAX))
        });
        output_tokens.min().unwrap_or(u64::MAX)
    }

    fn committed(&self, inner: &LedgerInner) -> CommittedUsage {
        let run_usage = self.run_usage();
        let (run, session) = (run_usage.run, run_usage.run + run_usage.session.unwrap_or_default());
        drop(run_usage);
        let spend_of = |agent: &AgentId| {
            let reserved: Spend = inner.reserved.get(agent).into_iter().flatten().map(|(_, spend)| *spend).sum();
            inner.spent.get(agent).copied().unwrap_or_default() + reserved
        };
        let agents = inner.spent.keys().chain(inner.reserved.keys().filter(|agent| !inner.spent.contains_key(*agent)));
        let is_reserved = inner.reserved.values().any(|reserved| !reserved.is_empty());
        CommittedUsage { run, session, agent: spend_of(&self.agent), day: agents.map(spend_of).sum(), is_reserved }
    }

    fn try_reserve(&self, spec: &ModelSpec, prompt: u64, output: u64) -> Result<Reservation, BudgetRefusal> {
        let maximum = price(spec, prompt, output);
        // One lock for the check and the reservation, so that two requests cannot reserve the same remainder.
        let mut inner = self.ledger.lock();
        inner.roll_day(day_of(self.ambient.now_ms()));
        let CommittedUsage { run, session, agent, day, is_reserved } = self.committed(&inner);
        let of_agent = format!("of agent {} for today", self.agent);
        let checks = [
            (self.limits.run, run, "run", "of this run", false),
            (self.limits.session, session, "session", "of this session", false),
            (self.limits.agent, agent, "agent", of_agent.as_str(), is_reserved),
            (self.limits.day, day, "day", "for today", is_reserved),
        ];
        for (limit, used, key, scope, may_wait) in checks {
            if !limit.allows(used + maximum) {
                return Err(BudgetRefusal { why: refusal(limit, used, maximum, key, scope), may_wait });
            }
        }
        let number = inner.reserve(&self.agent, maximum);
        drop(inner);
        Ok(Reservation { budget: self.clone(), number, prompt: price(spec, prompt, 0), is_settled: false })
    }

    fn run_usage(&self) -> MutexGuard<'_, RunUsage> {
        self.run_usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Usage including reservations.
struct CommittedUsage {
    run: Spend,
    session: Spend,
    agent: Spend,
    day: Spend,
    /// True if there are reservations.
    is_reserved: bool,
}

struct BudgetRefusal {
    why: String,
    /// True if a released reservation could help.
    may_wait: bool,
}

fn refusal(limit: BudgetLimit, used: Spend, maximum: Spend, key: &str, scope: &str) -> String {
    let (unit, allowed, used, next) = match limit.cost {
        Some(cost) if used.cost + maximum.cost > cost => {
            ("cost", format!("{cost:.2} dollars"), format!("{:.2}", used.cost), format!("{:.4}", maximum.cost))
        }
        _ => {
            let allowed = format!("{} tokens", limit.tokens.unwrap_or(0));
            ("tokens", allowed, used.tokens.to_string(), maximum.tokens.to_string())
        }
    };
    let reset = if key == "run" || key == "session" { "" } else { "; it resets at 00:00 UTC" };
    format!(
        "the budget {scope} is {allowed}; {used} are used, and the next request may use {next}{reset}. To raise it, \
         set budgets.{key}.{unit}"
    )
}

impl BudgetLedger {
    fn lock(&self) -> MutexGuard<'_, LedgerInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerInner {
    /// Resets the usage on a new day.
    fn roll_day(&mut self, day: u32) {
        if self.day.is_some_and(|current| current < day) {
            self.day = Some(day);
            self.spent.clear();
        }
    }

    fn charge(&mut self, agent: AgentId, spend: Spend) {
        if spend != Spend::default() {
            let spent = self.spent.entry(agent).or_default();
            *spent = *spent + spend;
        }
    }

    fn reserve(&mut self, agent: &AgentId, spend: Spend) -> u64 {
        self.next += 1;
        self.reserved.entry(agent.clone()).or_default().push((self.next, spend));
        self.next
    }

    fn release(&mut self, agent: &AgentId, number: u64) {
        if let Some(reserved) = self.reserved.get_mut(agent) {
            reserved.retain(|(reserved_number, _)| *reserved_number != number);
        }
    }
}

impl Reservation {
    /// Replaces the reservation by the actual usage.
    pub fn settle(mut self, usage: &Usage) {
        self.end(Spend::from(usage));
    }

    /// Releases the reservation: the request was not sent.
    pub fn release(mut self) {
        self.end(Spend::default());
    }

    fn end(&mut self, spend: Spend) {
        self.is_settled = true;
        let mut inner = self.budget.ledger.lock();
        inner.release(&self.budget.agent, self.number);
        inner.charge(self.budget.agent.clone(), spend);
        drop(inner);
        let mut run_usage = self.budget.run_usage();
        run_usage.run = run_usage.run + spend;
        drop(run_usage);
        self.budget.ledger.changed.notify_waiters();
    }
}

/// A cancelled request is charged for its prompt, which the provider has processed.
impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_settled {
            self.end(self.prompt);
        }
    }
}

/// Returns the maximum cost of a request.
fn price(spec: &ModelSpec, prompt: u64, output: u64) -> Spend {
    let prices = spec.prices;
    #[expect(clippy::cast_precision_loss, reason = "no prompt has so many tokens")]
    let cost = (prompt as f64 * prices.input.max(prices.cache_write) + output as f64 * prices.output) / 1_000_000.0;
    Spend { cost, tokens: prompt.saturating_add(output) }
}
