//! The mark of something that is in progress.

/// Duration of a frame in milliseconds.
pub(crate) const FRAME_MS: u64 = 100;

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Returns the frame after this time in milliseconds.
pub(crate) fn spinner(elapsed: u64) -> &'static str {
    let frame = (elapsed / FRAME_MS) % FRAMES.len() as u64;
    FRAMES[frame as usize]
}
