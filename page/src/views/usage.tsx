// Usage: tokens and cost by day, model, agent and session, against the budgets.
import { call } from "../lib/connection";
import { compact, cost, count, sessionName, visible } from "../lib/format";
import { link, route, setParams } from "../lib/router";
import { Empty, Head, Problem, useLoad } from "../lib/ui";

interface Totals {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  totalTokens: number;
  totalCost: number;
}
interface Usage {
  totals: Totals;
  sessions: { key: string; usage: Totals & { runs: number } }[];
  aggregates: { byModel: { provider: string; model: string; count: number; totals: Totals }[]; byAgent: { agentId: string; count: number; totals: Totals }[]; daily: { date: string; tokens: number; cost: number; messages: number }[] };
}
type Limits = Record<string, { cost?: number | null; tokens?: number | null } | undefined>;

export default function UsageView() {
  const days = Number(route.value.params.get("days") ?? 30);
  const { data, error, reload } = useLoad(async () => {
    const [usage, config] = await Promise.all([call<Usage>("sessions.usage", { days }), call<{ parsed?: { budgets?: Limits } }>("config.get")]);
    return { usage, budgets: config.parsed?.budgets ?? {} };
  }, [days]);
  const usage = data?.usage;
  const today = new Date().toISOString().slice(0, 10);
  const spent = usage?.aggregates.daily.find(({ date }) => date === today);
  const day = data?.budgets["day"];
  return (
    <section class="view" aria-label="Usage">
      <Head title="Usage">
        <label class="pick">
          <span class="visually-hidden">Period</span>
          <select value={String(days)} onChange={(event) => setParams({ days: event.currentTarget.value })}>
            {[1, 7, 30, 90].map((days) => (
              <option key={days} value={days}>
                {days === 1 ? "today" : `last ${days} days`}
              </option>
            ))}
          </select>
        </label>
        <a class="button" href={link("settings", "", { search: "budgets" })}>
          Budgets
        </a>
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {usage ? (
        <>
          <dl class="tiles">
            <Tile name="Cost" value={cost(usage.totals.totalCost)} />
            <Tile name="Input" value={compact(usage.totals.input + usage.totals.cacheRead + usage.totals.cacheWrite)} />
            <Tile name="Of it cached" value={`${Math.round((usage.totals.cacheRead / Math.max(1, usage.totals.input + usage.totals.cacheRead + usage.totals.cacheWrite)) * 100)} %`} />
            <Tile name="Output" value={compact(usage.totals.output)} />
            <Tile name="Runs" value={count(usage.aggregates.daily.reduce((sum, { messages }) => sum + messages, 0))} />
          </dl>
          {day?.cost ? <Budget name="Cost today" spent={spent?.cost ?? 0} limit={day.cost} format={cost} /> : null}
          {day?.tokens ? <Budget name="Tokens today" spent={spent?.tokens ?? 0} limit={day.tokens} format={count} /> : null}
          {usage.totals.totalTokens === 0 ? <Empty title="Nothing was used in this period" /> : <Days days={usage.aggregates.daily} limit={day?.cost ?? null} />}
          <div class="grid">
            <Table title="Models" rows={usage.aggregates.byModel.map(({ provider, model, totals, count }) => ({ name: `${provider}/${model}`, totals, count }))} />
            <Table title="Agents" rows={usage.aggregates.byAgent.map(({ agentId, totals, count }) => ({ name: agentId, totals, count }))} />
          </div>
          <Table title="Sessions" rows={usage.sessions.map(({ key, usage }) => ({ name: sessionName(key), totals: usage, count: usage.runs, href: link("chat", key) }))} />
        </>
      ) : null}
    </section>
  );
}

function Tile({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function Budget({ name, spent, limit, format }: { name: string; spent: number; limit: number; format: (value: number) => string }) {
  const share = Math.min(100, (spent / limit) * 100);
  return (
    <div class="budget">
      <p>
        {name}: <strong>{format(spent)}</strong> of {format(limit)}
      </p>
      <div class="track" role="img" aria-label={`${Math.round(share)} % of the budget`}>
        <span class={share >= 100 ? "over" : undefined} style={{ width: `${share}%` }} />
      </div>
    </div>
  );
}

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [900, 190, 52, 22];

function Days({ days, limit }: { days: Usage["aggregates"]["daily"]; limit: number | null }) {
  const hasCost = days.some(({ cost }) => cost > 0);
  const value = (day: (typeof days)[number]) => (hasCost ? day.cost : day.tokens);
  const format = hasCost ? cost : compact;
  const largest = Math.max(...days.map(value), hasCost && limit ? limit : 0, Number.MIN_VALUE);
  const step = (WIDTH - LEFT) / Math.max(days.length, 7);
  const y = (amount: number) => 8 + (HEIGHT - BOTTOM - 8) * (1 - amount / largest);
  return (
    <figure>
      <svg class="chart" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${hasCost ? "Cost" : "Tokens"} by day: ${days.map((day) => `${day.date} ${format(value(day))}`).join(", ")}`}>
        {[0, 0.5, 1].map((part) => (
          <g key={part}>
            <line x1={LEFT} x2={WIDTH} y1={y(largest * part)} y2={y(largest * part)} />
            <text x={LEFT - 6} y={y(largest * part) + 4} text-anchor="end">
              {format(largest * part)}
            </text>
          </g>
        ))}
        {days.map((day, at) => (
          <g key={day.date}>
            <rect class="bar" x={LEFT + at * step + 1} width={Math.max(1, Math.min(48, step - 2))} y={y(value(day))} height={Math.max(0, HEIGHT - BOTTOM - y(value(day)))} rx="2">
              <title>{`${day.date}: ${format(value(day))}, ${day.messages} runs`}</title>
            </rect>
            {days.length <= 10 || at % Math.ceil(days.length / 10) === 0 ? (
              <text x={LEFT + at * step + 1} y={HEIGHT - 6}>
                {day.date.slice(5)}
              </text>
            ) : null}
          </g>
        ))}
      </svg>
    </figure>
  );
}

function Table({ title, rows }: { title: string; rows: { name: string; totals: Totals; count: number; href?: string }[] }) {
  if (rows.length === 0) return null;
  const sorted = [...rows].sort((left, right) => right.totals.totalCost - left.totals.totalCost || right.totals.totalTokens - left.totals.totalTokens).slice(0, 50);
  return (
    <section>
      <h2>{title}</h2>
      <table class="table">
        <thead>
          <tr>
            <th scope="col">{title.slice(0, -1)}</th>
            <th scope="col" class="num">
              Runs
            </th>
            <th scope="col" class="num">
              Tokens
            </th>
            <th scope="col" class="num">
              Cost
            </th>
          </tr>
        </thead>
        <tbody>
          {sorted.map(({ name, totals, count: runs, href }) => (
            <tr key={name}>
              <th scope="row">{href ? <a href={href}>{visible(name)}</a> : visible(name)}</th>
              <td class="num">{count(runs)}</td>
              <td class="num">{compact(totals.totalTokens)}</td>
              <td class="num">{cost(totals.totalCost)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
