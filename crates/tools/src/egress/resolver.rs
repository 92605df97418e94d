//! DNS resolution with checks at the moment of use: the addresses that were checked are the ones that are dialled.

use std::{io, net::IpAddr, sync::Arc};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::{
    destination,
    exception::{EgressException, is_listed},
};

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
pub(super) struct GuardedResolver {
    pub(super) inner: Arc<dyn Resolve>,
    pub(super) exceptions: Arc<[EgressException]>,
    pub(super) is_local: fn(IpAddr) -> bool,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let lookup = self.inner.resolve(name);
        let (exceptions, is_own) = (self.exceptions.clone(), self.is_local);
        Box::pin(async move {
            let found: Vec<_> = lookup.await?.collect();
            if found.is_empty() {
                return Err(io::Error::other("the name has no address").into());
            }
            if !is_listed(&exceptions, &host) {
                // One bad address rejects the whole answer: a server that mixes them is attempting DNS rebinding.
                for address in &found {
                    destination::check_address(&host, address.ip(), &exceptions)?;
                    destination::check_not_local(&host, address.ip(), (&exceptions, is_own))?;
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
