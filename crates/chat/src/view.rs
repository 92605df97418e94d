//! Renders the state: what goes to the scrollback, and what is shown below it.

use crate::{
    link::Place,
    spinner::spinner,
    state::{Connection, PendingMessage, Phase, State},
    style::{Color, Line, TextStyle, prefixed},
    transcript::duration,
};

/// Maximum rows of the composer.
const MAX_COMPOSER_ROWS: usize = 10;
/// Maximum rows of lists.
const MAX_LIST_ROWS: usize = 10;
/// Maximum lines of a command that waits for approval.
const MAX_COMMAND_LINES: usize = 6;
/// Messages that wait and are shown.
const MAX_PENDING: usize = 4;

const PROMPT: TextStyle = TextStyle { bold: true, ..TextStyle::of(Color::Cyan) };
const SELECTED: TextStyle = TextStyle { reverse: true, ..TextStyle::PLAIN };
const WARNING: TextStyle = TextStyle::of(Color::Yellow);

/// What is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Below the scrollback.
    Inline {
        /// Lines that go to the scrollback, and are never drawn again.
        commit: Vec<Line>,
        /// Lines below it.
        view: Vec<Line>,
        /// Row and column of the cursor in the view; hidden if absent.
        cursor: Option<(usize, usize)>,
    },
    /// On the alternate screen.
    Full(Vec<Line>),
}

/// Lines and the cursor in them.
#[derive(Debug, Default)]
struct ViewBlock {
    lines: Vec<Line>,
    cursor: Option<(usize, usize)>,
}

impl ViewBlock {
    fn append(&mut self, other: Self) {
        if let Some((row, column)) = other.cursor {
            self.cursor = Some((self.lines.len() + row, column));
        }
        self.lines.extend(other.lines);
    }
}

/// Renders the state. Lines that are returned for the scrollback are not returned again.
pub fn frame(state: &mut State) -> Frame {
    let (columns, rows) = (usize::from(state.size.0).max(4), usize::from(state.size.1).max(2));
    if state.pager.is_some() {
        return Frame::Full(pager(state, columns, rows));
    }
    let mut bottom = ViewBlock::default();
    bottom.lines.extend(activity(state, columns));
    bottom.lines.extend(waiting(state, columns));
    // The gap above the composer goes first if there is no room.
    if rows > 6 {
        bottom.lines.push(Line::default());
    }
    bottom.append(input(state, columns, rows));
    if rows > 3 {
        bottom.lines.push(status(state).truncate(columns));
    }
    let room = rows.saturating_sub(bottom.lines.len());
    let now = state.conversation.now;
    let (commit, live) = state.conversation.transcript.lines(columns, room, now);
    let hidden = live.len().saturating_sub(room);
    let mut view = ViewBlock { lines: live.into_iter().skip(hidden).collect(), cursor: None };
    view.append(bottom);
    // On a tiny screen the end is shown, with the composer.
    let excess = view.lines.len().saturating_sub(rows);
    view.lines.drain(..excess);
    let cursor = view.cursor.map(|(row, column)| (row.saturating_sub(excess), column));
    Frame::Inline { commit, view: view.lines, cursor }
}

/// Renders what remains when the chat ends: everything goes to the scrollback.
pub fn last_frame(state: &mut State) -> Frame {
    state.pager = None;
    state.conversation.transcript.settle();
    let columns = usize::from(state.size.0).max(4);
    let commit = state.conversation.transcript.finish(columns, state.conversation.now);
    Frame::Inline { commit, view: Vec::new(), cursor: None }
}

fn pager(state: &mut State, columns: usize, rows: usize) -> Vec<Line> {
    let now = state.conversation.now;
    let Some(mut pager) = state.pager.take() else { return Vec::new() };
    let height = rows.saturating_sub(1);
    let (visible, percent) = pager.visible(&mut state.conversation.transcript, columns, height, now);
    let mut lines = visible.to_vec();
    lines.resize(height, Line::default());
    let help = format!("{percent}% · arrows, Page Up and Page Down scroll · q closes");
    lines.push(Line::of(help, SELECTED).truncate(columns));
    state.pager = Some(pager);
    lines
}

/// The line about the active run.
fn activity(state: &State, columns: usize) -> Vec<Line> {
    let Some(run) = &state.conversation.run else { return Vec::new() };
    let elapsed = state.conversation.now.saturating_sub(run.started_at);
    let mark = spinner(elapsed);
    let what = match &run.phase {
        Phase::Waiting => "Waiting for the model".to_owned(),
        Phase::Thinking => "Thinking".to_owned(),
        Phase::Answering => "Answering".to_owned(),
        Phase::Tool(name) => format!("Running {name}"),
        Phase::Compacting => "Compacting the conversation".to_owned(),
        Phase::Retrying { until, why } => {
            format!("Retrying in {}s: {why}", until.saturating_sub(state.conversation.now).div_ceil(1_000))
        }
        Phase::Stopping => "Stopping".to_owned(),
    };
    let help = match (&run.phase, &state.gateway.connection) {
        (_, Connection::Connecting | Connection::Lost { .. }) => " · not connected",
        (Phase::Stopping, Connection::Connected(_)) => "",
        (_, Connection::Connected(_)) if state.input.composer.is_empty() => " · Esc stops",
        (_, Connection::Connected(_)) => " · Enter sends now, Tab queues, Esc stops",
    };
    let line = Line::of(mark, TextStyle::of(Color::Cyan))
        .with(format!(" {what}"), TextStyle::PLAIN)
        .with(format!(" {}{help}", duration(elapsed)), TextStyle::DIM);
    vec![Line::default(), line.truncate(columns)]
}

/// The messages that are not part of the conversation yet.
fn waiting(state: &State, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let here: Vec<&PendingMessage> = state
        .conversation
        .pending
        .iter()
        .filter(|message| message.session == state.conversation.session.key || message.is_unconfirmed())
        .collect();
    for message in here.iter().take(MAX_PENDING) {
        if lines.is_empty() {
            lines.push(Line::default());
        }
        let text = crate::sanitize::one_line(&message.draft.shown);
        lines.push(Line::of("› ", PROMPT).with(text, TextStyle::DIM).truncate(columns));
        let label = message.state.label();
        if !label.is_empty() {
            lines.push(Line::of(format!("  ↳ {label}"), TextStyle::DIM).truncate(columns));
        }
    }
    if here.len() > MAX_PENDING {
        lines.push(Line::of(format!("  … {} more messages", here.len() - MAX_PENDING), TextStyle::DIM));
    }
    lines
}

/// The composer, or what takes its place.
fn input(state: &State, columns: usize, rows: usize) -> ViewBlock {
    if let Some(picker) = &state.picker {
        return picker_block(picker, columns, rows);
    }
    if let Some(search) = &state.input.search {
        return search_block(state, search, columns);
    }
    let mut block = ViewBlock::default();
    block.lines.extend(approval(state, columns));
    block.append(composer(state, columns, rows));
    block.lines.extend(completions(state, columns, rows));
    block
}

fn composer(state: &State, columns: usize, rows: usize) -> ViewBlock {
    let layout = state.input.composer.layout(state.composer_columns());
    let height = MAX_COMPOSER_ROWS.min(rows / 2).max(1);
    // The row of the cursor is always visible.
    let top = (layout.row + 1).saturating_sub(height).max(layout.rows.len().saturating_sub(height).min(layout.row));
    let mut visible: Vec<_> = layout.rows.iter().skip(top).take(height).cloned().collect();
    if state.input.composer.is_empty() {
        let text = if state.conversation.run.is_some() {
            "Send a message to the run"
        } else {
            "Ask anything · / commands · @ files"
        };
        visible = vec![Line::of(text, TextStyle::DIM).truncate(columns.saturating_sub(2).max(1))];
    }
    let first = if top == 0 { Line::of("› ", PROMPT) } else { Line::of("⋮ ", TextStyle::DIM) };
    // Empty rows keep their indentation, because the cursor may be there.
    let with_prefix = |(index, row): (usize, Line)| {
        let mut line = if index == 0 { first.clone() } else { Line::plain("  ") };
        line.extend(row);
        line
    };
    let lines = visible.into_iter().enumerate().map(with_prefix).collect();
    ViewBlock { lines, cursor: Some((layout.row - top, layout.column + 2)) }
}

fn completions(state: &State, columns: usize, rows: usize) -> Vec<Line> {
    let Some(completion) = &state.input.completion else { return Vec::new() };
    let widest = completion.candidates.iter().map(|candidate| crate::style::width(&candidate.text)).max().unwrap_or(0);
    let widest = widest.min(columns / 2);
    let rows_of_list: Vec<_> = completion
        .candidates
        .iter()
        .map(|candidate| {
            let name = Line::plain(candidate.text.clone()).truncate(columns.saturating_sub(4).max(1));
            let space = (widest + 2).saturating_sub(name.width());
            let mut line = Line::plain("  ");
            line.extend(name);
            if !candidate.description.is_empty() {
                line.push(" ".repeat(space), TextStyle::PLAIN);
                line.push(candidate.description.clone(), TextStyle::DIM);
            }
            line
        })
        .collect();
    list(rows_of_list, completion.selected, columns, rows)
}

/// Renders the part of a list around the selection.
fn list(lines: Vec<Line>, selected: usize, columns: usize, rows: usize) -> Vec<Line> {
    let height = MAX_LIST_ROWS.min((rows / 2).saturating_sub(1)).max(1);
    let top = (selected + 1).saturating_sub(height);
    let count = lines.len();
    let visible = lines.into_iter().enumerate().skip(top).take(height);
    let mut shown: Vec<_> = visible
        .map(|(index, line)| {
            let line = line.truncate(columns);
            match index == selected {
                true => Line::of(line.text(), SELECTED),
                false => line,
            }
        })
        .collect();
    if count > height {
        shown.push(Line::of(format!("  {} of {count}", selected + 1), TextStyle::DIM));
    }
    shown
}

fn picker_block(picker: &crate::picker::Picker, columns: usize, rows: usize) -> ViewBlock {
    let heading = Line::of(picker.kind.title(), TextStyle::BOLD).with("  Enter chooses, Esc closes", TextStyle::DIM);
    let filter = Line::of("filter: ", PROMPT).with(picker.filter.clone(), TextStyle::PLAIN);
    let column = filter.width().min(columns.saturating_sub(1));
    let mut lines = vec![heading.truncate(columns), filter.truncate(columns)];
    let matching = picker.matching();
    if picker.choices.is_none() {
        lines.push(Line::of("  loading…", TextStyle::DIM));
    } else if matching.is_empty() {
        lines.push(Line::of("  nothing matches", TextStyle::DIM));
    }
    let row = |choice: &&crate::picker::Choice| {
        let line = Line::plain(format!("  {}", choice.label));
        if choice.description.is_empty() {
            line
        } else {
            line.with(format!("  {}", choice.description), TextStyle::DIM)
        }
    };
    lines.extend(list(matching.iter().map(row).collect(), picker.selected, columns, rows));
    ViewBlock { lines, cursor: Some((1, column)) }
}

fn search_block(state: &State, search: &crate::state::Search, columns: usize) -> ViewBlock {
    let found = state.input.history.search(&search.text, search.skip);
    let prompt = Line::of("search: ", PROMPT).with(search.text.clone(), TextStyle::PLAIN);
    let column = prompt.width().min(columns.saturating_sub(1));
    let indent = Line::plain("  ");
    let lines = match found {
        Some(found) => found.split('\n').take(MAX_COMMAND_LINES).map(Line::plain).collect(),
        None => vec![Line::of("nothing found", TextStyle::DIM)],
    };
    let lines: Vec<_> = lines.into_iter().map(|line| line.truncate(columns.saturating_sub(2).max(1))).collect();
    let help = Line::of("  Enter edits it, Ctrl+R finds an earlier one, Esc closes", TextStyle::DIM).truncate(columns);
    let mut block = ViewBlock { lines: vec![prompt.truncate(columns)], cursor: Some((0, column)) };
    block.lines.extend(prefixed(lines, &indent, &indent));
    block.lines.push(help);
    block
}

/// The request for approval that is open.
fn approval(state: &State, columns: usize) -> Vec<Line> {
    let Some(approval) = state.conversation.open_approval() else { return Vec::new() };
    let open = state.conversation.approvals.iter().filter(|approval| approval.sent.is_none()).count();
    let count = if open > 1 { format!(" (1 of {open})") } else { String::new() };
    let mut lines = vec![Line::of(format!("! Allow this command?{count}"), TextStyle { bold: true, ..WARNING })];
    let width = columns.saturating_sub(4).max(1);
    let mut command: Vec<_> = approval.command.split('\n').flat_map(|line| Line::plain(line).split(width)).collect();
    if command.len() > MAX_COMMAND_LINES {
        // The end of a command matters as much as its beginning.
        let hidden = command.len() - MAX_COMMAND_LINES + 1;
        let note = Line::of(format!("… {hidden} more lines"), WARNING);
        let last = MAX_COMMAND_LINES / 2;
        command.splice(MAX_COMMAND_LINES - last - 1..command.len() - last, [note]);
    }
    lines.extend(prefixed(command, &Line::of("  $ ", TextStyle::DIM), &Line::plain("    ")));
    if let Some(cwd) = &approval.cwd {
        lines.push(Line::of(format!("  in {cwd}"), TextStyle::DIM).truncate(columns));
    }
    if !state.input.composer.is_empty() {
        lines.push(Line::of("  send or clear your message first, then answer with a key", WARNING).truncate(columns));
    } else {
        let mut keys = Line::of("  y", PROMPT).with(" allow once  ", TextStyle::PLAIN);
        if let Some(rules) = &approval.always {
            let what = if rules.is_empty() { String::new() } else { format!(": {}", rules.join(", ")) };
            keys = keys.with("a", PROMPT).with(format!(" always allow{what}  "), TextStyle::PLAIN);
        }
        let keys = keys.with("n", PROMPT).with(" deny", TextStyle::PLAIN);
        lines.extend(keys.wrap(columns));
    }
    lines.push(Line::default());
    lines
}

/// The last line: the connection, the model, the context, the cost, the queue and the sandbox.
fn status(state: &State) -> Line {
    if let Some(hint) = state.shown_hint() {
        return Line::of(format!("  {hint}"), WARNING);
    }
    let mut line = Line::plain("  ");
    match &state.gateway.connection {
        Connection::Connecting => line.push("connecting… · ", TextStyle::DIM),
        Connection::Lost { why, retry_at } => {
            let seconds = retry_at.saturating_sub(state.conversation.now).div_ceil(1_000);
            line.push(format!("no connection, next attempt in {seconds}s: {why} · "), WARNING);
        }
        Connection::Connected(Place::Gateway | Place::OwnGateway) => {}
    }
    let session = &state.conversation.session;
    let place =
        (state.gateway.connection == Connection::Connected(Place::OwnGateway)).then(|| "own gateway".to_owned());
    let thinking = session.thinking.as_ref().filter(|level| *level != "off").map(|level| format!("think {level}"));
    let context = session.context.map(|(used, window)| {
        format!("{}% of {} context", used.saturating_mul(100) / window, crate::state::tokens(window))
    });
    let cost = session
        .cost
        .filter(|cost| *cost > 0.0)
        .map(|cost| if cost < 0.1 { format!("${cost:.4}") } else { format!("${cost:.2}") });
    let queued = state.conversation.pending.iter().filter(|message| !message.state.label().is_empty()).count();
    let queued = (queued > 0).then(|| format!("{queued} waiting"));
    let name = session.label.clone().unwrap_or_else(|| short_key(&session.key).to_owned());
    let facts =
        [session.model.clone(), thinking, context, cost, queued, state.local.sandbox.clone(), place, Some(name)];
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    line.push(facts.join(" · "), TextStyle::DIM);
    line
}

/// Returns a session key without the parts that are the same for most sessions.
pub(crate) fn short_key(key: &str) -> &str {
    key.strip_prefix("agent:main:").or_else(|| key.strip_prefix("agent:")).unwrap_or(key)
}
