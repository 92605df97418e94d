// A tool call: arguments, result, duration, and the difference for edits.
import { useState } from "preact/hooks";
import { diffLines, withContext } from "../lib/diff";
import { bytes, duration, visible } from "../lib/format";
import { Code } from "../lib/markdown";
import { Badge, copyText, Icon } from "../lib/ui";
import { VirtualRows } from "../lib/virtual";
import type { Block, ToolView } from "./transcript";

const MAX_SUMMARY = 120;
/** Longer texts are shown with virtual rows. */
const MANY_LINES = 120;
const LINE_HEIGHT = 18;

type Args = Record<string, unknown>;
const argsOf = (value: unknown): Args => (value && typeof value === "object" && !Array.isArray(value) ? (value as Args) : {});
const text = (value: unknown) => (typeof value === "string" ? value : undefined);

/** The argument that tells most about a call, in one line. */
export function summary(name: string, value: unknown): string {
  const args = argsOf(value);
  const found = text(args["command"]) ?? text(args["path"]) ?? text(args["file_path"]) ?? text(args["pattern"]) ?? text(args["query"]) ?? text(args["url"]) ?? text(args["action"]) ?? text(args["task"]) ?? text(args["to"]);
  const rest = found ?? (Object.keys(args).length ? JSON.stringify(args) : "");
  const line = visible(rest.replace(/\s+/g, " ").trim());
  return line.length > MAX_SUMMARY ? `${line.slice(0, MAX_SUMMARY)}…` : line || name;
}

export interface Edit {
  before: string;
  after: string;
}

/** The changes that an edit makes. */
export function editsOf(name: string, value: unknown): Edit[] {
  const args = argsOf(value);
  if (!/edit|write/i.test(name)) return [];
  const one = (edit: Args): Edit[] => {
    const before = text(edit["oldText"]) ?? text(edit["old_string"]);
    const after = text(edit["newText"]) ?? text(edit["new_string"]);
    return before === undefined || after === undefined ? [] : [{ before, after }];
  };
  const several = Array.isArray(args["edits"]) ? args["edits"].flatMap((edit) => one(argsOf(edit))) : [];
  const content = text(args["content"]);
  const written = /write/i.test(name) && content !== undefined ? [{ before: "", after: content }] : [];
  return [...one(args), ...several, ...written];
}

export function EditDiff({ edit }: { edit: Edit }) {
  const lines = withContext(diffLines(visible(edit.before), visible(edit.after)).filter((line, at) => !(edit.before === "" && at === 0 && line.kind === "-")));
  return (
    <pre class="diff" tabIndex={0}>
      {lines.map((line, at) =>
        line === null ? (
          <span key={at} class="diff-gap">
            ⋯{"\n"}
          </span>
        ) : (
          <span key={at} class={line.kind === "+" ? "added" : line.kind === "-" ? "removed" : undefined}>
            {line.kind} {line.text}
            {"\n"}
          </span>
        ),
      )}
    </pre>
  );
}

/** A text of any length. */
export function LongText({ value, label }: { value: string; label: string }) {
  const shown = visible(value);
  const lines = shown.split("\n");
  const [query, setQuery] = useState("");
  if (lines.length <= MANY_LINES && shown.length < 40_000)
    return (
      <pre class="plain" tabIndex={0}>
        {shown}
      </pre>
    );
  // A line without breaks would be as wide as the whole text.
  const wrapped = lines.flatMap((line) => (line.length > 2_000 ? (line.match(/[\s\S]{1,2000}/g) ?? []) : [line]));
  const found = query ? wrapped.filter((line) => line.toLowerCase().includes(query.toLowerCase())) : wrapped;
  return (
    <div class="long">
      <div class="long-head">
        <span class="muted small">
          {lines.length.toLocaleString("en-US")} lines, {bytes(value.length)}
        </span>
        <input type="search" aria-label={`Search in ${label}`} placeholder="Search" value={query} onInput={(event) => setQuery(event.currentTarget.value)} />
      </div>
      <VirtualRows
        class="plain long-rows"
        label={label}
        role="list"
        count={found.length}
        rowHeight={LINE_HEIGHT}
        row={(at) => (
          <div key={at} class="long-row" role="listitem">
            {found[at]}
          </div>
        )}
      />
    </div>
  );
}

export function outputText(output: Block[] | null): string {
  return (output ?? []).map((block) => (block.type === "text" ? block.text : block.type === "image" ? `[image ${block.mimeType ?? ""}]` : "")).join("\n");
}

export function ToolBody({ tool }: { tool: ToolView }) {
  const edits = editsOf(tool.name, tool.args);
  const command = text(argsOf(tool.args)["command"]);
  const patch = text(argsOf(tool.args)["patch"]) ?? text(argsOf(tool.args)["input"]);
  const output = outputText(tool.output);
  const exitCode = tool.details?.["exitCode"];
  return (
    <div class="tool-body">
      <div class="part-head">
        <p class="part-title">Arguments</p>
        <button type="button" class="ghost small" onClick={() => void copyText(command ?? JSON.stringify(tool.args, null, 2), "Arguments")}>
          <Icon name="copy" /> Copy
        </button>
      </div>
      {command !== undefined ? (
        <pre class="command" tabIndex={0}>
          <Code text={command} language="sh" />
        </pre>
      ) : edits.length ? (
        <>
          <p class="muted small">{visible(text(argsOf(tool.args)["path"]) ?? text(argsOf(tool.args)["file_path"]) ?? "")}</p>
          {edits.map((edit, at) => (
            <EditDiff key={at} edit={edit} />
          ))}
        </>
      ) : patch !== undefined ? (
        <pre class="diff" tabIndex={0}>
          <Code text={patch} language="diff" />
        </pre>
      ) : (
        <LongText value={typeof tool.args === "string" ? tool.args : (JSON.stringify(tool.args, null, 2) ?? "none")} label={`arguments of ${tool.name}`} />
      )}
      {tool.output ? (
        <>
          <div class="part-head">
            <p class="part-title">Result{typeof exitCode === "number" ? ` (exit code ${exitCode})` : ""}</p>
            <button type="button" class="ghost small" onClick={() => void copyText(output, "Result")}>
              <Icon name="copy" /> Copy
            </button>
          </div>
          {output ? <LongText value={output} label={`result of ${tool.name}`} /> : <p class="muted small">empty</p>}
        </>
      ) : (
        <p class="muted small">{tool.isRunning ? "No output yet." : "The result was not stored."}</p>
      )}
    </div>
  );
}

/** Calls whose cards are open. A card is drawn anew when its message is stored, and stays as the user left it. */
const openCalls = new Set<string>();

export function ToolCard({ tool }: { tool: ToolView }) {
  const [isOpen, setOpen] = useState(openCalls.has(tool.id));
  const toggle = (open: boolean) => {
    if (open) openCalls.add(tool.id);
    else openCalls.delete(tool.id);
    setOpen(open);
  };
  return (
    <details open={isOpen} class={`tool ${tool.isError ? "failed" : ""} ${tool.isRunning ? "running" : ""}`} onToggle={(event) => toggle((event.currentTarget as HTMLDetailsElement).open)}>
      <summary>
        <Icon name="arrow" />
        <span class="tool-name">{visible(tool.name)}</span>
        <code class="tool-summary">{summary(tool.name, tool.args)}</code>
        <span class="spacer" />
        {tool.isRunning ? <Badge tone="live">running</Badge> : tool.isError ? <Badge tone="bad">failed</Badge> : null}
        {tool.ms !== null ? <span class="muted num">{duration(tool.ms)}</span> : null}
      </summary>
      {isOpen ? <ToolBody tool={tool} /> : null}
    </details>
  );
}
