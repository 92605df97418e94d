// The field for a message: commands with completion, images, and what happens while the session is busy.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, hello, may } from "../lib/connection";
import { act, Icon, messageOf, toast } from "../lib/ui";
import type { Attachment, OpenSession } from "./session";

export interface SlashCommand {
  name: string;
  textAliases: string[];
  description: string;
  acceptsArgs: boolean;
}
export interface ModelChoice {
  id: string;
  provider: string;
  name: string;
  alias?: string;
  available?: boolean;
  thinkingLevels?: { id: string; label: string }[];
}

/** Commands that a text begins to name. */
export function completions(text: string, commands: SlashCommand[]): SlashCommand[] {
  if (!/^\/\S*$/.test(text)) return [];
  const typed = text.toLowerCase();
  return commands.filter(({ textAliases }) => textAliases.some((alias) => alias.startsWith(typed))).slice(0, 8);
}

const DEFAULT_MAX_BYTES = 5_000_000;

function read(file: File): Promise<Attachment> {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done({ fileName: file.name || "pasted image", mimeType: file.type, content: String(reader.result).replace(/^data:[^,]*,/, "") });
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}

export function Composer({ session, models, commands, isBusy }: { session: OpenSession; models: ModelChoice[]; commands: SlashCommand[]; isBusy: boolean }) {
  const [text, setText] = useState(() => sessionStorage.getItem(`homard.draft.${session.key}`) ?? "");
  const [attachments, setAttachments] = useState<Attachment[]>([]);
  const [mode, setMode] = useState("");
  const [selected, select] = useState(0);
  const [isDismissed, dismiss] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const files = useRef<HTMLInputElement>(null);
  const offered = isDismissed ? [] : completions(text, commands);
  const at = Math.min(selected, offered.length - 1);
  const isAllowed = may("write");
  const write = (value: string) => {
    setText(value);
    dismiss(false);
    select(0);
    if (value) sessionStorage.setItem(`homard.draft.${session.key}`, value);
    else sessionStorage.removeItem(`homard.draft.${session.key}`);
  };
  useEffect(() => {
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, 240)}px`;
  }, [text]);
  useEffect(() => {
    if (matchMedia("(min-width: 800px)").matches) field.current?.focus();
  }, [session]);
  const attach = async (list: Iterable<File>) => {
    const limit = hello.peek()?.policy.attachments?.maxBytes ?? DEFAULT_MAX_BYTES;
    for (const file of list) {
      if (file.size > limit) toast(`${file.name} is larger than ${Math.floor(limit / 1_000_000)} MB`, "bad");
      else {
        try {
          const added = await read(file);
          setAttachments((old) => [...old, added]);
        } catch (error) {
          toast(`${file.name}: ${messageOf(error)}`, "bad");
        }
      }
    }
  };
  const send = () => {
    if (!isAllowed || (!text.trim() && attachments.length === 0)) return;
    session.send(text.trim(), attachments, isBusy && mode ? { queueMode: mode } : {});
    write("");
    setAttachments([]);
  };
  const complete = (command: SlashCommand) => {
    write(`${command.textAliases[0] ?? `/${command.name}`}${command.acceptsArgs ? " " : ""}`);
    dismiss(!command.acceptsArgs);
    field.current?.focus();
  };
  const info = session.info.value;
  const current = info?.modelProvider && info.model ? `${info.modelProvider}/${info.model}` : "";
  const model = models.find(({ provider, id }) => `${provider}/${id}` === current);
  const patch = (changes: object, done: string) => act(async () => {
    await call("sessions.patch", { key: session.key, ...changes });
    await session.read();
  }, done);
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        void attach(event.dataTransfer?.files ?? []);
      }}
    >
      {offered.length ? (
        <ul class="completions" id="completions" role="listbox" aria-label="Commands">
          {offered.map((command, index) => (
            <li key={command.name} id={`completion-${index}`} role="option" aria-selected={index === at} onMouseDown={(event) => { event.preventDefault(); complete(command); }}>
              <code>{command.textAliases[0]}</code> {command.description}
            </li>
          ))}
        </ul>
      ) : null}
      {attachments.length ? (
        <ul class="attachments" aria-label="Attachments">
          {attachments.map(({ fileName, mimeType, content }, index) => (
            <li key={index}>
              <Picture mimeType={mimeType} data={content} name={fileName} />
              <button type="button" class="ghost" aria-label={`Remove ${fileName}`} onClick={() => setAttachments(attachments.filter((_, other) => other !== index))}>
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      ) : null}
      <textarea
        ref={field}
        rows={1}
        aria-label="Message"
        aria-autocomplete="list"
        aria-controls={offered.length ? "completions" : undefined}
        aria-activedescendant={offered.length ? `completion-${at}` : undefined}
        disabled={!isAllowed}
        placeholder={isAllowed ? (isBusy ? "Write to the running agent" : "Write a message, or / for commands") : "This device may read only"}
        value={text}
        onInput={(event) => write(event.currentTarget.value)}
        onPaste={(event) => {
          const images = [...(event.clipboardData?.files ?? [])];
          if (images.length) {
            event.preventDefault();
            void attach(images);
          }
        }}
        onKeyDown={(event) => {
          if (event.isComposing) return;
          if (offered.length && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
            event.preventDefault();
            select((at + (event.key === "ArrowDown" ? 1 : offered.length - 1)) % offered.length);
          } else if (offered.length && (event.key === "Tab" || (event.key === "Enter" && offered[at]?.textAliases[0] !== text))) {
            event.preventDefault();
            if (offered[at]) complete(offered[at]);
          } else if (event.key === "Escape") {
            event.preventDefault();
            if (offered.length) dismiss(true);
            else if (isBusy && may("write")) void act(() => session.stop(), "Stopped");
            else field.current?.blur();
          } else if (event.key === "Enter" && !event.shiftKey) {
            event.preventDefault();
            send();
          }
        }}
      />
      <div class="composer-tools">
        <input ref={files} type="file" accept="image/*" multiple hidden aria-label="Images" onChange={(event) => void attach(event.currentTarget.files ?? [])} />
        <button type="button" class="ghost" aria-label="Attach an image" disabled={!isAllowed} onClick={() => files.current?.click()}>
          <Icon name="attach" />
        </button>
        <label class="pick">
          <span class="visually-hidden">Model</span>
          <select value={current} disabled={!may("admin")} onChange={(event) => void patch({ model: event.currentTarget.value }, `Model: ${event.currentTarget.value}`)}>
            {model ? null : <option value={current}>{current || "model"}</option>}
            {models.map(({ provider, id, available }) => (
              <option key={`${provider}/${id}`} value={`${provider}/${id}`} disabled={available === false}>
                {provider}/{id}
              </option>
            ))}
          </select>
        </label>
        {model?.thinkingLevels?.length ? (
          <label class="pick">
            <span class="visually-hidden">Thinking</span>
            <select value={session.thinking.value} disabled={!may("admin")} onChange={(event) => void patch({ thinkingLevel: event.currentTarget.value }, `Thinking: ${event.currentTarget.value}`)}>
              {["off", ...model.thinkingLevels.map(({ id }) => id).filter((id) => id !== "off")].map((level) => (
                <option key={level} value={level}>
                  thinking {level}
                </option>
              ))}
            </select>
          </label>
        ) : null}
        {isBusy ? (
          <label class="pick">
            <span class="visually-hidden">What happens to the message</span>
            <select value={mode} onChange={(event) => setMode(event.currentTarget.value)}>
              <option value="">as configured</option>
              <option value="steer">steer the run</option>
              <option value="followup">after the run</option>
              <option value="collect">collect</option>
              <option value="interrupt">interrupt the run</option>
            </select>
          </label>
        ) : null}
        <span class="spacer" />
        {isBusy && isAllowed ? (
          <button type="button" class="stop" onClick={() => void act(() => session.stop(), "Stopped")} title="Stop (Esc)">
            <Icon name="stop" /> Stop
          </button>
        ) : null}
        <button type="submit" class="primary" disabled={!isAllowed || (!text.trim() && attachments.length === 0)}>
          <Icon name="send" /> Send
        </button>
      </div>
    </form>
  );
}

const SAFE_IMAGE = /^image\/(png|jpeg|gif|webp)$/;

/** An image that was sent. Other types, such as SVG, are only named. */
export function Picture({ mimeType, data, name }: { mimeType: string; data: string; name: string }) {
  const [address, setAddress] = useState<string | null>(null);
  useEffect(() => {
    if (!SAFE_IMAGE.test(mimeType)) return;
    try {
      const binary = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
      const made = URL.createObjectURL(new Blob([binary], { type: mimeType }));
      setAddress(made);
      return () => URL.revokeObjectURL(made);
    } catch (error) {
      console.warn("not an image", error);
      return;
    }
  }, [mimeType, data]);
  return address ? <img src={address} alt={name} class="picture" /> : <span class="image-note">{name} ({mimeType})</span>;
}
