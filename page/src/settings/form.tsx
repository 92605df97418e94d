// A form for every key of the configuration.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { EditDiff } from "../chat/tool";
import { type ConfigFile, merge, nested, patchConfig, valueAt } from "../lib/config";
import { route, setParams } from "../lib/router";
import { Empty, messageOf } from "../lib/ui";
import { Field, pretty } from "./field";
import { issuesOf, Refused, ReviewDialog, SaveBar, reportSaved, type Refusal } from "./review";
import { matches, type Setting } from "./schema";

export interface FormData {
  file: ConfigFile;
  settings: Setting[];
}

type Changes = Map<string, { setting: Setting; value: unknown }>;

export function Form({ data, reload }: { data: FormData; reload: () => void }) {
  const query = route.value.params.get("search") ?? "";
  const [section, setSection] = useState("");
  const [changes, setChanges] = useState<Changes>(new Map());
  const [isReview, review] = useState(false);
  const [problem, setProblem] = useState<Refusal | null>(null);
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
      reportSaved(change);
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
      {changes.size ? <SaveBar text={`${changes.size} change${changes.size > 1 ? "s" : ""}`} isChanged discard={() => setChanges(new Map())} review={() => review(true)} /> : null}
      {isReview ? (
        <ReviewDialog title="Save these changes?" onClose={() => review(false)} save={() => void save()}>
          <Refused problem={problem} />
          {[...changes.values()].map(({ setting, value }) => (
            <div key={setting.name}>
              <p class="mono">{setting.name}</p>
              <EditDiff edit={{ before: pretty(valueAt(file.parsed, setting.path)), after: value === null ? "" : pretty(value) }} />
            </div>
          ))}
          <p class="muted small">Most changes take effect at once. If one needs a restart, this is said after saving. Comments in the file stay.</p>
        </ReviewDialog>
      ) : null}
    </>
  );
}
