// Schedule: jobs, when they run next, and what they did.
import { useEffect, useState } from "preact/hooks";
import { AddButton, FormDialog, RemoveButton, SwitchButton } from "../lib/actions";
import { call, may, on } from "../lib/connection";
import { duration, visible } from "../lib/format";
import { link } from "../lib/router";
import { act, Badge, Dialog, Empty, Head, Problem, Status, Time, useCall, useLoad } from "../lib/ui";

type When = { kind: "at"; at: string } | { kind: "every"; everyMs: number } | { kind: "cron"; expr: string; tz?: string };
interface Job {
  id: string;
  name: string;
  enabled: boolean;
  schedule: When;
  sessionTarget: string;
  payload: { kind: string; message?: string; text?: string };
  agentId?: string;
  state: { nextRunAtMs?: number; lastRunAtMs?: number; lastStatus?: string; lastError?: string; runningAtMs?: number | null; lastDurationMs?: number; consecutiveErrors?: number };
}

const SETTLE_MS = 400;

export function describe(when: When): string {
  if (when.kind === "at") return `once at ${when.at}`;
  if (when.kind === "every") return `every ${duration(when.everyMs)}`;
  return `${when.expr}${when.tz ? ` (${when.tz})` : ""}`;
}

export default function Schedule() {
  const { data, error, reload } = useLoad(() => call<{ jobs: Job[] }>("cron.list", { includeDisabled: true }));
  const [opened, open] = useState<Job | null>(null);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    // The event of a job's end comes before its state is stored.
    const stop = on("cron", () => {
      clearTimeout(timer);
      timer = setTimeout(reload, SETTLE_MS);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, []);
  const after = (done: Promise<boolean>) => void done.then(reload);
  const isAdmin = may("admin");
  return (
    <section class="view" aria-label="Schedule">
      <Head title="Schedule">
        {isAdmin ? (
          <AddButton label="Add a job" after={reload}>
            {(close) => <AddJob onClose={close} />}
          </AddButton>
        ) : null}
      </Head>
      {error ? <Problem error={error} retry={reload} /> : null}
      {data && data.jobs.length === 0 ? <Empty title="No scheduled jobs">A job gives the agent a message at a time, or again and again. An agent can create jobs, too.</Empty> : null}
      {data?.jobs.length ? (
        <div class="table-box">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Job</th>
                <th scope="col">When</th>
                <th scope="col" class="num">
                  Next
                </th>
                <th scope="col">Last</th>
                <th scope="col">
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {data.jobs.map((job) => (
                <tr key={job.id}>
                  <th scope="row">
                    {visible(job.name)} {job.enabled ? null : <Badge tone="quiet">disabled</Badge>}
                    <div class="muted small">{visible(job.payload.message ?? job.payload.text ?? "").slice(0, 160)}</div>
                  </th>
                  <td>{describe(job.schedule)}</td>
                  <td class="num">{job.enabled && job.state.nextRunAtMs ? <Time at={job.state.nextRunAtMs} relative /> : "never"}</td>
                  <td>
                    {job.state.runningAtMs ? (
                      <Badge tone="live">running</Badge>
                    ) : job.state.lastRunAtMs ? (
                      <>
                        <Status status={job.state.lastStatus ?? "ok"} /> <Time at={job.state.lastRunAtMs} relative />
                      </>
                    ) : (
                      ""
                    )}
                    {job.state.lastError ? <div class="run-error">{visible(job.state.lastError)}</div> : null}
                  </td>
                  <td class="tools">
                    <button type="button" class="small" onClick={() => open(job)}>
                      History
                    </button>
                    {isAdmin ? (
                      <>
                        <button type="button" class="small" onClick={() => after(act(() => call("cron.run", { id: job.id, mode: "force" }), "Started"))}>
                          Run now
                        </button>
                        <SwitchButton name={job.name} isOn={job.enabled} change={(enabled) => call("cron.update", { id: job.id, patch: { enabled } })} after={reload} />
                        <RemoveButton name={job.name} title="Remove this job?" text={`${job.name} does not run again.`} remove={() => call("cron.remove", { id: job.id })} after={reload} />
                      </>
                    ) : null}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
      {opened ? <History job={opened} onClose={() => open(null)} /> : null}
    </section>
  );
}

function History({ job, onClose }: { job: Job; onClose: () => void }) {
  const { data, error } = useCall<{ entries: { ts: number; status: string; runId?: string; durationMs?: number; summary?: string; error?: string }[] }>("cron.runs", { id: job.id }, [job.id]);
  return (
    <Dialog title={job.name} onClose={onClose} wide>
      {error ? <Problem error={error} /> : null}
      {data?.entries.length === 0 ? <p class="muted">It has not run yet.</p> : null}
      <ul class="rows">
        {data?.entries.map((entry, at) => (
          <li key={at}>
            <Status status={entry.status} />
            <Time at={entry.ts} />
            <span class="grow">{visible(entry.error ?? entry.summary ?? "").slice(0, 300)}</span>
            {entry.durationMs !== undefined ? <span class="muted num">{duration(entry.durationMs)}</span> : null}
            {entry.runId ? <a href={link("runs", entry.runId)}>run</a> : null}
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

function AddJob({ onClose }: { onClose: () => void }) {
  const [kind, setKind] = useState<"cron" | "every" | "at">("cron");
  const [name, setName] = useState("");
  const [message, setMessage] = useState("");
  const [value, setValue] = useState("0 9 * * *");
  const submit = () => {
    const schedule: When = kind === "cron" ? { kind, expr: value } : kind === "every" ? { kind, everyMs: Math.round(Number(value) * 60_000) } : { kind, at: new Date(value).toISOString() };
    return call("cron.add", { name, schedule, sessionTarget: "isolated", wakeMode: "now", payload: { kind: "agentTurn", message } });
  };
  return (
    <FormDialog title="Add a job" submit={submit} done="Added" onClose={onClose}>
        <label>
          Name
          <input required autofocus value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label>
          Message for the agent
          <textarea required rows={3} value={message} onInput={(event) => setMessage(event.currentTarget.value)} />
        </label>
        <label>
          When
          <select
            value={kind}
            onChange={(event) => {
              const next = event.currentTarget.value as typeof kind;
              setKind(next);
              setValue(next === "cron" ? "0 9 * * *" : next === "every" ? "60" : "");
            }}
          >
            <option value="cron">by a cron expression</option>
            <option value="every">every few minutes</option>
            <option value="at">once</option>
          </select>
        </label>
        <label>
          {kind === "cron" ? "Cron expression: minute, hour, day, month, weekday" : kind === "every" ? "Minutes" : "Time"}
          {kind === "cron" ? (
            <input required type="text" value={value} onInput={(event) => setValue(event.currentTarget.value)} />
          ) : kind === "every" ? (
            <input required type="number" min={1} value={value} onInput={(event) => setValue(event.currentTarget.value)} />
          ) : (
            <input required type="datetime-local" value={value} onInput={(event) => setValue(event.currentTarget.value)} />
          )}
        </label>
    </FormDialog>
  );
}
