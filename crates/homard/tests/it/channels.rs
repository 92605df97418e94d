//! Chat platforms through the binary, over real HTTP: a fake Bot API, a fake peer of the webhook channel, a fake model.

mod deliver;
mod discord;
mod drafts;
mod egress;
mod http_routes;
mod identity;
mod kill_grid;
mod kills;
mod non_owners;
mod pairing;
pub(crate) mod setup;
mod suite;
mod talk;
mod troubles;
mod two_users;
