// Small parts that all views use.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { call, onOpen, RequestError } from "./connection";
import { ago, when } from "./format";

// Paths of 16×16 icons, drawn with a line of 1.5.
const ICONS = {
  overview: "M2.5 8.5 8 3l5.5 5.5M4 7.5V13h8V7.5",
  chat: "M2.5 3.5h11v7h-6l-3 2.5v-2.5h-2z",
  runs: "M2.5 4h6M4.5 8h7M7.5 12h6",
  sessions: "M3 3h10v4H3zM3 9h10v4H3z",
  approvals: "M8 2l5 2v4c0 3-2 5-5 6-3-1-5-3-5-6V4zM6 8l1.5 1.5L10.5 6.5",
  channels: "M8 8m-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0M5 5a4.2 4.2 0 0 0 0 6M11 5a4.2 4.2 0 0 1 0 6M3 3a7 7 0 0 0 0 10M13 3a7 7 0 0 1 0 10",
  schedule: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M8 5v3l2 1.5",
  models: "M8 2l5 3v6l-5 3-5-3V5zM8 8l5-3M8 8v6M8 8L3 5",
  usage: "M3 13V8M6.5 13V4M10 13V9.5M13 13V6",
  skills: "M9 2L4 9h4l-1 5 5-7H8z",
  plugins: "M6 2v3H3v3h3v3h0M6 5h4V2M10 5h3v3h-3v3H6v3M10 11v3",
  hooks: "M5 2v7a3 3 0 0 0 6 0V7l-2 2M11 7l2 2",
  mcp: "M3 5h10v6H3zM6 5V2.5M10 5V2.5M6 11v2.5M10 11v2.5",
  settings: "M8 5.8a2.2 2.2 0 1 0 0 4.4a2.2 2.2 0 1 0 0-4.4M8 2v2M8 12v2M2 8h2M12 8h2M3.8 3.8l1.4 1.4M10.8 10.8l1.4 1.4M3.8 12.2l1.4-1.4M10.8 5.2l1.4-1.4",
  logs: "M3 3h10M3 6.3h7M3 9.6h10M3 13h5",
  doctor: "M8 3v10M3 8h10",
  send: "M3 8l10-5-3.5 10-2-4z",
  stop: "M4.5 4.5h7v7h-7z",
  copy: "M5.5 5.5V3h7.5v7.5h-2.5M3 5.5h7.5V13H3z",
  search: "M7 3a4 4 0 1 0 0 8a4 4 0 1 0 0-8M10 10l3 3",
  close: "M4 4l8 8M12 4l-8 8",
  attach: "M8 3.5v9M3.5 8h9",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  arrow: "M6 3.5L10.5 8 6 12.5",
  trace: "M2.5 4h5M5.5 8h6M8.5 12h5",
  moon: "M12.5 10A5.5 5.5 0 0 1 6 3.5a5 5 0 1 0 6.500 6.500z",
} as const;
export type IconName = keyof typeof ICONS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round">
      <path d={ICONS[name]} />
    </svg>
  );
}

export type Tone = "ok" | "bad" | "warn" | "live" | "quiet";

export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** Status of a run: a word, never a colour alone. */
export function toneOf(status: string): Tone {
  if (status === "ok" || status === "sent" || status === "completed") return "ok";
  if (status === "error" || status === "dead" || status === "failed") return "bad";
  if (status === "held" || status === "aborted" || status === "unknown" || status === "waiting") return "warn";
  if (status === "running" || status === "accepted" || status === "absorbed" || status === "sending" || status === "queued") return "live";
  return "quiet";
}

export function Status({ status }: { status: string }) {
  return <Badge tone={toneOf(status)}>{status === "accepted" ? "queued" : status}</Badge>;
}

export function Time({ at, relative = false }: { at: number; relative?: boolean }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={new Date(at).toString()}>
      {relative ? ago(at, now.value) : when(at)}
    </time>
  );
}

/** The current time, for relative times. */
export const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 10_000);

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children ? <div class="empty-next">{children}</div> : null}
    </div>
  );
}

export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  return (
    <div class="problem" role="alert">
      <span>{messageOf(error)}</span>
      {retry ? (
        <button type="button" onClick={retry}>
          Try again
        </button>
      ) : null}
    </div>
  );
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export interface Loaded<T> {
  data: T | null;
  error: unknown;
  reload: () => void;
}

/** Loads something, and again after each reconnect. The old data stays until the new one is there. */
export function useLoad<T>(load: () => Promise<T>, inputs: readonly unknown[] = []): Loaded<T> {
  const [result, setResult] = useState<{ data: T | null; error: unknown }>({ data: null, error: null });
  const turn = useRef(0);
  const run = () => {
    turn.current += 1;
    const mine = turn.current;
    load().then(
      (data) => mine === turn.current && setResult({ data, error: null }),
      (error: unknown) => {
        // The view loads again after the reconnect.
        if (mine === turn.current && !(error instanceof RequestError && error.isLost)) setResult((old) => ({ ...old, error }));
      },
    );
  };
  useEffect(() => {
    const stop = onOpen(run);
    return () => {
      turn.current += 1;
      stop();
    };
  }, inputs);
  return { ...result, reload: run };
}

export const useCall = <T,>(method: string, params: object = {}, inputs: readonly unknown[] = []): Loaded<T> => useLoad<T>(() => call<T>(method, params), inputs);

// Messages that disappear by themselves, and are read by screen readers.
export const toasts = signal<{ id: number; text: string; tone: Tone }[]>([]);
let toastCount = 0;
export function toast(text: string, tone: Tone = "ok"): void {
  const id = ++toastCount;
  toasts.value = [...toasts.value, { id, text, tone }];
  setTimeout(() => (toasts.value = toasts.value.filter((shown) => shown.id !== id)), tone === "bad" ? 10_000 : 4_000);
}

/** Runs an action, and shows its failure. */
export async function act(action: () => Promise<unknown>, done?: string): Promise<boolean> {
  try {
    await action();
    if (done) toast(done);
    return true;
  } catch (error) {
    toast(messageOf(error), "bad");
    return false;
  }
}

export async function copyText(text: string, what: string): Promise<void> {
  await act(async () => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    throw new Error("this browser allows copying over https and on localhost only");
  }, `${what} copied`);
}

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}

export function Dialog({ title, onClose, children, wide }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? "wide" : undefined}
      aria-label={title}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === element.current) element.current?.close();
      }}
    >
      <div class="dialog-head">
        <h2>{title}</h2>
        <button type="button" class="ghost" aria-label="Close" onClick={() => element.current?.close()}>
          <Icon name="close" />
        </button>
      </div>
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}

interface Question {
  title: string;
  text: string;
  action: string;
  danger: boolean;
  answer: (yes: boolean) => void;
}
export const question = signal<Question | null>(null);

/** Asks before something that cannot be undone. */
export function confirmed(title: string, text: string, action: string, danger = true): Promise<boolean> {
  return new Promise((answer) => (question.value = { title, text, action, danger, answer }));
}

export function QuestionDialog() {
  const asked = question.value;
  if (!asked) return null;
  const close = (yes: boolean) => {
    asked.answer(yes);
    question.value = null;
  };
  return (
    <Dialog title={asked.title} onClose={() => close(false)}>
      <p>{asked.text}</p>
      <div class="actions">
        <button type="button" onClick={() => close(false)}>
          Cancel
        </button>
        <button type="button" class={asked.danger ? "danger" : "primary"} autofocus onClick={() => close(true)}>
          {asked.action}
        </button>
      </div>
    </Dialog>
  );
}

/** Header of a view. */
export function Head({ title, children }: { title: ComponentChildren; children?: ComponentChildren }) {
  return (
    <header class="head">
      <h1>{title}</h1>
      <div class="head-tools">{children}</div>
    </header>
  );
}

/** A search field that "/" focuses. */
export function Search({ value, onInput, label }: { value: string; onInput: (text: string) => void; label: string }) {
  return (
    <label class="search">
      <Icon name="search" />
      <input
        type="search"
        data-search
        aria-label={label}
        placeholder="Search  /"
        value={value}
        onInput={(event) => onInput(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            if (event.currentTarget.value) onInput("");
            event.currentTarget.blur();
          }
        }}
      />
    </label>
  );
}

/** Moves a selection with j and k, and opens with Enter. */
export function useRowKeys(count: number, open: (at: number) => void): [number, (at: number) => void] {
  const [selected, select] = useState(-1);
  const current = useRef({ count, open, selected });
  current.current = { count, open, selected };
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const { count, open, selected } = current.current;
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      // The next key may come before the next rendering.
      const moveTo = (at: number) => select((current.current.selected = at));
      if (event.key === "j") moveTo(Math.min(count - 1, selected + 1));
      else if (event.key === "k") moveTo(Math.max(0, selected - 1));
      else if (event.key === "Enter" && selected >= 0 && !(event.target as Element).closest?.("a, button, summary")) open(selected);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return [selected, select];
}

export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement | null;
  return !!target?.closest?.("input, textarea, select, [contenteditable], dialog[open]");
}
