//! Other people's programs that take part in the loop: found, judged, started, watched over and spoken to.
