// The connection to the gateway: protocol 4 over one WebSocket, which is reopened whenever it is lost.
import { computed, signal } from "@preact/signals";
import { Device } from "./device";

export interface GatewayError {
  code: string;
  message: string;
  details?: Record<string, unknown>;
  retryable?: boolean;
}

/** An error response, or a request that got no response. */
export class RequestError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly details?: Record<string, unknown>,
  ) {
    super(message);
  }
  /** True if the request may have been lost with the connection. */
  get isLost(): boolean {
    return this.code === "DISCONNECTED";
  }
}

export interface Hello {
  server: { version: string };
  features: { methods: string[]; events: string[] };
  snapshot: { sessionDefaults: { defaultAgentId: string; mainSessionKey: string }; uptimeMs: number; stateDir: string; configPath?: string; health: Health };
  auth?: { scopes: string[]; deviceToken?: string; method?: string };
  policy: { tickIntervalMs: number; attachments?: { maxBytes: number } };
}

export interface Health {
  ok: boolean;
  work?: { queued: number; running: number; longRunning: number; stalled: number; stuck: number; slow: unknown[] };
  degraded?: unknown[];
  notice?: string;
  agents?: { agentId: string }[];
}

export type State =
  | { kind: "starting" }
  | { kind: "connecting"; since: number; why: string }
  | { kind: "open" }
  | { kind: "needs-token"; why: string | null }
  | { kind: "needs-pairing"; request: string };

export type Scope = "read" | "write" | "admin" | "approvals" | "pairing";
const SCOPES = ["operator.admin", "operator.read", "operator.write", "operator.approvals", "operator.pairing"];

type Handler = (payload: never) => void;
interface Pending {
  done: (payload: unknown) => void;
  failed: (error: RequestError) => void;
  timer: ReturnType<typeof setTimeout>;
}

const REQUEST_TIMEOUT_MS = 60_000;
const PAIRING_RETRY_MS = 3_000;

/** The address of the gateway: that of the page, with the scheme of a WebSocket. */
export function socketAddress(page: { protocol: string; host: string; pathname: string }): string {
  return `${page.protocol === "https:" ? "wss:" : "ws:"}//${page.host}${page.pathname.replace(/[^/]*$/, "")}`;
}

/** Delay before the given attempt to reconnect, in milliseconds. */
export function backoff(attempt: number, random: number): number {
  return Math.min(5_000, 200 * 2 ** attempt) * (0.75 + random / 2);
}

export const state = signal<State>({ kind: "starting" });
export const hello = signal<Hello | null>(null);
export const health = signal<Health | null>(null);
export const isOpen = computed(() => state.value.kind === "open");
const scopes = computed(() => new Set(hello.value?.auth?.scopes ?? []));

/** True if this connection may call methods of a scope. */
export function may(scope: Scope): boolean {
  const granted = scopes.value;
  if (granted.has("operator.admin")) return true;
  return granted.has(`operator.${scope}`) || (scope === "read" && granted.has("operator.write"));
}

/** True if the gateway has a method. */
export const offers = (method: string): boolean => hello.value?.features.methods.includes(method) ?? false;

let device: Device | null = null;
let socket: WebSocket | null = null;
let attempt = 0;
let requests = 0;
let lastFrameAt = 0;
let lastSeq = 0;
let retryTimer: ReturnType<typeof setTimeout> | undefined;
/** A secret for the next attempts: entered by the user or taken from the address. */
let secret: { token?: string; code?: string } = {};
const pending = new Map<string, Pending>();
const handlers = new Map<string, Set<Handler>>();
const openHandlers = new Set<() => void>();

/** Subscribes to an event of the gateway. */
export function on<T>(event: string, handler: (payload: T) => void): () => void {
  const set = handlers.get(event) ?? new Set();
  handlers.set(event, set.add(handler as Handler));
  return () => set.delete(handler as Handler);
}

/** Runs a function after each connect, and at once if there is a connection; also after events were lost. */
export function onOpen(handler: () => void): () => void {
  openHandlers.add(handler);
  if (state.peek().kind === "open") handler();
  return () => openHandlers.delete(handler);
}

/** Calls a method of the gateway. */
export function call<T = Record<string, unknown>>(method: string, params: object = {}, timeoutMs = REQUEST_TIMEOUT_MS): Promise<T> {
  if (!socket || socket.readyState !== WebSocket.OPEN || (state.peek().kind !== "open" && method !== "connect")) {
    return Promise.reject(new RequestError("DISCONNECTED", "not connected to the gateway"));
  }
  const id = String(++requests);
  const current = socket;
  return new Promise<T>((done, failed) => {
    const timer = setTimeout(() => {
      pending.delete(id);
      failed(new RequestError("TIMEOUT", `${method} got no response in ${Math.round(timeoutMs / 1000)} seconds`));
    }, timeoutMs);
    pending.set(id, { done: done as (payload: unknown) => void, failed, timer });
    current.send(JSON.stringify({ type: "req", id, method, params }));
  });
}

/** Starts to connect, with a secret of the address if it has one. */
export async function start(): Promise<void> {
  takeSecretFromAddress();
  device = await Device.load();
  addEventListener("online", reconnectNow);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") reconnectNow();
  });
  // A link opened in this tab while the page is shown changes the fragment only.
  addEventListener("hashchange", () => {
    if (takeSecretFromAddress()) useSecret(secret);
  });
  setInterval(checkSilence, 5_000);
  connect();
}

/** Connects with a token that the user entered. */
export function useToken(token: string): void {
  useSecret({ token });
}

/** Ends this browser's access, and forgets its identity: a device that is paired already would get no token again. */
export async function signOut(): Promise<void> {
  if (device?.canSign && state.peek().kind === "open") {
    // The gateway closes the connection with this, so there may be no response.
    call("device.pair.remove", { deviceId: device.id }).catch((error: unknown) => console.debug("removed, or not permitted", error));
  }
  await device?.reset();
  secret = {};
  socket?.close(1000);
  hello.value = null;
  state.value = { kind: "needs-token", why: null };
}

function useSecret(entered: typeof secret): void {
  secret = entered;
  state.value = { kind: "starting" };
  attempt = 0;
  connect();
}

/** Takes `token` or `code` from the fragment, and removes them from the address and the history. */
function takeSecretFromAddress(): boolean {
  const found = /^#(token|code)=([^&]+)$/.exec(location.hash);
  if (!found) return false;
  secret = { [found[1] as "token" | "code"]: decodeURIComponent(found[2] ?? "") };
  history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  return true;
}

function reconnectNow(): void {
  if (state.peek().kind !== "connecting") return;
  clearTimeout(retryTimer);
  connect();
}

function checkSilence(): void {
  const interval = hello.peek()?.policy.tickIntervalMs;
  if (interval && state.peek().kind === "open" && Date.now() - lastFrameAt > 2.5 * interval) lose("the gateway is silent");
}

function connect(): void {
  const previous = socket;
  if (previous) {
    previous.onclose = previous.onmessage = null;
    previous.close();
  }
  clearTimeout(retryTimer);
  const opened = new WebSocket(socketAddress(location));
  socket = opened;
  lastSeq = 0;
  opened.onmessage = (message) => receive(String(message.data));
  opened.onclose = (closed) => lose(closed.reason || "the connection to the gateway was lost");
}

function lose(why: string): void {
  if (socket) {
    socket.onclose = socket.onmessage = null;
    socket.close();
  }
  socket = null;
  for (const [id, { failed, timer }] of pending) {
    clearTimeout(timer);
    pending.delete(id);
    failed(new RequestError("DISCONNECTED", "the connection to the gateway was lost"));
  }
  const kind = state.peek().kind;
  if (kind === "needs-token") return;
  if (kind === "needs-pairing") {
    retryTimer = setTimeout(connect, PAIRING_RETRY_MS);
    return;
  }
  if (kind !== "connecting") state.value = { kind: "connecting", since: Date.now(), why };
  retryTimer = setTimeout(connect, backoff(attempt, Math.random()));
  attempt += 1;
}

interface Frame {
  type: "res" | "event";
  id?: string;
  ok?: boolean;
  payload?: never;
  error?: GatewayError;
  event?: string;
  seq?: number;
}

function receive(text: string): void {
  lastFrameAt = Date.now();
  const frame = JSON.parse(text) as Frame;
  if (frame.type === "res") {
    const waiting = pending.get(frame.id ?? "");
    if (!waiting) return;
    pending.delete(frame.id ?? "");
    clearTimeout(waiting.timer);
    if (frame.ok) waiting.done(frame.payload);
    else {
      const { code, message, details } = frame.error ?? { code: "UNAVAILABLE", message: "the gateway gave no reason" };
      waiting.failed(new RequestError(code, message, details));
    }
    return;
  }
  if (frame.event === "connect.challenge") {
    void handshake(frame.payload as unknown as { nonce: string; ts: number });
    return;
  }
  if (frame.event === "health") health.value = frame.payload as unknown as Health;
  for (const handler of handlers.get(frame.event ?? "") ?? []) (handler as (payload: unknown) => void)(frame.payload);
  if (frame.seq !== undefined) {
    const isGap = lastSeq > 0 && frame.seq > lastSeq + 1;
    lastSeq = frame.seq;
    if (isGap) for (const handler of openHandlers) handler();
  }
}

async function handshake({ nonce, ts }: { nonce: string; ts: number }): Promise<void> {
  if (!device) return;
  const client = { id: "homard", mode: "ui", version: __VERSION__, platform: "web", displayName: "Homard page" };
  const entered = secret.token;
  const auth: Record<string, string> = {};
  if (secret.code !== undefined) auth["bootstrapToken"] = secret.code;
  else if (entered !== undefined) Object.assign(auth, { token: entered, password: entered });
  else if (device.token !== null) auth[device.canSign ? "deviceToken" : "token"] = device.token;
  else {
    state.value = { kind: "needs-token", why: null };
    socket?.close(1000);
    return;
  }
  const signedSecret = auth["token"] ?? auth["deviceToken"] ?? auth["bootstrapToken"] ?? "";
  const role = "operator";
  const fields = { clientId: client.id, clientMode: client.mode, role, scopes: SCOPES, signedAt: ts, token: signedSecret, nonce, platform: client.platform };
  try {
    const params: Record<string, unknown> = {
      minProtocol: 4,
      maxProtocol: 4,
      client,
      role,
      scopes: SCOPES,
      caps: ["tool-events", "agent-kind", "approvals"],
      auth,
      locale: navigator.language,
      userAgent: navigator.userAgent,
    };
    const signed = await device.sign(fields);
    if (signed) params["device"] = signed;
    const payload = await call<Hello>("connect", params);
    const token = payload.auth?.deviceToken ?? (device.canSign ? null : entered);
    if (token) await device.setToken(token);
    secret = {};
    attempt = 0;
    hello.value = payload;
    health.value = payload.snapshot.health;
    state.value = { kind: "open" };
    for (const handler of openHandlers) handler();
  } catch (error) {
    if (error instanceof RequestError) refused(error);
    else throw error;
  }
}

function refused(error: RequestError): void {
  const code = String(error.details?.["code"] ?? error.code);
  if (code === "PAIRING_REQUIRED" || error.code === "NOT_PAIRED") {
    const request = error.details?.["requestId"];
    if (request) {
      state.value = { kind: "needs-pairing", request: String(request) };
      return;
    }
  }
  if (code.startsWith("AUTH_") || code === "DEVICE_IDENTITY_REQUIRED" || error.message.startsWith("unauthorized")) {
    const wasEntered = secret.token !== undefined || secret.code !== undefined;
    const isLimited = code === "AUTH_RATE_LIMITED";
    if (!wasEntered && !isLimited) void device?.reset();
    const wrong = secret.code !== undefined ? "This link was used already or is older than a minute." : "The gateway does not accept this token.";
    secret = {};
    state.value = { kind: "needs-token", why: isLimited ? error.message : wasEntered ? wrong : "This browser's access was revoked." };
    return;
  }
  // Any other refusal, such as a gateway that is starting, is retried; the reason is shown in the banner.
  if (error.code !== "DISCONNECTED") state.value = { kind: "connecting", since: Date.now() - 2_000, why: error.message };
}

declare const __VERSION__: string;
