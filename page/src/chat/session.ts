// One open conversation: reads it, follows its runs, and sends messages.
import { signal } from "@preact/signals";
import { call, on, onOpen, RequestError } from "../lib/connection";
import { messageOf } from "../lib/ui";
import { addStored, answered, apply, dropEnded, emptyTranscript, failed, forgetLive, place, resumed, textOf, type AgentEvent, type PendingMessage, type ResumedRun, type StoredMessage, type Transcript } from "./transcript";

const PAGE = 100;

interface History {
  messages: StoredMessage[];
  sessionId?: string;
  hasMore?: boolean;
  nextOffset?: number;
  totalMessages?: number;
  thinkingLevel?: string;
  sessionInfo?: SessionRow;
}

export interface SessionRow {
  key: string;
  label?: string;
  displayName?: string;
  updatedAt?: number;
  sessionId?: string;
  model?: string;
  modelProvider?: string;
  modelOverride?: string;
  thinkingLevel?: string;
  contextTokens?: number;
  totalTokens?: number;
  inputTokens?: number;
  outputTokens?: number;
  hasActiveRun?: boolean;
  activeRunIds?: string[];
  archived?: boolean;
  pinned?: boolean;
  lastChannel?: string;
  agentId?: string;
  kind?: string;
  spawnedBy?: string;
}

export interface Attachment {
  fileName: string;
  mimeType: string;
  /** Base64. */
  content: string;
}

export class OpenSession {
  readonly transcript: Transcript = emptyTranscript();
  /** Changes with every change of the transcript. */
  readonly version = signal(0);
  readonly info = signal<SessionRow | null>(null);
  readonly thinking = signal<string>("");
  readonly isLoaded = signal(false);
  readonly hasMore = signal(false);
  readonly error = signal<string | null>(null);
  private sessionId: string | undefined;
  private isReading = false;
  private waitingForRead: (() => void)[] = [];
  private isResuming = false;
  private isFrameRequested = false;
  private readonly stops: (() => void)[];
  /** Messages to send again after a reconnect; the gateway ignores those that it has accepted. */
  private readonly outbox = new Map<string, object>();

  constructor(readonly key: string) {
    this.stops = [
      on<AgentEvent>("agent", (event) => this.handle(event)),
      on<{ sessionKey: string; runId: string; state: string; message?: StoredMessage; errorMessage?: string }>("chat", (event) => {
        if (event.sessionKey !== key || event.state === "delta") return;
        if (event.state === "error" && event.errorMessage) failed(this.transcript, event.runId, event.errorMessage, Date.now());
        // A command is answered at once, and neither it nor the reply is stored.
        void this.read().then(() => {
          if (event.message) answered(this.transcript, event.runId, textOf(event.message), event.message.timestamp ?? Date.now());
          this.changed();
        });
      }),
      on<{ sessionKey: string; message: StoredMessage; session?: SessionRow; sessionId?: string }>("session.message", (event) => {
        if (event.sessionKey !== key) return;
        if (event.sessionId !== this.sessionId && this.sessionId !== undefined) return void this.read();
        if (event.session) this.info.value = { ...event.session };
        addStored(this.transcript, [event.message]);
        this.changed();
      }),
      on<{ key: string; session?: SessionRow; reason?: string }>("sessions.changed", (event) => {
        if (event.key !== key) return;
        if (event.session) this.info.value = { ...event.session };
        const { reason } = event;
        if (reason && !reason.startsWith("agent.run")) void this.read();
      }),
      onOpen(() => void this.open()),
    ];
  }

  close(): void {
    this.stops.forEach((stop) => stop());
    call("sessions.messages.unsubscribe", { key: this.key }).catch((error: unknown) => console.debug("not unsubscribed", error));
  }

  /** Reads the conversation and follows its runs, after each connect. */
  private async open(): Promise<void> {
    try {
      forgetLive(this.transcript);
      await Promise.all([call("sessions.subscribe"), call("sessions.messages.subscribe", { key: this.key })]);
      await this.read();
      await this.resume();
      for (const params of this.outbox.values()) void this.deliver(params as SendParams);
    } catch (error) {
      this.fail(error);
    }
  }

  private fail(error: unknown): void {
    if (error instanceof RequestError && error.isLost) return;
    this.error.value = messageOf(error);
  }

  private handle(event: AgentEvent): void {
    if (event.sessionKey !== this.key) return;
    const reaction = apply(this.transcript, event);
    if (reaction === "resume") void this.resume();
    if (reaction === "read") void this.read();
    if (reaction !== "none") this.changed();
  }

  /** Shows changes with the next frame, so that a fast stream is drawn at most once per frame. */
  private changed(): void {
    if (this.isFrameRequested) return;
    this.isFrameRequested = true;
    const show = () => {
      this.isFrameRequested = false;
      this.version.value += 1;
    };
    if (document.visibilityState === "visible") requestAnimationFrame(show);
    else setTimeout(show, 200);
  }

  /** Reads the newest messages. A call during a read waits for one that begins afterwards. */
  async read(): Promise<void> {
    if (this.isReading) return new Promise((done) => this.waitingForRead.push(done));
    this.isReading = true;
    const ended = new Set(this.transcript.ended);
    try {
      const history = await call<History>("chat.history", { sessionKey: this.key, limit: PAGE });
      if (history.sessionId !== this.sessionId) {
        this.transcript.messages = [];
        // A session gets its id with the first message, which may have failed already.
        if (this.sessionId !== undefined) this.transcript.failures.clear();
        this.sessionId = history.sessionId;
      }
      const oldest = history.messages[0]?.__openclaw?.seq ?? 0;
      // Messages that are gone, such as after an undone compaction, must not stay.
      this.transcript.messages = this.transcript.messages.filter((message) => (message.__openclaw?.seq ?? 0) < oldest);
      if (this.transcript.messages.length === 0) this.hasMore.value = history.hasMore === true;
      addStored(this.transcript, history.messages);
      dropEnded(this.transcript, ended);
      this.thinking.value = history.thinkingLevel ?? "";
      if (history.sessionInfo) this.info.value = history.sessionInfo;
      this.isLoaded.value = true;
      this.error.value = null;
      this.changed();
    } catch (error) {
      this.fail(error);
    } finally {
      this.endRead();
    }
  }

  private endRead(): void {
    this.isReading = false;
    const waiting = this.waitingForRead.splice(0);
    if (waiting.length) void this.read().then(() => waiting.forEach((done) => done()));
  }

  /** Reads the page before the oldest message. */
  async readEarlier(): Promise<void> {
    if (!this.hasMore.peek() || this.isReading) return;
    this.isReading = true;
    try {
      const history = await call<History>("chat.history", { sessionKey: this.key, limit: PAGE, offset: this.transcript.messages.length });
      this.hasMore.value = history.hasMore === true && history.messages.length > 0;
      addStored(this.transcript, history.messages);
      this.changed();
    } catch (error) {
      this.fail(error);
    } finally {
      this.endRead();
    }
  }

  /** Asks for the events of the active runs from their start, and for those to come. */
  private async resume(): Promise<void> {
    if (this.isResuming) return;
    this.isResuming = true;
    try {
      const { runs } = await call<{ runs: ResumedRun[] }>("chat.resume", { sessionKey: this.key });
      resumed(this.transcript, runs);
      this.changed();
    } catch (error) {
      this.fail(error);
    } finally {
      this.isResuming = false;
    }
  }

  send(text: string, attachments: Attachment[], options: { queueMode?: string } = {}): string {
    const runId = newId();
    const pending: PendingMessage = { runId, text, images: attachments.map(({ mimeType, content }) => `${mimeType};${content}`), at: Date.now(), state: "sending", position: null, error: null };
    this.transcript.pending = [...this.transcript.pending, pending];
    const params: SendParams = { sessionKey: this.key, message: text, idempotencyKey: runId, ...options };
    if (attachments.length) params.attachments = attachments.map((attachment) => ({ type: "image", ...attachment }));
    this.outbox.set(runId, params);
    this.changed();
    void this.deliver(params);
    return runId;
  }

  private async deliver(params: SendParams): Promise<void> {
    const runId = params.idempotencyKey;
    try {
      const answer = await call<{ status: string; disposition?: string; position?: number; summary?: string }>("chat.send", params);
      this.outbox.delete(runId);
      place(this.transcript, runId, answer.disposition ?? answer.status, answer.position ?? null);
      if (answer.status === "error" && answer.summary) failed(this.transcript, runId, answer.summary, Date.now());
      // The response is the end if the run needs no model, or has ended before a reconnect.
      if (answer.status !== "started" && answer.status !== "in_flight") void this.read();
    } catch (error) {
      // Sent again after the reconnect.
      if (error instanceof RequestError && error.isLost) return;
      this.outbox.delete(runId);
      this.update(runId, { state: "failed", error: messageOf(error) });
    }
    this.changed();
  }

  private update(runId: string, change: Partial<PendingMessage>): void {
    this.transcript.pending = this.transcript.pending.map((sent) => (sent.runId === runId ? { ...sent, ...change } : sent));
  }

  discard(runId: string): void {
    this.transcript.pending = this.transcript.pending.filter((sent) => sent.runId !== runId);
    this.changed();
  }

  get isBusy(): boolean {
    return [...this.transcript.live.values()].some((run) => !this.transcript.ended.has(run.runId)) || (this.info.value?.hasActiveRun ?? false);
  }

  async stop(): Promise<void> {
    await call("chat.abort", { sessionKey: this.key });
  }
}

interface SendParams {
  sessionKey: string;
  message: string;
  idempotencyKey: string;
  queueMode?: string;
  attachments?: object[];
}

function newId(): string {
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
