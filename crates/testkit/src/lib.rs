//! Dev-only: the scripted model, the virtual world and the trace runner
