//! Encoder for requests of the Gemini API.

use homard_model::{Request, ToolSpec};
use homard_proto::message::{Block, ToolCall, ToolResult};
use serde_json::{Map, Value};

use super::{
    body::{
        Body, Call, Content, Declaration, FunctionCalling, Generation, Instruction, Outcome, Part, Response, Role,
        ToolConfig, Tools,
    },
    is_old, schema, thinking,
};
use crate::{
    Target,
    ids::{Own, Rule},
    turns::{Called, Exchange, Shown, Turn, answered, arguments, shown_by, turns},
};

/// Placeholder that newer models accept as the signature of a call that they did not make; they reject calls without
/// one.
const UNSIGNED: &str = "skip_thought_signature_validator";

/// Accepted call ids. No limit is documented; this is the limit of other APIs.
const IDS: Rule = Rule { longest: 64, own: Own::Kept };

/// Encodes a request body.
pub(crate) fn encode(target: &Target, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    let spec = &target.spec;
    let limit = request.max_output.or((spec.max_output > 0).then_some(spec.max_output));
    let declarations: Vec<_> = request.tools.iter().map(declaration).collect();
    let tools = (!declarations.is_empty()).then_some(Tools { function_declarations: declarations });
    let silenced = ToolConfig { function_calling_config: FunctionCalling { mode: "NONE" } };
    serde_json::to_vec(&Body {
        system_instruction: (!request.system.is_empty()).then(|| Instruction { parts: [Part::text(&request.system)] }),
        tools: tools.into_iter().collect(),
        tool_config: target.forbids_calls(request).then_some(silenced),
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

fn contents<'a>(target: &Target, request: &'a Request) -> Vec<Content<'a>> {
    let mut contents = Vec::with_capacity(request.messages.len());
    for turn in turns(&target.spec, request, IDS) {
        match turn {
            Turn::User(user) => {
                let parts = shown_by(user, &target.spec).into_iter().map(part).collect();
                push(&mut contents, Role::User, parts);
            }
            Turn::Answer(answer) => exchange(target, answer, &mut contents),
        }
    }
    contents
}

/// Appends parts; merges consecutive messages of one role and skips empty ones.
fn push<'a>(contents: &mut Vec<Content<'a>>, role: Role, parts: Vec<Part<'a>>) {
    if parts.is_empty() {
        return;
    }
    let next = Content { role, parts };
    match contents.last_mut() {
        Some(last) if last.role == role && !last.is_results() && !next.is_results() => last.parts.extend(next.parts),
        _ => contents.push(next),
    }
}

fn part(piece: Shown<'_>) -> Part<'_> {
    match piece {
        Shown::Text(text) => Part::text(text),
        Shown::Image(image) => Part::image(image),
    }
}

/// Appends an assistant message and the results of its calls.
fn exchange<'a>(target: &Target, answer: Exchange<'a>, contents: &mut Vec<Content<'a>>) {
    let is_old = is_old(&target.spec.model);
    push(contents, Role::Model, said(&answer, is_old));

    let mut results = Vec::new();
    let mut pictures = Vec::new();
    for Called { call, id, result } in answer.calls {
        let pieces = answered(result, &target.spec);
        let (images, words): (Vec<_>, Vec<_>) = pieces.into_iter().partition(|piece| piece.image().is_some());
        let images: Vec<_> = images.into_iter().map(part).collect();
        let mut response = response(call, result, &words);
        if is_old {
            pictures.extend(images);
        } else {
            response.id = Some(id);
            response.parts = images;
        }
        results.push(Part { function_response: Some(response), ..Part::default() });
    }
    push(contents, Role::User, results);
    // Older models do not accept images in results, so these follow as if the user had sent them.
    if !pictures.is_empty() {
        pictures.insert(0, Part::text("Images from the tool results above:"));
        push(contents, Role::User, pictures);
    }
}

fn response<'a>(call: &'a ToolCall, result: Option<&ToolResult>, words: &[Shown<'a>]) -> Response<'a> {
    let words: String = words.iter().map(Shown::text).collect();
    let words = if words.is_empty() { "(an image)".to_owned() } else { words };
    let is_good = result.is_some_and(|result| !result.is_error);
    let response = if is_good { Outcome::Output(words) } else { Outcome::Error(words) };
    Response { id: None, name: &call.name, response, parts: Vec::new() }
}

/// Returns the parts of an assistant message, in order. Reasoning and signatures are only sent back to the model that
/// wrote them.
fn said<'a>(answer: &Exchange<'a>, is_old: bool) -> Vec<Part<'a>> {
    let is_own = answer.is_own;
    let mut parts = Vec::with_capacity(answer.said.content.len());
    for block in &answer.said.content {
        match block {
            Block::Text(block) => {
                let thought_signature = seal(&block.extra, "textSignature").filter(|_| is_own);
                if !block.text.is_empty() || thought_signature.is_some() {
                    parts.push(Part { thought_signature, ..Part::text(&block.text) });
                }
            }
            Block::Thinking(block) => {
                let thought_signature = block.thinking_signature.as_deref().filter(|seal| is_own && !seal.is_empty());
                if is_own && (!block.thinking.is_empty() || thought_signature.is_some()) {
                    parts.push(Part { thought: true, thought_signature, ..Part::text(&block.thinking) });
                }
            }
            Block::ToolCall(call) => parts.push(Part {
                function_call: Some(Call {
                    id: (!is_old).then(|| answer.id_of(call)),
                    name: &call.name,
                    args: arguments(call),
                }),
                thought_signature: seal(&call.extra, "thoughtSignature").filter(|_| is_own),
                ..Part::default()
            }),
            Block::Image(_) | Block::Other(_) => {}
        }
    }
    if !is_old {
        sign(&mut parts);
    }
    parts
}

fn seal<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(Value::as_str).filter(|seal| !seal.is_empty())
}

/// Adds the placeholder signature to the first call, if no call has one. Of several calls only the first is signed.
fn sign(parts: &mut [Part<'_>]) {
    let mut calls = parts.iter_mut().filter(|part| part.function_call.is_some());
    let Some(first) = calls.next() else { return };
    if first.thought_signature.is_none() && calls.all(|call| call.thought_signature.is_none()) {
        first.thought_signature = Some(UNSIGNED);
    }
}

#[cfg(test)]
mod tests {
    use homard_model::Spec;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_model_that_speaks_twice_speaks_once_and_an_empty_answer_is_none() {
        let spec = Spec { model: "gemini-3.8-flash".to_owned(), ..Spec::default() };
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
        let body = encode(&Target::new(spec, "https://example.com"), &request).unwrap();
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
