// Doctor: the checks of the installation, what they found, and what to do.
import { call, hello } from "../lib/connection";
import { bytes, duration } from "../lib/format";
import { link } from "../lib/router";
import { Badge, Head, Problem, type Tone, useLoad } from "../lib/ui";

interface Finding {
  level: "wrong" | "note";
  message: string;
  toDo: string;
  fixable: boolean;
}

interface Check {
  check: string;
  ok: boolean;
  skipped?: boolean;
  summary: string;
  findings: Finding[];
}

interface Facts {
  info: { osLabel: string; cpuCount: number; loadAverage?: number[]; memoryTotalBytes: number; memoryFreeBytes: number; processMemory?: { rssBytes: number }; uptimeMs: number; pid: number };
  doctor: { ok: boolean; needsAHand: number; fixable: number; checks: Check[] };
}

async function load(): Promise<Facts> {
  const [info, doctor] = await Promise.all([call<Facts["info"]>("system.info"), call<Facts["doctor"]>("doctor.run")]);
  return { info, doctor };
}

/** Views in which the subject of a check is shown or changed. */
const VIEWS: Record<string, string> = { config: "settings", models: "models", channels: "channels", plugins: "plugins", sessions: "sessions" };

const isOnly = (level: Finding["level"], findings: Finding[]) => findings.length > 0 && findings.every((finding) => finding.level === level);

function state({ ok, skipped, findings }: Check): { tone: Tone; text: string } {
  if (skipped) return { tone: "quiet", text: "skipped" };
  if (!ok) return { tone: "bad", text: "wrong" };
  return isOnly("note", findings) ? { tone: "warn", text: "note" } : { tone: "ok", text: "ok" };
}

function CheckRow({ check }: { check: Check }) {
  const { tone, text } = state(check);
  const view = VIEWS[check.check];
  // As on the command line: the summary would contradict a problem.
  const hasProblem = check.findings.some(({ level }) => level === "wrong");
  return (
    <tr>
      <th scope="row">{view ? <a href={link(view)}>{check.check}</a> : check.check}</th>
      <td>
        <Badge tone={tone}>{text}</Badge>
      </td>
      <td class="check">
        {hasProblem ? null : <p>{check.summary}</p>}
        {check.findings.length ? (
          <ul>
            {check.findings.map((finding, at) => (
              <li key={at}>
                <p>{finding.message}</p>
                <p class="muted">
                  To do: {finding.toDo}
                  {finding.fixable ? ", or: homard doctor --fix" : ""}
                </p>
              </li>
            ))}
          </ul>
        ) : null}
      </td>
    </tr>
  );
}

function Result({ doctor }: { doctor: Facts["doctor"] }) {
  const { needsAHand: open, fixable } = doctor;
  return (
    <p role="status">
      {open === 0 ? "Everything looks good." : open === 1 ? "1 problem was found." : `${open} problems were found.`}
      {fixable ? (
        <>
          {" "}
          <code>homard doctor --fix</code> on the gateway's machine fixes {fixable === 1 ? "one of the findings" : `${fixable} of the findings`} without losing data.
        </>
      ) : null}
    </p>
  );
}

export default function Doctor() {
  const { data, error, reload } = useLoad(load);
  return (
    <section class="view" aria-label="Doctor">
      <Head title="Doctor">
        <button type="button" onClick={reload}>
          Check again
        </button>
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {data ? (
        <>
          <Result doctor={data.doctor} />
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Check</th>
                <th scope="col">Result</th>
                <th scope="col">What was found</th>
              </tr>
            </thead>
            <tbody>
              {data.doctor.checks.map((check) => (
                <CheckRow key={check.check} check={check} />
              ))}
            </tbody>
          </table>
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
