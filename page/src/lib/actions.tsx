// Buttons that several views have: switch something on or off, remove it, add one.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { act, confirmed, Dialog } from "./ui";

/** Switches something on or off, and loads the view again. */
export function SwitchButton({ name, isOn, change, after }: { name: string; isOn: boolean; change: (isOn: boolean) => Promise<unknown>; after: () => void }) {
  const action = isOn ? "Disable" : "Enable";
  return (
    <button type="button" class="small" aria-label={`${action} ${name}`} onClick={() => void act(() => change(!isOn), isOn ? "Disabled" : "Enabled").then(after)}>
      {action}
    </button>
  );
}

interface Removal {
  /** What the button and the question say. */
  action?: string;
  done?: string;
  name: string;
  title: string;
  text: string;
  disabled?: boolean;
  isLarge?: boolean;
  remove: () => Promise<unknown>;
  after: () => void;
}

/** Removes something after a question, and loads the view again. */
export function RemoveButton({ action = "Remove", done = "Removed", name, title, text, disabled = false, isLarge = false, remove, after }: Removal) {
  return (
    <button
      type="button"
      class={isLarge ? "danger" : "small danger"}
      aria-label={name ? `${action} ${name}` : undefined}
      disabled={disabled}
      onClick={async () => {
        if ((await confirmed(title, text, action)) && (await act(remove, done))) after();
      }}
    >
      {action}
    </button>
  );
}

/** A button that opens a dialog, which is given how to close it. */
export function AddButton({ label, children, after }: { label: string; children: (close: () => void) => ComponentChildren; after: () => void }) {
  const [isOpen, open] = useState(false);
  const close = () => {
    open(false);
    after();
  };
  return (
    <>
      <button type="button" class="primary" onClick={() => open(true)}>
        {label}
      </button>
      {isOpen ? children(close) : null}
    </>
  );
}

/** A dialog with a form. It closes once the form was accepted. */
export function FormDialog({ title, submit, done, action = "Add", onClose, intro, children, outro }: { title: string; submit: () => Promise<unknown>; done: string; action?: string; onClose: () => void; intro?: ComponentChildren; children: ComponentChildren; outro?: ComponentChildren }) {
  return (
    <Dialog title={title} onClose={onClose}>
      {intro}
      <form
        onSubmit={async (event) => {
          event.preventDefault();
          if (await act(submit, done)) onClose();
        }}
      >
        {children}
        <div class="actions">
          <button type="submit" class="primary">
            {action}
          </button>
        </div>
      </form>
      {outro}
    </Dialog>
  );
}
