//! Golden screens: the chat is driven with keys and frames of the gateway on a virtual clock, and its real output is
//! parsed by a terminal emulator.

mod chat;
mod screens;
