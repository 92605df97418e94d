// Details of one step of a run: what the model saw, what a tool got and returned, where the reply went.
import { ToolBody } from "../chat/tool";
import type { Block, ToolView } from "../chat/transcript";
import { cost, count, duration, visible } from "../lib/format";
import { link, setParams } from "../lib/router";
import { Badge, Problem, Status } from "../lib/ui";
import { PromptTexts } from "./prompt";
import { cacheNote, isFailure, label, note, promptTokens, type Delivery, type Step, type Trace } from "./trace";

export interface RunTool {
  call: string;
  name: string;
  arguments: unknown;
  result?: { content?: Block[]; details?: Record<string, unknown> } | null;
  isError?: boolean;
  startedAt?: number;
  endedAt?: number;
}

export function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function Detail({ step, trace, tools, index }: { step: Step; trace: Trace; tools: RunTool[]; index: number }) {
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

/** Position of a step among the model requests of its run. */
const requestIndex = (trace: Trace, index: number) => trace.steps.slice(0, index).filter(({ step }) => step === "model").length;

function ModelDetail({ step, trace, index }: { step: Step; trace: Trace; index: number }) {
  const input = typeof step.input === "number" ? step.input : 0;
  const total = promptTokens(step);
  const prompt = step.prompt;
  const earlier = trace.steps.slice(0, index).findLast(({ step, prompt }) => step === "model" && prompt?.sections?.length);
  const sizes = prompt?.sections?.length ? prompt.sections : (earlier?.prompt?.sections ?? []);
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
          <PromptTexts id={trace.run.runId} request={requestIndex(trace, index)} sizes={sizes} />
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

export function Deliveries({ deliveries }: { deliveries: Delivery[] }) {
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
export function SubAgents({ tools }: { tools: RunTool[] }) {
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
