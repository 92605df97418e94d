// The inspector of one run: where its time went, what the model saw, and what each tool did.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { LongText, summary, ToolBody } from "../chat/tool";
import type { Block, ToolView } from "../chat/transcript";
import { call, hello, may, offers, on, onOpen, RequestError } from "../lib/connection";
import { compact, cost, count, duration, sessionName, visible } from "../lib/format";
import { go, link, route, setParams } from "../lib/router";
import { act, Badge, confirmed, copyText, Empty, Head, Icon, isTyping, messageOf, Problem, Status, Time } from "../lib/ui";
import { accounted, cacheNote, causes, initialStep, isFailure, kind, label, logLines, note, promptTokens, report, shares, type Delivery, type Step, type Trace } from "./trace";

const REFRESH_MS = 400;

export interface RunTool {
  call: string;
  name: string;
  arguments: unknown;
  result?: { content?: Block[]; details?: Record<string, unknown> } | null;
  isError?: boolean;
  startedAt?: number;
  endedAt?: number;
}

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
      {found.length ? (
        <ul class="causes" aria-label="What went wrong">
          {found.slice(0, 3).map((cause, at) => (
            <li key={at} class={cause.tone}>
              <strong>{cause.title}.</strong> <span>{visible(cause.text)}</span>
              {cause.step >= 0 && cause.step !== selected ? (
                <button type="button" class="ghost small" onClick={() => select(cause.step)}>
                  Show the step
                </button>
              ) : null}
              {run.host && cause.title.startsWith("Answered") ? (
                <a class="button small" href={link("runs", run.host)}>
                  Open it
                </a>
              ) : null}
            </li>
          ))}
        </ul>
      ) : null}
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

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
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

function Detail({ step, trace, tools, index }: { step: Step; trace: Trace; tools: RunTool[]; index: number }) {
  return (
    <article>
      <h2>
        {visible(label(step))} {isFailure(step) ? <Badge tone="bad">failed</Badge> : null}
      </h2>
      <p class="muted small num">
        +{duration(step.atMs)} to +{duration(step.atMs + step.ms)} · {duration(step.ms)} of {duration(trace.totalMs)}
      </p>
      {step.error ? <Problem error={visible(step.error)} /> : null}
      {step.why && !step.error ? <Problem error={visible(step.why)} /> : null}
      {step.step === "model" ? <ModelDetail step={step} trace={trace} index={index} /> : null}
      {step.step === "tool" ? <ToolDetail step={step} tools={tools} /> : null}
      {step.step === "tools" ? <ToolsDetail trace={trace} step={step} /> : null}
      {step.step !== "model" && step.step !== "tool" ? <p>{EXPLAIN[step.step] ?? ""}</p> : null}
      {step.step !== "model" && !step.why && note(step) ? <p class="note">{visible(note(step))}</p> : null}
      {step.step === "summarized" ? (
        <ul>
          {(step.runs ?? []).map((run) => (
            <li key={run}>
              <a href={link("runs", run)}>{run}</a>
            </li>
          ))}
        </ul>
      ) : null}
    </article>
  );
}

const EXPLAIN: Record<string, string> = {
  queued: "The message waited: other messages of the session came first, or all slots were in use.",
  prepared: "The prompt was built from files, skills, hooks and the history.",
  retry: "The wait before a failed request was sent again.",
  stored: "The answer was written to disk before any tool with side effects started.",
  tools: "The tools that the model called ran.",
  compaction: "The history was summarized, because it no longer fitted into the context window.",
  down: "The gateway was stopped or had crashed, and resumed the run later. What was done but not stored before the end of the process counts as downtime.",
  held: "The run was active at several crashes in a row, and waited for a decision.",
  finished: "The final records of the run were written to disk.",
  finalHooks: "Hooks processed the reply before it was sent.",
  more: "A trace keeps at most 200 steps.",
  switched: "This model failed or was skipped, and the next candidate was tried.",
  joined: "A message that arrived during the run was given to the model.",
  hook: "A hook decided.",
  block: "A part of the reply was sent before the reply was complete.",
  withheld: "This text was not sent, because a tool had sent it to the same conversation.",
  busy: "The run waited for longer than 30 seconds.",
  placed: "What happens to the message changed after it was sent.",
  summarized: "The queue overflowed: the model received a summary of these messages instead of their text.",
};

function ModelDetail({ step, trace, index }: { step: Step; trace: Trace; index: number }) {
  const input = typeof step.input === "number" ? step.input : 0;
  const total = promptTokens(step);
  const prompt = step.prompt;
  const earlier = trace.steps.slice(0, index).findLast(({ step, prompt }) => step === "model" && prompt?.sections?.length);
  const sections = prompt?.sections?.length ? prompt.sections : (earlier?.prompt?.sections ?? []);
  const largest = Math.max(1, ...sections.map(([, size]) => size));
  return (
    <>
      <dl class="facts tight">
        {step.firstMs !== undefined ? <Fact name="First token">{duration(step.firstMs)}</Fact> : null}
        {step.output && step.ms > (step.firstMs ?? 0) ? <Fact name="Speed">{Math.round((step.output / (step.ms - (step.firstMs ?? 0))) * 1_000)} tokens/s</Fact> : null}
        <Fact name="Input">{count(total)}</Fact>
        <Fact name="Output">{count(step.output ?? 0)}</Fact>
        {step.cost ? <Fact name="Cost">{cost(step.cost)}</Fact> : null}
        {step.profile ? <Fact name="Credential">{step.profile}</Fact> : null}
      </dl>
      {total > 0 ? (
        <>
          <h3>Cache</h3>
          <div class="meter" role="img" aria-label={`${count(step.cacheRead ?? 0)} tokens from the cache, ${count(step.cacheWrite ?? 0)} written to it, ${count(input)} uncached`}>
            <span class="m-read" style={{ flexGrow: step.cacheRead ?? 0 }} />
            <span class="m-write" style={{ flexGrow: step.cacheWrite ?? 0 }} />
            <span class="m-input" style={{ flexGrow: input }} />
          </div>
          <p class="small muted">
            {count(step.cacheRead ?? 0)} read · {count(step.cacheWrite ?? 0)} written · {count(input)} uncached
          </p>
        </>
      ) : null}
      {prompt && prompt.tokens > 0 ? <p class="cache-note">{cacheNote(step)}</p> : null}
      {prompt && prompt.tokens > 0 ? (
        <>
          <h3>What the model saw</h3>
          <p class="small">
            About {count(prompt.tokens)} tokens: {count(prompt.system)} characters of system prompt, {prompt.tools} tools, {prompt.messages} message{prompt.messages === 1 ? "" : "s"}
            {prompt.pruned ? `, ${prompt.pruned} old tool results shortened` : ""}.
          </p>
          {sections.length ? (
            <table class="sections">
              <caption class="visually-hidden">Sections of the system prompt</caption>
              <thead>
                <tr>
                  <th scope="col">Section</th>
                  <th scope="col" class="num">
                    Characters
                  </th>
                  <th scope="col" aria-label="Weight" />
                </tr>
              </thead>
              <tbody>
                {sections.map(([name, size]) => (
                  <tr key={name} class={prompt.changed === name ? "changed" : undefined}>
                    <th scope="row">
                      {visible(name)}
                      {prompt.changed === name ? <Badge tone="warn">changed</Badge> : null}
                    </th>
                    <td class="num">{count(size)}</td>
                    <td class="weight">
                      <span style={{ width: `${(size / largest) * 100}%` }} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          ) : null}
          {prompt.sections?.length || sections.length === 0 ? null : <p class="small muted">The system prompt is that of the previous request.</p>}
        </>
      ) : null}
    </>
  );
}

function ToolDetail({ step, tools }: { step: Step; tools: RunTool[] }) {
  const found = tools.find(({ call }) => call === step.call);
  if (!found)
    return (
      <p class="note">
        The arguments are shown as a digest, <code>{step.digest || "none"}</code>; equal calls have equal digests.
      </p>
    );
  const tool: ToolView = { id: found.call, name: found.name, args: found.arguments, output: found.result?.content ?? null, details: found.result?.details ?? null, isError: step.isError === true, ms: step.ms, isRunning: false, startedAt: null };
  return <ToolBody tool={tool} />;
}

function ToolsDetail({ trace, step }: { trace: Trace; step: Step }) {
  const inside = trace.steps.map((other, at) => ({ other, at })).filter(({ other }) => other.step === "tool" && other.atMs >= step.atMs && other.atMs <= step.atMs + step.ms);
  return (
    <ul class="plain-list">
      {inside.map(({ other, at }) => (
        <li key={at}>
          <button type="button" class="ghost" onClick={() => setParams({ step: String(at) })}>
            {visible(other.name ?? "tool")} <span class="muted num">{duration(other.ms)}</span> {other.isError ? <Badge tone="bad">failed</Badge> : null}
          </button>
        </li>
      ))}
    </ul>
  );
}

function Deliveries({ deliveries }: { deliveries: Delivery[] }) {
  return (
    <>
      <h3>Deliveries</h3>
      <table class="table">
        <thead>
          <tr>
            <th scope="col">Status</th>
            <th scope="col">To</th>
            <th scope="col" class="num">
              Attempts
            </th>
            <th scope="col">Reason</th>
          </tr>
        </thead>
        <tbody>
          {deliveries.map((delivery) => (
            <tr key={delivery.id}>
              <td>
                <Status status={delivery.status} />
              </td>
              <td>
                {delivery.channel} {visible(delivery.to)}
              </td>
              <td class="num">{delivery.attempts}</td>
              <td>{visible(delivery.reason ?? "")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/** Runs that tools of this run have started. */
function SubAgents({ tools }: { tools: RunTool[] }) {
  const started = tools
    .filter(({ name }) => name === "sessions_spawn")
    .map(({ call, arguments: args, result }) => ({ call, args: (args ?? {}) as Record<string, unknown>, details: result?.details ?? {} }))
    .filter(({ details }) => typeof details["runId"] === "string");
  if (started.length === 0) return null;
  return (
    <>
      <h3>Sub-agents</h3>
      <ul class="plain-list">
        {started.map(({ call, args, details }) => (
          <li key={call}>
            <a href={link("runs", String(details["runId"]))}>{visible(String(args["label"] ?? args["task"] ?? details["childSessionKey"] ?? "run")).slice(0, 120)}</a>
          </li>
        ))}
      </ul>
    </>
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
