// Hooks: those that the configuration names, and the switch for all of them.
import { readConfig, setValue, valueAt } from "../lib/config";
import { may } from "../lib/connection";
import { visible } from "../lib/format";
import { link } from "../lib/router";
import { act, Badge, Empty, Head, Problem, useLoad } from "../lib/ui";

export default function Hooks() {
  const { data, error, reload } = useLoad(readConfig);
  const entries = Object.entries((valueAt(data?.parsed, ["hooks", "internal", "entries"]) ?? {}) as Record<string, { enabled?: boolean }>);
  const isOn = valueAt(data?.parsed, ["hooks", "internal", "enabled"]) === true;
  return (
    <section class="view" aria-label="Hooks">
      <Head title="Hooks">
        <a class="button" href={link("settings", "", { search: "hooks" })}>
          Settings
        </a>
        {data && may("admin") ? (
          <button type="button" onClick={() => void act(() => setValue(["hooks", "internal", "enabled"], !isOn), isOn ? "Hooks are disabled" : "Hooks are enabled").then(reload)}>
            {isOn ? "Disable all" : "Enable hooks"}
          </button>
        ) : null}
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {data && entries.length === 0 ? (
        <Empty title="No hooks are configured">
          <code>homard hooks list</code> shows those that are installed; <code>homard hooks enable NAME</code> enables one. What they decide is shown in the timeline of each run.
        </Empty>
      ) : null}
      <ul class="rows">
        {entries.map(([name, entry]) => (
          <li key={name}>
            <span class="grow">
              <strong>{visible(name)}</strong>
            </span>
            <Badge tone={entry.enabled === false ? "quiet" : isOn ? "ok" : "warn"}>{entry.enabled === false ? "disabled" : isOn ? "enabled" : "hooks are off"}</Badge>
            {may("admin") ? (
              <button type="button" class="small" aria-label={`${entry.enabled === false ? "Enable" : "Disable"} ${name}`} onClick={() => void act(() => setValue(["hooks", "internal", "entries", name, "enabled"], entry.enabled === false)).then(reload)}>
                {entry.enabled === false ? "Enable" : "Disable"}
              </button>
            ) : null}
          </li>
        ))}
      </ul>
    </section>
  );
}
