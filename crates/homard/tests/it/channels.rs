//! Chat platforms through the binary, over real HTTP: a fake Bot API, a fake peer of the webhook channel, a fake model.

mod door;
mod kills;
mod pairing;
mod stage;
mod talk;
mod troubles;
mod two_users;
