//! Making a long conversation short: what is cut, how it is summed up, what is left out of a request. No room here does I/O.
