import { expect, test } from "vitest";
import { addStored, answered, apply, dropEnded, emptyTranscript, failed, place, resumed, visibleParts, type AgentEvent, type StoredMessage, type Transcript } from "../../src/chat/transcript";

const event = (stream: string, data: Record<string, unknown>, seq?: number, runId = "r"): AgentEvent => ({ runId, stream, data, ts: 100 + (seq ?? 0), ...(seq === undefined ? {} : { seq }) });
const text = (all: string, delta = all, seq?: number) => event("assistant", { text: all, delta }, seq);
const stored = (seq: number, role: string, content: string, more: Partial<StoredMessage> = {}): StoredMessage => ({ role, content: [{ type: "text", text: content }], timestamp: 200, ...more, __openclaw: { id: `e${seq}`, seq, runId: "r" } });
const parts = (transcript: Transcript) => [...transcript.live.values()].flatMap((run) => visibleParts(transcript, run));

test("text grows, and a second message follows the first", () => {
  const transcript = emptyTranscript();
  expect(apply(transcript, event("lifecycle", { phase: "start", startedAt: 100 }, 1))).toBe("show");
  apply(transcript, text("One", "One", 2));
  apply(transcript, text("One two", " two", 3));
  apply(transcript, text("Next", "Next", 4));
  expect(parts(transcript)).toEqual([
    { kind: "text", text: "One two" },
    { kind: "text", text: "Next" },
  ]);
});

test("a stored message takes the place of what was streamed, once", () => {
  const transcript = emptyTranscript();
  apply(transcript, event("lifecycle", { phase: "start", startedAt: 100 }, 1));
  apply(transcript, text("One two", "One two", 2));
  addStored(transcript, [stored(1, "assistant", "One two")]);
  addStored(transcript, [stored(1, "assistant", "One two")]);
  expect(transcript.messages).toHaveLength(1);
  expect(parts(transcript)).toEqual([]);
  apply(transcript, text("Three", "Three", 3));
  expect(parts(transcript)).toEqual([{ kind: "text", text: "Three" }]);
});

test("a replaced message is replaced", () => {
  const transcript = emptyTranscript();
  apply(transcript, event("lifecycle", { phase: "start", startedAt: 100 }, 1));
  apply(transcript, text("Wrong", "Wrong", 2));
  apply(transcript, event("assistant", { text: "Right", delta: "Right", replace: true }, 3));
  expect(parts(transcript)).toEqual([{ kind: "text", text: "Right" }]);
});

test("a gap in the sequence asks for the run again, and an old event changes nothing", () => {
  const transcript = emptyTranscript();
  expect(apply(transcript, text("late", "late", 5))).toBe("resume");
  apply(transcript, event("lifecycle", { phase: "start", startedAt: 100 }, 1));
  apply(transcript, text("One", "One", 2));
  expect(apply(transcript, text("One", "One", 2))).toBe("none");
  expect(apply(transcript, text("One three", " three", 4))).toBe("resume");
  resumed(transcript, [{ runId: "r", state: "running", seq: 4, events: [event("lifecycle", { phase: "start", startedAt: 100 }, 1), text("One three", "One three", 4)] }]);
  expect(parts(transcript)).toEqual([{ kind: "text", text: "One three" }]);
  expect(apply(transcript, text("One three four", " four", 5))).toBe("show");
  expect(parts(transcript)).toEqual([{ kind: "text", text: "One three four" }]);
});

test("a resumed run shows several messages and its open tools", () => {
  const transcript = emptyTranscript();
  const start = event("tool", { phase: "start", name: "exec", toolCallId: "c", args: { command: "ls" } }, 3);
  resumed(transcript, [{ runId: "r", state: "running", seq: 4, events: [text("One", "One", 2), start, text("Two", "Two", 4)] }]);
  expect(parts(transcript)).toEqual([{ kind: "text", text: "One" }, { kind: "tool", call: "c" }, { kind: "text", text: "Two" }]);
  expect(transcript.tools.get("c")).toMatchObject({ name: "exec", endedAt: null });
});

test("a tool is shown by its stored call only, once it is stored", () => {
  const transcript = emptyTranscript();
  apply(transcript, event("lifecycle", { phase: "start", startedAt: 100 }, 1));
  apply(transcript, event("tool", { phase: "start", name: "exec", toolCallId: "c", args: {} }, 2));
  expect(parts(transcript)).toEqual([{ kind: "tool", call: "c" }]);
  addStored(transcript, [{ role: "assistant", content: [{ type: "toolCall", id: "c", name: "exec", arguments: {} }], timestamp: 200, __openclaw: { id: "e1", seq: 1, runId: "r" } }]);
  expect(parts(transcript)).toEqual([]);
});

test("after its end, a run is shown until the stored messages were read", () => {
  const transcript = emptyTranscript();
  apply(transcript, event("lifecycle", { phase: "start", startedAt: 100 }, 1));
  apply(transcript, text("One", "One", 2));
  expect(apply(transcript, event("lifecycle", { phase: "end" }, 3))).toBe("read");
  expect(parts(transcript)).toEqual([{ kind: "text", text: "One" }]);
  expect(apply(transcript, text("late", "late", 4))).toBe("none");
  addStored(transcript, [stored(1, "assistant", "One")]);
  dropEnded(transcript, transcript.ended);
  expect(transcript.live.size).toBe(0);
});

test("a sent message waits until it is stored, and says where", () => {
  const transcript = emptyTranscript();
  transcript.pending = [{ runId: "r", text: "hello", images: [], at: 1, state: "sending", position: null, error: null }];
  place(transcript, "r", "queued", 2);
  expect(transcript.pending[0]).toMatchObject({ state: "queued", position: 2 });
  addStored(transcript, [stored(1, "user", "hello", { idempotencyKey: "r:user" })]);
  expect(transcript.pending).toEqual([]);
});

test("pages are merged in the order of the transcript", () => {
  const transcript = emptyTranscript();
  addStored(transcript, [stored(3, "user", "c"), stored(4, "assistant", "d")]);
  addStored(transcript, [stored(1, "user", "a"), stored(2, "assistant", "b")]);
  expect(transcript.messages.map((message) => message.__openclaw?.seq)).toEqual([1, 2, 3, 4]);
});

test("a command that is not stored keeps its reply", () => {
  const transcript = emptyTranscript();
  transcript.pending = [{ runId: "c", text: "/status", images: [], at: 1, state: "sent", position: null, error: null }];
  answered(transcript, "c", "fine", 5);
  answered(transcript, "of another client", "fine", 5);
  expect(transcript.pending).toEqual([]);
  expect(transcript.commands).toEqual([{ runId: "c", text: "/status", reply: "fine", at: 5 }]);
});

test("a run that failed before it started shows why, once", () => {
  const transcript = emptyTranscript();
  failed(transcript, "r", "the guard redact failed", 300);
  failed(transcript, "r", "something later", 400);
  expect(transcript.failures.get("r")).toEqual({ text: "the guard redact failed", at: 300 });
  expect(transcript.ended.has("r")).toBe(true);
});
