// A list of which only the visible rows exist.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props {
  count: number;
  rowHeight: number;
  row: (index: number) => ComponentChildren;
  class?: string;
  label: string;
  role?: "grid" | "log" | "list" | "table";
  /** Row that must be visible. */
  shown?: number | undefined;
  /** Keeps the end visible while the user is there. */
  follow?: boolean;
  onEnd?: () => void;
  onScroll?: (top: number) => void;
}

/** Rows beyond the visible ones, above and below. */
const MARGIN = 12;

export function VirtualRows({ count, rowHeight, row, label, shown, follow, onEnd, onScroll, role = "list", ...rest }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const isAtEnd = useRef(true);
  const measure = () => {
    const element = box.current;
    if (!element) return;
    isAtEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - rowHeight;
    setView({ top: element.scrollTop, height: element.clientHeight });
    onScroll?.(element.scrollTop);
    if (onEnd && element.scrollTop + element.clientHeight > element.scrollHeight - 20 * rowHeight) onEnd();
  };
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, [count > 0]);
  useLayoutEffect(() => {
    const element = box.current;
    if (element && follow && isAtEnd.current) element.scrollTop = element.scrollHeight;
    else measure();
  }, [count, follow]);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element || shown === undefined || shown < 0) return;
    const top = shown * rowHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight > element.scrollTop + element.clientHeight) element.scrollTop = top + rowHeight - element.clientHeight;
  }, [shown]);
  const first = Math.max(0, Math.floor(view.top / rowHeight) - MARGIN);
  const last = Math.min(count, Math.ceil((view.top + view.height) / rowHeight) + MARGIN);
  const rows = [];
  for (let at = first; at < last; at += 1) rows.push(row(at));
  return (
    <div ref={box} class={`virtual ${rest.class ?? ""}`} onScroll={measure} role={role} aria-label={label} tabIndex={0} aria-rowcount={role === "grid" || role === "table" ? count : undefined}>
      <div class="virtual-space" role="presentation" style={{ height: `${count * rowHeight}px` }}>
        <div class="virtual-window" role="presentation" style={{ transform: `translateY(${first * rowHeight}px)` }}>
          {rows}
        </div>
      </div>
    </div>
  );
}
