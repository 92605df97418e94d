//! The `image` tool: a vision model describes a picture.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::StreamExt;
use homard_agent::{
    Profile,
    tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec},
};
use homard_media::{ImageLimits, fit};
use homard_model::{
    ModelEvent, Request,
    candidates::{Candidate, Candidates, PreferredCredential},
};
use homard_proto::message::{Block, Content, Message, User};
use homard_runtime::Ambient;
use homard_settings::agents::Choice;
use homard_tools::{FileAccess, read_attachment};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::failure;

const NAME: &str = "image";
const PROMPT: &str = "Describe the image.";

/// Maximum output tokens of a description.
const MAX_OUTPUT_TOKENS: u64 = 4_096;

pub(crate) struct Image {
    /// The image models, from the config.
    image_models: Option<Choice>,
    /// Files that it may open.
    files: FileAccess,
}

/// Arguments of the tool.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    image: String,
    prompt: Option<String>,
    model: Option<String>,
    max_bytes_mb: Option<f64>,
}

impl Image {
    /// Creates the tool with these models; without any it uses the agent's own.
    pub(crate) fn new(image_models: Option<Choice>, files: FileAccess) -> Self {
        Self { image_models, files }
    }

    async fn describe(&self, cx: &ToolCx, arguments: Value) -> Result<ToolResult, String> {
        let arguments: Args =
            serde_json::from_value(arguments).map_err(|error| format!("the arguments cannot be read: {error}"))?;
        let profile = profile(cx).ok_or("the agent of this session no longer exists")?;
        let candidates = self.candidates(&profile, arguments.model.as_deref())?;
        let picture = self.picture(cx, &arguments).await?;
        let prompt = arguments.prompt.as_deref().map(str::trim).filter(|prompt| !prompt.is_empty()).unwrap_or(PROMPT);
        let content = Content::Blocks(vec![Block::text(prompt), picture]);
        let user = User { content, ..User::text("", Ambient::system().now_ms()) };
        let request = Request {
            messages: vec![Arc::new(Message::User(user))],
            max_output: Some(MAX_OUTPUT_TOKENS),
            ..Request::default()
        };
        let mut failed = Vec::new();
        for candidate in candidates {
            match ask(&candidate, request.clone()).await {
                Ok(text) => {
                    let details = json!({"model": candidate.to_string(), "image": arguments.image, "attempts": failed});
                    return Ok(ToolResult::text(text).with_details(details));
                }
                Err(why) => failed.push(format!("{candidate}: {why}")),
            }
        }
        Err(format!("no model could describe the image: {}", failed.join("; ")))
    }

    /// Returns the candidates in order.
    fn candidates(&self, profile: &Profile, model: Option<&str>) -> Result<Vec<Candidate>, String> {
        let chosen = |name: &str| (profile.resolve_model)(name).map_err(|why| format!("{name} cannot be used: {why}"));
        let named = model.map(str::trim).filter(|model| !model.is_empty());
        let candidate_sets: Vec<Candidates> = match (named, &self.image_models) {
            (Some(model), _) => vec![chosen(model)?],
            (None, Some(choice)) if choice.names().next().is_some() => {
                choice.names().map(chosen).collect::<Result<_, _>>()?
            }
            (None, _) => vec![profile.candidates.clone()],
        };
        let now = Ambient::system().now_ms();
        let all = candidate_sets.iter().flat_map(|candidates| candidates.order(now, &PreferredCredential::Any));
        let image_candidates: Vec<_> = all.filter(|candidate| candidate.model.spec().accepts_images).collect();
        if image_candidates.is_empty() {
            return Err("no model with image input is configured; the owner can set one in agents.defaults.imageModel"
                .to_owned());
        }
        Ok(image_candidates)
    }

    /// Loads a picture from the workspace.
    async fn picture(&self, cx: &ToolCx, arguments: &Args) -> Result<Block, String> {
        let name = arguments.image.trim();
        let name = name.strip_prefix('@').unwrap_or(name);
        let name = name.strip_prefix("file://").unwrap_or(name).to_owned();
        if name.contains("://") || name.starts_with("data:") {
            return Err("image must be the path of a file in the workspace".to_owned());
        }
        let (files, root) = (self.files.clone(), cx.workdir.clone());
        let loading = tokio::task::spawn_blocking(move || {
            let bytes = read_attachment(&files, &root, &name)?;
            fit(bytes, &ImageLimits::default()).map_err(|error| format!("cannot process image {name}: {error}"))
        });
        let picture = loading.await.map_err(|error| format!("the operation failed: {error}"))??;
        let max_mb = arguments.max_bytes_mb.filter(|max_mb| *max_mb > 0.0);
        #[expect(clippy::cast_precision_loss, reason = "a picture has a few million bytes")]
        let size = picture.data.len() as f64 / 1024.0 / 1024.0;
        match max_mb {
            Some(max_mb) if size > max_mb => Err(format!("the image has {size:.1} MiB, more than maxBytesMb")),
            Some(_) | None => Ok(picture.into_block()),
        }
    }
}

/// Returns the calling agent.
fn profile(cx: &ToolCx) -> Option<Arc<Profile>> {
    let agents = cx.hub.as_ref()?.agents();
    agents.get(cx.session.agent().unwrap_or(agents.default_id())).cloned()
}

/// Sends one request to one model.
async fn ask(candidate: &Candidate, request: Request) -> Result<String, String> {
    let idle: Duration = candidate.model.spec().idle_timeout;
    let mut stream = candidate.model.stream(request);
    let mut answer = String::new();
    loop {
        let next = timeout(idle, stream.next()).await.map_err(|_late| "timed out".to_owned())?;
        match next {
            Some(ModelEvent::Text(text)) => answer.push_str(&text),
            Some(
                ModelEvent::Thinking(_)
                | ModelEvent::Call(_)
                | ModelEvent::Signature(_)
                | ModelEvent::Heartbeat
                | ModelEvent::NoResponse(_),
            ) => {}
            Some(ModelEvent::Failed(error)) => return Err(error.to_string()),
            Some(ModelEvent::Done(_)) | None => break,
        }
    }
    if answer.trim().is_empty() { Err("the answer was empty".to_owned()) } else { Ok(answer) }
}

#[async_trait]
impl Tool for Image {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.to_owned(),
            description:
                "Send a picture of the workspace and the prompt to a model with image input, and return its answer. Use it \
                          only if you cannot see the picture yourself."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["image"],
                "properties": {
                    "prompt": {"type": "string"},
                    "image": {"type": "string"},
                    "model": {"type": "string"},
                    "maxBytesMb": {"type": "number"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        match cx.cancel.run_until_cancelled(self.describe(&cx, arguments)).await {
            Some(Ok(result)) => result,
            Some(Err(why)) => failure(NAME, &why),
            None => failure(NAME, &"the run was stopped before the image was described"),
        }
    }
}
