//! Speaking to model vendors over HTTP
