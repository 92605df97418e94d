// Overview: what runs, what waits and why, what failed, and what it costs.
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { ApprovalCard, useApprovals } from "../lib/approval";
import { call, health, may, on } from "../lib/connection";
import { compact, cost, count, duration, sessionName, visible } from "../lib/format";
import { NotDelivered, type Outbox } from "../lib/outbox";
import { link } from "../lib/router";
import { Badge, Empty, Head, now, Problem, Status, Time, useLoad } from "../lib/ui";
import { adviceFor } from "../runs/advice";
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
  outbox?: Outbox;
}
/** A part of the gateway that does not work. */
interface Outage {
  part: string;
  id: string;
  why: string;
}
interface Data {
  runs: Run[];
  /** Names that were given to sessions, by key. */
  labels: Map<string, string>;
  held: { runId: string; sessionKey: string; message: string; heldAt: number; attempts: number }[];
  lanes: Lane[];
  today: { totalCost: number; totalTokens: number };
  budget: number | null;
  accounts: [string, Account][];
  /** Messages of channels that were not answered, newest first. */
  losses: { channel: string; ts: number; text: string }[];
  /** Devices and senders that wait for an approval. */
  requests: string[];
}

const MAX_LOSSES = 8;

/** Replies that were refused, and senders that wait for an approval, have rows of their own. */
const SHOWN_ELSEWHERE = /^not sent: | requested pairing;/;

async function load(): Promise<Data> {
  const [runs, sessions, held, lanes, usage, channels, config] = await Promise.all([
    call<{ runs: Run[] }>("runs.list", { limit: 200 }),
    call<{ sessions: { key: string; label?: string }[] }>("sessions.list", { limit: 200 }),
    call<{ runs: Data["held"] }>("runs.held"),
    call<{ lanes: Lane[] }>("diagnostics.lanes"),
    call<{ totals: Data["today"] }>("usage.cost", { days: 1 }),
    call<{ channelAccounts: Record<string, Account[]> }>("channels.status"),
    call<{ parsed?: { budgets?: { day?: { cost?: number } } } }>("config.get"),
  ]);
  const [losses, requests] = await Promise.all([readLosses(Object.keys(channels.channelAccounts)), readRequests()]);
  const accounts = Object.entries(channels.channelAccounts).flatMap(([channel, list]) => list.map((account) => [channel, account] as [string, Account]));
  const labels = new Map(sessions.sessions.flatMap(({ key, label }) => (label ? [[key, label]] : [])));
  return { runs: runs.runs, labels, held: held.runs, lanes: lanes.lanes, today: usage.totals, budget: config.parsed?.budgets?.day?.cost ?? null, accounts, losses, requests };
}

async function readLosses(channels: string[]): Promise<Data["losses"]> {
  const logs = await Promise.all(
    channels.map(async (channel) => {
      // A channel that is named in the configuration but has no usable account has no log.
      const { lines } = await call<{ lines: { ts: number; text: string; loss: boolean }[] }>("channels.logs", { channel }).catch(() => ({ lines: [] }));
      return lines.filter(({ loss, text }) => loss && !SHOWN_ELSEWHERE.test(text)).map(({ ts, text }) => ({ channel, ts, text }));
    }),
  );
  return logs
    .flat()
    .sort((left, right) => right.ts - left.ts)
    .slice(0, MAX_LOSSES);
}

async function readRequests(): Promise<string[]> {
  if (!may("pairing")) return [];
  const [devices, senders] = await Promise.all([
    call<{ pending: { displayName?: string; clientId?: string }[] }>("device.pair.list"),
    call<{ requests: { senderLabel: string; channelLabel: string }[] }>("channels.pairing.list"),
  ]);
  return [...devices.pending.map(({ displayName, clientId }) => `The device ${displayName ?? clientId ?? ""} wants to connect`), ...senders.requests.map(({ senderLabel, channelLabel }) => `${senderLabel} wants to write to the agent on ${channelLabel}`)];
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
    const stops = [on<{ stream: string }>("agent", ({ stream }) => stream === "lifecycle" && later()), ...["device.pair.requested", "device.pair.resolved"].map((event) => on(event, later))];
    return () => {
      clearTimeout(timer);
      stops.forEach((stop) => stop());
    };
  }, []);
  if (error && !data) return <section class="view"><Head title="Overview" /><Problem error={error} retry={reload} /></section>;
  if (!data) return <div class="loading" aria-label="Loading" />;
  const active = data.runs.filter(({ status }) => status === "running");
  const waiting = data.runs.filter(({ status }) => status === "accepted");
  const failed = data.runs.filter(({ status, acceptedAt }) => status === "error" && acceptedAt > now.value - 86_400_000);
  const broken = data.accounts.filter(([, account]) => account.lastError || (account.outbox && account.outbox.waiting + account.outbox.unknown.length + account.outbox.failed.length > 0));
  const full = data.lanes.filter(({ queuedCount }) => queuedCount > 0);
  const degraded = (health.value?.degraded ?? []) as Outage[];
  const isBusy = (key: string) => active.some(({ sessionKey }) => sessionKey === key);
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
          <dd>{approvals.length + data.requests.length}</dd>
        </div>
        <div>
          <dt>Cost today</dt>
          <dd>
            {cost(data.today.totalCost)} {data.budget ? <small>of {cost(data.budget)}</small> : <small>{compact(data.today.totalTokens)} tokens</small>}
          </dd>
        </div>
      </dl>
      {health.value?.notice ? <Problem error={health.value.notice} /> : null}
      {degraded.map(({ part, id, why }) => (
        <Problem key={`${part} ${id}`} error={`${part} ${id}: ${why}`} />
      ))}
      {approvals.map((approval) => (
        <ApprovalCard key={approval.id} approval={approval} showSession />
      ))}
      {data.requests.length ? (
        <section class="card">
          <h2>Waiting for your approval</h2>
          <ul class="rows">
            {data.requests.map((text, at) => (
              <li key={at}>
                <span class="grow">{visible(text)}</span>
                <a href={link("approvals")}>Approve or reject</a>
              </li>
            ))}
          </ul>
        </section>
      ) : null}
      <div class="columns">
        <Rows title="Failed" runs={failed.slice(0, 12)} labels={data.labels} none="Nothing failed in the last 24 hours." note={(run) => <Time at={run.acceptedAt} relative />} />
        <div class="column">
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
              <h2>Channels</h2>
              <ul class="rows">
                {broken.map(([channel, account]) => (
                  <li key={`${channel}/${account.accountId}`}>
                    <span class="grow">
                      <a href={link("channels")}>
                        {channel} {account.accountId}
                      </a>
                      {account.lastError ? <Failure error={account.lastError} /> : null}
                      {account.outbox ? <NotDelivered outbox={account.outbox} /> : null}
                    </span>
                    {account.outbox?.waiting ? <Badge tone="warn">{account.outbox.waiting} waiting</Badge> : null}
                  </li>
                ))}
              </ul>
            </section>
          ) : null}
          {data.losses.length ? (
            <section class="card">
              <h2>Not answered</h2>
              <ul class="rows">
                {data.losses.map(({ channel, ts, text }) => (
                  <li key={`${ts} ${text}`}>
                    <span class="grow">
                      <a href={link("channels")}>{channel}</a> <span class="small">{visible(text)}</span>
                    </span>
                    <Time at={ts} relative />
                  </li>
                ))}
              </ul>
            </section>
          ) : null}
          <Rows title="Waiting" runs={waiting} labels={data.labels} none="Nothing waits." note={(run) => `for ${duration(Math.max(0, now.value - run.acceptedAt))}`} why={(run) => (isBusy(run.sessionKey) ? "until the active run of this session ends" : null)}>
            {full.map(({ lane, activeCount, maxConcurrent, queuedCount, blockedBy }) => (
              <li key={lane}>
                <span class="grow">
                  {count(queuedCount)} in the lane {lane}: {activeCount} of {maxConcurrent} slots are in use
                </span>
                {blockedBy ? <Badge tone="warn">{blockedBy}</Badge> : null}
              </li>
            ))}
          </Rows>
          <Rows title="Running" runs={active} labels={data.labels} none="Nothing is running." note={(run) => duration(Math.max(0, now.value - run.acceptedAt))} />
        </div>
      </div>
      {data.runs.length === 0 ? (
        <Empty title="No message yet">{may("write") ? <a href={link("chat")}>Write the first one</a> : "This device may read only."}</Empty>
      ) : null}
    </section>
  );
}

interface RunRows {
  title: string;
  runs: Run[];
  labels: Map<string, string>;
  none: string;
  note: (run: Run) => ComponentChildren;
  why?: (run: Run) => string | null;
  children?: ComponentChildren;
}

function Rows({ title, runs, labels, none, note, why, children }: RunRows) {
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      {runs.length === 0 ? <p class="muted">{none}</p> : null}
      <ul class="rows">
        {children}
        {runs.map((run) => (
          <li key={run.runId}>
            <span class="grow">
              <a href={link("runs", run.runId)}>{visible(labels.get(run.sessionKey) ?? sessionName(run.sessionKey))}</a>
              {why?.(run) ? <div class="small">{why(run)}</div> : null}
              {run.error ? <Failure error={run.error} /> : null}
            </span>
            <span class="muted small num">{note(run)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** An error, and what can be done about it. */
function Failure({ error }: { error: string }) {
  const { what, next } = adviceFor(error);
  return (
    <>
      <div class="run-error">{visible(what).slice(0, 240)}</div>
      {next ? <div class="small">{next.href ? <a href={next.href}>{visible(next.text)}</a> : visible(next.text)}</div> : null}
    </>
  );
}
