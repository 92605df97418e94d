// One setting in the form.
import { useState } from "preact/hooks";
import { may } from "../lib/connection";
import { Badge, messageOf, Problem } from "../lib/ui";
import type { Setting } from "./schema";

export const pretty = (value: unknown) => (value === undefined || value === null ? "" : JSON.stringify(value, null, 2));

interface InputProps {
  setting: Setting;
  id: string;
  value: unknown;
  /** The value in the file. */
  stored: unknown;
  isChanged: boolean;
  isAllowed: boolean;
  onChange: (value: unknown) => void;
}

export function Field({ setting, stored, changed, onChange }: { setting: Setting; stored: unknown; changed: { value: unknown } | undefined; onChange: (value: unknown) => void }) {
  const value = changed ? changed.value : stored;
  const id = `setting-${setting.name}`;
  const isAllowed = may("admin");
  const Input = setting.kind === "boolean" ? SwitchInput : setting.kind === "choice" ? ChoiceInput : setting.kind === "json" ? JsonInput : TextInput;
  return (
    <div class={`setting ${changed ? "changed" : ""}`}>
      <div class="setting-name">
        <label for={id}>
          <strong>{setting.label}</strong>
        </label>
        <code>{setting.name}</code>
        {changed ? <Badge tone="warn">changed</Badge> : null}
      </div>
      <p class="muted small" id={`${id}-help`}>
        {setting.help}
      </p>
      <div class="setting-input">
        <Input setting={setting} id={id} value={value} stored={stored} isChanged={changed !== undefined} isAllowed={isAllowed} onChange={onChange} />
        {stored !== undefined && isAllowed && value !== null ? (
          <button type="button" class="ghost small" aria-label={`Reset ${setting.name}`} onClick={() => onChange(null)}>
            Reset to default
          </button>
        ) : null}
      </div>
    </div>
  );
}

function SwitchInput({ id, value, isAllowed, onChange }: InputProps) {
  return (
    <select id={id} aria-describedby={`${id}-help`} disabled={!isAllowed} value={value === undefined || value === null ? "" : String(value)} onChange={(event) => onChange(event.currentTarget.value === "" ? null : event.currentTarget.value === "true")}>
      <option value="">default</option>
      <option value="true">on</option>
      <option value="false">off</option>
    </select>
  );
}

function ChoiceInput({ setting, id, value, isAllowed, onChange }: InputProps) {
  return (
    <select id={id} aria-describedby={`${id}-help`} disabled={!isAllowed} value={typeof value === "string" ? value : ""} onChange={(event) => onChange(event.currentTarget.value || null)}>
      <option value="">default</option>
      {setting.choices.map((choice) => (
        <option key={choice} value={choice}>
          {choice}
        </option>
      ))}
    </select>
  );
}

function JsonInput({ id, value, isAllowed, onChange }: InputProps) {
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState("");
  return (
    <>
      <textarea
        id={id}
        aria-describedby={`${id}-help`}
        disabled={!isAllowed}
        rows={Math.min(10, pretty(value).split("\n").length)}
        value={text ?? pretty(value)}
        placeholder="default"
        onInput={(event) => setText(event.currentTarget.value)}
        onChange={(event) => {
          const entered = event.currentTarget.value.trim();
          try {
            onChange(entered ? JSON.parse(entered) : null);
            setText(null);
            setError("");
          } catch (failed) {
            setError(messageOf(failed));
          }
        }}
      />
      {error ? <Problem error={error} /> : null}
    </>
  );
}

function TextInput({ setting, id, value, stored, isChanged, isAllowed, onChange }: InputProps) {
  return (
    <input
      id={id}
      aria-describedby={`${id}-help`}
      disabled={!isAllowed}
      type={(setting.isSecret ? "password" : "text") as "text"}
      inputMode={setting.kind === "text" ? undefined : "decimal"}
      autocomplete="off"
      placeholder={setting.isSecret && stored ? "set; enter a new value to replace it" : "default"}
      value={setting.isSecret && !isChanged ? "" : value === undefined || value === null ? "" : String(value)}
      onChange={(event) => {
        const entered = event.currentTarget.value;
        const number = Number(entered);
        // What is not a number is sent as it is: the gateway explains what the key accepts.
        onChange(entered === "" ? null : setting.kind === "text" || Number.isNaN(number) ? entered : number);
      }}
    />
  );
}
