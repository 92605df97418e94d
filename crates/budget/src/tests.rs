//! Tests of budgets: no limit is exceeded, by one run or by many.

use homard_model::Prices;
use homard_store::MemoryStore;
use proptest::prelude::*;

use super::*;

fn spec(max_output: u64) -> ModelSpec {
    let prices = Prices { input: 1.0, output: 10.0, cache_read: 0.1, cache_write: 2.0 };
    ModelSpec { max_output, prices, ..ModelSpec::default() }
}

fn usage_for(input: u64, output: u64) -> Usage {
    let mut usage = Usage { input, output, ..Usage::default() };
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let cost = (input as f64 * 2.0 + output as f64 * 10.0) / 1_000_000.0;
    usage.cost.total = cost;
    usage
}

fn run_budget(ledger: &Arc<BudgetLedger>, limits: BudgetLimits, agent: &str) -> RunBudget {
    let store: Arc<dyn StoreReader> = Arc::new(MemoryStore::default());
    let session = SessionId::parse("s").unwrap();
    let run = BudgetedRun { agent: AgentId::normalize(agent), session, earlier: Spend::default() };
    RunBudget::new(ledger, &Ambient::fixed(1_000), &store, limits, run)
}

fn tokens(max: u64) -> BudgetLimit {
    BudgetLimit { tokens: Some(max), cost: None }
}

#[tokio::test]
async fn a_thousand_concurrent_runs_stay_within_the_daily_budget() {
    let ledger = Arc::new(BudgetLedger::default());
    let limits = BudgetLimits { day: tokens(100 * 1_000), ..BudgetLimits::default() };
    let runs = (0..1_000).map(|number| {
        let run_budget = run_budget(&ledger, limits, ["a", "b", "c"][number % 3]);
        async move {
            let mut request = Request::default();
            let Ok(reservation) = run_budget.reserve(&spec(4_000), 600, &mut request).await else { return 0 };
            tokio::task::yield_now().await;
            // A model that uses its output limit, up to 400 tokens.
            let output = request.max_output.unwrap_or(4_000).min(400);
            reservation.settle(&usage_for(600, output));
            600 + output
        }
    });
    let spent = futures_util::future::join_all(runs).await;
    let sum: u64 = spent.iter().sum();
    let answered = spent.iter().filter(|used_tokens| **used_tokens > 0).count();
    assert!(sum <= 100_000, "{sum}");
    assert_eq!(answered, 100);
}

#[tokio::test]
async fn a_reservation_waits_for_released_budget() {
    let ledger = Arc::new(BudgetLedger::default());
    let limits = BudgetLimits { day: tokens(1_500), ..BudgetLimits::default() };
    let (first, second) = (run_budget(&ledger, limits, "a"), run_budget(&ledger, limits, "b"));
    let reservation = first.reserve(&spec(900), 100, &mut Request::default()).await.unwrap();
    let mut request = Request::default();
    let (model, second_request) = (spec(900), &mut request);
    let waiting = second.reserve(&model, 100, second_request);
    tokio::pin!(waiting);
    assert!(futures_util::poll!(&mut waiting).is_pending());
    reservation.settle(&usage_for(100, 10));
    assert!(waiting.await.is_ok());
}

#[tokio::test]
async fn a_low_budget_limits_the_output_or_rejects_with_advice() {
    let ledger = Arc::new(BudgetLedger::default());
    let day = run_budget(&ledger, BudgetLimits { day: tokens(1_000), ..BudgetLimits::default() }, "a");
    let mut request = Request::default();
    day.reserve(&spec(4_000), 600, &mut request).await.unwrap().settle(&usage_for(600, 300));
    assert_eq!(request.max_output, Some(400));
    let error = day.reserve(&spec(4_000), 90, &mut Request::default()).await.unwrap_err();
    let expected = "the budget for today is 1000 tokens; 900 are used, and the next request may use 4090; it resets at \
                00:00 UTC. To raise it, set budgets.day.tokens";
    assert_eq!(error, expected);
    let run = BudgetLimits { run: BudgetLimit { cost: Some(0.01), tokens: None }, ..BudgetLimits::default() };
    let error = run_budget(&ledger, run, "b").reserve(&spec(4_000), 5_000, &mut Request::default()).await.unwrap_err();
    let expected = "the budget of this run is 0.01 dollars; 0.00 are used, and the next request may use 0.0500. To raise \
                it, set budgets.run.cost";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_dropped_reservation_is_charged_and_a_released_one_is_not() {
    let ledger = Arc::new(BudgetLedger::default());
    let limits = BudgetLimits { agent: tokens(1_000), ..BudgetLimits::default() };
    let run_budget = run_budget(&ledger, limits, "a");
    run_budget.reserve(&spec(400), 500, &mut Request::default()).await.unwrap().release();
    drop(run_budget.reserve(&spec(400), 500, &mut Request::default()).await.unwrap());
    let mut request = Request::default();
    run_budget.reserve(&spec(400), 100, &mut request).await.unwrap();
    assert_eq!(request.max_output, None);
    assert!(run_budget.reserve(&spec(400), 300, &mut request).await.is_err());
}

proptest! {
    #[test]
    fn no_order_of_requests_exceeds_the_budget(
        limit in 1_000_u64..20_000, requests in proptest::collection::vec((1_u64..900, 1_u64..900, 0_u64..900), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let total = runtime.block_on(async {
            let ledger = Arc::new(BudgetLedger::default());
            let run_budget = run_budget(&ledger, BudgetLimits { day: tokens(limit), ..BudgetLimits::default() }, "a");
            let mut total = 0;
            for (prompt, max, output) in requests {
                let mut request = Request::default();
                if let Ok(reservation) = run_budget.reserve(&spec(max), prompt, &mut request).await {
                    let output = output.min(request.max_output.unwrap_or(max));
                    reservation.settle(&usage_for(prompt, output));
                    total += prompt + output;
                }
            }
            total
        });
        prop_assert!(total <= limit, "{total} of {limit}");
    }
}
