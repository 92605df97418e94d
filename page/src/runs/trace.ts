// The trace of a run as data: labels, causes, the log view and the report.
import { link } from "../lib/router";
import { adviceFor, type Advice } from "./advice";
import { clock, compact, cost, count, duration } from "../lib/format";

export interface Usage {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  totalTokens: number;
  totalCost: number;
}

export interface Run {
  runId: string;
  sessionKey: string;
  sessionId?: string;
  method?: string;
  principal?: string;
  acceptedAt: number;
  startedAt?: number;
  endedAt?: number;
  durationMs?: number;
  status: string;
  error?: string;
  provider?: string;
  model?: string;
  host?: string;
  usage?: Usage;
  heldAt?: number;
}

export interface PromptStats {
  sections?: [string, number][];
  system: number;
  tools: number;
  messages: number;
  tokens: number;
  changed?: string | null;
  pruned?: number;
  omitted?: unknown;
}

export interface Step {
  atMs: number;
  ms: number;
  aside: boolean;
  step: string;
  provider?: string;
  model?: string;
  profile?: string;
  prompt?: PromptStats;
  firstMs?: number;
  input?: number | { kept?: number; all?: number };
  output?: number;
  cacheRead?: number;
  cacheWrite?: number;
  cost?: number;
  error?: string;
  slotMs?: number;
  why?: string;
  reason?: string;
  fromModel?: string;
  name?: string;
  call?: string;
  digest?: string;
  isError?: boolean;
  cut?: [number, number] | null;
  point?: string;
  hook?: string;
  decision?: string;
  tokens?: [number, number] | null;
  how?: string;
  disposition?: string;
  position?: number;
  activity?: string;
  busyMs?: number;
  runs?: string[];
  repetition?: string;
  chars?: number;
  text?: string;
  steps?: number;
}

export interface Delivery {
  id: string;
  channel: string;
  account?: string;
  to: string;
  part?: number;
  queuedAt: number;
  attempts: number;
  status: string;
  reason?: string;
  messageId?: string;
  retryAt?: number;
}

export interface Trace {
  run: Run;
  until: number;
  totalMs: number;
  accountedMs: number;
  steps: Step[];
  deliveries: Delivery[];
}

/** What happened in a step, in a few words. */
export function label(step: Step): string {
  switch (step.step) {
    case "queued":
      return "queued";
    case "prepared":
      return "built the prompt";
    case "model":
      return `${step.provider}/${step.model}`;
    case "retry":
      return "waited to retry";
    case "stored":
      return "committed the answer";
    case "tools":
      return "ran tools";
    case "compaction":
      return step.tokens ? "compacted the history" : "compaction failed";
    case "down":
      return "no process was running";
    case "held":
      return "held after crashes";
    case "finished":
      return "committed the result";
    case "finalHooks":
      return "ran hooks on the reply";
    case "more":
      return `${step.steps ?? 0} more steps`;
    case "tool":
      return step.name ?? "tool";
    case "hook":
      return `hook ${step.hook}`;
    case "switched":
      return `${step.fromModel} failed`;
    case "joined":
      return "message steered in";
    case "placed":
      return step.position === undefined ? `now ${step.disposition}` : `now ${step.disposition} at position ${step.position}`;
    case "busy":
      return `waited for ${step.activity}`;
    case "summarized":
      return `${step.runs?.length ?? 0} messages summarized`;
    case "block":
      return "sent a block";
    case "withheld":
      return "text not sent again";
    default:
      return step.step;
  }
}

/** Group of a step, for its colour. */
export function kind(step: Step): "wait" | "model" | "tool" | "work" | "down" | "bad" {
  if (isFailure(step)) return "bad";
  switch (step.step) {
    case "queued":
    case "retry":
    case "busy":
    case "placed":
      return "wait";
    case "model":
      return "model";
    case "tool":
    case "tools":
      return "tool";
    case "down":
    case "held":
      return "down";
    default:
      return "work";
  }
}

export function isFailure(step: Step): boolean {
  return !!step.error || step.isError === true || step.step === "switched" || (step.step === "compaction" && !step.tokens);
}

/** One line that explains a step. */
export function note(step: Step): string {
  const parts: string[] = [];
  if (step.step === "model") {
    if (step.firstMs !== undefined) parts.push(`first token after ${duration(step.firstMs)}`);
    parts.push(`${compact(promptTokens(step))} in, ${compact(step.output ?? 0)} out`);
    if (step.cacheRead) parts.push(`${Math.round((step.cacheRead / promptTokens(step)) * 100)} % cached`);
    if (step.cost) parts.push(cost(step.cost));
  }
  if (step.error) parts.push(step.error);
  if (step.why) parts.push(step.why);
  if (step.step === "queued" && step.slotMs) parts.push(`${duration(step.slotMs)} of it for a free slot`);
  if (step.step === "compaction") parts.push(step.tokens ? `${compact(step.tokens[0])} to ${compact(step.tokens[1])} tokens, ${step.how}` : (step.how ?? ""));
  if (step.step === "hook") parts.push(`${step.point}: ${step.decision}`);
  if (step.step === "tool" && step.isError) parts.push("failed");
  if (step.cut) parts.push(`result cut from ${count(step.cut[0])} to ${count(step.cut[1])} characters`);
  if (step.step === "withheld") parts.push(`"${step.text}"`);
  if (step.busyMs) parts.push(`busy for ${duration(step.busyMs)}`);
  if (step.prompt?.pruned) parts.push(`${step.prompt.pruned} old tool results shortened`);
  return parts.filter(Boolean).join(" · ");
}

export function promptTokens(step: Step): number {
  const input = typeof step.input === "number" ? step.input : 0;
  return input + (step.cacheRead ?? 0) + (step.cacheWrite ?? 0);
}

/** Why the provider's cache could not be used, in a sentence. */
export function cacheNote(step: Step): string {
  const changed = step.prompt?.changed;
  if (changed === undefined || changed === null) {
    return step.cacheRead ? "Only messages were appended since the previous request: the cached prefix was used." : "Only messages were appended since the previous request, but the provider reported nothing from its cache: it had expired, was too short to cache, or the provider has none.";
  }
  if (changed === "") return "This is the first request of the session since it was opened, so there was nothing to reuse.";
  return `"${changed}" differs from the previous request of the session. Everything from there on was sent uncached.`;
}

export interface Cause {
  title: string;
  text: string;
  /** What can be done about it. */
  next: Advice | null;
  /** Index of the step that shows it. */
  step: number;
  tone: "bad" | "warn";
}

/** Why a message was not answered, or not delivered, or took long: the most important reason first. */
export function causes(trace: Trace): Cause[] {
  return [...ownCauses(trace), ...deliveryCauses(trace), ...stepCauses(trace)];
}

/** What the state of the run says. */
function ownCauses({ run, steps }: Trace): Cause[] {
  const found: Cause[] = [];
  const lastFailure = steps.findLastIndex((step) => isFailure(step) && step.step !== "tool");
  if (run.status === "error") {
    const { what, next } = adviceFor(run.error ?? "without a reason");
    found.push({ title: "The run failed", text: what, next, step: lastFailure, tone: "bad" });
  }
  if (run.status === "aborted") {
    const { what, next } = adviceFor(run.error ?? "by a user or by /stop");
    found.push({ title: "The run was stopped", text: what, next, step: steps.length - 1, tone: "warn" });
  }
  if (run.status === "held") found.push({ title: "The run is held", text: "It was active at several crashes in a row and may be their cause.", next: { text: "Release it to try again, or drop it" }, step: steps.findLastIndex(({ step }) => step === "held"), tone: "warn" });
  if (run.status === "accepted") {
    const busy = steps.findLast(({ step }) => step === "busy");
    found.push({ title: "The message waits", text: busy ? `The session is busy with ${busy.activity ?? "another run"}.` : "Another run of the session comes first, or all slots are in use.", next: { text: "Wait, or stop the run that comes first", href: link("runs", "", { session: run.sessionKey, status: "running" }) }, step: -1, tone: "warn" });
  }
  if (run.host && run.host !== run.runId) found.push({ title: "Answered by another run", text: `The message was steered into, or collected by, the run ${run.host}.`, next: { text: "Open that run", href: link("runs", run.host) }, step: -1, tone: "warn" });
  return found;
}

function deliveryCauses({ deliveries }: Trace): Cause[] {
  return deliveries.flatMap((delivery): Cause[] => {
    const place = `${delivery.channel} to ${delivery.to}`;
    if (delivery.status === "dead" || delivery.status === "failed") {
      const { what, next } = adviceFor(delivery.reason ?? "no reason");
      return [{ title: delivery.status === "dead" ? "The reply was not delivered" : "The delivery failed and will be retried", text: `${place}: ${what}`, next: next ?? { text: "Test the channel", href: link("channels") }, step: -1, tone: "bad" }];
    }
    if (delivery.status === "unknown") return [{ title: "It is not known whether the reply was delivered", text: `${place}: ${delivery.reason ?? ""}`, next: { text: "Look into the chat; the reply is in the conversation", href: link("channels") }, step: -1, tone: "bad" }];
    return [];
  });
}

/** What single steps say. */
function stepCauses({ run, steps }: Trace): Cause[] {
  const found: Cause[] = [];
  const down = steps.reduce((sum, step) => sum + (step.step === "down" ? step.ms : 0), 0);
  if (down > 0) found.push({ title: "The gateway was down during this run", text: `For ${duration(down)} no process was running; the run was resumed afterwards.`, next: { text: "Look for the reason in the log", href: link("logs") }, step: steps.findIndex(({ step }) => step === "down"), tone: "warn" });
  const blocked = steps.find((step) => step.step === "hook" && /block|refus|reject|deny|denied|cancel|withheld/i.test(step.decision ?? ""));
  if (blocked) found.push({ title: `The hook ${blocked.hook} intervened`, text: `${blocked.point}: ${blocked.decision}`, next: { text: "Check this hook, or disable it", href: link("hooks") }, step: steps.indexOf(blocked), tone: "warn" });
  const switched = steps.filter(({ step }) => step === "switched");
  if (switched.length && run.status === "ok") found.push({ title: "Another model answered", text: switched.map(({ fromModel, reason, why }) => `${fromModel}: ${why || reason}`).join("; "), next: { text: "Check the model that failed", href: link("models") }, step: steps.indexOf(switched[0]!), tone: "warn" });
  const failed = steps.filter((step) => step.step === "tool" && step.isError);
  if (failed.length) found.push({ title: failed.length === 1 ? `The tool ${failed[0]!.name} failed` : `${failed.length} tool calls failed`, text: [...new Set(failed.map(({ name }) => name))].join(", "), next: null, step: steps.indexOf(failed[0]!), tone: "warn" });
  return found;
}

/** The step to show first: the cause of a failure, or the longest. */
export function initialStep(trace: Trace): number {
  const cause = causes(trace).find(({ step }) => step >= 0);
  if (cause) return cause.step;
  let longest = -1;
  trace.steps.forEach((step, at) => {
    if (!step.aside && (longest < 0 || step.ms > trace.steps[longest]!.ms)) longest = at;
  });
  return longest;
}

/** Time of the main steps, which is the wall time of the run. */
export function accounted(trace: Trace): number {
  return trace.steps.reduce((sum, step) => sum + (step.aside ? 0 : step.ms), 0);
}

/** Share of each group of steps in the wall time, largest first. */
export function shares(trace: Trace): { name: string; ms: number; kind: ReturnType<typeof kind> }[] {
  const NAMES: Record<string, string> = { queued: "queue", prepared: "prompt", model: "model", retry: "retry wait", stored: "commit", tools: "tools", compaction: "compaction", down: "downtime", held: "held", finished: "commit", finalHooks: "hooks", more: "other" };
  const sums = new Map<string, { ms: number; kind: ReturnType<typeof kind> }>();
  for (const step of trace.steps) {
    if (step.aside || step.ms === 0) continue;
    const name = NAMES[step.step] ?? step.step;
    const group = kind({ ...step, error: "", isError: false, tokens: [0, 0] });
    sums.set(name, { ms: (sums.get(name)?.ms ?? 0) + step.ms, kind: group });
  }
  return [...sums].map(([name, sum]) => ({ name, ...sum })).sort((left, right) => right.ms - left.ms);
}

/** The trace as lines of text. */
export function logLines(trace: Trace): string[] {
  const { run } = trace;
  const lines = [`${clock(run.acceptedAt)}  +0 ms  accepted ${run.runId} in ${run.sessionKey} by ${run.method ?? "?"} from ${run.principal ?? "?"}`];
  for (const step of trace.steps) {
    const text = note(step);
    lines.push(`${clock(run.acceptedAt + step.atMs)}  +${duration(step.atMs)}  ${step.aside ? "· " : ""}${label(step)}${step.ms ? `, ${duration(step.ms)}` : ""}${text ? `: ${text}` : ""}`);
  }
  for (const delivery of trace.deliveries) lines.push(`${clock(delivery.queuedAt)}  +${duration(delivery.queuedAt - run.acceptedAt)}  delivery ${delivery.status} on ${delivery.channel}: ${delivery.attempts} attempts${delivery.reason ? `: ${delivery.reason}` : ""}`);
  if (run.endedAt) lines.push(`${clock(run.endedAt)}  +${duration(run.endedAt - run.acceptedAt)}  ${run.status}${run.error ? `: ${run.error}` : ""}`);
  return lines;
}

/** A report that can be shared: timings, names and errors, without messages, arguments, recipients and keys. */
export function report(trace: Trace, version: string): string {
  const { run } = trace;
  const redacted = run.sessionKey.split(":").map((part, at) => (at < 3 ? part : "…")).join(":");
  const tokens = run.usage ? `${count(run.usage.input + run.usage.cacheRead + run.usage.cacheWrite)} in (${count(run.usage.cacheRead)} cached), ${count(run.usage.output)} out, ${cost(run.usage.totalCost)}` : "none";
  const head = [`Homard ${version}, run ${run.runId}`, `status ${run.status}${run.error ? `: ${hideSecrets(run.error)}` : ""}`, `session ${redacted}, ${run.method ?? "?"}, ${run.provider ?? "?"}/${run.model ?? "?"}`, `total ${duration(trace.totalMs)}, tokens ${tokens}`, ""];
  const steps = trace.steps.map((step) => {
    const plain = step.step === "withheld" ? { ...step, text: "…" } : step;
    return `+${duration(step.atMs).padEnd(9)} ${duration(step.ms).padEnd(9)} ${step.aside ? "· " : ""}${label(plain)}${note(plain) ? `: ${hideSecrets(note(plain))}` : ""}`;
  });
  const deliveries = trace.deliveries.map((delivery) => `delivery ${delivery.channel}: ${delivery.status} after ${delivery.attempts} attempts${delivery.reason ? `: ${hideSecrets(delivery.reason)}` : ""}`);
  return [...head, ...steps, ...deliveries].join("\n");
}

function hideSecrets(text: string): string {
  return text.replace(/\b(?:sk|pk|key|token|ghp|xox[abp])[-_][\w-]{8,}/gi, "…").replace(/\b[\w.+-]+@[\w-]+\.[\w.]+\b/g, "…").replace(/(?:\/[\w.-]+){3,}/g, "…");
}
