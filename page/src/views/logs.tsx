// Logs: follow, filter, level.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, RequestError } from "../lib/connection";
import { clock, visible } from "../lib/format";
import { route, setParams } from "../lib/router";
import { Head, messageOf, Problem, Search } from "../lib/ui";
import { VirtualRows } from "../lib/virtual";

const LEVELS = ["trace", "debug", "info", "warn", "error"];
const POLL_MS = 1_000;
const MAX_LINES = 20_000;
const ROW_HEIGHT = 24;

export interface Line {
  at: number;
  level: string;
  subsystem: string;
  text: string;
}

export function parseLine(raw: string): Line {
  try {
    const line = JSON.parse(raw) as { time?: string; level?: string; subsystem?: string; message?: string };
    return { at: Date.parse(line.time ?? "") || 0, level: (line.level ?? "info").toLowerCase(), subsystem: line.subsystem ?? "", text: line.message ?? raw };
  } catch {
    // A line that the gateway did not write is shown as it is.
    return { at: 0, level: "info", subsystem: "", text: raw };
  }
}

export default function Logs() {
  const { params } = route.value;
  const [level, search] = [params.get("level") ?? "info", params.get("search") ?? ""];
  const [lines, setLines] = useState<Line[]>([]);
  const [follow, setFollow] = useState(true);
  const [file, setFile] = useState("");
  const [error, setError] = useState<string | null>(null);
  const cursor = useRef<number | undefined>(undefined);
  useEffect(() => {
    let isGone = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const read = async () => {
      try {
        const page = await call<{ lines: string[]; cursor: number; reset: boolean; file: string }>("logs.tail", { limit: 5_000, maxBytes: 1_000_000, ...(cursor.current === undefined ? {} : { cursor: cursor.current }) });
        if (isGone) return;
        cursor.current = page.cursor;
        setFile(page.file);
        if (page.lines.length) setLines((old) => [...(page.reset ? [] : old), ...page.lines.map(parseLine)].slice(-MAX_LINES));
        setError(null);
      } catch (failed) {
        if (!(failed instanceof RequestError && failed.isLost)) setError(messageOf(failed));
        // A new process has a new log buffer.
        else cursor.current = undefined;
      }
      if (!isGone) timer = setTimeout(() => void read(), POLL_MS);
    };
    void read();
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, []);
  const from = LEVELS.indexOf(level);
  const words = search.toLowerCase();
  const shown = lines.filter((line) => LEVELS.indexOf(line.level) >= from && (!words || `${line.text} ${line.subsystem}`.toLowerCase().includes(words)));
  return (
    <section class="view full" aria-label="Logs">
      <Head title="Logs">
        <Search value={search} onInput={(search) => setParams({ search })} label="Search the log" />
        <label class="pick">
          <span class="visually-hidden">Level</span>
          <select value={level} onChange={(event) => setParams({ level: event.currentTarget.value })}>
            {LEVELS.map((name) => (
              <option key={name} value={name}>
                {name === "error" ? "errors" : `${name} and above`}
              </option>
            ))}
          </select>
        </label>
        <label class="check small">
          <input type="checkbox" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} /> follow
        </label>
      </Head>
      {error ? <Problem error={error} /> : null}
      {shown.length === 0 ? <p class="muted">{lines.length ? "No line matches." : "The log is empty."}</p> : null}
      <VirtualRows
        class="log-rows"
        label={`Log lines of ${file}`}
        role="list"
        count={shown.length}
        rowHeight={ROW_HEIGHT}
        follow={follow}
        row={(at) => {
          const line = shown[at]!;
          return (
            <div key={at} role="listitem" class={`log-line ${line.level}`} title={visible(line.text)}>
              <span class="muted num">{line.at ? clock(line.at) : ""}</span>
              <span>{line.level}</span>
              <span class="muted">{line.subsystem.replace("homard::", "")}</span>
              <span>{visible(line.text)}</span>
            </div>
          );
        }}
      />
    </section>
  );
}
