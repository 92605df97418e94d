//! Tests of the journal: it stores what the memory store would, and on disk what OpenClaw would.
#![cfg(test)]

mod both;
mod cost;
mod crash;
mod damage;
mod export;
mod figures;
mod files;
mod formats;
mod random;
mod rot;
mod samples;
mod search;
mod words;
