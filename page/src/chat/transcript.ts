// What a conversation shows: the stored messages, and what active runs have produced since.
//
// Stored messages are the truth; they have ids, so they are never shown twice. The events of an active run fill the gap
// between the last stored message and now. A part of a run is dropped once a stored message contains it, and what is
// left of a run is dropped with its end, after the stored messages were read.

export interface TextBlock {
  type: "text";
  text: string;
}
export interface ThinkingBlock {
  type: "thinking";
  thinking: string;
}
export interface CallBlock {
  type: "toolCall";
  id: string;
  name: string;
  arguments: unknown;
}
export interface ImageBlock {
  type: "image";
  data?: string;
  mimeType?: string;
  omitted?: boolean;
  bytes?: number;
}
export type Block = TextBlock | ThinkingBlock | CallBlock | ImageBlock;

export interface StoredMessage {
  role: "user" | "assistant" | "toolResult" | "compactionSummary" | "system" | (string & {});
  content?: Block[] | string;
  timestamp?: number;
  idempotencyKey?: string;
  steeredInto?: string;
  provider?: string;
  model?: string;
  usage?: { input: number; output: number; cacheRead: number; cacheWrite: number; totalTokens: number; cost?: { total: number } };
  stopReason?: string;
  errorMessage?: string;
  toolCallId?: string;
  toolName?: string;
  isError?: boolean;
  details?: Record<string, unknown>;
  summary?: string;
  __openclaw?: { id?: string; seq?: number; runId?: string; kind?: string };
}

export interface AgentEvent {
  runId: string;
  stream: "lifecycle" | "assistant" | "thinking" | "tool" | "compaction" | (string & {});
  data: Record<string, unknown>;
  sessionKey?: string;
  seq?: number;
  ts: number;
}

export interface LiveTool {
  id: string;
  name: string;
  args: unknown;
  startedAt: number;
  endedAt: number | null;
  output: Block[] | null;
  details: Record<string, unknown> | null;
  isError: boolean;
}

/** A part of what an active run has produced. */
export type LivePart = { kind: "text"; text: string } | { kind: "thinking"; text: string } | { kind: "tool"; call: string } | { kind: "note"; text: string };

export interface LiveRun {
  runId: string;
  seq: number;
  startedAt: number;
  parts: LivePart[];
  isQueued: boolean;
  /** What the run is doing, for people. */
  activity: string;
}

/** A message that was sent from here and is not stored yet. */
export interface PendingMessage {
  runId: string;
  text: string;
  images: string[];
  at: number;
  state: "sending" | "sent" | "queued" | "steered" | "failed";
  position: number | null;
  error: string | null;
}

export interface AnsweredCommand {
  runId: string;
  text: string;
  reply: string;
  at: number;
}

export interface Transcript {
  messages: StoredMessage[];
  live: Map<string, LiveRun>;
  tools: Map<string, LiveTool>;
  pending: PendingMessage[];
  /** Ids of runs whose end was seen here, so that late events do not bring them back. */
  ended: Set<string>;
  /** Commands that were answered at once. They are not part of the stored conversation, so they are gone with the page. */
  commands: AnsweredCommand[];
  /** Failures of runs that left no message. */
  failures: Map<string, { text: string; at: number }>;
}

export function emptyTranscript(): Transcript {
  return { messages: [], live: new Map(), tools: new Map(), pending: [], ended: new Set(), commands: [], failures: new Map() };
}

export function blocksOf(message: StoredMessage): Block[] {
  if (typeof message.content === "string") return [{ type: "text", text: message.content }];
  return message.content ?? [];
}

export function textOf(message: StoredMessage): string {
  return blocksOf(message)
    .map((block) => (block.type === "text" ? block.text : ""))
    .filter(Boolean)
    .join("\n\n");
}

const idOf = (message: StoredMessage) => message.__openclaw?.id;
export const runOf = (message: StoredMessage) => message.__openclaw?.runId;

/** Adds stored messages. Those that are known already are replaced, and the order is that of the transcript. */
export function addStored(transcript: Transcript, added: StoredMessage[]): void {
  const known = new Map(transcript.messages.map((message, at) => [idOf(message), at]));
  const messages = [...transcript.messages];
  for (const message of added) {
    const at = idOf(message) === undefined ? undefined : known.get(idOf(message));
    if (at === undefined) messages.push(message);
    else messages[at] = message;
  }
  const seqOf = (message: StoredMessage) => message.__openclaw?.seq ?? Number.MAX_SAFE_INTEGER;
  transcript.messages = messages.sort((left, right) => seqOf(left) - seqOf(right));
  settle(transcript);
}

/** Removes what stored messages contain. */
function settle(transcript: Transcript): void {
  const sent = new Set(transcript.messages.map((message) => message.idempotencyKey));
  transcript.pending = transcript.pending.filter(({ runId, state }) => state === "failed" || !sent.has(`${runId}:user`));
}

/** Drops what is left of runs that have ended, once the stored messages were read after their end. */
export function dropEnded(transcript: Transcript, endedBefore: ReadonlySet<string>): void {
  for (const runId of endedBefore) transcript.live.delete(runId);
  if (transcript.live.size === 0) transcript.tools.clear();
}

/** The parts of a run that no stored message contains. */
export function visibleParts(transcript: Transcript, run: LiveRun): LivePart[] {
  const texts = new Set<string>();
  const thoughts = new Set<string>();
  const calls = new Set<string>();
  for (const message of transcript.messages) {
    if (message.role !== "assistant" || (message.timestamp ?? 0) < run.startedAt) continue;
    texts.add(normal(textOf(message)));
    for (const block of blocksOf(message)) {
      if (block.type === "thinking") thoughts.add(normal(block.thinking));
      if (block.type === "toolCall") calls.add(block.id);
    }
  }
  return run.parts.filter((part) => {
    if (part.kind === "tool") return !calls.has(part.call);
    if (part.kind === "thinking") return !thoughts.has(normal(part.text));
    return part.kind === "note" || !texts.has(normal(part.text));
  });
}

const normal = (text: string) => text.replace(/\s+/g, " ").trim();

function liveRun(transcript: Transcript, event: AgentEvent): LiveRun {
  let run = transcript.live.get(event.runId);
  if (!run) {
    run = { runId: event.runId, seq: 0, startedAt: event.ts, parts: [], isQueued: false, activity: "starting" };
    transcript.live.set(event.runId, run);
  }
  return run;
}

/** What the view has to do after an event. */
export type Reaction = "none" | "show" | "read" | "resume";

/** Applies an event of a run. Returns `resume` if events before it were missed, and `read` if the run has ended. */
export function apply(transcript: Transcript, event: AgentEvent, isReplay = false): Reaction {
  if (transcript.ended.has(event.runId)) return "none";
  const known = transcript.live.get(event.runId);
  const seq = event.seq ?? 0;
  if (!isReplay && seq > 0) {
    if (known && seq <= known.seq) return "none";
    // The first event of a run that is not followed yet, or events were lost: ask for the run from its start.
    if (seq > (known?.seq ?? 0) + 1) return "resume";
  }
  const run = liveRun(transcript, event);
  run.seq = Math.max(run.seq, seq);
  const { data } = event;
  const phase = String(data["phase"] ?? "");
  const last = run.parts.at(-1);
  switch (event.stream) {
    case "assistant":
    case "thinking": {
      const kind = event.stream === "assistant" ? "text" : "thinking";
      const text = String(data["text"] ?? "");
      const isFirst = data["delta"] === data["text"] && data["replace"] !== true;
      run.activity = kind === "text" ? "writing" : "thinking";
      const at = isFirst && !isReplay ? -1 : run.parts.findLastIndex((part) => part.kind === kind);
      const current = run.parts[at];
      // A replayed event has the whole text of its message.
      const continues = current && current.kind === kind && (isReplay ? text.startsWith(current.text) && last === current : true);
      if (continues) run.parts[at] = { kind, text };
      else if (text) run.parts.push({ kind, text });
      return "show";
    }
    case "tool": {
      const id = String(data["toolCallId"] ?? "");
      if (phase === "start") {
        transcript.tools.set(id, { id, name: String(data["name"] ?? "tool"), args: data["args"], startedAt: event.ts, endedAt: null, output: null, details: null, isError: false });
        if (!run.parts.some((part) => part.kind === "tool" && part.call === id)) run.parts.push({ kind: "tool", call: id });
        run.activity = `running ${String(data["name"] ?? "a tool")}`;
        return "show";
      }
      const tool = transcript.tools.get(id);
      const result = (phase === "result" ? data["result"] : data["partialResult"]) as { content?: Block[]; details?: Record<string, unknown> } | undefined;
      if (tool) {
        const ended = phase === "result" ? { endedAt: event.ts, isError: data["isError"] === true } : {};
        transcript.tools.set(id, { ...tool, output: result?.content ?? tool.output, details: result?.details ?? tool.details, ...ended });
      }
      if (phase === "result") run.activity = "working";
      return "show";
    }
    case "compaction":
      run.activity = phase === "start" ? "compacting the history" : "working";
      return "show";
    case "lifecycle":
      break;
    default:
      return "none";
  }
  switch (phase) {
    case "start":
      run.isQueued = false;
      run.startedAt = Number(data["startedAt"] ?? event.ts);
      run.activity = "working";
      transcript.pending = transcript.pending.map((sent) => (sent.runId === run.runId && sent.state === "queued" ? { ...sent, state: "sent", position: null } : sent));
      return "show";
    case "queue": {
      const disposition = String(data["disposition"] ?? "queued");
      const position = typeof data["position"] === "number" ? data["position"] : null;
      place(transcript, run.runId, disposition, position);
      return "show";
    }
    case "waiting":
      run.activity = `waiting: ${String(data["busyWith"] ?? "the session is busy")}`;
      return "show";
    case "retry":
      run.parts.push({ kind: "note", text: `${String(data["model"] ?? "The model")}: ${String(data["error"] ?? "failed")}. Retry ${Number(data["attempt"] ?? 1)} of ${Number(data["maxAttempts"] ?? 1)} in ${(Number(data["afterMs"] ?? 0) / 1_000).toFixed(1)} s.` });
      run.activity = "waiting to retry";
      return "show";
    case "fallback_step":
      run.parts.push({ kind: "note", text: `${String(data["model"] ?? "The model")} failed (${String(data["reason"] ?? "error")}); trying the next model.` });
      return "show";
    case "model":
      run.activity = "waiting for the model";
      return "show";
    case "end":
    case "error": {
      transcript.ended.add(run.runId);
      const error = data["error"];
      if (phase === "error" && typeof error === "string") transcript.failures.set(run.runId, { text: error, at: event.ts });
      transcript.pending = transcript.pending.map((sent) => (sent.runId === run.runId && sent.state !== "failed" ? { ...sent, state: "sent", position: null } : sent));
      return "read";
    }
    default:
      return "none";
  }
}

/** Records what happens to a message that was sent while the session was busy. */
export function place(transcript: Transcript, runId: string, disposition: string, position: number | null): void {
  const state = disposition === "queued" ? "queued" : disposition === "steered" ? "steered" : "sent";
  transcript.pending = transcript.pending.map((sent) => (sent.runId === runId ? { ...sent, state, position } : sent));
}

/** Keeps why a run failed. One that failed before it started has no event of its own. */
export function failed(transcript: Transcript, runId: string, text: string, at: number): void {
  if (!transcript.failures.has(runId)) transcript.failures.set(runId, { text, at });
  transcript.ended.add(runId);
}

/** Keeps the reply to a message of ours that was answered without being stored. */
export function answered(transcript: Transcript, runId: string, reply: string, at: number): void {
  const sent = transcript.pending.find((pending) => pending.runId === runId);
  if (!sent || !reply) return;
  transcript.pending = transcript.pending.filter((pending) => pending !== sent);
  transcript.commands = [...transcript.commands, { runId, text: sent.text, reply, at }];
  transcript.live.delete(runId);
  transcript.ended.add(runId);
}

export interface ResumedRun {
  runId: string;
  state: "queued" | "running" | "ended" | (string & {});
  seq?: number;
  events?: AgentEvent[];
  tools?: { toolCallId: string; name: string; args: unknown; startedAt: number }[];
}

/** Rebuilds active runs from the response to `chat.resume`. */
export function resumed(transcript: Transcript, runs: ResumedRun[]): void {
  for (const snapshot of runs) {
    transcript.live.delete(snapshot.runId);
    if (snapshot.state === "ended" || transcript.ended.has(snapshot.runId)) {
      transcript.ended.add(snapshot.runId);
      continue;
    }
    const events = snapshot.events ?? [];
    for (const event of events) apply(transcript, event, true);
    const run = liveRun(transcript, { runId: snapshot.runId, stream: "lifecycle", data: {}, ts: events[0]?.ts ?? Date.now() });
    run.seq = snapshot.seq ?? run.seq;
    run.isQueued = snapshot.state === "queued";
  }
}

/** After a reconnect: what was known of active runs may be outdated; sequence numbers start again in a new process. */
export function forgetLive(transcript: Transcript): void {
  transcript.live.clear();
  transcript.tools.clear();
  transcript.ended.clear();
}

/** A tool call as the view shows it, stored or running. */
export interface ToolView {
  id: string;
  name: string;
  args: unknown;
  output: Block[] | null;
  details: Record<string, unknown> | null;
  isError: boolean;
  ms: number | null;
  isRunning: boolean;
  startedAt: number | null;
}

export function toolViews(transcript: Transcript): (block: CallBlock, message: StoredMessage) => ToolView {
  const results = new Map<string, StoredMessage>();
  for (const message of transcript.messages) if (message.role === "toolResult" && message.toolCallId) results.set(message.toolCallId, message);
  return (block, message) => {
    const result = results.get(block.id);
    const live = transcript.tools.get(block.id);
    if (result) {
      const reported = Number(result.details?.["durationMs"] ?? Number.NaN);
      const measured = live?.endedAt ? live.endedAt - live.startedAt : (result.timestamp ?? 0) - (message.timestamp ?? 0);
      return { id: block.id, name: block.name, args: block.arguments, output: blocksOf(result), details: result.details ?? null, isError: result.isError === true, ms: Number.isFinite(reported) ? reported : Math.max(0, measured), isRunning: false, startedAt: message.timestamp ?? null };
    }
    if (live) return liveToolView(live);
    return { id: block.id, name: block.name, args: block.arguments, output: null, details: null, isError: false, ms: null, isRunning: transcript.live.size > 0, startedAt: message.timestamp ?? null };
  };
}

export function liveToolView(tool: LiveTool): ToolView {
  return { ...tool, ms: tool.endedAt === null ? null : tool.endedAt - tool.startedAt, isRunning: tool.endedAt === null };
}
