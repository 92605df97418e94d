// The list of runs. Its filters are in the address; new runs do not move what is being read.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, on, onOpen, RequestError } from "../lib/connection";
import { agentOf, channelOf, compact, cost, duration, sessionName, visible, when } from "../lib/format";
import { go, link, route, setParams } from "../lib/router";
import { Empty, Head, messageOf, now, Problem, Search, Status, useRowKeys } from "../lib/ui";
import { VirtualRows } from "../lib/virtual";
import type { Run } from "./trace";

const PAGE = 200;
const ROW_HEIGHT = 34;
const STATUSES = ["ok", "error", "aborted", "running", "accepted", "absorbed", "held"];

export function RunList() {
  const { params } = route.value;
  const filters = { search: params.get("search") ?? "", status: params.get("status") ?? "", agent: params.get("agent") ?? "", session: params.get("session") ?? "", model: params.get("model") ?? "", channel: params.get("channel") ?? "" };
  const inputs = JSON.stringify(filters);
  const [runs, setRuns] = useState<Run[] | null>(null);
  const [fresh, setFresh] = useState<Run[]>([]);
  const [hasMore, setMore] = useState(true);
  const [error, setError] = useState<unknown>(null);
  const isLoading = useRef(false);
  const isAtTop = useRef(true);
  const turn = useRef(0);
  const cursor = useRef<string | undefined>(undefined);
  const query = (before?: string) => call<{ runs: Run[]; next?: string }>("runs.list", listParams(filters, before));
  const load = async (before?: string) => {
    if (isLoading.current && before) return;
    isLoading.current = true;
    const mine = ++turn.current;
    try {
      const found: Run[] = [];
      let next = before;
      // With conditions, the gateway examines a part of the runs at a time, and says where to continue.
      do {
        const page = await query(next);
        if (mine !== turn.current) return;
        found.push(...page.runs);
        next = page.next ?? (page.runs.length === PAGE ? page.runs.at(-1)?.runId : undefined);
      } while (next && found.length < PAGE);
      cursor.current = next;
      setRuns((old) => (before && old ? [...old, ...found] : found));
      setMore(next !== undefined);
      setError(null);
      if (!before) setFresh([]);
    } catch (failed) {
      if (!(failed instanceof RequestError && failed.isLost)) setError(failed);
    } finally {
      isLoading.current = false;
    }
  };
  useEffect(() => onOpen(() => void load()), [inputs]);
  // Changes of runs: rows are updated in place; new rows wait until the reader asks for them.
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const refresh = () => {
      timer ??= setTimeout(async () => {
        timer = undefined;
        try {
          const page = await query();
          setRuns((old) => {
            if (!old) return page.runs;
            const known = new Set(old.map(({ runId }) => runId));
            const byId = new Map(page.runs.map((run) => [run.runId, run]));
            const updated = old.map((run) => byId.get(run.runId) ?? run);
            const added = page.runs.filter(({ runId }) => !known.has(runId));
            if (isAtTop.current) return [...added, ...updated];
            setFresh(added);
            return updated;
          });
        } catch (failed) {
          console.debug("not refreshed", failed);
        }
      }, 500);
    };
    const stop = on<{ stream: string }>("agent", ({ stream }) => stream === "lifecycle" && refresh());
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [inputs]);
  const shown = runs ?? [];
  const [selected] = useRowKeys(shown.length, (at) => {
    const run = shown[at];
    if (run) go(link("runs", run.runId));
  });
  const isFiltered = Object.values(filters).some(Boolean);
  return (
    <section class="view full" aria-label="Runs">
      <Head title="Runs">
        <Search value={filters.search} onInput={(search) => setParams({ search })} label="Search runs" />
        <Filter label="Status" value={filters.status} options={STATUSES} onChange={(status) => setParams({ status })} />
        <Field label="Agent" value={filters.agent} onChange={(agent) => setParams({ agent })} />
        <Field label="Session" value={filters.session} onChange={(session) => setParams({ session })} />
        <Field label="Model" value={filters.model} onChange={(model) => setParams({ model })} />
        <Field label="Channel" value={filters.channel} onChange={(channel) => setParams({ channel })} />
        {isFiltered ? (
          <button type="button" class="ghost small" onClick={() => setParams({ search: "", status: "", agent: "", session: "", model: "", channel: "" })}>
            Clear
          </button>
        ) : null}
      </Head>
      {error ? <Problem error={messageOf(error)} retry={() => void load()} /> : null}
      {fresh.length ? (
        <button
          type="button"
          class="fresh"
          onClick={() => {
            setRuns([...fresh, ...shown]);
            setFresh([]);
          }}
        >
          {fresh.length} new run{fresh.length > 1 ? "s" : ""}
        </button>
      ) : null}
      {runs && runs.length === 0 ? (
        isFiltered ? (
          <Empty title="No run matches these filters" />
        ) : (
          <Empty title="No runs yet">
            Every message starts one. <a href={link("chat")}>Write a message</a>
          </Empty>
        )
      ) : (
        <div class="run-table">
          <div class="run-row run-head" aria-hidden="true">
            <span>Status</span>
            <span>Accepted</span>
            <span>Session</span>
            <span class="wide-only">Model</span>
            <span class="wide-only">From</span>
            <span class="num">Duration</span>
            <span class="num wide-only">Tokens</span>
            <span class="num wide-only">Cost</span>
          </div>
          <VirtualRows
            label="Runs, newest first"
            class="run-rows"
            role="list"
            count={shown.length}
            rowHeight={ROW_HEIGHT}
            shown={selected >= 0 ? selected : undefined}
            onEnd={() => {
              if (hasMore && cursor.current) void load(cursor.current);
            }}
            onScroll={(top) => (isAtTop.current = top < ROW_HEIGHT)}
            row={(at) => <RunRow key={shown[at]!.runId} run={shown[at]!} isSelected={at === selected} />}
          />
        </div>
      )}
    </section>
  );
}

function listParams(filters: Record<"search" | "status" | "agent" | "session" | "model" | "channel", string>, before: string | undefined): object {
  const params: Record<string, unknown> = { limit: PAGE };
  if (before) params["before"] = before;
  if (filters.session) params["sessionKey"] = filters.session;
  if (filters.status) params["status"] = filters.status;
  if (filters.agent) params["agentId"] = filters.agent;
  if (filters.model) params["model"] = filters.model;
  if (filters.channel) params["channel"] = filters.channel;
  if (filters.search) params["search"] = filters.search;
  return params;
}

function RunRow({ run, isSelected }: { run: Run; isSelected: boolean }) {
  const ms = run.durationMs ?? now.value - run.acceptedAt;
  return (
    <div role="listitem" class={`run-item ${isSelected ? "selected" : ""}`}>
      <a href={link("runs", run.runId)} class="run-row" title={run.error ? visible(run.error) : run.runId}>
        <span>
          <Status status={run.status} />
        </span>
        <span class="num muted">{when(run.acceptedAt, now.value)}</span>
        <span class="ellipsis">
          {visible(sessionName(run.sessionKey))}
          {run.error ? <span class="run-error"> {visible(run.error)}</span> : null}
        </span>
        <span class="ellipsis muted wide-only">{run.model ? `${run.provider}/${run.model}` : ""}</span>
        <span class="ellipsis muted wide-only">
          {agentOf(run.sessionKey)} · {channelOf(run.sessionKey)}
        </span>
        <span class="num">{duration(Math.max(0, ms))}</span>
        <span class="num wide-only">{run.usage?.totalTokens ? compact(run.usage.totalTokens) : ""}</span>
        <span class="num wide-only">{run.usage?.totalCost ? cost(run.usage.totalCost) : ""}</span>
      </a>
    </div>
  );
}

function Filter({ label, value, options, onChange }: { label: string; value: string; options: string[]; onChange: (value: string) => void }) {
  return (
    <label class="pick">
      <span class="visually-hidden">{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">any {label.toLowerCase()}</option>
        {options.map((option) => (
          <option key={option} value={option}>
            {option === "accepted" ? "queued" : option}
          </option>
        ))}
      </select>
    </label>
  );
}

function Field({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  return (
    <label class="filter-field">
      <span class="visually-hidden">{label}</span>
      <input type="text" placeholder={label.toLowerCase()} value={value} onChange={(event) => onChange(event.currentTarget.value.trim())} />
    </label>
  );
}
