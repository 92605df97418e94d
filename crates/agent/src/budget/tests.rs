//! Tests of budgets: no limit is exceeded, by one run or by many.

use homard_model::Prices;
use homard_store::MemoryStore;
use proptest::prelude::*;

use super::*;

fn spec(max_output: u64) -> ModelSpec {
    let prices = Prices { input: 1.0, output: 10.0, cache_read: 0.1, cache_write: 2.0 };
    ModelSpec { max_output, prices, ..ModelSpec::default() }
}

fn used(input: u64, output: u64) -> Usage {
    let mut usage = Usage { input, output, ..Usage::default() };
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let cost = (input as f64 * 2.0 + output as f64 * 10.0) / 1_000_000.0;
    usage.cost.total = cost;
    usage
}

fn payer(purse: &Arc<BudgetLedger>, limits: BudgetLimits, agent: &str) -> RunBudget {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let session = SessionId::parse("s").unwrap();
    RunBudget::new(
        (purse, &Ambient::fixed(1_000), &store),
        limits,
        (AgentId::normalize(agent), session),
        Spend::default(),
    )
}

fn tokens(most: u64) -> BudgetLimit {
    BudgetLimit { tokens: Some(most), cost: None }
}

#[tokio::test]
async fn a_thousand_runs_together_take_what_is_allowed_and_no_more() {
    let purse = Arc::new(BudgetLedger::default());
    let limits = BudgetLimits { day: tokens(100 * 1_000), ..BudgetLimits::default() };
    let runs = (0..1_000).map(|number| {
        let payer = payer(&purse, limits, ["a", "b", "c"][number % 3]);
        async move {
            let mut request = Request::default();
            let Ok(hold) = payer.reserve(&spec(4_000), 600, &mut request).await else { return 0 };
            tokio::task::yield_now().await;
            // A model that uses its output limit, up to 400 tokens.
            let said = request.max_output.unwrap_or(4_000).min(400);
            hold.settle(&used(600, said));
            600 + said
        }
    });
    let spent = futures_util::future::join_all(runs).await;
    let sum: u64 = spent.iter().sum();
    let answered = spent.iter().filter(|took| **took > 0).count();
    assert!(sum <= 100_000, "{sum}");
    assert_eq!(answered, 100);
}

#[tokio::test]
async fn whoever_finds_no_room_waits_for_what_is_given_back() {
    let purse = Arc::new(BudgetLedger::default());
    let limits = BudgetLimits { day: tokens(1_500), ..BudgetLimits::default() };
    let (first, second) = (payer(&purse, limits, "a"), payer(&purse, limits, "b"));
    let hold = first.reserve(&spec(900), 100, &mut Request::default()).await.unwrap();
    let mut request = Request::default();
    let (model, asked) = (spec(900), &mut request);
    let waits = second.reserve(&model, 100, asked);
    tokio::pin!(waits);
    assert!(futures_util::poll!(&mut waits).is_pending());
    hold.settle(&used(100, 10));
    assert!(waits.await.is_ok());
}

#[tokio::test]
async fn what_is_left_makes_a_shorter_answer_or_a_refusal_that_says_what_helps() {
    let purse = Arc::new(BudgetLedger::default());
    let day = payer(&purse, BudgetLimits { day: tokens(1_000), ..BudgetLimits::default() }, "a");
    let mut request = Request::default();
    day.reserve(&spec(4_000), 600, &mut request).await.unwrap().settle(&used(600, 300));
    assert_eq!(request.max_output, Some(400));
    let why = day.reserve(&spec(4_000), 90, &mut Request::default()).await.unwrap_err();
    let told = "the budget for today is 1000 tokens; 900 are used, and the next request may use 4090; it resets at \
                00:00 UTC. To raise it, set budgets.day.tokens";
    assert_eq!(why, told);
    let run = BudgetLimits { run: BudgetLimit { cost: Some(0.01), tokens: None }, ..BudgetLimits::default() };
    let why = payer(&purse, run, "b").reserve(&spec(4_000), 5_000, &mut Request::default()).await.unwrap_err();
    let told = "the budget of this run is 0.01 dollars; 0.00 are used, and the next request may use 0.0500. To raise \
                it, set budgets.run.cost";
    assert_eq!(why, told);
}

#[tokio::test]
async fn a_question_that_is_broken_off_is_paid_for_and_one_that_nobody_heard_is_not() {
    let purse = Arc::new(BudgetLedger::default());
    let limits = BudgetLimits { agent: tokens(1_000), ..BudgetLimits::default() };
    let payer = payer(&purse, limits, "a");
    payer.reserve(&spec(400), 500, &mut Request::default()).await.unwrap().release();
    drop(payer.reserve(&spec(400), 500, &mut Request::default()).await.unwrap());
    let mut request = Request::default();
    payer.reserve(&spec(400), 100, &mut request).await.unwrap();
    assert_eq!(request.max_output, None);
    assert!(payer.reserve(&spec(400), 300, &mut request).await.is_err());
}

proptest! {
    #[test]
    fn no_order_of_questions_and_answers_takes_more_than_there_is(
        limit in 1_000_u64..20_000, questions in proptest::collection::vec((1_u64..900, 1_u64..900, 0_u64..900), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let taken = runtime.block_on(async {
            let purse = Arc::new(BudgetLedger::default());
            let payer = payer(&purse, BudgetLimits { day: tokens(limit), ..BudgetLimits::default() }, "a");
            let mut taken = 0;
            for (prompt, most, said) in questions {
                let mut request = Request::default();
                if let Ok(hold) = payer.reserve(&spec(most), prompt, &mut request).await {
                    let said = said.min(request.max_output.unwrap_or(most));
                    hold.settle(&used(prompt, said));
                    taken += prompt + said;
                }
            }
            taken
        });
        prop_assert!(taken <= limit, "{taken} of {limit}");
    }
}
