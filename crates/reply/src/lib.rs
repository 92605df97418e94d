//! What the user reads. A model's words go in as they come; out come the words that are meant for the user, cut into good
//! pieces, and at the end of a run the replies. No room here does I/O or looks at a clock.

pub mod payload;
pub mod sent;
