//! What a prompt omits or truncates, why, and which setting changes that.
//!
//! Everything that reports it (`/context`, `/status`, `homard status`, `homard doctor`, `homard trace`) uses these
//! texts.

use homard_model::ModelSpec;
use homard_store::timeline::{PromptCuts, TruncatedFile};
use homard_workspace::PromptPage;

use super::compact_tools;
use crate::{config::PromptStyle, context_budget::SMALL_WINDOW, input::Wording, sections::files};

/// Name of the full prompt style.
pub(crate) const RICH: &str = "rich";

/// Why a prompt is lean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeanReason {
    /// `agents.defaults.promptStyle` asks for it.
    Configured,
    /// The model's context window is smaller than [`SMALL_WINDOW`].
    SmallWindow(u64),
}

impl LeanReason {
    /// Returns why the prompt for a model is lean; `None` if it is the full one.
    ///
    /// The address of a model is no reason: routers such as LiteLLM and servers such as vLLM run on loopback, too. A
    /// window of zero is unknown, which is no reason either.
    fn of(style: PromptStyle, spec: &ModelSpec) -> Option<Self> {
        match style {
            PromptStyle::Rich => None,
            PromptStyle::Lean | PromptStyle::Bare => Some(Self::Configured),
            PromptStyle::Auto => Some(Self::SmallWindow(spec.context_window))
                .filter(|_| (1..SMALL_WINDOW).contains(&spec.context_window)),
        }
    }
}

/// Selects the wording for a model.
pub fn wording(style: PromptStyle, spec: &ModelSpec) -> Wording {
    if LeanReason::of(style, spec).is_some() { Wording::Lean } else { Wording::Rich }
}

/// Returns what the prompt for a model omits or truncates, given the workspace files; `None` if nothing. The caller
/// adds the number of omitted tools.
pub fn of(style: PromptStyle, spec: &ModelSpec, files: &[PromptPage]) -> Option<PromptCuts> {
    let reason = LeanReason::of(style, spec);
    let cut = |shown: files::ShownFile<'_>| TruncatedFile {
        name: shown.page.name.to_string(),
        chars: shown.page.chars as u64,
        kept: shown.text.chars().count() as u64,
    };
    let shown = match style {
        PromptStyle::Bare => Vec::new(),
        PromptStyle::Auto | PromptStyle::Rich | PromptStyle::Lean => files::shown(files, wording(style, spec)),
    };
    let files: Vec<_> = shown.into_iter().filter(|shown| shown.is_cut).map(cut).collect();
    let (name, window) = match reason {
        None => (RICH, None),
        Some(LeanReason::SmallWindow(window)) => ("lean", Some(window)),
        Some(LeanReason::Configured) if style == PromptStyle::Bare => ("bare", None),
        Some(LeanReason::Configured) => ("lean", None),
    };
    (reason.is_some() || !files.is_empty()).then(|| PromptCuts { style: name.to_owned(), window, tools: 0, files })
}

/// Explains in one sentence what is omitted or truncated in the prompt for a model, and why.
pub fn explain(shortened: &PromptCuts, model: &str) -> String {
    let PromptCuts { style, window, tools, files } = shortened;
    let reason = match window {
        Some(window) => {
            format!("its context window of {} tokens is below {}", grouped(*window), grouped(SMALL_WINDOW))
        }
        None => format!("agents.defaults.promptStyle is \"{style}\""),
    };
    let left_out = match tools {
        0 => String::new(),
        1 => " (1 tool left out)".to_owned(),
        tools => format!(" ({tools} tools left out)"),
    };
    let offered = compact_tools::CORE_TOOLS.join(", ");
    let file_list: Vec<_> = files.iter().map(|file| part(&file.name, file.kept, file.chars)).collect();
    let file_list = file_list.join(", ");
    match style.as_str() {
        RICH => format!("workspace files are cut in the prompt for {model}: {file_list}"),
        "bare" => format!(
            "the prompt for {model} is bare because {reason}: of the tools only {offered} are offered{left_out}, and no \
             workspace files are included"
        ),
        _ => {
            let cut =
                if files.is_empty() { String::new() } else { format!(", and workspace files are cut: {file_list}") };
            format!(
                "the prompt for {model} is lean because {reason}: of the tools only {offered} are offered{left_out}{cut}"
            )
        }
    }
}

/// Advises which setting to change so that the prompt for a model omits and truncates less.
pub fn remedy(shortened: &PromptCuts, model: &str) -> String {
    let provider = model.split('/').next().unwrap_or(model);
    match (shortened.style.as_str(), shortened.window) {
        (RICH, _) => {
            "shorten the files, or raise agents.defaults.bootstrapMaxChars and agents.defaults.bootstrapTotalMaxChars"
                .to_owned()
        }
        (_, Some(_)) => format!(
            "for the full prompt set agents.defaults.promptStyle to \"rich\"; if the window is wrong, correct \
             models.providers.{provider}.models[].contextWindow or agents.defaults.contextTokens"
        ),
        (_, None) => "for the full prompt set agents.defaults.promptStyle to \"rich\"".to_owned(),
    }
}

/// Formats how much of a file is included.
fn part(name: &str, kept: u64, all: u64) -> String {
    format!("{name} ({} of {} characters)", grouped(kept), grouped(all))
}

/// Formats a number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let (head, tail) = digits.split_at(first);
    let groups = (0..tail.len() / 3).map(|group| &tail[group * 3..][..3]);
    let head = (!head.is_empty()).then_some(head);
    head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use homard_workspace::PageBody;

    use super::*;

    fn spec(context_window: u64) -> ModelSpec {
        ModelSpec { context_window, idle_timeout: Duration::from_secs(300), ..ModelSpec::default() }
    }

    fn file(chars: usize) -> PromptPage {
        let body = PageBody::Whole("a".repeat(chars));
        PromptPage { name: "AGENTS.md".into(), path: "/w/AGENTS.md".into(), body, chars }
    }

    #[test]
    fn the_wording_depends_on_the_window_and_the_config() {
        use Wording::{Lean, Rich};
        let auto = [0, 1, 31_999, 32_000, 200_000].map(|window| wording(PromptStyle::Auto, &spec(window)));
        assert_eq!(auto, [Rich, Lean, Lean, Rich, Rich]);
        let set = [PromptStyle::Rich, PromptStyle::Lean, PromptStyle::Bare].map(|style| wording(style, &spec(20_000)));
        assert_eq!(set, [Rich, Lean, Lean]);
    }

    #[test]
    fn a_shortened_prompt_is_explained_with_a_remedy() {
        let explanation = |style, window, chars| {
            let shortened = of(style, &spec(window), &[file(chars)])?;
            Some((explain(&PromptCuts { tools: 3, ..shortened.clone() }, "p/m"), remedy(&shortened, "p/m")))
        };
        assert_eq!(explanation(PromptStyle::Auto, 200_000, 9_000), None);
        let because = "its context window of 20,000 tokens is below 32,000";
        let tools = "of the tools only read, write, edit, ls, grep, exec are offered (3 tools left out)";
        let (explained, remedy) = explanation(PromptStyle::Auto, 20_000, 9_000).unwrap();
        assert_eq!(
            explained,
            format!(
                "the prompt for p/m is lean because {because}: {tools}, and workspace files are cut: AGENTS.md (2,500 of \
                 9,000 characters)"
            )
        );
        assert_eq!(
            remedy,
            "for the full prompt set agents.defaults.promptStyle to \"rich\"; if the window is wrong, correct \
             models.providers.p.models[].contextWindow or agents.defaults.contextTokens"
        );
        let (explained, remedy) = explanation(PromptStyle::Lean, 200_000, 9).unwrap();
        assert_eq!(
            explained,
            format!("the prompt for p/m is lean because agents.defaults.promptStyle is \"lean\": {tools}")
        );
        assert_eq!(remedy, "for the full prompt set agents.defaults.promptStyle to \"rich\"");
        let (explained, _) = explanation(PromptStyle::Bare, 200_000, 9_000).unwrap();
        assert!(
            explained.ends_with(&format!("is \"bare\": {tools}, and no workspace files are included")),
            "{explained}"
        );
    }

    #[test]
    fn a_truncated_file_is_reported_in_the_full_prompt() {
        let cut = PromptPage { body: PageBody::Cut("a".repeat(20_000)), ..file(45_000) };
        let shortened = of(PromptStyle::Auto, &spec(200_000), &[file(10), cut]).unwrap();
        assert_eq!(
            explain(&shortened, "p/m"),
            "workspace files are cut in the prompt for p/m: AGENTS.md (20,000 of 45,000 characters)"
        );
        assert!(remedy(&shortened, "p/m").contains("agents.defaults.bootstrapMaxChars"));
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let formatted = [0, 12, 123, 1_234, 123_456, 1_234_567].map(grouped);
        assert_eq!(formatted, ["0", "12", "123", "1,234", "123,456", "1,234,567"]);
    }
}
