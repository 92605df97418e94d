// Requests to run a command, as cards with the decision.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, may, on, onOpen } from "./connection";
import { visible } from "./format";
import { act, Badge, Time } from "./ui";

export interface Approval {
  id: string;
  createdAtMs: number;
  expiresAtMs: number;
  request: { command: string; cwd?: string | null; agentId?: string; sessionKey?: string | null; allowedDecisions?: string[]; alwaysAllows?: string[]; security?: string | null; host?: string | null };
}

export const approvals = signal<Approval[]>([]);

/** Keeps the list of pending approvals current while a view shows it. */
export function useApprovals(): Approval[] {
  useEffect(() => {
    const read = () => {
      if (may("approvals")) call<Approval[]>("exec.approval.list").then((list) => (approvals.value = list), (error: unknown) => console.warn("cannot list approvals", error));
    };
    const stops = [onOpen(read), on("exec.approval.requested", read), on("exec.approval.resolved", read)];
    return () => stops.forEach((stop) => stop());
  }, []);
  return approvals.value;
}

const DECISIONS: Record<string, string> = { "allow-once": "Allow once", "allow-always": "Always allow", deny: "Deny" };

export function ApprovalCard({ approval, showSession = false }: { approval: Approval; showSession?: boolean }) {
  const { request } = approval;
  const decide = (decision: string) => act(() => call("exec.approval.resolve", { id: approval.id, decision }), decision === "deny" ? "Denied" : "Allowed");
  return (
    <section class="card approval" aria-label="Approval request">
      <header>
        <Badge tone="warn">approval</Badge>
        <span>
          The agent {request.agentId ?? "main"} wants to run a command{showSession && request.sessionKey ? ` in ${request.sessionKey}` : ""}.
        </span>
        <span class="spacer" />
        <span class="muted">
          expires <Time at={approval.expiresAtMs} relative />
        </span>
      </header>
      <pre class="command" tabIndex={0}>{visible(request.command)}</pre>
      {request.cwd ? <p class="muted small">in {visible(request.cwd)}</p> : null}
      {request.alwaysAllows?.length ? <p class="muted small">Always allow: {request.alwaysAllows.map(visible).join(" · ")}</p> : null}
      <div class="actions start">
        {(request.allowedDecisions ?? ["allow-once", "deny"]).map((decision) => (
          <button type="button" key={decision} class={decision === "allow-once" ? "primary" : undefined} disabled={!may("approvals")} onClick={() => void decide(decision)}>
            {DECISIONS[decision] ?? decision}
          </button>
        ))}
      </div>
    </section>
  );
}
