//! Encoder for requests of the Gemini API.

use homard_model::{Request, ToolSpec};
use homard_proto::message::{Block, ToolCall, ToolResult};
use serde_json::{Map, Value};

use super::{
    body::{
        Content, Declaration, FunctionCallBody, FunctionCalling, GeminiPart, GenerateContentBody, Generation,
        Instruction, Outcome, Response, Role, ToolConfig, ToolDeclarations,
    },
    is_old, schema, thinking,
};
use crate::{
    ModelTarget,
    ids::{CallIdRule, OwnIds},
    turns::{
        AssistantExchange, CallWithResult, ContentPart, ConversationStep, arguments, conversation_steps, result_parts,
        user_parts,
    },
};

/// Placeholder that newer models accept as the signature of a call that they did not make; they reject calls without
/// one.
const PLACEHOLDER_SIGNATURE: &str = "skip_thought_signature_validator";

/// Accepted call ids. No limit is documented; this is the limit of other APIs.
const IDS: CallIdRule = CallIdRule { max_length: 64, own: OwnIds::Kept };

/// Encodes a request body.
pub(crate) fn encode(target: &ModelTarget, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    let spec = &target.spec;
    let limit = request.max_output.or((spec.max_output > 0).then_some(spec.max_output));
    let declarations: Vec<_> = request.tools.iter().map(declaration).collect();
    let tools = (!declarations.is_empty()).then_some(ToolDeclarations { function_declarations: declarations });
    let no_calls = ToolConfig { function_calling_config: FunctionCalling { mode: "NONE" } };
    serde_json::to_vec(&GenerateContentBody {
        system_instruction: (!request.system.is_empty())
            .then(|| Instruction { parts: [GeminiPart::text(&request.system)] }),
        tools: tools.into_iter().collect(),
        tool_config: target.forbids_calls(request).then_some(no_calls),
        generation_config: Generation {
            max_output_tokens: limit,
            thinking_config: thinking::config(spec, request.thinking, limit),
        },
        contents: contents(target, request),
    })
}

fn declaration(tool: &ToolSpec) -> Declaration<'_> {
    let parameters_json_schema = schema::accepted(&tool.parameters);
    Declaration { name: &tool.name, description: &tool.description, parameters_json_schema }
}

fn contents<'a>(target: &ModelTarget, request: &'a Request) -> Vec<Content<'a>> {
    let mut contents = Vec::with_capacity(request.messages.len());
    for step in conversation_steps(&target.spec, request, IDS) {
        match step {
            ConversationStep::User(user) => {
                let parts = user_parts(user, &target.spec).into_iter().map(part).collect();
                push(&mut contents, Role::User, parts);
            }
            ConversationStep::Answer(answer) => exchange(target, answer, &mut contents),
        }
    }
    contents
}

/// Appends parts; merges consecutive messages of one role and skips empty ones.
fn push<'a>(contents: &mut Vec<Content<'a>>, role: Role, parts: Vec<GeminiPart<'a>>) {
    if parts.is_empty() {
        return;
    }
    let next = Content { role, parts };
    match contents.last_mut() {
        Some(last) if last.role == role && !last.is_results() && !next.is_results() => last.parts.extend(next.parts),
        _ => contents.push(next),
    }
}

fn part(piece: ContentPart<'_>) -> GeminiPart<'_> {
    match piece {
        ContentPart::Text(text) => GeminiPart::text(text),
        ContentPart::Image(image) => GeminiPart::image(image),
    }
}

/// Appends an assistant message and the results of its calls.
fn exchange<'a>(target: &ModelTarget, answer: AssistantExchange<'a>, contents: &mut Vec<Content<'a>>) {
    let is_old = is_old(&target.spec.model);
    push(contents, Role::Model, assistant_parts(&answer, is_old));

    let mut results = Vec::new();
    let mut user_images = Vec::new();
    for CallWithResult { call, id, result } in answer.calls {
        let pieces = result_parts(result, &target.spec);
        let (images, texts): (Vec<_>, Vec<_>) = pieces.into_iter().partition(|piece| piece.image().is_some());
        let images: Vec<_> = images.into_iter().map(part).collect();
        let mut response = response(call, result, &texts);
        if is_old {
            user_images.extend(images);
        } else {
            response.id = Some(id);
            response.parts = images;
        }
        results.push(GeminiPart { function_response: Some(response), ..GeminiPart::default() });
    }
    push(contents, Role::User, results);
    // Older models do not accept images in results, so these follow as if the user had sent them.
    if !user_images.is_empty() {
        user_images.insert(0, GeminiPart::text("Images from the tool results above:"));
        push(contents, Role::User, user_images);
    }
}

fn response<'a>(call: &'a ToolCall, result: Option<&ToolResult>, text: &[ContentPart<'a>]) -> Response<'a> {
    let text: String = text.iter().map(ContentPart::text).collect();
    let text = if text.is_empty() { "(an image)".to_owned() } else { text };
    let is_success = result.is_some_and(|result| !result.is_error);
    let response = if is_success { Outcome::Output(text) } else { Outcome::Error(text) };
    Response { id: None, name: &call.name, response, parts: Vec::new() }
}

/// Returns the parts of an assistant message, in order. Reasoning and signatures are only sent back to the model that
/// wrote them.
fn assistant_parts<'a>(answer: &AssistantExchange<'a>, is_old: bool) -> Vec<GeminiPart<'a>> {
    let is_own = answer.is_own;
    let mut parts = Vec::with_capacity(answer.message.content.len());
    for block in &answer.message.content {
        match block {
            Block::Text(block) => {
                let thought_signature = signature(&block.extra, "textSignature").filter(|_| is_own);
                if !block.text.is_empty() || thought_signature.is_some() {
                    parts.push(GeminiPart { thought_signature, ..GeminiPart::text(&block.text) });
                }
            }
            Block::Thinking(block) => {
                let thought_signature =
                    block.thinking_signature.as_deref().filter(|signature| is_own && !signature.is_empty());
                if is_own && (!block.thinking.is_empty() || thought_signature.is_some()) {
                    parts.push(GeminiPart { thought: true, thought_signature, ..GeminiPart::text(&block.thinking) });
                }
            }
            Block::ToolCall(call) => parts.push(GeminiPart {
                function_call: Some(FunctionCallBody {
                    id: (!is_old).then(|| answer.id_of(call)),
                    name: &call.name,
                    args: arguments(call),
                }),
                thought_signature: signature(&call.extra, "thoughtSignature").filter(|_| is_own),
                ..GeminiPart::default()
            }),
            Block::Image(_) | Block::Other(_) => {}
        }
    }
    if !is_old {
        sign(&mut parts);
    }
    parts
}

fn signature<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(Value::as_str).filter(|signature| !signature.is_empty())
}

/// Adds the placeholder signature to the first call, if no call has one. Of several calls only the first is signed.
fn sign(parts: &mut [GeminiPart<'_>]) {
    let mut calls = parts.iter_mut().filter(|part| part.function_call.is_some());
    let Some(first) = calls.next() else { return };
    if first.thought_signature.is_none() && calls.all(|call| call.thought_signature.is_none()) {
        first.thought_signature = Some(PLACEHOLDER_SIGNATURE);
    }
}

#[cfg(test)]
mod tests {
    use homard_model::ModelSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn consecutive_answers_are_merged_and_empty_ones_dropped() {
        let spec = ModelSpec { model: "gemini-3.8-flash".to_owned(), ..ModelSpec::default() };
        let answer = |text: &str| json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
        let messages = json!([
            {"role": "user", "content": "One"},
            answer("Two"),
            answer("Three"),
            {"role": "user", "content": "Four"},
            answer(""),
            {"role": "user", "content": "Five"},
        ]);
        let request = Request { messages: serde_json::from_value(messages).unwrap(), ..Request::default() };
        let body = encode(&ModelTarget::new(spec, "https://example.com"), &request).unwrap();
        let expected = json!({
            "generationConfig": {},
            "contents": [
                {"role": "user", "parts": [{"text": "One"}]},
                {"role": "model", "parts": [{"text": "Two"}, {"text": "Three"}]},
                {"role": "user", "parts": [{"text": "Four"}, {"text": "Five"}]},
            ],
        });
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected);
    }
}
