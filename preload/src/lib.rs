//! librspreload.so.
