//! Text of a context report, for `/context`.

use homard_store::timeline::Shortened;

use super::{Report, Sums, Tokens};
use crate::{
    command::Ask,
    context::shortening::{self, RICH, grouped},
};

/// Approximate characters per token, if no count is known.
const TOKEN: u64 = 4;

/// Maximum rows of a list.
const MOST: usize = 40;

/// Settings that limit the files of a full prompt.
const LIMITS: &str = "Limits: agents.defaults.bootstrapMaxChars, bootstrapTotalMaxChars.";

/// Builds the reply to `/context`.
pub(crate) fn words(report: &Report, ask: Ask) -> String {
    match ask {
        Ask::List => lines(report, &[&sums(report)], Some("More: /context detail, /context json.")),
        Ask::Detail => {
            lines(report, &[&sums(report), &sections(report), &files(report), &skills(report), &tools(report)], None)
        }
        Ask::Json => serde_json::to_string_pretty(report).unwrap_or_else(|error| format!("No report: {error}.")),
    }
}

/// Rows with sizes, under a title.
struct Table {
    title: &'static str,
    rows: Vec<Row>,
}

/// Name, characters and tokens of an item.
type Row = (String, usize, u64);

/// Ratio of tokens to characters.
#[derive(Clone, Copy)]
struct Rate {
    tokens: u64,
    chars: u64,
}

impl Rate {
    fn row(self, (name, chars): (String, usize)) -> Row {
        (name, chars, (chars as u64).saturating_mul(self.tokens).div_ceil(self.chars.max(1)))
    }
}

/// Returns the ratios for the prompt and for the tools; parts of either are scaled with them.
fn rates(report: &Report) -> (Rate, Rate) {
    let rate = |tokens: fn(Tokens) -> u64, chars: usize| match report.tokens {
        Some(known) => Rate { tokens: tokens(known), chars: chars as u64 },
        None => Rate { tokens: 1, chars: TOKEN },
    };
    let schemas = report.tools.entries.iter().map(|tool| tool.schema_chars + tool.summary_chars).sum();
    (rate(|tokens| tokens.system_prompt, report.system_prompt.chars), rate(|tokens| tokens.tools, schemas))
}

fn sums(report: &Report) -> Table {
    let Sums { chars, project_context_chars: files, .. } = report.system_prompt;
    let (skills, list) = (report.skills.prompt_chars, report.tools.list_chars);
    let rest = chars.saturating_sub(files).saturating_sub(skills).saturating_sub(list);
    let schemas: usize = report.tools.entries.iter().map(|tool| tool.schema_chars + tool.summary_chars).sum();
    let (prompt, tools) = rates(report);
    let told = [("instructions", rest), ("files", files), ("skills", skills), ("list of tools", list)];
    let mut rows: Vec<_> = told.map(|(name, size)| prompt.row((name.to_owned(), size))).into();
    rows.push(tools.row(("tool schemas".to_owned(), schemas)));
    let together = match report.tokens {
        Some(tokens) => tokens.overhead(),
        None => ((chars + schemas) as u64).div_ceil(TOKEN),
    };
    rows.push(("together".to_owned(), chars + schemas, together));
    Table { title: "part", rows }
}

fn sections(report: &Report) -> Table {
    let (prompt, _) = rates(report);
    let parts = report.parts.iter().map(|part| prompt.row((part.name.clone(), part.chars)));
    Table { title: "section", rows: parts.collect() }
}

fn files(report: &Report) -> Table {
    let (files, (prompt, _)) = (report.injected_workspace_files.iter(), rates(report));
    Table { title: "file", rows: files.map(|file| prompt.row((file.name.clone(), file.injected_chars))).collect() }
}

fn skills(report: &Report) -> Table {
    let (skills, (prompt, _)) = (report.skills.entries.iter(), rates(report));
    let rows = skills.map(|skill| prompt.row((skill.name.clone(), skill.block_chars)));
    Table { title: "skill", rows: largest(rows.collect()) }
}

fn tools(report: &Report) -> Table {
    let (tools, (_, rate)) = (report.tools.entries.iter(), rates(report));
    let rows = tools.map(|tool| rate.row((tool.name.clone(), tool.summary_chars + tool.schema_chars)));
    Table { title: "tool", rows: largest(rows.collect()) }
}

/// Sorts by size, largest first, and merges the rows beyond the limit.
fn largest(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by(|(a, a_size, _), (b, b_size, _)| (b_size, a).cmp(&(a_size, b)));
    if rows.len() > MOST {
        let others = rows.split_off(MOST - 1);
        let (chars, tokens) = (others.iter().map(|row| row.1).sum(), others.iter().map(|row| row.2).sum());
        rows.push((format!("{} others", others.len()), chars, tokens));
    }
    rows
}

fn lines(report: &Report, tables: &[&Table], last: Option<&str>) -> String {
    let window = match report.context_window {
        Some(window) => format!(", which reads {} tokens", grouped(window)),
        None => String::new(),
    };
    let mut lines = vec![format!(
        "Before the conversation, {}/{}{window}, is told this; tokens are estimated.",
        report.provider, report.model
    )];
    for table in tables.iter().filter(|table| !table.rows.is_empty()) {
        lines.push(String::new());
        lines.extend(rows(table, report.context_window));
    }
    if let Some(context) = report.tokens.and_then(|tokens| tokens.context) {
        let part = report.context_window.map(|all| format!(" ({} of the window)", share(context, all)));
        lines.push(String::new());
        lines.push(format!("With the conversation: {} tokens{}.", grouped(context), part.unwrap_or_default()));
    }
    let troubles = troubles(report);
    if !troubles.is_empty() {
        lines.push(String::new());
        lines.extend(troubles);
    }
    if let Some(last) = last {
        lines.push(String::new());
        lines.push(last.to_owned());
    }
    lines.join("\n")
}

/// Formats a table as aligned lines.
fn rows(table: &Table, window: Option<u64>) -> Vec<String> {
    let head = [table.title, "characters", "tokens", "of the window"].map(str::to_owned);
    let row = |(name, size, tokens): &Row| {
        [
            name.clone(),
            grouped(*size as u64),
            grouped(*tokens),
            window.map_or_else(String::new, |all| share(*tokens, all)),
        ]
    };
    let cells: Vec<_> = [head].into_iter().chain(table.rows.iter().map(row)).collect();
    let columns = if window.is_some() { 4 } else { 3 };
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &[String; 4]| {
        let name = format!("{:<width$}", row[0], width = widths[0]);
        let numbers = (1..columns).map(|column| format!("{:>width$}", row[column], width = widths[column]));
        [name].into_iter().chain(numbers).collect::<Vec<_>>().join("  ")
    };
    cells.iter().map(line).collect()
}

/// Returns warnings about files and tools.
fn troubles(report: &Report) -> Vec<String> {
    let files = &report.injected_workspace_files;
    let cut = files.iter().filter(|file| file.truncated).map(|file| {
        let (all, told) = (grouped(file.raw_chars as u64), grouped(file.injected_chars as u64));
        format!("{} is cut to {told} of its {all} characters.", file.name)
    });
    let missing =
        files.iter().filter(|file| file.missing).map(|file| format!("{} is missing: {}", file.name, file.path));
    let problem = |why: &str, name: &str| format!("{name} cannot be used: {why}");
    let unusable = files.iter().filter_map(|file| Some(problem(file.problem.as_deref()?, &file.name)));
    cut.chain(missing).chain(unusable).chain(shortened(report)).collect()
}

/// Explains why something is omitted or truncated, which setting changes that, and which tools are omitted. Files have
/// lines of their own.
fn shortened(report: &Report) -> Vec<String> {
    let Some(shortened) = &report.shortened else { return Vec::new() };
    if shortened.style == RICH {
        return vec![LIMITS.to_owned()];
    }
    let model = format!("{}/{}", report.provider, report.model);
    let without_files = Shortened { files: Vec::new(), ..shortened.clone() };
    let sentences = [shortening::explain(&without_files, &model), shortening::remedy(shortened, &model)];
    let names = &report.tools.left_out;
    let listed: Vec<_> = names.iter().take(MOST).map(String::as_str).collect();
    let more = match names.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} others"),
    };
    let listed = (!listed.is_empty()).then(|| format!("Tools left out: {}{more}.", listed.join(", ")));
    sentences.into_iter().map(|sentence| format!("{}.", capitalised(&sentence))).chain(listed).collect()
}

/// Capitalizes a sentence.
fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Formats a share in percent with one decimal.
fn share(part: u64, all: u64) -> String {
    match u128::from(part) * 1_000 / u128::from(all.max(1)) {
        0 if part > 0 => "< 0.1 %".to_owned(),
        thousandths => format!("{}.{} %", thousandths / 10, thousandths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_easy_to_read() {
        let told = [(0, 9), (1, 3), (1, 9_999), (5, 0), (u64::MAX, u64::MAX)].map(|(part, all)| share(part, all));
        assert_eq!(told, ["0.0 %", "33.3 %", "< 0.1 %", "500.0 %", "100.0 %"]);
    }

    #[test]
    fn tools_that_are_left_out_are_named() {
        let told = |count: usize| {
            let mut report = Report { provider: "p".to_owned(), model: "m".to_owned(), ..Report::default() };
            report.tools.left_out = (0..count).map(|number| format!("t{number}")).collect();
            report.shortened = Some(Shortened { style: "lean".to_owned(), ..Shortened::default() });
            shortened(&report)
        };
        let why = "The prompt for p/m is lean because agents.defaults.promptStyle is \"lean\": of the tools only read, \
                   write, edit, ls, grep, exec are offered.";
        let remedy = "For the full prompt set agents.defaults.promptStyle to \"rich\".";
        assert_eq!(told(2), [why, remedy, "Tools left out: t0, t1."]);
        assert!(told(MOST + 2)[2].ends_with("t39 and 2 others."));
        assert_eq!(shortened(&Report::default()), [""; 0]);
    }

    #[test]
    fn long_lists_end_with_a_sum() {
        let rows = largest((0..MOST + 2).map(|number| (format!("{number:02}"), number, 1)).collect());
        assert_eq!(
            (rows.len(), &rows[0], &rows[MOST - 1]),
            (MOST, &("41".to_owned(), 41, 1), &("3 others".to_owned(), 3, 3))
        );
    }
}
