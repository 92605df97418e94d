// Overview: what runs, what waits and why, what failed, and what it costs.
import { useEffect } from "preact/hooks";
import { ApprovalCard, useApprovals } from "../lib/approval";
import { call, health, may, on } from "../lib/connection";
import { compact, cost, count, duration, sessionName, visible } from "../lib/format";
import { link } from "../lib/router";
import { Badge, Empty, Head, now, Problem, Status, Time, useLoad } from "../lib/ui";
import type { Run } from "../runs/trace";

interface Lane {
  lane: string;
  maxConcurrent: number;
  activeCount: number;
  queuedCount: number;
  blockedBy: string | null;
}
interface Account {
  accountId: string;
  connected?: boolean;
  running?: boolean;
  lastError?: string | null;
  undelivered?: { waiting: number; unknown: { id: string; to: string; queuedAt: number }[] };
}
interface Data {
  runs: Run[];
  held: { runId: string; sessionKey: string; message: string; heldAt: number; attempts: number }[];
  lanes: Lane[];
  today: { totalCost: number; totalTokens: number };
  budget: number | null;
  accounts: [string, Account][];
}

async function load(): Promise<Data> {
  const [runs, held, lanes, usage, channels, config] = await Promise.all([
    call<{ runs: Run[] }>("runs.list", { limit: 200 }),
    call<{ runs: Data["held"] }>("runs.held"),
    call<{ lanes: Lane[] }>("diagnostics.lanes"),
    call<{ totals: Data["today"] }>("usage.cost", { days: 1 }),
    call<{ channelAccounts: Record<string, Account[]> }>("channels.status"),
    call<{ parsed?: { budgets?: { day?: { cost?: number } } } }>("config.get"),
  ]);
  const accounts = Object.entries(channels.channelAccounts).flatMap(([channel, list]) => list.map((account) => [channel, account] as [string, Account]));
  return { runs: runs.runs, held: held.runs, lanes: lanes.lanes, today: usage.totals, budget: config.parsed?.budgets?.day?.cost ?? null, accounts };
}

export default function Overview() {
  const { data, error, reload } = useLoad(load);
  const approvals = useApprovals();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const later = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        reload();
      }, 700);
    };
    const stop = on<{ stream: string }>("agent", ({ stream }) => stream === "lifecycle" && later());
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, []);
  if (error && !data) return <section class="view"><Head title="Overview" /><Problem error={error} retry={reload} /></section>;
  if (!data) return <div class="loading" aria-label="Loading" />;
  const active = data.runs.filter(({ status }) => status === "running");
  const waiting = data.runs.filter(({ status }) => status === "accepted");
  const failed = data.runs.filter(({ status, acceptedAt }) => status === "error" && acceptedAt > now.value - 86_400_000);
  const broken = data.accounts.filter(([, account]) => account.lastError || (account.undelivered && (account.undelivered.waiting > 0 || account.undelivered.unknown.length > 0)));
  const full = data.lanes.filter(({ queuedCount }) => queuedCount > 0);
  const degraded = (health.value?.degraded ?? []) as { part?: string; reason?: string; message?: string }[];
  return (
    <section class="view" aria-label="Overview">
      <Head title="Overview" />
      <dl class="tiles">
        <div>
          <dt>Running</dt>
          <dd>{active.length}</dd>
        </div>
        <div>
          <dt>Waiting</dt>
          <dd>{waiting.length}</dd>
        </div>
        <div>
          <dt>Failed, last 24 hours</dt>
          <dd>{failed.length}</dd>
        </div>
        <div>
          <dt>Approvals</dt>
          <dd>{approvals.length}</dd>
        </div>
        <div>
          <dt>Cost today</dt>
          <dd>
            {cost(data.today.totalCost)} {data.budget ? <small>of {cost(data.budget)}</small> : <small>{compact(data.today.totalTokens)} tokens</small>}
          </dd>
        </div>
      </dl>
      {health.value?.notice ? <Problem error={health.value.notice} /> : null}
      {degraded.map((part, at) => (
        <Problem key={at} error={[part.part, part.reason ?? part.message].filter(Boolean).join(": ") || JSON.stringify(part)} />
      ))}
      {approvals.map((approval) => (
        <ApprovalCard key={approval.id} approval={approval} showSession />
      ))}
      <div class="grid">
        <Rows title="Running" runs={active} none="Nothing is running." note={(run) => duration(Math.max(0, now.value - run.acceptedAt))} />
        <Rows title="Waiting" runs={waiting} none="Nothing waits." note={(run) => `for ${duration(Math.max(0, now.value - run.acceptedAt))}`}>
          {full.map(({ lane, activeCount, maxConcurrent, queuedCount, blockedBy }) => (
            <li key={lane}>
              <span class="grow">
                {count(queuedCount)} in the lane {lane}: {activeCount} of {maxConcurrent} slots are in use
              </span>
              {blockedBy ? <Badge tone="warn">{blockedBy}</Badge> : null}
            </li>
          ))}
        </Rows>
        <Rows title="Failed" runs={failed.slice(0, 12)} none="Nothing failed in the last 24 hours." note={(run) => <Time at={run.acceptedAt} relative />} />
        {data.held.length ? (
          <section class="card">
            <h2>Held after crashes</h2>
            <ul class="rows">
              {data.held.map((run) => (
                <li key={run.runId}>
                  <Status status="held" />
                  <a class="grow" href={link("runs", run.runId)}>
                    {visible(run.message).slice(0, 120)}
                  </a>
                </li>
              ))}
            </ul>
          </section>
        ) : null}
        {broken.length ? (
          <section class="card">
            <h2>Undelivered</h2>
            <ul class="rows">
              {broken.map(([channel, account]) => (
                <li key={`${channel}/${account.accountId}`}>
                  <span class="grow">
                    <a href={link("channels")}>
                      {channel} {account.accountId}
                    </a>
                    {account.lastError ? <div class="run-error">{visible(account.lastError)}</div> : null}
                  </span>
                  {account.undelivered?.waiting ? <Badge tone="warn">{account.undelivered.waiting} waiting</Badge> : null}
                  {account.undelivered?.unknown.length ? <Badge tone="bad">{account.undelivered.unknown.length} unknown</Badge> : null}
                </li>
              ))}
            </ul>
          </section>
        ) : null}
      </div>
      {data.runs.length === 0 ? (
        <Empty title="No message yet">{may("write") ? <a href={link("chat")}>Write the first one</a> : "This device may read only."}</Empty>
      ) : null}
    </section>
  );
}

function Rows({ title, runs, none, note, children }: { title: string; runs: Run[]; none: string; note: (run: Run) => preact.ComponentChildren; children?: preact.ComponentChildren }) {
  return (
    <section class="card">
      <h2>{title}</h2>
      {runs.length === 0 ? <p class="muted">{none}</p> : null}
      <ul class="rows">
        {children}
        {runs.map((run) => (
          <li key={run.runId}>
            <span class="grow">
              <a href={link("runs", run.runId)}>{visible(sessionName(run.sessionKey))}</a>
              {run.error ? <div class="run-error">{visible(run.error).slice(0, 200)}</div> : null}
            </span>
            <span class="muted small num">{note(run)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
