//! DNS resolution with checks at the moment of use: the addresses that were checked are the ones that are dialled.

use std::{io, sync::Arc};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::{destination::DestinationRules, exception::is_listed};

/// The system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Resolver that rejects names with a non-public address, unless an exception allows it.
pub(crate) struct GuardedResolver {
    pub(crate) inner: Arc<dyn Resolve>,
    pub(crate) rules: Arc<DestinationRules>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let lookup = self.inner.resolve(name);
        let rules = self.rules.clone();
        Box::pin(async move {
            let found: Vec<_> = lookup.await?.collect();
            if found.is_empty() {
                return Err(io::Error::other("the name has no address").into());
            }
            if !is_listed(&rules.exceptions, &host) {
                // One bad address rejects the whole answer: a server that mixes them is attempting DNS rebinding.
                for address in &found {
                    rules.check_resolved(&host, address.ip())?;
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
