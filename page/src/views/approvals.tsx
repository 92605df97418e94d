// Approvals: commands that wait for a decision, devices and senders that want access, and earlier decisions.
import { useEffect } from "preact/hooks";
import { ApprovalCard, useApprovals } from "../lib/approval";
import { RemoveButton } from "../lib/actions";
import { call, may, offers, on } from "../lib/connection";
import { visible } from "../lib/format";
import { act, Badge, Empty, Head, Problem, Time, useLoad } from "../lib/ui";

interface Device {
  deviceId: string;
  displayName?: string;
  label?: string;
  platform?: string;
  clientId?: string;
  scopes?: string[];
  lastSeenAtMs?: number;
  approvedAtMs?: number;
}
interface PairRequest extends Device {
  requestId: string;
  ts?: number;
  remoteIp?: string;
}
interface SenderRequest {
  requestId: string;
  channel: string;
  channelLabel: string;
  accountId: string | null;
  senderId: string;
  senderLabel: string;
  createdAt: string;
}
interface Decided {
  id: string;
  resolvedAtMs: number;
  status: string;
  decision?: string;
  presentation: { commandText: string; agentId?: string };
}
interface Data {
  devices: { pending: PairRequest[]; paired: Device[] };
  senders: { requests: SenderRequest[]; channels: { channel: string; approved: string[]; approvedByAccount?: Record<string, string[]> }[] };
  history: Decided[];
}

async function load(): Promise<Data> {
  const [devices, senders, history] = await Promise.all([
    may("pairing") ? call<Data["devices"]>("device.pair.list") : { pending: [], paired: [] },
    offers("channels.pairing.list") && may("read") ? call<Data["senders"]>("channels.pairing.list") : { requests: [], channels: [] },
    may("approvals") ? call<{ items: Decided[] }>("approval.history", { limit: 50 }) : { items: [] },
  ]);
  return { devices, senders, history: history.items };
}

export default function Approvals() {
  const pending = useApprovals();
  const { data, error, reload } = useLoad(load);
  useEffect(() => {
    const stops = ["exec.approval.resolved", "device.pair.requested", "device.pair.resolved"].map((event) => on(event, reload));
    return () => stops.forEach((stop) => stop());
  }, []);
  const approved = (data?.senders.channels ?? []).flatMap(({ channel, approved, approvedByAccount }) => [
    ...approved.map((id) => ({ channel, accountId: undefined, id })),
    ...Object.entries(approvedByAccount ?? {}).flatMap(([accountId, ids]) => ids.map((id) => ({ channel, accountId, id }))),
  ]);
  const nothing = data && pending.length + data.devices.pending.length + data.senders.requests.length === 0;
  const after = (done: Promise<boolean>) => void done.then(reload);
  return (
    <section class="view" aria-label="Approvals">
      <Head title="Approvals" />
      {error ? <Problem error={error} retry={reload} /> : null}
      {pending.map((approval) => (
        <ApprovalCard key={approval.id} approval={approval} showSession />
      ))}
      {data?.devices.pending.map((request) => (
        <section class="card" key={request.requestId} aria-label="Pairing request of a device">
          <header>
            <Badge tone="warn">device</Badge>
            <span>
              {visible(request.displayName ?? request.clientId ?? "A client")} {request.remoteIp ? `from ${request.remoteIp}` : ""} wants {(request.scopes ?? []).map((scope) => scope.replace("operator.", "")).join(", ") || "access"}.
            </span>
          </header>
          <p class="mono muted small">{request.deviceId}</p>
          <div class="actions start">
            <button type="button" class="primary" onClick={() => after(act(() => call("device.pair.approve", { requestId: request.requestId }), "Approved"))}>
              Approve
            </button>
            <button type="button" onClick={() => after(act(() => call("device.pair.reject", { requestId: request.requestId }), "Rejected"))}>
              Reject
            </button>
          </div>
        </section>
      ))}
      {data?.senders.requests.map((request) => (
        <section class="card" key={`${request.channel}/${request.requestId}`} aria-label="Pairing request of a sender">
          <header>
            <Badge tone="warn">{request.channelLabel}</Badge>
            <span>
              {visible(request.senderLabel)} ({visible(request.senderId)}) wants to write to the agent. Code {request.requestId}.
            </span>
            <span class="spacer" />
            <Time at={Date.parse(request.createdAt)} relative />
          </header>
          <div class="actions start">
            <button type="button" class="primary" disabled={!may("pairing")} onClick={() => after(act(() => call("channels.pairing.approve", { channel: request.channel, code: request.requestId, notify: true }), "Approved"))}>
              Approve
            </button>
            <button type="button" disabled={!may("pairing")} onClick={() => after(act(() => call("channels.pairing.dismiss", { channel: request.channel, requestId: request.requestId }), "Dismissed"))}>
              Dismiss
            </button>
          </div>
        </section>
      ))}
      {nothing ? <Empty title="Nothing waits for you">Commands that need approval, new devices and unknown senders appear here.</Empty> : null}
      {data?.devices.paired.length ? (
        <section>
          <h2>Devices</h2>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Device</th>
                <th scope="col" class="narrow-hide">
                  Permissions
                </th>
                <th scope="col">
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {data.devices.paired.map((device) => (
                <tr key={device.deviceId}>
                  <th scope="row">
                    {visible(device.label ?? device.displayName ?? device.clientId ?? "device")}
                    <div class="mono muted small">{device.deviceId.slice(0, 16)}…</div>
                  </th>
                  <td class="narrow-hide">{(device.scopes ?? []).map((scope) => scope.replace("operator.", "")).join(", ")}</td>
                  <td class="tools">
                    <RemoveButton name={device.label ?? device.displayName ?? device.deviceId} title="Remove this device?" text="Its token becomes invalid at once, and its connections are closed." remove={() => call("device.pair.remove", { deviceId: device.deviceId })} after={reload} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      ) : null}
      {approved.length ? (
        <section>
          <h2>Approved senders</h2>
          <ul class="rows">
            {approved.map(({ channel, accountId, id }) => (
              <li key={`${channel}/${accountId ?? ""}/${id}`}>
                <span class="grow">
                  {channel}
                  {accountId ? ` ${visible(accountId)}` : ""}: {visible(id)}
                </span>
                <RemoveButton action="Revoke" done="Revoked" name={id} title="Revoke this sender?" text="Their messages are ignored from now on." disabled={!may("pairing")} remove={() => call("channels.pairing.revoke", { channel, id, ...(accountId ? { accountId } : {}) })} after={reload} />
              </li>
            ))}
          </ul>
        </section>
      ) : null}
      {data?.history.length ? (
        <section>
          <h2>Decided</h2>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Decision</th>
                <th scope="col">Command</th>
                <th scope="col">When</th>
              </tr>
            </thead>
            <tbody>
              {data.history.map((decided) => (
                <tr key={decided.id}>
                  <td>
                    <Badge tone={decided.status === "allowed" ? "ok" : decided.status === "denied" ? "bad" : "quiet"}>{decided.decision ?? decided.status}</Badge>
                  </td>
                  <td>
                    <code>{visible(decided.presentation.commandText)}</code>
                  </td>
                  <td>
                    <Time at={decided.resolvedAtMs} relative />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      ) : null}
    </section>
  );
}
