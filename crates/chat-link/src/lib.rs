//! Connects the interactive chat with a gateway.
//!
//! [`start`] connects to the running gateway of a state directory, or starts one for the chat, and connects again
//! whenever the connection breaks. It implements the [`Link`](homard_chat::link::Link) of the chat, which knows neither
//! sockets nor processes. [`StateFiles`] are what a chat keeps in the state directory, and [`SessionChoice`] determines
//! the session that it opens.
//!
//! Start reading at [`connection`].
#![warn(missing_docs)]

pub mod connection;

mod error;
mod own_gateway;
mod session;
mod state_files;
mod terminal;

pub use self::{
    connection::{Connection, start},
    error::Error,
    session::SessionChoice,
    state_files::StateFiles,
    terminal::capabilities,
};
