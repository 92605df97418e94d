//! `catalogue`: generates the model catalogue from a pinned npm package.
//!
//! Only facts from the package's data files are used: names, context windows, limits, prices, input types and reasoning
//! levels. The package is fetched by npm and checked against [`INTEGRITY`], so that the same version always yields the
//! same bytes. For newer models update [`VERSION`] and [`INTEGRITY`], run it, and review the diff.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell;

/// The package from which OpenClaw has its catalogue, under its present name. Its licence is MIT.
const PACKAGE: &str = "@earendil-works/pi-ai";
const VERSION: &str = "1.5.0";
const INTEGRITY: &str =
    "sha512-VeWxNqTHSqRCf8AcY/6kvNwh+neRL6MPxZPePVztIQy6qqK9MR/YoCSN/ZgDnIyCD3pqEXgRyQbzk4KV4uvjbg==";

/// Data folder of the package.
const DATA: &str = "package/dist/providers/data";
/// Output file.
const CATALOGUE: &str = "crates/model/data/catalog.txt";

/// Wire formats that Homard supports; models with others are omitted.
const WIRES: &[&str] = &["anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai"];

/// A provider to include.
struct CatalogueSource {
    /// Name in configs.
    provider: &'static str,
    /// Name in the package.
    file: &'static str,
    /// Wire format and base URL, where Homard uses others than the package.
    wire_override: Option<(&'static str, &'static str)>,
}

/// Providers with an API key in the environment, in the order of the file.
const SOURCES: &[CatalogueSource] = &[
    same("anthropic"),
    same("openai"),
    same("google"),
    chat("openrouter", "https://openrouter.ai/api/v1"),
    chat("xai", "https://api.x.ai/v1"),
    chat("mistral", "https://api.mistral.ai/v1"),
    same("groq"),
    same("deepseek"),
    same("cerebras"),
    same("minimax"),
    CatalogueSource { provider: "moonshot", file: "moonshotai", wire_override: None },
    same("kimi-coding"),
    same("zai"),
    same("opencode"),
    same("github-copilot"),
    same("vercel-ai-gateway"),
];

const fn same(provider: &'static str) -> CatalogueSource {
    CatalogueSource { provider, file: provider, wire_override: None }
}

const fn chat(provider: &'static str, base_url: &'static str) -> CatalogueSource {
    CatalogueSource { provider, file: provider, wire_override: Some(("openai-completions", base_url)) }
}

/// Models by wire format and base URL.
type CatalogueSections = BTreeMap<(String, String), BTreeMap<String, String>>;

/// Fetches the package and writes the catalogue.
pub(crate) fn run() -> Result<()> {
    let data = fetch(&shell::root().join("target").join("catalogue"))?;
    let manifest = read(&data, ".manifest")?;
    let date =
        manifest["generatedAt"].as_str().and_then(|time| time.get(..10)).context("the package has no release date")?;
    let mut text = format!(
        "# {PACKAGE} {VERSION} {date}\n\
         # Written by `cargo xtask catalogue`; do not edit.\n\
         # [provider] wire url, then its models: name window output thinking images, and the dollars that a million\n\
         # tokens cost: prompt, answer, prompt read from the cache, prompt written to it.\n"
    );
    for source in SOURCES {
        let models = read(&data, source.file)?;
        write_provider(&mut text, source, &models).with_context(|| format!("the package's {}", source.file))?;
    }
    let path = shell::root().join(CATALOGUE);
    fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{CATALOGUE}: {} bytes from {PACKAGE} {VERSION} of {date}", text.len());
    Ok(())
}

/// Fetches the package with npm and unpacks it; returns its data folder.
fn fetch(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut npm = Command::new("npm");
    npm.args(["pack", "--json", "--silent", &format!("{PACKAGE}@{VERSION}")]).current_dir(folder);
    let output = shell::output(&mut npm).context("npm is needed to fetch the package; it comes with Node")?;
    let output: Value = serde_json::from_slice(&output).context("npm pack did not write JSON")?;
    let integrity = output[0]["integrity"].as_str().unwrap_or_default();
    ensure!(integrity == INTEGRITY, "{PACKAGE} {VERSION} should be {INTEGRITY}, but is {integrity}");
    let archive = output[0]["filename"].as_str().context("npm pack did not print a file name")?;
    let mut tar = Command::new("tar");
    tar.args(["-xzf", archive]).current_dir(folder);
    shell::run(&mut tar)?;
    Ok(folder.join(DATA))
}

fn read(data: &Path, name: &str) -> Result<Value> {
    let path = data.join(format!("{name}.json"));
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))
}

/// Writes the sections of a provider; the one with most models comes first and applies to models that are not listed.
fn write_provider(text: &mut String, source: &CatalogueSource, models: &Value) -> Result<()> {
    let by_wire = models.as_object().context("is not an object")?;
    let listed = by_wire.values().filter_map(Value::as_object).flat_map(|models| models.values());
    let mut sections = CatalogueSections::new();
    for model in listed.filter(|model| model["type"] == "chat") {
        let name = model["id"].as_str().context("a model has no id")?;
        let own = (model["api"].as_str().unwrap_or_default(), model["baseUrl"].as_str().unwrap_or_default());
        let (api, base_url) = source.wire_override.unwrap_or(own);
        if WIRES.contains(&api) {
            let facts = facts(model, api).with_context(|| name.to_owned())?;
            let section = sections.entry((api.to_owned(), base_url.to_owned())).or_default();
            let before = section.insert(name.to_owned(), facts);
            ensure!(before.is_none(), "{name} is listed twice");
        }
    }
    let mut sections: Vec<_> = sections.into_iter().collect();
    ensure!(!sections.is_empty(), "has no usable model");
    sections.sort_by_key(|(_, models)| std::cmp::Reverse(models.len()));
    for ((api, base_url), models) in sections {
        writeln!(text, "[{}] {api} {base_url}", source.provider)?;
        for (name, facts) in models {
            ensure!(!name.contains(char::is_whitespace), "\"{name}\" contains whitespace");
            writeln!(text, "{name} {facts}")?;
        }
    }
    Ok(())
}

/// Formats the facts about a model, without its name.
fn facts(model: &Value, api: &str) -> Result<String> {
    let window = model["contextWindow"].as_u64().context("no context window")?;
    // A few models claim an output limit above their context window.
    let output = model["maxTokens"].as_u64().context("no output limit")?.min(window);
    let levels = match levels(model, api) {
        levels if levels.is_empty() => "-".to_owned(),
        levels => levels.join(","),
    };
    let accepts_images = model["input"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "image"));
    let images = if accepts_images { "images" } else { "-" };
    let mut line = format!("{window} {output} {levels} {images}");
    for kind in ["input", "output", "cacheRead", "cacheWrite"] {
        let price = model["cost"][kind].as_number().with_context(|| format!("no price for {kind}"))?;
        write!(line, " {price}")?;
    }
    Ok(line)
}

/// Returns the reasoning levels of a model, from the package's map of levels to the provider's names for them.
///
/// | the map has | then the level |
/// |---|---|
/// | `null` | is unsupported |
/// | no entry | is supported if it is one of the usual four |
/// | its own name | is supported |
/// | another name | is unsupported: requesting it would be rejected, and the next one is requested instead |
/// | for `off`, any name | is supported: the model must be told explicitly not to think |
///
/// `max` is above all levels of Homard. If it is the only level above `high`, Homard's Anthropic wire format requests
/// it for `xhigh`.
fn levels(model: &Value, api: &str) -> Vec<&'static str> {
    if model["reasoning"] != true {
        return Vec::new();
    }
    let level_names = &model["thinkingLevelMap"];
    let is_supported = |level: &&str| match level_names.get(*level) {
        Some(Value::String(name)) => *level == "off" || name.eq_ignore_ascii_case(level),
        Some(_) => false,
        None if *level == "xhigh" => api == "anthropic-messages" && level_names["max"].is_string(),
        None => *level != "off",
    };
    ["off", "minimal", "low", "medium", "high", "xhigh"].into_iter().filter(is_supported).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn model(name: &str, changes: &Value) -> Value {
        let mut model = json!({
            "id": name, "type": "chat", "api": "openai-responses", "baseUrl": "https://a/v1", "reasoning": false,
            "input": ["text"], "contextWindow": 1000, "maxTokens": 100,
            "cost": {"input": 1, "output": 2.5, "cacheRead": 0, "cacheWrite": 0.125},
        });
        for (key, value) in changes.as_object().unwrap() {
            model[key] = value.clone();
        }
        model
    }

    #[test]
    fn models_are_listed_by_wire_and_the_largest_section_is_first() {
        let changes = json!({"reasoning": true, "input": ["text", "image"], "maxTokens": 2000});
        let models = json!({
            "anthropic-messages": {"c": model("c", &json!({"api": "anthropic-messages", "baseUrl": "https://b"}))},
            "openai-responses": {"z": model("z", &json!({})), "a": model("a", &changes)},
            "pictures": {"p": model("p", &json!({"type": "image"}))},
            "unknown": {"u": model("u", &json!({"api": "unknown"}))},
        });
        let mut text = String::new();
        write_provider(&mut text, &same("x"), &models).unwrap();
        assert_eq!(
            text,
            "[x] openai-responses https://a/v1\n\
             a 1000 1000 minimal,low,medium,high images 1 2.5 0 0.125\n\
             z 1000 100 - - 1 2.5 0 0.125\n\
             [x] anthropic-messages https://b\n\
             c 1000 100 - - 1 2.5 0 0.125\n"
        );
    }

    #[test]
    fn levels_follow_the_packages_map() {
        for (map, api, expected) in [
            (json!(null), "openai-responses", "minimal,low,medium,high"),
            (json!({"off": "none", "minimal": null, "xhigh": "xhigh"}), "", "off,low,medium,high,xhigh"),
            (json!({"off": null, "minimal": "low", "low": "LOW", "high": "default"}), "", "low,medium"),
            (json!({"max": "max"}), "anthropic-messages", "minimal,low,medium,high,xhigh"),
            (json!({"max": "max"}), "openai-completions", "minimal,low,medium,high"),
            (json!({"xhigh": null, "max": "max"}), "anthropic-messages", "minimal,low,medium,high"),
        ] {
            let reasoning_model = model("m", &json!({"reasoning": true, "thinkingLevelMap": map}));
            assert_eq!(levels(&reasoning_model, api).join(","), expected, "{map}");
        }
        assert_eq!(levels(&model("m", &json!({"thinkingLevelMap": {"xhigh": "xhigh"}})), ""), [""; 0]);
    }

    #[test]
    fn missing_and_duplicate_data_is_reported() {
        let error_of = |models: Value| write_provider(&mut String::new(), &same("x"), &models).unwrap_err().to_string();
        let twice = json!({"a": {"m": model("m", &json!({})), "n": model("m", &json!({}))}});
        assert_eq!(error_of(twice), "m is listed twice");
        assert_eq!(error_of(json!({"a": {"m": model("m", &json!({"api": "b"}))}})), "has no usable model");
        let error = facts(&model("m", &json!({"cost": {"input": 1}})), "").unwrap_err();
        assert_eq!(error.to_string(), "no price for output");
    }
}
