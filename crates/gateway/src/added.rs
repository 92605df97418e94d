//! Methods that somebody else answers: how a gateway serves what it does not know itself.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use homard_agent::command::OWNER;
use homard_proto::{ErrorShape, Generation, method::Params};
use serde_json::Value;

use crate::{router::Call, scope::Scope};

/// What a method needs, which may differ between the generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// In protocol 3.
    pub three: Scope,
    /// In protocol 4.
    pub four: Scope,
}

impl Needs {
    pub(crate) fn of(self, generation: Generation) -> Scope {
        match generation {
            Generation::Three => self.three,
            Generation::Four => self.four,
        }
    }
}

impl From<Scope> for Needs {
    fn from(scope: Scope) -> Self {
        Self { three: scope, four: scope }
    }
}

/// A question to a method that was added. Whoever asks has the scope that the method needs.
pub struct Asked(Call);

impl fmt::Debug for Asked {
    /// Without the parameters, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("client", &self.0.client.id).finish_non_exhaustive()
    }
}

impl Asked {
    pub(crate) fn new(call: Call) -> Self {
        Self(call)
    }

    /// The protocol that the asker speaks.
    pub fn generation(&self) -> Generation {
        self.0.client.generation
    }

    /// Who asks. Everybody who was let in is the owner, for now.
    pub fn principal(&self) -> &str {
        OWNER
    }

    /// Whether the asker may do more than the method needs.
    pub fn may(&self, scope: Scope) -> bool {
        self.0.client.scopes.allow(scope)
    }

    /// Checks and reads the parameters, once: asked again, there are none.
    pub fn params<P: Params>(&mut self) -> Result<P, ErrorShape> {
        self.0.params()
    }
}

/// An answer in the making.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Value, ErrorShape>> + Send>>;

/// A method that is answered outside the gateway. The answer is dropped when the asker leaves.
#[derive(Clone)]
pub struct Method {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) answer: Arc<dyn Fn(Asked) -> Answering + Send + Sync>,
}

impl Method {
    /// A method of this name, for whoever has the scope.
    pub fn new<F, A>(name: &'static str, needs: impl Into<Needs>, answer: F) -> Self
    where
        F: Fn(Asked) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, ErrorShape>> + Send + 'static,
    {
        Self { name, needs: needs.into(), answer: Arc::new(move |asked| Box::pin(answer(asked))) }
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Method").field("name", &self.name).field("needs", &self.needs).finish_non_exhaustive()
    }
}
