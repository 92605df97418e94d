//! `homard/demo`: the offline model that runs when no provider is configured.
