//! `homard docs`: prints the documentation that belongs to this version.

use anyhow::Result;
use homard_config::nearest;
use serde_json::json;

use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// The pages, by topic.
const PAGES: [(&str, &str); 39] = [
    ("agents", include_str!("../../../../docs/agents.md")),
    ("approvals", include_str!("../../../../docs/approvals.md")),
    ("channels", include_str!("../../../../docs/channels.md")),
    ("chat", include_str!("../../../../docs/chat.md")),
    ("cli", include_str!("../../../../docs/cli.md")),
    ("clients", include_str!("../../../../docs/clients.md")),
    ("compaction", include_str!("../../../../docs/compaction.md")),
    ("compatibility", include_str!("../../../../docs/compatibility.md")),
    ("configuration", include_str!("../../../../docs/configuration.md")),
    ("context", include_str!("../../../../docs/context.md")),
    ("discord", include_str!("../../../../docs/channels/discord.md")),
    ("doctor", include_str!("../../../../docs/doctor.md")),
    ("durability", include_str!("../../../../docs/durability.md")),
    ("gateway", include_str!("../../../../docs/gateway.md")),
    ("getting-started", include_str!("../../../../docs/getting-started.md")),
    ("glossary", include_str!("../../../../docs/glossary.md")),
    ("hooks", include_str!("../../../../docs/hooks.md")),
    ("hosted", include_str!("../../../../docs/channels/hosted.md")),
    ("import", include_str!("../../../../docs/import.md")),
    ("install", include_str!("../../../../docs/install.md")),
    ("mcp", include_str!("../../../../docs/mcp.md")),
    ("messages", include_str!("../../../../docs/messages.md")),
    ("models", include_str!("../../../../docs/models.md")),
    ("openai", include_str!("../../../../docs/openai.md")),
    ("operations", include_str!("../../../../docs/operations.md")),
    ("page", include_str!("../../../../docs/page.md")),
    ("plugins", include_str!("../../../../docs/plugins.md")),
    ("replies", include_str!("../../../../docs/replies.md")),
    ("schedule", include_str!("../../../../docs/schedule.md")),
    ("security", include_str!("../../../../docs/security.md")),
    ("sessions", include_str!("../../../../docs/sessions.md")),
    ("skills", include_str!("../../../../docs/skills.md")),
    ("telegram", include_str!("../../../../docs/channels/telegram.md")),
    ("tools", include_str!("../../../../docs/tools.md")),
    ("trace", include_str!("../../../../docs/trace.md")),
    ("troubleshooting", include_str!("../../../../docs/troubleshooting.md")),
    ("upgrade", include_str!("../../../../docs/upgrade.md")),
    ("webhook", include_str!("../../../../docs/channels/webhook.md")),
    ("webhooks", include_str!("../../../../docs/webhooks.md")),
];

/// Arguments of `homard docs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard docs                               list the topics
  homard docs models                        print a page")]
pub(super) struct Args {
    /// Topic of the page [default: list the topics]
    #[arg(num_args = 0..)]
    topic: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    match args.topic.as_slice() {
        [] => list(args.json),
        [topic] => {
            let page = page(topic)?;
            match args.json {
                true => Ok(render::print_json(&json!({"topic": topic, "title": title(page), "text": page}))?),
                false => Ok(render::print(page.trim_end())?),
            }
        }
        _ => {
            Err(CliError::usage("homard docs takes one topic and does not search; list topics with: homard docs")
                .into())
        }
    }
}

fn list(is_json: bool) -> Result<()> {
    if is_json {
        let row = |(topic, page): &(&str, &str)| json!({"topic": topic, "title": title(page)});
        return Ok(render::print_json(&json!({"topics": PAGES.iter().map(row).collect::<Vec<_>>()}))?);
    }
    let titles = ["TOPIC", "TITLE"].map(str::to_owned).to_vec();
    let row = |(topic, page): &(&str, &str)| vec![(*topic).to_owned(), title(page).to_owned()];
    Ok(render::print_table(&Table::list(std::iter::once(titles).chain(PAGES.iter().map(row)).collect()))?)
}

/// Returns the page of a topic.
fn page(topic: &str) -> Result<&'static str, CliError> {
    let name = topic.trim().to_lowercase();
    if let Some((_, text)) = PAGES.iter().find(|(known, _)| *known == name) {
        return Ok(text);
    }
    let hint = nearest(&name, PAGES.iter().map(|(topic, _)| *topic));
    let hint = hint.map(|similar| format!("; did you mean {similar}?")).unwrap_or_default();
    Err(CliError::usage(format!("no documentation about \"{name}\"{hint}\nlist topics with: homard docs")))
}

/// Returns the title of a page, its first heading.
fn title(page: &str) -> &str {
    page.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_page_is_a_topic() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let files = [docs.clone(), docs.join("channels")].into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        let files =
            files.map(|file| file.unwrap().path()).filter(|file| file.extension().is_some_and(|end| end == "md"));
        let stems = files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned());
        let pages: BTreeSet<String> = stems.filter(|stem| stem != "README" && stem != "benchmarks").collect();
        let topics: BTreeSet<String> = PAGES.iter().map(|(topic, _)| (*topic).to_owned()).collect();
        assert_eq!(topics, pages);
        assert!(PAGES.is_sorted(), "topics are listed in alphabetical order");
    }

    #[test]
    fn a_topic_prints_its_page() {
        for (topic, _) in PAGES {
            assert!(!title(page(topic).unwrap()).is_empty(), "{topic}");
        }
        assert!(page("configuration").unwrap().contains("agents.defaults.model"));
        let error = page("model").unwrap_err();
        let expected = "no documentation about \"model\"; did you mean models?\nlist topics with: homard docs";
        assert_eq!((error.message.as_str(), error.exit), (expected, 2));
    }

    #[test]
    fn every_topic_that_a_message_names_exists() {
        let crates = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
        let mut folders: Vec<_> = crates.map(|entry| entry.unwrap().path().join("src")).collect();
        let mut named = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|end| end == "rs") {
                    let text = fs::read_to_string(&entry).unwrap();
                    for tail in text.split("homard docs ").skip(1) {
                        let end = tail.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(tail.len());
                        // The help text of the command itself has explanations after its examples.
                        if end > 0 && !tail.starts_with("takes ") {
                            named.insert(tail[..end].to_owned());
                        }
                    }
                }
            }
        }
        let unknown: Vec<_> = named.iter().filter(|topic| !PAGES.iter().any(|(known, _)| known == topic)).collect();
        assert!(named.contains("models") && unknown.is_empty(), "{unknown:?}");
    }
}
