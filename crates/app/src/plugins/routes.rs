//! Chat commands, gateway methods, HTTP routes and webhook transforms of plugins.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use homard_gateway::{
    PluginEndpoints, PluginHttpRequest, PluginHttpResponse, RouteAuth, Scope, Transform, Transformer,
};
use homard_hooks::{HookError, SlashCommand, SlashCommandCall};
use homard_plugins::{CommandInvocation, PluginCommand, PluginHttpCall, PluginRoute};
use homard_proto::ErrorShape;
use serde_json::Value;
use tokio::fs::canonicalize;

use super::PluginSet;

/// Maximum time for a transform module.
const TRANSFORM_TIMEOUT: Duration = Duration::from_secs(10);

/// A plugin's chat command.
pub(super) struct PluginChatCommand(pub PluginCommand);

#[async_trait]
impl SlashCommand for PluginChatCommand {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn description(&self) -> &str {
        self.0.description()
    }

    fn accepts_args(&self) -> bool {
        self.0.matches(self.0.name(), "words")
    }

    async fn run(&self, call: SlashCommandCall) -> Result<String, HookError> {
        let cx = CommandInvocation {
            sender_id: Some(call.sender_id),
            channel: call.channel,
            is_authorized_sender: call.is_authorized_sender,
            args: call.args,
            command_body: call.command_body,
            session_key: Some(call.session_key),
        };
        let result = self.0.run(cx).await.map_err(|error| HookError::Failed(error.to_string()))?;
        let text = result.as_str().or_else(|| result["text"].as_str());
        Ok(text.unwrap_or("Done.").to_owned())
    }
}

/// The gateway methods and HTTP routes of plugins.
#[derive(Debug)]
pub struct PluginRoutes(pub PluginSet);

impl PluginRoutes {
    fn routes(&self, path: &str) -> impl Iterator<Item = PluginRoute> {
        self.0.extensions().routes.into_iter().filter(move |route| route.matches(path))
    }
}

/// Runs the modules that transform webhook payloads.
#[derive(Debug)]
pub struct Transforms {
    plugins: PluginSet,
    /// Directory of the modules.
    folder: PathBuf,
}

impl Transforms {
    /// Runs modules of this directory in the process of the plugins.
    pub fn new(plugins: &PluginSet, folder: PathBuf) -> Self {
        Self { plugins: plugins.clone(), folder }
    }
}

#[async_trait]
impl Transformer for Transforms {
    async fn transform(&self, transform: &Transform, request: Value) -> Result<Value, String> {
        let module = self.folder.join(&transform.module);
        // The config check only inspects the text of the path; a symlink may still lead outside.
        let (module, folder) = tokio::try_join!(canonicalize(&module), canonicalize(&self.folder))
            .map_err(|error| format!("{}: {error}", module.display()))?;
        if !module.starts_with(&folder) {
            return Err(format!("{} is outside hooks.transformsDir", module.display()));
        }
        let (module, export) = (module.display().to_string(), transform.export.as_deref());
        let node = self.plugins.plugins.node();
        node.transform(&module, export, request, TRANSFORM_TIMEOUT).await.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl PluginEndpoints for PluginRoutes {
    fn methods(&self) -> Vec<String> {
        self.0.extensions().methods.iter().map(|method| method.name().to_owned()).collect()
    }

    fn required_scope(&self, name: &str) -> Option<Scope> {
        let methods = self.0.extensions().methods;
        let method = methods.iter().find(|method| method.name() == name)?;
        Some(match method.scope() {
            Some("operator.read") => Scope::Read,
            Some("operator.write") => Scope::Write,
            Some("operator.approvals") => Scope::Approvals,
            // The effect of a plugin's method is unknown.
            Some(_) | None => Scope::Admin,
        })
    }

    async fn call(&self, name: &str, params: Value, client: Value) -> Result<Value, ErrorShape> {
        let methods = self.0.extensions().methods;
        let Some(method) = methods.into_iter().find(|method| method.name() == name) else {
            return Err(ErrorShape::invalid(format!("unknown method: {name}")));
        };
        let plugin = method.plugin().to_owned();
        let answer = method.call(params, client).await;
        let answer = answer.map_err(|error| ErrorShape::unavailable(format!("the plugin {plugin}: {error}")))?;
        if answer.ok {
            return Ok(answer.payload);
        }
        let why = answer.error["message"].as_str().or(answer.error.as_str()).unwrap_or("no reason given");
        Err(ErrorShape::unavailable(format!("the plugin {plugin}: {why}")))
    }

    fn route_auth(&self, path: &str) -> Option<RouteAuth> {
        let route = self.routes(path).next()?;
        Some(if route.needs_token() { RouteAuth::Gateway } else { RouteAuth::Plugin })
    }

    async fn handle(&self, request: PluginHttpRequest) -> Option<PluginHttpResponse> {
        let path = request.url.split('?').next().unwrap_or_default().to_owned();
        for route in self.routes(&path) {
            let ask = PluginHttpCall {
                method: request.method.clone(),
                url: request.url.clone(),
                headers: request.headers.clone(),
                body: request.body.clone(),
                remote_address: Some(request.from.to_string()),
            };
            match route.handle(ask).await {
                Ok(answer) if answer.is_handled => {
                    return Some(PluginHttpResponse {
                        status: answer.status,
                        headers: answer.headers,
                        body: answer.body,
                    });
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(plugin = route.plugin(), path, %error, "plugin route failed");
                    let body = format!("the plugin {} failed to handle the request\n", route.plugin()).into_bytes();
                    return Some(PluginHttpResponse { status: 502, headers: Vec::new(), body });
                }
            }
        }
        None
    }
}
