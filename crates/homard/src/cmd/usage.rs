//! `homard usage`: shows token usage, cost and budgets.

use anyhow::Result;
use homard_agent::wire::run_trace;
use homard_runtime::Ambient;
use homard_settings::budgets::Limit;
use homard_store::{
    StoreReader,
    usage::{UsageQuery, day_of},
};
use serde_json::{Value, json};

use super::query::CommandContext;
use crate::render::{self, Table, timeline::money};

/// Arguments of `homard usage`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard usage                  usage of the last 30 days, by day
  homard usage --days 7 --json  usage of the last 7 days, as JSON

To set a limit: homard config set budgets.day.cost 5")]
pub(super) struct Args {
    /// Number of days
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=400))]
    days: u32,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Shows the usage: from the gateway, or from the state directory if none answers.
pub(super) async fn run(args: &Args) -> Result<()> {
    let setup = CommandContext::load()?;
    let mut usage = match setup.query_with("usage.cost", json!({"days": args.days})).await? {
        Some(usage) => usage,
        None => {
            let now = Ambient::system().now_ms();
            let period = UsageQuery::Days((day_of(now) + 1).saturating_sub(args.days), day_of(now));
            let spent =
                setup.read_state(async move |journal| Ok(journal.usage(&period).await?)).await?.unwrap_or_default();
            run_trace::daily_costs(&spent, args.days, now)
        }
    };
    let budgets = &setup.loaded.config.budgets;
    let limits =
        [("run", &budgets.run), ("session", &budgets.session), ("agent", &budgets.agent), ("day", &budgets.day)];
    usage["budgets"] = limits
        .iter()
        .map(|(name, limit)| ((*name).to_owned(), json!({"cost": limit.cost, "tokens": limit.tokens})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    if args.json {
        return Ok(render::print_json(&usage)?);
    }
    Ok(render::print(&format_usage(&usage, &limits))?)
}

fn format_usage(usage: &Value, limits: &[(&str, &Limit)]) -> String {
    let days = usage["daily"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |name: &str, sum: &Value| {
        let count = |name: &str| sum[name].as_u64().unwrap_or_default().to_string();
        let cost = money(sum["totalCost"].as_f64().unwrap_or_default());
        vec![name.to_owned(), count("input"), count("cacheRead"), count("cacheWrite"), count("output"), cost]
    };
    let mut rows =
        vec![["DAY (UTC)", "INPUT", "CACHE READ", "CACHE WRITE", "OUTPUT", "COST"].map(str::to_owned).to_vec()];
    rows.extend(days.iter().map(|day| row(day["date"].as_str().unwrap_or_default(), day)));
    rows.push(row("total", &usage["totals"]));
    let mut text = Table::list(rows).fit(render::width());
    for (name, limit) in limits {
        let cost = limit.cost.map(|cost| format!("${cost}"));
        let tokens = limit.tokens.map(|tokens| render::count(usize::try_from(tokens).unwrap_or(usize::MAX), "token"));
        let allowed: Vec<_> = cost.into_iter().chain(tokens).collect();
        if !allowed.is_empty() {
            text.push_str(&format!("\nbudgets.{name}: {}", allowed.join(", ")));
        }
    }
    if limits.iter().all(|(_, limit)| limit.cost.is_none() && limit.tokens.is_none()) {
        text.push_str("\nno budget is set; set one with: homard config set budgets.day.cost 5");
    }
    text
}
