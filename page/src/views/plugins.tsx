// Plugins: which are installed, and whether they run.
import { SwitchButton } from "../lib/actions";
import { setValue } from "../lib/config";
import { may } from "../lib/connection";
import { visible } from "../lib/format";
import { Badge, Empty, Head, Problem, useCall } from "../lib/ui";

interface Plugin {
  id: string;
  name: string;
  origin: string;
  enabled: boolean;
  state: string;
  version?: string;
  description?: string;
  error?: string;
}

export default function Plugins() {
  const { data, error, reload } = useCall<{ plugins: Plugin[] }>("plugins.list");
  return (
    <section class="view" aria-label="Plugins">
      <Head title="Plugins" />
      {error ? <Problem error={error} retry={reload} /> : null}
      {data && data.plugins.length === 0 ? (
        <Empty title="No plugins yet">
          Install one with <code>homard plugins install</code>; see <code>homard docs plugins</code>.
        </Empty>
      ) : null}
      <ul class="rows">
        {data?.plugins.map((plugin) => (
          <li key={plugin.id}>
            <span class="grow">
              <strong>{visible(plugin.name)}</strong> <span class="muted small">{plugin.version} {plugin.origin}</span>
              <div class="muted small">{visible(plugin.description ?? "")}</div>
              {plugin.error ? <div class="run-error">{visible(plugin.error)}</div> : null}
            </span>
            <Badge tone={plugin.state === "error" ? "bad" : plugin.enabled ? "ok" : "quiet"}>{plugin.state}</Badge>
            {may("admin") ? (
              <SwitchButton name={plugin.name} isOn={plugin.enabled} change={(enabled) => setValue(["plugins", "entries", plugin.id, "enabled"], enabled)} after={reload} />
            ) : null}
          </li>
        ))}
      </ul>
    </section>
  );
}
