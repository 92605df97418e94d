//! RPC methods that are implemented outside this crate and registered with the gateway.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use homard_command::OWNER;
use homard_proto::{ErrorShape, Generation, method::Params};
use serde_json::Value;

use crate::{router::RpcCall, scope::Scope};

/// Scope that a method requires, per protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodScopes {
    /// Required scope in protocol 3.
    pub v3: Scope,
    /// Required scope in protocol 4.
    pub v4: Scope,
}

impl MethodScopes {
    pub(crate) fn of(self, generation: Generation) -> Scope {
        match generation {
            Generation::Three => self.v3,
            Generation::Four => self.v4,
        }
    }
}

impl From<Scope> for MethodScopes {
    fn from(scope: Scope) -> Self {
        Self { v3: scope, v4: scope }
    }
}

/// A request to a registered method. The caller has been checked for the scope that the method requires.
pub struct MethodRequest(RpcCall);

impl fmt::Debug for MethodRequest {
    /// Omits the parameters, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("client", &self.0.client.id).finish_non_exhaustive()
    }
}

impl MethodRequest {
    pub(crate) fn new(call: RpcCall) -> Self {
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
    pub fn has_scope(&self, scope: Scope) -> bool {
        self.0.client.scopes.allow(scope)
    }

    /// Validates and decodes the parameters. They are consumed: a second call finds none.
    pub fn params<P: Params>(&mut self) -> Result<P, ErrorShape> {
        self.0.params()
    }
}

/// Future that resolves to a method's response.
pub(crate) type MethodFuture = Pin<Box<dyn Future<Output = Result<Value, ErrorShape>> + Send>>;

/// An RPC method that is implemented outside the gateway. The response future is dropped when the caller disconnects.
#[derive(Clone)]
pub struct Method {
    pub(crate) name: &'static str,
    pub(crate) scopes: MethodScopes,
    pub(crate) handler: Arc<dyn Fn(MethodRequest) -> MethodFuture + Send + Sync>,
}

impl Method {
    /// Creates a method with this name, for callers that have the required scope.
    pub fn new<F, A>(name: &'static str, scopes: impl Into<MethodScopes>, handler: F) -> Self
    where
        F: Fn(MethodRequest) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, ErrorShape>> + Send + 'static,
    {
        Self { name, scopes: scopes.into(), handler: Arc::new(move |request| Box::pin(handler(request))) }
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Method").field("name", &self.name).field("needs", &self.scopes).finish_non_exhaustive()
    }
}
