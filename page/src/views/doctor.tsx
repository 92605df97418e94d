// Doctor: what the gateway itself knows to be wrong, and where to look further.
import { call, health, hello } from "../lib/connection";
import { bytes, duration } from "../lib/format";
import { link } from "../lib/router";
import { Badge, Head, Problem, useLoad } from "../lib/ui";

interface Check {
  name: string;
  tone: "ok" | "bad" | "warn";
  text: string;
  next?: { text: string; href?: string };
}

interface Facts {
  info: { osLabel: string; cpuCount: number; loadAverage?: number[]; memoryTotalBytes: number; memoryFreeBytes: number; processMemory?: { rssBytes: number }; uptimeMs: number; pid: number };
  checks: Check[];
}

async function load(): Promise<Facts> {
  const [info, config, held, models, channels, plugins, skills, audit] = await Promise.all([
    call<Facts["info"]>("system.info"),
    call<{ valid: boolean; path: string; issues: { message: string; path: string }[]; warnings: { message: string; path: string }[] }>("config.get"),
    call<{ runs: unknown[] }>("runs.held"),
    call<{ models: { provider: string; id: string; available?: boolean; unavailableReason?: string }[] }>("models.list"),
    call<{ channelAccounts: Record<string, { accountId: string; lastError?: string | null }[]> }>("channels.status"),
    call<{ plugins: { id: string; error?: string }[] }>("plugins.list"),
    call<{ skills: { name: string; eligible?: boolean; disabled?: boolean }[] }>("skills.status"),
    call<{ breaks?: string }>("homard.audit.end").catch(() => null),
  ]);
  const checks: Check[] = [];
  const add = (name: string, problem: string | null, fine: string, next?: Check["next"], tone: Check["tone"] = "bad") => checks.push(problem ? { name, tone, text: problem, ...(next ? { next } : {}) } : { name, tone: "ok", text: fine });
  add("config", config.valid ? null : config.issues.map(({ path, message }) => `${path} ${message}`).join("; "), `${config.path} is valid`, { text: "Settings", href: link("settings") });
  if (config.warnings.length) add("config", config.warnings.map(({ path, message }) => `${path} ${message}`).join("; "), "", { text: "Settings", href: link("settings") }, "warn");
  const missing = models.models.filter(({ available }) => available === false);
  add("models", missing.length ? missing.map(({ provider, id, unavailableReason }) => `${provider}/${id}: ${unavailableReason}`).join("; ") : null, `${models.models.length} models can be used`, { text: "Models", href: link("models") });
  const accounts = Object.entries(channels.channelAccounts).flatMap(([channel, list]) => list.map((account) => ({ channel, ...account })));
  const broken = accounts.filter(({ lastError }) => lastError);
  add("channels", broken.length ? broken.map(({ channel, accountId, lastError }) => `${channel} ${accountId}: ${lastError}`).join("; ") : null, accounts.length ? `${accounts.length} accounts without errors` : "none are configured", { text: "Channels", href: link("channels") });
  const failing = plugins.plugins.filter(({ error }) => error);
  add("plugins", failing.length ? failing.map(({ id, error }) => `${id}: ${error}`).join("; ") : null, plugins.plugins.length ? `${plugins.plugins.length} plugins without errors` : "none are installed", { text: "Plugins", href: link("plugins") });
  const unusable = skills.skills.filter(({ eligible, disabled }) => eligible === false && !disabled);
  add("skills", unusable.length ? `not usable: ${unusable.map(({ name }) => name).join(", ")}` : null, "nothing is missing", { text: "Skills", href: link("skills") }, "warn");
  add("runs", held.runs.length ? `${held.runs.length} runs are held after repeated crashes` : null, "none is held", { text: "Held runs", href: link("runs", "", { status: "held" }) }, "warn");
  const breaks = audit?.breaks ? (JSON.parse(audit.breaks) as { breaks?: number }).breaks : 0;
  add("audit", breaks ? `${breaks} breaks in the audit log` : null, audit ? "the audit log is intact" : "not readable with this device's permissions", { text: "homard audit verify" });
  return { info, checks };
}

export default function Doctor() {
  const { data, error, reload } = useLoad(load);
  const degraded = (health.value?.degraded ?? []) as { part?: string; reason?: string; message?: string }[];
  return (
    <section class="view" aria-label="Doctor">
      <Head title="Doctor">
        <button type="button" onClick={reload}>
          Check again
        </button>
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {degraded.map((part, at) => (
        <Problem key={at} error={[part.part, part.reason ?? part.message].filter(Boolean).join(": ") || JSON.stringify(part)} />
      ))}
      {data ? (
        <>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Check</th>
                <th scope="col">Result</th>
                <th scope="col">What was found</th>
                <th scope="col">
                  <span class="visually-hidden">Next step</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {data.checks.map((check, at) => (
                <tr key={at}>
                  <th scope="row">{check.name}</th>
                  <td>
                    <Badge tone={check.tone}>{check.tone === "ok" ? "ok" : check.tone === "warn" ? "note" : "wrong"}</Badge>
                  </td>
                  <td>{check.text}</td>
                  <td>{check.next ? check.next.href ? <a href={check.next.href}>{check.next.text}</a> : <code>{check.next.text}</code> : null}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <p>
            <code>homard doctor</code> on the gateway's machine also checks permissions, the disk, the clock, transcripts and the sandbox; <code>homard doctor --fix</code> fixes what loses no data.
          </p>
          <dl class="facts">
            <div>
              <dt>Version</dt>
              <dd>{hello.value?.server.version}</dd>
            </div>
            <div>
              <dt>State directory</dt>
              <dd class="mono">{hello.value?.snapshot.stateDir}</dd>
            </div>
            <div>
              <dt>System</dt>
              <dd>
                {data.info.osLabel}, {data.info.cpuCount} cores
              </dd>
            </div>
            <div>
              <dt>Memory of the gateway</dt>
              <dd>{data.info.processMemory ? bytes(data.info.processMemory.rssBytes) : "?"}</dd>
            </div>
            <div>
              <dt>Free memory</dt>
              <dd>{bytes(data.info.memoryFreeBytes)}</dd>
            </div>
            <div>
              <dt>Up for</dt>
              <dd>{duration(data.info.uptimeMs)}</dd>
            </div>
          </dl>
        </>
      ) : null}
    </section>
  );
}
