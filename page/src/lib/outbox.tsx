// Messages that did not arrive.
import { visible } from "./format";
import { link } from "./router";
import { Time } from "./ui";

interface Undelivered {
  id: string;
  to: string;
  queuedAt: number;
  runId?: string;
  reason?: string;
}
/** What was not delivered: it waits, it is not known, or it failed for good. */
export interface Outbox {
  waiting: number;
  unknown: Undelivered[];
  failed: Undelivered[];
}

/** Messages that did not arrive, or may not have. */
export function NotDelivered({ outbox: { unknown, failed } }: { outbox: Outbox }) {
  const rows = [...failed.map((one) => ({ ...one, reason: one.reason ?? "no reason" })), ...unknown.map((one) => ({ ...one, reason: "it is not known whether it arrived: the gateway stopped while it was being sent" }))];
  // If the notice about a failure failed, too, there is nothing more to know.
  const known = new Set(rows.map(({ id }) => id));
  const shown = rows.filter(({ id }) => !known.has(id.replace(/\/lost$/, "")) || !id.endsWith("/lost"));
  if (shown.length === 0) return null;
  return (
    <ul class="rows" aria-label="Not delivered">
      {shown.map((row) => (
        <li key={row.id}>
          <span class="grow">
            {row.runId ? <a href={link("runs", row.runId)}>to {visible(row.to)}</a> : `to ${visible(row.to)}`}
            <div class="run-error">{visible(row.reason)}</div>
          </span>
          <Time at={row.queuedAt} relative />
        </li>
      ))}
    </ul>
  );
}
