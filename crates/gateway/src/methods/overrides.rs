//! Parameters that replace settings of a run, and who may set them.

use homard_proto::ErrorShape;

use crate::{
    router::RpcCall,
    scope::{self, Scope},
};

/// Checks who sets a working directory: it requires the admin scope and a direct connection from this machine.
pub(crate) fn check_cwd(call: &RpcCall, cwd: Option<&str>, method: &str) -> Result<(), ErrorShape> {
    let client = &call.client;
    if cwd.is_none() {
        return Ok(());
    }
    if !client.scopes.allow(Scope::Admin) {
        return Err(scope::missing_error(client.generation, Scope::Admin));
    }
    if !client.is_direct {
        let why = format!(
            "invalid {method} params: cwd is only accepted from the gateway's own machine, without a proxy in between"
        );
        return Err(ErrorShape::invalid(why));
    }
    Ok(())
}
