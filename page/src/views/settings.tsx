// Settings: a form for every key of the schema, and the file itself. Changes are shown before they are saved.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { EditDiff } from "../chat/tool";
import { type ConfigChange, type ConfigFile, type ConfigIssue, merge, nested, patchConfig, readConfig, valueAt } from "../lib/config";
import { call, may, RequestError } from "../lib/connection";
import { route, setParams } from "../lib/router";
import { Badge, Dialog, Empty, Head, messageOf, Problem, Search, toast, useLoad } from "../lib/ui";

export interface Schema {
  type?: string | string[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  enum?: unknown[];
  anyOf?: Schema[];
  description?: string;
  minimum?: number;
  maximum?: number;
  default?: unknown;
}
interface Hint {
  label?: string;
  help?: string;
  sensitive?: boolean;
}

export interface Setting {
  path: string[];
  name: string;
  label: string;
  help: string;
  kind: "boolean" | "number" | "integer" | "text" | "choice" | "json";
  choices: string[];
  isSecret: boolean;
}

/** The keys that have a value of their own, in the order of the schema. */
export function settingsOf(schema: Schema, hints: Record<string, Hint>, path: string[] = []): Setting[] {
  const found: Setting[] = [];
  for (const [key, child] of Object.entries(schema.properties ?? {})) {
    const here = [...path, key];
    const plain = withoutNull(child);
    if (plain.properties && Object.keys(plain.properties).length) {
      found.push(...settingsOf(plain, hints, here));
      continue;
    }
    const name = here.join(".");
    const hint = hints[name];
    const choices = (plain.enum ?? []).filter((choice): choice is string => typeof choice === "string");
    const types = [plain.type ?? []].flat().filter((type) => type !== "null");
    const kind = choices.length ? "choice" : types.length === 1 && !plain.anyOf ? ({ boolean: "boolean", number: "number", integer: "integer", string: "text" } as const)[types[0]!] : undefined;
    found.push({ path: here, name, label: hint?.label ?? key, help: hint?.help ?? child.description ?? "", kind: kind ?? "json", choices, isSecret: hint?.sensitive === true });
  }
  return found;
}

function withoutNull(schema: Schema): Schema {
  const options = (schema.anyOf ?? []).filter(({ type }) => type !== "null");
  return options.length === 1 && options[0] ? { description: schema.description ?? "", ...options[0] } : schema;
}

/** Words of a search in the name, the label or the help of a setting. */
export function matches(setting: Setting, query: string): boolean {
  const text = `${setting.name} ${setting.label} ${setting.help}`.toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

interface Data {
  file: ConfigFile;
  settings: Setting[];
}

async function load(): Promise<Data> {
  const [file, { schema, uiHints }] = await Promise.all([readConfig(), call<{ schema: Schema; uiHints: Record<string, Hint> }>("config.schema")]);
  return { file, settings: settingsOf(schema, uiHints) };
}

type Changes = Map<string, { setting: Setting; value: unknown }>;

export default function Settings() {
  const { data, error, reload } = useLoad(load);
  const isRaw = route.value.params.get("pane") === "file";
  return (
    <section class="view full" aria-label="Settings">
      <Head title="Settings">
        {isRaw ? null : <Search value={route.value.params.get("search") ?? ""} onInput={(search) => setParams({ search })} label="Search settings" />}
        <div class="tabs" role="tablist" aria-label="How settings are shown">
          <button type="button" role="tab" aria-selected={!isRaw} onClick={() => setParams({ pane: undefined })}>
            Form
          </button>
          <button type="button" role="tab" aria-selected={isRaw} onClick={() => setParams({ pane: "file" })}>
            File
          </button>
        </div>
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {data && !data.file.valid ? <Issues issues={data.file.issues} title="The file is not valid; the last valid configuration is in use." /> : null}
      {data?.file.warnings.length ? <Issues issues={data.file.warnings} title="Notes about the configuration" tone="warn" /> : null}
      {data ? isRaw ? <FileEditor key={data.file.hash} file={data.file} reload={reload} /> : <Form data={data} reload={reload} /> : null}
    </section>
  );
}

function Issues({ issues, title, tone = "bad" }: { issues: ConfigIssue[]; title: string; tone?: "bad" | "warn" }) {
  return (
    <ul class="causes">
      <li class={tone}>
        <strong>{title}</strong>
        {issues.map((issue, at) => (
          <div key={at}>
            {issue.line ? `line ${issue.line}${issue.column ? `, column ${issue.column}` : ""}: ` : ""}
            {issue.path} {issue.message}
          </div>
        ))}
      </li>
    </ul>
  );
}

const issuesOf = (error: unknown): ConfigIssue[] => (error instanceof RequestError ? ((error.details?.["issues"] as ConfigIssue[] | undefined) ?? []) : []);

function told(change: ConfigChange): void {
  if (change.notice) toast(change.notice, "bad");
  else if (change.restart?.required) toast(`Saved. Restart the gateway for ${change.restart.paths.join(", ")}`, "warn");
  else toast("Saved");
}

function Form({ data, reload }: { data: Data; reload: () => void }) {
  const query = route.value.params.get("search") ?? "";
  const [section, setSection] = useState("");
  const [changes, setChanges] = useState<Changes>(new Map());
  const [isReview, review] = useState(false);
  const [problem, setProblem] = useState<{ message: string; issues: ConfigIssue[] } | null>(null);
  const { file, settings } = data;
  // Until the file was read again after a change, what was written is newer than what is shown.
  const written = useRef<string | null>(null);
  useEffect(() => {
    written.current = null;
  }, [file.hash]);
  const sections = useMemo(() => [...new Set(settings.map(({ path }) => path[0]!))], [settings]);
  const isSet = (setting: Setting) => valueAt(file.parsed, setting.path) !== undefined;
  const shown = settings.filter((setting) => (query ? matches(setting, query) : section ? setting.path[0] === section : isSet(setting)));
  const change = (setting: Setting, value: unknown) => {
    const next = new Map(changes);
    if (JSON.stringify(value) === JSON.stringify(valueAt(file.parsed, setting.path) ?? null)) next.delete(setting.name);
    else next.set(setting.name, { setting, value });
    setChanges(next);
    setProblem(null);
  };
  const save = async () => {
    try {
      const all = [...changes.values()].reduce<Record<string, unknown>>((tree, { setting, value }) => merge(tree, nested(setting.path, value)), {});
      const replaced = [...changes.values()].filter(({ setting }) => setting.kind === "json").map(({ setting }) => setting.name);
      const change = await patchConfig(all, written.current ?? file.hash, replaced);
      written.current = change.hash;
      told(change);
      setChanges(new Map());
      review(false);
      reload();
    } catch (error) {
      setProblem({ message: messageOf(error), issues: issuesOf(error) });
    }
  };
  return (
    <>
      <div class="settings">
        <nav class="settings-nav" aria-label="Sections">
          {["", ...sections].map((name) => (
            <button
              key={name}
              type="button"
              aria-current={!query && name === section ? "true" : undefined}
              onClick={() => {
                setSection(name);
                setParams({ search: undefined });
              }}
            >
              {name || "configured"}
              <span class="muted num">{settings.filter((setting) => (name ? setting.path[0] === name : isSet(setting))).length}</span>
            </button>
          ))}
        </nav>
        <div class="settings-list" tabIndex={0} role="group" aria-label="Settings">
          {shown.length === 0 ? <Empty title={query ? "No setting matches" : "Nothing is configured yet"} /> : null}
          {shown.slice(0, 150).map((setting) => (
            <Field key={setting.name} setting={setting} stored={valueAt(file.parsed, setting.path)} changed={changes.get(setting.name)} onChange={(value) => change(setting, value)} />
          ))}
          {shown.length > 150 ? <p class="muted">{shown.length - 150} more: search for them.</p> : null}
        </div>
      </div>
      {changes.size ? (
        <div class="save-bar">
          <span>
            {changes.size} change{changes.size > 1 ? "s" : ""}
          </span>
          <span class="spacer" />
          <button type="button" onClick={() => setChanges(new Map())}>
            Discard
          </button>
          <button type="button" class="primary" onClick={() => review(true)}>
            Review and save
          </button>
        </div>
      ) : null}
      {isReview ? (
        <Dialog title="Save these changes?" onClose={() => review(false)} wide>
          {problem ? <Issues title={problem.issues.length ? "Nothing was saved:" : problem.message} issues={problem.issues} /> : null}
          {[...changes.values()].map(({ setting, value }) => (
            <div key={setting.name}>
              <p class="mono">{setting.name}</p>
              <EditDiff edit={{ before: pretty(valueAt(file.parsed, setting.path)), after: value === null ? "" : pretty(value) }} />
            </div>
          ))}
          <p class="muted small">Most changes take effect at once. If one needs a restart, this is said after saving. Comments in the file stay.</p>
          <div class="actions">
            <button type="button" onClick={() => review(false)}>
              Back
            </button>
            <button type="button" class="primary" onClick={() => void save()}>
              Save
            </button>
          </div>
        </Dialog>
      ) : null}
    </>
  );
}

const pretty = (value: unknown) => (value === undefined || value === null ? "" : JSON.stringify(value, null, 2));

function Field({ setting, stored, changed, onChange }: { setting: Setting; stored: unknown; changed: { value: unknown } | undefined; onChange: (value: unknown) => void }) {
  const value = changed ? changed.value : stored;
  const id = `setting-${setting.name}`;
  const isAllowed = may("admin");
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState("");
  return (
    <div class={`setting ${changed ? "changed" : ""}`}>
      <div class="setting-name">
        <label for={id}>
          <strong>{setting.label}</strong>
        </label>
        <code>{setting.name}</code>
        {changed ? <Badge tone="warn">changed</Badge> : null}
      </div>
      <p class="muted small" id={`${id}-help`}>
        {setting.help}
      </p>
      <div class="setting-input">
        {setting.kind === "boolean" ? (
          <select id={id} aria-describedby={`${id}-help`} disabled={!isAllowed} value={value === undefined || value === null ? "" : String(value)} onChange={(event) => onChange(event.currentTarget.value === "" ? null : event.currentTarget.value === "true")}>
            <option value="">default</option>
            <option value="true">on</option>
            <option value="false">off</option>
          </select>
        ) : setting.kind === "choice" ? (
          <select id={id} aria-describedby={`${id}-help`} disabled={!isAllowed} value={typeof value === "string" ? value : ""} onChange={(event) => onChange(event.currentTarget.value || null)}>
            <option value="">default</option>
            {setting.choices.map((choice) => (
              <option key={choice} value={choice}>
                {choice}
              </option>
            ))}
          </select>
        ) : setting.kind === "json" ? (
          <textarea
            id={id}
            aria-describedby={`${id}-help`}
            disabled={!isAllowed}
            rows={Math.min(10, pretty(value).split("\n").length)}
            value={text ?? pretty(value)}
            placeholder="default"
            onInput={(event) => setText(event.currentTarget.value)}
            onChange={(event) => {
              const entered = event.currentTarget.value.trim();
              try {
                onChange(entered ? JSON.parse(entered) : null);
                setText(null);
                setError("");
              } catch (failed) {
                setError(messageOf(failed));
              }
            }}
          />
        ) : (
          <input
            id={id}
            aria-describedby={`${id}-help`}
            disabled={!isAllowed}
            type={(setting.isSecret ? "password" : "text") as "text"}
            inputMode={setting.kind === "text" ? undefined : "decimal"}
            autocomplete="off"
            placeholder={setting.isSecret && stored ? "set; enter a new value to replace it" : "default"}
            value={setting.isSecret && !changed ? "" : value === undefined || value === null ? "" : String(value)}
            onChange={(event) => {
              const entered = event.currentTarget.value;
              const number = Number(entered);
              // What is not a number is sent as it is: the gateway explains what the key accepts.
              onChange(entered === "" ? null : setting.kind === "text" || Number.isNaN(number) ? entered : number);
            }}
          />
        )}
        {stored !== undefined && isAllowed && value !== null ? (
          <button type="button" class="ghost small" aria-label={`Reset ${setting.name}`} onClick={() => onChange(null)}>
            Reset to default
          </button>
        ) : null}
      </div>
      {error ? <Problem error={error} /> : null}
    </div>
  );
}

function FileEditor({ file, reload }: { file: ConfigFile; reload: () => void }) {
  const original = file.raw ?? "";
  const [text, setText] = useState(original);
  const [problem, setProblem] = useState<{ message: string; issues: ConfigIssue[] } | null>(null);
  const [isReview, review] = useState(false);
  const lines = text.split("\n");
  const wrong = new Set(problem?.issues.map(({ line }) => line) ?? []);
  const save = async () => {
    review(false);
    try {
      told(await call<ConfigChange>("config.set", { raw: text, ...(file.exists ? { baseHash: file.hash } : {}) }));
      setProblem(null);
      reload();
    } catch (error) {
      const issues = issuesOf(error);
      const at = /line (\d+), column (\d+)/.exec(messageOf(error));
      if (issues.length === 0 && at) issues.push({ path: "", message: messageOf(error).replace(/^.*column \d+: /, ""), line: Number(at[1]), column: Number(at[2]) });
      setProblem({ message: messageOf(error), issues });
    }
  };
  if (file.raw === null) return <Empty title="Only devices with all permissions may read the file" />;
  return (
    <>
      {problem ? <Issues title={problem.issues.length ? "Nothing was saved:" : problem.message} issues={problem.issues} /> : null}
      <p class="muted small">
        <code>{file.path}</code>, JSON5. Secrets are shown as __OPENCLAW_REDACTED__ and stay as they are.
      </p>
      <div class="editor">
        <pre class="editor-lines" aria-hidden="true">
          {lines.map((_, at) => (
            <span key={at} class={wrong.has(at + 1) ? "wrong" : undefined}>
              {at + 1}
              {"\n"}
            </span>
          ))}
        </pre>
        <textarea aria-label="Configuration file" spellcheck={false} disabled={!may("admin")} rows={lines.length + 1} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </div>
      <div class="save-bar">
        <span>{text === original ? "No changes" : "Changed"}</span>
        <span class="spacer" />
        <button type="button" disabled={text === original} onClick={() => setText(original)}>
          Discard
        </button>
        <button type="button" class="primary" disabled={text === original || !may("admin")} onClick={() => review(true)}>
          Review and save
        </button>
      </div>
      {isReview ? (
        <Dialog title="Save this file?" onClose={() => review(false)} wide>
          <EditDiff edit={{ before: original, after: text }} />
          <div class="actions">
            <button type="button" onClick={() => review(false)}>
              Back
            </button>
            <button type="button" class="primary" onClick={() => void save()}>
              Save
            </button>
          </div>
        </Dialog>
      ) : null}
    </>
  );
}
