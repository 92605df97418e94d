//! A parsed request, independent of the API: messages, tools and output format.

use std::collections::BTreeMap;

use homard_agent::tool::ToolSpec;
use homard_prompt::client_results::{ClientResult, placeholder_result};
use homard_proto::message::{Assistant, Block, Message, StopReason, ToolCall, ToolResult, User};
use serde_json::{Map, Value, json};

use super::{
    content::MessageContent,
    error::{ApiError, text},
};

/// A parsed request.
#[derive(Debug, Default)]
pub(super) struct ParsedRequest {
    /// Texts of system and developer messages.
    system: Vec<String>,
    messages: Vec<RequestMessage>,
    /// Tool names of the calls in the request, by call id.
    calls: BTreeMap<String, String>,
    /// Tools of the caller.
    pub(super) tools: Vec<ToolSpec>,
    /// Thinking level.
    pub(super) thinking: Option<String>,
    /// Request field that contains the messages.
    pub(super) messages_field: &'static str,
}

/// A message of the request.
#[derive(Debug)]
enum RequestMessage {
    User(MessageContent),
    /// An answer of the agent, with calls of the caller's tools.
    Assistant(MessageContent, Vec<ToolCall>),
    /// The result of a call, by call id.
    Tool(String, MessageContent),
}

/// A request in the form that is submitted to an agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AgentInput {
    /// The new message: its text and images.
    pub(super) content: MessageContent,
    /// Results of the caller's tools, and the remaining text.
    pub(super) results: Vec<ClientResult>,
    pub(super) remaining_text: String,
    /// The preceding conversation, for a session that does not contain it.
    pub(super) history: Vec<HistoryMessage>,
    /// Addition to the system prompt.
    pub(super) system: Option<String>,
}

/// A message of the preceding conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HistoryMessage {
    pub(super) message: Message,
    /// Its images as `data:` URLs.
    pub(super) images: Vec<String>,
}

/// How much of a conversation a session contains already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HistoryState {
    /// Nothing: the whole conversation is passed on.
    Empty,
    /// Everything up to the agent's last answer.
    Complete,
}

impl ParsedRequest {
    /// Creates an empty request whose messages come from this field.
    pub(super) fn new(part: &'static str, thinking: Option<String>) -> Self {
        Self { messages_field: part, thinking, ..Self::default() }
    }

    /// Adds a message with a role; `path` is its path in the request.
    pub(super) fn add(&mut self, role: &str, content: MessageContent, path: &str) -> Result<(), ApiError> {
        let message = match role {
            "system" | "developer" => {
                self.add_instructions(content.text);
                return Ok(());
            }
            _ if content.is_empty() && ["user", "assistant"].contains(&role) => return Ok(()),
            "user" => RequestMessage::User(content),
            "assistant" => RequestMessage::Assistant(content, Vec::new()),
            other => {
                let problem = format!("must be system, developer, user, assistant or tool, not \"{other}\"");
                return Err(ApiError::invalid_field(&format!("{path}.role"), &problem));
            }
        };
        self.messages.push(message);
        Ok(())
    }

    /// Adds instructions to the system prompt.
    pub(super) fn add_instructions(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.trim().is_empty() {
            self.system.push(text);
        }
    }

    /// Adds a call of a caller's tool that the agent made earlier.
    pub(super) fn add_call(&mut self, id: &str, name: &str, arguments: &str) {
        self.calls.insert(id.to_owned(), name.to_owned());
        // Arguments that are not valid JSON are kept as text.
        let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into());
        let call = ToolCall { id: id.to_owned(), name: name.to_owned(), arguments, ..ToolCall::default() };
        match self.messages.last_mut() {
            Some(RequestMessage::Assistant(_, calls)) => calls.push(call),
            Some(RequestMessage::User(_) | RequestMessage::Tool(..)) | None => {
                self.messages.push(RequestMessage::Assistant(MessageContent::default(), vec![call]));
            }
        }
    }

    /// Adds the result of a call.
    pub(super) fn add_result(&mut self, id: &str, content: MessageContent) {
        self.messages.push(RequestMessage::Tool(id.to_owned(), content));
    }

    /// Sets the caller's tools, as far as `tool_choice` allows them.
    pub(super) fn set_tools(&mut self, tools: Vec<ToolSpec>, choice: &Value) -> Result<(), ApiError> {
        let named = choice["function"]["name"].as_str().or(choice["name"].as_str());
        match (choice.as_str(), named) {
            (Some("none"), _) => return Ok(()),
            (Some("auto"), _) => self.tools = tools,
            (Some("required"), _) if tools.is_empty() => {
                return Err(ApiError::invalid_field("tool_choice", "must not be required without tools"));
            }
            (Some("required"), _) => {
                self.tools = tools;
                self.add_instructions("Call one of the client's tools before you answer.");
            }
            (None, Some(name)) => {
                self.tools = tools.into_iter().filter(|tool| tool.name == name).collect();
                if self.tools.is_empty() {
                    return Err(ApiError::invalid_field(
                        "tool_choice",
                        &format!("names {name}, which is not in tools"),
                    ));
                }
                self.add_instructions(format!("Call the tool {name} before you answer."));
            }
            (None, None) if choice.is_null() => self.tools = tools,
            (Some(_), _) | (None, None) => {
                return Err(ApiError::invalid_field(
                    "tool_choice",
                    "must be none, auto, required or the name of a function",
                ));
            }
        }
        Ok(())
    }

    /// Requests JSON output if `format` says so; `path` is its path in the request.
    pub(super) fn set_format(&mut self, format: &Value, path: &str) -> Result<(), ApiError> {
        let schema = match format["type"].as_str() {
            Some("json_object") => Value::Null,
            Some("json_schema") => {
                format["json_schema"]["schema"].as_object().or(format["schema"].as_object()).cloned().into()
            }
            Some("text") => return Ok(()),
            None if format.is_null() => return Ok(()),
            Some(_) | None => {
                return Err(ApiError::invalid_field(
                    &format!("{path}.type"),
                    "must be text, json_object or json_schema",
                ));
            }
        };
        self.add_instructions("Your answer is read by a program: answer with one JSON value and nothing else.");
        if !schema.is_null() {
            self.add_instructions(format!("It must fit this JSON Schema: {schema}"));
        }
        Ok(())
    }

    /// True if the request contains earlier answers of the agent.
    pub(super) fn has_answers(&self) -> bool {
        self.messages.iter().any(is_answer)
    }

    /// Converts the request to what the agent receives: everything after its last answer, preceded by the conversation
    /// if the agent does not know it. `None` if there is no message.
    pub(super) fn into_input(mut self, history_state: HistoryState, now: u64) -> Option<AgentInput> {
        let mut messages = std::mem::take(&mut self.messages);
        messages.truncate(messages.iter().rposition(|message| !is_answer(message))? + 1);
        let first_new = messages.iter().rposition(is_answer).map_or(0, |answer| answer + 1);
        let new = messages.split_off(first_new);
        let mut input =
            AgentInput { system: (!self.system.is_empty()).then(|| self.system.join("\n\n")), ..AgentInput::default() };
        let (mut texts, mut remaining) = (Vec::new(), Vec::new());
        for message in new {
            let content = match message {
                RequestMessage::Tool(id, content) => {
                    let labelled = format!("[Result of {} ({id})]\n{}", self.tool_name(&id), content.text);
                    texts.push(labelled.clone());
                    input.results.push(ClientResult { tool_call_id: id, text: content.text, prose: labelled });
                    input.content.images.extend(content.images);
                    continue;
                }
                RequestMessage::User(content) | RequestMessage::Assistant(content, _) => content,
            };
            texts.push(content.text.clone());
            remaining.push(content.text);
            input.content.images.extend(content.images);
        }
        (input.content.text, input.remaining_text) = (texts.join("\n\n"), remaining.join("\n\n"));
        if history_state == HistoryState::Empty {
            let open_results: Vec<_> = match messages.last() {
                Some(RequestMessage::Assistant(_, calls)) => {
                    calls.iter().map(|call| placeholder_result(&call.id, &call.name, now)).collect()
                }
                Some(RequestMessage::User(_) | RequestMessage::Tool(..)) | None => Vec::new(),
            };
            // A tool result is text; its images are attached to the new message.
            let images = messages.iter().filter_map(|message| match message {
                RequestMessage::Tool(_, content) => Some(content.images.iter().cloned()),
                RequestMessage::User(_) | RequestMessage::Assistant(..) => None,
            });
            input.content.images.extend(images.flatten());
            input.history = messages.into_iter().map(|message| self.history_message(message, now)).collect();
            // Every call in a transcript needs a result; those for the last answer come with the new message.
            let open_results = open_results.into_iter().map(Message::ToolResult);
            input.history.extend(open_results.map(|message| HistoryMessage { message, images: Vec::new() }));
        }
        Some(input)
    }

    /// Tool name of a call in the request.
    fn tool_name(&self, id: &str) -> &str {
        self.calls.get(id).map_or("the call", String::as_str)
    }

    /// Converts a message of the preceding conversation.
    fn history_message(&self, request_message: RequestMessage, timestamp: u64) -> HistoryMessage {
        match request_message {
            RequestMessage::User(MessageContent { text, images }) => {
                HistoryMessage { message: Message::User(User::text(text, timestamp)), images }
            }
            RequestMessage::Assistant(content, calls) => {
                let stop_reason = if calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse };
                let text_block = Some(content.text).filter(|text| !text.is_empty()).map(Block::text);
                let content = text_block.into_iter().chain(calls.into_iter().map(Block::ToolCall)).collect();
                let assistant = Assistant { content, stop_reason, timestamp, ..Assistant::default() };
                HistoryMessage { message: Message::Assistant(assistant), images: Vec::new() }
            }
            RequestMessage::Tool(id, MessageContent { text, images: _ }) => {
                let result = ToolResult {
                    tool_name: self.tool_name(&id).to_owned(),
                    tool_call_id: id,
                    content: vec![Block::text(text)],
                    details: None,
                    is_error: false,
                    timestamp,
                    extra: Map::new(),
                };
                HistoryMessage { message: Message::ToolResult(result), images: Vec::new() }
            }
        }
    }
}

fn is_answer(message: &RequestMessage) -> bool {
    matches!(message, RequestMessage::Assistant(..))
}

/// Parses the function tools of a request: `/v1/responses` has the fields at the top level, `/v1/chat/completions`
/// inside `function`.
pub(super) fn functions(tools: &Value) -> Result<Vec<ToolSpec>, ApiError> {
    if tools.is_null() {
        return Ok(Vec::new());
    }
    let tools = tools.as_array().ok_or_else(|| ApiError::invalid_field("tools", "must be a list"))?;
    let function = |(number, tool): (usize, &Value)| {
        let path = format!("tools[{number}]");
        if tool["type"] != "function" {
            let problem = format!("has the unsupported type {}; only function tools are supported", tool["type"]);
            return Err(ApiError::invalid_field(&path, &problem));
        }
        let function = if tool["function"].is_object() { &tool["function"] } else { tool };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let name = function["name"].as_str().unwrap_or_default();
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
            return Err(ApiError::invalid_field(
                &path,
                "must have a name of at most 64 letters, digits, dashes and underscores",
            ));
        }
        let parameters = &function["parameters"];
        if !parameters.is_null() && !parameters.is_object() {
            return Err(ApiError::invalid_field(&path, "must have a JSON Schema as its parameters"));
        }
        let no_parameters = || json!({"type": "object", "properties": {}});
        let parameters = if parameters.is_null() { no_parameters() } else { parameters.clone() };
        let description =
            text(&function["description"], &format!("{path}.description"))?.unwrap_or_default().to_owned();
        Ok(ToolSpec { name: name.to_owned(), description, parameters })
    };
    tools.iter().enumerate().map(function).collect()
}
