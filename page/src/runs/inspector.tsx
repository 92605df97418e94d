// The inspector of one run: where its time went, what the model saw, and what each tool did.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { LongText, summary } from "../chat/tool";
import { call, hello, may, offers, on, onOpen, RequestError } from "../lib/connection";
import { compact, cost, duration, sessionName, visible } from "../lib/format";
import { go, link, route, setParams } from "../lib/router";
import { act, confirmed, copyText, Empty, Head, Icon, isTyping, messageOf, Problem, Status, Time } from "../lib/ui";
import type { Advice } from "./advice";
import { Deliveries, Detail, Fact, SubAgents, type RunTool } from "./detail";
import { accounted, causes, initialStep, isFailure, kind, label, logLines, report, shares, type Cause, type Step, type Trace } from "./trace";

const REFRESH_MS = 400;

export function Inspector({ id }: { id: string }) {
  const [trace, setTrace] = useState<Trace | null>(null);
  const [tools, setTools] = useState<RunTool[]>([]);
  const [error, setError] = useState<string | null>(null);
  const runId = useRef(id);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isGone = false;
    const load = async () => {
      try {
        const loaded = await call<Trace>("runs.trace", { id });
        if (isGone) return;
        runId.current = loaded.run.runId;
        setTrace(loaded);
        setError(null);
        const found = await readTools(loaded);
        if (!isGone) setTools(found);
      } catch (failed) {
        if (!isGone && !(failed instanceof RequestError && failed.isLost)) setError(messageOf(failed));
      }
    };
    const later = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        void load();
      }, REFRESH_MS);
    };
    const stops = [onOpen(() => void load()), on<{ runId: string }>("agent", (event) => event.runId === runId.current && later())];
    return () => {
      isGone = true;
      clearTimeout(timer);
      stops.forEach((stop) => stop());
    };
  }, [id]);
  if (error && !trace)
    return (
      <section class="view">
        <Head title="Run" />
        <Problem error={error} />
        <p>
          <a href={link("runs")}>All runs</a>
        </p>
      </section>
    );
  if (!trace) return <div class="loading" aria-label="Loading" />;
  return <Shown trace={trace} tools={tools} />;
}

/** Arguments and results of the run's tool calls. */
async function readTools({ run, steps }: Trace): Promise<RunTool[]> {
  if (!steps.some(({ step }) => step === "tool") || !offers("runs.tools")) return [];
  return (await call<{ calls: RunTool[] }>("runs.tools", { id: run.runId })).calls;
}

type Pane = "timeline" | "log" | "messages";

export function Shown({ trace, tools }: { trace: Trace; tools: RunTool[] }) {
  const { run, steps } = trace;
  const { params } = route.value;
  const chosen = params.get("step");
  const pane = (params.get("pane") ?? "timeline") as Pane;
  const selected = chosen === null ? initialStep(trace) : Number(chosen);
  const [showAsides, setAsides] = useState(true);
  const visibleSteps = useMemo(() => steps.map((step, at) => ({ step, at })).filter(({ step }) => showAsides || !step.aside), [steps, showAsides]);
  const select = (at: number) => setParams({ step: String(at) });
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      const position = visibleSteps.findIndex(({ at }) => at === selected);
      if (event.key === "j" || event.key === "k") {
        const next = visibleSteps[Math.max(0, Math.min(visibleSteps.length - 1, position + (event.key === "j" ? 1 : -1)))];
        if (next) {
          select(next.at);
          document.getElementById(`step-${next.at}`)?.scrollIntoView({ block: "nearest" });
        }
      } else if (event.key === "Escape") go(link("runs"));
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [visibleSteps, selected]);
  const found = causes(trace);
  const isLive = run.endedAt === undefined;
  const step = steps[selected];
  return (
    <section class="view full inspector" aria-label={`Run ${run.runId}`}>
      <Head
        title={
          <>
            <Status status={run.status} /> <span class="run-title">{visible(sessionName(run.sessionKey))}</span>
          </>
        }
      >
        <a class="button small" href={link("chat", run.sessionKey)}>
          Conversation
        </a>
        <button type="button" class="small" onClick={() => void copyText(report(trace, hello.peek()?.server.version ?? ""), "Report")} title="Timings, names and errors, without messages and arguments">
          <Icon name="copy" /> Report
        </button>
        {isLive && run.status !== "held" && may("write") ? (
          <button type="button" class="small stop" onClick={() => void act(() => call("chat.abort", { sessionKey: run.sessionKey, runId: run.runId }), "Stopped")}>
            <Icon name="stop" /> Stop
          </button>
        ) : null}
        {run.status === "held" && may("write") ? (
          <>
            <button type="button" class="small primary" onClick={() => void act(() => call("runs.release", { runId: run.runId }), "Released")}>
              Release
            </button>
            <button
              type="button"
              class="small danger"
              onClick={async () => {
                if (await confirmed("Drop this run?", "It ends as failed, and its message is not answered.", "Drop")) await act(() => call("runs.drop", { runId: run.runId }), "Dropped");
              }}
            >
              Drop
            </button>
          </>
        ) : null}
      </Head>
      <dl class="facts">
        <Fact name="Run">
          <button type="button" class="ghost mono small" title="Copy the run id" onClick={() => void copyText(run.runId, "Run id")}>
            {run.runId.length > 18 ? `${run.runId.slice(0, 8)}…${run.runId.slice(-6)}` : run.runId}
          </button>
        </Fact>
        <Fact name="Accepted">
          <Time at={run.acceptedAt} />
        </Fact>
        <Fact name="Duration">
          <strong class="num">{duration(trace.totalMs)}</strong>
          {accounted(trace) === trace.totalMs ? null : <span class="muted"> {duration(accounted(trace))} explained</span>}
        </Fact>
        <Fact name="From">
          {run.method ?? "?"} · {run.principal ?? "?"}
        </Fact>
        {run.model ? <Fact name="Model">{`${run.provider}/${run.model}`}</Fact> : null}
        {run.usage && run.usage.totalTokens > 0 ? (
          <Fact name="Tokens">
            {compact(run.usage.input + run.usage.cacheRead + run.usage.cacheWrite)} in
            {run.usage.cacheRead ? ` (${Math.round((run.usage.cacheRead / (run.usage.input + run.usage.cacheRead + run.usage.cacheWrite)) * 100)} % cached)` : ""}, {compact(run.usage.output)} out
          </Fact>
        ) : null}
        {run.usage?.totalCost ? <Fact name="Cost">{cost(run.usage.totalCost)}</Fact> : null}
      </dl>
      {found.length ? <Causes found={found.slice(0, 3)} selected={selected} select={select} /> : null}
      <Shares trace={trace} />
      <div class="tabs-row">
        <div class="tabs" role="tablist" aria-label="Views of the run">
        {(["timeline", "log"] as const).map((name) => (
          <button key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={pane === name} aria-controls="pane" onClick={() => setParams({ pane: name === "timeline" ? undefined : name })}>
            {name === "timeline" ? "Timeline" : "Log"}
          </button>
        ))}
        </div>
        {pane === "timeline" && steps.some(({ aside }) => aside) ? (
          <label class="check small">
            <input type="checkbox" checked={showAsides} onChange={(event) => setAsides(event.currentTarget.checked)} /> tools, hooks and other details
          </label>
        ) : null}
      </div>
      <div id="pane" role="tabpanel" aria-labelledby={`tab-${pane}`} class="panes">
        {pane === "log" ? (
          <Log trace={trace} />
        ) : (
          <>
            <Waterfall trace={trace} steps={visibleSteps} selected={selected} select={select} tools={tools} />
            <div class="detail" aria-live="polite">
              {step ? <Detail step={step} trace={trace} tools={tools} index={selected} /> : steps.length === 0 ? <Empty title={run.status === "accepted" ? "The run has not started" : "No steps were recorded"} /> : <Empty title="Select a step" />}
              {trace.deliveries.length ? <Deliveries deliveries={trace.deliveries} /> : null}
              <SubAgents tools={tools} />
            </div>
          </>
        )}
      </div>
    </section>
  );
}

function Causes({ found, selected, select }: { found: Cause[]; selected: number; select: (at: number) => void }) {
  return (
    <ul class="causes" aria-label="What went wrong">
      {found.map(({ title, text, next, step, tone }, at) => (
        <li key={at} class={tone}>
          <strong>{title}.</strong> <span>{visible(text)}</span>
          {next ? <NextStep next={next} /> : null}
          {step >= 0 && step !== selected ? (
            <button type="button" class="ghost small" onClick={() => select(step)}>
              Show the step
            </button>
          ) : null}
        </li>
      ))}
    </ul>
  );
}

/** What can be done about a failure. */
export function NextStep({ next: { text, href } }: { next: Advice }) {
  return <span class="next-step">{href ? <a href={href}>{visible(text)}</a> : visible(text)}.</span>;
}

/** Where the time went, as one bar. */
function Shares({ trace }: { trace: Trace }) {
  const parts = shares(trace);
  const total = parts.reduce((sum, { ms }) => sum + ms, 0);
  if (total === 0) return null;
  return (
    <figure class="shares">
      <div class="share-bar" aria-hidden="true">
        {parts.map(({ name, ms, kind }) => (
          <span key={name} class={`k-${kind}`} style={{ flexGrow: ms }} />
        ))}
      </div>
      <figcaption>
        {parts.slice(0, 6).map(({ name, ms, kind }) => (
          <span key={name}>
            <i class={`swatch k-${kind}`} aria-hidden="true" />
            {name} <b class="num">{duration(ms)}</b> <span class="muted">{Math.round((ms / total) * 100)} %</span>
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

function Waterfall({ trace, steps, selected, select, tools }: { trace: Trace; steps: { step: Step; at: number }[]; selected: number; select: (at: number) => void; tools: RunTool[] }) {
  const total = Math.max(1, trace.totalMs);
  return (
    <ol class="waterfall" aria-label="Steps">
      {steps.map(({ step, at }) => {
        const left = Math.min(100, (step.atMs / total) * 100);
        const width = Math.max(0, Math.min(100 - left, (step.ms / total) * 100));
        const first = step.step === "model" && step.firstMs !== undefined && step.ms > 0 ? Math.min(100, (step.firstMs / step.ms) * 100) : null;
        const found = step.step === "tool" ? tools.find(({ call }) => call === step.call) : undefined;
        return (
          <li key={at}>
            <button type="button" id={`step-${at}`} class={`step ${step.aside ? "aside" : ""} ${isFailure(step) ? "failed" : ""}`} aria-current={at === selected ? "true" : undefined} onClick={() => select(at)}>
              <span class="step-label ellipsis">
                {visible(label(step))}
                {found ? <code> {summary(found.name, found.arguments)}</code> : null}
              </span>
              <span class="step-track" aria-hidden="true">
                <span class={`step-bar k-${kind(step)}`} style={{ left: `${left}%`, width: `${width}%` }}>
                  {first !== null ? <span class="step-first" style={{ width: `${first}%` }} /> : null}
                </span>
              </span>
              <span class="num step-ms">{step.ms > 0 || !step.aside ? duration(step.ms) : ""}</span>
            </button>
          </li>
        );
      })}
    </ol>
  );
}

function Log({ trace }: { trace: Trace }) {
  const text = useMemo(() => logLines(trace).join("\n"), [trace]);
  const [query, setQuery] = useState("");
  const shown = query
    ? text
        .split("\n")
        .filter((line) => line.toLowerCase().includes(query.toLowerCase()))
        .join("\n")
    : text;
  return (
    <div class="log-pane">
      <div class="part-head">
        <input type="search" data-search aria-label="Search the log of this run" placeholder="Search  /" value={query} onInput={(event) => setQuery(event.currentTarget.value)} />
        <button type="button" class="ghost small" onClick={() => void copyText(text, "Log")}>
          <Icon name="copy" /> Copy
        </button>
      </div>
      <LongText value={shown || "No line matches."} label="log of the run" />
    </div>
  );
}
