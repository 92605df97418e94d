//! The durable store: JSONL transcripts and the session index on disk
