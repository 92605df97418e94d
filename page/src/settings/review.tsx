// What both ways to change the configuration have: problems, the bar with the changes, and the review before they are saved.
import type { ComponentChildren } from "preact";
import { type ConfigChange, type ConfigIssue } from "../lib/config";
import { may, RequestError } from "../lib/connection";
import { Dialog, toast } from "../lib/ui";

export function Issues({ issues, title, tone = "bad" }: { issues: ConfigIssue[]; title: string; tone?: "bad" | "warn" }) {
  return (
    <ul class="causes">
      <li class={tone}>
        <strong>{title}</strong>
        {issues.map((issue, at) => (
          <div key={at}>
            {issue.line ? `line ${issue.line}${issue.column ? `, column ${issue.column}` : ""}: ` : ""}
            {issue.path} {issue.message}
          </div>
        ))}
      </li>
    </ul>
  );
}

export const issuesOf = (error: unknown): ConfigIssue[] => (error instanceof RequestError ? ((error.details?.["issues"] as ConfigIssue[] | undefined) ?? []) : []);

/** Says that a change was saved, and whether it needs a restart. */
export function reportSaved(change: ConfigChange): void {
  if (change.notice) toast(change.notice, "bad");
  else if (change.restart?.required) toast(`Saved. Restart the gateway for ${change.restart.paths.join(", ")}`, "warn");
  else toast("Saved");
}

/** Why a change was not saved. */
export interface Refusal {
  message: string;
  issues: ConfigIssue[];
}

export function Refused({ problem }: { problem: Refusal | null }) {
  return problem ? <Issues title={problem.issues.length ? "Nothing was saved:" : problem.message} issues={problem.issues} /> : null;
}

/** The bar below unsaved changes. */
export function SaveBar({ text, isChanged, discard, review }: { text: string; isChanged: boolean; discard: () => void; review: () => void }) {
  return (
    <div class="save-bar">
      <span>{text}</span>
      <span class="spacer" />
      <button type="button" disabled={!isChanged} onClick={discard}>
        Discard
      </button>
      <button type="button" class="primary" disabled={!isChanged || !may("admin")} onClick={review}>
        Review and save
      </button>
    </div>
  );
}

/** Shows changes before they are saved. */
export function ReviewDialog({ title, children, onClose, save }: { title: string; children: ComponentChildren; onClose: () => void; save: () => void }) {
  return (
    <Dialog title={title} onClose={onClose} wide>
      {children}
      <div class="actions">
        <button type="button" onClick={onClose}>
          Back
        </button>
        <button type="button" class="primary" onClick={save}>
          Save
        </button>
      </div>
    </Dialog>
  );
}
