//! What a request asks, whichever API it came by: what was said, with which tools, and how the answer is to be.

use std::collections::BTreeMap;

use homard_agent::tool::ToolSpec;
use serde_json::{Value, json};

use super::{
    content::Content,
    refusal::{Refusal, text},
};

/// What a request asks.
#[derive(Debug, Default)]
pub(super) struct Question {
    /// What its system and developer messages say.
    system: Vec<String>,
    lines: Vec<Line>,
    /// The names of the calls that it tells of, by their ids.
    calls: BTreeMap<String, String>,
    /// The tools that the caller has.
    pub(super) tools: Vec<ToolSpec>,
    /// How hard to think, as a level.
    pub(super) thinking: Option<String>,
    /// The part of the request that it stands in.
    pub(super) part: &'static str,
}

/// Something that was said.
#[derive(Debug)]
struct Line {
    by: By,
    content: Content,
}

/// Who said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    User,
    Assistant,
    Tool,
}

/// A question as an agent is asked it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// What is said.
    pub(super) content: Content,
    /// What is added to the system prompt.
    pub(super) system: Option<String>,
}

/// How much of a conversation a session knows already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing: all of it is told.
    Nothing,
    /// Everything up to the agent's last answer.
    Conversation,
}

impl Question {
    /// Nothing yet, from this part of a request.
    pub(super) fn new(part: &'static str, thinking: Option<String>) -> Self {
        Self { part, thinking, ..Self::default() }
    }

    /// Adds a message with a role; `place` is where it stands in the request.
    pub(super) fn add(&mut self, role: &str, content: Content, place: &str) -> Result<(), Refusal> {
        let by = match role {
            "system" | "developer" => {
                self.instruct(content.text);
                return Ok(());
            }
            "user" => By::User,
            "assistant" => By::Assistant,
            other => {
                let must = format!("must be system, developer, user, assistant or tool, not \"{other}\"");
                return Err(Refusal::part(&format!("{place}.role"), &must));
            }
        };
        if !content.is_empty() {
            self.lines.push(Line { by, content });
        }
        Ok(())
    }

    /// Adds a wish for the system prompt.
    pub(super) fn instruct(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.trim().is_empty() {
            self.system.push(text);
        }
    }

    /// Adds a call of one of the caller's tools, which the agent made before.
    pub(super) fn add_call(&mut self, id: &str, name: &str, arguments: &str) {
        self.calls.insert(id.to_owned(), name.to_owned());
        let text = format!("(called {name} with {arguments})");
        self.lines.push(Line { by: By::Assistant, content: Content { text, ..Content::default() } });
    }

    /// Adds what came of a call.
    pub(super) fn add_result(&mut self, id: &str, mut content: Content) {
        let name = self.calls.get(id).map_or("the call", String::as_str);
        content.text = format!("[Result of {name} ({id})]\n{}", content.text);
        self.lines.push(Line { by: By::Tool, content });
    }

    /// Offers the caller's tools, as far as its `tool_choice` lets them be called.
    pub(super) fn offer(&mut self, tools: Vec<ToolSpec>, choice: &Value) -> Result<(), Refusal> {
        let named = choice["function"]["name"].as_str().or(choice["name"].as_str());
        match (choice.as_str(), named) {
            (Some("none"), _) => return Ok(()),
            (Some("auto"), _) => self.tools = tools,
            (Some("required"), _) if tools.is_empty() => {
                return Err(Refusal::part("tool_choice", "must not be required where there are no tools"));
            }
            (Some("required"), _) => {
                self.tools = tools;
                self.instruct("Call one of the client's tools before you answer.");
            }
            (None, Some(name)) => {
                self.tools = tools.into_iter().filter(|tool| tool.name == name).collect();
                if self.tools.is_empty() {
                    return Err(Refusal::part("tool_choice", &format!("names {name}, which is not among the tools")));
                }
                self.instruct(format!("Call the tool {name} before you answer."));
            }
            (None, None) if choice.is_null() => self.tools = tools,
            (Some(_), _) | (None, None) => {
                return Err(Refusal::part("tool_choice", "must be none, auto, required or the name of a function"));
            }
        }
        Ok(())
    }

    /// Asks for an answer in JSON, if `format` wants that; `place` is where it stands in the request.
    pub(super) fn shape(&mut self, format: &Value, place: &str) -> Result<(), Refusal> {
        let schema = match format["type"].as_str() {
            Some("json_object") => Value::Null,
            Some("json_schema") => {
                format["json_schema"]["schema"].as_object().or(format["schema"].as_object()).cloned().into()
            }
            Some("text") => return Ok(()),
            None if format.is_null() => return Ok(()),
            Some(_) | None => {
                return Err(Refusal::part(&format!("{place}.type"), "must be text, json_object or json_schema"));
            }
        };
        self.instruct("Your answer is read by a program: answer with one JSON value and nothing else.");
        if !schema.is_null() {
            self.instruct(format!("It must fit this JSON Schema: {schema}"));
        }
        Ok(())
    }

    /// Whether it tells of answers that the agent gave before.
    pub(super) fn tells_of_answers(&self) -> bool {
        self.lines.iter().any(|line| line.by == By::Assistant)
    }

    /// The question as an agent is asked it: what came after its last answer, and before that, for an agent that does
    /// not know it, the conversation. `None` when nobody says anything.
    pub(super) fn ask(self, known: Known) -> Option<Asked> {
        let mut lines = self.lines;
        lines.truncate(lines.iter().rposition(|line| line.by != By::Assistant)? + 1);
        let since = lines.iter().rposition(|line| line.by == By::Assistant).map_or(0, |answer| answer + 1);
        let mut content = Content::default();
        let new = lines.split_off(since);
        content.text = new.iter().map(|line| line.content.text.as_str()).collect::<Vec<_>>().join("\n\n");
        if known == Known::Nothing && !lines.is_empty() {
            let before: Vec<_> = lines.iter().map(Line::told).collect();
            content.text = format!("[The conversation so far:\n\n{}]\n\n{}", before.join("\n\n"), content.text);
            content.pictures.extend(lines.into_iter().flat_map(|line| line.content.pictures));
        }
        content.pictures.extend(new.into_iter().flat_map(|line| line.content.pictures));
        let system = (!self.system.is_empty()).then(|| self.system.join("\n\n"));
        Some(Asked { content, system })
    }
}

impl Line {
    fn told(&self) -> String {
        let by = match self.by {
            By::User => "User: ",
            By::Assistant => "You: ",
            By::Tool => "",
        };
        format!("{by}{}", self.content.text)
    }
}

/// The functions among a request's tools: the newer API names them directly, the older one inside `function`.
pub(super) fn functions(tools: &Value) -> Result<Vec<ToolSpec>, Refusal> {
    if tools.is_null() {
        return Ok(Vec::new());
    }
    let tools = tools.as_array().ok_or_else(|| Refusal::part("tools", "must be a list"))?;
    let function = |(number, tool): (usize, &Value)| {
        let place = format!("tools[{number}]");
        if tool["type"] != "function" {
            let must = format!("is a tool of type {}; only functions of your own are supported", tool["type"]);
            return Err(Refusal::part(&place, &must));
        }
        let function = if tool["function"].is_object() { &tool["function"] } else { tool };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let name = function["name"].as_str().unwrap_or_default();
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
            return Err(Refusal::part(
                &place,
                "must have a name of at most 64 letters, digits, dashes and underscores",
            ));
        }
        let parameters = &function["parameters"];
        if !parameters.is_null() && !parameters.is_object() {
            return Err(Refusal::part(&place, "must have a JSON Schema as its parameters"));
        }
        let nothing = || json!({"type": "object", "properties": {}});
        let parameters = if parameters.is_null() { nothing() } else { parameters.clone() };
        let description =
            text(&function["description"], &format!("{place}.description"))?.unwrap_or_default().to_owned();
        Ok(ToolSpec { name: name.to_owned(), description, parameters })
    };
    tools.iter().enumerate().map(function).collect()
}
