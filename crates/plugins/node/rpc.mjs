// JSON-RPC 2.0 between this process and the gateway: one JSON object per line, requests in both directions.

import { lineReader } from "./lines.mjs";
import { RequestLimiter } from "./request-limiter.mjs";

export const PARSE_ERROR = -32700;
export const INVALID_REQUEST = -32600;
export const UNKNOWN_METHOD = -32601;
export const INVALID_PARAMS = -32602;
export const FAILED = -32000;
export const CANCELLED = -32800;

/** From here on, what may get lost (logs, progress) is dropped, because the gateway does not read. */
const CROWDED = 1024 * 1024;
/** From here on nothing more is read either, until what waits has been taken. */
const FULL = 8 * 1024 * 1024;
/** The longest line that the gateway reads. */
const LONGEST_SENT = 8 * 1024 * 1024;
/** How often one call may report its progress. */
const PROGRESS_MS = 50;
/** How long a cancelled call may still answer by itself. */
const CANCEL_GRACE_MS = 2000;

/** An error with a code of its own. */
export class RpcError extends Error {
  constructor(code, message, data) {
    super(message);
    this.name = "RpcError";
    this.code = code;
    this.data = data;
  }
}

/** What went wrong, in words, and not too many. */
export function describe(error) {
  return words(error).slice(0, 4000);
}

function words(error) {
  if (error instanceof Error) return error.message || error.name;
  if (typeof error === "string") return error;
  try {
    return JSON.stringify(error) ?? String(error);
  } catch {
    return Object.prototype.toString.call(error);
  }
}

/** One end of the conversation. */
export class Peer {
  #input;
  #output;
  #methods = new Map();
  #serving = new Map();
  #asked = new Map();
  #lastId = 0;
  #dropped = 0;
  #limiter = new RequestLimiter();
  #isOpen = true;

  constructor({ input, output }) {
    this.#input = input;
    this.#output = output;
  }

  /** Adds what can be asked of this side: `{name: (params, call) => result}`. */
  serve(methods) {
    for (const [name, run] of Object.entries(methods)) this.#methods.set(name, run);
  }

  /** Begins to read. `onEnd` is called once, when the other side is gone. */
  listen(onEnd) {
    const end = (why) => {
      if (!this.#isOpen) return;
      this.#isOpen = false;
      for (const { reject } of this.#asked.values()) reject(new RpcError(FAILED, "the gateway has disconnected"));
      this.#asked.clear();
      for (const { abort } of this.#serving.values()) abort.abort(new Error("the gateway has disconnected"));
      onEnd(why);
    };
    const read = lineReader({
      onLine: (line) => this.#receive(line),
      onTooLong: (limit) => this.#answerError(null, INVALID_REQUEST, `a line is longer than ${limit} bytes; it was skipped`),
    });
    this.#input.on("data", read);
    this.#input.on("end", () => end("stdin ended"));
    this.#input.on("close", () => end("stdin closed"));
    this.#input.on("error", () => end("stdin failed"));
    this.#output.on("error", () => end("stdout failed"));
    this.#output.on("drain", () => this.#drained());
  }

  /** Asks the gateway for a plugin, when it is its turn. */
  request(method, params = {}, options = {}) {
    return this.#limiter.pass(() => this.fetch(method, params, options));
  }

  /** Asks the gateway at once. An aborted `signal` cancels the question there and rejects here. */
  fetch(method, params = {}, { signal } = {}) {
    if (!this.#isOpen) return Promise.reject(new RpcError(FAILED, "the gateway has disconnected"));
    if (signal?.aborted) return Promise.reject(new RpcError(CANCELLED, `${method} was cancelled`));
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#asked.delete(id);
        this.#write({ method: "$/cancel", params: { id } });
        reject(new RpcError(CANCELLED, `${method} was cancelled`));
      };
      const settle = (done) => (value) => {
        signal?.removeEventListener("abort", onAbort);
        done(value);
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#asked.set(id, { resolve: settle(resolve), reject: settle(reject) });
      try {
        this.#write({ id, method, params });
      } catch (error) {
        this.#asked.delete(id);
        settle(reject)(error);
      }
    });
  }

  /** Tells the gateway something that may get lost if it does not read. */
  hint(method, params) {
    if (!this.#isOpen) return;
    if (this.#output.writableLength > CROWDED) {
      this.#dropped += 1;
      return;
    }
    this.#write({ method, params });
  }

  /** Waits until everything written so far has left this process. */
  flush() {
    return new Promise((resolve) => this.#output.write("", () => resolve()));
  }

  #write(message) {
    if (!this.#isOpen) return;
    const line = `${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`;
    // The gateway would discard a longer line, and the caller would wait in vain.
    if (Buffer.byteLength(line) > LONGEST_SENT) throw new RpcError(FAILED, `the message exceeds the limit of ${LONGEST_SENT} bytes: ${Buffer.byteLength(line)}`);
    this.#output.write(line);
    if (this.#output.writableLength > FULL) this.#input.pause();
  }

  #drained() {
    this.#input.resume();
    if (this.#dropped === 0) return;
    const message = `${this.#dropped} log lines or progress reports were dropped, because the gateway was slow to read`;
    this.#dropped = 0;
    this.hint("log", { level: "warn", plugin: null, message });
  }

  #receive(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      this.#answerError(null, PARSE_ERROR, "a line is not JSON");
      return;
    }
    if (message === null || typeof message !== "object" || Array.isArray(message)) {
      this.#answerError(null, INVALID_REQUEST, "a line must hold one JSON object");
    } else if (typeof message.method === "string") {
      if (message.method === "$/cancel") this.#cancel(message.params?.id);
      else void this.#handle(message);
    } else if (message.id != null && ("result" in message || "error" in message)) {
      this.#settle(message);
    } else {
      this.#answerError(message.id ?? null, INVALID_REQUEST, "neither a request nor an answer");
    }
  }

  #settle({ id, result, error }) {
    const asked = this.#asked.get(id);
    // A response without a pending call belongs to a cancelled request.
    if (asked === undefined) return;
    this.#asked.delete(id);
    if (error) asked.reject(new RpcError(error.code ?? FAILED, String(error.message ?? "failed"), error.data));
    else asked.resolve(result);
  }

  #cancel(id) {
    const serving = this.#serving.get(id);
    if (serving === undefined) return;
    serving.abort.abort(new RpcError(CANCELLED, "cancelled"));
    // Code that ignores its abort signal must not hold a slot forever.
    setTimeout(() => serving.giveUp(new RpcError(CANCELLED, "cancelled")), CANCEL_GRACE_MS).unref();
  }

  async #handle({ id, method, params }) {
    const run = this.#methods.get(method);
    if (run === undefined) {
      if (id != null) this.#answerError(id, UNKNOWN_METHOD, `unknown method ${JSON.stringify(method)}`);
      return;
    }
    if (id != null && this.#serving.has(id)) {
      this.#answerError(id, INVALID_REQUEST, `the id ${JSON.stringify(id)} is in use`);
      return;
    }
    const abort = new AbortController();
    const news = this.#newsOf(id);
    const call = { signal: abort.signal, progress: news.tell };
    try {
      const result = await new Promise((resolve, reject) => {
        if (id != null) this.#serving.set(id, { abort, giveUp: reject });
        Promise.resolve(run(params ?? {}, call)).then(resolve, reject);
      });
      if (id != null) this.#write({ id, result: result ?? null });
    } catch (error) {
      if (id == null) return;
      const code = error instanceof RpcError ? error.code : abort.signal.aborted ? CANCELLED : FAILED;
      this.#answerError(id, code, describe(error));
    } finally {
      news.end();
      this.#serving.delete(id);
    }
  }

  // Of several progress reports in a short time only the newest is sent.
  #newsOf(id) {
    let timer;
    let newest;
    let isOver = id == null;
    const send = () => {
      timer = undefined;
      if (newest === undefined) return;
      const { value } = newest;
      newest = undefined;
      timer = setTimeout(send, PROGRESS_MS);
      this.hint("$/progress", { id, value });
    };
    const tell = (value) => {
      if (isOver) return;
      newest = { value };
      if (timer === undefined) send();
    };
    const end = () => {
      isOver = true;
      clearTimeout(timer);
    };
    return { tell, end };
  }

  #answerError(id, code, message) {
    this.#write({ id, error: { code, message } });
  }
}
