//! The journal keeps what it was given: as the memory store does, and on disk as OpenClaw would.
#![cfg(test)]

mod both;
mod cost;
mod crash;
mod damage;
mod export;
mod figures;
mod files;
mod random;
mod rot;
mod samples;
mod words;
