//! Text of a context report, for `/context`.

use homard_command::ContextDetail;
use homard_store::timeline::PromptCuts;

use super::{ContextReport, PromptSizes, RequestTokens};
use crate::shortening::{self, RICH, grouped};

/// Approximate characters per token, if no count is known.
const CHARS_PER_TOKEN: u64 = 4;

/// Maximum rows of a list.
const MAX_ROWS: usize = 40;

/// Settings that limit the files of a full prompt.
const LIMITS_HINT: &str = "Limits: agents.defaults.bootstrapMaxChars, bootstrapTotalMaxChars.";

/// Builds the reply to `/context`.
pub fn format_report(report: &ContextReport, detail: ContextDetail) -> String {
    match detail {
        ContextDetail::List => lines(report, &[&totals(report)], Some("More: /context detail, /context json.")),
        ContextDetail::Detail => {
            lines(report, &[&totals(report), &sections(report), &files(report), &skills(report), &tools(report)], None)
        }
        ContextDetail::Json => {
            serde_json::to_string_pretty(report).unwrap_or_else(|error| format!("Failed to build the report: {error}."))
        }
    }
}

/// Rows with sizes, under a title.
struct ReportTable {
    title: &'static str,
    rows: Vec<ReportRow>,
}

/// Name, characters and tokens of an item.
type ReportRow = (String, usize, u64);

/// Ratio of tokens to characters.
#[derive(Clone, Copy)]
struct TokenRate {
    tokens: u64,
    chars: u64,
}

impl TokenRate {
    fn row(self, name: String, chars: usize) -> ReportRow {
        (name, chars, (chars as u64).saturating_mul(self.tokens).div_ceil(self.chars.max(1)))
    }
}

/// Returns the ratios for the system prompt and for the tool definitions. The tokens of a part of either are calculated
/// from its characters with the ratio.
fn rates(report: &ContextReport) -> (TokenRate, TokenRate) {
    let rate = |tokens: fn(RequestTokens) -> u64, chars: usize| match report.tokens {
        Some(known) => TokenRate { tokens: tokens(known), chars: chars as u64 },
        None => TokenRate { tokens: 1, chars: CHARS_PER_TOKEN },
    };
    let schemas = report.tools.entries.iter().map(|tool| tool.schema_chars + tool.summary_chars).sum();
    (rate(|tokens| tokens.system_prompt, report.system_prompt.chars), rate(|tokens| tokens.tools, schemas))
}

fn totals(report: &ContextReport) -> ReportTable {
    let PromptSizes { chars, project_context_chars: files, .. } = report.system_prompt;
    let (skills, list) = (report.skills.prompt_chars, report.tools.list_chars);
    let instructions = chars.saturating_sub(files).saturating_sub(skills).saturating_sub(list);
    let schemas: usize = report.tools.entries.iter().map(|tool| tool.schema_chars + tool.summary_chars).sum();
    let (prompt, tools) = rates(report);
    let parts = [("instructions", instructions), ("files", files), ("skills", skills), ("list of tools", list)];
    let mut rows: Vec<_> = parts.map(|(name, size)| prompt.row(name.to_owned(), size)).into();
    rows.push(tools.row("tool schemas".to_owned(), schemas));
    let total_tokens = match report.tokens {
        Some(tokens) => tokens.overhead(),
        None => ((chars + schemas) as u64).div_ceil(CHARS_PER_TOKEN),
    };
    rows.push(("total".to_owned(), chars + schemas, total_tokens));
    ReportTable { title: "part", rows }
}

fn sections(report: &ContextReport) -> ReportTable {
    let (prompt, _) = rates(report);
    let parts = report.parts.iter().map(|part| prompt.row(part.name.clone(), part.chars));
    ReportTable { title: "section", rows: parts.collect() }
}

fn files(report: &ContextReport) -> ReportTable {
    let (files, (prompt, _)) = (report.injected_workspace_files.iter(), rates(report));
    ReportTable { title: "file", rows: files.map(|file| prompt.row(file.name.clone(), file.injected_chars)).collect() }
}

fn skills(report: &ContextReport) -> ReportTable {
    let (skills, (prompt, _)) = (report.skills.entries.iter(), rates(report));
    let rows = skills.map(|skill| prompt.row(skill.name.clone(), skill.block_chars));
    ReportTable { title: "skill", rows: largest(rows.collect()) }
}

fn tools(report: &ContextReport) -> ReportTable {
    let (tools, (_, rate)) = (report.tools.entries.iter(), rates(report));
    let rows = tools.map(|tool| rate.row(tool.name.clone(), tool.summary_chars + tool.schema_chars));
    ReportTable { title: "tool", rows: largest(rows.collect()) }
}

/// Sorts by size, largest first, and merges the rows beyond the limit.
fn largest(mut rows: Vec<ReportRow>) -> Vec<ReportRow> {
    rows.sort_by(|(a, a_size, _), (b, b_size, _)| (b_size, a).cmp(&(a_size, b)));
    if rows.len() > MAX_ROWS {
        let others = rows.split_off(MAX_ROWS - 1);
        let (chars, tokens) = (others.iter().map(|row| row.1).sum(), others.iter().map(|row| row.2).sum());
        rows.push((format!("{} others", others.len()), chars, tokens));
    }
    rows
}

/// Formats a report: the tables, the total with the conversation, the warnings, and `last` as the last line.
fn lines(report: &ContextReport, tables: &[&ReportTable], last: Option<&str>) -> String {
    let window = match report.context_window {
        Some(window) => format!(" (context window of {} tokens)", grouped(window)),
        None => String::new(),
    };
    let mut lines = vec![format!(
        "Context for {}/{}{window}, without the conversation; token counts are estimated.",
        report.provider, report.model
    )];
    for table in tables.iter().filter(|table| !table.rows.is_empty()) {
        lines.push(String::new());
        lines.extend(rows(table, report.context_window));
    }
    if let Some(context) = report.tokens.and_then(|tokens| tokens.context) {
        let part = report.context_window.map(|total| format!(" ({} of the context window)", share(context, total)));
        lines.push(String::new());
        lines.push(format!("With the conversation: {} tokens{}.", grouped(context), part.unwrap_or_default()));
    }
    let warnings = warnings(report);
    if !warnings.is_empty() {
        lines.push(String::new());
        lines.extend(warnings);
    }
    if let Some(last) = last {
        lines.push(String::new());
        lines.push(last.to_owned());
    }
    lines.join("\n")
}

/// Formats a table as aligned lines.
fn rows(table: &ReportTable, window: Option<u64>) -> Vec<String> {
    let header = [table.title, "characters", "tokens", "of the window"].map(str::to_owned);
    let row = |(name, size, tokens): &ReportRow| {
        [
            name.clone(),
            grouped(*size as u64),
            grouped(*tokens),
            window.map_or_else(String::new, |total| share(*tokens, total)),
        ]
    };
    let cells: Vec<_> = [header].into_iter().chain(table.rows.iter().map(row)).collect();
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
fn warnings(report: &ContextReport) -> Vec<String> {
    let files = &report.injected_workspace_files;
    let cut = files.iter().filter(|file| file.truncated).map(|file| {
        let (total, injected) = (grouped(file.raw_chars as u64), grouped(file.injected_chars as u64));
        format!("{} is truncated to {injected} of {total} characters.", file.name)
    });
    let missing =
        files.iter().filter(|file| file.missing).map(|file| format!("{} is missing: {}", file.name, file.path));
    let problem = |reason: &str, name: &str| format!("{name} cannot be used: {reason}");
    let unusable = files.iter().filter_map(|file| Some(problem(file.problem.as_deref()?, &file.name)));
    cut.chain(missing).chain(unusable).chain(shortened(report)).collect()
}

/// Returns lines that explain why the prompt omits or truncates something, which setting changes that, and which tools
/// are omitted. Truncated files are not named here, because [`warnings`] adds a line for each of them.
fn shortened(report: &ContextReport) -> Vec<String> {
    let Some(shortened) = &report.shortened else { return Vec::new() };
    if shortened.style == RICH {
        return vec![LIMITS_HINT.to_owned()];
    }
    let model = format!("{}/{}", report.provider, report.model);
    let without_files = PromptCuts { files: Vec::new(), ..shortened.clone() };
    let sentences = [shortening::explain(&without_files, &model), shortening::remedy(shortened, &model)];
    let names = &report.tools.left_out;
    let listed: Vec<_> = names.iter().take(MAX_ROWS).map(String::as_str).collect();
    let more = match names.len().saturating_sub(MAX_ROWS) {
        0 => String::new(),
        more => format!(" and {more} others"),
    };
    let listed = (!listed.is_empty()).then(|| format!("Tools left out: {}{more}.", listed.join(", ")));
    sentences.into_iter().map(|sentence| format!("{}.", capitalize(&sentence))).chain(listed).collect()
}

/// Capitalizes a sentence.
fn capitalize(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Formats a share in percent with one decimal.
fn share(part: u64, total: u64) -> String {
    match u128::from(part) * 1_000 / u128::from(total.max(1)) {
        0 if part > 0 => "< 0.1 %".to_owned(),
        thousandths => format!("{}.{} %", thousandths / 10, thousandths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_formatted_in_percent() {
        let formatted =
            [(0, 9), (1, 3), (1, 9_999), (5, 0), (u64::MAX, u64::MAX)].map(|(part, total)| share(part, total));
        assert_eq!(formatted, ["0.0 %", "33.3 %", "< 0.1 %", "500.0 %", "100.0 %"]);
    }

    #[test]
    fn omitted_tools_are_listed() {
        let shortened_lines = |count: usize| {
            let mut report =
                ContextReport { provider: "p".to_owned(), model: "m".to_owned(), ..ContextReport::default() };
            report.tools.left_out = (0..count).map(|number| format!("t{number}")).collect();
            report.shortened = Some(PromptCuts { style: "lean".to_owned(), ..PromptCuts::default() });
            shortened(&report)
        };
        let reason = "The prompt for p/m is lean because agents.defaults.promptStyle is \"lean\": of the tools only read, \
                   write, edit, ls, grep, exec are offered.";
        let remedy = "For the full prompt set agents.defaults.promptStyle to \"rich\".";
        assert_eq!(shortened_lines(2), [reason, remedy, "Tools left out: t0, t1."]);
        assert!(shortened_lines(MAX_ROWS + 2)[2].ends_with("t39 and 2 others."));
        assert_eq!(shortened(&ContextReport::default()), [""; 0]);
    }

    #[test]
    fn long_lists_end_with_a_total() {
        let rows = largest((0..MAX_ROWS + 2).map(|number| (format!("{number:02}"), number, 1)).collect());
        assert_eq!(
            (rows.len(), &rows[0], &rows[MAX_ROWS - 1]),
            (MAX_ROWS, &("41".to_owned(), 41, 1), &("3 others".to_owned(), 3, 3))
        );
    }
}
