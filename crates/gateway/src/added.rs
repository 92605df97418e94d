//! RPC methods that are implemented outside this crate and registered with the gateway.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use homard_agent::command::OWNER;
use homard_proto::{ErrorShape, Generation, method::Params};
use serde_json::Value;

use crate::{router::Call, scope::Scope};

/// Scope that a method requires, per protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Required scope in protocol 3.
    pub three: Scope,
    /// Required scope in protocol 4.
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

/// A request to a registered method. The caller has been checked for the scope that the method requires.
pub struct Asked(Call);

impl fmt::Debug for Asked {
    /// Omits the parameters, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("client", &self.0.client.id).finish_non_exhaustive()
    }
}

impl Asked {
    pub(crate) fn new(call: Call) -> Self {
        Self(call)
    }

    /// Returns the protocol version of the caller.
    pub fn generation(&self) -> Generation {
        self.0.client.generation
    }

    /// Returns the caller's principal. Every authenticated client currently acts as the owner.
    pub fn principal(&self) -> &str {
        OWNER
    }

    /// Returns true if the caller also has the given scope.
    pub fn may(&self, scope: Scope) -> bool {
        self.0.client.scopes.allow(scope)
    }

    /// Validates and decodes the parameters. They are consumed: a second call finds none.
    pub fn params<P: Params>(&mut self) -> Result<P, ErrorShape> {
        self.0.params()
    }
}

/// Future that resolves to a method's response.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Value, ErrorShape>> + Send>>;

/// An RPC method that is implemented outside the gateway. The response future is dropped when the caller disconnects.
#[derive(Clone)]
pub struct Method {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) answer: Arc<dyn Fn(Asked) -> Answering + Send + Sync>,
}

impl Method {
    /// Creates a method with this name, for callers that have the required scope.
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
