// Hooks: those that are installed, which of them run, and what the others lack.
import { SwitchButton } from "../lib/actions";
import { setValue } from "../lib/config";
import { call, may } from "../lib/connection";
import { visible } from "../lib/format";
import { link } from "../lib/router";
import { Badge, Empty, Head, Problem, useLoad } from "../lib/ui";

/** A row of `hooks.status`. */
interface Hook {
  name: string;
  hookKey: string;
  description?: string;
  source: string;
  events: string[];
  enabledByConfig: boolean;
  requirementsSatisfied: boolean;
  loadable: boolean;
  blockedReason?: string;
}

export default function Hooks() {
  const { data, error, reload } = useLoad(() => call<{ hooks: Hook[]; managedHooksDir: string; problems: string[] }>("hooks.status"));
  return (
    <section class="view" aria-label="Hooks">
      <Head title="Hooks">
        <a class="button" href={link("settings", "", { search: "hooks" })}>
          Settings
        </a>
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {data?.problems.map((problem) => (
        <Problem key={problem} error={visible(problem)} />
      ))}
      {data && data.hooks.length === 0 ? (
        <Empty title="No hooks yet">
          A hook is a folder with a <code>HOOK.md</code> in <code>{visible(data.managedHooksDir)}</code>; <code>homard hooks new NAME</code> creates one.
        </Empty>
      ) : null}
      <ul class="rows">
        {data?.hooks.map((hook) => (
          <li key={hook.name}>
            <span class="grow">
              <strong>{visible(hook.name)}</strong> <span class="muted small">{visible(hook.source.replace(/^openclaw-/, ""))}</span>
              <div class="muted small">{visible(hook.description ?? "")}</div>
              <div class="muted small">{hook.events.map(visible).join(", ")}</div>
              {hook.enabledByConfig && hook.blockedReason ? <div class="run-error">{visible(hook.blockedReason)}</div> : null}
            </span>
            <Badge tone={hook.loadable ? "ok" : hook.enabledByConfig ? "warn" : "quiet"}>{hook.loadable ? "enabled" : hook.enabledByConfig ? "not usable" : "disabled"}</Badge>
            {may("admin") ? <SwitchButton name={hook.name} isOn={hook.enabledByConfig} change={(enabled) => setValue(["hooks", "internal", "entries", hook.hookKey, "enabled"], enabled)} after={reload} /> : null}
          </li>
        ))}
      </ul>
      <p class="muted small">A change takes effect when the gateway is started again. What hooks decide is shown in the timeline of each run.</p>
    </section>
  );
}
